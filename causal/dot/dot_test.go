package dot

import (
	"encoding/binary"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
)

// A frontier is a set of dots, and tells it exactly.
func TestFrontiersAreSets(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	draw := func() (Frontier, map[Dot]bool) {
		var f Frontier
		all := map[Dot]bool{}
		for range r.IntN(25) {
			d := Dot{Incarnation(1 + r.IntN(3)), 1 + r.Uint64N(6)}
			f.Add(d)
			all[d] = true
		}
		return f, all
	}
	for range 20_000 {
		f, fs := draw()
		g, gs := draw()
		within, missing := true, 0
		for d := range fs {
			if !f.Covers(d) {
				t.Fatalf("%v lacks %v", f, d)
			}
			if !gs[d] {
				within = false
				missing++
			}
		}
		if f.Within(g) != within || len(f.Missing(g, nil)) != missing {
			t.Fatalf("%v within %v: %v, missing %v", f, g, f.Within(g), f.Missing(g, nil))
		}
		was := f.Clone()
		u := f.Union(g)
		maps.Copy(gs, fs)
		for o := range Incarnation(5) {
			for n := range uint64(9) {
				if d := (Dot{o, n}); n > 0 && u.Covers(d) != gs[d] {
					t.Fatalf("%v and %v make %v, with %v", f, g, u, d)
				}
			}
		}
		if n := NewFrontier(slices.Collect(maps.Keys(gs))...); !n.Equal(u) || !f.Equal(was) {
			t.Fatalf("%v is told as %v, and %v became %v", n, u, was, f)
		}
		only := u.Only(2)
		if !only.Union(u.Without(func(o Incarnation) bool { return o == 2 })).Equal(u) || only.Upto(1) != 0 || u.Upto(2) > only.Last() {
			t.Fatalf("%v is not %v and the rest", u, only)
		}
	}
}

// What is told comes back, in full and as what has changed.
func TestEncoding(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	var last Frontier
	for range 20_000 {
		f := last.Clone()
		if n := len(f.extra); n > 0 && r.IntN(4) == 0 { // a set of somebody who knows less
			i := r.IntN(n)
			f.extra = slices.Delete(f.extra, i, min(n, i+1+r.IntN(3)))
		}
		if n := len(f.upto); n > 0 && r.IntN(4) == 0 {
			f.upto[r.IntN(n)].N = 1
		}
		if r.IntN(20) == 0 {
			f = Frontier{}
		}
		for range r.IntN(4) {
			f.Add(Dot{Incarnation(1 + r.IntN(4)), 1 + r.Uint64N(200)})
		}
		in := NewReader(AppendFrontier(AppendDelta(nil, last, f), f))
		if a, b := in.Delta(last), in.Frontier(); !a.Equal(f) || !b.Equal(f) || !in.Done() {
			t.Fatalf("%v came back as %v and %v", f, a, b)
		}
		last = f
	}
}

// A few bytes that tell of more than anybody can have seen are refused.
func TestHugeRuns(t *testing.T) {
	for _, more := range []uint64{maxExtra, 1 << 40, 1<<64 - 1} {
		b := binary.AppendUvarint([]byte{0, 1, 1, 5}, more)
		if r := NewReader(b); r.Frontier().Size() != 0 || !r.Bad() {
			t.Errorf("a run of %d dots is taken", more)
		}
	}
	if r := NewReader([]byte{0, 2, 1, 5, 0, 1, 6, 0}); r.Frontier().Size() != 0 || !r.Bad() {
		t.Error("one run told as two is taken")
	}
}
