package linear

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/freshet-cache/freshet/bench/kit"
)

// publishedP90 is the figure of WriteGuards, section 9.4.1, for figure 12a, over all its traces.
var publishedP90 = map[string]string{"freshet": "0.5 - 4.2 µs (CLINK)", "storage": "4.8 - 10.3 ms", "version": "3.3 - 9.0 ms", "chrono": "2.3 - 5.5 ms"}

// linearTraces reproduces figure 12a: the latency of reads by trace.
func linearTraces(ctx context.Context, opt kit.Options) (*kit.Report, error) {
	load, err := traceLoads(opt)
	if err != nil {
		return nil, err
	}
	t, err := measureTables(ctx, opt, "workload", load)
	if err != nil {
		return nil, err
	}
	r := t.report()
	for _, w := range load {
		t.goals(r, w.name)
		r.Rows = append(r.Rows, kit.Row{"workload": w.name, "requests": len(w.asks), "rows": len(w.rows), "rate": w.rate, "source": w.source})
	}
	return r, nil
}

// traceLoads are the workloads of linear-traces.
func traceLoads(opt kit.Options) ([]*workload, error) {
	sizes := tableSizesOf(opt)
	dir, err := dataDir(opt)
	if err != nil {
		return nil, err
	}
	n := sizes.warm + sizes.rounds*sizes.round
	load := []*workload{uc(smallUCOf(opt), n, sizes.rateUC, 0.006, opt.Seed)}
	for i, make := range []func() (*workload, error){
		func() (*workload, error) { return meta(dir, n, sizes.rate, opt.Seed) },
		func() (*workload, error) { return twitter(clusters[0], n, sizes.rate, opt.Seed), nil },
		func() (*workload, error) { return twitter(clusters[1], n, sizes.rate, opt.Seed), nil },
		func() (*workload, error) { return twitter(clusters[2], n, sizes.rate, opt.Seed), nil },
		func() (*workload, error) { return twitter(clusters[3], n, sizes.rate, opt.Seed), nil },
		func() (*workload, error) { return recorded(dir, n, sizes.rate, opt.Number("writes"), opt.Seed) },
		func() (*workload, error) { return lobsters(n, sizes.rate, opt.Seed) },
	} {
		w, err := make()
		if err != nil {
			return nil, fmt.Errorf("workload %d: %w", i+2, err)
		}
		load = append(load, w)
	}
	return load, nil
}

// linearWrites reproduces figure 12b: the latency of reads by the share of writes, for uc.
func linearWrites(ctx context.Context, opt kit.Options) (*kit.Report, error) {
	sizes := tableSizesOf(opt)
	shares := []float64{0, 0.006, 0.01, 0.05, 0.1, 0.2, 0.5}
	switch opt.Preset {
	case "tiny":
		shares = []float64{0.006, 0.5}
	case "smoke":
		shares = []float64{0, 0.006, 0.05, 0.2, 0.5}
	}
	n := sizes.warm + sizes.rounds*sizes.round
	var load []*workload
	for _, share := range shares {
		w := uc(smallUCOf(opt), n, sizes.rateUC, share, opt.Seed)
		w.name = fmt.Sprintf("%g %%", 100*share)
		load = append(load, w)
	}
	t, err := measureTables(ctx, opt, "writes", load)
	if err != nil {
		return nil, err
	}
	r := t.report()
	first, last := load[0].name, load[len(load)-1].name
	for _, s := range opt.Systems {
		r.Headline["p90_times_"+s+"_"+headline(last)] = t.rounds.Times(tableCase{last, s}, tableCase{first, s}, "p90_us").Median
		if strings.HasPrefix(s, "freshet") {
			r.Goal(fmt.Sprintf("%s: stale reads, all shares", s), "0", "0", r.Anomalies[s], r.Anomalies[s] == 0)
		}
	}
	r.Set("source", load[0].source)
	r.Set("rate", load[0].rate)
	return r, nil
}

// report makes the rows of all experiments over PostgreSQL.
func (t *tableRun) report() *kit.Report {
	r := kit.NewReport()
	for _, l := range t.load {
		for _, s := range t.measured(l.name) {
			c := tableCase{l.name, s}
			sum := t.counts[c]
			row := kit.Row{"system": s, t.by: l.name, "stale": sum.stale, "reads": sum.reads, "failed": sum.failed}
			t.rounds.Fill(row, c, "p50_us", "p90_us", "p99_us", "hit_percent", "queries", "cpu_us", "lag_us", "write_us")
			if own := (tableCase{l.name, "freshet"}); t.rounds.Has(own) && s != "freshet" {
				row["times_p90"] = t.rounds.Times(c, own, "p90_us")
			}
			if p, ok := publishedP90[s]; ok && t.by == "workload" {
				row["published"] = p
			}
			r.Rows = append(r.Rows, row)
			r.Judge(s, sum.reads, sum.stale)
			key := s + "_" + headline(l.name)
			r.Headline[key+"_p90_us"], r.Headline[key+"_hit_percent"], r.Headline[key+"_stale"] = t.rounds.Spread(c, "p90_us").Median, t.rounds.Spread(c, "hit_percent").Median, float64(sum.stale)
			if sum.reason != nil {
				r.Remark("%s, %s: %d requests failed, the first one so: %v", l.name, s, sum.failed, sum.reason)
			}
		}
	}
	for name, v := range map[string]any{"round": t.sizes.round, "warm": t.sizes.warm, "drivers": driveClients, "conns": poolConns, "instances": appInstances,
		"row_ttl": rowTTL, "aside_ttl": asideTTL, "ahead": chronoAhead} {
		r.Set(name, v)
	}
	return r
}

// measured returns the systems of a workload, in the order of the tables.
func (t *tableRun) measured(load string) (out []string) {
	for _, s := range append([]string{tableSystems[0], "freshet-rows"}, tableSystems[1:]...) {
		if t.rounds.Has(tableCase{load, s}) {
			out = append(out, s)
		}
	}
	return out
}

// headline returns the name of a figure for scripts.
func headline(name string) string {
	return strings.NewReplacer(" ", "_", "%", "percent", ".", "_", "/s", "_per_second").Replace(name)
}

// goals are judged for each workload.
func (t *tableRun) goals(r *kit.Report, load string) {
	own, storage := tableCase{load, "freshet"}, tableCase{load, "storage"}
	if !t.rounds.Has(own) {
		return
	}
	r.Goal(load+": stale reads", "0", "0", t.counts[own].stale, t.counts[own].stale == 0)
	if t.rounds.Has(storage) {
		times := t.rounds.Times(storage, own, "p90_us")
		r.Headline["storage_p90_times_"+headline(load)] = times.Median
		r.Goal(load+": P90 of storage, times freshet's", ">= 1000", "about 1000 - 20000", times, times.Median >= 1000)
	}
}

// latencyTables returns the tables of experiments over PostgreSQL; more has further columns of the
// first one.
func latencyTables(r *kit.Report, by string, more ...string) []kit.Table {
	head := kit.Columns(by, by, "system", "system")
	rows := r.With("p90_us")
	return []kit.Table{
		{Title: "Latency of reads", Rows: rows, Columns: slices.Concat(head, kit.Columns("p50_us", "P50, µs", "p90_us", "P90, µs", "p99_us", "P99, µs", "times_p90", "P90, times freshet's"), kit.Columns(more...))},
		{Title: "What it takes", Rows: rows, Columns: slices.Concat(head, kit.Columns("hit_percent", "reads from memory, %", "queries", "store's answers per request", "write_us", "P50 of writes, µs",
			"cpu_us", "CPU µs per request", "stale", "stale reads", "reads", "rows read", "failed", "failed", "lag_us", "P99 of the sender's lag, µs"))},
	}
}

func tracesTables(r *kit.Report) []kit.Table {
	return append(latencyTables(r, "workload", "published", "published P90"),
		kit.Table{Title: "Workloads", Rows: r.With("source"), Columns: kit.Columns("workload", "workload", "requests", "requests", "rows", "rows", "rate", "requests a second", "source", "source")})
}

func tracesPlots(r *kit.Report) []kit.Plot {
	p := kit.Plot{Title: "P90 of reads by workload", Y: "latency, µs", LogY: true}
	p.Groups, p.Series = kit.Grouped(systemsFirst(r.With("p90_us")), kit.By("workload"), kit.By("system"), "p90_us")
	return []kit.Plot{p}
}

func writesTables(r *kit.Report) []kit.Table { return latencyTables(r, "writes") }

func writesPlots(r *kit.Report) []kit.Plot {
	p := kit.Plot{Title: "P90 of reads by the share of writes", X: "share of writes", Y: "latency, µs", LogY: true}
	p.Groups, p.Series = kit.Grouped(systemsFirst(r.With("p90_us")), kit.By("writes"), kit.By("system"), "p90_us")
	return []kit.Plot{p}
}

// systemsFirst orders rows by the declared order of systems, so that each system keeps its colour
// in all plots.
func systemsFirst(rows []kit.Row) []kit.Row {
	place := func(row kit.Row) int {
		return slices.Index(append(slices.Clone(tableSystems), "freshet-rows"), kit.Text(row["system"]))
	}
	groups := slices.Clone(rows)
	slices.SortStableFunc(groups, func(a, b kit.Row) int { return place(a) - place(b) })
	return groups
}
