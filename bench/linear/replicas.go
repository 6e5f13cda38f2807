package linear

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/rueidis"

	"github.com/freshet-cache/freshet/bench/kit"
)

// replicaNodes is the greatest number of members of the key in the paper.
const replicaNodes = 6

var replicaSystems = []string{"freshet"}

// replicaSizes are the sizes of a run of linear-replicas.
type replicaSizes struct {
	one    float64   // operations per second of one key above which it gets replicas
	steps  []float64 // of what is asked for
	step   time.Duration
	rounds int
	span   time.Duration // of one round, once writing and once reading
	lanes  int           // clients at each node
}

// The threshold of one node is low, as in the paper, so that a small machine can show five
// replicas.
func replicaSizesOf(o kit.Options) replicaSizes {
	switch {
	case o.Preset == "tiny":
		return replicaSizes{500, []float64{300, 1500}, 6 * time.Second, 1, 100 * time.Millisecond, 1}
	case o.Preset == "paper":
		return replicaSizes{2000, []float64{1000, 3000, 5000, 7000, 9000, 11000, 9000, 7000, 5000, 3000, 1000}, 20 * time.Second, 5, 10 * time.Second, 4}
	}
	return replicaSizes{1000, []float64{500, 1500, 2500, 3500, 4500, 5500}, 5 * time.Second, 3, 700 * time.Millisecond, 4}
}

// hotOne is one key. One client writes a growing number to it, and all clients read it.
type hotOne struct {
	clients []rueidis.Client // one at each node
	admins  []string
	key     string
	sent    atomic.Int64 // the number of the last write that has begun
	seen    atomic.Int64 // the largest number in an answer
	reads   atomic.Int64
	stale   atomic.Int64
	failed  atomic.Int64
	broken  atomic.Pointer[error]
}

// read reads the key once. An answer is stale if it is older than one that another read had
// returned before this read began. With one writer, nothing else can be wrong.
func (h *hotOne) read(ctx context.Context, c rueidis.Client) {
	floor := h.seen.Load()
	n, err := c.Do(ctx, c.B().Get().Key(h.key).Build()).AsInt64()
	switch {
	case ctx.Err() != nil:
		return
	case err != nil:
		h.failed.Add(1)
		h.broken.Store(&err)
	case n < floor || n > h.sent.Load():
		h.stale.Add(1)
	}
	h.reads.Add(1)
	raise(&h.seen, n)
}

func raise(to *atomic.Int64, n int64) {
	for old := to.Load(); old < n && !to.CompareAndSwap(old, n); old = to.Load() {
	}
}

// write writes the next number, and repeats it until it is acknowledged.
func (h *hotOne) write(ctx context.Context, c rueidis.Client) error {
	n := h.sent.Add(1)
	for {
		err := c.Do(ctx, c.B().Set().Key(h.key).Value(strconv.FormatInt(n, 10)).Build()).Error()
		if err == nil {
			raise(&h.seen, n)
			return nil
		}
		if ctx.Err() != nil {
			return errors.Join(err, context.Cause(ctx))
		}
	}
}

// ask makes every client at every node read for a while, at a total rate or, if that is 0, as fast
// as possible.
func (h *hotOne) ask(ctx context.Context, lanes int, rate float64, span time.Duration) (perSecond float64) {
	ctx, cancel := context.WithTimeout(ctx, span)
	defer cancel()
	before, began := h.reads.Load(), time.Now()
	var wg sync.WaitGroup
	n := lanes * len(h.clients)
	for i := range n {
		wg.Go(func() {
			due := time.Duration(0)
			for ctx.Err() == nil {
				if rate > 0 {
					due += time.Duration(float64(n) / rate * 1e9)
					if early := due - time.Since(began); early > 0 {
						kit.Sleep(ctx, early)
					}
				}
				h.read(ctx, h.clients[i%len(h.clients)])
			}
		})
	}
	wg.Wait()
	return float64(h.reads.Load()-before) / time.Since(began).Seconds()
}

// members counts the nodes that serve the key.
func (h *hotOne) members(ctx context.Context) (int, error) {
	b, err := kit.Fetch(ctx, "http://"+h.admins[0]+"/api/state")
	if err != nil {
		return 0, err
	}
	var st struct {
		Slices []struct{ Replicas []string }
	}
	if err := json.Unmarshal(b, &st); err != nil {
		return 0, err
	}
	for _, s := range st.Slices {
		if len(s.Replicas) > 0 {
			return 1 + len(s.Replicas), nil
		}
	}
	return 1, nil
}

// replicate gives the key n replicas beside its owner and waits until all have its value.
func (h *hotOne) replicate(ctx context.Context, n int) error {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	c := h.clients[0]
	for {
		err := c.Do(ctx, c.B().Arbitrary("FR.REPLICAS").Args(h.key, strconv.Itoa(n)).Build()).Error()
		if err == nil && h.write(ctx, c) == nil {
			before, err := kit.Count(ctx, h.admins)
			if err != nil {
				return err
			}
			copies := before["freshet_replica_keys"]
			for _, c := range h.clients {
				h.read(ctx, c)
			}
			after, err := kit.Count(ctx, h.admins)
			if err != nil {
				return err
			}
			if misses := after["freshet_misses_total"] - before["freshet_misses_total"]; int(copies) == n && misses == 0 {
				return nil
			}
		}
		if ctx.Err() != nil {
			return fmt.Errorf("the key does not get %d replicas: %w", n, errors.Join(err, context.Cause(ctx)))
		}
		kit.Sleep(ctx, 20*time.Millisecond)
	}
}

// round measures writes beside a few reads, and then reads at full speed.
func (h *hotOne) round(ctx context.Context, sizes replicaSizes, add func(column string, v float64)) (err error) {
	l := kit.NewLatencies()
	ends, end := context.WithCancel(ctx)
	var wg sync.WaitGroup
	wg.Go(func() { h.ask(ends, 1, 1000, time.Hour) })
	for began := time.Now(); err == nil && time.Since(began) < sizes.span; {
		at := time.Now()
		err = h.write(ctx, h.clients[0])
		l.Add(time.Since(at), 1)
	}
	end()
	wg.Wait()
	add("write_p50_us", l.Micros(50))
	add("write_p99_us", l.Micros(99))
	add("reads_per_second", h.ask(ctx, sizes.lanes, 0, sizes.span))
	return err
}

// hotServer starts six nodes with the key, whose load gives it replicas if one is not 0.
func hotServer(ctx context.Context, opt kit.Options, one float64) (*hotOne, func() error, error) {
	dir, err := kit.Scratch("replicas")
	if err != nil {
		return nil, nil, err
	}
	s, err := kit.StartFreshet(ctx, opt, false, replicaNodes, dir, "--replicate-above", strconv.Itoa(int(one)), "--max-replicas", strconv.Itoa(replicaNodes-1))
	if err != nil {
		return nil, nil, errors.Join(err, os.RemoveAll(filepath.Dir(dir)))
	}
	h := &hotOne{key: "hot", admins: s.Admins}
	stop := func() error {
		for _, c := range h.clients {
			c.Close()
		}
		return errors.Join(s.Stop(), os.RemoveAll(filepath.Dir(dir)))
	}
	for _, a := range s.Addrs {
		c, e := connect(a)
		if err = e; err != nil {
			break
		}
		h.clients = append(h.clients, c)
	}
	if err == nil {
		err = h.write(ctx, h.clients[0])
	}
	if err != nil {
		return nil, nil, errors.Join(err, stop())
	}
	return h, stop, nil
}

// scale increases the load of the key step by step and counts the nodes that serve it.
func (m *replicasRun) scale(ctx context.Context) error {
	h, stop, err := hotServer(ctx, m.opt, m.sizes.one)
	if err != nil {
		return err
	}
	for _, rate := range m.sizes.steps {
		m.opt.Progress(fmt.Sprintf("%.0f reads a second", rate))
		got := h.ask(ctx, m.sizes.lanes, rate, m.sizes.step)
		members, e := h.members(ctx)
		if err = errors.Join(err, e); err != nil {
			break
		}
		m.scaled = append(m.scaled, scaled{rate, got, members})
	}
	m.sum(h)
	return errors.Join(err, stop())
}

// compare writes and reads the key without replicas, with one, and so on, in turn.
func (m *replicasRun) compare(ctx context.Context) error {
	h, stop, err := hotServer(ctx, m.opt, 0)
	if err != nil {
		return err
	}
	for round := range m.sizes.rounds {
		for n := 0; n < replicaNodes && err == nil; n++ {
			m.opt.Progress(fmt.Sprintf("round %d of %d: %d replicas", round+1, m.sizes.rounds, n))
			if err = h.replicate(ctx, n); err != nil {
				break
			}
			err = h.round(ctx, m.sizes, func(column string, v float64) { m.rounds.Add(n, column, v) })
		}
	}
	m.sum(h)
	return errors.Join(err, stop())
}

// scaled has the figures of one step of the load.
type scaled struct {
	asked, got float64
	members    int
}

// replicasRun is one run of linear-replicas.
type replicasRun struct {
	opt                   kit.Options
	sizes                 replicaSizes
	scaled                []scaled
	rounds                kit.Rounds[int] // by replicas
	reads, failed, writes int64
	result                *kit.Report
}

func (m *replicasRun) sum(h *hotOne) {
	m.reads, m.failed, m.writes = m.reads+h.reads.Load(), m.failed+h.failed.Load(), m.writes+h.sent.Load()
	m.result.Judge("freshet", int(h.reads.Load()), int(h.stale.Load()))
}
