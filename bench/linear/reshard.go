package linear

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/redis/rueidis"

	"github.com/freshet-cache/freshet/bench/kit"
	"github.com/freshet-cache/freshet/check"
)

// The systems of linear-reshard: three nodes without moves, and three nodes between which keys move
// all the time.
var reshardSystems = []string{"freshet", "freshet-resharding"}

// reshardSizes are the sizes of a run of linear-reshard.
type reshardSizes struct {
	keys, rounds, requests int
	rate                   float64
	every                  time.Duration // between moves
	each                   int           // how many moves it takes to move all keys
}

// Five moves per second, each of a thousandth of the keys, move 0.5 % of the keys per second.
func reshardSizesOf(o kit.Options) reshardSizes {
	switch {
	case o.Preset == "tiny":
		return reshardSizes{520, 1, 600, cmp.Or(o.Number("rate"), 1000), 100 * time.Millisecond, 100}
	case o.Preset == "paper":
		return reshardSizes{20_000, 5, 300_000, cmp.Or(o.Number("rate"), 5000), 200 * time.Millisecond, 1000}
	}
	return reshardSizes{5000, 2, 12_000, cmp.Or(o.Number("rate"), 2000), 200 * time.Millisecond, 1000}
}

// lettered returns keys whose names begin with all letters, so that they are spread over the first
// slices of a cluster.
func lettered(n int) (keys []uint32, names []string) {
	for i := range n {
		keys = append(keys, uint32(i%26)<<27|uint32(i/26))
		names = append(names, traceKey(keys[i]))
	}
	return keys, names
}

// mover moves parts of the keys. During some of the moves it writes a key of the part.
type mover struct {
	admin, probe rueidis.Client
	keys         map[string]uint32 // by name
	names        []string          // sorted
	r            *replay

	history     []check.Op
	pause, took *kit.Latencies
	moves, none int
}

// newMover returns a mover for the keys of a replay.
func newMover(r *replay, keys []uint32) *mover {
	m := &mover{keys: map[string]uint32{}, r: r, pause: kit.NewLatencies(), took: kit.NewLatencies()}
	for _, k := range keys {
		m.keys[traceKey(k)] = k
		m.names = append(m.names, traceKey(k))
	}
	slices.Sort(m.names)
	return m
}

// One move in watchOneIn is probed every probeEvery. More probes would take processor time from the
// reads.
const (
	watchOneIn = 4
	probeEvery = time.Millisecond
)

// owner returns the name of the node that owns a key.
func owner(ctx context.Context, c rueidis.Client, key string) (string, error) {
	about, err := c.Do(ctx, c.B().Arbitrary("FR.EXPLAIN").Args(key).Build()).AsStrMap()
	return about["owner"], err
}

// run moves one part at every tick until ctx ends.
func (m *mover) run(ctx context.Context, sizes reshardSizes, seed uint64) error {
	tick := time.NewTicker(sizes.every)
	defer tick.Stop()
	r := kit.Stream(seed, 50)
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		if err := m.move(context.WithoutCancel(ctx), r.IntN(sizes.each), sizes.each, 1+r.IntN(traceNodes-1)); err != nil {
			return err
		}
	}
}

// low returns the first key of a part.
func (m *mover) low(part, each int) string { return m.names[part*len(m.names)/each] }

// cut makes boundaries around a part.
func (m *mover) cut(ctx context.Context, part, each int) {
	for _, p := range []int{part, part + 1} {
		if p < each {
			_ = m.admin.Do(ctx, m.admin.B().Arbitrary("FR.SPLIT").Args(m.low(p, each)).Build()).Error() // it fails if the boundary exists
		}
	}
}

// move moves a part to another node, by positions after its owner.
func (m *mover) move(ctx context.Context, part, each, after int) error {
	ctx, cancel := context.WithTimeout(ctx, traceTimeout)
	defer cancel()
	low := m.low(part, each)
	from, err := owner(ctx, m.admin, low)
	if err != nil {
		return err
	}
	to := fmt.Sprint("n", (int(from[len(from)-1]-'1')+after)%traceNodes+1)
	stop, stopped := context.WithCancel(ctx)
	var wg sync.WaitGroup
	id, pause := m.moves+m.none, 50*time.Millisecond
	if id%watchOneIn == 0 {
		pause = probeEvery
		wg.Go(func() { m.write(stop, low, id) })
	}
	defer func() {
		stopped()
		wg.Wait()
	}()
	m.cut(ctx, part, each)
	began := time.Now()
	if err := m.admin.Do(ctx, m.admin.B().Arbitrary("FR.MOVE").Args(low, to).Build()).Error(); err != nil {
		m.none++ // it already moves, because of its load
		return nil
	}
	ask := time.NewTicker(pause)
	defer ask.Stop()
	for now := from; now != to; {
		<-ask.C
		if now, err = owner(ctx, m.admin, low); err != nil {
			return fmt.Errorf("%s did not move from %s to %s: %w", low, from, to, err)
		}
	}
	if m.moves++; id%watchOneIn == 0 {
		m.took.Add(time.Since(began), 1)
	}
	return nil
}

// write writes a key again and again until ctx ends. The longest write shows how long the move
// delayed writes; it takes at least as long as a write always does.
func (m *mover) write(ctx context.Context, key string, move int) {
	longest := time.Duration(0)
	again := time.NewTicker(probeEvery)
	defer again.Stop()
	for i := 0; ctx.Err() == nil; i++ {
		o := check.Op{Client: 2 * traceClients, Kind: check.Write, Key: key, Value: fmt.Sprintf("m%d.%d", move, i), Outcome: check.OK}
		text := traceValue(m.keys[key], o.Value)
		began := time.Now()
		o.Start = int64(time.Since(m.r.began))
		err := m.probe.Do(context.WithoutCancel(ctx), m.probe.B().Set().Key(key).Value(text).Build()).Error()
		o.End = int64(time.Since(m.r.began))
		if err != nil {
			o.Outcome = check.Unknown
		}
		m.history = append(m.history, o)
		longest = max(longest, time.Since(began))
		<-again.C
	}
	m.pause.Add(longest, 1)
}

// reshardRun is one run of linear-reshard.
type reshardRun struct {
	opt    kit.Options
	sizes  reshardSizes
	server *kit.Server
	rounds kit.Rounds[string]
	moved  map[string]*moved
	result *kit.Report
}

// moved has the counts of one system, over all rounds.
type moved struct {
	pause, took                             *kit.Latencies
	moves, reads, failed, unanswered, stale int
}

// accesses returns the requests of a round. The first ones write every key.
func (m *reshardRun) accesses(round int) []access {
	keys, _ := lettered(m.sizes.keys)
	order := make([]uint32, m.sizes.requests)
	popular, chance := kit.NewZipf(len(keys), 0.99), kit.Stream(m.opt.Seed+uint64(round), 51)
	for i := range order {
		if order[i] = keys[kit.Mix(m.opt.Seed, uint64(popular.Draw(chance)))%uint64(len(keys))]; i < len(keys) {
			order[i] = keys[i]
		}
	}
	return inject(&recording{keys: order}, m.opt.Number("writes"), traceClients, m.opt.Seed+uint64(round))
}

// round sends the requests of a round, with or without moves.
func (m *reshardRun) round(ctx context.Context, system string, round int, accesses []access) error {
	r, keys := newReplay(accesses, m.sizes.rate)
	if err := r.load(ctx, m.server.Addrs[0], keys); err != nil {
		return err
	}
	move := newMover(r, keys)
	for i := range r.accesses { // over separate connections, because a request behind a write waits for its answer
		if a := &r.accesses[i]; a.write && a.client < traceClients {
			a.client += traceClients
		}
	}
	for i := range 2*traceClients + 2 {
		c, err := connect(m.server.Addrs[i%traceNodes])
		if err != nil {
			return err
		}
		defer c.Close()
		r.clients = append(r.clients, c)
	}
	move.admin, move.probe = r.clients[2*traceClients], r.clients[2*traceClients+1]
	before, err := kit.Count(ctx, m.server.Admins)
	if err != nil {
		return err
	}
	ends, end := context.WithCancel(ctx)
	result := make(chan error, 1)
	moving := system == "freshet-resharding"
	go func() {
		if !moving {
			result <- nil
			return
		}
		result <- move.run(ends, m.sizes, m.opt.Seed+uint64(round))
	}()
	err = r.run(ctx, func(done int) {
		m.opt.Progress(fmt.Sprintf("%d of %d requests, moving: %v", done, len(accesses), moving))
	})
	end()
	if err = errors.Join(err, <-result); err != nil {
		return err
	}
	after, err := kit.Count(ctx, m.server.Admins)
	if err != nil {
		return err
	}
	failed := r.failedReads()
	r.history = append(r.history, move.history...)
	f := &traceResult{}
	f.sum(r, before, after)
	m.add(system, f, move, failed)
	return nil
}

// add adds the measurements of a round.
func (m *reshardRun) add(system string, f *traceResult, move *mover, failed int) {
	n := int(f.reads.Count())
	for column, v := range map[string]float64{"p50_us": f.reads.Micros(50), "p90_us": f.reads.Micros(90), "p99_us": f.reads.Micros(99), "write_p50_us": f.writes.Micros(50), "write_p99_us": f.writes.Micros(99),
		"lag_p99_us": f.lag.Micros(99), "served_percent": 100 * float64(n-failed) / float64(n), "hit_percent": 100 * f.hits} {
		m.rounds.Add(system, column, v)
	}
	d := m.moved[system]
	if d == nil {
		d = &moved{pause: kit.NewLatencies(), took: kit.NewLatencies()}
		m.moved[system] = d
	}
	d.reads, d.failed, d.unanswered, d.stale, d.moves = d.reads+n, d.failed+failed, d.unanswered+f.failed, d.stale+f.stale, d.moves+move.moves
	d.pause.Merge(move.pause)
	d.took.Merge(move.took)
	m.result.Judge(system, f.checked, f.wrong)
	if f.reason != "" {
		m.result.Remark("The checker says of %s: %s", system, strings.TrimSpace(f.reason))
	}
}
