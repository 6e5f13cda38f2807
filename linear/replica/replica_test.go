package replica

import (
	"fmt"
	"reflect"
	"testing"

	"github.com/freshet-cache/freshet/shard/lease"
	"github.com/freshet-cache/freshet/ticks"
)

func TestDefaults(t *testing.T) {
	for drift, want := range map[int64]int64{0: 200, -1: 200, 1: 1} {
		if r := NewReplica(Options{Drift: drift}); r.opt.Drift != want {
			t.Errorf("drift %d becomes %d", drift, r.opt.Drift)
		}
	}
}

// An entry is served before its lease is over and before its TTL is, to the tick; and its
// TTL counts from when it was asked for, less the drift of both clocks.
func TestToTheTick(t *testing.T) {
	for _, c := range []struct {
		now, leased, until ticks.Tick
		serves             bool
	}{{9, 10, 0, true}, {10, 10, 0, false}, {9, 10, 10, true}, {9, 10, 9, false}, {15, 10, 20, false}} {
		if Serves(c.now, c.leased, c.until) != c.serves {
			t.Errorf("%+v", c)
		}
	}
	r := NewReplica(Options{Drift: 1000})
	for _, c := range []struct{ sent, ttl, until ticks.Tick }{
		{5, 0, 0}, {5, -1, 0}, {5, 1, 1}, {5, 1995, 1}, {5, 1999, 4}, {5, 10_000_000, 5 + 10_000_000 - 22_000}, {5, 1<<63 - 1, 5 + 1<<62 - (1<<62/1_000_000+1)*2000},
	} {
		if got := r.expiry(c.sent, c.ttl); got != c.until {
			t.Errorf("%+v: %d", c, got)
		}
	}
	for now, fills := range map[ticks.Tick]bool{7999: true, 8000: false} {
		r := replica(1)
		r.Step(0, Read{1, "k"}, nil)
		outs := r.Step(now, Loaded{1, Row{TTL: 8400}, true}, nil)
		if _, keeps := outs[0].(Keep); keeps != fills {
			t.Errorf("a row that may be served until 8000 arrives at %d: %+v", now, outs)
		}
	}
}

var crew = lease.Group{{Node: "p"}, {Node: "r"}, {Node: "s"}}

// replica holds generations of the key k, all of them open.
func replica(gens ...lease.Gen) *Replica {
	r := NewReplica(Options{Node: "r"})
	for _, g := range gens {
		r.Step(0, Acquired{Lease: lease.Lease{Range: lease.Point("k"), Gen: g}, Group: crew}, nil)
		r.Step(0, Received{Cacheable{g}}, nil)
	}
	return r
}

// Only reads that may fill the generation which is invalidated lose that right.
func TestOneGenerationIsInvalidated(t *testing.T) {
	r := replica(1)
	r.Step(0, Acquired{Lease: lease.Lease{Range: lease.Point("l"), Gen: 2}, Group: crew}, nil)
	r.Step(0, Received{Cacheable{2}}, nil)
	r.Step(0, Read{1, "k"}, nil)
	r.Step(0, Read{2, "l"}, nil)
	r.Step(0, Read{3, "m"}, nil) // of which it is no replica
	r.Step(0, Received{Invalidate{1, 1}}, nil)
	for call, keeps := range map[Call]bool{1: false, 2: true, 3: false} {
		if outs := r.Step(0, Loaded{call, Row{Version: 1}, true}, nil); (len(outs) == 2) != keeps {
			t.Errorf("read %d: %+v", call, outs)
		}
	}
	// And a read fills no generation that has ended, or was not open when it was sent.
	r = replica(1)
	r.Step(0, Read{1, "k"}, nil)
	r.Step(0, Revoked{1}, nil)
	if outs := r.Step(0, Loaded{1, Row{}, true}, nil); len(outs) != 1 {
		t.Errorf("%+v", outs)
	}
	r = replica(1, 3)
	r.Step(0, Received{Invalidate{3, 1}}, nil)
	r.Step(0, Read{1, "k"}, nil)
	if outs := r.Step(0, Loaded{1, Row{}, true}, nil); len(outs) != 1 {
		t.Errorf("an older generation is filled: %+v", outs)
	}
}

// What concerns nobody, or comes twice, changes nothing, and what was said before stays.
func TestStrays(t *testing.T) {
	before := []Output{Drop{"x"}}
	r := replica(5)
	r.Step(0, Received{Invalidate{5, 7}}, nil)
	was := r.Dump()
	for _, in := range []Input{Received{Cacheable{4}}, Received{Invalidate{4, 9}}, Received{Finish{4, 9, nil}}, Received{Finish{5, 6, nil}}, Received{Finish{5, 8, nil}}, Received{Report{}},
		Revoked{4}, Loaded{99, Row{}, true}} {
		if outs := r.Step(0, in, before); !reflect.DeepEqual(outs, before) || r.Dump() != was {
			t.Errorf("%#v: %+v", in, outs)
		}
	}
	for _, in := range []Input{Received{Cacheable{5}}, Received{Invalidate{5, 6}}, Received{Invalidate{5, 7}}} { // it says where it is
		want := append(before[:1:1], Send{crew[0], Report{5, "r", 7, false}})
		if outs := r.Step(0, in, before); !reflect.DeepEqual(outs, want) || r.Dump() != was {
			t.Errorf("%#v: %+v", in, outs)
		}
	}

	p := primary(5)
	was = p.Dump()
	row := Row{Version: 1}
	for _, in := range []Input{Revoked{4}, Guarded{99, true}, Written{99, true}, Kept{4, "k", row}, Kept{5, "other", row}, Kept{5, "k", row}, Received{Cacheable{5}},
		Received{Report{4, "r", 0, true}}, Received{Report{5, "stranger", 0, true}}, Received{Report{5, "p", 0, true}}, Received{Report{5, "r", 1, true}}} {
		if outs := p.Step(in, before); !reflect.DeepEqual(outs, before) || p.Dump() != was {
			t.Errorf("%#v: %+v", in, outs)
		}
	}
}

// primary leads a generation of the key k whose guard stands, and which all replicas have
// confirmed.
func primary(gen lease.Gen) *Primary {
	p := NewPrimary()
	p.Step(Acquired{Lease: lease.Lease{Range: lease.Point("k"), Gen: gen}, Group: crew}, nil)
	p.Step(Guarding{1, lease.Range{}}, nil)
	p.Step(Guarded{1, true}, nil)
	for _, node := range []string{"r", "s"} {
		p.Step(Received{Report{gen, node, 0, true}}, nil)
	}
	p.Check()
	return p
}

func told(outs []Output) (text string) {
	for _, out := range outs {
		text += fmt.Sprintf("%T%v ", out, out)
	}
	return text
}

// An entry that the pod keeps is told of if it is that of the write that has just been
// decided: of its key and generation, once.
func TestKeptIsToldOnce(t *testing.T) {
	row := Row{Exists: true, Version: 3}
	for name, c := range map[string]struct {
		in    Kept
		tells bool
	}{"its own": {Kept{5, "k", row}, true}, "another key's": {Kept{5, "l", row}, false}, "another generation's": {Kept{4, "k", row}, false}} {
		p := primary(5)
		p.Step(Writing{2, []string{"k"}}, nil)
		for i, in := range []Input{c.in, Received{Report{5, "r", 1, false}}, c.in, Received{Report{5, "s", 1, false}}, c.in} { // the write is on its way
			if outs := p.Step(in, nil); i%2 == 0 && len(outs) != 0 {
				t.Errorf("%s, step %d: %s", name, i, told(outs))
			}
		}
		p.Step(Written{2, true}, nil)
		if outs := p.Step(c.in, nil); (len(outs) == 2) != c.tells {
			t.Errorf("%s: %s", name, told(outs))
		}
		if outs := p.Step(c.in, nil); len(outs) != 0 {
			t.Errorf("%s, again: %s", name, told(outs))
		}
		p.Check()
	}
}

// A guard proves something of the write that was under way when it was asked for, in the
// generation of that time, if it was installed.
func TestWhatAGuardProves(t *testing.T) {
	for name, c := range map[string]struct {
		between func(p *Primary)
		ok      bool
		opens   bool
	}{
		"installed":     {func(*Primary) {}, true, true},
		"not installed": {func(*Primary) {}, false, false},
		"revoked":       {func(p *Primary) { p.Step(Revoked{5}, nil) }, true, false},
		"revoked and taken again": {func(p *Primary) {
			p.Step(Revoked{5}, nil)
			p.Step(Acquired{Lease: lease.Lease{Range: lease.Point("k"), Gen: 6}, Group: crew}, nil)
		}, true, false},
	} {
		p := NewPrimary()
		p.Step(Acquired{Lease: lease.Lease{Range: lease.Point("k"), Gen: 5}, Group: crew}, nil)
		p.Step(Guarding{1, lease.Range{High: "k"}}, nil) // beside it
		if outs := p.Step(Guarded{1, true}, nil); len(outs) != 0 {
			t.Errorf("a guard beside the key: %s", told(outs))
		}
		p.Step(Guarding{2, lease.Range{Low: "k"}}, nil)
		c.between(p)
		outs := p.Step(Guarded{2, c.ok}, nil)
		if (len(outs) == 2) != c.opens {
			t.Errorf("%s: %s", name, told(outs))
		}
		if outs := p.Step(Guarded{2, true}, nil); len(outs) != 0 {
			t.Errorf("%s, a second answer: %s", name, told(outs))
		}
	}
	// A silent write is over when a guard returns that was asked for after the silence.
	p := primary(5)
	p.Step(Guarding{3, lease.Range{}}, nil) // before
	p.Step(Writing{2, []string{"k"}}, nil)
	for _, node := range []string{"r", "s"} {
		p.Step(Received{Report{5, node, 1, false}}, nil)
	}
	p.Step(Written{2, false}, nil)
	for call, ok := range map[Call]bool{3: true, 4: false} {
		if call == 4 {
			p.Step(Guarding{4, lease.Range{}}, nil)
		}
		p.Step(Guarded{call, ok}, nil)
		if outs := p.Step(Beat{}, nil); len(outs) != 0 {
			t.Errorf("after guard %d: %s", call, told(outs))
		}
	}
	p.Step(Guarding{5, lease.Range{}}, nil)
	p.Step(Guarded{5, true}, nil)
	if outs := p.Step(Beat{}, nil); len(outs) != 2 {
		t.Errorf("%s", told(outs))
	}
}

// A primary that has nothing to keep in mind says so, and only then.
func TestBusy(t *testing.T) {
	p := NewPrimary()
	if p.Busy() {
		t.Error("from the beginning")
	}
	p = primary(5)
	p.Step(Guarding{9, lease.Range{}}, nil)
	p.Step(Revoked{5}, nil)
	p.Step(Guarded{9, true}, nil)
	if p.Busy() {
		t.Error("when all is over")
	}
	for name, in := range map[string]Input{"a group": Acquired{Lease: lease.Lease{Gen: 7}, Group: crew}} {
		if p.Step(in, nil); !p.Busy() {
			t.Error(name)
		}
	}
}

// A primary of two keys, one of which is written at a time; late reports take nothing back
// and confirm nothing that they do not know of.
func TestReportsOfSeveral(t *testing.T) {
	p := primary(5)
	before := []Output{Drop{"x"}}
	for _, in := range []Input{Acquired{Lease: lease.Lease{Range: lease.Point("l"), Gen: 6}, Group: crew}, Guarding{7, lease.Range{}}} {
		if outs := p.Step(in, before); !reflect.DeepEqual(outs, before) {
			t.Errorf("%#v: %s", in, told(outs))
		}
	}
	p.Step(Guarded{7, true}, nil)
	report := func(gen lease.Gen, node string, n uint64, open bool) []Output {
		defer p.Check()
		return p.Step(Received{Report{gen, node, n, open}}, before)[1:]
	}
	p.Step(Writing{2, []string{"k"}}, nil)
	p.Step(Writing{3, []string{"l"}}, nil)
	report(5, "r", 1, false)
	report(5, "r", 0, true) // late
	report(6, "s", 1, false)
	if outs := report(5, "s", 1, false); told(outs) != told([]Output{Pass{2}}) {
		t.Errorf("all have dropped k: %s", told(outs))
	}
	if outs := report(6, "s", 1, false); len(outs) != 0 {
		t.Errorf("r has not dropped l: %s", told(outs))
	}
	if outs := report(5, "s", 1, true); len(outs) != 0 { // it is passed, and passed once
		t.Errorf("%s", told(outs))
	}
	if outs := p.Step(Written{2, true}, before); !reflect.DeepEqual(outs, before) {
		t.Errorf("%s", told(outs))
	}
	if outs := p.Step(Written{2, true}, before); !reflect.DeepEqual(outs, before) {
		t.Errorf("%s", told(outs))
	}
	finish := Send{crew[1], Finish{5, 1, nil}}
	p.Step(Beat{}, nil) // which says finish
	report(5, "r", 0, true)
	if outs := report(5, "r", 1, false); told(outs) != told([]Output{finish}) {
		t.Errorf("r is not open: %s", told(outs))
	}
	report(5, "r", 1, true)
	if outs := report(5, "r", 1, false); len(outs) != 0 { // late
		t.Errorf("r has confirmed: %s", told(outs))
	}
	// The generation of one ends: only what waits for its replicas is refused.
	p.Step(Writing{4, []string{"k"}}, nil)
	if outs := p.Step(Revoked{6}, before)[1:]; told(outs) != told([]Output{Refuse{3}}) {
		t.Errorf("%s", told(outs))
	}
	p.Step(Acquired{Lease: lease.Lease{Range: lease.Point("k"), Gen: 8}, Group: crew}, nil)
	if outs := p.Step(Revoked{5}, before)[1:]; told(outs) != told([]Output{Refuse{4}}) {
		t.Errorf("%s", told(outs))
	}
	p.Step(Guarding{9, lease.Range{}}, nil)
	p.Step(Guarded{9, true}, nil)
	if outs := p.Step(Writing{5, []string{"k", "l"}}, nil); len(outs) != 2 { // the newer generation of k leads
		t.Errorf("%s", told(outs))
	}
	p.Step(Received{Report{8, "r", 1, false}}, nil)
	p.Step(Received{Report{8, "s", 1, false}}, nil)
	if outs := p.Step(Revoked{8}, nil); len(outs) != 0 { // it was passed
		t.Errorf("%s", told(outs))
	}
	if outs := p.Step(Writing{6, []string{"k"}}, nil); told(outs) != told([]Output{Pass{6}}) || !p.Busy() {
		t.Errorf("%s", told(outs))
	}
	if p.Step(Written{5, true}, nil); p.Busy() {
		t.Error("all is over")
	}
}

// Whoever came later shares an answer that fills, and an error; else it asks for itself.
func TestLateReaders(t *testing.T) {
	for name, c := range map[string]struct {
		open, ok       bool
		replies, loads int
	}{"it fills": {true, true, 2, 0}, "it fails": {false, false, 2, 0}, "it may be too old": {false, true, 1, 1}} {
		r := replica(1)
		if !c.open {
			r.Step(0, Received{Invalidate{1, 1}}, nil)
		}
		before := []Output{Drop{"x"}}
		r.Step(0, Read{1, "k"}, nil)
		if outs := r.Step(0, Read{2, "k"}, before); !reflect.DeepEqual(outs, before) {
			t.Errorf("%s: %s", name, told(outs))
		}
		replies, loads := 0, 0
		for _, out := range r.Step(0, Loaded{1, Row{Version: 1}, c.ok}, nil) {
			switch out.(type) {
			case Reply:
				replies++
			case Load:
				loads++
			}
		}
		if replies != c.replies || loads != c.loads {
			t.Errorf("%s: %d replies, %d reads", name, replies, loads)
		}
	}
}
