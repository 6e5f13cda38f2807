package dot

import (
	"bytes"
	"math"
	"math/rand/v2"
	"testing"
)

// asMade reports whether a set is as all sets are: sorted, with nothing told twice, and with gaps between what is apart.
func asMade(f Frontier) bool {
	dots := uint64(0)
	for i, d := range f.upto {
		if d.Incarnation == 0 || d.N == 0 || d.N == math.MaxUint64 || i > 0 && f.upto[i-1].Incarnation >= d.Incarnation {
			return false
		}
	}
	for i, e := range f.extra {
		end := f.Upto(e.Incarnation)
		if i > 0 && f.extra[i-1].Incarnation == e.Incarnation {
			end = f.extra[i-1].To
		}
		if e.Incarnation == 0 || i > 0 && f.extra[i-1].Incarnation > e.Incarnation || e.To < e.From || e.From < 2 || e.From-1 <= end {
			return false
		}
		dots += e.To - e.From + 1
	}
	return dots <= maxExtra
}

// What is taken is what an encoder has made: of one set there is one encoding, and nothing else is a set. The bytes are
// drawn so that many of them nearly are.
func TestNothingElseIsTaken(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 6))
	taken, refused := 0, 0
	last := NewFrontier(Dot{1, 1}, Dot{1, 2}, Dot{2, 1}, Dot{2, 4}, Dot{2, 5}, Dot{3, 9})
	numbers := [][]byte{{0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1}, {0xfe, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1},
		{0x80, 0x80, 0x80, 0x80, 0x10}, {0xff, 0xff, 0x0f}, {0x80, 0x80, 0x10}, {0xfe, 0xff, 0x0f}, {0x80, 0x00}, {0x81, 0x00}, {0x80}}
	draw := func(begin ...byte) []byte {
		b := begin
		for range r.IntN(13) {
			if r.IntN(30) == 0 {
				b = append(b, numbers[r.IntN(len(numbers))]...)
			} else {
				b = append(b, byte(r.IntN(6)))
			}
		}
		return b
	}
	for range 400_000 {
		b := draw()
		in := NewReader(b)
		f := in.Frontier()
		if in.Bad() != (f.Size() == 0 && in.Bad()) {
			t.Fatalf("%x is bad, and is %v", b, f)
		}
		if !in.Done() {
			refused++
		} else if again := AppendFrontier(nil, f); !bytes.Equal(again, b) || !asMade(f) {
			t.Fatalf("%x is taken as %+v, which is told as %x", b, f, again)
		} else {
			taken++
		}
		b = draw(changed)
		in = NewReader(b)
		if f = in.Delta(last); !in.Bad() && !asMade(f) {
			t.Fatalf("%x after %v is taken as %+v", b, last, f)
		}
	}
	if taken < 2000 || refused < 100_000 {
		t.Errorf("%d were taken, %d refused", taken, refused)
	}
}

// What differs from an earlier set is told by that, in however many places.
func TestManyEdits(t *testing.T) {
	for _, n := range []int{1, 2, 126, 127, 128, 129, 300} {
		var last Frontier
		for i := range uint64(2*n + 2) {
			last.Add(Dot{1, 3 + 2*i})
		}
		for _, with := range []uint64{0, 1} { // every second run goes, or is another
			f := Frontier{}
			for i := range uint64(2*n + 2) {
				if i%2 == 0 {
					f.Add(Dot{1, 3 + 2*i})
				} else if with > 0 {
					f.Add(Dot{2, 3 + 2*i})
				}
			}
			in := NewReader(AppendDelta(nil, last, f))
			if got := in.Delta(last); !got.Equal(f) || !in.Done() {
				t.Fatalf("%d edits: %v came as %v", n, f, got)
			}
		}
		few := last.Clone()
		few.Add(Dot{1, 2})
		few.Add(Dot{9, 1})
		base := last.Clone()
		base.Add(Dot{9, 2})
		base.Add(Dot{7, 1})
		few.Add(Dot{7, 2})
		few.Add(Dot{7, 1})
		if b := AppendDelta(nil, base, few); len(b) > 30 {
			t.Errorf("of %d runs little differs, and it takes %d bytes", 2*n, len(b))
		}
	}
	f := NewFrontier(Dot{1, 1}, Dot{2, 5})
	if b := AppendDelta(nil, f, f.Clone()); !bytes.Equal(b, []byte{same}) {
		t.Errorf("what is the same is told as %x", b)
	}
}

// What is said of sets, of some that differ little.
func TestWhatIsSaidOfSets(t *testing.T) {
	sets := []Frontier{{}}
	for _, dots := range [][]Dot{{{1, 1}}, {{1, 1}, {1, 2}}, {{2, 1}}, {{1, 2}}, {{1, 3}}, {{1, 2}, {1, 3}}, {{1, 1}, {2, 1}}, {{1, 1}, {2, 2}}, {{1, 1}, {2, 3}}, {{2, 2}, {3, 7}}, {{1, 4}, {2, 2}}} {
		sets = append(sets, NewFrontier(dots...))
	}
	for i, f := range sets {
		for j, g := range sets {
			if f.Equal(g) != (i == j) || f.Equal(g) != (f.Within(g) && g.Within(f)) {
				t.Errorf("%v and %v are equal: %v", f, g, f.Equal(g))
			}
		}
		numbers, largest := len(f.upto)+len(f.extra), uint64(0)
		for _, o := range []Incarnation{1, 2, 3} {
			only, rest := f.Only(o), f.Without(func(is Incarnation) bool { return is == o })
			n := uint64(0)
			for _, d := range f.Missing(Frontier{}, nil) {
				if only.Covers(d) != (d.Incarnation == o) || rest.Covers(d) == (d.Incarnation == o) {
					t.Errorf("of %v only %d is %v, and the rest %v", f, o, only, rest)
				}
				if d.Incarnation == o {
					n = max(n, d.N)
				}
			}
			if only.Last() != n {
				t.Errorf("the last of %v is %d", only, only.Last())
			}
			largest = max(largest, n)
		}
		if f.Size() != numbers || f.Last() != largest {
			t.Errorf("%v has %d numbers, and %d is the last", f, f.Size(), f.Last())
		}
	}
	for _, b := range [][]byte{{0, 0, 7}, {0}} { // more than was asked for, and less
		in := NewReader(b)
		if in.Frontier(); in.Done() {
			t.Errorf("%x is all of it", b)
		}
	}
	for more, ok := range map[uint64]bool{maxExtra/2 - 1: true, maxExtra / 2: false} { // two runs of more+1 dots
		f := Frontier{extra: []run{{1, 5, 5 + more}, {2, 5, 5 + more}}}
		if got := NewReader(AppendFrontier(nil, f)).Frontier(); got.Equal(f) != ok {
			t.Errorf("two runs of %d dots are taken: %v", more+1, !ok)
		}
	}
	in := NewReader([]byte{1, 0, 1})
	if in.Dots(); in.Done() || !in.Bad() {
		t.Error("a dot of nobody is taken")
	}
}
