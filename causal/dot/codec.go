package dot

import (
	"encoding/binary"
	"slices"

	"github.com/freshet-cache/freshet/internal/packed"
)

// AppendDots appends the encoding of dots.
func AppendDots(b []byte, dots []Dot) []byte {
	b = binary.AppendUvarint(b, uint64(len(dots)))
	for _, d := range dots {
		b = binary.AppendUvarint(binary.AppendUvarint(b, uint64(d.Incarnation)), d.N)
	}
	return b
}

// AppendFrontier appends the encoding of a set.
func AppendFrontier(b []byte, f Frontier) []byte { return appendRuns(AppendDots(b, f.upto), f.extra) }

// appendRuns appends runs, each as its first dot and how many dots follow it.
func appendRuns(b []byte, runs []run) []byte {
	b = binary.AppendUvarint(b, uint64(len(runs)))
	for _, r := range runs {
		b = binary.AppendUvarint(binary.AppendUvarint(b, uint64(r.Incarnation)), r.From)
		b = binary.AppendUvarint(b, r.To-r.From)
	}
	return b
}

// How AppendDelta encodes a frontier.
const (
	told    byte = iota // in full
	changed             // as the difference from the previous one
	same                // as equal to the previous one
)

// AppendDelta appends the encoding of f as its difference from last, or in full if last has an
// incarnation that f lacks.
func AppendDelta(b []byte, last, f Frontier) []byte {
	for i, d := range last.upto {
		if f.uptoAt(i, d.Incarnation) == 0 {
			return AppendFrontier(append(b, told), f)
		}
	}
	more := 0
	for i, d := range f.upto {
		if d.N != last.uptoAt(i, d.Incarnation) {
			more++
		}
	}
	if more == 0 && slices.Equal(f.extra, last.extra) {
		return append(b, same)
	}
	b = binary.AppendUvarint(append(b, changed), uint64(more))
	for i, d := range f.upto {
		if n := d.N - last.uptoAt(i, d.Incarnation); n != 0 {
			b = binary.AppendVarint(binary.AppendUvarint(b, uint64(d.Incarnation)), int64(n))
		}
	}
	return appendEdits(b, last.extra, f.extra)
}

// appendEdits encodes runs as edits of last. An edit says how many runs stay, how many are removed,
// and which runs are inserted instead. After the last edit all remaining runs stay.
func appendEdits(b []byte, last, runs []run) []byte {
	edits, end := 0, len(b)
	for {
		keep := 0
		for keep < len(last) && keep < len(runs) && last[keep] == runs[keep] {
			keep++
		}
		last, runs = last[keep:], runs[keep:]
		if len(last)+len(runs) == 0 {
			break
		}
		drop, add := 0, 0
		for drop < len(last) || add < len(runs) {
			if add == len(runs) || drop < len(last) && last[drop].before(runs[add]) {
				drop++
			} else if drop == len(last) || last[drop] != runs[add] {
				add++
			} else {
				break
			}
		}
		b = binary.AppendUvarint(binary.AppendUvarint(b, uint64(keep)), uint64(drop))
		b = appendRuns(b, runs[:add])
		last, runs = last[drop:], runs[add:]
		edits++
	}
	if edits < 0x80 { // nearly always
		return slices.Insert(b, end, byte(edits))
	}
	return slices.Insert(b, end, binary.AppendUvarint(nil, uint64(edits))...)
}

// AppendNamed appends a dot and others in the encoding of AppendDots, without a slice of all of
// them.
func AppendNamed(b []byte, d Dot, others []Dot) []byte {
	b = binary.AppendUvarint(b, uint64(1+len(others)))
	b = binary.AppendUvarint(binary.AppendUvarint(b, uint64(d.Incarnation)), d.N)
	for _, d := range others {
		b = binary.AppendUvarint(binary.AppendUvarint(b, uint64(d.Incarnation)), d.N)
	}
	return b
}

// Reader decodes an encoding. After the first mistake it is bad for good, and returns zeros.
type Reader struct{ packed.Reader }

// NewReader returns a Reader of b.
func NewReader(b []byte) *Reader { return &Reader{packed.Read(b)} }

// Incarnation reads an incarnation.
func (r *Reader) Incarnation() Incarnation { return Incarnation(r.Uint32()) }

// Dots reads what AppendDots has appended.
func (r *Reader) Dots() []Dot { return r.dots(r.Count()) }

func (r *Reader) dots(n int) (out []Dot) {
	if n > 0 {
		out = make([]Dot, 0, min(n, r.Left()/2+1)) // each takes at least two bytes
	}
	for range n {
		d := r.Dot()
		if r.Bad() {
			return nil
		}
		out = append(out, d)
	}
	return out
}

// Dot reads a dot. Its incarnation and its number must not be zero.
func (r *Reader) Dot() Dot {
	d := Dot{r.Incarnation(), r.Uint()}
	if d.Incarnation == 0 || d.N == 0 {
		r.Fail()
	}
	return d
}

// Named reads what AppendNamed has appended.
func (r *Reader) Named() (d Dot, others []Dot) {
	n := r.Count()
	if d = r.Dot(); n == 0 {
		r.Fail()
	}
	return d, r.dots(n - 1)
}

// maxExtra bounds the dots in the runs of a frontier that is read. Without it, a few bytes could
// describe more dots than memory holds.
const maxExtra = 1 << 18

// runs reads what appendRuns has appended, and appends it to out. The caller passes the result to
// valid, which refuses a run that begins at 0.
func (r *Reader) runs(out []run) []run {
	n := r.Count()
	if out == nil && n > 0 {
		out = make([]run, 0, min(n, r.Left()/3+1))
	}
	for range n {
		o, from, more := r.Incarnation(), r.Uint(), r.Uint()
		if o == 0 || from+more+1 < from {
			r.Fail()
		}
		if r.Bad() {
			return nil
		}
		out = append(out, run{o, from, from + more})
	}
	return out
}

// edits reads what appendEdits has appended for the same last.
func (r *Reader) edits(last []run) (out []run) {
	n := r.Count()
	if n == 0 {
		return last
	}
	out = make([]run, 0, len(last)+min(n, r.Left()/3+1))
	for range n {
		keep, drop := r.Uint(), r.Uint()
		if keep > uint64(len(last)) || drop > uint64(len(last))-keep {
			r.Fail()
			return nil
		}
		out = r.runs(append(out, last[:keep]...))
		last = last[keep+drop:]
	}
	if out = append(out, last...); len(out) == 0 {
		return nil
	}
	return out
}

// Frontier reads what AppendFrontier has appended.
func (r *Reader) Frontier() (f Frontier) {
	f.upto, f.extra = r.Dots(), r.runs(nil)
	return r.valid(f)
}

// valid returns f if it has the form of every frontier. Otherwise the Reader becomes bad.
func (r *Reader) valid(f Frontier) Frontier {
	ok, at, dots := true, 0, uint64(0)
	for i, d := range f.upto {
		ok = ok && (i == 0 || f.upto[i-1].Incarnation < d.Incarnation) && d.N+1 > 0
	}
	for i, e := range f.extra {
		for at < len(f.upto) && f.upto[at].Incarnation < e.Incarnation {
			at++
		}
		end := uint64(0) // of what precedes the run
		switch {
		case i > 0 && f.extra[i-1].Incarnation > e.Incarnation:
			ok = false
		case i > 0 && f.extra[i-1].Incarnation == e.Incarnation:
			end = f.extra[i-1].To
		case at < len(f.upto) && f.upto[at].Incarnation == e.Incarnation:
			end = f.upto[at].N
		}
		more := e.To - e.From // while ok holds, dots does not exceed maxExtra
		ok = ok && e.From > end && e.From-end > 1 && more < maxExtra-dots
		dots += more + 1
	}
	if !ok || r.Bad() {
		r.Fail()
		return Frontier{}
	}
	return f
}

// Delta reads what AppendDelta has appended for the same last.
func (r *Reader) Delta(last Frontier) Frontier {
	switch r.Byte() {
	case told:
		return r.Frontier()
	case changed:
		f := Frontier{upto: slices.Clone(last.upto)}
		for range r.Count() {
			d := r.Dot()
			if r.Bad() {
				return Frontier{}
			}
			i := f.at(d.Incarnation)
			// The difference is signed, in the encoding of Varint: a number may be smaller than in
			// last.
			if f.upto[i].N += d.N>>1 ^ -(d.N & 1); f.upto[i].N == 0 {
				r.Fail()
			}
		}
		f.extra = r.edits(last.extra)
		return r.valid(f)
	case same:
		return last
	}
	r.Fail()
	return Frontier{}
}

// Copy reads bytes behind their length, into memory of its own.
func (r *Reader) Copy() []byte { return slices.Clone(r.Bytes()) }
