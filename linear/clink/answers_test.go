package clink

import (
	"testing"

	"github.com/freshet-cache/freshet/shard/lease"
	"github.com/freshet-cache/freshet/ticks"
)

// only are the outputs of one kind.
func only[O Output](outs []Output) (some []O) {
	for _, out := range outs {
		if o, ok := out.(O); ok {
			some = append(some, o)
		}
	}
	return some
}

// A read behind a fence that has no answer is asked again, later each time, for as long as the
// lease holds: it alone can say what became of the write. When the lease is over, nothing can.
func TestAReadBehindAFenceIsAskedAgain(t *testing.T) {
	for _, lapses := range []bool{false, true} {
		p := held(t, Options{}, lease.Range{})
		sent := only[Store](p.Step(2, Write{Op: 1, Muts: []Mut{{Key: "k", Value: []byte("v")}}}, nil))[0]
		fence := only[SetGuard](p.Step(3, Stored{Call: sent.Call, Status: StatusUnknown}, nil))[0]
		load := only[Load](p.Step(4, Guarded{Call: fence.Call}, nil))[0]
		for try := range 5 {
			if load.Try != try {
				t.Errorf("attempt %d is number %d", try, load.Try)
			}
			outs := p.Step(5, Loaded{Call: load.Call, Status: StatusUnknown}, nil)
			if again, replies := only[Load](outs), only[Reply](outs); len(again) != 1 || len(replies) != 0 || again[0].Key != "k" {
				t.Fatalf("attempt %d has no answer: %+v", try, outs)
			}
			load = only[Load](outs)[0]
		}
		in, want := Loaded{Call: load.Call, Row: Row{Exists: true, Version: 8, Writer: sent.ID}}, Done
		now := ticks.Tick(6)
		if lapses {
			in, want, now = Loaded{Call: load.Call, Status: StatusUnknown}, Unknown, 100
		}
		if r := only[Reply](p.Step(now, in, nil)); len(r) != 1 || r[0].Op != 1 || r[0].Outcome != want {
			t.Errorf("lapsed %v: %+v", lapses, r)
		}
		p.Check()
	}
}

// A caller who waits for a key behind a write of unknown outcome is told at once that the lease
// of that key is over, also while that of another key of the write holds and is being fenced.
func TestWhoWaitsBehindALapsedLease(t *testing.T) {
	p := held(t, Options{}, lease.Range{High: "c"}, lease.Range{Low: "c"})
	p.Step(1, Extended{Gen: 2, Until: 200}, nil)
	sent := only[Store](p.Step(2, Write{Op: 1, Muts: []Mut{{Key: "a"}, {Key: "d"}}}, nil))[0]
	p.Step(3, Write{Op: 2, Muts: []Mut{{Key: "a"}}}, nil)
	p.Step(3, Write{Op: 3, Muts: []Mut{{Key: "d"}}}, nil)
	outs := p.Step(150, Stored{Call: sent.Call, Status: StatusUnknown}, nil)
	if r := only[Reply](outs); len(r) != 1 || r[0].Op != 2 || r[0].Outcome != NotOwner {
		t.Errorf("who waits for the lapsed lease is told %+v", r)
	}
	guards := only[SetGuard](outs)
	if len(guards) != 1 || guards[0].Range != lease.Point("d") {
		t.Fatalf("fenced is %+v", guards)
	}
	outs = p.Step(151, Guarded{Call: guards[0].Call}, nil)
	r, next := only[Reply](outs), only[Store](outs)
	if len(r) != 1 || r[0].Op != 1 || r[0].Outcome != Unknown || len(next) != 1 || next[0].Muts[0].Key != "d" || next[0].Muts[0].Guard != guards[0].Token {
		t.Errorf("behind the fence: %+v", outs)
	}
	p.Check()
}

// A row that was read under a guard which has been replaced since says nothing of the new one: it
// is not replaced again.
func TestATagOfAnEarlierGuard(t *testing.T) {
	for _, replaced := range []bool{true, false} {
		p := held(t, Options{Tags: true}, lease.Range{})
		load := only[Load](p.Step(2, Read{Op: 1, Key: "k"}, nil))[0]
		sent := only[Store](p.Step(2, Write{Op: 2, Muts: []Mut{{Key: "other"}}}, nil))[0]
		stands := sent.Muts[0].Guard
		if replaced {
			anew := only[SetGuard](p.Step(3, Stored{Call: sent.Call, Status: Mismatch}, nil))[0]
			p.Step(4, Guarded{Call: anew.Call}, nil)
		} else {
			stands = Token{99}
		}
		outs := p.Step(5, Loaded{Call: load.Call, Row: Row{Guard: stands}}, nil)
		if guards := only[SetGuard](outs); (len(guards) == 0) != replaced {
			t.Errorf("replaced %v: %+v", replaced, outs)
		}
		p.Check()
	}
}

// An update reads each row once and decides as soon as it has them all.
func TestAnUpdateReadsOnce(t *testing.T) {
	p := held(t, Options{}, lease.Range{})
	loads := only[Load](p.Step(2, Update{Op: 1, Keys: []string{"a", "b"}}, nil))
	if len(loads) != 2 {
		t.Fatalf("%+v", loads)
	}
	for i, l := range loads {
		outs := p.Step(3, Loaded{Call: l.Call, Row: Row{Exists: true, Version: uint64(2 + 2*i)}}, nil)
		if again, asks := only[Load](outs), only[Evaluate](outs); len(again) != 0 || (len(asks) == 1) != (i == 1) || i == 1 && (asks[0].Rows[0].Version != 2 || asks[0].Rows[1].Version != 4) {
			t.Errorf("answer %d: %+v", i, outs)
		}
	}
	p.Check()
}

// A node that has written too many keys to remember takes nothing over any more, of whatever
// generation.
func TestNothingIsTransferredAfterManyWrites(t *testing.T) {
	for _, writes := range []int{maxWritten, maxWritten + 1} {
		for after := range lease.Gen(4) {
			p := NewPod(Options{Incarnation: 1})
			out := p.Step(1, Acquired{Lease: lease.Lease{Gen: 4}, Until: 100, After: 3}, nil)
			out = p.Step(1, Splits{Call: out[0].(ReadSplits).Call}, nil)
			p.Step(1, Guarded{Call: out[0].(SetGuard).Call}, nil)
			for i := range writes {
				p.piece("k").wrote(string([]byte{'w', byte(i >> 8), byte(i)}))
			}
			kept := len(only[Keep](p.Step(2, Offered{After: after, Key: "k", Row: Row{Version: 2}}, nil))) > 0
			if want := after == 3 && writes == maxWritten; kept != want {
				t.Errorf("after %d writes, what generation %d offers is kept: %v", writes, after, kept)
			}
		}
	}
}

// A fence that is answered when its lease is gone changes nothing: its callers were told, and who
// holds the key next has guards of its own.
func TestAFenceOfAGoneLease(t *testing.T) {
	p := held(t, Options{}, lease.Range{})
	sent := only[Store](p.Step(2, Write{Op: 1, Muts: []Mut{{Key: "k"}}}, nil))[0]
	fence := only[SetGuard](p.Step(3, Stored{Call: sent.Call, Status: StatusUnknown}, nil))[0]
	if r := only[Reply](p.Step(4, Revoked{Gen: 1}, nil)); len(r) != 1 || r[0].Outcome != Unknown {
		t.Errorf("when the lease is gone: %+v", r)
	}
	if outs := p.Step(5, Guarded{Call: fence.Call}, nil); len(outs) != 0 {
		t.Errorf("the fence is answered, and that leads to %+v", outs)
	}
	if outs := p.Step(6, Write{Op: 2, Muts: []Mut{{Key: "k"}}}, nil); len(only[Reply](outs)) != 1 || only[Reply](outs)[0].Outcome != NotOwner {
		t.Errorf("a later write: %+v", outs)
	}
	p.Check()
}
