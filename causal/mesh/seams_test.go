package mesh

import (
	"slices"
	"testing"

	"github.com/freshet-cache/freshet/causal/dot"
)

// Who has not received what was merged does not merge: it would say of the rows that they are without that (A3).
func TestClaimsOfWhoIsBehind(t *testing.T) {
	s := New(Options{Incarnation: 1, View: View{Number: 3, Ring: []Incarnation{1}, Departed: []Incarnation{2}, Newest: 2}, Async: true})
	var c Session
	out := s.Step(1, c.Put(1, Mut{Key: "k"}), nil)
	s.Step(1, Persisted{Call: out[0].(Persist).Call}, nil)
	claim := func() (call Call) {
		for _, o := range s.Step(1, Beat{}, nil) {
			if c, is := o.(Claim); is {
				call = c.Call
			}
		}
		return call
	}
	call := claim()
	if call == 0 {
		t.Fatal("nobody claims")
	}
	out = s.Step(1, Claimed{Call: call, Durable: dot.NewFrontier(Dot{Incarnation: 2, N: 1})}, nil)
	if !slices.Contains(out, Output(Event{FellBehind})) {
		t.Errorf("who is behind does not say so: %v", out)
	}
	out = append(out, s.Step(1, Beat{}, nil)...)
	if slices.ContainsFunc(out, func(o Output) bool { _, flush := o.(Flush); return flush }) || claim() != 0 {
		t.Errorf("it merges, or claims again: %v", out)
	}
}

// What a server writes has a larger time than every write that it has read of, also of those that nobody has replaced (M1).
func TestTimesOfRows(t *testing.T) {
	s := New(Options{Incarnation: 1, View: View{Number: 1, Ring: []Incarnation{1}, Newest: 1}, Concurrent: true})
	var c Session
	out := s.Step(1, c.Read(1, "k"), nil)
	was := &Write{Stamp: Stamp{Time: 100}, Muts: []Mut{{Key: "k"}}}
	s.Step(1, Loaded{Call: out[len(out)-1].(Load).Call, Row: Row{Item: Item{Siblings: []*Write{was}}}}, nil)
	if w := s.Step(1, c.Put(2, Mut{Key: "k"}), nil)[0].(Persist).Write; w.Stamp.Time != 101 {
		t.Errorf("a write has time %d, and one of time 100 was read", w.Stamp.Time)
	}
}
