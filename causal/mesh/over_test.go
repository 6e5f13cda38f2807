package mesh

import (
	"fmt"
	"math"
	"reflect"
	"slices"
	"testing"

	"github.com/freshet-cache/freshet/causal/dot"
)

// anything are inputs of all kinds that come from outside the server, of a view.
func anything(view uint64) map[string]Input {
	w := &Write{Dot: Dot{Incarnation: 2, N: 1}, Stamp: Stamp{Time: 5, Incarnation: 2}, Muts: []Mut{{Key: "k"}}}
	return map[string]Input{
		"a chain":      Received{Chain{View: view, Head: 2, Write: w}},
		"a name":       Received{Named{View: view, Dot: Dot{Incarnation: 1, N: 1}}},
		"a round":      Received{StabilityRound{View: view, Low: 7}},
		"a resync":     Received{Resync{View: view}},
		"a connection": Opened{view},
		"who joins":    Asked{From: 2, View: view},
		"journals":     Recovered{View: view, Writes: []*Write{w}},
		"outside":      Polled{View: view, Writes: []*Write{w}},
	}
}

// after is a server that has written and waits for everything there is.
func after(t *testing.T, async bool) *Server {
	t.Helper()
	s := New(Options{Incarnation: 1, View: View{Number: 3, Ring: []Incarnation{1, 2}, Departed: []Incarnation{5}, Newest: 5}, Async: async})
	s.Step(1, Received{Resync{View: 3}}, nil)
	var c Session
	out := s.Step(1, c.Put(1, Mut{Key: "x"}), nil)
	s.Step(1, Persisted{Call: out[len(out)-1].(Persist).Call}, nil)
	return s
}

// What was said in another view counts for nothing, whoever says it (V1).
func TestOtherViews(t *testing.T) {
	for _, view := range []uint64{2, 4} {
		for what, in := range anything(view) {
			s := after(t, false)
			was := s.Dump()
			if out := s.Step(1, in, nil); !slices.Equal(out, []Output{Event{StaleMessage}}) || s.Dump() != was {
				t.Errorf("%s of view %d: %v, and it is\n%s\nand was\n%s", what, view, out, s.Dump(), was)
			}
		}
	}
	s := after(t, false)
	was := s.Dump()
	if out := s.Step(1, Viewed{View{Number: 3, Ring: []Incarnation{1}, Newest: 9}}, nil); len(out) > 0 || s.Dump() != was {
		t.Errorf("another view of the same number counts: %v", out)
	}
}

// Who is not in the ring any more asks for nothing, tells nothing, and takes nothing.
func TestNothingWhenItIsOver(t *testing.T) {
	for _, async := range []bool{false, true} {
		all := anything(3)
		all["a beat"], all["a log"] = Beat{}, Returned{Incarnation: 5, Writes: []*Write{{Dot: Dot{Incarnation: 5, N: 1}}}}
		all["a claim"], all["a flush"] = Claimed{Call: 77}, Flushed{Call: 78}
		for what, in := range all {
			s := after(t, async)
			s.draining.call = 77
			if what == "a flush" {
				s.draining.call = 78
			}
			s.Step(1, Viewed{View{Number: 4, Ring: []Incarnation{2}, Departed: []Incarnation{1, 5}, Newest: 5}}, nil)
			was := s.Dump()
			for _, out := range s.Step(1, in, nil) {
				if out != (Event{StaleMessage}) {
					t.Errorf("%s: %+v", what, out)
				}
			}
			if s.Dump() != was || len(s.draining.returns) > 0 {
				t.Errorf("%s is taken:\n%s", what, s.Dump())
			}
		}
		s := after(t, async)
		s.Step(1, Viewed{View{Number: 4, Ring: []Incarnation{2}, Newest: 2}}, nil)
		c := Session{Bare: []Dot{{Incarnation: 2, N: 1}}}
		var tx Tx
		for what, in := range map[string]Input{"a read": c.Read(1, "k"), "a read of many": c.ReadMany(1, "k"), "a put": c.Put(1), "a recall": c.Recall(1), "a look": tx.Look(1, "k")} {
			if r := done(t, s.Step(1, in, nil)); r.Outcome != Expelled {
				t.Errorf("%s is answered with %d", what, r.Outcome)
			}
		}
	}
}

// A stability round that does not come back is sent again after a while, and not before.
func TestStabilityRoundsThatAreLost(t *testing.T) {
	s := after(t, false)
	rounds := func() (n int) {
		for _, out := range s.Step(1, Beat{}, nil) {
			if send, is := out.(Send); is {
				if _, is := send.Message.(StabilityRound); is {
					n++
				}
			}
		}
		return n
	}
	var got []int
	for range 18 {
		got = append(got, rounds())
	}
	if want := []int{1, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 1, 0}; !slices.Equal(got, want) {
		t.Errorf("rounds go off at beats %v", got)
	}
	s.Step(1, Broken{}, nil)
	for range 20 {
		if rounds() > 0 {
			t.Error("a round goes off without a connection")
		}
	}
	s = New(Options{Incarnation: 2, View: View{Number: 3, Ring: []Incarnation{1, 2, 3}, Newest: 3}})
	for _, up := range []bool{false, true} {
		if up {
			s.Step(1, Received{Resync{View: 3}}, nil)
		}
		if rounds() > 0 {
			t.Error("a round goes off from who is not the first")
		}
		if out := s.Step(1, Received{StabilityRound{View: 3, Low: 9}}, nil); (len(out) == 1) != up {
			t.Errorf("a round goes on: %v", out)
		}
	}
}

// The time below which nothing is to come is below all that is under way here (M15).
func TestLow(t *testing.T) {
	at := func(o Incarnation, time uint64) *Write {
		return &Write{Dot: Dot{Incarnation: o, N: time}, Stamp: Stamp{Time: time, Incarnation: o}}
	}
	for what, c := range map[string]struct {
		log, pending []*Write
		want         uint64
	}{
		"nothing":         {nil, nil, 101},
		"of others":       {[]*Write{at(2, 30), at(3, 40)}, nil, 101},
		"own":             {[]*Write{at(2, 30), at(1, 50), at(1, 60)}, nil, 50},
		"outside":         {[]*Write{at(External, 70), at(1, 80)}, nil, 70},
		"to be confirmed": {[]*Write{at(1, 60)}, []*Write{at(1, 65), at(1, 55), at(1, 75)}, 55},
	} {
		s := New(Options{Incarnation: 1, View: View{Number: 1, Ring: []Incarnation{1}, Newest: 1}})
		s.time, s.log = 100, c.log
		for i, w := range c.pending {
			s.pending[Call(i)] = &put{write: w}
		}
		if low := s.low(); low != c.want {
			t.Errorf("%s: %d, not %d", what, low, c.want)
		}
	}
}

// What is written externally is asked for once at a time, and only as much of it is taken as there is room for (M16).
func TestPolls(t *testing.T) {
	heavy := func(n uint64) *Write {
		return &Write{Dot: Dot{Incarnation: External, N: n}, Stamp: Stamp{Time: n, Incarnation: External}, Muts: []Mut{{Key: "k", Value: make([]byte, 1000)}}}
	}
	polls := func(s *Server) (after []uint64) {
		for _, out := range s.Step(1, Beat{}, nil) {
			if p, is := out.(Poll); is {
				after = append(after, p.After)
			}
		}
		return after
	}
	weight := heavy(1).Weight()
	for what, c := range map[string]struct {
		opt   Options
		taken uint64
	}{"a window": {Options{Window: 2}, 4}, "a window of bytes": {Options{WindowBytes: 2 * weight}, 2}, "more bytes": {Options{WindowBytes: 2*weight + 1}, 3}, "both": {Options{Window: 5}, 4}} {
		c.opt.Incarnation, c.opt.View = 1, View{Number: 1, Ring: []Incarnation{1, 2}, Newest: 2}
		s := New(c.opt)
		s.Step(1, Received{Resync{View: 1}}, nil)
		if first, again := polls(s), polls(s); !slices.Equal(first, []uint64{0}) || again != nil {
			t.Errorf("%s: it asks for what comes after %v, and %v", what, first, again)
		}
		s.Step(1, Polled{View: 1, Writes: []*Write{heavy(1), heavy(2), heavy(3), heavy(4)}}, nil)
		if n := s.received.Upto(External); n != c.taken {
			t.Errorf("%s: %d are taken, not %d", what, n, c.taken)
		}
		want := []uint64(nil)
		if what == "both" {
			want = []uint64{4}
		}
		if again := polls(s); !slices.Equal(again, want) {
			t.Errorf("%s: it asks for what comes after %v", what, again)
		}
	}
}

// Times that a session may bring: to the microsecond.
func TestHowFarAhead(t *testing.T) {
	carried := func(times ...uint64) (out []*Write) {
		for _, time := range times {
			out = append(out, &Write{Dot: Dot{Incarnation: 2, N: time}, Stamp: Stamp{Time: time, Incarnation: 2}})
		}
		return out
	}
	for _, c := range []struct {
		seen, now, time uint64
		carried         []*Write
		want            Outcome
	}{
		{0, 100, 150, nil, Done}, {0, 100, 151, nil, ClockAhead}, {100, 0, 150, nil, Done}, {100, 0, 151, nil, ClockAhead}, {0, 100, 100, nil, Done}, {0, 100, 0, nil, Done},
		{0, 100, 0, carried(150, 1), Done}, {0, 100, 0, carried(151, 1), ClockAhead}, {0, 100, 151, carried(1), ClockAhead}, {0, 100, 0, carried(1, 151), ClockAhead},
		{lastTime - 2, 0, 0, nil, Done}, {lastTime - 1, 0, 0, nil, ClockAhead}, {0, lastTime - 1, 0, nil, ClockAhead}, {lastTime - 20, 0, lastTime - 2, nil, Done}, {lastTime - 20, 0, lastTime - 1, nil, ClockAhead},
	} {
		s := New(Options{Incarnation: 1, View: View{Number: 1, Ring: []Incarnation{1}, Newest: 1}, MaxAhead: 50})
		s.time = c.seen
		if got := s.plausible(c.now, c.time, c.carried); got != c.want {
			t.Errorf("%+v: %d", c, got)
		}
	}
	s := New(Options{Incarnation: 1, View: View{Number: 1, Ring: []Incarnation{1}, Newest: 1}})
	was := Options{Window: 4096, WindowBytes: 64 << 20, Keys: 1 << 20, Bytes: 1 << 30, Waits: 4096, Batch: 256, MaxAhead: 3600e6, Incarnation: 1, View: *s.view}
	if !reflect.DeepEqual(s.opt, was) {
		t.Errorf("what is not said is %+v", s.opt)
	}
	if s.plausible(0, math.MaxUint64, nil) != ClockAhead {
		t.Error("the largest number is a time")
	}
}

// What is merged at once is bounded in number and in bytes, but for one write; a try is counted.
func TestBatches(t *testing.T) {
	for what, c := range map[string]struct {
		batch, size int
		want        []int
	}{"by number": {2, 10, []int{2, 2, 1}}, "by bytes": {9, batchBytes/2 - 1, []int{2, 2, 1}}, "just too large": {9, batchBytes / 2, []int{1, 1, 1, 1, 1}}, "large ones": {9, 2 * batchBytes, []int{1, 1, 1, 1, 1}}} {
		s := New(Options{Incarnation: 1, View: View{Number: 1, Ring: []Incarnation{1}, Newest: 1}, Async: true, Batch: c.batch, WindowBytes: 1 << 40})
		var session Session
		for i := range 5 {
			out := s.Step(1, session.Put(Op(i), Mut{Key: "k", Value: make([]byte, c.size)}), nil)
			session.Took(done(t, s.Step(1, Persisted{Call: out[len(out)-1].(Persist).Call}, nil)))
		}
		out := s.Step(1, Beat{}, nil)
		var call Call
		for _, o := range out {
			if c, is := o.(Claim); is {
				call = c.Call
			}
		}
		for try := range 3 { // nobody says anything, twice
			if try < 2 {
				out = s.Step(1, Claimed{Call: call, Status: StatusUnknown}, nil)
				again := out[0].(Claim)
				if call = again.Call; again.Try != try+1 {
					t.Errorf("%s: a claim is tried for the %dth time, and says %d", what, try+1, again.Try)
				}
			}
		}
		out = s.Step(1, Claimed{Call: call}, nil)
		var got []int
		for len(got) < 10 {
			i := slices.IndexFunc(out, func(o Output) bool { _, is := o.(Flush); return is })
			if i < 0 {
				out = s.Step(1, Beat{}, nil)
				if i = slices.IndexFunc(out, func(o Output) bool { _, is := o.(Flush); return is }); i < 0 {
					break
				}
			}
			f := out[i].(Flush)
			again := s.Step(1, Flushed{Call: f.Call, Status: StatusUnknown}, nil)[0].(Flush)
			if again.Try != 1 || again.Call == f.Call || again.Number != f.Number || len(again.Writes) != len(f.Writes) {
				t.Errorf("%s: a batch that may have been merged is tried as %+v", what, again)
			}
			got = append(got, len(f.Writes))
			out = s.Step(1, Flushed{Call: again.Call}, nil)
			if !slices.Contains(out, Output(Event{Drained})) {
				t.Errorf("%s: a batch is not counted", what)
			}
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("%s: batches of %v", what, got)
		}
		if s.Owes() > 0 || s.owed > 0 {
			t.Errorf("%s: %d writes and %d bytes are owed", what, s.Owes(), s.owed)
		}
	}
}

// Keys that were used stay when others have to go, and what was in memory is counted as such.
func TestWhatWasUsedStays(t *testing.T) {
	s := New(Options{Incarnation: 1, View: View{Number: 1, Ring: []Incarnation{1}, Newest: 1}, Keys: 10})
	load := func(key string) {
		out := s.Step(1, Read{Key: key}, nil)
		if !slices.Contains(out, Output(Event{Missed})) {
			t.Fatalf("%s is in memory", key)
		}
		s.Step(1, Loaded{Call: out[len(out)-1].(Load).Call}, nil)
	}
	for i := range 10 {
		load(fmt.Sprint("k", i))
	}
	load("one more") // of all that were used the first goes
	load("k0")
	for round := range 30 {
		for what, in := range map[string]Input{"read": Read{Key: "k0"}, "read of many": ReadMany{Keys: []string{"k0"}}, "look": Look{Keys: []string{"k0"}, At: Snap{s.visible.share(), s.view}}} {
			if out := s.Step(1, in, nil); !slices.Contains(out, Output(Event{Hit})) || slices.Contains(out, Output(Event{Missed})) {
				t.Fatalf("round %d: a %s of what is in memory: %v", round, what, out)
			}
		}
		load(fmt.Sprint("other", round))
	}
	s = New(Options{Incarnation: 1, View: View{Number: 1, Ring: []Incarnation{1}, Newest: 1}, Waits: 1})
	s.Step(1, Read{Op: 1, Key: "a"}, nil)
	if out := s.Step(1, Read{Op: 2, Key: "b"}, nil); !slices.Contains(out, Output(Event{Throttled})) || done(t, out).Outcome != Busy {
		t.Errorf("more waits than may: %v", out)
	}
	c := Session{Bare: []Dot{{Incarnation: 1, N: 1}}}
	if r := done(t, s.Step(1, c.Recall(3), nil)); r.Outcome != Busy {
		t.Errorf("a recall is answered with %d", r.Outcome)
	}
}

// Writes are ordered by their stamps.
func TestByStamp(t *testing.T) {
	a, b := &Write{Stamp: Stamp{Time: 1, Incarnation: 2}}, &Write{Stamp: Stamp{Time: 2, Incarnation: 1}}
	if byStamp(a, b) >= 0 || byStamp(b, a) <= 0 || byStamp(a, &Write{Stamp: a.Stamp}) != 0 {
		t.Error("no order")
	}
	var f Frontier
	f.Add(Dot{Incarnation: 4, N: 1})
	v := View{Ring: []Incarnation{1}, Departed: []Incarnation{2}, Newest: 3}
	if v.Retired(1) || v.Retired(2) || !v.Retired(3) || v.Retired(4) {
		t.Error("an incarnation is retired that is not, or the reverse")
	}
	if got := f.Union(dot.NewFrontier(Dot{Incarnation: 5, N: 1})).Without(v.Retired); !got.Covers(Dot{Incarnation: 4, N: 1}) {
		t.Errorf("%v", got)
	}
}
