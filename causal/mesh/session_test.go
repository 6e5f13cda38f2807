package mesh

import (
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"

	"github.com/freshet-cache/freshet/causal/dot"
)

// some draws a session that knows some of the writes of three incarnations: as visible, whole, or by name.
func some(r *rand.Rand) (*Session, map[Dot]bool) {
	s, knows := &Session{Time: r.Uint64N(40)}, map[Dot]bool{}
	var carried []*Write
	for o := range Incarnation(3) {
		for n := range uint64(5) {
			d := Dot{Incarnation: o + 1, N: n + 1}
			switch r.IntN(6) {
			case 0, 1:
				s.Deps.Add(d)
			case 2:
				carried = append(carried, &Write{Dot: d, Stamp: Stamp{Time: 3*n + uint64(o), Incarnation: o + 1}})
			case 3:
				s.Bare = append(s.Bare, d)
			default:
				continue
			}
			knows[d] = true
		}
	}
	s.carry(carried...)
	s.tidy()
	return s, knows
}

// Who joins two sessions knows what either knew, and nothing else, in whichever order they are joined; neither the other
// one nor a fork notices.
func TestSessionsJoin(t *testing.T) {
	r := rand.New(rand.NewPCG(2, 3))
	for range 5000 {
		a, as := some(r)
		b, bs := some(r)
		fork, was, other := a.Fork(), a.String(), b.String()
		c := b.Fork()
		c.Join(a)
		a.Join(b)
		if a.String() != c.String() {
			t.Fatalf("%s and %s make %s, and %s", was, other, a, c)
		}
		if fork.String() != was || b.String() != other {
			t.Fatalf("a join changes others: %s became %s, %s became %s", was, fork, other, b)
		}
		for o := range Incarnation(4) {
			for n := range uint64(7) {
				if d := (Dot{Incarnation: o + 1, N: n + 1}); a.Knows(d) != (as[d] || bs[d]) {
					t.Fatalf("%s and %s make %s, with %v", was, other, a, d)
				}
			}
		}
		if a.Time != max(fork.Time, b.Time) || !slices.IsSortedFunc(a.Carried, byStamp) || !slices.IsSortedFunc(a.Bare, Dot.Compare) {
			t.Fatalf("%s and %s make %s", was, other, a)
		}
		times := map[Dot]int{}
		for _, w := range a.Carried {
			times[w.Dot]++
		}
		for _, d := range a.Bare {
			times[d]++
		}
		for d, n := range times {
			if n > 1 || a.Deps.Covers(d) {
				t.Fatalf("%v is told twice in %s", d, a)
			}
		}
		a.Join(b)
		if a.String() != c.String() {
			t.Fatalf("joined again %s is %s", c, a)
		}
	}
}

// A session takes what it is told, and releases what is retired; a refusal tells it nothing.
func TestSessionsTake(t *testing.T) {
	w := &Write{Dot: Dot{Incarnation: 7, N: 1}, Stamp: Stamp{Time: 9, Incarnation: 7}, Muts: []Mut{{Key: "k", Value: []byte("v")}}}
	view := &View{Ring: []Incarnation{1}, Departed: []Incarnation{2}, Newest: 9}
	for what, c := range map[string]struct {
		s    Session
		r    Reply
		keys []string
		want string
		saw  []Item
	}{
		"a refusal":          {Session{Time: 1}, Reply{Outcome: Busy, Write: w}, nil, "deps {} time 1", nil},
		"a write":            {Session{Time: 10}, Reply{Write: w}, nil, "deps {} time 10 carries " + w.String(), []Item{}},
		"a write keeps bare": {Session{Bare: []Dot{{Incarnation: 1, N: 1}}}, Reply{Write: w}, nil, "deps {} time 9 carries " + w.String() + " carries 1.1", []Item{}},
		"one key":            {Session{}, Reply{Item: Item{Stamp: Stamp{Time: 4}}}, []string{"k"}, "deps {} time 4", []Item{{Stamp: Stamp{Time: 4}}}},
		"one key of many":    {Session{}, Reply{Items: []Item{{Stamp: Stamp{Time: 5}}}}, []string{"k"}, "deps {} time 5", []Item{{Stamp: Stamp{Time: 5}}}},
		"an older time":      {Session{Time: 6}, Reply{Item: Item{Stamp: Stamp{Time: 4}}}, []string{"k"}, "deps {} time 6", []Item{{Stamp: Stamp{Time: 4}}}},
		"what is retired":    {Session{Carried: []*Write{w}, Deps: dot.NewFrontier(Dot{Incarnation: 1, N: 1}, Dot{Incarnation: 2, N: 1}, Dot{Incarnation: 3, N: 1})}, Reply{View: view}, nil, "deps {1..1 2..1} time 0", []Item{}},
	} {
		saw := c.s.Took(c.r, c.keys...)
		if c.s.String() != c.want || !reflect.DeepEqual(saw, c.saw) {
			t.Errorf("%s: %s, which saw %v", what, &c.s, saw)
		}
	}
}

// A read past the servers asks for each write once, and not for what is known; it takes along what the journal gives,
// with causes, and the names of what it does not.
func TestPastAsksOnce(t *testing.T) {
	d := func(o Incarnation, n uint64) Dot { return Dot{Incarnation: o, N: n} }
	carried := &Write{Dot: d(2, 1), Stamp: Stamp{Time: 2, Incarnation: 2}}
	s := &Session{Deps: dot.NewFrontier(d(1, 1)), Carried: []*Write{carried}, Bare: []Dot{d(3, 1)}, Time: 5}
	row := func(of Dot, time uint64) Row {
		return Row{Item: Item{Exists: true, Stamp: Stamp{Time: time, Incarnation: of.Incarnation}}, Dot: of}
	}
	p := s.Past([]Row{row(d(4, 2), 7), row(d(1, 1), 1), row(d(4, 2), 7), row(d(4, 1), 6), row(Dot{}, 9), row(d(5, 1), 8)}, []string{"a", "b", "c", "d", "e", "f"}, false)
	if want := []Dot{d(4, 1), d(4, 2), d(5, 1)}; !slices.Equal(p.Wants(), want) {
		t.Fatalf("it asks for %v", p.Wants())
	}
	a := &Write{Dot: d(4, 1), Stamp: Stamp{Time: 6, Incarnation: 4}, Deps: dot.NewFrontier(d(6, 1)), After: []Dot{d(8, 1), d(7, 1), d(4, 2)}}
	b := &Write{Dot: d(4, 2), Stamp: Stamp{Time: 7, Incarnation: 4}, After: []Dot{d(4, 1), d(7, 1), d(5, 1), d(6, 1)}}
	p.Fetched([]*Write{a, b})
	if want := []Dot{d(7, 1), d(8, 1)}; !slices.Equal(p.Wants(), want) {
		t.Fatalf("then it asks for %v", p.Wants())
	}
	p.Fetched([]*Write{{Dot: d(7, 1), Stamp: Stamp{Time: 3, Incarnation: 7}}})
	if len(p.Wants()) > 0 {
		t.Fatalf("at last it asks for %v", p.Wants())
	}
	if items := s.TookPast(p); len(items) != 6 || items[4].Stamp.Time != 9 {
		t.Errorf("it reads %v", items)
	}
	if want := []Dot{d(3, 1), d(5, 1), d(8, 1)}; !slices.Equal(s.Bare, want) || s.Time != 9 {
		t.Errorf("it knows %v by name, with time %d", s.Bare, s.Time)
	}
	for _, is := range []Dot{d(1, 1), d(6, 1)} {
		if !s.Deps.Covers(is) {
			t.Errorf("%v is not visible to %s", is, s)
		}
	}
	var dots []Dot
	for _, w := range s.Carried {
		dots = append(dots, w.Dot)
	}
	if want := []Dot{d(2, 1), d(7, 1), d(4, 1), d(4, 2)}; !slices.Equal(dots, want) {
		t.Errorf("it carries %v", dots)
	}
}

// What belongs to a snapshot: what is in its set, and what was retired by then.
func TestSnapshotsHave(t *testing.T) {
	set, view := dot.NewFrontier(Dot{Incarnation: 1, N: 1}), &View{Ring: []Incarnation{1}, Departed: []Incarnation{2}, Newest: 3}
	for _, c := range []struct {
		at   Snap
		d    Dot
		want bool
	}{
		{Snap{}, Dot{}, false}, {Snap{Set: set, View: view}, Dot{}, false}, {Snap{Set: set}, Dot{Incarnation: 1, N: 1}, true}, {Snap{Set: set}, Dot{Incarnation: 3, N: 1}, false},
		{Snap{View: view}, Dot{Incarnation: 1, N: 1}, false}, {Snap{View: view}, Dot{Incarnation: 2, N: 1}, false}, {Snap{View: view}, Dot{Incarnation: 3, N: 1}, true}, {Snap{View: view}, Dot{Incarnation: 4, N: 1}, false},
	} {
		if c.at.Has(c.d) != c.want {
			t.Errorf("%+v has %v: %v", c.at, c.d, !c.want)
		}
		if f := dot.NewFrontier(c.d); c.d != (Dot{}) && c.at.contains(f) != c.want {
			t.Errorf("%+v contains %v: %v", c.at, f, !c.want)
		}
	}
}

// A branch comes back with what it knows, has read and is to write; the last word on a key counts, and what was read of it
// first.
func TestBranches(t *testing.T) {
	w := &Write{Dot: Dot{Incarnation: 1, N: 1}, Stamp: Stamp{Time: 8, Incarnation: 1}, Muts: []Mut{{Key: "c", Value: []byte("8")}}}
	tx := &Tx{}
	if tx.Began(Reply{Outcome: Behind, At: Snap{Set: dot.NewFrontier(w.Dot)}}) || tx.At.Set.Size() > 0 {
		t.Error("a transaction has begun that was refused")
	}
	at := Snap{Set: dot.NewFrontier(Dot{Incarnation: 2, N: 1}, Dot{Incarnation: 3, N: 1}, Dot{Incarnation: 4, N: 1}), View: &View{Ring: []Incarnation{1, 2}, Newest: 9}}
	if !tx.Began(Reply{At: at, Carried: []*Write{w}}) || tx.At.View != at.View || len(tx.Carried) != 1 || tx.Deps.Size() != 1 {
		t.Errorf("it began as %+v", tx)
	}
	item := func(time uint64) Item {
		return Item{Exists: true, Value: []byte(fmt.Sprint(time)), Stamp: Stamp{Time: time}}
	}
	tx.Set(Mut{Key: "b", Value: []byte("1")})
	tx.Set(Mut{Key: "a", Value: []byte("2")})
	tx.Set(Mut{Key: "b", Delete: true})
	if tx.Looked(Reply{At: at, Items: []Item{item(20), item(3), item(4)}}, "z", "b", "c"); tx.Time != 20 {
		t.Errorf("its time is %d", tx.Time)
	}
	f := tx.Fork()
	if !f.Branch || f.Open != 0 || tx.Open != 1 || tx.Look(1).Extend || f.Look(1).Extend {
		t.Errorf("a branch is %+v of %+v", f, tx)
	}
	items, out := f.Looked(Reply{At: at, Items: []Item{item(9), item(7), item(30)}}, "b", "c", "d")
	if out != Done || items[0].Exists || string(items[1].Value) != "8" || items[2].Stamp.Time != 30 {
		t.Errorf("it looks, and sees %v, %d", items, out)
	}
	if items, out := f.Looked(Reply{Outcome: Stale}, "b"); items != nil || out != Stale {
		t.Errorf("it sees %v of a snapshot that is gone: %d", items, out)
	}
	f.Set(Mut{Key: "a", Value: []byte("3")})
	tx.Join(f)
	want := []Seen{{Key: "b", Stamp: Stamp{Time: 3}}, {Key: "c", Stamp: w.Stamp}, {Key: "d", Stamp: Stamp{Time: 30}}, {Key: "z", Stamp: Stamp{Time: 20}}}
	if tx.Open != 0 || tx.Time != 30 || !reflect.DeepEqual(tx.Seen, want) || !tx.Look(1).Extend {
		t.Errorf("a branch came back: %+v", tx)
	}
	if p := tx.Commit(1); !reflect.DeepEqual(p.Muts, []Mut{{Key: "b", Delete: true}, {Key: "a", Value: []byte("3")}}) || p.Time != 30 || len(p.Carried) != 1 {
		t.Errorf("it commits %+v", p)
	}
}
