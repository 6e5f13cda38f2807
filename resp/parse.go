package resp

import (
	"bytes"
	"errors"
	"fmt"
)

// protocolError means that the start of the next request is unknown: the connection cannot go on.
type protocolError struct{ text string }

func (e *protocolError) Error() string { return "Protocol error: " + e.text }

func malformed(format string, a ...any) error { return &protocolError{fmt.Sprintf(format, a...)} }

// errOversize means that the next request, or one of its arguments, is over the limit. The
// connection skips the request and goes on.
var errOversize = errors.New("ERR argument exceeds the limit of this server; nothing was done, send less or raise the limit")

// limits bound one request.
type limits struct{ args, bulk, inline, request int }

// beforeAuth are the limits of clients that have not authenticated.
var beforeAuth = limits{args: 10, bulk: 16 << 10, inline: 16 << 10, request: 1 << 20}

// hardBulk is the longest argument that is skipped. A longer one ends the connection.
const hardBulk = 512 << 20

// parse reads one request from the start of b. The arguments are slices of b. n is the length of
// the request, or 0 if it is incomplete.
func parse(b []byte, args [][]byte, lim limits) (n int, out [][]byte, err error) {
	args = args[:0]
	if len(b) == 0 {
		return 0, args, nil
	}
	if b[0] != '*' {
		return parseInline(b, args, lim)
	}
	count, at, err := header(b, 1, int64(lim.args), "invalid multibulk length")
	if at == 0 || err != nil {
		return 0, args, err
	}
	at, args, err = arguments(b, at, int(count), args, lim)
	if err != nil || len(args) < int(count) {
		return 0, args, err
	}
	return at, args, nil
}

// arguments reads arguments, beginning at at, until there are count of them or b ends. next is the
// end of the last one.
func arguments(b []byte, at, count int, args [][]byte, lim limits) (next int, out [][]byte, err error) {
	for len(args) < count {
		if at >= len(b) {
			return at, args, nil
		}
		if b[at] != '$' {
			return at, args, malformed("expected '$', got '%s'", b[at:at+1])
		}
		size, begin, err := header(b, at+1, hardBulk, "invalid bulk length")
		switch {
		case err != nil:
			return at, args, err
		case begin == 0:
			return at, args, nil
		case size < 0:
			return at, args, malformed("invalid bulk length")
		case size > int64(lim.bulk) || begin+int(size) > lim.request:
			return at, args, errOversize
		}
		end := begin + int(size)
		if end+2 > len(b) {
			return at, args, nil
		}
		args = append(args, b[begin:end:end])
		at = end + 2
	}
	return at, args, nil
}

// header reads a number that ends in CRLF, beginning at at. next is the position after it, or 0 if
// the number is incomplete.
func header(b []byte, at int, most int64, what string) (n int64, next int, err error) {
	const longest = 32
	end := bytes.IndexByte(b[at:min(len(b), at+longest)], '\n')
	if end < 0 {
		if len(b) >= at+longest {
			return 0, 0, malformed("%s", what)
		}
		return 0, 0, nil
	}
	digits := b[at : at+end]
	if len(digits) == 0 || digits[len(digits)-1] != '\r' {
		return 0, 0, malformed("%s", what)
	}
	digits = digits[:len(digits)-1]
	neg := len(digits) > 0 && digits[0] == '-'
	if neg {
		digits = digits[1:]
	}
	if len(digits) == 0 || len(digits) > 18 || digits[0] == '0' && (neg || len(digits) > 1) {
		return 0, 0, malformed("%s", what)
	}
	for _, d := range digits {
		if d < '0' || d > '9' {
			return 0, 0, malformed("%s", what)
		}
		n = n*10 + int64(d-'0')
	}
	if neg {
		n = -n
	}
	if n > most {
		return 0, 0, malformed("%s", what)
	}
	return n, at + end + 1, nil
}

// parseInline reads a line of words, as typed by hand. Words may be quoted.
func parseInline(b []byte, args [][]byte, lim limits) (int, [][]byte, error) {
	end := bytes.IndexByte(b, '\n')
	if end < 0 && len(b) > lim.inline || end > lim.inline {
		return 0, args, malformed("too big inline request")
	}
	if end < 0 {
		return 0, args, nil
	}
	line := bytes.TrimSuffix(b[:end], []byte("\r"))
	for {
		line = bytes.TrimLeft(line, " \t\r\v\f\x00")
		if len(line) == 0 {
			return end + 1, args, nil
		}
		word, rest, ok := word(line)
		if !ok {
			return 0, args, malformed("unbalanced quotes in request")
		}
		if args = append(args, word); len(args) > lim.args {
			return 0, args, malformed("too many words")
		}
		line = rest
	}
}

func space(c byte) bool { return c == ' ' || c >= '\t' && c <= '\r' || c == 0 }

// word cuts the first word off a line that does not begin with space.
func word(line []byte) (out, rest []byte, ok bool) {
	if bytes.IndexByte(line, '"') < 0 && bytes.IndexByte(line, '\'') < 0 {
		i := bytes.IndexFunc(line, func(r rune) bool { return r < 128 && space(byte(r)) })
		if i < 0 {
			i = len(line)
		}
		return line[:i], line[i:], true
	}
	i := 0
	for i < len(line) && !space(line[i]) {
		q := line[i]
		if q != '"' && q != '\'' {
			out = append(out, q)
			i++
			continue
		}
		var n int
		if out, n = quoted(out, line[i:], q); n == 0 {
			return nil, nil, false
		}
		i += n
		if i < len(line) && !space(line[i]) { // a closing quote ends the word
			return nil, nil, false
		}
	}
	if out == nil {
		out = []byte{}
	}
	return out, line[i:], true
}

// quoted appends the text between the quotes at the start of b. n is the length with the quotes, or
// 0 if there is no closing quote.
func quoted(out, b []byte, q byte) ([]byte, int) {
	for i := 1; i < len(b); i++ {
		switch {
		case b[i] == q:
			return out, i + 1
		case b[i] != '\\' || i+1 == len(b):
			out = append(out, b[i])
		case q == '\'':
			if b[i+1] == '\'' {
				i++
			}
			out = append(out, b[i])
		default:
			if i+3 < len(b) && b[i+1] == 'x' && hex(b[i+2]) >= 0 && hex(b[i+3]) >= 0 {
				out = append(out, byte(hex(b[i+2])<<4|hex(b[i+3])))
				i += 3
				continue
			}
			i++
			c := b[i]
			if j := bytes.IndexByte([]byte("nrtba"), c); j >= 0 {
				c = "\n\r\t\b\a"[j]
			}
			out = append(out, c)
		}
	}
	return out, 0
}

func hex(c byte) int {
	switch {
	case c >= '0' && c <= '9':
		return int(c - '0')
	case c|0x20 >= 'a' && c|0x20 <= 'f':
		return int(c|0x20-'a') + 10
	}
	return -1
}
