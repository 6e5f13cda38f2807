package causalbase

import (
	"context"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// uncached sends all reads to the store, with one request for the keys of a function.
type uncached struct {
	w    *World
	rows *rows
}

// Act implements System: one request reads at one instant.
func (*uncached) Act() Act { return EachFunction }

// Settle implements System.
func (*uncached) Settle(context.Context) error { return nil }

// Metadata implements System.
func (*uncached) Metadata() int { return 0 }

// Close implements System.
func (*uncached) Close(context.Context) error { return nil }

// Begin implements System.
func (u *uncached) Begin(context.Context, []int, []string) (Flow, error) { return plain{u}, nil }

// plain is a workflow that carries nothing.
type plain struct{ u *uncached }

// Read implements Flow.
func (f plain) Read(_ context.Context, keys []string) ([]string, error) {
	got, _ := f.u.rows.get(keys)
	return texts(got), nil
}

func texts(got []*version) []string {
	out := make([]string, len(got))
	for i, v := range got {
		if v != nil {
			out[i] = v.value
		}
	}
	return out
}

// Write implements Flow.
func (f plain) Write(_ context.Context, key, value string) error {
	f.u.rows.put([]setting{{key, &version{value: value}}}, nil)
	return nil
}

// Move implements Flow.
func (f plain) Move(int) error { f.u.w.moved(0); return nil }

// Fork implements Flow.
func (f plain) Fork() Flow { return f }

// Join implements Flow.
func (plain) Join(Flow) {}

// End implements Flow.
func (plain) End(context.Context) error { return nil }

// Dax is a set of eventually consistent caches, as in DynamoDB Accelerator. A write goes through
// the cache of its server, which has it when the store does; the other caches receive it later. It
// promises nothing to clients that roam.
type Dax struct {
	w     *World
	rows  *rows
	nodes []*node
	lag   time.Duration // mean delay of replication, in addition to the link
	away  atomic.Int64  // replication under way
}

// node is one cache.
type node struct {
	mu   sync.RWMutex
	rows map[string]*version
}

// set keeps the later version.
func (n *node) set(key string, v *version) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if old := n.rows[key]; old == nil || old.seq < v.seq {
		n.rows[key] = v
	}
}

// newDax returns caches with a replication delay that is distributed exponentially, in addition to
// that of the link.
func newDax(w *World, initial map[string]string, lag time.Duration) *Dax {
	d := &Dax{w: w, rows: newRows(w, initial), lag: lag}
	all := loaded(initial)
	for range w.Servers {
		d.nodes = append(d.nodes, &node{rows: maps.Clone(all)})
	}
	return d
}

// NewDax returns eventual caches with this mean delay of replication.
func NewDax(w *World, rows map[string]string, lag time.Duration) System {
	return newDax(w, rows, lag)
}

// Act implements System.
func (*Dax) Act() Act { return EachRead }

// Settle implements System.
func (d *Dax) Settle(ctx context.Context) error {
	for d.away.Load() > 0 {
		if err := pause(ctx, time.Millisecond); err != nil {
			return err
		}
	}
	return nil
}

// Metadata implements System.
func (*Dax) Metadata() int { return 0 }

// Close implements System.
func (d *Dax) Close(ctx context.Context) error { return d.Settle(ctx) }

// Begin implements System.
func (d *Dax) Begin(_ context.Context, places []int, _ []string) (Flow, error) {
	return &eventual{d, places[0]}, nil
}

// eventual is a workflow of Dax: it carries nothing.
type eventual struct {
	d  *Dax
	at int
}

// Read implements Flow.
func (f *eventual) Read(_ context.Context, keys []string) ([]string, error) {
	n := f.d.nodes[f.at]
	out := make([]string, len(keys))
	n.mu.RLock()
	defer n.mu.RUnlock()
	for i, k := range keys {
		if v := n.rows[k]; v != nil {
			out[i] = v.value
		}
	}
	return out, nil
}

// Write implements Flow.
func (f *eventual) Write(_ context.Context, key, value string) error {
	v := &version{value: value}
	v.seq = f.d.rows.put([]setting{{key, v}}, nil)
	f.d.nodes[f.at].set(key, v)
	copied := appendSettings(nil, []setting{{key, v}})
	for i, n := range f.d.nodes {
		if i == f.at {
			continue
		}
		f.d.away.Add(1)
		arrive := func() {
			c := read(copied).settings()[0]
			n.set(c.key, c.v)
			f.d.away.Add(-1)
		}
		if f.d.lag == 0 {
			f.d.w.Links.After(arrive)
		} else {
			time.AfterFunc(time.Duration(rand.ExpFloat64()*float64(f.d.lag)), func() { f.d.w.Links.After(arrive) })
		}
	}
	return nil
}

// Move implements Flow.
func (f *eventual) Move(to int) error {
	f.d.w.moved(0)
	f.at = to
	return nil
}

// Fork implements Flow.
func (f *eventual) Fork() Flow { return &eventual{f.d, f.at} }

// Join implements Flow.
func (*eventual) Join(Flow) {}

// End implements Flow.
func (*eventual) End(context.Context) error { return nil }

// tables are the caches of HydroCache and FaaSTCC. Each cache has everything up to one commit of
// the store, and receives all later commits at once in every period.
type tables struct {
	w      *World
	rows   *rows
	all    []*table
	period time.Duration
	stop   context.CancelFunc
	done   sync.WaitGroup

	mu    sync.Mutex
	marks [3]uint64 // the commit that every table had received at the last turns
}

// table has two copies: reads use one while the other is changed, and then they are swapped.
type table struct {
	sides [2]struct {
		mu   sync.RWMutex
		rows map[string]*version
		upto uint64
	}
	front atomic.Int32
	late  []setting // is in front only
}

func newTables(w *World, initial map[string]string, period time.Duration) *tables {
	t := &tables{w: w, rows: newRows(w, initial), period: period}
	ctx, stop := context.WithCancel(context.Background())
	t.stop = stop
	all := loaded(initial)
	for range w.Servers {
		c := &table{}
		for i := range c.sides {
			c.sides[i].rows = maps.Clone(all)
		}
		t.all = append(t.all, c)
	}
	for i, c := range t.all {
		t.done.Go(func() { t.keep(ctx, i, c) })
	}
	return t
}

// keep is the thread of a server that refreshes its cache.
func (t *tables) keep(ctx context.Context, i int, c *table) {
	if pause(ctx, t.period*time.Duration(i)/time.Duration(len(t.all))) != nil { // so that the caches refresh at different times
		return
	}
	tick := time.NewTicker(t.period)
	defer tick.Stop()
	for {
		feed, upto := t.rows.since(c.upto())
		c.refresh(told(feed), upto)
		if i == 0 {
			t.mark()
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}

// mark records the commit that every table has received.
func (t *tables) mark() {
	least := uint64(1<<63 - 1)
	for _, c := range t.all {
		least = min(least, c.upto())
	}
	t.rows.trim(least)
	t.mu.Lock()
	defer t.mu.Unlock()
	t.marks = [3]uint64{least, t.marks[0], t.marks[1]}
}

// old returns a commit that every table has had for two periods.
func (t *tables) old() uint64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.marks[2]
}

func (c *table) upto() uint64 {
	s := &c.sides[c.front.Load()]
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.upto
}

// read reads keys as of one commit.
func (c *table) read(keys []string) (out []*version, upto uint64) {
	out = make([]*version, len(keys))
	s := &c.sides[c.front.Load()]
	s.mu.RLock()
	defer s.mu.RUnlock()
	for i, k := range keys {
		out[i] = s.rows[k]
	}
	return out, s.upto
}

// refresh applies a part of the feed.
func (c *table) refresh(feed []setting, upto uint64) {
	back := 1 - c.front.Load()
	s := &c.sides[back]
	s.mu.Lock()
	for _, list := range [][]setting{c.late, feed} {
		for _, w := range list {
			s.rows[w.key] = w.v
		}
	}
	s.upto = upto
	s.mu.Unlock()
	c.front.Store(back)
	c.late = feed
}

// Act implements System.
func (*tables) Act() Act { return TheWorkflow }

// Settle implements System.
func (t *tables) Settle(ctx context.Context) error {
	last := t.rows.last()
	for slices.ContainsFunc(t.all, func(c *table) bool { return c.upto() < last }) {
		if err := pause(ctx, time.Millisecond); err != nil {
			return err
		}
	}
	return nil
}

// Close implements System.
func (t *tables) Close(context.Context) error {
	t.stop()
	t.done.Wait()
	return nil
}
