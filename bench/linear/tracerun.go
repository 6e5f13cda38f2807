package linear

import (
	"cmp"
	"context"
	"fmt"
	"path/filepath"

	"gonum.org/v1/plot/plotter"

	"github.com/freshet-cache/freshet/bench/kit"
)

func linearTrace(ctx context.Context, opt kit.Options) (*kit.Report, error) {
	sizes := traceSizesOf(opt)
	keys, err := readTrace(opt.Text("trace"), sizes.requests)
	if err != nil {
		return nil, err
	}
	accesses := inject(keys, opt.Number("writes"), traceClients, opt.Seed)
	r := &kit.Report{Headline: map[string]float64{}, Anomalies: map[string]int{}, Checked: map[string]int{}}
	var list []kit.Series
	for _, system := range opt.Systems {
		f, err := replayOn(ctx, opt, system, accesses, sizes.rate)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", system, err)
		}
		traceRows(r, system, f)
		list = append(list, f.curve(system+", GET", f.reads), f.curve(system+", SET", f.writes))
	}
	r.Tables = []kit.Table{
		{"Latency from when a request was due, µs", []kit.Column{{"system", "system"}, {"op", "command"}, {"requests", "requests"}, {"p50_us", "P50"},
			{"p90_us", "P90"}, {"p99_us", "P99"}, {"p999_us", "P99.9"}, {"max_us", "longest"}}, kit.WithKey(r.Rows, "p50_us")},
		{"Reads", []kit.Column{{"system", "system"}, {"memory", "memory for entries"}, {"hit_percent", "served from memory, %"}, {"possible_percent", "of at most, %"}, {"saved_percent", "store reads saved, %"},
			{"forwarded_percent", "requests sent on to another node, %"}, {"failed", "without an answer"}, {"stale", "stale reads"}, {"lag_us", "P99 of the sender's lag, µs"}}, kit.WithKey(r.Rows, "hit_percent")},
	}
	source := ormBusySource
	if opt.Text("trace") != "" {
		source = "Trace: " + filepath.Base(opt.Text("trace")) + "."
	}
	writes := fmt.Sprintf("each is made a write with the probability %g, by its position", max(0, opt.Number("writes")))
	if keys.writes != nil {
		writes = "the trace says which are writes"
	}
	r.Notes = append(r.Notes, source,
		fmt.Sprintf("The first %d accesses; %s; %d clients, four to a node, make bursts of %d; values are 64 to 1024 bytes long, by type of object.", len(accesses), writes, traceClients, burst),
		fmt.Sprintf("Open loop: %.0f requests a second are sent when they are due, whether or not others are answered, and latency counts from then on: waiting is not left out. Clients are rueidis without its cache.", sizes.rate),
		"The systems run one after the other, each for the whole trace: between them, only what does not depend on the machine's mood can be compared. The sender's lag shows that mood, and is part of every latency.",
		"Three nodes in one process over store pebble:, each write synced to disk; their memory is empty when the trace begins. Client and nodes share all processors.",
		"Every answer was judged; with --history DIR the histories are kept, and freshet check judges them again.")
	fig, err := kit.Curves("Latency by percentile", "share of requests that took longer, %", "latency, µs", list)
	if err != nil {
		return nil, err
	}
	r.Plots = append(r.Plots, fig)
	return r, nil
}

// trace adds a system's figures.
func traceRows(r *kit.Report, system string, f *traceFound) {
	for op, l := range map[string]*kit.Latencies{"GET": f.reads, "SET": f.writes} {
		r.Headline[system+"_"+op+"_p50_us"], r.Headline[system+"_"+op+"_p99_us"] = l.Micros(50), l.Micros(99)
	}
	for _, x := range []struct {
		op string
		l  *kit.Latencies
	}{{"GET", f.reads}, {"SET", f.writes}} {
		r.Rows = append(r.Rows, kit.Row{"system": system, "op": x.op, "requests": x.l.Count(), "p50_us": x.l.Micros(50), "p90_us": x.l.Micros(90),
			"p99_us": x.l.Micros(99), "p999_us": x.l.Micros(99.9), "max_us": float64(x.l.Longest()) / 1e3})
	}
	r.Rows = append(r.Rows, kit.Row{"system": system, "memory": f.memory, "hit_percent": 100 * f.hits, "possible_percent": 100 * f.possible, "saved_percent": 100 * f.saved,
		"forwarded_percent": 100 * f.forwarded, "failed": f.failed, "stale": f.stale, "lag_us": f.lag.Micros(99)})
	r.Headline[system+"_hit_percent"], r.Headline[system+"_stale"] = 100*f.hits, float64(f.stale)
	r.Headline[system+"_store_reads_saved_percent"] = 100 * f.saved
	r.Anomalies[system], r.Checked[system] = f.wrong, f.checked
	r.Goals = append(r.Goals,
		kit.Goal{system + ": stale reads", "0", "", f.stale, f.stale == 0},
		kit.Goal{system + ": history", "linearizable", "", cmp.Or(map[bool]string{true: "linearizable"}[f.wrong == 0], "not proven"), f.wrong == 0},
		kit.Goal{system + ": requests without an answer", "0", "", f.failed, f.failed == 0})
	if f.reason != "" {
		r.Notes = append(r.Notes, "The checker says of "+system+": "+f.reason)
	}
}

// curve is how long which share of the requests took longer.
func (f *traceFound) curve(name string, l *kit.Latencies) kit.Series {
	s := kit.Series{Name: name}
	for longer := 50.0; longer >= 0.01; longer /= 1.3 {
		s.Points = append(s.Points, plotter.XY{X: longer, Y: l.Micros(100 - longer)})
	}
	return s
}
