package linear

import (
	"context"
	"errors"
	"math/rand/v2"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/rueidis"

	"github.com/freshet-cache/freshet/bench/kit"
	"github.com/freshet-cache/freshet/internal/follower"
)

// The systems of linear-tracking: a client with its own cache in front of freshet, and the same
// client in front of redis-server.
var trackingSystems = []string{"freshet-rueidis", "redis-rueidis", "freshet-go-redis", "redis-go-redis"}

// trackingSizes are the sizes of a run of linear-tracking.
type trackingSizes struct {
	rounds        int
	round, writes time.Duration // of a round; between two writes
	judge         time.Duration // for the checker, in each round
}

func trackingSizesOf(o kit.Options) trackingSizes {
	switch {
	case o.Preset == "tiny":
		return trackingSizes{1, 50 * time.Millisecond, time.Millisecond, 50 * time.Millisecond}
	case o.Preset == "paper":
		return trackingSizes{15, 5 * time.Second, 2 * time.Millisecond, time.Second}
	}
	return trackingSizes{5, 1500 * time.Millisecond, 2 * time.Millisecond, 300 * time.Millisecond}
}

const (
	readers     = 4 // concurrent readers of the hot key, like the threads of a service
	readPause   = 100 * time.Microsecond
	hotKey      = "hot"
	burdenConns = 10
	burdenKeys  = 1000
)

// cached is a client with a cache.
type cached struct {
	read  func(ctx context.Context) (int64, error)
	close func()
}

func dialCached(system, addr string) (*cached, error) {
	if strings.HasSuffix(system, "go-redis") {
		c := redis.NewClient(&redis.Options{Addr: addr, Protocol: 3, ClientSideCacheConfig: &redis.ClientSideCacheConfig{}})
		return &cached{func(ctx context.Context) (int64, error) { return c.Get(ctx, hotKey).Int64() }, func() { _ = c.Close() }}, nil
	}
	c, err := rueidis.NewClient(rueidis.ClientOption{InitAddress: []string{addr}, ForceSingleClient: true})
	if err != nil {
		return nil, err
	}
	return &cached{func(ctx context.Context) (int64, error) {
		return c.DoCache(ctx, c.B().Get().Key(hotKey).Cache(), time.Hour).AsInt64()
	}, c.Close}, nil
}

// writer writes the hot key and records when each write was acknowledged.
type writer struct {
	*kit.Plain
	acked atomic.Int64
	at    []atomic.Int64 // when each value was last acknowledged, since began
	began time.Time
}

const writesKept = 1 << 16

func newWriter(addr string) (*writer, error) {
	c, err := kit.DialPlain(addr)
	if err != nil {
		return nil, err
	}
	w := &writer{Plain: c, at: make([]atomic.Int64, writesKept), began: time.Now()}
	return w, w.write(1)
}

func (w *writer) write(value int64) error {
	if _, err := w.Do("SET", hotKey, strconv.FormatInt(value, 10)); err != nil {
		return err
	}
	w.at[value%writesKept].Store(int64(time.Since(w.began)))
	w.acked.Store(value)
	return nil
}

// run writes until ctx ends.
func (w *writer) run(ctx context.Context, every time.Duration) error {
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		if err := w.write(w.acked.Load() + 1); err != nil {
			return err
		}
	}
}

// watched has the observations of one reader.
type watched struct {
	reads, stale int
	longest      time.Duration
	windows      *kit.Latencies
}

// watch reads until ctx ends. A read is stale if a later value was acknowledged before the read
// began; its window is the time between the two. The reader pauses between reads, because a loop
// that only reads memory keeps other goroutines from the sockets.
func (w *writer) watch(ctx context.Context, c *cached) (s watched, err error) {
	s.windows = kit.NewLatencies()
	for ctx.Err() == nil {
		time.Sleep(readPause)
		least, began := w.acked.Load(), int64(time.Since(w.began))
		v, err := c.read(context.Background())
		if err != nil {
			return s, err
		}
		if s.reads++; v >= least {
			continue
		}
		d := time.Duration(began - w.at[(v+1)%writesKept].Load())
		s.stale++
		s.longest = max(s.longest, d)
		s.windows.Add(d, 1)
	}
	return s, nil
}

// trackingRun is one run of linear-tracking.
type trackingRun struct {
	opt     kit.Options
	sizes   trackingSizes
	servers map[string]*kit.Server // by kind: freshet, redis
	rounds  kit.Rounds[string]
	result  *kit.Report
}

// addr returns the address of the server of a system.
func (t *trackingRun) addr(system string) string {
	kind, _, _ := strings.Cut(system, "-")
	return t.servers[kind].Addrs[0]
}

// burden keeps the server busy with reads of other keys, as a server in production is.
func (t *trackingRun) burden(ctx context.Context, addr string, seed uint64) error {
	l, err := kit.NewLoad(ctx, addr, burdenConns)
	if err != nil {
		return err
	}
	defer l.Close()
	return l.Run(ctx, false, 1, t.sizes.round, kit.Drawing(kit.Stream(seed, 9), burdenKeys))
}

// round measures one system for one round. Round 0 warms up.
func (t *trackingRun) round(ctx context.Context, system string, round int) error {
	addr := t.addr(system)
	w, err := newWriter(addr)
	if err != nil {
		return err
	}
	defer w.Close()
	c, err := dialCached(system, addr)
	if err != nil {
		return err
	}
	defer c.close()
	for range 100 { // until its connections are open
		if _, err := c.read(ctx); err != nil {
			return err
		}
	}
	ends, cancel := context.WithTimeout(ctx, t.sizes.round)
	defer cancel()
	all, errs := make([]watched, readers), make([]error, readers+2)
	var wg sync.WaitGroup
	wg.Go(func() { errs[readers+1] = t.burden(ctx, addr, t.opt.Seed+uint64(round)) }) // the load runs as long, and its last answers may come later
	wg.Go(func() { errs[readers] = w.run(ends, t.sizes.writes) })
	for i := range readers {
		wg.Go(func() { all[i], errs[i] = w.watch(ends, c) })
	}
	wg.Wait()
	if err := errors.Join(errs...); err != nil || round == 0 {
		return err
	}
	sum := watched{windows: kit.NewLatencies()}
	for _, s := range all {
		sum.reads, sum.stale, sum.longest = sum.reads+s.reads, sum.stale+s.stale, max(sum.longest, s.longest)
		sum.windows.Merge(s.windows)
	}
	t.rounds.Add(system, "stale_percent", 100*float64(sum.stale)/float64(max(1, sum.reads)))
	t.rounds.Add(system, "longest_ms", sum.longest.Seconds()*1e3)
	t.rounds.Add(system, "window_us", sum.windows.Micros(50))
	t.rounds.Add(system, "reads", float64(sum.reads)/t.sizes.round.Seconds())
	return nil
}

// judge makes a connection cache its reads while other clients write. It compares the cached values
// whenever the connection has received everything up to the answer of a PING.
func (t *trackingRun) judge(ctx context.Context, system string) error {
	addr := t.addr(system)
	floor := make(follower.Floor, 20)
	c, err := kit.DialPlain(addr)
	if err != nil {
		return err
	}
	defer c.Close()
	for i := range floor { // the values of earlier rounds are known
		got, err := c.Do("INCR", follower.Key(i))
		if err != nil {
			return err
		}
		n, _ := strconv.ParseInt(got.Text, 10, 64)
		floor.Raise(i, n)
	}
	reader, err := follower.Dial(addr, floor)
	if err != nil {
		return err
	}
	defer reader.Close()
	ctx, cancel := context.WithTimeout(ctx, t.sizes.judge)
	defer cancel()
	failed := make(chan error, 1)
	go func() {
		r := rand.New(rand.NewPCG(t.opt.Seed, 3))
		for ctx.Err() == nil {
			i := r.IntN(len(floor))
			got, err := c.Do("INCR", follower.Key(i))
			if err != nil {
				failed <- err
				return
			}
			n, _ := strconv.ParseInt(got.Text, 10, 64)
			floor.Raise(i, n)
		}
		failed <- nil
	}()
	r := kit.Stream(t.opt.Seed, 4)
	for ctx.Err() == nil && err == nil {
		err = reader.Round(r)
		var stale follower.Stale
		if errors.As(err, &stale) {
			t.result.Judge(system, 0, 1)
			err = nil
		}
	}
	t.result.Judge(system, reader.Checked, 0)
	return errors.Join(err, <-failed)
}
