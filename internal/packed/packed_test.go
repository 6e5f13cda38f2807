package packed

import (
	"bytes"
	"encoding/binary"
	"math"
	"testing"
)

// What was appended is read back, and a message that is cut anywhere is bad and reads as zeros.
func TestFields(t *testing.T) {
	msg := AppendString(AppendBytes([]byte{7, 1}, []byte("bytes")), "text")
	msg = binary.AppendUvarint(binary.AppendUvarint(msg, math.MaxUint64), math.MaxUint32)
	msg = append(binary.AppendUvarint(msg, 2), "abrest"...)
	for cut := range len(msg) + 1 {
		r := Read(msg[:cut])
		kind, flag, b, s, n, m := r.Byte(), r.Flag(), r.Bytes(), r.Text(), r.Uint(), r.Uint32()
		list := r.Take(r.Count())
		if r.Bad() {
			if cut >= len(msg)-4 || r.Left() != 0 || r.Done() || r.Byte() != 0 || r.Uint() != 0 || len(r.Rest()) != 0 {
				t.Errorf("%d bytes are bad, and %d are left", cut, r.Left())
			}
			continue
		}
		if left := r.Left(); cut < len(msg)-4 || left != cut-(len(msg)-4) || r.Done() != (left == 0) {
			t.Errorf("%d bytes are taken, %d are left, done %v", cut, left, r.Done())
		}
		rest := r.Rest()
		if kind != 7 || !flag || string(b) != "bytes" || s != "text" || n != math.MaxUint64 || m != math.MaxUint32 || string(list) != "ab" || !bytes.Equal(rest, msg[len(msg)-4:cut]) || !r.Done() {
			t.Errorf("read %d %v %q %q %d %d %q %q", kind, flag, b, s, n, m, list, rest)
		}
	}
}

// What no encoder makes is bad.
func TestWhatIsRefused(t *testing.T) {
	for what, read := range map[string]func() bool{
		"a flag of 2":                      func() bool { r := Read([]byte{2}); r.Flag(); return r.Bad() },
		"a number with a zero behind":      func() bool { r := Read([]byte{0x81, 0}); r.Uint(); return r.Bad() },
		"a number of 65 bits":              func() bool { r := Read(bytes.Repeat([]byte{0xff}, 10)); r.Uint(); return r.Bad() },
		"33 bits":                          func() bool { r := Read(binary.AppendUvarint(nil, 1<<32)); return r.Uint32() == 0 && r.Bad() },
		"more elements than bytes":         func() bool { r := Read([]byte{3, 1, 1}); return r.Count() == 0 && r.Bad() },
		"more bytes than the message has":  func() bool { r := Read([]byte{3, 1, 1}); return r.Bytes() == nil && r.Bad() },
		"fewer than no bytes":              func() bool { r := Read([]byte{1}); return r.Take(-1) == nil && r.Bad() },
		"what the caller does not believe": func() bool { r := Read([]byte{1}); r.Fail(); return r.Bad() && r.Left() == 0 },
	} {
		if !read() {
			t.Errorf("%s is taken", what)
		}
	}
	r := Read([]byte{2, 'a', 'b', 'c'})
	if v := r.Bytes(); cap(v) != 2 {
		t.Error("whoever appends to what was read writes over the message")
	}
	if r := Read([]byte{2, 1, 1}); r.Count() != 2 || r.Bad() {
		t.Error("as many elements as bytes are refused")
	}
}
