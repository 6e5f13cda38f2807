package causalbase

import (
	"context"
	"encoding/binary"
	"fmt"
	"slices"
	"sync/atomic"
	"time"
)

// hydroPeriod is how often HydroCache refreshes.
const hydroPeriod = 100 * time.Millisecond

// Hydro is HydroCache. Every version names the versions that its writer had read and their
// dependencies. A workflow reads from one causal cut and writes everything at its end.
//
// The conservative variant asks all servers, before a workflow runs, for their versions of the
// declared keys, computes a cut and sends it to all servers: two round trips. The optimistic
// variant reads the stored values and checks between functions whether they are a cut. It asks
// earlier servers of the workflow for versions that are too old here, and begins again if that does
// not help. A version that all servers have had for two periods is no longer a dependency; that
// stands for the garbage collection protocol of the authors.
type Hydro struct {
	*tables
	con bool
}

func newHydro(w *World, rows map[string]string, con bool) *Hydro {
	return &Hydro{newTables(w, rows, hydroPeriod), con}
}

// Metadata implements System: the dependencies of all cached versions.
func (h *Hydro) Metadata() (n int) {
	for _, c := range h.all {
		s := &c.sides[c.front.Load()]
		s.mu.RLock()
		for _, v := range s.rows {
			n += v.deps.bytes()
		}
		s.mu.RUnlock()
	}
	return n
}

// Begin implements System.
func (h *Hydro) Begin(_ context.Context, places []int, keys []string) (Flow, error) {
	f := &hydro{h: h, at: places[0], been: []int{places[0]}, since: h.all[places[0]].upto()}
	if h.con {
		keys = slices.Compact(slices.Sorted(slices.Values(keys)))
		f.cuts = h.schedule(keys)
	}
	return f, nil
}

// schedule is the scheduler. It asks all servers, takes the latest version of each key, and sends
// the result to all servers, which keep it for the workflow. Each server has a former state of the
// store, so the latest versions are the state of the store at the latest of these times: a cut. The
// dependencies of the cut go along, because the writes of the workflow will need them.
func (h *Hydro) schedule(keys []string) []cut {
	n := len(h.all)
	answers, cuts := make([][]byte, n), make([]cut, n)
	var left atomic.Int32
	ask := func(serve func(i int)) {
		left.Store(int32(n))
		done := make(chan struct{})
		for i := range n {
			h.w.Links.After(func() {
				go func() {
					serve(i)
					h.w.Links.After(func() {
						if left.Add(-1) == 0 {
							close(done)
						}
					})
				}()
			})
		}
		<-done
	}
	asked := appendTexts(nil, keys)
	ask(func(i int) {
		want := read(asked).texts()
		got, _ := h.all[i].read(want)
		answers[i] = cut{saw(nil, want, got), h.needs(nil, got)}.append(nil)
	})
	latest := cut{}
	for i, b := range answers {
		c := read(b).cut()
		if i == 0 {
			latest = c
			continue
		}
		for j, s := range c.rows {
			if latest.rows[j].v.seq < s.v.seq {
				latest.rows[j] = s
			}
		}
		latest.needs = latest.needs.with(c.needs, 0)
	}
	said := latest.append(nil)
	ask(func(i int) { cuts[i] = read(said).cut() })
	return cuts
}

// needs returns the union of the dependencies of all these versions and of the earlier ones.
func (h *Hydro) needs(before deps, got []*version) deps {
	old := h.old()
	for _, v := range got {
		if v != nil && len(v.deps) > 0 {
			before = before.with(v.deps, old)
		}
	}
	return before
}

// cut is what a server of HydroCache-Con has of the declared keys, or keeps for the workflow:
// versions by key, and their dependencies.
type cut struct {
	rows  []setting
	needs deps
}

func (c cut) append(b []byte) []byte { return appendDeps(appendSettings(b, c.rows), c.needs, 0) }

func (r *reader) cut() cut { return cut{r.settings(), r.deps(0)} }

// hydro is a workflow of HydroCache.
type hydro struct {
	h      *Hydro
	at     int
	been   []int
	since  uint64    // the oldest state of the store from which it has read
	seen   []setting // versions that it has read, by key
	needs  deps      // their dependencies
	writes []setting
	cuts   []cut // the cut at each server, for HydroCache-Con only
}

// Read implements Flow. The workflow carries what it has read or written, and does not read it
// again.
func (f *hydro) Read(_ context.Context, keys []string) ([]string, error) {
	out, rest := known(keys, f.writes, f.seen)
	if len(rest) == 0 {
		return out, nil
	}
	if f.cuts != nil {
		for _, i := range rest {
			if j, ok := place(f.cuts[f.at].rows, keys[i]); ok {
				out[i] = f.cuts[f.at].rows[j].v.value
			}
		}
		return out, nil
	}
	want := pick(keys, rest)
	got, upto := f.h.all[f.at].read(want)
	f.since = min(f.since, upto)
	f.upstream(want, got)
	f.seen = saw(f.seen, want, got)
	for i, v := range got {
		if v != nil {
			out[rest[i]] = v.value
		}
	}
	f.needs = f.h.needs(f.needs, got)
	return out, f.valid()
}

// upstream asks the previous server of the workflow for versions that are too old here.
func (f *hydro) upstream(keys []string, got []*version) {
	needs := f.h.needs(f.needs, got)
	old := func(i int) bool {
		have := uint64(0)
		if got[i] != nil {
			have = got[i].seq
		}
		return have < needs.of(keys[i])
	}
	for n := len(f.been) - 1; n >= 0; n-- {
		var want []int
		for i := range keys {
			if old(i) {
				want = append(want, i)
			}
		}
		if len(want) == 0 || f.been[n] == f.at {
			continue
		}
		asked := appendTexts(nil, pick(keys, want))
		f.h.w.Links.Wait()
		has, upto := f.h.all[f.been[n]].read(read(asked).texts())
		answer := appendVersions(nil, has)
		f.h.w.Links.Wait()
		there := read(answer).versions(len(want))
		f.since = min(f.since, upto)
		for i, j := range want {
			if there[i] != nil && (got[j] == nil || got[j].seq < there[i].seq) {
				got[j] = there[i]
			}
		}
	}
}

// valid reports whether the reads are a cut. This is unknown if they are older than the
// dependencies that are kept.
func (f *hydro) valid() error {
	if f.cuts != nil {
		return nil
	}
	if torn(f.seen) {
		return fmt.Errorf("%w: branches have read two versions of a key", ErrAgain)
	}
	if f.since < f.h.old() {
		return fmt.Errorf("%w: it takes too long", ErrAgain)
	}
	needs := f.needs
	for _, s := range f.seen {
		for len(needs) > 0 && needs[0].key < s.key {
			needs = needs[1:]
		}
		if len(needs) > 0 && needs[0].key == s.key && needs[0].seq > s.v.seq {
			return fmt.Errorf("%w: what was read lacks a cause", ErrAgain)
		}
	}
	return nil
}

// Write implements Flow.
func (f *hydro) Write(_ context.Context, key, value string) error {
	f.writes = buffered(f.writes, key, value)
	return nil
}

// Move implements Flow: it carries the reads, their dependencies, and the buffered writes.
func (f *hydro) Move(to int) error {
	b := binary.AppendUvarint(make([]byte, 0, 512), f.since)
	b = appendSettings(appendSettings(b, f.seen), f.writes)
	b = appendDeps(b, f.needs, 0)
	f.h.w.moved(len(b))
	r := read(b)
	f.since, f.seen, f.writes, f.needs = r.uint(), r.settings(), r.settings(), r.deps(0)
	if f.at = to; !slices.Contains(f.been, to) {
		f.been = append(f.been, to)
	}
	return nil
}

// Fork implements Flow.
func (f *hydro) Fork() Flow {
	o := *f
	o.been, o.writes = slices.Clone(f.been), slices.Clone(f.writes)
	return &o
}

// Join implements Flow. The next function checks whether both branches together are a cut.
func (f *hydro) Join(o Flow) {
	b := o.(*hydro)
	f.since = min(f.since, b.since)
	f.seen, f.needs = merge(f.seen, b.seen), f.needs.with(b.needs, 0)
	for _, at := range b.been {
		if !slices.Contains(f.been, at) {
			f.been = append(f.been, at)
		}
	}
	for _, w := range b.writes {
		f.writes = buffered(f.writes, w.key, w.v.value)
	}
}

// End implements Flow.
func (f *hydro) End(context.Context) error {
	if err := f.valid(); err != nil || len(f.writes) == 0 {
		return err
	}
	seen, needs := f.seen, f.needs
	if f.cuts != nil {
		seen, needs = f.cuts[f.at].rows, f.cuts[f.at].needs
	}
	f.h.rows.put(f.writes, needs.with(versions(seen), f.h.old()))
	return nil
}
