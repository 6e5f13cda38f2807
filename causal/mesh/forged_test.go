package mesh

import (
	"math"
	"testing"

	"github.com/freshet-cache/freshet/causal/dot"
)

// done is the reply among outputs.
func done(t *testing.T, out []Output) Reply {
	t.Helper()
	for _, o := range out {
		if r, is := o.(Reply); is {
			return r
		}
	}
	t.Fatal("no reply")
	return Reply{}
}

// Whatever sessions bring, the writes of others are taken as before, with times that stores take, and with numbers
// that nobody else has (M20).
func TestForgedSessions(t *testing.T) {
	const now = 1000
	ring := View{Number: 1, Ring: []Incarnation{1, 2}, Newest: 2}
	mut := Mut{Key: "k", Value: []byte("v")}
	write := func(o Incarnation, n, time uint64) []*Write {
		return []*Write{{Dot: Dot{Incarnation: o, N: n}, Stamp: Stamp{Time: time, Incarnation: o}, Muts: []Mut{mut}}}
	}
	for _, c := range []struct {
		what string
		s    Session
		want Outcome
	}{
		{"a time near 2^63", Session{Time: math.MaxInt64}, ClockAhead},
		{"the largest time", Session{Time: math.MaxUint64}, ClockAhead},
		{"a time two hours ahead", Session{Time: 7200e6}, ClockAhead},
		{"a carried write with a time near 2^63", Session{Carried: write(2, 1, math.MaxInt64)}, ClockAhead},
		{"a carried write that comes next", Session{Carried: write(1, 1, 1)}, Forged},
		{"a carried write far above", Session{Carried: write(1, 1<<60, 1)}, Forged},
		{"causes far above", Session{Deps: dot.NewFrontier(Dot{Incarnation: 1, N: 1 << 60})}, Behind},
	} {
		s := New(Options{Incarnation: 1, View: ring, Window: 4})
		if r := done(t, s.Step(now, c.s.Put(1, mut), nil)); r.Outcome != c.want {
			t.Errorf("%s: a put is answered with %d", c.what, r.Outcome)
		}
		c.s.Bare = []Dot{{Incarnation: 2, N: 1}}
		if len(c.s.Carried) > 0 {
			if r := done(t, s.Step(now, c.s.Recall(2), nil)); r.Outcome != c.want {
				t.Errorf("%s: a recall is answered with %d", c.what, r.Outcome)
			}
		}
		var honest Session
		out := s.Step(now, honest.Put(3, mut), nil)
		p, is := out[0].(Persist)
		if !is || p.Write.Stamp.Time > now+1 || p.Write.Dot != (Dot{Incarnation: 1, N: 1}) {
			t.Errorf("%s: then somebody's write is %+v", c.what, out)
		}
	}
}

// A row whose time is near the end of numbers lets no write be acknowledged that it would beat, or that no store takes.
func TestRowFromTheEndOfTime(t *testing.T) {
	s := New(Options{Incarnation: 1, View: View{Number: 1, Ring: []Incarnation{1}, Newest: 1}})
	var c Session
	l := s.Step(1, c.Read(1, "k"), nil)
	s.Step(1, Loaded{Call: l[len(l)-1].(Load).Call, Row: Row{Item: Item{Exists: true, Stamp: Stamp{Time: math.MaxInt64}}}}, nil)
	if r := done(t, s.Step(1, c.Put(2, Mut{Key: "other"}), nil)); r.Outcome != ClockAhead {
		t.Errorf("a put is answered with %d", r.Outcome)
	}
}

// A window is never taken for full because something counts as stable that was not made.
func TestWindowDoesNotUnderflow(t *testing.T) {
	s := New(Options{Incarnation: 1, View: View{Number: 1, Ring: []Incarnation{1}, Newest: 1}, Window: 4, Truncated: dot.NewFrontier(Dot{Incarnation: 1, N: 1}, Dot{Incarnation: 1, N: 2})})
	var c Session
	if _, is := s.Step(1, c.Put(1, Mut{Key: "k"}), nil)[0].(Persist); !is {
		t.Error("a put is refused")
	}
}
