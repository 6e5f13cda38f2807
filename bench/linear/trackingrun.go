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

func (t *trackingRun) report() {
	r := t.result
	for _, s := range trackingSystems {
		if !slices.Contains(t.opt.Systems, s) {
			continue
		}
		row := kit.Row{"system": s}
		t.rounds.Fill(row, s, "stale_percent", "longest_ms", "window_us", "reads")
		r.Rows = append(r.Rows, row)
		r.Headline[s+"_stale_percent"], r.Headline[s+"_longest_ms"] = t.rounds.Spread(s, "stale_percent").Median, t.rounds.Spread(s, "longest_ms").Max
	}
	for _, client := range []string{"rueidis", "go-redis"} {
		a, b := "freshet-"+client, "redis-"+client
		if !t.rounds.Has(a) || !t.rounds.Has(b) {
			continue
		}
		ours, theirs := t.rounds.Spread(a, "stale_percent"), t.rounds.Spread(b, "stale_percent")
		r.Goal(client+": stale reads, beside the same client of redis-server, %", "<= the most of redis's rounds: "+kit.Text(theirs.Max), "", ours, ours.Median <= theirs.Max)
	}
	for _, s := range kit.Systems(r.Rows) {
		r.Goal(s+": values kept by a connection that has drained its pushes, and older", "0", "", r.Anomalies[s], r.Anomalies[s] == 0)
	}
	r.Set("writes", t.sizes.writes)
	r.Set("readers", readers)
	r.Set("pause", readPause)
	r.Set("connections", burdenConns)
	r.Set("round", t.sizes.round)
}

func trackingTables(r *kit.Report) []kit.Table {
	return []kit.Table{{Title: "Reads from a client's own cache that were older than a write acknowledged before they began", Rows: r.Rows, Columns: kit.Columns("system", "system",
		"stale_percent", "stale reads, %", "longest_ms", "longest window in a round, ms", "window_us", "median window, µs", "reads", "reads/s")}}
}

func trackingPlots(r *kit.Report) (out []kit.Plot) {
	part := func(at int) func(kit.Row) string {
		return func(row kit.Row) string { return strings.SplitN(kit.Text(row["system"]), "-", 2)[at] }
	}
	for _, what := range []struct{ title, unit, column string }{
		{"Stale reads from clients' own caches", "% of reads", "stale_percent"}, {"Longest stale window of a round", "ms", "longest_ms"},
	} {
		p := kit.Plot{Title: what.title, X: "client library", Y: what.unit}
		p.Groups, p.Series = kit.Grouped(r.Rows, part(1), part(0), what.column)
		out = append(out, p)
	}
	return out
}

func linearTracking(ctx context.Context, opt kit.Options) (r *kit.Report, err error) {
	t := &trackingRun{opt: opt, sizes: trackingSizesOf(opt), servers: map[string]*kit.Server{}, result: kit.NewReport()}
	dir, err := kit.Scratch("tracking")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(filepath.Dir(dir))
	defer func() {
		for _, s := range t.servers {
			err = errors.Join(err, s.Stop())
		}
	}()
	for _, system := range opt.Systems {
		kind, _, _ := strings.Cut(system, "-")
		if t.servers[kind] == nil {
			s, err := startFilled(ctx, opt, map[string]string{"freshet": "freshet-memory", "redis": "redis"}[kind], filepath.Join(dir, kind), false, burdenKeys)
			if err != nil {
				return nil, err
			}
			t.servers[kind] = s
		}
	}
	for round := range t.sizes.rounds + 1 {
		for _, system := range kit.Order(opt.Systems, round) {
			opt.Progress(fmt.Sprintf("round %d of %d: %s", round, t.sizes.rounds, system))
			if err := t.round(ctx, system, round); err != nil {
				return nil, fmt.Errorf("%s: %w", system, err)
			}
			if err := t.judge(ctx, system); err != nil {
				return nil, fmt.Errorf("%s: %w", system, err)
			}
		}
	}
	t.report()
	return t.result, nil
}
