package linear

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/freshet-cache/freshet/bench/kit"
	"github.com/freshet-cache/freshet/internal/pgserver"
	"github.com/freshet-cache/freshet/store"
	"github.com/freshet-cache/freshet/store/pebble"
	"github.com/freshet-cache/freshet/store/postgres"
)

// The systems of guard-overhead, each followed by the one it is compared with.
var guardSystems = []string{"pebble", "pebble-unguarded", "postgres", "postgres-unguarded"}

// guardStore is what is measured of a store.
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

const guardValueBytes = 230 // as the paper's

// guardCase is one line of guard-overhead.
type guardCase struct {
	system        string
	guards, conns int
}

// guardFound is what was measured, by round.
type guardFound struct {
	rate, p50, p99 map[guardCase][]float64
	flips          map[string]*kit.Latencies // SetGuard under full load
	busy           map[string]float64        // writes a second meanwhile
	check, anomal  map[string]int
}

func guardKey(i int) string { return fmt.Sprintf("%07d", i) }

func guardOverhead(ctx context.Context, opt kit.Options) (r *kit.Report, err error) {
	sizes := guardSizesOf(opt)
	f := &guardFound{map[guardCase][]float64{}, map[guardCase][]float64{}, map[guardCase][]float64{}, map[string]*kit.Latencies{}, map[string]float64{}, map[string]int{}, map[string]int{}}
	dir, err := kit.Scratch("guards")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(filepath.Dir(dir))
	stores := map[string]guardStore{}
	url := opt.Text("postgres")
	var pg *pgserver.Server
	defer func() {
		for _, s := range stores {
			err = errors.Join(err, s.Close())
		}
		if pg != nil {
			pg.Stop()
		}
	}()
	for _, system := range opt.Systems {
		opt.Progress("starting " + system)
		if strings.HasPrefix(system, "postgres") && url == "" {
			if pg, err = pgserver.Start(ctx, dir); err != nil {
				return nil, fmt.Errorf("%w; or say --systems pebble,pebble-unguarded, or --postgres URL", err)
			}
			url = pg.URL("admin", "postgres")
		}
		if stores[system], err = openGuarded(ctx, system, dir, url); err != nil {
			return nil, err
		}
	}
	for _, guards := range sizes.guards {
		for _, system := range opt.Systems {
			opt.Progress(fmt.Sprintf("%s: %d guards", system, guards))
			if err := install(ctx, stores[system], guards, sizes.keys); err != nil {
				return nil, fmt.Errorf("%s: %w", system, err)
			}
		}
		if err := f.measure(ctx, opt, sizes, guards, stores); err != nil {
			return nil, err
		}
	}
	for _, system := range opt.Systems {
		if system == "pebble" || system == "postgres" {
			opt.Progress(system + ": guards change under full load")
			if err := f.flip(ctx, system, stores[system], sizes); err != nil {
				return nil, err
			}
		}
	}
	return f.report(opt, sizes), nil
}

func openGuarded(ctx context.Context, system, dir, url string) (guardStore, error) {
	unguarded := system == "pebble-unguarded" || system == "postgres-unguarded"
	if strings.HasPrefix(system, "pebble") {
		return pebble.Open(filepath.Join(dir, system), pebble.Options{Unguarded: unguarded})
	}
	schema := fmt.Sprintf("bench_%x", rand.Uint64())
	sep := "?"
	if strings.Contains(url, "?") {
		sep = "&"
	}
	url += sep + "schema=" + schema + "&pool_max_conns=40"
	if err := postgres.Migrate(ctx, url, postgres.Migration{}); err != nil {
		return nil, err
	}
	return postgres.Open(ctx, postgres.Options{URL: url, Unguarded: unguarded, Timeout: 30 * time.Second})
}

// bounds cut the keys into n ranges: the low end of each, and an empty end.
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

// guardToken is that of range i, under the generation gen.
func guardToken(gen uint64, i int) (t store.Token) {
	binary.BigEndian.PutUint64(t[:], gen)
	binary.BigEndian.PutUint64(t[8:], uint64(i)+1)
	return t
}

// install puts n guards over the keys.
func install(ctx context.Context, s guardStore, n, keys int) error {
	at := bounds(n, keys)
	for i := range n {
		if err := s.SetGuard(ctx, at[i], at[i+1], guardToken(1, i)); err != nil {
			return err
		}
	}
	return nil
}

// writers writes from conns goroutines until d is over; gen is that of the guards.
func writers(ctx context.Context, s guardStore, conns, guards, keys int, d time.Duration, seed uint64, gen *atomic.Uint64) (done int, lat *kit.Latencies, err error) {
	var wg sync.WaitGroup
	var mu sync.Mutex
	lat = kit.NewLatencies()
	value := make([]byte, guardValueBytes)
	end := time.Now().Add(d)
	for w := range conns {
		wg.Go(func() {
			r, own, n := kit.Stream(seed, uint64(w)), kit.NewLatencies(), 0
			var failed error
			for failed == nil && time.Now().Before(end) {
				i := r.IntN(keys)
				g := gen.Load()
				var id store.ID
				binary.BigEndian.PutUint64(id[:], g)
				binary.BigEndian.PutUint64(id[8:], r.Uint64())
				began := time.Now()
				_, err := s.Commit(ctx, id, []store.Mutation{{Key: guardKey(i), Value: value, Guard: guardToken(g, i*guards/keys)}})
				switch {
				case err == nil:
					own.Add(time.Since(began), 1)
					n++
				case !errors.Is(err, store.ErrGuardMismatch):
					failed = err
				}
			}
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

// measure lets the systems take turns.
func (f *guardFound) measure(ctx context.Context, opt kit.Options, sizes guardSizes, guards int, stores map[string]guardStore) error {
	var gen atomic.Uint64
	gen.Store(1)
	for round := range sizes.rounds + 1 {
		for _, conns := range sizes.conns {
			for i := range opt.Systems { // who is first changes from round to round
				c := guardCase{opt.Systems[(i+round)%len(opt.Systems)], guards, conns}
				opt.Progress(fmt.Sprintf("%d guards, round %d of %d, %d connections: %s", guards, round, sizes.rounds, conns, c.system))
				began := time.Now()
				n, lat, err := writers(ctx, stores[c.system], conns, guards, sizes.keys, sizes.round, opt.Seed+uint64(round), &gen)
				switch {
				case err != nil:
					return fmt.Errorf("%s: %w", c.system, err)
				case ctx.Err() != nil:
					return context.Cause(ctx)
				case n == 0:
					return fmt.Errorf("%s: no write was committed in %v", c.system, sizes.round)
				case round == 0: // the first one warms up
					continue
				}
				f.rate[c] = append(f.rate[c], float64(n)/time.Since(began).Seconds())
				f.p50[c], f.p99[c] = append(f.p50[c], lat.Micros(50)), append(f.p99[c], lat.Micros(99))
			}
		}
	}
	return nil
}

// flip changes the guard of all keys again and again while they are written as fast
// as can be, and looks for writes under older guards.
func (f *guardFound) flip(ctx context.Context, system string, s guardStore, sizes guardSizes) error {
	var gen atomic.Uint64
	gen.Store(1)
	if err := s.SetGuard(ctx, "", "", guardToken(1, 0)); err != nil {
		return err
	}
	conns := sizes.conns[len(sizes.conns)-1]
	result := make(chan error, 1)
	written := 0
	go func() {
		n, _, err := writers(ctx, s, conns, 1, sizes.keys, sizes.flips, 99, &gen)
		written = n
		result <- err
	}()
	lat := kit.NewLatencies()
	r := kit.Stream(7, 7)
	for over := false; !over; {
		next := gen.Load() + 1
		began := time.Now()
		if err := s.SetGuard(ctx, "", "", guardToken(next, 0)); err != nil {
			return err
		}
		lat.Add(time.Since(began), 1)
		keys, before := make([]string, 8), make([]store.Row, 8)
		for i := range keys {
			keys[i] = guardKey(r.IntN(sizes.keys))
			var err error
			if before[i], err = s.Load(ctx, keys[i]); err != nil {
				return err
			}
		}
		gen.Store(next)
		for i, k := range keys {
			row, err := s.Load(ctx, k)
			if err != nil {
				return err
			}
			f.check[system]++
			if row.Version != before[i].Version && binary.BigEndian.Uint64(row.Writer[:]) < next {
				f.anomal[system]++
			}
		}
		select {
		case err := <-result:
			if err != nil {
				return fmt.Errorf("%s: %w", system, err)
			}
			over = true
		default:
		}
	}
	f.flips[system], f.busy[system] = lat, float64(written)/sizes.flips.Seconds()
	return nil
}
