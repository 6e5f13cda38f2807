package resp

import (
	"bufio"
	"fmt"
	"io"
	"strconv"
	"strings"
)

// Reply is one reply as a client reads it.
type Reply struct {
	Kind  byte    // first byte on the wire: + - : $ * _ % ~ > , # = ( ; the null of RESP2 is _
	Text  string  // of kinds without elements
	Elems []Reply // of arrays, sets, pushes; of maps, keys and values in turn
}

const (
	maxNesting  = 8
	maxElements = 1 << 20
)

// String formats the reply for people.
func (r Reply) String() string {
	switch r.Kind {
	case '*', '%', '~', '>':
		var parts []string
		for _, e := range r.Elems {
			parts = append(parts, e.String())
		}
		return "[" + strings.Join(parts, " ") + "]"
	case '_':
		return "(nil)"
	case '-':
		return "-" + r.Text
	}
	return r.Text
}

// AppendCommand appends a command as clients encode it. It is for tests and tools.
func AppendCommand(buf []byte, args ...string) []byte {
	w := Writer{buf: buf}
	w.Array(len(args))
	for _, a := range args {
		w.BulkString(a)
	}
	return w.buf
}

// ReadReply reads one reply. It is for tests and tools.
func ReadReply(r *bufio.Reader) (Reply, error) { return readReply(r, 0) }

func readReply(r *bufio.Reader, depth int) (Reply, error) {
	line, err := r.ReadSlice('\n')
	if err != nil {
		return Reply{}, err
	}
	if len(line) < 3 || line[len(line)-2] != '\r' || depth > maxNesting {
		return Reply{}, malformed("reply %q", line)
	}
	out := Reply{Kind: line[0], Text: string(line[1 : len(line)-2])}
	switch out.Kind {
	case '+', '-', ':', '_', ',', '#', '(':
		return out, nil
	case '$', '=', '*', '%', '~', '>':
	default:
		return Reply{}, malformed("reply of kind %q", out.Kind)
	}
	n, err := strconv.Atoi(out.Text)
	if err != nil || n < -1 || n > hardBulk {
		return Reply{}, malformed("length %q", out.Text)
	}
	if n == -1 {
		return Reply{Kind: '_'}, nil
	}
	if out.Kind == '$' || out.Kind == '=' {
		out.Text, err = readText(r, n)
		return out, err
	}
	if out.Text = ""; out.Kind == '%' {
		n *= 2
	}
	if n > maxElements {
		return Reply{}, malformed("%d elements", n)
	}
	for range n {
		e, err := readReply(r, depth+1)
		if err != nil {
			return Reply{}, err
		}
		out.Elems = append(out.Elems, e)
	}
	return out, nil
}

func readText(r *bufio.Reader, n int) (string, error) {
	var b strings.Builder
	if _, err := io.CopyN(&b, r, int64(n)); err != nil {
		return "", err
	}
	var end [2]byte
	if _, err := io.ReadFull(r, end[:]); err != nil {
		return "", err
	}
	if end != [2]byte{'\r', '\n'} {
		return "", fmt.Errorf("resp: value of %d bytes does not end in CRLF", n)
	}
	return b.String(), nil
}
