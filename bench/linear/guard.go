package linear

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/freshet-cache/freshet/bench/kit"
	"github.com/freshet-cache/freshet/store"
	"github.com/freshet-cache/freshet/store/pebble"
	"github.com/freshet-cache/freshet/store/postgres"
)

// The systems of guard-overhead, each followed by the one it is compared with.
var guardSystems = []string{"pebble", "pebble-unguarded", "postgres", "postgres-unguarded"}

// guardStore is the part of a store that is measured.
type guardStore interface {
	Commit(ctx context.Context, id store.ID, muts []store.Mutation) ([]store.Stamp, error)
	SetGuard(ctx context.Context, low, high string, token store.Token) error
	Load(ctx context.Context, key string) (store.Row, error)
	Close() error
}

// guardSizes are the sizes of a run of guard-overhead.
type guardSizes struct {
	keys, rounds int
	guards       []int
	conns        []int
	round, flips time.Duration
}

func guardSizesOf(o kit.Options) guardSizes {
	switch {
	case o.Preset == "tiny":
		return guardSizes{100, 1, []int{1, 10}, []int{1, 2}, 50 * time.Millisecond, 100 * time.Millisecond}
	case o.Preset == "paper":
		return guardSizes{100_000, 15, []int{1, 100, 10_000}, []int{1, 8, 32}, time.Second, 20 * time.Second}
	}
	return guardSizes{100_000, 5, []int{1, 100}, []int{1, 8, 32}, 300 * time.Millisecond, 3 * time.Second}
}

const guardValueBytes = 230 // as in the paper

// guardCase is one line of guard-overhead.
type guardCase struct {
	system        string
	guards, conns int
}

// guardRun is one run of guard-overhead.
type guardRun struct {
	opt    kit.Options
	sizes  guardSizes
	stores map[string]guardStore
	rounds kit.Rounds[guardCase]
	flips  []kit.Row // SetGuard under full load
	result *kit.Report
}

func guardKey(i int) string { return fmt.Sprintf("%07d", i) }

func openGuarded(ctx context.Context, system, dir string, pg *kit.Postgres) (guardStore, error) {
	unguarded := system == "pebble-unguarded" || system == "postgres-unguarded"
	if strings.HasPrefix(system, "pebble") {
		return pebble.Open(filepath.Join(dir, system), pebble.Options{Unguarded: unguarded})
	}
	url := pg.In(fmt.Sprintf("schema=bench_%x&pool_max_conns=40", rand.Uint64()))
	if err := postgres.Migrate(ctx, url, postgres.Migration{}); err != nil {
		return nil, err
	}
	return postgres.Open(ctx, postgres.Options{URL: url, Unguarded: unguarded, Timeout: 30 * time.Second})
}

// bounds returns the bounds of n ranges of the keys: the low ends, and an empty end.
func bounds(n, keys int) (out []string) {
	for i := range n {
		low := ""
		if i > 0 {
			low = guardKey(i * keys / n)
		}
		out = append(out, low)
	}
	return append(out, "")
}

// guardToken returns the guard of range i in the generation gen.
func guardToken(gen uint64, i int) (t store.Token) {
	binary.BigEndian.PutUint64(t[:], gen)
	binary.BigEndian.PutUint64(t[8:], uint64(i)+1)
	return t
}

// install installs n guards over the keys.
func install(ctx context.Context, s guardStore, n, keys int) error {
	at := bounds(n, keys)
	for i := range n {
		if err := s.SetGuard(ctx, at[i], at[i+1], guardToken(1, i)); err != nil {
			return err
		}
	}
	return nil
}

// writers write to a store, with the guards of the generation gen.
type writers struct {
	store               guardStore
	conns, guards, keys int
	gen                 atomic.Uint64
}

// run writes over all connections until d has passed.
func (w *writers) run(ctx context.Context, d time.Duration, seed uint64) (done int, lat *kit.Latencies, err error) {
	var wg sync.WaitGroup
	var mu sync.Mutex
	lat = kit.NewLatencies()
	end := time.Now().Add(d)
	for id := range w.conns {
		wg.Go(func() {
			n, own, failed := w.one(ctx, end, kit.Stream(seed, uint64(id)))
			mu.Lock()
			defer mu.Unlock()
			done += n
			lat.Merge(own)
			err = errors.Join(err, failed)
		})
	}
	wg.Wait()
	return done, lat, err
}

// one writes over one connection until end.
func (w *writers) one(ctx context.Context, end time.Time, r *rand.Rand) (n int, own *kit.Latencies, failed error) {
	own = kit.NewLatencies()
	value := make([]byte, guardValueBytes)
	for failed == nil && time.Now().Before(end) {
		i := r.IntN(w.keys)
		g := w.gen.Load()
		var id store.ID
		binary.BigEndian.PutUint64(id[:], g)
		binary.BigEndian.PutUint64(id[8:], r.Uint64())
		began := time.Now()
		_, err := w.store.Commit(ctx, id, []store.Mutation{{Key: guardKey(i), Value: value, Guard: guardToken(g, i*w.guards/w.keys)}})
		switch {
		case err == nil:
			own.Add(time.Since(began), 1)
			n++
		case !errors.Is(err, store.ErrGuardMismatch):
			failed = err
		}
	}
	return n, own, failed
}

// measure runs the systems in turn.
func (g *guardRun) measure(ctx context.Context, guards int) error {
	for round := range g.sizes.rounds + 1 {
		for _, conns := range g.sizes.conns {
			for _, system := range kit.Order(g.opt.Systems, round) {
				c := guardCase{system, guards, conns}
				g.opt.Progress(fmt.Sprintf("%d guards, round %d of %d, %d connections: %s", guards, round, g.sizes.rounds, conns, c.system))
				w := &writers{store: g.stores[c.system], conns: conns, guards: guards, keys: g.sizes.keys}
				w.gen.Store(1)
				began := time.Now()
				n, lat, err := w.run(ctx, g.sizes.round, g.opt.Seed+uint64(round))
				switch {
				case err != nil:
					return fmt.Errorf("%s: %w", c.system, err)
				case ctx.Err() != nil:
					return context.Cause(ctx)
				case n == 0:
					return fmt.Errorf("%s: no write was committed in %v", c.system, g.sizes.round)
				case round == 0: // the first round warms up
					continue
				}
				g.rounds.Add(c, "rate", float64(n)/time.Since(began).Seconds())
				g.rounds.Add(c, "p50_us", lat.Micros(50))
				g.rounds.Add(c, "p99_us", lat.Micros(99))
			}
		}
	}
	return nil
}

// flip replaces the guards of all keys again and again, while writers write at full speed, and
// looks for writes under older guards.
func (g *guardRun) flip(ctx context.Context, system string) error {
	s := g.stores[system]
	if err := s.SetGuard(ctx, "", "", guardToken(1, 0)); err != nil {
		return err
	}
	w := &writers{store: s, conns: g.sizes.conns[len(g.sizes.conns)-1], guards: 1, keys: g.sizes.keys}
	w.gen.Store(1)
	result := make(chan error, 1)
	written := 0
	go func() {
		n, _, err := w.run(ctx, g.sizes.flips, 99)
		written = n
		result <- err
	}()
	lat, r := kit.NewLatencies(), kit.Stream(7, 7)
	for over := false; !over; {
		began := time.Now()
		if err := s.SetGuard(ctx, "", "", guardToken(w.gen.Load()+1, 0)); err != nil {
			return err
		}
		lat.Add(time.Since(began), 1)
		keys := make([]string, 8)
		for i := range keys {
			keys[i] = guardKey(r.IntN(g.sizes.keys))
		}
		wrong, err := w.next(ctx, keys)
		if err != nil {
			return err
		}
		g.result.Judge(system, len(keys), wrong)
		select {
		case err := <-result:
			if err != nil {
				return fmt.Errorf("%s: %w", system, err)
			}
			over = true
		default:
		}
	}
	g.flips = append(g.flips, kit.Row{"system": system, "set_guards": int(lat.Count()), "set_p50_us": lat.Micros(50), "set_p99_us": lat.Micros(99), "set_max_us": lat.Micros(100),
		"busy": float64(written) / g.sizes.flips.Seconds()})
	return nil
}

// next gives the writers the next generation, whose guards are installed. Since then, it counts the
// keys that were written under an older guard.
func (w *writers) next(ctx context.Context, keys []string) (wrong int, err error) {
	gen := w.gen.Load() + 1
	before := make([]store.Row, len(keys))
	for i, k := range keys {
		if before[i], err = w.store.Load(ctx, k); err != nil {
			return 0, err
		}
	}
	w.gen.Store(gen)
	for i, k := range keys {
		row, err := w.store.Load(ctx, k)
		if err != nil {
			return 0, err
		}
		if row.Version != before[i].Version && binary.BigEndian.Uint64(row.Writer[:]) < gen {
			wrong++
		}
	}
	return wrong, nil
}
