// Package dot names writes, and represents sets of them exactly in little space.
package dot

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// Incarnation is the number of one run of a server. The coordinator assigns it, and never uses a
// number twice. Zero means none.
type Incarnation uint32

// Dot names a write for ever, by the incarnation that took it first and its number there. Numbers
// begin at 1 and leave no gap.
type Dot struct {
	Incarnation Incarnation
	N           uint64
}

// Compare orders dots by incarnation and number.
func (d Dot) Compare(o Dot) int {
	if d.Incarnation != o.Incarnation {
		return cmp.Compare(d.Incarnation, o.Incarnation)
	}
	return cmp.Compare(d.N, o.N)
}

// String returns the dot for people.
func (d Dot) String() string { return fmt.Sprintf("%d.%d", d.Incarnation, d.N) }

// Stamp orders all writes, and extends causality: a write's stamp exceeds the stamps of all its
// causes. The larger stamp wins a key.
type Stamp struct {
	Time        uint64
	Incarnation Incarnation
}

// Less reports whether s comes before o.
func (s Stamp) Less(o Stamp) bool {
	return s.Time < o.Time || s.Time == o.Time && s.Incarnation < o.Incarnation
}

// String returns the stamp for people.
func (s Stamp) String() string { return fmt.Sprintf("%d@%d", s.Time, s.Incarnation) }

// Frontier is a set of dots: of each incarnation, all dots up to a number, and some dots above it.
// The set is exact: a gap is never counted as filled. A Frontier that was given to other code does
// not change.
type Frontier struct {
	upto  []Dot // sorted, one for each incarnation
	extra []run // sorted; each begins at least two above what precedes it
}

// run is the dots of an incarnation from one number to another. Writes that become visible out of
// order form such runs.
type run struct {
	Incarnation Incarnation
	From, To    uint64
}

// NewFrontier returns the set of the given dots.
func NewFrontier(dots ...Dot) (f Frontier) {
	for _, d := range dots {
		f.Add(d)
	}
	return f
}

// All returns the set of every dot of an incarnation up to a number.
func All(o Incarnation, n uint64) (f Frontier) {
	if n > 0 {
		f.upto = []Dot{{o, n}}
	}
	return f
}

// Upto returns the number up to which every dot of an incarnation is in the set.
func (f Frontier) Upto(o Incarnation) uint64 {
	for i := range f.upto {
		if f.upto[i].Incarnation == o {
			return f.upto[i].N
		}
	}
	return 0
}

// uptoAt returns Upto of an incarnation. It tries index i first, because frontiers of one ring have
// the same shape.
func (f Frontier) uptoAt(i int, o Incarnation) uint64 {
	if i < len(f.upto) && f.upto[i].Incarnation == o {
		return f.upto[i].N
	}
	return f.Upto(o)
}

// next returns the index of the first run that ends at or behind a dot.
func (f Frontier) next(d Dot) int {
	low, high := 0, len(f.extra)
	for low < high {
		mid := int(uint(low+high) >> 1)
		if r := &f.extra[mid]; r.Incarnation < d.Incarnation || r.Incarnation == d.Incarnation && r.To < d.N {
			low = mid + 1
		} else {
			high = mid
		}
	}
	return low
}

// Covers reports whether a dot is in the set.
func (f Frontier) Covers(d Dot) bool {
	if d.N <= f.Upto(d.Incarnation) {
		return true
	}
	if len(f.extra) == 0 {
		return false
	}
	i := f.next(d)
	return i < len(f.extra) && f.extra[i].Incarnation == d.Incarnation && f.extra[i].From <= d.N
}

// Within reports whether every dot of f is in o. A dot behind o's number of its incarnation is not
// covered by that number, because a gap precedes it.
func (f Frontier) Within(o Frontier) bool {
	for i, d := range f.upto {
		if d.N > o.uptoAt(i, d.Incarnation) {
			return false
		}
	}
	at := 0
	for _, r := range f.extra {
		for at < len(o.extra) && (o.extra[at].Incarnation < r.Incarnation || o.extra[at].Incarnation == r.Incarnation && o.extra[at].To < r.To) {
			at++
		}
		if at < len(o.extra) && o.extra[at].Incarnation == r.Incarnation && o.extra[at].From <= r.From {
			continue
		}
		if r.To > o.Upto(r.Incarnation) {
			return false
		}
	}
	return true
}

// Equal reports whether both are the same set.
func (f Frontier) Equal(o Frontier) bool {
	return slices.Equal(f.upto, o.upto) && slices.Equal(f.extra, o.extra)
}

// Union returns the set of the dots that are in f or in o.
func (f Frontier) Union(o Frontier) Frontier {
	switch {
	case o.Within(f):
		return f
	case f.Within(o):
		return o
	}
	u := Frontier{upto: make([]Dot, 0, max(len(f.upto), len(o.upto)))}
	for a, b := f.upto, o.upto; len(a)+len(b) > 0; {
		switch {
		case len(b) == 0 || len(a) > 0 && a[0].Incarnation < b[0].Incarnation:
			u.upto, a = append(u.upto, a[0]), a[1:]
		case len(a) == 0 || b[0].Incarnation < a[0].Incarnation:
			u.upto, b = append(u.upto, b[0]), b[1:]
		default:
			u.upto = append(u.upto, Dot{a[0].Incarnation, max(a[0].N, b[0].N)})
			a, b = a[1:], b[1:]
		}
	}
	if len(f.extra)+len(o.extra) == 0 {
		return u
	}
	u.extra = make([]run, 0, len(f.extra)+len(o.extra))
	at := 0
	for a, b := f.extra, o.extra; len(a)+len(b) > 0; {
		if len(b) == 0 || len(a) > 0 && a[0].before(b[0]) {
			at = u.append(a[0], at)
			a = a[1:]
		} else {
			at = u.append(b[0], at)
			b = b[1:]
		}
	}
	return u
}

func (r run) before(o run) bool {
	return r.Incarnation < o.Incarnation || r.Incarnation == o.Incarnation && r.From < o.From
}

// append adds a run behind all others. The index of its incarnation in upto is at or later, and is
// returned. The incarnation is in upto unless its first dot is missing.
func (f *Frontier) append(r run, at int) int {
	for at < len(f.upto) && f.upto[at].Incarnation < r.Incarnation {
		at++
	}
	if at < len(f.upto) && f.upto[at].Incarnation == r.Incarnation && r.From <= f.upto[at].N+1 {
		f.upto[at].N = max(f.upto[at].N, r.To)
		return at
	}
	if n := len(f.extra); n > 0 && f.extra[n-1].Incarnation == r.Incarnation && r.From <= f.extra[n-1].To+1 {
		f.extra[n-1].To = max(f.extra[n-1].To, r.To)
	} else {
		f.extra = append(f.extra, r)
	}
	return at
}

// Size returns how many numbers the set takes.
func (f Frontier) Size() int { return len(f.upto) + len(f.extra) }

// Only returns the dots of one incarnation.
func (f Frontier) Only(o Incarnation) Frontier {
	return f.Without(func(other Incarnation) bool { return other != o })
}

// Last returns the largest number of any incarnation.
func (f Frontier) Last() (n uint64) {
	for _, d := range f.upto {
		n = max(n, d.N)
	}
	for _, r := range f.extra {
		n = max(n, r.To)
	}
	return n
}

// Missing appends to out the dots of f that are not in o: first those up to the numbers of f, then
// those above. Their count has no bound of its own, so the caller must know that f is bounded.
func (f Frontier) Missing(o Frontier, out []Dot) []Dot {
	for _, d := range f.upto {
		out = o.lacks(run{d.Incarnation, 1, d.N}, out)
	}
	for _, r := range f.extra {
		out = o.lacks(r, out)
	}
	return out
}

// lacks appends to out the dots of a run that are not in the set.
func (f Frontier) lacks(r run, out []Dot) []Dot {
	n := max(r.From, f.Upto(r.Incarnation)+1)
	if n > r.To {
		return out
	}
	for i := f.next(Dot{r.Incarnation, n}); n <= r.To; i++ {
		to, next := r.To, r.To+1
		if i < len(f.extra) && f.extra[i].Incarnation == r.Incarnation && f.extra[i].From <= r.To {
			to, next = f.extra[i].From-1, f.extra[i].To+1
		}
		for ; n <= to; n++ {
			out = append(out, Dot{r.Incarnation, n})
		}
		n = next
	}
	return out
}

// Clone returns a copy that shares no memory with f.
func (f Frontier) Clone() Frontier {
	return Frontier{slices.Clone(f.upto), slices.Clone(f.extra)}
}

// at returns the index of an incarnation in upto, and inserts the incarnation if it is missing.
func (f *Frontier) at(o Incarnation) int {
	i := 0
	for i < len(f.upto) && f.upto[i].Incarnation < o {
		i++
	}
	if i == len(f.upto) || f.upto[i].Incarnation != o {
		f.upto = slices.Insert(f.upto, i, Dot{o, 0})
	}
	return i
}

// Add adds a dot to a set that no other code has. A dot behind a gap is kept apart, so that the gap
// stays a gap.
func (f *Frontier) Add(d Dot) {
	n := f.Upto(d.Incarnation)
	if d.N <= n {
		return
	}
	if d.N == n+1 {
		i := f.at(d.Incarnation)
		f.upto[i].N = d.N
		if len(f.extra) == 0 {
			return
		}
		if j := f.next(d); j < len(f.extra) && f.extra[j].Incarnation == d.Incarnation && f.extra[j].From == d.N+1 {
			f.upto[i].N = f.extra[j].To
			f.extra = slices.Delete(f.extra, j, j+1)
		}
		return
	}
	i := f.next(d)
	same := func(i int) bool { return i >= 0 && i < len(f.extra) && f.extra[i].Incarnation == d.Incarnation }
	switch after, behind := same(i-1) && f.extra[i-1].To+1 == d.N, same(i) && f.extra[i].From == d.N+1; {
	case same(i) && f.extra[i].From <= d.N:
	case after && behind:
		f.extra[i-1].To = f.extra[i].To
		f.extra = slices.Delete(f.extra, i, i+1)
	case after:
		f.extra[i-1].To = d.N
	case behind:
		f.extra[i].From = d.N
	default:
		f.extra = slices.Insert(f.extra, i, run{d.Incarnation, d.N, d.N})
	}
}

// Without returns the set without the incarnations for which gone is true.
func (f Frontier) Without(gone func(Incarnation) bool) Frontier {
	dots, runs := func(d Dot) bool { return gone(d.Incarnation) }, func(r run) bool { return gone(r.Incarnation) }
	if !slices.ContainsFunc(f.upto, dots) && !slices.ContainsFunc(f.extra, runs) {
		return f
	}
	f = f.Clone()
	return Frontier{slices.DeleteFunc(f.upto, dots), slices.DeleteFunc(f.extra, runs)}
}

// String returns the set for people.
func (f Frontier) String() string {
	var b strings.Builder
	for _, d := range f.upto {
		fmt.Fprintf(&b, " %d..%d", d.Incarnation, d.N)
	}
	for _, r := range f.extra {
		for n := r.From; n <= r.To; n++ {
			fmt.Fprintf(&b, " %v", Dot{r.Incarnation, n})
		}
	}
	return "{" + strings.TrimPrefix(b.String(), " ") + "}"
}
