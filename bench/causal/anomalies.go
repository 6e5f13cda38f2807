package causal

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"time"

	"gonum.org/v1/plot/plotter"

	"github.com/freshet-cache/freshet/bench/causalbase"
	"github.com/freshet-cache/freshet/bench/kit"
)

var anomalySystems = []string{"freshet", "dax"}

// anomalySizes are the sizes of a run of causal-anomalies.
type anomalySizes struct {
	nodes  []int
	gaps   []time.Duration // between the two functions, at most nodes; the last is that of the other runs
	lag    time.Duration   // of the eventual caches' replication, on average
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

// twoSteps is a workflow whose second function reads what the first has written.
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

// anomalyFound is the share of workflows, in per cent, of each round, by what was changed.
type anomalyFound struct {
	sizes    anomalySizes
	rates    map[string]map[string][]float64
	verdicts map[string]causalVerdict
	flows    map[string]int
}

// causalAnomalies is figure 1.
func causalAnomalies(ctx context.Context, opt kit.Options) (*kit.Report, error) {
	sizes := anomalySizesOf(opt)
	f := &anomalyFound{sizes, map[string]map[string][]float64{}, map[string]causalVerdict{}, map[string]int{}}
	last, most := sizes.gaps[len(sizes.gaps)-1], sizes.nodes[len(sizes.nodes)-1]
	err := kit.Turns(ctx, opt, sizes.rounds, func(system string, round int) error {
		var err error
		for _, n := range sizes.nodes {
			err = errors.Join(err, f.round(ctx, opt, system, nodesName(n), n, last, round))
		}
		for _, gap := range sizes.gaps[:len(sizes.gaps)-1] {
			err = errors.Join(err, f.round(ctx, opt, system, gap.String(), most, gap, round))
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	return f.report(opt), nil
}

func nodesName(n int) string { return fmt.Sprintf("%d nodes", n) }

func (f *anomalyFound) round(ctx context.Context, opt kit.Options, system, what string, nodes int, gap time.Duration, round int) error {
	load := twoSteps(nodes, gap, opt.Seed+uint64(round))
	r, err := startCausal(ctx, system, load, func(w *causalbase.World) (causalbase.System, error) {
		if system == "dax" {
			return causalbase.NewDax(w, load.rows, f.sizes.lag), nil
		}
		return causalbase.New(ctx, system, w, load.rows)
	})
	if err != nil {
		return err
	}
	_, err = r.open(ctx, f.sizes.rate, f.sizes.span)
	if err = errors.Join(err, r.stop(ctx)); err != nil {
		return err
	}
	v, err := r.judge(len(r.history.Acts()))
	if f.rates[system] == nil {
		f.rates[system] = map[string][]float64{}
	}
	f.rates[system][what] = append(f.rates[system][what], 100*float64(v.anomalous)/float64(max(1, v.flows)))
	sum := f.verdicts[system]
	sum.add(v)
	f.verdicts[system] = sum
	return err
}

func (f *anomalyFound) report(opt kit.Options) *kit.Report {
	r := &kit.Report{Headline: map[string]float64{}, Anomalies: map[string]int{}, Checked: map[string]int{}}
	verdicts(r, f.verdicts)
	most, last := f.sizes.nodes[len(f.sizes.nodes)-1], f.sizes.gaps[len(f.sizes.gaps)-1]
	published := map[int]string{1: "0", 8: "up to 14 %"}
	var nodes, gaps, names []kit.Row
	var groups []string
	points := map[string]plotter.XYs{}
	for i, n := range f.sizes.nodes {
		row := kit.Row{"nodes": n, "published": published[n]}
		groups = append(groups, nodesName(n))
		for _, s := range opt.Systems {
			got := kit.SpreadOf(f.rates[s][nodesName(n)])
			row[s] = got
			points[s] = append(points[s], plotter.XY{X: float64(i), Y: got.Median})
			r.Headline[fmt.Sprintf("%s_%d_nodes_percent", s, n)] = got.Median
		}
		nodes = append(nodes, row)
	}
	for _, gap := range f.sizes.gaps {
		row := kit.Row{"gap": gap.String()}
		for _, s := range opt.Systems {
			what := gap.String()
			if gap == last {
				what = nodesName(most)
			}
			row[s] = kit.SpreadOf(f.rates[s][what])
		}
		gaps = append(gaps, row)
	}
	columns := []kit.Column{}
	for _, s := range opt.Systems {
		columns = append(columns, kit.Column{s, s + ", % of workflows"})
		v := f.verdicts[s]
		names = append(names, kit.Row{"system": s, "workflows": v.flows, "anomalous": v.anomalous})
	}
	r.Rows = slices.Concat(names, nodes, gaps)
	r.Tables = []kit.Table{
		{fmt.Sprintf("Workflows with an anomaly, %v between the functions", last), slices.Concat([]kit.Column{{"nodes", "cache nodes"}}, columns, []kit.Column{{"published", "published, of DAX"}}), nodes},
		{fmt.Sprintf("By the time between the functions, %d nodes", most), slices.Concat([]kit.Column{{"gap", "between the functions"}}, columns), gaps},
		{"In all", []kit.Column{{"system", "system"}, {"workflows", "workflows"}, {"anomalous", "with an anomaly"}}, names},
	}
	r.Goals = []kit.Goal{{"freshet: workflows with an anomaly", "0", "-", r.Anomalies["freshet"], r.Anomalies["freshet"] == 0}}
	r.Notes = append([]string{
		fmt.Sprintf("A workflow of two functions at servers by chance: the first writes one of 10000 keys, the second reads it. %.0f workflows a second, %d rounds of %v.", f.sizes.rate, f.sizes.rounds, f.sizes.span),
		fmt.Sprintf("Published (figure 1): up to 14 %% of such workflows on AWS Lambda over DynamoDB Accelerator. Neither the time between the functions nor that of replication is stated there; here replication takes a time distributed exponentially with a mean of %v, and %v pass between the functions, so the height is ours to choose, and what is measured is that it grows with the nodes as (n-1)/n does, and falls with the time between the functions. freshet does not depend on either.", f.sizes.lag, last),
	}, causalNotes()...)
	var list []kit.Series
	for _, s := range opt.Systems {
		list = append(list, kit.Series{Name: s, Values: ys(points[s])})
	}
	if b, err := kit.Bars("Workflows with an anomaly", "% of workflows", groups, list); err == nil {
		r.Plots = append(r.Plots, b)
	}
	return r
}

func ys(points plotter.XYs) (out []float64) {
	for _, p := range points {
		out = append(out, p.Y)
	}
	return out
}
