package linear

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/freshet-cache/freshet/bench/kit"
)

func (m *reshardRun) report() {
	for _, s := range m.opt.Systems {
		m.row(s)
	}
	for name, v := range map[string]any{"keys": m.sizes.keys, "writes": 100 * m.opt.Number("writes"), "clients": traceClients, "rate": m.sizes.rate, "requests": m.sizes.requests,
		"each": m.sizes.each, "every": m.sizes.every, "watched": watchOneIn, "probe": probeEvery} {
		m.result.Set(name, v)
	}
}

// row adds the figures and goals of a system.
func (m *reshardRun) row(s string) {
	r, d := m.result, m.moved[s]
	row := kit.Row{"system": s, "reads": d.reads, "stale": d.stale, "unanswered": d.unanswered}
	m.rounds.Fill(row, s, "served_percent", "p50_us", "p90_us", "p99_us", "write_p50_us", "write_p99_us", "hit_percent", "lag_p99_us")
	r.Rows = append(r.Rows, row)
	served := m.rounds.Spread(s, "served_percent")
	r.Headline[s+"_GET_p99_us"], r.Headline[s+"_served_percent"], r.Headline[s+"_stale"] = m.rounds.Spread(s, "p99_us").Median, served.Min, float64(d.stale)
	r.Goal(s+": reads served", "100 %", "100 %", served, d.failed == 0)
	r.Goal(s+": stale reads", "0", "0", d.stale, d.stale == 0)
	if s == "freshet" {
		return
	}
	pause, took, hits := d.pause.Micros(99)/1e3, d.took.Micros(99)/1e3, m.rounds.Spread(s, "hit_percent")
	row["moves"], row["pause_p50_ms"], row["pause_p99_ms"], row["took_p50_ms"], row["took_p99_ms"] = d.moves, d.pause.Micros(50)/1e3, pause, d.took.Micros(50)/1e3, took
	r.Headline["pause_p99_ms"], r.Headline["move_p99_ms"] = pause, took
	r.Goal("writes of a key that moves wait, P99", "<= 50 ms", "", fmt.Sprintf("%.1f ms", pause), pause <= 50)
	r.Goal("reads from memory while keys move", ">= 98 %", "", hits, hits.Median >= 98)
	r.Goal("a move takes, P99", "< 20 ms", "< 20 ms", fmt.Sprintf("%.1f ms", took), took < 20)
	if m.rounds.Has("freshet") {
		times := m.rounds.Times(s, "freshet", "p99_us")
		row["times_p50"], row["times_p90"], row["times_p99"] = m.rounds.Times(s, "freshet", "p50_us"), m.rounds.Times(s, "freshet", "p90_us"), times
		r.Headline["GET_p99_times_calm"] = times.Median
		r.Goal("P99 of reads, times that without moves", "<= 1.25", "low", times, times.Median <= 1.25)
	}
}

func reshardTables(r *kit.Report) []kit.Table {
	return []kit.Table{
		{Title: "Latency from when a request was due, µs", Rows: r.Rows, Columns: kit.Columns("system", "system", "p50_us", "P50 of reads", "p90_us", "P90", "p99_us", "P99", "write_p50_us", "P50 of writes", "write_p99_us", "P99",
			"times_p50", "P50 of reads, times without moves", "times_p90", "P90", "times_p99", "P99")},
		{Title: "Reads and moves", Rows: r.Rows, Columns: kit.Columns("system", "system", "reads", "reads", "served_percent", "served, %", "hit_percent", "from memory, %", "lag_p99_us", "P99 of the client behind its schedule, µs",
			"stale", "stale reads", "unanswered", "requests without an answer", "moves", "moves", "took_p50_ms", "P50 of a move, ms", "took_p99_ms", "P99", "pause_p50_ms", "P50 of the wait for a write, ms", "pause_p99_ms", "P99")},
	}
}

func reshardPlots(r *kit.Report) []kit.Plot {
	p := kit.Plot{Title: "Latency with and without moves", Y: "latency, µs", LogY: true, Groups: []string{"GET P50", "GET P90", "GET P99", "SET P50", "SET P99"}}
	for _, row := range r.Rows {
		one := kit.Series{Name: kit.Text(row["system"])}
		for i, column := range []string{"p50_us", "p90_us", "p99_us", "write_p50_us", "write_p99_us"} {
			one.Points = append(one.Points, kit.PointOf(float64(i), row[column])...)
		}
		p.Series = append(p.Series, one)
	}
	return []kit.Plot{p}
}

// linearReshard reproduces figure 13a: reads and writes while keys move.
func linearReshard(ctx context.Context, opt kit.Options) (r *kit.Report, err error) {
	m := &reshardRun{opt: opt, sizes: reshardSizesOf(opt), moved: map[string]*moved{}, result: kit.NewReport()}
	dir, err := kit.Scratch("reshard")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(filepath.Dir(dir))
	if m.server, err = kit.StartFreshet(ctx, opt, false, traceNodes, dir); err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, m.server.Stop()) }()
	for round := range m.sizes.rounds {
		accesses := m.accesses(round)
		for _, system := range kit.Order(opt.Systems, round) {
			opt.Progress(fmt.Sprintf("round %d of %d: %s", round+1, m.sizes.rounds, system))
			if err := m.round(ctx, system, round, accesses); err != nil {
				return nil, fmt.Errorf("%s: %w", system, err)
			}
		}
	}
	m.report()
	return m.result, nil
}
