package bench

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/freshet-cache/freshet/check"
)

// The systems of linear-remote, each followed by the one it is compared with.
var remoteSystems = []string{"freshet-memory", "redis", "freshet-pebble", "redis-aof"}

// beside says with which redis a freshet is compared: the one that keeps as much
// when the machine fails.
var beside = map[string]string{"freshet-memory": "redis", "freshet-pebble": "redis-aof"}

// remoteCase is one measurement.
type remoteCase struct {
	system   string
	set      bool
	conns    int
	pipeline int
}

func (c remoteCase) op() string {
	if c.set {
		return "SET"
	}
	return "GET"
}

// shapes are the loads: of many connections, pipelined and not, and of one.
var shapes = [][2]int{{remoteConns, 1}, {remoteConns, 32}, {1, 1}}

// remoteSizes are the sizes of a run of linear-remote.
type remoteSizes struct {
	keys, rounds, verdict int
	round                 time.Duration
}

func (o Options) remoteSizes() remoteSizes {
	switch {
	case o.tiny:
		return remoteSizes{100, 1, 200, 20 * time.Millisecond}
	case o.Preset == "paper":
		return remoteSizes{100_000, 9, 40_000, 2 * time.Second}
	}
	return remoteSizes{100_000, 3, 4000, 400 * time.Millisecond}
}

// remoteFound is what linear-remote measured, by round.
type remoteFound struct {
	rate, p50, p99, cpu, client map[remoteCase][]float64 // per second, µs, µs, µs of the server, of the client
	anomal, check               map[string]int
	pinned                      bool
}

func linearRemote(ctx context.Context, opt Options) (r *Report, err error) {
	sizes := opt.remoteSizes()
	f := &remoteFound{map[remoteCase][]float64{}, map[remoteCase][]float64{}, map[remoteCase][]float64{}, map[remoteCase][]float64{}, map[remoteCase][]float64{},
		map[string]int{}, map[string]int{}, false}
	back, ok := leaveFirstProcessor()
	defer back()
	f.pinned = ok
	dir, err := scratch("remote")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(filepath.Dir(dir))
	servers := map[string]*server{}
	defer func() {
		for _, s := range servers {
			err = errors.Join(err, s.stop())
		}
	}()
	for _, system := range opt.Systems {
		opt.Progress("starting " + system)
		s, err := startRemote(ctx, opt, system, filepath.Join(dir, system), ok)
		if err != nil {
			return nil, err
		}
		servers[system] = s
		if err := fill(ctx, s.addrs[0], sizes.keys); err != nil {
			return nil, fmt.Errorf("%s: %w", system, err)
		}
	}
	if err := f.measure(ctx, opt, sizes, servers); err != nil {
		return nil, err
	}
	r = f.report(opt, sizes)
	for _, system := range opt.Systems {
		opt.Progress("reads and writes for the checker: " + system)
		checked, wrong, err := remoteVerdict(servers[system].addrs[0], sizes.verdict, opt.Seed)
		if err != nil && wrong == 0 {
			return nil, fmt.Errorf("the checker's reads and writes of %s: %w", system, err)
		}
		if err != nil {
			r.notes = append(r.notes, fmt.Sprintf("The checker says of %s: %v", system, err))
		}
		f.check[system], f.anomal[system] = f.check[system]+checked, f.anomal[system]+wrong
	}
	return r, nil
}

func startRemote(ctx context.Context, opt Options, system, dir string, pin bool) (*server, error) {
	if err := os.Mkdir(dir, 0o700); err != nil {
		return nil, err
	}
	switch {
	case system == "freshet-memory":
		return startFreshet(ctx, opt, pin, 1, dir, "--store", "memory:")
	case system == "freshet-pebble":
		return startFreshet(ctx, opt, pin, 1, dir, "--store", "pebble:")
	case opt.Redis != "":
		return &server{addrs: []string{opt.Redis}}, nil
	}
	return startRedis(ctx, pin, dir, system == "redis-aof")
}

// fill sets every key once.
func fill(ctx context.Context, addr string, keys int) error {
	l, err := newLoad(ctx, addr, remoteConns)
	if err != nil {
		return err
	}
	defer l.close()
	if err := l.run(ctx, true, 32, time.Hour, counting(keys)); err != nil {
		return err
	}
	if l.wrong > 0 {
		return fmt.Errorf("%d of %d keys could not be set", l.wrong, keys)
	}
	return nil
}

// measure lets the systems take turns.
func (f *remoteFound) measure(ctx context.Context, opt Options, sizes remoteSizes, servers map[string]*server) error {
	for round := range sizes.rounds + 1 {
		for _, shape := range shapes {
			for _, set := range []bool{false, true} {
				for i := range opt.Systems {
					c := remoteCase{opt.Systems[(i+round)%len(opt.Systems)], set, shape[0], shape[1]}
					opt.Progress(fmt.Sprintf("round %d of %d: %s, %s, %d connections, pipeline %d", round, sizes.rounds, c.system, c.op(), c.conns, c.pipeline))
					if err := f.one(ctx, c, servers[c.system], sizes, opt.Seed+uint64(round), round > 0); err != nil {
						return fmt.Errorf("%s %s: %w", c.system, c.op(), err)
					}
				}
			}
		}
	}
	return nil
}

// one measures one round of one case. The first round only warms up.
func (f *remoteFound) one(ctx context.Context, c remoteCase, s *server, sizes remoteSizes, seed uint64, keep bool) error {
	l, err := newLoad(ctx, s.addrs[0], c.conns)
	if err != nil {
		return err
	}
	defer l.close()
	d := sizes.round
	if !keep {
		d /= 4
	}
	busy, own := s.cpu(), ownCPU()
	if err := l.run(ctx, c.set, c.pipeline, d, drawing(stream(seed, 7), sizes.keys)); err != nil {
		return err
	}
	f.anomal[c.system] += int(l.wrong)
	f.check[c.system] += int(l.ops)
	if !keep {
		return nil
	}
	add := func(m map[remoteCase][]float64, v float64) { m[c] = append(m[c], v) }
	add(f.rate, float64(l.ops)/l.took.Seconds())
	add(f.p50, l.lat.micros(50))
	add(f.p99, l.lat.micros(99))
	add(f.cpu, float64((s.cpu()-busy).Microseconds())/float64(l.ops))
	add(f.client, float64((ownCPU()-own).Microseconds())/float64(l.ops))
	return nil
}

func ownCPU() time.Duration {
	var u unix.Rusage
	if unix.Getrusage(unix.RUSAGE_SELF, &u) != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// remoteVerdict reads and writes a few keys over several connections and has the
// answers judged.
func remoteVerdict(addr string, ops int, seed uint64) (checked, wrong int, err error) {
	const clients, keys = 8, 20
	began, all, errs := time.Now(), make([][]check.Op, clients), make([]error, clients)
	var wg sync.WaitGroup
	for id := range clients {
		wg.Go(func() {
			r := stream(seed, uint64(2000+id))
			c, err := dialPlain(addr)
			if err != nil {
				errs[id] = err
				return
			}
			defer c.Close()
			for i := 0; i < ops/clients && errs[id] == nil; i++ {
				o := check.Op{Client: id, Kind: check.Read, Key: fmt.Sprintf("verdict:%d:%d", began.UnixNano(), r.IntN(keys)), Outcome: check.OK, Start: int64(time.Since(began))}
				if r.IntN(4) == 0 {
					o.Kind, o.Value = check.Write, fmt.Sprintf("%d.%d.%d", began.UnixNano(), id, i)
					_, err = c.do("SET", o.Key, o.Value)
				} else {
					got, failed := c.do("GET", o.Key)
					o.Value, o.Found, err = got.Text, got.Kind == '$', failed
				}
				if o.End = int64(time.Since(began)); err != nil {
					o.Outcome, errs[id] = check.Unknown, err
				}
				all[id] = append(all[id], o)
			}
		})
	}
	wg.Wait()
	if err := errors.Join(errs...); err != nil {
		return 0, 0, err
	}
	return judged(slices.Concat(all...))
}
