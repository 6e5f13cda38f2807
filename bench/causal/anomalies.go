package causal

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"time"

	"github.com/freshet-cache/freshet/bench/causalbase"
	"github.com/freshet-cache/freshet/bench/kit"
)

var anomalySystems = []string{"freshet", "dax"}

// anomalySizes are the sizes of a run of causal-anomalies.
type anomalySizes struct {
	nodes  []int
	gaps   []time.Duration // times between the two functions, with the most nodes; the other runs use the last one
	lag    time.Duration   // mean delay of the replication of eventual caches
	rate   float64
	span   time.Duration
	rounds int
}

func anomalySizesOf(o kit.Options) anomalySizes {
	const ms = time.Millisecond
	switch {
	case o.Preset == "tiny":
		return anomalySizes{[]int{1, 3}, []time.Duration{0, 2 * ms}, 5 * ms, 300, 100 * ms, 1}
	case o.Preset == "paper":
		return anomalySizes{[]int{1, 2, 3, 4, 5, 6, 7, 8}, []time.Duration{0, 1 * ms, 2 * ms, 5 * ms, 10 * ms}, 5 * ms, 1000, 10 * time.Second, 5}
	}
	return anomalySizes{[]int{1, 2, 4, 8}, []time.Duration{0, 2 * ms, 10 * ms}, 5 * ms, 1000, 600 * ms, 3}
}

// twoSteps is a workflow of two functions; the second one reads what the first one wrote.
func twoSteps(servers int, gap time.Duration, seed uint64) causalLoad {
	const keys = 10_000
	return causalLoad{servers: servers, rows: numbered(keys), seed: seed, next: func(_ int, r *rand.Rand, number func() int64) workflow {
		places, key := []int{r.IntN(servers), r.IntN(servers)}, strconv.Itoa(r.IntN(keys))
		return workflow{places: places, reads: []string{key}, body: func(ctx context.Context, f *causalbase.Recorded) error {
			if err := f.Write(ctx, key, causalbase.Fresh(number(), "")); err != nil {
				return err
			}
			kit.Sleep(ctx, gap)
			if err := f.Move(places[1]); err != nil {
				return err
			}
			_, err := f.Read(ctx, key)
			return err
		}}
	}}
}

// anomalyCase is a system with a number of nodes and a time between the functions.
type anomalyCase struct {
	system string
	nodes  int
	gap    time.Duration
}

// anomalies has the measurements of causal-anomalies: the workflows with an anomaly, in per cent.
type anomalies struct {
	opt      kit.Options
	sizes    anomalySizes
	rounds   kit.Rounds[anomalyCase]
	verdicts verdicts
}

// lastGap is the time between the functions when the number of nodes varies. most is the number of
// nodes when the time varies.
func (s anomalySizes) lastGap() time.Duration { return s.gaps[len(s.gaps)-1] }
func (s anomalySizes) most() int              { return s.nodes[len(s.nodes)-1] }

// causalAnomalies reproduces figure 1.
func causalAnomalies(ctx context.Context, opt kit.Options) (*kit.Report, error) {
	a := &anomalies{opt: opt, sizes: anomalySizesOf(opt), verdicts: verdicts{}}
	err := kit.Turns(ctx, opt, a.sizes.rounds, func(system string, round int) error {
		var err error
		for _, n := range a.sizes.nodes {
			err = errors.Join(err, a.round(ctx, anomalyCase{system, n, a.sizes.lastGap()}, round))
		}
		for _, gap := range a.sizes.gaps[:len(a.sizes.gaps)-1] {
			err = errors.Join(err, a.round(ctx, anomalyCase{system, a.sizes.most(), gap}, round))
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	return a.report(), nil
}

func (a *anomalies) round(ctx context.Context, c anomalyCase, round int) error {
	load := twoSteps(c.nodes, c.gap, a.opt.Seed+uint64(round))
	r, err := startCausal(ctx, c.system, load, func(w *causalbase.World) (causalbase.System, error) {
		if c.system == "dax" {
			return causalbase.NewDax(w, load.rows, a.sizes.lag), nil
		}
		return causalbase.New(ctx, c.system, w, load.rows)
	})
	if err != nil {
		return err
	}
	_, err = r.open(ctx, a.sizes.rate, a.sizes.span)
	if err = errors.Join(err, r.stop(ctx)); err != nil {
		return err
	}
	v, err := r.judge(len(r.history.Acts()))
	a.rounds.Add(c, "percent", 100*float64(v.anomalous)/float64(max(1, v.flows)))
	a.verdicts.add(c.system, v)
	return err
}

func (a *anomalies) report() *kit.Report {
	r := kit.NewReport()
	common(r)
	a.verdicts.report(r)
	most, last := a.sizes.most(), a.sizes.lastGap()
	for _, s := range a.opt.Systems {
		v := a.verdicts[s]
		r.Rows = append(r.Rows, kit.Row{"system": s, "workflows": v.flows, "anomalous": v.anomalous})
	}
	published := map[int]string{1: "0", 8: "up to 14 %"}
	for _, n := range a.sizes.nodes {
		row := kit.Row{"nodes": n, "published": published[n]}
		for _, s := range a.opt.Systems {
			a.fill(row, anomalyCase{s, n, last})
			r.Headline[fmt.Sprintf("%s_%d_nodes_percent", s, n)] = a.rounds.Spread(anomalyCase{s, n, last}, "percent").Median
		}
		r.Rows = append(r.Rows, row)
	}
	for _, gap := range a.sizes.gaps {
		row := kit.Row{"gap": gap.String()}
		for _, s := range a.opt.Systems {
			a.fill(row, anomalyCase{s, most, gap})
		}
		r.Rows = append(r.Rows, row)
	}
	r.Goal("freshet: workflows with an anomaly", "0", "-", r.Anomalies["freshet"], r.Anomalies["freshet"] == 0)
	r.Set("rate", a.sizes.rate)
	r.Set("rounds", a.sizes.rounds)
	r.Set("span", a.sizes.span)
	r.Set("lag", a.sizes.lag)
	r.Set("gap", last)
	r.Set("nodes", most)
	return r
}

// fill writes the measurements of a case into the column of its system.
func (a *anomalies) fill(row kit.Row, c anomalyCase) {
	row[c.system] = a.rounds.Spread(c, "percent")
}

func anomalyTables(r *kit.Report) []kit.Table {
	var columns []kit.Column
	for _, s := range kit.Systems(r.With("workflows")) {
		columns = append(columns, kit.Columns(s, s+", % of workflows")...)
	}
	return []kit.Table{
		{Title: fmt.Sprintf("Workflows with an anomaly, %s between the functions", r.Setting["gap"]), Rows: r.With("nodes"),
			Columns: slices.Concat(kit.Columns("nodes", "cache nodes"), columns, kit.Columns("published", "published, of DAX"))},
		{Title: fmt.Sprintf("By the time between the functions, %s nodes", r.Setting["nodes"]), Rows: r.With("gap"),
			Columns: slices.Concat(kit.Columns("gap", "between the functions"), columns)},
		{Title: "In all", Rows: r.With("workflows"), Columns: kit.Columns("system", "system", "workflows", "workflows", "anomalous", "with an anomaly")},
	}
}

func anomalyPlots(r *kit.Report) []kit.Plot {
	p := kit.Plot{Title: "Workflows with an anomaly", X: "cache nodes", Y: "% of workflows"}
	for _, row := range r.With("nodes") {
		p.Ticks = append(p.Ticks, float64(row["nodes"].(int)))
	}
	for _, s := range kit.Systems(r.With("workflows")) {
		for _, one := range kit.Curves(r.With("nodes"), "nodes", s) {
			one.Name = s
			p.Series = append(p.Series, one)
		}
	}
	return []kit.Plot{p}
}
