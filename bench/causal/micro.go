package causal

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/freshet-cache/freshet/bench/causalbase"
	"github.com/freshet-cache/freshet/bench/kit"
)

// microSizes are the sizes of a run of the micro-benchmark.
type microSizes struct {
	keys    int
	rates   []float64 // rates of the open loops, in workflows per second
	span    time.Duration
	clients int // clients of the closed loop
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

// loopCase is a loop of a system. With the rate 0 it is a closed loop.
type loopCase struct {
	system string
	rate   float64
}

// loops has the measurements of all systems with the same workflows.
type loops struct {
	opt      kit.Options
	sizes    microSizes
	load     func(seed uint64) causalLoad
	compared map[string]publishedBeside
	rounds   kit.Rounds[loopCase]
	verdicts verdicts
}

// floor is the case of a closed loop whose workflows only wait: the cost of the emulation and the
// clients.
var floor = loopCase{system: "bare"}

// causalMicro reproduces figure 13.
func causalMicro(ctx context.Context, opt kit.Options) (*kit.Report, error) {
	sizes := microSizesOf(opt)
	l := &loops{opt: opt, sizes: sizes, load: func(seed uint64) causalLoad { return micro(3, sizes.keys, seed) }, compared: publishedMicro}
	return l.run(ctx)
}

// run measures all systems in turn, and reports.
func (l *loops) run(ctx context.Context) (*kit.Report, error) {
	l.verdicts = verdicts{}
	if err := kit.Turns(ctx, l.opt, l.sizes.rounds, func(system string, round int) error { return l.round(ctx, system, round) }); err != nil {
		return nil, err
	}
	return l.report(), nil
}

// bare measures the cost of a workflow that only waits.
func (l *loops) bare(ctx context.Context, seed uint64) error {
	r, err := startCausal(ctx, "bare", l.load(seed), func(w *causalbase.World) (causalbase.System, error) { return causalbase.NewBare(w), nil })
	if err != nil {
		return err
	}
	p, err := r.closed(ctx, l.sizes.clients, l.sizes.span)
	addPhase(&l.rounds, floor, p)
	return errors.Join(err, r.stop(ctx))
}

// round measures one system once.
func (l *loops) round(ctx context.Context, system string, round int) (err error) {
	if len(l.rounds.Of(floor, "cpu_us")) == round {
		if err := l.bare(ctx, l.opt.Seed+uint64(round)); err != nil {
			return err
		}
	}
	r, err := startCausal(ctx, system, l.load(l.opt.Seed+uint64(round)), nil)
	if err != nil {
		return err
	}
	for _, rate := range l.sizes.rates {
		p, e := r.open(ctx, rate, l.sizes.span)
		addPhase(&l.rounds, loopCase{system, rate}, p)
		err = errors.Join(err, e)
	}
	full := loopCase{system: system}
	l.rounds.Add(full, "carried", r.world.Carried())
	first := len(r.history.Acts())
	p, e := r.closed(ctx, l.sizes.clients, l.sizes.span)
	addPhase(&l.rounds, full, p)
	own, bare := l.rounds.Of(full, "cpu_us"), l.rounds.Of(floor, "cpu_us")
	l.rounds.Add(full, "net_us", max(1, own[len(own)-1]-bare[len(own)-1]))
	if err = errors.Join(err, e, r.stop(ctx)); err != nil {
		return err
	}
	v, err := r.judge(first)
	l.verdicts.add(system, v)
	return err
}

// publishedBeside is the published ratio of CausalMesh to another system.
type publishedBeside struct{ throughput, tail string }

var publishedMicro = map[string]publishedBeside{
	"hydro-con": {"1.57 to 2.2 times", "up to 85 % lower"},
	"hydro-opt": {"1.57 to 2.2 times", "up to 97 % lower"},
	"faastcc":   {"1.57 to 2.2 times", "up to 54 % lower"},
}

func (l *loops) report() *kit.Report {
	r := kit.NewReport()
	common(r)
	l.verdicts.report(r)
	for _, rate := range l.sizes.rates {
		for _, s := range l.opt.Systems {
			row := l.row(loopCase{s, rate})
			row["rate"] = rate
			r.Rows = append(r.Rows, row)
			r.Headline[fmt.Sprintf("%s_%.0f_p50_us", s, rate)] = l.rounds.Spread(loopCase{s, rate}, "p50_us").Median
			r.Headline[fmt.Sprintf("%s_%.0f_p99_us", s, rate)] = l.rounds.Spread(loopCase{s, rate}, "p99_us").Median
		}
	}
	own := loopCase{system: "freshet"}
	for _, s := range l.opt.Systems {
		full := loopCase{system: s}
		row := l.row(full)
		l.rounds.Fill(row, full, "per_second", "settled_ms", "net_us", "carried")
		row["published"] = l.compared[s].throughput
		if l.rounds.Has(own) && s != "freshet" {
			row["freshet_rate_times"] = l.rounds.Times(own, full, "per_second")
			row["net_times"] = l.rounds.Times(full, own, "net_us")
		}
		r.Rows = append(r.Rows, row)
		r.Headline[s+"_per_second"], r.Headline[s+"_cpu_us"] = l.rounds.Spread(full, "per_second").Median, l.rounds.Spread(full, "cpu_us").Median
	}
	for _, s := range l.opt.Systems {
		l.goals(r, s)
	}
	r.Set("keys", l.sizes.keys)
	r.Set("rounds", l.sizes.rounds)
	r.Set("span", l.sizes.span)
	r.Set("clients", l.sizes.clients)
	r.Set("floor", fmt.Sprintf("%.1f", l.rounds.Spread(floor, "cpu_us").Median))
	return r
}

// row returns the figures of one loop of a system.
func (l *loops) row(c loopCase) kit.Row {
	row := kit.Row{"system": c.system}
	l.rounds.Fill(row, c, "p50_us", "p99_us", "cpu_us", "aborts", "messages", "requests")
	own := loopCase{"freshet", c.rate}
	if l.rounds.Has(own) && c.system != "freshet" {
		row["freshet_p99_times"] = l.rounds.Times(own, c, "p99_us")
		row["cpu_times"] = l.rounds.Times(c, own, "cpu_us")
	}
	return row
}

// goals compares freshet with a system of the same promise, at equal processor time.
func (l *loops) goals(r *kit.Report, s string) {
	if strings.HasPrefix(s, "freshet") {
		judged(r, s)
	}
	own, other := loopCase{system: "freshet"}, loopCase{system: s}
	p, compared := l.compared[s]
	if !compared || !l.rounds.Has(own) {
		return
	}
	top := l.sizes.rates[len(l.sizes.rates)-1]
	cpu, net := l.rounds.Times(other, own, "cpu_us"), l.rounds.Times(other, own, "net_us")
	rate := l.rounds.Times(own, other, "per_second")
	tail := l.rounds.Times(loopCase{"freshet", top}, loopCase{s, top}, "p99_us")
	r.Headline["cpu_times_"+s], r.Headline["rate_times_"+s], r.Headline["p99_times_"+s] = cpu.Median, rate.Median, tail.Median
	r.Headline["net_times_"+s] = net.Median
	r.Goal("workflows/s of the closed loop, times "+s+"'s", ">= 2", p.throughput, rate, rate.Median >= 2)
	r.Goal("workflows per CPU second, times "+s+"'s", ">= 2", "-", cpu, cpu.Median >= 2)
	r.Goal("workflows per CPU second beyond the emulation, times "+s+"'s", ">= 2", "-", net, net.Median >= 2)
	r.Goal(fmt.Sprintf("P99 at %.0f workflows/s, times %s's", top, s), "<= 0.5", p.tail, tail, tail.Median <= 0.5)
}

func loopTables(r *kit.Report) []kit.Table {
	return []kit.Table{
		{Title: "Open loop: workflows at a constant rate", Rows: r.With("rate"), Columns: kit.Columns("rate", "workflows/s", "system", "system", "p50_us", "P50, µs", "p99_us", "P99, µs",
			"freshet_p99_times", "freshet's P99, times this", "cpu_us", "CPU µs per workflow", "aborts", "undone per workflow", "messages", "messages per workflow", "requests", "store requests per workflow")},
		{Title: fmt.Sprintf("Closed loop: %s clients", r.Setting["clients"]), Rows: r.With("per_second"), Columns: kit.Columns("system", "system", "per_second", "workflows/s",
			"freshet_rate_times", "freshet's, times this", "published", "published", "cpu_us", "CPU µs per workflow", "cpu_times", "CPU, times freshet's", "net_us", "CPU µs beyond the emulation",
			"net_times", "times freshet's", "p50_us", "P50, µs", "p99_us", "P99, µs", "aborts", "undone per workflow", "messages", "messages", "requests", "store requests",
			"carried", "bytes carried per step", "settled_ms", "all seen everywhere after, ms")},
	}
}

func loopPlots(r *kit.Report) []kit.Plot {
	p99 := kit.Plot{Title: "P99 of workflows by their rate", X: "workflows a second", Y: "latency, µs", LogY: true, Series: kit.Curves(r.With("rate"), "rate", "p99_us")}
	for _, s := range p99.Series[:1] {
		for _, at := range s.Points {
			p99.Ticks = append(p99.Ticks, at.X)
		}
	}
	rate := kit.Plot{Title: "Throughput of the closed loop", Y: "workflows a second"}
	rate.Groups, rate.Series = kit.Grouped(r.With("per_second"), func(kit.Row) string { return "on this machine" }, kit.By("system"), "per_second")
	cpu := kit.Plot{Title: "Processor time of the closed loop", Y: "CPU µs per workflow"}
	cpu.Groups, cpu.Series = kit.Grouped(r.With("per_second"), func(kit.Row) string { return "on this machine" }, kit.By("system"), "cpu_us")
	return []kit.Plot{p99, rate, cpu}
}
