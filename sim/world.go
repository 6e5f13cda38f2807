package sim

import (
	"container/heap"
	"hash/fnv"
	"math/rand/v2"

	"github.com/freshet-cache/freshet/ticks"
)

// world is time, and what is to happen when. Nothing in it runs at once with
// anything else, and the same seed gives the same run.
type world struct {
	seed    uint64
	now     ticks.Tick // real time; no process can read it
	agenda  agenda
	planned uint64
	streams map[string]*rand.Rand
}

// event is something that is to happen.
type event struct {
	at  ticks.Tick
	seq uint64 // those of one instant happen in the order they were planned
	do  func()
}

type agenda []event

func (a agenda) Len() int { return len(a) }
func (a agenda) Less(i, j int) bool {
	return a[i].at < a[j].at || a[i].at == a[j].at && a[i].seq < a[j].seq
}
func (a agenda) Swap(i, j int) { a[i], a[j] = a[j], a[i] }
func (a *agenda) Push(e any)   { *a = append(*a, e.(event)) }
func (a *agenda) Pop() any {
	last := len(*a) - 1
	e := (*a)[last]
	*a = (*a)[:last]
	return e
}

func newWorld(seed uint64) *world { return &world{seed: seed, streams: map[string]*rand.Rand{}} }

// after plans do for d from now.
func (w *world) after(d ticks.Tick, do func()) {
	w.planned++
	heap.Push(&w.agenda, event{w.now + max(d, 0), w.planned, do})
}

// next lets the next thing happen; false if nothing ever will, or not before end.
func (w *world) next(end ticks.Tick) bool {
	if len(w.agenda) == 0 || w.agenda[0].at > end {
		return false
	}
	e := heap.Pop(&w.agenda).(event)
	w.now = e.at
	e.do()
	return true
}

// rng is a stream of random numbers of its own for every name, so that what is
// taken out of one plan disturbs the rest as little as possible.
func (w *world) rng(name string) *rand.Rand {
	r, ok := w.streams[name]
	if !ok {
		h := fnv.New64a()
		h.Write([]byte(name))
		r = rand.New(rand.NewPCG(w.seed, h.Sum64()))
		w.streams[name] = r
	}
	return r
}

// chance is true once in a hundred as often as percent says.
func chance(r *rand.Rand, percent int) bool { return r.IntN(100) < percent }

// spread is a time between d/2 and 3d/2, and now and then ten times that.
func spread(r *rand.Rand, d ticks.Tick) ticks.Tick {
	if d <= 0 {
		return 0
	}
	t := d/2 + ticks.Tick(r.Int64N(int64(d)))
	if r.IntN(20) == 0 {
		t *= 10
	}
	return t
}

// clock is a process's monotonic clock: it began at any reading, and runs fast
// or slow by rate millionths.
type clock struct {
	offset ticks.Tick
	rate   int64
}

func newClock(r *rand.Rand, drift int64) clock {
	c := clock{offset: ticks.Tick(1 + r.Int64N(1e12))}
	switch r.IntN(3) { // the extremes are where the rules matter
	case 0:
		c.rate = drift
	case 1:
		c.rate = -drift
	case 2:
		c.rate = r.Int64N(2*drift+1) - drift
	}
	return c
}

func (c clock) read(now ticks.Tick) ticks.Tick {
	return c.offset + now + ticks.Tick(int64(now)/1e6*c.rate+int64(now)%1e6*c.rate/1e6)
}
