package linear

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/freshet-cache/freshet/bench/kit"
)

func (g *guardRun) report() {
	r := g.result
	for _, guards := range g.sizes.guards {
		for _, conns := range g.sizes.conns {
			for _, s := range g.opt.Systems {
				c, other := guardCase{s, guards, conns}, guardCase{s + "-unguarded", guards, conns}
				row := kit.Row{"system": s, "guards": guards, "connections": conns}
				g.rounds.Fill(row, c, "rate", "p50_us", "p99_us")
				if g.rounds.Has(other) {
					row["times_rate"], row["times_p50"] = g.rounds.Times(c, other, "rate"), g.rounds.Times(c, other, "p50_us")
					g.goal(c, g.rounds.Times(c, other, "rate"))
				}
				r.Rows = append(r.Rows, row)
			}
		}
	}
	for _, row := range g.flips {
		p99 := row["set_p99_us"].(float64)
		r.Headline["set_guard_p99_us_"+kit.Text(row["system"])] = p99
		r.Goal(kit.Text(row["system"])+": SetGuard under full load, P99", "< 500 ms", "", fmt.Sprintf("%.1f ms", p99/1e3), p99 < 500e3)
	}
	r.Rows = append(r.Rows, g.flips...)
	r.Set("keys", g.sizes.keys)
	r.Set("value_bytes", guardValueBytes)
	r.Set("round", g.sizes.round)
	r.Set("flips", g.sizes.flips)
	r.Set("connections", g.sizes.conns[len(g.sizes.conns)-1])
}

// goal judges the cost of guards: 2 % on pebble, 12 % on PostgreSQL with several connections.
func (g *guardRun) goal(c guardCase, got kit.Spread) {
	least := 0.98
	if c.system == "postgres" {
		if least = 0.88; c.conns == 1 {
			return
		}
	}
	g.result.Headline[fmt.Sprintf("guarded_rate_%s_%d_guards_%d_connections", c.system, c.guards, c.conns)] = got.Median
	g.result.Goal(fmt.Sprintf("%s, %d guards, %d connections: writes/s of unguarded", c.system, c.guards, c.conns), fmt.Sprintf(">= %.2f", least), "1.0", got, got.Median >= least)
}

func guardTables(r *kit.Report) []kit.Table {
	load := kit.Columns("system", "system", "guards", "guards", "connections", "connections")
	return []kit.Table{
		{Title: "Guarded divided by unguarded", Rows: r.With("times_rate"), Columns: slices.Concat(load, kit.Columns("times_rate", "writes/s", "times_p50", "P50"))},
		{Title: "Absolute", Rows: r.With("rate"), Columns: slices.Concat(load, kit.Columns("rate", "writes/s", "p50_us", "P50, µs", "p99_us", "P99, µs"))},
		{Title: "SetGuard over all keys, while they are written as fast as can be", Rows: r.With("set_guards"), Columns: kit.Columns("system", "system", "set_guards", "guards installed",
			"set_p50_us", "P50, µs", "set_p99_us", "P99, µs", "set_max_us", "longest, µs", "busy", "writes/s meanwhile")},
	}
}

// guardPlots shows the largest number of guards, for each kind of store.
func guardPlots(r *kit.Report) (out []kit.Plot) {
	most := 0
	for _, row := range r.With("rate") {
		most = max(most, row["guards"].(int))
	}
	for _, kind := range []string{"pebble", "postgres"} {
		rows := slices.DeleteFunc(r.With("rate"), func(row kit.Row) bool {
			return row["guards"] != most || !strings.HasPrefix(kit.Text(row["system"]), kind)
		})
		p := kit.Plot{Title: fmt.Sprintf("Writes with and without guards, %s", kind), X: fmt.Sprintf("connections, %d guards", most), Y: "writes per second"}
		p.Groups, p.Series = kit.Grouped(rows, kit.By("connections"), kit.By("system"), "rate")
		if len(rows) > 0 {
			out = append(out, p)
		}
	}
	return out
}

func guardOverhead(ctx context.Context, opt kit.Options) (r *kit.Report, err error) {
	g := &guardRun{opt: opt, sizes: guardSizesOf(opt), stores: map[string]guardStore{}, result: kit.NewReport()}
	dir, err := kit.Scratch("guards")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(filepath.Dir(dir))
	var pg *kit.Postgres
	defer func() {
		for _, s := range g.stores {
			err = errors.Join(err, s.Close())
		}
		pg.Stop()
	}()
	for _, system := range opt.Systems {
		opt.Progress("starting " + system)
		if strings.HasPrefix(system, "postgres") && pg == nil {
			if pg, err = kit.StartPostgres(ctx, opt, dir); err != nil {
				return nil, fmt.Errorf("%w, or --systems pebble,pebble-unguarded", err)
			}
		}
		if g.stores[system], err = openGuarded(ctx, system, dir, pg); err != nil {
			return nil, err
		}
	}
	for _, guards := range g.sizes.guards {
		for _, system := range opt.Systems {
			opt.Progress(fmt.Sprintf("%s: %d guards", system, guards))
			if err := install(ctx, g.stores[system], guards, g.sizes.keys); err != nil {
				return nil, fmt.Errorf("%s: %w", system, err)
			}
		}
		if err := g.measure(ctx, guards); err != nil {
			return nil, err
		}
	}
	for _, system := range opt.Systems {
		if system == "pebble" || system == "postgres" {
			opt.Progress(system + ": guards change under full load")
			if err := g.flip(ctx, system); err != nil {
				return nil, err
			}
		}
	}
	g.report()
	return g.result, nil
}
