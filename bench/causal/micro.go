package causal

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"gonum.org/v1/plot/plotter"

	"github.com/freshet-cache/freshet/bench/causalbase"
	"github.com/freshet-cache/freshet/bench/kit"
)

// microSizes are the sizes of a run of the micro-benchmark.
type microSizes struct {
	keys    int
	rates   []float64 // of the open loops, workflows a second
	span    time.Duration
	clients int // of the closed loop
	rounds  int
}

func microSizesOf(o kit.Options) microSizes {
	switch {
	case o.Preset == "tiny":
		return microSizes{500, []float64{300}, 100 * time.Millisecond, 8, 1}
	case o.Preset == "paper":
		return microSizes{100_000, []float64{500, 1000, 2000, 4000}, 10 * time.Second, 128, 5}
	}
	return microSizes{20_000, []float64{500, 1500}, 500 * time.Millisecond, 128, 3}
}

// microFound is what was measured: the open loops by their places, then the closed one.
type microFound struct {
	sizes    microSizes
	load     func(seed uint64) causalLoad
	compared map[string]publishedBeside
	loops    map[string][]phases
	floor    phases // of the closed loop, by round: what the emulation and the clients take by themselves
	carried  map[string][]float64
	verdicts map[string]causalVerdict
}

// causalMicro is figure 13.
func causalMicro(ctx context.Context, opt kit.Options) (*kit.Report, error) {
	sizes := microSizesOf(opt)
	f, err := loops(ctx, opt, sizes, func(seed uint64) causalLoad { return micro(3, sizes.keys, seed) }, publishedMicro)
	if err != nil {
		return nil, err
	}
	r, err := f.report(opt)
	if err != nil {
		return nil, err
	}
	r.Notes = append([]string{
		fmt.Sprintf("Three servers, %d keys drawn by Zipf 1.0, values of 8 bytes. A workflow is three functions, each at a server by chance: two read three keys each, the third writes one.", sizes.keys),
		"Published: section 9.2 and figure 13, on five machines, over gRPC and a runtime of functions, where each message costs processor time that it hardly costs here: the columns of messages and of requests say how many there are.",
	}, r.Notes...)
	return r, nil
}

// loops measures all systems with the same workflows.
func loops(ctx context.Context, opt kit.Options, sizes microSizes, load func(seed uint64) causalLoad, compared map[string]publishedBeside) (*microFound, error) {
	f := &microFound{sizes: sizes, load: load, compared: compared, loops: map[string][]phases{}, carried: map[string][]float64{}, verdicts: map[string]causalVerdict{}}
	return f, kit.Turns(ctx, opt, sizes.rounds, func(system string, round int) error { return f.round(ctx, opt, system, round) })
}

// bare measures what a workflow costs that only waits.
func (f *microFound) bare(ctx context.Context, seed uint64) error {
	r, err := startCausal(ctx, "bare", f.load(seed), func(w *causalbase.World) (causalbase.System, error) { return causalbase.NewBare(w), nil })
	if err != nil {
		return err
	}
	p, err := r.closed(ctx, f.sizes.clients, f.sizes.span)
	f.floor = append(f.floor, p)
	return errors.Join(err, r.stop(ctx))
}

// round measures one system once.
func (f *microFound) round(ctx context.Context, opt kit.Options, system string, round int) (err error) {
	if len(f.floor) == round {
		if err := f.bare(ctx, opt.Seed+uint64(round)); err != nil {
			return err
		}
	}
	r, err := startCausal(ctx, system, f.load(opt.Seed+uint64(round)), nil)
	if err != nil {
		return err
	}
	if f.loops[system] == nil {
		f.loops[system] = make([]phases, len(f.sizes.rates)+1)
	}
	add := func(i int, p phase, e error) {
		f.loops[system][i], err = append(f.loops[system][i], p), errors.Join(err, e)
	}
	for i, rate := range f.sizes.rates {
		p, e := r.open(ctx, rate, f.sizes.span)
		add(i, p, e)
	}
	f.carried[system] = append(f.carried[system], r.world.Carried())
	first := len(r.history.Acts())
	p, e := r.closed(ctx, f.sizes.clients, f.sizes.span)
	add(len(f.sizes.rates), p, e)
	if err = errors.Join(err, r.stop(ctx)); err != nil {
		return err
	}
	v, err := r.judge(first)
	sum := f.verdicts[system]
	sum.add(v)
	f.verdicts[system] = sum
	return err
}

// publishedBeside is what the paper says CausalMesh is, beside another system.
type publishedBeside struct{ throughput, tail string }

var publishedMicro = map[string]publishedBeside{
	"hydro-con": {"1.57 to 2.2 times", "up to 85 % lower"},
	"hydro-opt": {"1.57 to 2.2 times", "up to 97 % lower"},
	"faastcc":   {"1.57 to 2.2 times", "up to 54 % lower"},
}

func rateOf(p phase) float64 { return p.rate }
func p50Of(p phase) float64  { return p.p50 }
func p99Of(p phase) float64  { return p.p99 }
func cpuOf(p phase) float64  { return p.cpu }

// net is the processor time of a closed loop beyond the floor of its round.
func (f *microFound) net(p phases) []float64 {
	out := p.of(cpuOf)
	for i := range out {
		out[i] = max(1, out[i]-f.floor[i].cpu)
	}
	return out
}

func (f *microFound) report(opt kit.Options) (*kit.Report, error) {
	r := &kit.Report{Headline: map[string]float64{}, Anomalies: map[string]int{}, Checked: map[string]int{}}
	verdicts(r, f.verdicts)
	var open, full []kit.Row
	own := f.loops["freshet"]
	for i, rate := range f.sizes.rates {
		for _, s := range opt.Systems {
			row, p := f.row(s, i, own), f.loops[s][i]
			row["rate"] = rate
			open = append(open, row)
			r.Headline[fmt.Sprintf("%s_%.0f_p50_us", s, rate)], r.Headline[fmt.Sprintf("%s_%.0f_p99_us", s, rate)] = kit.SpreadOf(p.of(p50Of)).Median, kit.SpreadOf(p.of(p99Of)).Median
		}
	}
	for _, s := range opt.Systems {
		row, p := f.row(s, len(f.sizes.rates), own), f.loops[s][len(f.sizes.rates)]
		row["per_second"], row["settled_ms"] = kit.SpreadOf(p.of(rateOf)), kit.SpreadOf(p.of(func(p phase) float64 { return p.settled }))
		row["net_us"] = kit.SpreadOf(f.net(p))
		row["carried"], row["published"] = kit.SpreadOf(f.carried[s]), f.compared[s].throughput
		if own != nil && s != "freshet" {
			row["freshet_rate_times"] = kit.SpreadOf(kit.Ratios(own[len(own)-1].of(rateOf), p.of(rateOf)))
			row["net_times"] = kit.SpreadOf(kit.Ratios(f.net(p), f.net(own[len(own)-1])))
		}
		full = append(full, row)
		r.Headline[s+"_per_second"], r.Headline[s+"_cpu_us"] = kit.SpreadOf(p.of(rateOf)).Median, kit.SpreadOf(p.of(cpuOf)).Median
	}
	r.Rows = append(slices.Clone(open), full...)
	r.Tables = []kit.Table{
		{"Open loop: workflows at a constant rate", []kit.Column{{"rate", "workflows/s"}, {"system", "system"}, {"p50_us", "P50, µs"}, {"p99_us", "P99, µs"}, {"freshet_p99_times", "freshet's P99, times this"}, {"cpu_us", "CPU µs per workflow"}, {"aborts", "undone per workflow"}, {"messages", "messages per workflow"}, {"requests", "store requests per workflow"}}, open},
		{fmt.Sprintf("Closed loop: %d clients", f.sizes.clients), []kit.Column{{"system", "system"}, {"per_second", "workflows/s"}, {"freshet_rate_times", "freshet's, times this"}, {"published", "published"}, {"cpu_us", "CPU µs per workflow"}, {"cpu_times", "CPU, times freshet's"}, {"net_us", "CPU µs beyond the emulation"}, {"net_times", "times freshet's"}, {"p50_us", "P50, µs"}, {"p99_us", "P99, µs"}, {"aborts", "undone per workflow"}, {"messages", "messages"}, {"requests", "store requests"}, {"carried", "bytes carried per step"}, {"settled_ms", "all seen everywhere after, ms"}}, full},
	}
	f.goals(r, opt)
	r.Notes = append([]string{fmt.Sprintf("Open loops: latency counts from when a workflow was due, and includes what is undone and begun again. %d rounds of %v for each loop; medians with the least and the most. Throughput is of the closed loop; that everything is seen everywhere soon after shows that it is sustained; freshet's servers know that of their own writes.", f.sizes.rounds, f.sizes.span),
		"Judged: of the open loops all keys, of all loops together one key in 32, with everything that was read of the others as causes.",
		fmt.Sprintf("CPU beyond the emulation leaves out what a workflow costs that only waits for its links, and once for the store if it writes: %.1f µs, which is clients, the record of what they did, timers and the runtime, and the same for all.", kit.SpreadOf(f.floor.of(cpuOf)).Median)}, causalNotes()...)
	names, lines := make([]string, len(f.sizes.rates)), []kit.Series{}
	for i, rate := range f.sizes.rates {
		names[i] = fmt.Sprintf("%.0f/s", rate)
	}
	rates, groups := []kit.Series{}, []string{"workflows/s", "workflows per CPU second"}
	for _, s := range opt.Systems {
		var points plotter.XYs
		for i := range f.sizes.rates {
			points = append(points, plotter.XY{X: float64(i), Y: kit.SpreadOf(f.loops[s][i].of(p99Of)).Median})
		}
		lines = append(lines, kit.Series{Name: s, Points: points})
		last := f.loops[s][len(f.sizes.rates)]
		rates = append(rates, kit.Series{Name: s, Values: []float64{kit.SpreadOf(last.of(rateOf)).Median, 1e6 / kit.SpreadOf(last.of(cpuOf)).Median}})
	}
	b, err := kit.Bars("Throughput of the closed loop", "workflows", groups, rates)
	r.Plots = []kit.Figure{kit.Levels("P99 of workflows by their rate, median of the rounds", "latency, µs", names, lines), b}
	return r, err
}

// row is what one loop found of a system.
func (f *microFound) row(s string, loop int, own []phases) kit.Row {
	p := f.loops[s][loop]
	row := kit.Row{"system": s, "p50_us": kit.SpreadOf(p.of(p50Of)), "p99_us": kit.SpreadOf(p.of(p99Of)), "cpu_us": kit.SpreadOf(p.of(cpuOf)),
		"aborts": kit.SpreadOf(p.of(func(p phase) float64 { return p.aborts })), "messages": kit.SpreadOf(p.of(func(p phase) float64 { return p.messages })), "requests": kit.SpreadOf(p.of(func(p phase) float64 { return p.requests }))}
	if own != nil && s != "freshet" {
		row["freshet_p99_times"] = kit.SpreadOf(kit.Ratios(own[loop].of(p99Of), p.of(p99Of)))
		row["cpu_times"] = kit.SpreadOf(kit.Ratios(p.of(cpuOf), own[loop].of(cpuOf)))
	}
	return row
}

// goals compares freshet with those that promise as much, at equal CPU.
func (f *microFound) goals(r *kit.Report, opt kit.Options) {
	own, last := f.loops["freshet"], len(f.sizes.rates)
	for _, s := range opt.Systems {
		if strings.HasPrefix(s, "freshet") {
			r.Goals = append(r.Goals, kit.Goal{s + ": workflows that saw an anomaly", "0", "0", r.Anomalies[s], r.Anomalies[s] == 0})
		}
		p, compared := f.compared[s]
		if !compared || own == nil {
			continue
		}
		cpu := kit.SpreadOf(kit.Ratios(f.loops[s][last].of(cpuOf), own[last].of(cpuOf)))
		net := kit.SpreadOf(kit.Ratios(f.net(f.loops[s][last]), f.net(own[last])))
		rate := kit.SpreadOf(kit.Ratios(own[last].of(rateOf), f.loops[s][last].of(rateOf)))
		tail := kit.SpreadOf(kit.Ratios(own[last-1].of(p99Of), f.loops[s][last-1].of(p99Of)))
		r.Headline["cpu_times_"+s], r.Headline["rate_times_"+s], r.Headline["p99_times_"+s] = cpu.Median, rate.Median, tail.Median
		r.Headline["net_times_"+s] = net.Median
		r.Goals = append(r.Goals, kit.Goal{"workflows/s of the closed loop, times " + s + "'s", ">= 2", p.throughput, rate, rate.Median >= 2},
			kit.Goal{"workflows per CPU second, times " + s + "'s", ">= 2", "-", cpu, cpu.Median >= 2},
			kit.Goal{"workflows per CPU second beyond the emulation, times " + s + "'s", ">= 2", "-", net, net.Median >= 2},
			kit.Goal{fmt.Sprintf("P99 at %.0f workflows/s, times %s's", f.sizes.rates[last-1], s), "<= 0.5", p.tail, tail, tail.Median <= 0.5})
	}
}
