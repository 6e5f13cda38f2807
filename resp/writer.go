package resp

import (
	"math"
	"strconv"
	"strings"
)

// Writer collects replies in the dialect of one connection. It is not safe for
// concurrent use.
type Writer struct {
	buf   []byte
	proto int
	wait  func() // nil: everything stays in the buffer
	err   error
}

// NewWriter returns a Writer for a reply that another connection or node will send. proto is 2 or
// 3.
func NewWriter(proto int) *Writer { return &Writer{proto: proto} }

// Bytes returns the replies so far. They are valid until the next write.
func (w *Writer) Bytes() []byte { return w.buf }

// Reset forgets what was written.
func (w *Writer) Reset() { w.buf = w.buf[:0] }

// Proto returns the version of RESP: 2 or 3.
func (w *Writer) Proto() int { return w.proto }

// MayBlock sends the replies of earlier commands and lets pushes through, because the current
// command may take long. The reply of the current command must not be begun, or must be complete.
func (w *Writer) MayBlock() {
	if w.wait != nil {
		w.wait()
	}
}

func (w *Writer) line(kind byte, s string) {
	w.buf = append(w.buf, kind)
	w.buf = append(w.buf, s...)
	w.buf = append(w.buf, '\r', '\n')
}

func (w *Writer) head(kind byte, n int64) {
	w.buf = append(w.buf, kind)
	w.buf = strconv.AppendInt(w.buf, n, 10)
	w.buf = append(w.buf, '\r', '\n')
}

// SimpleString writes a short text without line ends.
func (w *Writer) SimpleString(s string) { w.line('+', s) }

// Error writes an error. Its first word is the code that clients look at.
func (w *Writer) Error(s string) {
	at := len(w.buf) + 1
	w.line('-', s)
	for i, b := range w.buf[at : at+len(s)] { // s may contain bytes of a client, which must not look like a reply
		if b == '\r' || b == '\n' {
			w.buf[at+i] = ' '
		}
	}
}

// Int writes an integer.
func (w *Writer) Int(n int64) { w.head(':', n) }

// Bulk writes a value; nil is the empty one.
func (w *Writer) Bulk(b []byte) {
	w.head('$', int64(len(b)))
	w.buf = append(w.buf, b...)
	w.buf = append(w.buf, '\r', '\n')
}

// BulkString writes a value.
func (w *Writer) BulkString(s string) {
	w.head('$', int64(len(s)))
	w.buf = append(w.buf, s...)
	w.buf = append(w.buf, '\r', '\n')
}

// Null writes the absence of a value.
func (w *Writer) Null() {
	if w.proto == 3 {
		w.buf = append(w.buf, "_\r\n"...)
		return
	}
	w.buf = append(w.buf, "$-1\r\n"...)
}

// NullArray writes the absence of an array.
func (w *Writer) NullArray() {
	if w.proto == 3 {
		w.buf = append(w.buf, "_\r\n"...)
		return
	}
	w.buf = append(w.buf, "*-1\r\n"...)
}

// Array announces n replies.
func (w *Writer) Array(n int) { w.head('*', int64(n)) }

// Map announces n pairs of replies; an array in RESP2.
func (w *Writer) Map(n int) {
	if w.proto == 3 {
		w.head('%', int64(n))
		return
	}
	w.head('*', int64(2*n))
}

// Set announces n different replies; an array in RESP2.
func (w *Writer) Set(n int) {
	if w.proto == 3 {
		w.head('~', int64(n))
		return
	}
	w.head('*', int64(n))
}

// Push announces an out-of-band message of n replies; an array in RESP2.
func (w *Writer) Push(n int) {
	if w.proto == 3 {
		w.head('>', int64(n))
		return
	}
	w.head('*', int64(n))
}

// Double writes a float; a value in RESP2.
func (w *Writer) Double(f float64) {
	s := strconv.FormatFloat(f, 'g', 17, 64)
	if math.IsInf(f, 0) {
		s = strings.ToLower(strings.TrimPrefix(s, "+"))
	}
	if w.proto == 3 {
		w.line(',', s)
		return
	}
	w.BulkString(s)
}

// Bool writes a truth value; an integer in RESP2.
func (w *Writer) Bool(b bool) {
	switch {
	case w.proto == 3 && b:
		w.buf = append(w.buf, "#t\r\n"...)
	case w.proto == 3:
		w.buf = append(w.buf, "#f\r\n"...)
	case b:
		w.Int(1)
	default:
		w.Int(0)
	}
}

// Verbatim writes text for people; a value in RESP2.
func (w *Writer) Verbatim(s string) {
	if w.proto != 3 {
		w.BulkString(s)
		return
	}
	w.head('=', int64(len(s)+4))
	w.buf = append(w.buf, "txt:"...)
	w.buf = append(w.buf, s...)
	w.buf = append(w.buf, '\r', '\n')
}

// Raw writes a reply that is already encoded in the dialect of this connection.
func (w *Writer) Raw(b []byte) { w.buf = append(w.buf, b...) }
