// Package dot names writes, and tells sets of them exactly in little space.
package dot

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// Origin is one life of a server: the coordinator numbers lives, and never uses a
// number twice. Zero is none.
type Origin uint32

// Dot names a write for ever: the life that took it first, and its number there.
// Numbers begin at 1 and leave no gap.
type Dot struct {
	Origin Origin
	N      uint64
}

// Compare orders dots by origin and number.
func (d Dot) Compare(o Dot) int {
	if d.Origin != o.Origin {
		return cmp.Compare(d.Origin, o.Origin)
	}
	return cmp.Compare(d.N, o.N)
}

// String is the dot for people.
func (d Dot) String() string { return fmt.Sprintf("%d.%d", d.Origin, d.N) }

// Stamp orders all writes, and extends causality: a write's stamp exceeds those of
// all its causes. The larger stamp wins a key.
type Stamp struct {
	Time   uint64
	Origin Origin
}

// Less reports whether s comes before o.
func (s Stamp) Less(o Stamp) bool {
	return s.Time < o.Time || s.Time == o.Time && s.Origin < o.Origin
}

// String is the stamp for people.
func (s Stamp) String() string { return fmt.Sprintf("%d@%d", s.Time, s.Origin) }

// Frontier is a set of dots: of every origin all up to a number, and some above.
// It says exactly what is in it; a gap is never taken for filled. A Frontier that
// was handed out does not change.
type Frontier struct {
	upto  []Dot // by origin, one each
	extra []Dot // sorted; each at least two above its origin's
}

// NewFrontier is the set of the given dots.
func NewFrontier(dots ...Dot) (f Frontier) {
	for _, d := range dots {
		f.Add(d)
	}
	return f
}

// All is the set of every dot of an origin up to a number.
func All(o Origin, n uint64) (f Frontier) {
	if n > 0 {
		f.upto = []Dot{{o, n}}
	}
	return f
}

// Upto is the number up to which every dot of an origin is in the set.
func (f Frontier) Upto(o Origin) uint64 {
	for _, d := range f.upto {
		if d.Origin == o {
			return d.N
		}
	}
	return 0
}

// Covers reports whether a dot is in the set.
func (f Frontier) Covers(d Dot) bool {
	if d.N <= f.Upto(d.Origin) {
		return true
	}
	if len(f.extra) == 0 {
		return false
	}
	_, ok := slices.BinarySearchFunc(f.extra, d, Dot.Compare)
	return ok
}

// Within reports whether every dot of f is in o.
func (f Frontier) Within(o Frontier) bool {
	for i, d := range f.upto {
		if i < len(o.upto) && o.upto[i].Origin == d.Origin { // two frontiers of one ring have the same shape
			if d.N <= o.upto[i].N {
				continue
			}
		} else if d.N <= o.Upto(d.Origin) {
			continue
		}
		for n := o.Upto(d.Origin) + 1; n <= d.N; n++ {
			if !o.Covers(Dot{d.Origin, n}) {
				return false
			}
		}
	}
	for _, d := range f.extra {
		if !o.Covers(d) {
			return false
		}
	}
	return true
}

// Equal reports whether both are the same set.
func (f Frontier) Equal(o Frontier) bool {
	return slices.Equal(f.upto, o.upto) && slices.Equal(f.extra, o.extra)
}

// Union is the set of what is in either.
func (f Frontier) Union(o Frontier) Frontier {
	switch {
	case o.Within(f):
		return f
	case f.Within(o):
		return o
	}
	u := f.Clone()
	for _, d := range o.upto {
		i := u.at(d.Origin)
		u.upto[i].N = max(u.upto[i].N, d.N)
		u.absorb(i)
	}
	for _, d := range o.extra {
		u.Add(d)
	}
	return u
}

// Size is how many numbers it takes to tell the set.
func (f Frontier) Size() int { return len(f.upto) + len(f.extra) }

// Only is the part of a set that is of one origin.
func (f Frontier) Only(o Origin) (g Frontier) {
	other := func(d Dot) bool { return d.Origin != o }
	g = f.Clone()
	return Frontier{slices.DeleteFunc(g.upto, other), slices.DeleteFunc(g.extra, other)}
}

// Last is the largest number of any origin.
func (f Frontier) Last() (n uint64) {
	for _, d := range slices.Concat(f.upto, f.extra) {
		n = max(n, d.N)
	}
	return n
}

// Missing are the dots of f that are not in o, by origin and number. There may be
// any number of them; whoever calls knows that f is bounded.
func (f Frontier) Missing(o Frontier, out []Dot) []Dot {
	for _, d := range f.upto {
		for n := o.Upto(d.Origin) + 1; n <= d.N; n++ {
			if e := (Dot{d.Origin, n}); !o.Covers(e) {
				out = append(out, e)
			}
		}
	}
	for _, d := range f.extra {
		if !o.Covers(d) {
			out = append(out, d)
		}
	}
	return out
}

// Clone is a set of its own.
func (f Frontier) Clone() Frontier {
	return Frontier{slices.Clone(f.upto), slices.Clone(f.extra)}
}

// at is where an origin stands in upto; it is put there if it was not.
func (f *Frontier) at(o Origin) int {
	i := 0
	for i < len(f.upto) && f.upto[i].Origin < o {
		i++
	}
	if i == len(f.upto) || f.upto[i].Origin != o {
		f.upto = slices.Insert(f.upto, i, Dot{o, 0})
	}
	return i
}

// absorb takes the extra dots that continue the i-th origin into it.
func (f *Frontier) absorb(i int) {
	if len(f.extra) == 0 {
		return
	}
	o := f.upto[i].Origin
	from, _ := slices.BinarySearchFunc(f.extra, Dot{o, 0}, Dot.Compare)
	to := from
	for to < len(f.extra) && f.extra[to].Origin == o && f.extra[to].N <= f.upto[i].N+1 {
		f.upto[i].N = max(f.upto[i].N, f.extra[to].N)
		to++
	}
	f.extra = slices.Delete(f.extra, from, to)
}

// Add puts a dot into a set that nobody else has.
func (f *Frontier) Add(d Dot) {
	if d.N == f.Upto(d.Origin)+1 { // what comes after a gap stays apart: the gap is not ours to fill
		i := f.at(d.Origin)
		f.upto[i].N = d.N
		f.absorb(i)
	} else if !f.Covers(d) {
		i, _ := slices.BinarySearchFunc(f.extra, d, Dot.Compare)
		f.extra = slices.Insert(f.extra, i, d)
	}
}

// Without is the set without the origins for which gone is true.
func (f Frontier) Without(gone func(Origin) bool) Frontier {
	drop := func(d Dot) bool { return gone(d.Origin) }
	if !slices.ContainsFunc(f.upto, drop) && !slices.ContainsFunc(f.extra, drop) {
		return f
	}
	f = f.Clone()
	return Frontier{slices.DeleteFunc(f.upto, drop), slices.DeleteFunc(f.extra, drop)}
}

// String is the set for people.
func (f Frontier) String() string {
	var b strings.Builder
	for _, d := range f.upto {
		fmt.Fprintf(&b, " %d..%d", d.Origin, d.N)
	}
	for _, d := range f.extra {
		fmt.Fprintf(&b, " %v", d)
	}
	return "{" + strings.TrimPrefix(b.String(), " ") + "}"
}
