package lease

import (
	"fmt"
	"math/rand/v2"
	"testing"
)

// A boundary between two keys is the shortest that separates them: long keys must not
// make long bounds.
func TestSeparator(t *testing.T) {
	for _, c := range []struct{ low, high, want string }{
		{"", "k", "k"}, {"a", "b", "b"}, {"user:1234", "user:2345", "user:2"}, {"user:1", "user:15", "user:15"},
		{"k", "k\x00", "k\x00"}, {"abc", "b", "b"}, {"a\xff", "b\x00\x00", "b"},
	} {
		if got := separator(c.low, c.high); got != c.want {
			t.Errorf("between %q and %q: got %q, want %q", c.low, c.high, got, c.want)
		}
	}
	r := rand.New(rand.NewPCG(1, 1))
	key := func() (k string) {
		for range r.IntN(5) {
			k += string([]byte{"\x00a\xff"[r.IntN(3)]})
		}
		return k
	}
	for range 10_000 {
		low, high := key(), key()
		if low >= high {
			continue
		}
		if k := separator(low, high); k <= low || k > high {
			t.Fatalf("between %q and %q: %q", low, high, k)
		}
	}
}

// Split keys of the longest kind do not make a state that etcd would refuse, and what
// does not fit is not cut.
func TestLongKeysFitAState(t *testing.T) {
	a := NewAssigner(AssignerOptions{})
	var save Save
	for _, out := range a.Elected(0, 1, 1<<62, 0, State{}, nil, nil) {
		save = out.(Save)
	}
	a.Saved(0, 1, save.Rev, true, nil)
	refused := false
	for i := range 1000 {
		long := fmt.Sprintf("%04d", i) + string(make([]byte, 4000))
		refused = !a.Cut(0, []string{long}) || refused
	}
	state := a.State()
	if n := len(Append(nil, &state)); n > a.opt.StateBytes || !refused || len(state.Slices) < 100 {
		t.Fatalf("%d slices take %d bytes (of %d); refused %v", len(state.Slices), n, a.opt.StateBytes, refused)
	}
}
