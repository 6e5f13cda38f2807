package mesh

import (
	"fmt"
	"testing"

	"github.com/freshet-cache/freshet/causal/dot"
)

// What readers and writers have in memory is bounded in bytes, whatever the number of keys and of their versions (M16).
func TestBytes(t *testing.T) {
	const bound, large = 64 << 10, 10 << 10
	s := New(Options{Incarnation: 1, View: View{Number: 1, Ring: []Incarnation{1}, Newest: 1}, Bytes: bound, WindowBytes: bound, Versions: 8})
	var c Session
	op, busy := Op(0), 0
	for i := range 100 {
		for key := range 5 {
			op++
			out := s.Step(1, c.Put(op, Mut{Key: fmt.Sprint("k", key), Value: make([]byte, large)}), nil)
			if p, is := out[len(out)-1].(Persist); is {
				out = s.Step(1, Persisted{Call: p.Call}, nil)
			}
			if r := done(t, out); r.Outcome == Busy {
				busy++
				s.Step(1, Beat{}, nil) // all of it is stable
			} else {
				c.Took(r)
			}
			s.Check()
			if s.bytes > bound || s.owed > bound+2*large {
				t.Fatalf("round %d: %d bytes in memory, %d of own writes", i, s.bytes, s.owed)
			}
		}
	}
	if busy == 0 {
		t.Error("nobody was told to try later")
	}
	s = New(Options{Incarnation: 1, View: View{Number: 1, Ring: []Incarnation{1}, Newest: 1}, WindowBytes: 100})
	c = Session{}
	if _, is := s.Step(1, c.Put(1, Mut{Key: "k", Value: make([]byte, large)}), nil)[0].(Persist); !is {
		t.Error("a write that is larger than the bound is refused for ever")
	}
}

// What makes a write or a key larger makes it weigh as much more, at least.
func TestWeights(t *testing.T) {
	const more = 10
	dots := make([]Dot, more)
	for i := range dots {
		dots[i] = Dot{Incarnation: Incarnation(i + 1), N: 1}
	}
	fat := make([]byte, more)
	mut := func() []Mut { return []Mut{{Key: "k"}} }
	least := (&Write{Muts: mut()}).Weight()
	for what, c := range map[string]struct {
		w    *Write
		more int
	}{
		"causes":           {&Write{Muts: mut(), Deps: dot.NewFrontier(dots...)}, more * 12},
		"carried causes":   {&Write{Muts: mut(), After: dots}, more * 12},
		"another mutation": {&Write{Muts: append(mut(), mut()...)}, 32},
		"a key":            {&Write{Muts: []Mut{{Key: "k" + string(fat)}}}, more},
		"a value":          {&Write{Muts: []Mut{{Key: "k", Value: fat}}}, more},
		"what it replaces": {&Write{Muts: []Mut{{Key: "k", Supersedes: dots}}}, more * 12},
	} {
		if n := c.w.Weight() - least; n < c.more {
			t.Errorf("%s: a write weighs %d more, not %d", what, n, c.more)
		}
		for set, k := range map[string]*key{"among": {name: "k", Item: Item{Siblings: []*Write{c.w}}}, "past": {name: "k", past: []*Write{c.w}}, "needs": {name: "k", needs: []*Write{c.w}}} {
			plain := (&key{name: "k", past: []*Write{{Muts: mut()}}}).weight()
			if n := k.weight() - plain; n < c.more && what != "a key" && what != "another mutation" {
				t.Errorf("%s: a key that has it in %s weighs %d more, not %d", what, set, n, c.more)
			}
		}
	}
	plain := (&key{name: "k"}).weight()
	for what, c := range map[string]struct {
		k    *key
		more int
	}{
		"a name":           {&key{name: "k" + string(fat)}, more},
		"a value":          {&key{name: "k", Item: Item{Value: fat}}, more},
		"versions":         {&key{name: "k", older: []version{{Item: Item{Value: fat}}, {}}}, more + 64},
		"what is replaced": {&key{name: "k", gone: dots}, more * 12},
		"a write":          {&key{name: "k", past: []*Write{{Muts: mut()}}}, 100},
		"a write of other": {&key{name: "k", past: []*Write{{Muts: []Mut{{Key: "other"}}}}}, 100},
	} {
		if n := c.k.weight() - plain; n < c.more {
			t.Errorf("%s: a key weighs %d more, not %d", what, n, c.more)
		}
	}
}

// As many keys are in memory as may be, and no more.
func TestKeysInMemory(t *testing.T) {
	s := New(Options{Incarnation: 1, View: View{Number: 1, Ring: []Incarnation{1}, Newest: 1}, Keys: 3})
	for i := range 10 {
		out := s.Step(1, Read{Op: Op(i), Key: fmt.Sprint("k", i)}, nil)
		s.Step(1, Loaded{Call: out[len(out)-1].(Load).Call}, nil)
		s.Check()
		if n := len(s.cache); n != min(i+1, 3) {
			t.Fatalf("%d keys are in memory of %d that were read", n, i+1)
		}
	}
	one := s.bytes / 3
	s = New(Options{Incarnation: 1, View: View{Number: 1, Ring: []Incarnation{1}, Newest: 1}, Bytes: 3 * one})
	for i := range 9 {
		out := s.Step(1, Read{Op: Op(i), Key: fmt.Sprint("k", i)}, nil)
		s.Step(1, Loaded{Call: out[len(out)-1].(Load).Call}, nil)
		if s.bytes != one*min(i+1, 3) {
			t.Fatalf("%d bytes are in memory, and %d may be", s.bytes, 3*one)
		}
	}
}
