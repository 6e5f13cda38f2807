package dot

import (
	"bytes"
	"cmp"
	"math"
	"slices"
	"testing"

	"github.com/freshet-cache/freshet/internal/packed"
)

// A reader that has met a mistake returns zeros for whatever is read after it. Callers therefore
// look at Bad once, at the end.
func TestABadReaderReturnsZeros(t *testing.T) {
	for _, b := range [][]byte{nil, {0x80}, {9}} { // nothing, half a number, more than follows
		r := NewReader(b)
		if v := r.Copy(); len(v) != 0 || !r.Bad() {
			t.Fatalf("%x is read as the bytes %x", b, v)
		}
		if r.Byte() != 0 || r.Uint() != 0 || r.Count() != 0 || r.Incarnation() != 0 || r.Dot() != (Dot{}) {
			t.Errorf("after %x, something else than zero is read", b)
		}
		d, others := r.Named()
		if d != (Dot{}) || others != nil || r.Dots() != nil || len(r.Bytes()) != 0 || r.Text() != "" {
			t.Errorf("after %x, something else than nothing is read", b)
		}
		if f := r.Frontier(); f.Size() != 0 || r.Delta(NewFrontier(Dot{1, 1})).Size() != 0 || !r.Bad() || r.Done() {
			t.Errorf("after %x, a set is read", b)
		}
	}
	if r := NewReader(nil); r.Byte() != 0 || !r.Bad() {
		t.Error("a byte is read where none is")
	}
	for _, b := range [][]byte{{0x80, 0}, {0x80}, nil} {
		if n := NewReader(b).Uint(); n != 0 {
			t.Errorf("%x is read as %d", b, n)
		}
	}
	if n := NewReader([]byte{2, 1}).Count(); n != 0 {
		t.Errorf("of two elements one follows, and %d are counted", n)
	}
	if dots := NewReader([]byte{2, 1, 1, 0x80}).Dots(); dots != nil { // the second is cut off
		t.Errorf("a list that ends early is read as %v", dots)
	}
}

// What each method appends is read by its counterpart, and nothing is left over.
func TestEveryEncodingIsRead(t *testing.T) {
	long := bytes.Repeat([]byte{7}, 200)
	dots := []Dot{{1, 300}, {2, 1}, {math.MaxUint32, math.MaxUint64 - 1}}
	b := AppendDots(nil, dots)
	b = AppendNamed(AppendNamed(b, Dot{3, 4}, dots), Dot{5, 6}, nil)
	b = packed.AppendString(packed.AppendBytes(packed.AppendBytes(b, long), nil), "text")
	b = append(packed.AppendBytes(b, []byte("part")), 9)
	r := NewReader(b)
	if got := r.Dots(); !slices.Equal(got, dots) {
		t.Errorf("dots are read as %v", got)
	}
	if d, others := r.Named(); d != (Dot{3, 4}) || !slices.Equal(others, dots) {
		t.Errorf("a dot and others are read as %v and %v", d, others)
	}
	if d, others := r.Named(); d != (Dot{5, 6}) || others != nil {
		t.Errorf("a dot alone is read as %v and %v", d, others)
	}
	copied := r.Copy()
	if !bytes.Equal(copied, long) || len(r.Copy()) != 0 || r.Text() != "text" || string(r.Bytes()) != "part" {
		t.Error("bytes and texts are read as something else")
	}
	if r.Done() || r.Byte() != 9 || !r.Done() {
		t.Error("the last byte is not the last")
	}
	clear(b)
	if !bytes.Equal(copied, long) {
		t.Error("Bytes shares memory with the encoding")
	}
	r = NewReader([]byte{0, 1, 1})
	if r.Named(); !r.Bad() {
		t.Error("a list without its first dot is taken")
	}
}

// A part that was read cannot be appended to: what follows it in the message stays.
func TestPartsEndWhereTheyEnd(t *testing.T) {
	b := append(packed.AppendBytes(nil, []byte("ab")), 'c')
	r := NewReader(b)
	if _ = append(r.Bytes(), 'x'); r.Byte() != 'c' {
		t.Error("appending to a part overwrites what follows it")
	}
}

// A delta that keeps or drops more runs than the previous frontier had is refused. The peer and the
// reader disagree about that frontier, and any result would be a wrong set.
func TestADeltaOfAnotherFrontier(t *testing.T) {
	last := NewFrontier(Dot{1, 3}, Dot{1, 5}, Dot{1, 7})
	for _, c := range []struct {
		keep, drop byte
		ok         bool
	}{{0, 0, true}, {3, 0, true}, {0, 3, true}, {2, 1, true}, {4, 0, false}, {0, 4, false}, {3, 1, false}, {2, 2, false}} {
		r := NewReader([]byte{changed, 0, 1, c.keep, c.drop, 0})
		if f := r.Delta(last); r.Bad() == c.ok || !c.ok && f.Size() != 0 || c.ok && f.Size() != 3-int(c.drop) {
			t.Errorf("of three runs %d stay and %d are dropped: %v, bad %v", c.keep, c.drop, f, r.Bad())
		}
	}
	for _, b := range [][]byte{{same}, {same + 1}, {0xff}, {}} {
		r := NewReader(b)
		if f := r.Delta(last); r.Done() != bytes.Equal(b, []byte{same}) || r.Done() != f.Equal(last) {
			t.Errorf("the delta %x is read as %v", b, f)
		}
	}
}

// The largest numbers that a dot can have are written and read; the number after them, at which a
// frontier could not count on, is refused.
func TestTheLargestNumbers(t *testing.T) {
	const most = math.MaxUint64 - 1
	for _, f := range []Frontier{All(1, most), NewFrontier(Dot{1, most}), NewFrontier(Dot{1, most - 2}, Dot{1, most})} {
		r := NewReader(AppendFrontier(AppendDelta(nil, Frontier{}, f), f))
		if a, b := r.Delta(Frontier{}), r.Frontier(); !a.Equal(f) || !b.Equal(f) || !r.Done() {
			t.Errorf("%v is read as %v and %v", f, a, b)
		}
	}
	for _, f := range []Frontier{All(1, most+1), NewFrontier(Dot{1, most + 1}), {extra: []run{{1, most - 3, most + 1}}}} {
		if r := NewReader(AppendFrontier(nil, f)); r.Frontier().Size() != 0 || !r.Bad() {
			t.Errorf("%v is taken", f)
		}
	}
	r := NewReader([]byte{1, 0xff, 0xff, 0xff, 0xff, 0x1f, 1}) // an incarnation of 33 bits
	if r.Dots(); !r.Bad() {
		t.Error("an incarnation that does not fit is taken")
	}
}

// Dots are ordered by incarnation and then by number, stamps by time and then by incarnation.
func TestOrders(t *testing.T) {
	dots := []Dot{{}, {1, 1}, {1, 2}, {1, 9}, {2, 1}, {2, 2}, {3, 1}}
	for i, a := range dots {
		for k, b := range dots {
			if a.Compare(b) != cmp.Compare(i, k) {
				t.Errorf("%v is compared with %v: %d", a, b, a.Compare(b))
			}
		}
	}
	stamps := []Stamp{{}, {0, 1}, {1, 1}, {1, 2}, {2, 1}, {2, 3}}
	for i, a := range stamps {
		for k, b := range stamps {
			if a.Less(b) != (i < k) {
				t.Errorf("%v is before %v: %v", a, b, a.Less(b))
			}
		}
	}
	if text := dots[3].String() + " " + stamps[3].String() + " " + NewFrontier(dots[1], dots[3]).String(); text != "1.9 1@2 {1..1 1.9}" {
		t.Errorf("people read %q", text)
	}
}

// All is the set of every dot up to a number, and of no dot if the number is zero. Last is the
// largest number of any incarnation, wherever that incarnation stands in the set.
func TestAllAndLast(t *testing.T) {
	for n := range uint64(4) {
		f := All(7, n)
		if want := NewFrontier([]Dot{{7, 1}, {7, 2}, {7, 3}}[:n]...); !f.Equal(want) || f.Upto(7) != n || f.Last() != n || f.Size() != int(min(n, 1)) {
			t.Errorf("all up to %d are %v", n, f)
		}
	}
	for _, c := range []struct {
		f    Frontier
		last uint64
	}{
		{All(1, 9).Union(All(2, 3)), 9},
		{All(1, 3).Union(All(2, 9)), 9},
		{NewFrontier(Dot{1, 9}, Dot{2, 7}), 9},
		{NewFrontier(Dot{1, 7}, Dot{2, 9}).Union(All(3, 8)), 9},
		{Frontier{}, 0},
	} {
		if c.f.Last() != c.last {
			t.Errorf("the last of %v is %d", c.f, c.f.Last())
		}
	}
}
