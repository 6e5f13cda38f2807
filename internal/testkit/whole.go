package testkit

import "testing"

// Whole checks that a decoder takes a message as it is, and refuses it when it is cut off anywhere and
// with a byte behind it. It must also refuse the message with one byte larger: for each place in
// larger, by what stands there.
func Whole(t *testing.T, what string, message []byte, larger map[int]byte, decode func([]byte) error) {
	t.Helper()
	if err := decode(message); err != nil {
		t.Errorf("%s: %x is refused: %v", what, message, err)
	}
	for i := range message {
		if decode(message[:i:i]) == nil {
			t.Errorf("%s: the first %d of %d bytes are taken", what, i, len(message))
		}
	}
	if decode(append(message[:len(message):len(message)], 0)) == nil {
		t.Errorf("%s: a byte more is taken", what)
	}
	for at, more := range larger {
		other := append([]byte{}, message...)
		if other[at] += more; decode(other) == nil {
			t.Errorf("%s: byte %d may be %#x", what, at, other[at])
		}
	}
}
