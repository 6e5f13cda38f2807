package mesh

import (
	"reflect"
	"slices"
	"testing"
)

// A step appends to the outputs that it is given, whatever its input is: what another step wants done is never dropped.
func TestAStepAppends(t *testing.T) {
	for _, async := range []bool{false, true} {
		for _, view := range []uint64{2, 3, 4} {
			all := anything(view)
			all["a beat"], all["a broken connection"] = Beat{}, Broken{}
			all["another view"] = Viewed{View{Number: view, Ring: []Incarnation{1, 2}, Departed: []Incarnation{5}, Newest: 5}}
			all["a view without it"] = Viewed{View{Number: view, Ring: []Incarnation{2}, Departed: []Incarnation{1, 5}, Newest: 5}}
			for what, in := range all {
				before := []Output{Event{Hit}, Event{Missed}}
				alone, behind := after(t, async).Step(1, in, nil), after(t, async).Step(1, in, slices.Clone(before))
				if !slices.Equal(behind[:min(2, len(behind))], before) || !reflect.DeepEqual(behind[2:], append([]Output{}, alone...)) {
					t.Errorf("%s of view %d: behind others the outputs are %v, and alone %v", what, view, behind, alone)
				}
			}
		}
	}
}

// A batch whose answer was lost is asked for again, alone, as a request of its own: the late answer to the first one does
// not count for the second.
func TestABatchIsRepeatedAlone(t *testing.T) {
	s := New(Options{Incarnation: 1, View: View{Number: 1, Ring: []Incarnation{1}, Newest: 1}, Async: true})
	flushes := func(out []Output) (all []Flush) {
		for _, o := range out {
			if f, is := o.(Flush); is {
				all = append(all, f)
			}
		}
		return all
	}
	write := func() (all []Flush) {
		var c Session
		for _, o := range s.Step(1, c.Put(1, Mut{Key: "k"}), nil) {
			if p, is := o.(Persist); is {
				all = append(all, flushes(s.Step(1, Persisted{Call: p.Call}, nil))...)
			}
		}
		return append(all, flushes(s.Step(1, Beat{}, nil))...)
	}
	for _, o := range s.Step(1, Beat{}, nil) {
		if c, is := o.(Claim); is {
			s.Step(1, Claimed{Call: c.Call}, nil)
		}
	}
	first := write()
	if len(first) != 1 || len(first[0].Writes) != 1 {
		t.Fatalf("%+v", first)
	}
	again := flushes(s.Step(1, Flushed{Call: first[0].Call, Status: StatusUnknown}, nil))
	if len(again) != 1 || again[0].Call == first[0].Call || again[0].Call == 0 || again[0].Number != first[0].Number || again[0].Try != 1 || len(again[0].Writes) != 1 {
		t.Fatalf("%+v is repeated as %+v", first, again)
	}
	if more := write(); len(more) > 0 {
		t.Errorf("%+v is asked for while the first is under way", more)
	}
	if more := s.Step(1, Flushed{Call: first[0].Call, Status: OK}, nil); len(more) > 0 {
		t.Errorf("a late answer counts: %+v", more)
	}
	if next := flushes(s.Step(1, Flushed{Call: again[0].Call, Status: OK}, nil)); len(next) != 1 || next[0].Number != first[0].Number+1 {
		t.Errorf("then %+v", next)
	}
}

// The former values of a key count for what the keys in memory take.
func TestFormerValuesWeigh(t *testing.T) {
	h := newHistory(t, false, 4, true)
	for n := range uint64(6) {
		h.write(&Write{Dot: Dot{Incarnation: External, N: n + 1}, Stamp: Stamp{Time: n + 1, Incarnation: External}, Muts: []Mut{{Key: "k", Value: make([]byte, 10_000)}}})
	}
	if h.s.bytes < 4*10_000 || h.s.bytes > 5*10_000 {
		t.Errorf("four values of 10000 bytes count as %d", h.s.bytes)
	}
}
