package linear

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/freshet-cache/freshet/bench/kit"
	"github.com/freshet-cache/freshet/check"
)

// The systems of linear-remote, each followed by the one it is compared with.
var remoteSystems = []string{"freshet-memory", "redis", "freshet-pebble", "redis-aof"}

// beside maps each freshet to the redis with the same durability, with which it is compared.
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

// shapes are the loads: many connections with and without pipelining, and one connection.
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

// remoteRun is one run of linear-remote.
type remoteRun struct {
	opt     kit.Options
	sizes   remoteSizes
	servers map[string]*kit.Server
	rounds  kit.Rounds[remoteCase]
	result  *kit.Report
}

// startFilled starts the server of a system and sets every key once.
func startFilled(ctx context.Context, opt kit.Options, system, dir string, pin bool, keys int) (*kit.Server, error) {
	opt.Progress("starting " + system)
	s, err := startRemote(ctx, opt, system, dir, pin)
	if err != nil {
		return nil, err
	}
	if err := fill(ctx, s.Addrs[0], keys); err != nil {
		return nil, errors.Join(fmt.Errorf("%s: %w", system, err), s.Stop())
	}
	return s, nil
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

// measure runs the systems in turn.
func (m *remoteRun) measure(ctx context.Context) error {
	for round := range m.sizes.rounds + 1 {
		for _, shape := range shapes {
			for _, set := range []bool{false, true} {
				for _, system := range kit.Order(m.opt.Systems, round) {
					c := remoteCase{system, set, shape[0], shape[1]}
					m.opt.Progress(fmt.Sprintf("round %d of %d: %s, %s, %d connections, pipeline %d", round, m.sizes.rounds, c.system, c.op(), c.conns, c.pipeline))
					if err := m.one(ctx, c, round); err != nil {
						return fmt.Errorf("%s %s: %w", c.system, c.op(), err)
					}
				}
			}
		}
	}
	return nil
}

// one measures one round of one case. Round 0 warms up.
func (m *remoteRun) one(ctx context.Context, c remoteCase, round int) error {
	s := m.servers[c.system]
	l, err := kit.NewLoad(ctx, s.Addrs[0], c.conns)
	if err != nil {
		return err
	}
	defer l.Close()
	d := m.sizes.round
	if round == 0 {
		d /= 4
	}
	busy, own := s.CPU(), kit.OwnCPU()
	if err := l.Run(ctx, c.set, c.pipeline, d, kit.Drawing(kit.Stream(m.opt.Seed+uint64(round), 7), m.sizes.keys)); err != nil {
		return err
	}
	m.result.Judge(c.system, int(l.Ops), int(l.Wrong))
	if round == 0 {
		return nil
	}
	m.rounds.Add(c, "rate", float64(l.Ops)/l.Took.Seconds())
	m.rounds.Add(c, "p50_us", l.Lat.Micros(50))
	m.rounds.Add(c, "p99_us", l.Lat.Micros(99))
	m.rounds.Add(c, "cpu_us", float64((s.CPU()-busy).Microseconds())/float64(l.Ops))
	m.rounds.Add(c, "client_us", float64((kit.OwnCPU()-own).Microseconds())/float64(l.Ops))
	return nil
}

// remoteVerdict reads and writes a few keys over several connections and checks the answers.
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
