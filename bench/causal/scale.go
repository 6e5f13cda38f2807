package causal

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"time"

	"github.com/freshet-cache/freshet/bench/causalbase"
	"github.com/freshet-cache/freshet/bench/kit"
)

var scaleSystems = []string{"freshet", "freshet-tcc", "hydro-con", "faastcc"}

type scaleSizes struct {
	servers []int
	keys    int
	clients int // of all servers
	span    time.Duration
	rounds  int
}

func scaleSizesOf(o kit.Options) scaleSizes {
	switch {
	case o.Preset == "tiny":
		return scaleSizes{[]int{2, 4}, 200, 8, 60 * time.Millisecond, 1}
	case o.Preset == "paper":
		return scaleSizes{[]int{2, 4, 6, 8, 10, 12, 14, 16}, 100_000, 128, 10 * time.Second, 5}
	}
	return scaleSizes{[]int{2, 4, 8, 16}, 5000, 128, 400 * time.Millisecond, 3}
}

// mixed is a workflow of three functions. Each one reads two keys and writes one; all keys are
// equally likely.
func mixed(servers, keys int, seed uint64) causalLoad {
	return causalLoad{servers: servers, rows: numbered(keys), seed: seed, next: func(_ int, r *rand.Rand, number func() int64) workflow {
		w := workflow{}
		var writes []string
		for range 3 {
			w.places = append(w.places, r.IntN(servers))
			w.reads = append(w.reads, strconv.Itoa(r.IntN(keys)), strconv.Itoa(r.IntN(keys)))
			writes = append(writes, strconv.Itoa(r.IntN(keys)))
		}
		w.body = func(ctx context.Context, f *causalbase.Recorded) error {
			for i := range 3 {
				if i > 0 {
					if err := f.Move(w.places[i]); err != nil {
						return err
					}
				}
				if _, err := f.Read(ctx, w.reads[2*i:2*i+2]...); err != nil {
					return err
				}
				if err := f.Write(ctx, writes[i], causalbase.Fresh(number(), "")); err != nil {
					return err
				}
			}
			return nil
		}
		return w
	}}
}

// scaleCase is a system with a number of servers.
type scaleCase struct {
	system  string
	servers int
}

// scale measures the throughput of causal caches by the number of servers.
type scale struct {
	opt      kit.Options
	sizes    scaleSizes
	rounds   kit.Rounds[scaleCase]
	verdicts verdicts
}

// causalScale reproduces figure 15.
func causalScale(ctx context.Context, opt kit.Options) (*kit.Report, error) {
	c := &scale{opt: opt, sizes: scaleSizesOf(opt), verdicts: verdicts{}}
	if err := kit.Turns(ctx, opt, c.sizes.rounds, func(system string, round int) error {
		for _, n := range c.sizes.servers {
			if err := c.round(ctx, scaleCase{system, n}, opt.Seed+uint64(round)); err != nil {
				return err
			}
		}
		return nil
	}); err != nil {
		return nil, err
	}
	return c.report(), nil
}

func (c *scale) round(ctx context.Context, at scaleCase, seed uint64) error {
	r, err := startCausal(ctx, at.system, mixed(at.servers, c.sizes.keys, seed), nil)
	if err != nil {
		return err
	}
	p, err := r.closed(ctx, c.sizes.clients, c.sizes.span)
	if err = errors.Join(err, r.stop(ctx)); err != nil {
		return err
	}
	addPhase(&c.rounds, at, p)
	c.rounds.Add(at, "per_server", 1e6/p.cpu) // throughput of one server on a processor of its own
	v, err := r.judge(0)
	c.verdicts.add(at.system, v)
	return err
}

func (c *scale) report() *kit.Report {
	r := kit.NewReport()
	common(r)
	c.verdicts.report(r)
	least, most := c.sizes.servers[0], c.sizes.servers[len(c.sizes.servers)-1]
	for _, n := range c.sizes.servers {
		for _, s := range c.opt.Systems {
			at, own := scaleCase{s, n}, scaleCase{"freshet", n}
			row := kit.Row{"system": s, "servers": n, "kept": c.rounds.Times(at, scaleCase{s, least}, "per_server")}
			c.rounds.Fill(row, at, "per_second", "cpu_us", "per_server", "messages", "aborts", "p99_us")
			if c.rounds.Has(own) && s != "freshet" {
				row["freshet_times"] = c.rounds.Times(own, at, "per_server")
			}
			r.Rows = append(r.Rows, row)
			r.Headline[fmt.Sprintf("%s_%d_servers_cpu_us", s, n)] = c.rounds.Spread(at, "cpu_us").Median
		}
	}
	published := map[string]string{"freshet": "nearly constant", "freshet-tcc": "saturates at about 2800/s", "faastcc": "falls", "hydro-con": "does not reach 8 servers"}
	for _, s := range c.opt.Systems {
		kept := c.rounds.Times(scaleCase{s, most}, scaleCase{s, least}, "per_server")
		r.Headline[s+"_kept"] = kept.Median
		if strings.HasPrefix(s, "freshet") {
			r.Goal(fmt.Sprintf("%s: workflows per CPU second with %d servers, times those with %d", s, most, least), ">= 0.9", published[s], kept, kept.Median >= 0.9)
			judged(r, s)
		}
	}
	r.Set("keys", c.sizes.keys)
	r.Set("clients", c.sizes.clients)
	r.Set("rounds", c.sizes.rounds)
	r.Set("span", c.sizes.span)
	r.Set("least", least)
	return r
}

func scaleTables(r *kit.Report) []kit.Table {
	return []kit.Table{{Title: "Throughput by servers", Rows: r.Rows, Columns: kit.Columns("servers", "servers", "system", "system", "per_second", "workflows/s, all on this machine",
		"cpu_us", "CPU µs per workflow", "per_server", "workflows per CPU second", "kept", fmt.Sprintf("times that with %s servers", r.Setting["least"]), "freshet_times", "freshet's, times this",
		"messages", "messages per workflow", "aborts", "undone per workflow", "p99_us", "P99, µs")}}
}

func scalePlots(r *kit.Report) []kit.Plot {
	return []kit.Plot{{Title: "Workflows per CPU second, by servers", X: "servers", Y: "workflows per CPU second", LogY: true, Series: kit.Curves(r.Rows, "servers", "per_server"), Ticks: servers(r)}}
}

// servers returns the numbers of servers in a report.
func servers(r *kit.Report) (out []float64) {
	for _, text := range kit.Distinct(r.Rows, "servers") {
		n, _ := strconv.Atoi(text) // the report itself wrote it as a number
		out = append(out, float64(n))
	}
	return out
}
