package dot

import (
	"encoding/binary"
	"slices"
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

// appendRuns appends runs: where each begins, and how many dots come behind.
func appendRuns(b []byte, runs []run) []byte {
	b = binary.AppendUvarint(b, uint64(len(runs)))
	for _, r := range runs {
		b = binary.AppendUvarint(binary.AppendUvarint(b, uint64(r.Incarnation)), r.From)
		b = binary.AppendUvarint(b, r.To-r.From)
	}
	return b
}

// How a frontier is told beside an earlier one.
const (
	told    byte = iota // in full
	changed             // by what has changed
	same                // it has not
)

// AppendDelta tells a frontier by what differs from an earlier one, if that tells it.
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

// appendEdits tells runs by those of earlier ones: again and again how many stay, how many
// go, and what comes instead. After the last edit all stay.
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

// AppendBytes appends bytes and how many they are.
func AppendBytes(b, v []byte) []byte {
	return append(binary.AppendUvarint(b, uint64(len(v))), v...)
}

// AppendString appends a text and its length.
func AppendString(b []byte, v string) []byte {
	return append(binary.AppendUvarint(b, uint64(len(v))), v...)
}

// AppendNamed appends the encoding of a dot and others, as AppendDots does of all.
func AppendNamed(b []byte, d Dot, others []Dot) []byte {
	b = binary.AppendUvarint(b, uint64(1+len(others)))
	b = binary.AppendUvarint(binary.AppendUvarint(b, uint64(d.Incarnation)), d.N)
	for _, d := range others {
		b = binary.AppendUvarint(binary.AppendUvarint(b, uint64(d.Incarnation)), d.N)
	}
	return b
}

// Reader takes an encoding apart. Once it is bad, it is bad to the end, and returns zeros.
type Reader struct {
	b   []byte
	bad bool
}

// NewReader reads b.
func NewReader(b []byte) *Reader { return &Reader{b: b} }

// Bad reports whether something was not as an encoder makes it.
func (r *Reader) Bad() bool { return r.bad }

// Done reports whether all was read, and nothing was bad.
func (r *Reader) Done() bool { return !r.bad && len(r.b) == 0 }

// Fail makes the reader bad.
func (r *Reader) Fail() { r.b, r.bad = nil, true }

// Byte is the next byte.
func (r *Reader) Byte() byte {
	if len(r.b) == 0 {
		r.Fail()
		return 0
	}
	v := r.b[0]
	r.b = r.b[1:]
	return v
}

// Uint is a number.
func (r *Reader) Uint() uint64 {
	v, n := binary.Uvarint(r.b)
	if n <= 0 || n > 1 && r.b[n-1] == 0 { // one encoding for one number
		r.Fail()
		return 0
	}
	r.b = r.b[n:]
	return v
}

// Incarnation is an incarnation.
func (r *Reader) Incarnation() Incarnation {
	v := r.Uint()
	if v != uint64(Incarnation(v)) {
		r.Fail()
	}
	return Incarnation(v)
}

// Count is how many things follow, each of a byte at least.
func (r *Reader) Count() int {
	n := r.Uint()
	if n > uint64(len(r.b)) {
		r.Fail()
		return 0
	}
	return int(n)
}

// Dots are what AppendDots has appended.
func (r *Reader) Dots() []Dot { return r.dots(r.Count()) }

func (r *Reader) dots(n int) (out []Dot) {
	if n > 0 {
		out = make([]Dot, 0, min(n, len(r.b)/2+1)) // each takes two bytes at least
	}
	for range n {
		d := r.Dot()
		if r.bad {
			return nil
		}
		out = append(out, d)
	}
	return out
}

// Dot is an incarnation that there is, and a number of it.
func (r *Reader) Dot() Dot {
	d := Dot{r.Incarnation(), r.Uint()}
	if d.Incarnation == 0 || d.N == 0 {
		r.Fail()
	}
	return d
}

// Named is what AppendNamed has appended.
func (r *Reader) Named() (d Dot, others []Dot) {
	n := r.Count()
	if d = r.Dot(); n == 0 {
		r.Fail()
	}
	return d, r.dots(n - 1)
}

// maxExtra bounds the dots above an incarnation's number that a set may have when it is read:
// a few bytes could tell of more than memory holds.
const maxExtra = 1 << 18

// runs are what appendRuns has appended, behind others.
func (r *Reader) runs(out []run) []run {
	n := r.Count()
	if out == nil && n > 0 {
		out = make([]run, 0, min(n, len(r.b)/3+1))
	}
	for range n {
		o, from, more := r.Incarnation(), r.Uint(), r.Uint()
		if o == 0 || from == 0 || from+more+1 < from {
			r.Fail()
		}
		if r.bad {
			return nil
		}
		out = append(out, run{o, from, from + more})
	}
	return out
}

// edits are what appendEdits has appended, after the same last.
func (r *Reader) edits(last []run) (out []run) {
	n := r.Count()
	if n == 0 {
		return last
	}
	out = make([]run, 0, len(last)+min(n, len(r.b)/3+1))
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

// Frontier is what AppendFrontier has appended.
func (r *Reader) Frontier() (f Frontier) {
	f.upto, f.extra = r.Dots(), r.runs(nil)
	return r.valid(f)
}

// valid is a frontier that is as all frontiers are, or a failure.
func (r *Reader) valid(f Frontier) Frontier {
	ok, at, dots := true, 0, uint64(0)
	for i, d := range f.upto {
		ok = ok && (i == 0 || f.upto[i-1].Incarnation < d.Incarnation) && d.N+1 > 0
	}
	for i, e := range f.extra {
		for at < len(f.upto) && f.upto[at].Incarnation < e.Incarnation {
			at++
		}
		end := uint64(0) // of what is before it
		switch {
		case i > 0 && f.extra[i-1].Incarnation > e.Incarnation:
			ok = false
		case i > 0 && f.extra[i-1].Incarnation == e.Incarnation:
			end = f.extra[i-1].To
		case at < len(f.upto) && f.upto[at].Incarnation == e.Incarnation:
			end = f.upto[at].N
		}
		more := e.To - e.From
		ok = ok && e.From > end && e.From-end > 1 && more < maxExtra-min(dots, maxExtra)
		dots += more + 1
	}
	if !ok || r.bad {
		r.Fail()
		return Frontier{}
	}
	return f
}

// Delta is what AppendDelta has appended, after the same last.
func (r *Reader) Delta(last Frontier) Frontier {
	switch r.Byte() {
	case told:
		return r.Frontier()
	case changed:
		f := Frontier{upto: slices.Clone(last.upto)}
		for range r.Count() {
			d := r.Dot()
			if r.bad {
				return Frontier{}
			}
			i := f.at(d.Incarnation)
			if f.upto[i].N += d.N>>1 ^ -(d.N & 1); f.upto[i].N == 0 { // as Varint has it: it may be less than it was
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

// Bytes are what AppendBytes has appended.
func (r *Reader) Bytes() []byte { return slices.Clone(r.bytes()) }

// Part is what AppendBytes has appended, in the memory of what is read.
func (r *Reader) Part() []byte { return r.bytes() }

// String is what AppendString has appended.
func (r *Reader) String() string { return string(r.bytes()) }

func (r *Reader) bytes() []byte {
	n := r.Count()
	v := r.b[:n:n]
	r.b = r.b[n:]
	return v
}
