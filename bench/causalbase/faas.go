package causalbase

import (
	"context"
	"encoding/binary"
	"fmt"
	"slices"
	"time"
)

// faasPeriod is how often FaaSTCC refreshes.
const faasPeriod = 50 * time.Millisecond

// Faas is FaaSTCC. The store numbers all commits. A version in a cache is known to be the latest
// from its commit to the last commit that the cache has received. A workflow keeps the interval of
// commits in which everything that it has read was the latest. If a cached version is known only up
// to a time before the interval, the workflow reads from the store. A version that is newer than
// the interval moves the interval, if the earlier reads are unchanged; otherwise the workflow
// begins again.
type Faas struct{ *tables }

func newFaas(w *World, rows map[string]string) *Faas { return &Faas{newTables(w, rows, faasPeriod)} }

// Metadata implements System: an interval for each version. One end of it belongs to the whole
// cache.
func (h *Faas) Metadata() (n int) {
	for _, c := range h.all {
		s := &c.sides[c.front.Load()]
		s.mu.RLock()
		n += 8
		for _, v := range s.rows {
			if v.seq > 0 { // initial values need no beginning
				n += 8
			}
		}
		s.mu.RUnlock()
	}
	return n
}

// Begin implements System.
func (h *Faas) Begin(_ context.Context, places []int, _ []string) (Flow, error) {
	return &faas{h: h, at: places[0], hi: 1<<63 - 1}, nil
}

// faas is a workflow of FaaSTCC.
type faas struct {
	h      *Faas
	at     int
	lo, hi uint64    // the interval
	seen   []setting // by key
	writes []setting
}

// Read implements Flow. The workflow carries what it has read or written, and does not read it
// again.
func (f *faas) Read(_ context.Context, keys []string) ([]string, error) {
	out, rest := known(keys, f.writes, f.seen)
	if len(rest) == 0 && f.lo <= f.hi {
		return out, nil
	}
	want := pick(keys, rest)
	all := want // together with the earlier reads, in case the interval must move
	for _, s := range f.seen {
		all = append(slices.Clip(all), s.key)
	}
	got, upto := f.h.all[f.at].read(all)
	if upto < f.lo {
		got, upto = f.h.rows.get(all)
	}
	lo := f.lo
	for i := range want {
		lo = max(lo, number(got[i]))
	}
	hi := min(f.hi, upto)
	if lo > hi {
		for i, s := range f.seen {
			if number(got[len(want)+i]) != s.v.seq {
				return nil, fmt.Errorf("%w: no snapshot has all that was read", ErrAgain)
			}
		}
		hi = upto
	}
	f.lo, f.hi, f.seen = lo, hi, saw(f.seen, want, got[:len(want)])
	for i, v := range got[:len(want)] {
		if v != nil {
			out[rest[i]] = v.value
		}
	}
	return out, nil
}

func number(v *version) uint64 {
	if v == nil {
		return 0
	}
	return v.seq
}

// Write implements Flow.
func (f *faas) Write(_ context.Context, key, value string) error {
	f.writes = buffered(f.writes, key, value)
	return nil
}

// Move implements Flow: it carries the interval and the reads, so that the interval can move.
func (f *faas) Move(to int) error {
	b := binary.AppendUvarint(binary.AppendUvarint(make([]byte, 0, 256), f.lo), f.hi)
	b = appendSettings(appendSettings(b, f.seen), f.writes)
	f.h.w.moved(len(b))
	r := read(b)
	f.at, f.lo, f.hi, f.seen, f.writes = to, r.uint(), r.uint(), r.settings(), r.settings()
	return nil
}

// Fork implements Flow.
func (f *faas) Fork() Flow {
	o := *f
	o.writes = slices.Clone(f.writes)
	return &o
}

// Join implements Flow. If the intervals do not overlap, the next function or the end of the
// workflow moves them.
func (f *faas) Join(o Flow) {
	b := o.(*faas)
	f.lo, f.hi, f.seen = max(f.lo, b.lo), min(f.hi, b.hi), merge(f.seen, b.seen)
	for _, w := range b.writes {
		f.writes = buffered(f.writes, w.key, w.v.value)
	}
}

// End implements Flow.
func (f *faas) End(ctx context.Context) error {
	if f.lo > f.hi { // branches that read at different times
		if _, err := f.Read(ctx, nil); err != nil {
			return err
		}
	}
	if len(f.writes) > 0 {
		f.h.rows.put(f.writes, nil)
	}
	return nil
}
