// Package packed reads and writes the fields that messages between nodes consist of: numbers as
// varints, texts and bytes behind their length. A [Reader] never panics, never allocates for a length
// that the message does not hold, and takes only what an encoder makes: every number has exactly one
// encoding.
package packed

import "encoding/binary"

// AppendBytes appends bytes behind their length.
func AppendBytes(b, v []byte) []byte {
	return append(binary.AppendUvarint(b, uint64(len(v))), v...)
}

// AppendString appends a text behind its length.
func AppendString(b []byte, v string) []byte {
	return append(binary.AppendUvarint(b, uint64(len(v))), v...)
}

// Reader decodes a message field by field. After the first mistake it is bad for good, and returns
// zeros.
type Reader struct {
	b   []byte
	bad bool
}

// Read returns a Reader of b. What it returns as bytes is part of b.
func Read(b []byte) Reader { return Reader{b: b} }

// Bad reports whether the Reader met something that no encoder makes.
func (r *Reader) Bad() bool { return r.bad }

// Done reports whether everything was read and nothing was bad.
func (r *Reader) Done() bool { return !r.bad && len(r.b) == 0 }

// Left returns how many bytes were not read yet.
func (r *Reader) Left() int { return len(r.b) }

// Fail makes the Reader bad.
func (r *Reader) Fail() { r.b, r.bad = nil, true }

// Byte reads a byte.
func (r *Reader) Byte() byte {
	if len(r.b) == 0 {
		r.Fail()
		return 0
	}
	v := r.b[0]
	r.b = r.b[1:]
	return v
}

// Flag reads a byte that is 0 or 1.
func (r *Reader) Flag() bool {
	v := r.Byte()
	if v > 1 {
		r.Fail()
	}
	return v == 1
}

// Uint reads a number.
func (r *Reader) Uint() uint64 {
	v, n := binary.Uvarint(r.b)
	if n <= 0 || n > 1 && r.b[n-1] == 0 {
		r.Fail()
		return 0
	}
	r.b = r.b[n:]
	return v
}

// Uint32 reads a number of at most 32 bits.
func (r *Reader) Uint32() uint32 {
	v := r.Uint()
	if v != uint64(uint32(v)) {
		r.Fail()
		return 0
	}
	return uint32(v)
}

// Count reads how many elements follow, each of which takes at least one byte.
func (r *Reader) Count() int {
	n := r.Uint()
	if n > uint64(len(r.b)) {
		r.Fail()
		return 0
	}
	return int(n)
}

// Bytes reads what AppendBytes has appended. It is a part of the message, not a copy.
func (r *Reader) Bytes() []byte { return r.Take(r.Count()) }

// Text reads what AppendString has appended.
func (r *Reader) Text() string { return string(r.Bytes()) }

// Take reads n bytes, as a part of the message.
func (r *Reader) Take(n int) []byte {
	if n < 0 || n > len(r.b) {
		r.Fail()
		return nil
	}
	v := r.b[:n:n]
	r.b = r.b[n:]
	return v
}

// Rest reads all bytes that are left, as a part of the message.
func (r *Reader) Rest() []byte { return r.Take(len(r.b)) }
