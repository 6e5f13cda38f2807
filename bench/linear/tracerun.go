package linear

import (
	"cmp"
	"context"
	"fmt"
	"path/filepath"

	"github.com/freshet-cache/freshet/bench/kit"
)

func linearTrace(ctx context.Context, opt kit.Options) (*kit.Report, error) {
	sizes := traceSizesOf(opt)
	keys, err := readTrace(opt.Text("trace"), sizes.requests)
	if err != nil {
		return nil, err
	}
	accesses := inject(keys, opt.Number("writes"), traceClients, opt.Seed)
	r := kit.NewReport()
	for _, system := range opt.Systems {
		f, err := replayOn(ctx, opt, system, accesses, sizes.rate)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", system, err)
		}
		traceRows(r, system, f)
	}
	r.Set("source", ormBusySource)
	if file := opt.Text("trace"); file != "" {
		r.Set("source", "Trace: "+filepath.Base(file)+".")
	}
	r.Set("writes", fmt.Sprintf("Each is made a write with the probability %g, by its position", opt.Number("writes")))
	if keys.writes != nil {
		r.Set("writes", "The trace says which are writes")
	}
	r.Set("accesses", len(accesses))
	r.Set("clients", traceClients)
	r.Set("burst", burst)
	r.Set("rate", sizes.rate)
	return r, nil
}

// traceRows adds the figures of a system.
func traceRows(r *kit.Report, system string, f *traceResult) {
	for _, x := range []struct {
		op string
		l  *kit.Latencies
	}{{"GET", f.reads}, {"SET", f.writes}} {
		r.Headline[system+"_"+x.op+"_p50_us"], r.Headline[system+"_"+x.op+"_p99_us"] = x.l.Micros(50), x.l.Micros(99)
		r.Rows = append(r.Rows, kit.Row{"system": system, "op": x.op, "requests": x.l.Count(), "p50_us": x.l.Micros(50), "p90_us": x.l.Micros(90),
			"p99_us": x.l.Micros(99), "p999_us": x.l.Micros(99.9), "max_us": float64(x.l.Longest()) / 1e3})
	}
	r.Rows = append(r.Rows, kit.Row{"system": system, "memory": f.memory, "hit_percent": 100 * f.hits, "possible_percent": 100 * f.possible, "saved_percent": 100 * f.saved,
		"forwarded_percent": 100 * f.forwarded, "failed": f.failed, "stale": f.stale, "lag_us": f.lag.Micros(99)})
	r.Headline[system+"_hit_percent"], r.Headline[system+"_stale"] = 100*f.hits, float64(f.stale)
	r.Headline[system+"_store_reads_saved_percent"] = 100 * f.saved
	r.Judge(system, f.checked, f.wrong)
	r.Goal(system+": stale reads", "0", "", f.stale, f.stale == 0)
	r.Goal(system+": history", "linearizable", "", cmp.Or(map[bool]string{true: "linearizable"}[f.wrong == 0], "not proven"), f.wrong == 0)
	r.Goal(system+": requests without an answer", "0", "", f.failed, f.failed == 0)
	if f.reason != "" {
		r.Remark("The checker says of %s: %s", system, f.reason)
	}
}

func traceTables(r *kit.Report) []kit.Table {
	return []kit.Table{
		{Title: "Latency from when a request was due, µs", Rows: r.With("p50_us"), Columns: kit.Columns("system", "system", "op", "command", "requests", "requests", "p50_us", "P50",
			"p90_us", "P90", "p99_us", "P99", "p999_us", "P99.9", "max_us", "longest")},
		{Title: "Reads", Rows: r.With("hit_percent"), Columns: kit.Columns("system", "system", "memory", "memory for entries", "hit_percent", "served from memory, %", "possible_percent", "of at most, %",
			"saved_percent", "store reads saved, %", "forwarded_percent", "requests sent on to another node, %", "failed", "without an answer", "stale", "stale reads", "lag_us", "P99 of the sender's lag, µs")},
	}
}

func tracePlots(r *kit.Report) []kit.Plot {
	p := kit.Plot{Title: "Latency of requests, from when they were due", Y: "latency, µs", LogY: true, Groups: []string{"P50", "P90", "P99", "P99.9", "longest"}}
	for _, row := range r.With("p50_us") {
		one := kit.Series{Name: fmt.Sprintf("%s, %s", row["system"], row["op"])}
		for i, column := range []string{"p50_us", "p90_us", "p99_us", "p999_us", "max_us"} {
			one.Points = append(one.Points, kit.PointOf(float64(i), row[column])...)
		}
		p.Series = append(p.Series, one)
	}
	return []kit.Plot{p}
}
