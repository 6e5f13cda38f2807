package linear

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"github.com/freshet-cache/freshet/bench/kit"
)

func (m *remoteRun) report(pinned bool) {
	r := m.result
	for _, shape := range shapes {
		for _, set := range []bool{false, true} {
			for _, s := range remoteSystems {
				if slices.Contains(m.opt.Systems, s) {
					c := remoteCase{s, set, shape[0], shape[1]}
					r.Rows = append(r.Rows, m.row(c))
					m.goals(c)
				}
			}
		}
	}
	r.Set("keys", m.sizes.keys)
	r.Set("key_bytes", kit.KeyBytes)
	r.Set("value_bytes", kit.ValueBytes)
	r.Set("round", m.sizes.round)
	if !pinned {
		r.Remark("There was one processor only: servers and client shared it.")
	}
	if addr := m.opt.Text("redis"); addr != "" {
		r.Remark("redis-server at %s was running before; its persistence and processors are its own affair.", addr)
	}
}

func (m *remoteRun) row(c remoteCase) kit.Row {
	row := kit.Row{"system": c.system, "op": c.op(), "connections": c.conns, "pipeline": c.pipeline}
	m.rounds.Fill(row, c, "rate", "p50_us", "p99_us", "cpu_us", "client_us")
	other := c
	if other.system = beside[c.system]; m.rounds.Has(other) {
		for column, name := range map[string]string{"rate": "times_rate", "p50_us": "times_p50", "p99_us": "times_p99", "cpu_us": "times_cpu"} {
			row[name] = m.rounds.Times(c, other, column)
		}
	}
	return row
}

// goals compares systems of the same durability: by throughput with pipelining, by latency without.
func (m *remoteRun) goals(c remoteCase) {
	other := c
	if other.system = beside[c.system]; !m.rounds.Has(other) {
		return
	}
	r := m.result
	name := fmt.Sprintf("%s %s, %d connections, pipeline %d", c.system, c.op(), c.conns, c.pipeline)
	key := fmt.Sprintf("%s_%s_c%d_p%d", c.system, c.op(), c.conns, c.pipeline)
	rate, p50, p99 := m.rounds.Times(c, other, "rate"), m.rounds.Times(c, other, "p50_us"), m.rounds.Times(c, other, "p99_us")
	r.Headline[key+"_times_rate"], r.Headline[key+"_times_p50"], r.Headline[key+"_times_p99"] = rate.Median, p50.Median, p99.Median
	if c.pipeline == 1 {
		r.Goal(name+": P50", "<= 1.25 redis", "", p50, p50.Median <= 1.25)
		r.Goal(name+": P99", "<= 1.25 redis", "", p99, p99.Median <= 1.25)
	} else {
		r.Goal(name+": throughput", ">= redis", "", rate, rate.Median >= 1)
	}
}

func remoteTables(r *kit.Report) []kit.Table {
	load := kit.Columns("system", "system", "op", "command", "connections", "connections", "pipeline", "pipeline")
	return []kit.Table{
		{Title: "Beside redis-server: freshet divided by redis (memory by redis, pebble by redis-aof)", Rows: r.With("times_rate"),
			Columns: slices.Concat(load, kit.Columns("times_rate", "throughput", "times_p50", "P50", "times_p99", "P99", "times_cpu", "server's CPU per operation"))},
		{Title: "Absolute", Rows: r.Rows,
			Columns: slices.Concat(load, kit.Columns("rate", "operations/s", "p50_us", "P50, µs", "p99_us", "P99, µs", "cpu_us", "server's CPU, µs each", "client_us", "client's CPU, µs each"))},
	}
}

// remotePlots shows the table of ratios or, if there are none, rates.
func remotePlots(r *kit.Report) (out []kit.Plot) {
	load := func(row kit.Row) string {
		return fmt.Sprintf("%s\nc=%v P=%v", row["op"], row["connections"], row["pipeline"])
	}
	pair := func(row kit.Row) string {
		return fmt.Sprintf("%s / %s", row["system"], beside[kit.Text(row["system"])])
	}
	for _, what := range []struct{ key, title string }{{"times_rate", "Throughput (more is better)"}, {"times_p99", "P99 latency (less is better)"}} {
		p := kit.Plot{Title: what.title, X: "c connections, pipeline P", Y: "times redis-server", Level: 1}
		p.Groups, p.Series = kit.Grouped(r.Rows, load, pair, what.key)
		if len(p.Groups) > 0 {
			out = append(out, p)
		}
	}
	if len(out) == 0 {
		p := kit.Plot{Title: "Throughput", X: "c connections, pipeline P", Y: "operations a second", LogY: true}
		p.Groups, p.Series = kit.Grouped(r.Rows, load, kit.By("system"), "rate")
		out = append(out, p)
	}
	return out
}

func linearRemote(ctx context.Context, opt kit.Options) (r *kit.Report, err error) {
	m := &remoteRun{opt: opt, sizes: remoteSizesOf(opt), servers: map[string]*kit.Server{}, result: kit.NewReport()}
	back, pinned := kit.LeaveFirstProcessor()
	defer back()
	dir, err := kit.Scratch("remote")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(filepath.Dir(dir))
	defer func() {
		for _, s := range m.servers {
			err = errors.Join(err, s.Stop())
		}
	}()
	for _, system := range opt.Systems {
		s, err := startFilled(ctx, opt, system, filepath.Join(dir, system), pinned, m.sizes.keys)
		if err != nil {
			return nil, err
		}
		m.servers[system] = s
	}
	if err := m.measure(ctx); err != nil {
		return nil, err
	}
	for _, system := range opt.Systems {
		opt.Progress("reads and writes for the checker: " + system)
		checked, wrong, err := remoteVerdict(m.servers[system].Addrs[0], m.sizes.verdict, opt.Seed)
		if err != nil && wrong == 0 {
			return nil, fmt.Errorf("the checker's reads and writes of %s: %w", system, err)
		}
		if err != nil {
			m.result.Remark("The checker says of %s: %v", system, err)
		}
		m.result.Judge(system, checked, wrong)
	}
	m.report(pinned)
	return m.result, nil
}
