package linear

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/freshet-cache/freshet/bench/kit"
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
var shapes = [][2]int{{kit.RemoteConns, 1}, {kit.RemoteConns, 32}, {1, 1}}

// remoteSizes are the sizes of a run of linear-remote.
type remoteSizes struct {
	keys, rounds, verdict int
	round                 time.Duration
}

func remoteSizesOf(o kit.Options) remoteSizes {
	switch {
	case o.Preset == "tiny":
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

func linearRemote(ctx context.Context, opt kit.Options) (r *kit.Report, err error) {
	sizes := remoteSizesOf(opt)
	f := &remoteFound{map[remoteCase][]float64{}, map[remoteCase][]float64{}, map[remoteCase][]float64{}, map[remoteCase][]float64{}, map[remoteCase][]float64{},
		map[string]int{}, map[string]int{}, false}
	back, ok := kit.LeaveFirstProcessor()
	defer back()
	f.pinned = ok
	dir, err := kit.Scratch("remote")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(filepath.Dir(dir))
	servers := map[string]*kit.Server{}
	defer func() {
		for _, s := range servers {
			err = errors.Join(err, s.Stop())
		}
	}()
	for _, system := range opt.Systems {
		opt.Progress("starting " + system)
		s, err := startRemote(ctx, opt, system, filepath.Join(dir, system), ok)
		if err != nil {
			return nil, err
		}
		servers[system] = s
		if err := fill(ctx, s.Addrs[0], sizes.keys); err != nil {
			return nil, fmt.Errorf("%s: %w", system, err)
		}
	}
	if err := f.measure(ctx, opt, sizes, servers); err != nil {
		return nil, err
	}
	r = f.report(opt, sizes)
	for _, system := range opt.Systems {
		opt.Progress("reads and writes for the checker: " + system)
		checked, wrong, err := remoteVerdict(servers[system].Addrs[0], sizes.verdict, opt.Seed)
		if err != nil && wrong == 0 {
			return nil, fmt.Errorf("the checker's reads and writes of %s: %w", system, err)
		}
		if err != nil {
			r.Notes = append(r.Notes, fmt.Sprintf("The checker says of %s: %v", system, err))
		}
		f.check[system], f.anomal[system] = f.check[system]+checked, f.anomal[system]+wrong
	}
	return r, nil
}

func startRemote(ctx context.Context, opt kit.Options, system, dir string, pin bool) (*kit.Server, error) {
	if err := os.Mkdir(dir, 0o700); err != nil {
		return nil, err
	}
	switch {
	case system == "freshet-memory":
		return kit.StartFreshet(ctx, opt, pin, 1, dir, "--store", "memory:")
	case system == "freshet-pebble":
		return kit.StartFreshet(ctx, opt, pin, 1, dir, "--store", "pebble:")
	case opt.Text("redis") != "":
		return &kit.Server{Addrs: []string{opt.Text("redis")}}, nil
	}
	return kit.StartRedis(ctx, pin, dir, system == "redis-aof")
}

// fill sets every key once.
func fill(ctx context.Context, addr string, keys int) error {
	l, err := kit.NewLoad(ctx, addr, kit.RemoteConns)
	if err != nil {
		return err
	}
	defer l.Close()
	if err := l.Run(ctx, true, 32, time.Hour, kit.Counting(keys)); err != nil {
		return err
	}
	if l.Wrong > 0 {
		return fmt.Errorf("%d of %d keys could not be set", l.Wrong, keys)
	}
	return nil
}

// measure lets the systems take turns.
func (f *remoteFound) measure(ctx context.Context, opt kit.Options, sizes remoteSizes, servers map[string]*kit.Server) error {
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
func (f *remoteFound) one(ctx context.Context, c remoteCase, s *kit.Server, sizes remoteSizes, seed uint64, keep bool) error {
	l, err := kit.NewLoad(ctx, s.Addrs[0], c.conns)
	if err != nil {
		return err
	}
	defer l.Close()
	d := sizes.round
	if !keep {
		d /= 4
	}
	busy, own := s.CPU(), kit.OwnCPU()
	if err := l.Run(ctx, c.set, c.pipeline, d, kit.Drawing(kit.Stream(seed, 7), sizes.keys)); err != nil {
		return err
	}
	f.anomal[c.system] += int(l.Wrong)
	f.check[c.system] += int(l.Ops)
	if !keep {
		return nil
	}
	add := func(m map[remoteCase][]float64, v float64) { m[c] = append(m[c], v) }
	add(f.rate, float64(l.Ops)/l.Took.Seconds())
	add(f.p50, l.Lat.Micros(50))
	add(f.p99, l.Lat.Micros(99))
	add(f.cpu, float64((s.CPU()-busy).Microseconds())/float64(l.Ops))
	add(f.client, float64((kit.OwnCPU()-own).Microseconds())/float64(l.Ops))
	return nil
}

// remoteVerdict reads and writes a few keys over several connections and has the
// answers judged.
func remoteVerdict(addr string, ops int, seed uint64) (checked, wrong int, err error) {
	const clients, keys = 8, 20
	began, all, errs := time.Now(), make([][]check.Op, clients), make([]error, clients)
	var wg sync.WaitGroup
	for id := range clients {
		wg.Go(func() {
			r := kit.Stream(seed, uint64(2000+id))
			c, err := kit.DialPlain(addr)
			if err != nil {
				errs[id] = err
				return
			}
			defer c.Close()
			for i := 0; i < ops/clients && errs[id] == nil; i++ {
				o := check.Op{Client: id, Kind: check.Read, Key: fmt.Sprintf("verdict:%d:%d", began.UnixNano(), r.IntN(keys)), Outcome: check.OK, Start: int64(time.Since(began))}
				if r.IntN(4) == 0 {
					o.Kind, o.Value = check.Write, fmt.Sprintf("%d.%d.%d", began.UnixNano(), id, i)
					_, err = c.Do("SET", o.Key, o.Value)
				} else {
					got, failed := c.Do("GET", o.Key)
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
	return kit.Judged(slices.Concat(all...))
}
