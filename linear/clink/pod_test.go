package clink

import (
	"fmt"
	"reflect"
	"slices"
	"testing"

	"github.com/freshet-cache/freshet/shard/lease"
	"github.com/freshet-cache/freshet/ticks"
)

// held is a pod that has guarded its leases, from generation 1 on, each until 100.
func held(t *testing.T, opt Options, ranges ...lease.Range) *Pod {
	t.Helper()
	opt.Incarnation = 1
	p := NewPod(opt)
	for i, r := range ranges {
		outs := p.Step(1, Acquired{Lease: lease.Lease{Range: r, Gen: lease.Gen(i + 1)}, Until: 100}, nil)
		for len(outs) > 0 {
			switch out := outs[0].(type) {
			case ReadSplits:
				outs = p.Step(1, Splits{Call: out.Call}, outs)
			case SetGuard:
				outs = p.Step(1, Guarded{Call: out.Call}, outs)
			}
			outs = outs[1:]
		}
	}
	p.Check()
	return p
}

func TestDefaultsOfPods(t *testing.T) {
	for _, opt := range []Options{{}, {Drift: -1, Queue: -1}} {
		if p := NewPod(opt); p.opt.Drift != 200 || p.opt.Queue != 4096 {
			t.Errorf("%+v", p.opt)
		}
	}
	p := NewPod(Options{Drift: 1, Queue: 1, Entry: func(string) (Keep, bool) { return Keep{Gen: 7}, true }})
	if e, ok := p.entry("k"); p.opt.Drift != 1 || p.opt.Queue != 1 || !ok || e.Gen != 7 {
		t.Errorf("%+v", p.opt)
	}
}

// An entry is served before its lease is over and before its TTL is, to the tick.
func TestServesToTheTick(t *testing.T) {
	for _, c := range []struct {
		now, leased, until ticks.Tick
		serves             bool
	}{{9, 10, 0, true}, {10, 10, 0, false}, {9, 10, 10, true}, {9, 10, 9, false}, {9, 0, 0, false}, {9, 20, 8, false}, {15, 10, 20, false}} {
		if Serves(c.now, c.leased, c.until) != c.serves {
			t.Errorf("%+v", c)
		}
	}
	p := NewPod(Options{Drift: 1000})
	for _, c := range []struct{ sent, ttl, until ticks.Tick }{
		{5, 0, 0}, {5, -1, 0}, {5, 1, 1}, {5, 1999, 4}, {5, 1995, 1}, {5, 10_000_000, 5 + 10_000_000 - 22_000}, {5, 999_999, 5 + 999_999 - 2000}, {5, 1<<63 - 1, 5 + 1<<62 - (1<<62/1_000_000+1)*2000}, {5000, 1, 3001},
	} {
		if got := p.expiry(c.sent, c.ttl); got != c.until {
			t.Errorf("%+v: %d", c, got)
		}
	}
}

// Generations and tokens of an incarnation are all different, and from those of another incarnation.
func TestNamesAreNeverRepeated(t *testing.T) {
	seen := map[[16]byte]bool{}
	for incarnation := range uint64(3) {
		p := NewPod(Options{Incarnation: incarnation << 56})
		for range 300 {
			if n := p.name(); seen[n] || n == [16]byte{} {
				t.Fatalf("incarnation %d: %x", incarnation, n)
			} else {
				seen[n] = true
			}
		}
	}
}

// A slice is taken over what is held: every key has the newest lease that covers it, in
// pieces that do not overlap, and keeps its guard if the lease of that has not ended.
func TestAcquiredOverWhatIsHeld(t *testing.T) {
	points := []string{"", "b", "c", "d", "e"}
	var ranges []lease.Range
	for i, low := range points {
		ranges = append(ranges, lease.Range{Low: low})
		for _, high := range points[i+1:] {
			ranges = append(ranges, lease.Range{Low: low, High: high})
		}
	}
	for _, r := range ranges {
		for _, s := range ranges {
			for now, goes := range map[ticks.Tick]bool{99: true, 100: false} {
				p := held(t, Options{}, r)
				outs := p.Step(now, Acquired{Lease: lease.Lease{Range: s, Gen: 2}, Until: 200, After: 9}, nil)
				p.Check()
				for i, key := range append(points[1:], "a", "bx", "ex") {
					pc := p.piece(key)
					want := lease.Gen(0)
					switch {
					case s.Contains(key):
						want = 2
					case r.Contains(key):
						want = 1
					}
					if (pc == nil) != (want == 0) || pc != nil && (pc.gen != want || (pc.state == guarded) != (r.Contains(key) && (want == 1 || goes))) {
						t.Fatalf("%v over %v at %d: %s is in %+v (%d)", s, r, now, key, pc, i)
					}
					if pc != nil && want == 2 && (pc.after == 9) != (pc.state != guarded) {
						t.Fatalf("%v over %v at %d: %s may take over from %d", s, r, now, key, pc.after)
					}
				}
				tags, asked := 0, 0
				for _, out := range outs {
					switch out := out.(type) {
					case Retag:
						if tags++; !r.Covers(out.Range) || !s.Covers(out.Range) || out.Old != 1 || out.New != 2 {
							t.Fatalf("%v over %v: %+v", s, r, out)
						}
					case ReadSplits:
						if asked++; !s.Covers(out.Range) || goes && out.Range.Overlaps(r) {
							t.Fatalf("%v over %v: %+v", s, r, out)
						}
					}
				}
				if overlap := r.Overlaps(s) && goes; (tags == 1) != overlap || (asked == 0) != (overlap && r.Covers(s)) {
					t.Fatalf("%v over %v at %d: %+v", s, r, now, outs)
				}
			}
		}
	}
}

// A lease is made longer by what is longer, and only if it is held.
func TestExtendedOnlyGrows(t *testing.T) {
	p := held(t, Options{}, lease.Range{})
	before := []Output{Drop{"x"}}
	for _, c := range []struct {
		gen   lease.Gen
		until ticks.Tick
		now   ticks.Tick
		holds bool
	}{{1, 50, 99, true}, {1, 50, 100, false}, {1, 150, 149, true}, {1, 150, 150, false}, {2, 900, 150, false}} {
		if out := p.Step(1, Extended{c.gen, c.until}, before); !reflect.DeepEqual(out, before) || p.Owns(c.now, "k") != c.holds {
			t.Errorf("%+v: %v", c, out)
		}
	}
	if len(p.leases) != 1 {
		t.Error("a lease that is not held is extended")
	}
	if p.Step(1, Revoked{Gen: 2}, nil); !p.Owns(1, "k") {
		t.Error("another lease was revoked")
	}
	if p.Step(1, Revoked{Gen: 1}, nil); p.Owns(1, "k") || len(p.pieces) != 0 {
		t.Error("its lease was revoked")
	}
}

// One lease of several ends: what is held under the others goes on, and answers to what was
// asked under it change nothing.
func TestRevokedAlone(t *testing.T) {
	p := held(t, Options{}, lease.Range{High: "c"}, lease.Range{Low: "c"})
	asked := p.Step(2, Acquired{Lease: lease.Lease{Range: lease.Range{Low: "a", High: "b"}, Gen: 3}, Until: 100}, nil)
	if len(asked) != 1 {
		t.Fatal(asked)
	}
	p = held(t, Options{}, lease.Range{High: "c"})
	out := p.Step(2, Acquired{Lease: lease.Lease{Range: lease.Range{Low: "c"}, Gen: 2}, Until: 100}, nil)
	split := out[0].(ReadSplits)
	out = p.Step(2, Splits{Call: split.Call, Points: []string{"d"}}, nil)
	late := out[0].(SetGuard)
	p.Step(3, Revoked{Gen: 2}, nil)
	was := p.Dump()
	for _, in := range []Input{Splits{Call: split.Call}, Guarded{Call: late.Call}, Guarded{Call: out[1].(SetGuard).Call}} {
		if out := p.Step(4, in, nil); len(out) != 0 || p.Dump() != was {
			t.Errorf("%+v: %+v", in, out)
		}
	}
	if !p.Guarded(4, "b") || p.Owns(4, "d") {
		t.Error("the wrong lease has ended")
	}
}

// Answers that nobody waits for leave everything as it is, and what was said before.
func TestStrayAnswers(t *testing.T) {
	p := held(t, Options{}, lease.Range{})
	p.Step(2, Read{Op: 1, Key: "r"}, nil)
	p.Step(2, Write{Op: 2, Muts: []Mut{{Key: "w"}}}, nil)
	was, before := p.Dump(), []Output{Drop{"x"}}
	for _, in := range []Input{Splits{Call: 999}, Guarded{Call: 999}, Loaded{Call: 999}, Stored{Call: 999}, Evaluated{Op: 999}, Evaluated{Op: 1}, Evaluated{Op: 2}, Abandoned{Op: 999}, Revoked{Gen: 9},
		Offered{After: 7, Key: "k"}, Offered{Key: "k"}} {
		if out := p.Step(3, in, before); !reflect.DeepEqual(out, before) || p.Dump() != was {
			t.Errorf("%#v: %+v", in, out)
		}
	}
}

// Offers wait for their guard within a bound, the oldest give way, and what can be of use
// no more is forgotten.
func TestOffersAreBounded(t *testing.T) {
	const each = 1 << 20
	for extra, first := range map[int]bool{0: true, 1: false} {
		p := NewPod(Options{Incarnation: 1})
		value := make([]byte, each-offerOverhead-len("k00"))
		for i := range maxOffers / each {
			in := Offered{After: 3, Key: fmt.Sprintf("k%02d", i), Row: Row{Exists: true, Version: 2, Value: value}}
			if i == 5 {
				in.Row.Value = append(slices.Clone(value), make([]byte, extra)...)
			}
			p.Step(1, in, nil)
		}
		out := p.Step(1, Acquired{Lease: lease.Lease{Gen: 4}, Until: 100, After: 3}, nil)
		out = p.Step(1, Splits{Call: out[0].(ReadSplits).Call}, nil)
		var kept []string
		for _, out := range p.Step(1, Guarded{Call: out[0].(SetGuard).Call}, nil) {
			if k, ok := out.(Keep); ok {
				kept = append(kept, k.Key)
			}
		}
		n := maxOffers / each
		if !first {
			n--
		}
		if len(kept) != n || slices.Contains(kept, "k00") != first || !slices.Contains(kept, "k63") || p.offers.bytes != 0 || len(p.offers.list) != 0 {
			t.Errorf("%d bytes too many: %d are transferred, the oldest %v; %d bytes wait", extra, len(kept), slices.Contains(kept, "k00"), p.offers.bytes)
		}
	}
}

// Which offers are taken when a guard stands, and which wait on.
func TestWhichOffersWait(t *testing.T) {
	for _, c := range []struct {
		after lease.Gen
		key   string
		kept  bool
		waits bool
	}{{3, "c", true, false}, {2, "c", false, false}, {0, "c", false, false}, {4, "c", false, true}, {5, "c", false, true}, {3, "x", false, true}} {
		p := NewPod(Options{Incarnation: 1})
		p.Step(1, Offered{After: c.after, Key: c.key, Row: Row{Version: 2}}, nil)
		out := p.Step(1, Acquired{Lease: lease.Lease{Range: lease.Range{Low: "b", High: "d"}, Gen: 4}, Until: 100, After: 3}, nil)
		out = p.Step(1, Splits{Call: out[0].(ReadSplits).Call}, nil)
		out = p.Step(1, Guarded{Call: out[0].(SetGuard).Call}, nil)
		kept := slices.ContainsFunc(out, func(o Output) bool { _, ok := o.(Keep); return ok })
		if kept != c.kept || (len(p.offers.list) == 1) != c.waits || (p.offers.bytes == 0) == c.waits {
			t.Errorf("%+v: %+v, %d wait", c, out, len(p.offers.list))
		}
		if c.kept { // it comes again, and what is kept serves, or does not
			for until, again := range map[ticks.Tick]bool{0: false, 50: false, 5: true} {
				p.opt.Entry = func(string) (Keep, bool) { return Keep{Gen: 4, Until: until}, true }
				if out := p.Step(5, Offered{After: 3, Key: "c", Row: Row{Version: 2}}, nil); (len(out) > 0) != again {
					t.Errorf("beside an entry that lasts until %d: %+v", until, out)
				}
			}
		}
	}
}

// What the rows behind a fence prove of a write that had no answer.
func TestWhatRowsProve(t *testing.T) {
	const mine, other = 1, 2
	id := func(n byte) ID { return ID{15: n} }
	there := Row{Exists: true}
	for name, c := range map[string]struct {
		m     Mut
		blind bool
		was   Row // what an update had decided from
		found Row
		after ticks.Tick // since it was first sent
		want  Status
	}{
		"its own":                              {Mut{}, true, Row{}, Row{Exists: true, Writer: id(mine)}, 5, OK},
		"its own absence":                      {Mut{Delete: true}, false, there, Row{Writer: id(mine)}, 5, OK},
		"another's":                            {Mut{}, true, Row{}, Row{Exists: true, Writer: id(other)}, 5, Refused},
		"nothing":                              {Mut{}, true, Row{}, Row{}, 5, Refused},
		"a delete, and it is there":            {Mut{Delete: true}, true, Row{}, there, 5, Refused},
		"a blind delete, and it is not":        {Mut{Delete: true}, true, Row{}, Row{Writer: id(other)}, 5, OK},
		"a delete, and another's absence":      {Mut{Delete: true}, false, there, Row{Writer: id(other)}, 5, Refused},
		"a delete of a row, forgotten":         {Mut{Delete: true}, false, there, Row{}, 5, OK},
		"a delete of one that expires":         {Mut{Delete: true}, false, Row{Exists: true, TTL: 1}, Row{}, 5, StatusUnknown},
		"a delete of nothing":                  {Mut{Delete: true}, false, Row{}, Row{}, 5, Refused},
		"a short TTL, and it is there":         {Mut{TTL: 1}, true, Row{}, there, 5, Refused},
		"a TTL that is not over":               {Mut{TTL: 5000}, true, Row{}, Row{}, 4995, Refused},
		"a TTL that may be over":               {Mut{TTL: 5000}, true, Row{}, Row{}, 4996, StatusUnknown},
		"a TTL kept":                           {Mut{TTL: KeepTTL}, false, there, Row{}, 5, StatusUnknown},
		"a TTL kept, and another's row":        {Mut{TTL: KeepTTL}, false, there, there, 5, Refused},
		"a TTL kept by a delete, which is not": {Mut{Delete: true, TTL: KeepTTL}, false, Row{}, Row{}, 5, Refused},
	} {
		c.m.Key = "k"
		b := &batch{id: id(mine), keys: []string{"a", "k"}, muts: []Mut{c.m}, blind: c.blind, rows: []Row{{}, c.was}, found: []Row{{Exists: true}, c.found}, first: 1000}
		if got := b.proof(1000 + c.after); got != c.want {
			t.Errorf("%s: %d, want %d", name, got, c.want)
		}
	}
}

// A key collects so many guards of its own, and one more has the whole piece guarded anew.
func TestSinglesAreBounded(t *testing.T) {
	p := held(t, Options{}, lease.Range{})
	pc := p.piece("k")
	for n, anew := range map[int]bool{maxSingles - 1: false, maxSingles: true} {
		pc.single = nil
		for i := range n {
			pc.put(fmt.Sprint("s", i), Token{1})
		}
		pc.state = guarded
		var guards []lease.Range
		outs := p.Step(2, Write{Op: Op(n), Muts: []Mut{{Key: fmt.Sprint("k", n)}}}, nil)
		outs = p.Step(2, Stored{Call: outs[1].(Store).Call, Status: StatusUnknown}, nil)
		for len(outs) > 0 {
			if g, ok := outs[0].(SetGuard); ok {
				if guards = append(guards, g.Range); g.Range != (lease.Range{}) {
					outs = p.Step(2, Guarded{Call: g.Call}, outs)
				}
			}
			outs = outs[1:]
		}
		if (len(guards) == 2) != anew {
			t.Errorf("%d single guards, and one more: %v", n, guards)
		}
		p.pieces[0].state = guarded
	}
}
