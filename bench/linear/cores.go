package linear

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"time"

	"gonum.org/v1/plot/plotter"

	"github.com/freshet-cache/freshet/bench/kit"
)

// The systems of linear-cores: hits in process, one at a time and 32 at a time, the
// bare map underneath, and GET over the Redis protocol, pipelined by 32.
var coreSystems = []string{"freshet", "freshet-batch", "otter", "freshet-remote"}

// coreSizes are the sizes of a run of linear-cores.
type coreSizes struct {
	keys, rounds int
	round        time.Duration
}

func coreSizesOf(o kit.Options) coreSizes {
	switch {
	case o.Preset == "tiny":
		return coreSizes{200, 1, 2 * time.Millisecond}
	case o.Preset == "paper":
		return coreSizes{100_000, 15, 500 * time.Millisecond}
	}
	return coreSizes{100_000, 5, 200 * time.Millisecond}
}

// coreCase is one line of linear-cores.
type coreCase struct {
	system string
	cores  int
}

// linearCores is figure 11a: operations a second by the number of processors.
func linearCores(ctx context.Context, opt kit.Options) (r *kit.Report, err error) {
	sizes, counts := coreSizesOf(opt), []int{}
	for n := 1; n < runtime.NumCPU(); n *= 2 {
		counts = append(counts, n)
	}
	counts = append(counts, runtime.NumCPU())
	opt.Progress("filling")
	h, err := newHits(ctx, hotSet{sizes.keys, false}, opt.Seed)
	if err != nil {
		return nil, err
	}
	before := runtime.GOMAXPROCS(0)
	defer func() {
		runtime.GOMAXPROCS(before)
		err = errors.Join(err, h.close(ctx))
	}()
	rate, cpu, calls := map[coreCase][]float64{}, map[coreCase][]float64{}, map[string]int{}
	for round := range sizes.rounds + 1 {
		for _, n := range counts {
			for i := range opt.Systems {
				c := coreCase{opt.Systems[(i+round)%len(opt.Systems)], n}
				if c.system == "freshet-remote" {
					continue
				}
				opt.Progress(fmt.Sprintf("round %d of %d, %d processors: %s", round, sizes.rounds, n, c.system))
				runtime.GOMAXPROCS(n)
				wall, busy, err := h.round(ctx, c.system, n, sizes.round)
				switch {
				case err != nil:
					return nil, err
				case ctx.Err() != nil:
					return nil, context.Cause(ctx)
				case round > 0: // the first one warms up
					rate[c], cpu[c] = append(rate[c], 1e3*float64(n)/wall), append(cpu[c], 1e3/busy)
				}
			}
		}
	}
	runtime.GOMAXPROCS(before)
	ours, bare := h.wrong(ctx)
	r = &kit.Report{Headline: map[string]float64{}, Anomalies: map[string]int{"freshet": ours, "otter": bare}, Checked: map[string]int{"freshet": sizes.keys, "otter": sizes.keys}}
	if slices.Contains(opt.Systems, "freshet-remote") {
		for _, n := range slices.Compact([]int{1, runtime.NumCPU()}) {
			c := coreCase{"freshet-remote", n}
			if rate[c], cpu[c], err = remoteCores(ctx, opt, n, sizes, calls, r.Anomalies); err != nil {
				return nil, err
			}
		}
		r.Checked["freshet-remote"] = calls["freshet-remote"]
	}
	reportCores(r, opt, sizes, counts, rate, cpu)
	return r, nil
}

// remoteCores measures GETs from a server that has so many processors, in millions a
// second and per second of its processors.
func remoteCores(ctx context.Context, opt kit.Options, n int, sizes coreSizes, calls, wrong map[string]int) (rate, cpu []float64, err error) {
	pin := false
	if n == 1 {
		back, ok := kit.LeaveFirstProcessor()
		defer back()
		pin = ok
	}
	dir, err := kit.Scratch("cores")
	if err != nil {
		return nil, nil, err
	}
	defer os.RemoveAll(filepath.Dir(dir))
	opt.Progress(fmt.Sprintf("the server on %d processors", n))
	s, err := kit.StartFreshet(ctx, opt, pin, 1, dir, "--store", "memory:")
	if err != nil {
		return nil, nil, err
	}
	defer func() { err = errors.Join(err, s.Stop()) }()
	if err := fill(ctx, s.Addrs[0], sizes.keys); err != nil {
		return nil, nil, err
	}
	for round := range sizes.rounds + 1 {
		opt.Progress(fmt.Sprintf("the server on %d processors, round %d of %d", n, round, sizes.rounds))
		l, err := kit.NewLoad(ctx, s.Addrs[0], kit.RemoteConns)
		if err != nil {
			return nil, nil, err
		}
		busy := s.CPU()
		err = l.Run(ctx, false, 32, sizes.round, kit.Drawing(kit.Stream(opt.Seed+uint64(round), 8), sizes.keys))
		l.Close()
		if err != nil {
			return nil, nil, err
		}
		calls["freshet-remote"] += int(l.Ops)
		wrong["freshet-remote"] += int(l.Wrong)
		if round > 0 {
			used := max(10*time.Millisecond, s.CPU()-busy) // the kernel counts in hundredths of a second
			rate, cpu = append(rate, float64(l.Ops)/l.Took.Seconds()/1e6), append(cpu, float64(l.Ops)/used.Seconds()/1e6)
		}
	}
	return rate, cpu, nil
}

func reportCores(r *kit.Report, opt kit.Options, sizes coreSizes, counts []int, rate, cpu map[coreCase][]float64) {
	var list []kit.Series
	for _, s := range coreSystems {
		line := kit.Series{Name: s}
		for _, n := range counts {
			c := coreCase{s, n}
			if len(rate[c]) == 0 {
				continue
			}
			row := kit.Row{"system": s, "processors": n, "mops": kit.SpreadOf(rate[c]), "mops_per_cpu": kit.SpreadOf(cpu[c])}
			if n > 1 && len(rate[coreCase{s, 1}]) > 0 {
				scaled := kit.SpreadOf(kit.Ratios(rate[c], rate[coreCase{s, 1}]))
				row["times_one"] = scaled
				r.Headline[fmt.Sprintf("%s_times_one_%d_processors", s, n)] = scaled.Median
				if s == "freshet" {
					want := 0.9 * float64(n)
					r.Goals = append(r.Goals, kit.Goal{fmt.Sprintf("hits in process, %d processors, times one", n), fmt.Sprintf(">= %.1f", want), "near linear", scaled, scaled.Median >= want})
				}
			}
			if s == "freshet" {
				row["published"] = fmt.Sprintf("%d (CLINK)", n)
			}
			r.Rows = append(r.Rows, row)
			r.Headline[fmt.Sprintf("%s_mops_%d_processors", s, n)] = kit.SpreadOf(rate[c]).Median
			line.Points = append(line.Points, plotter.XY{X: float64(n), Y: kit.SpreadOf(rate[c]).Median})
		}
		if len(line.Points) > 0 {
			list = append(list, line)
		}
	}
	if own := rate[coreCase{"freshet", 1}]; len(own) > 0 {
		r.Goals = append(r.Goals, kit.Goal{"million hits a second, one processor", ">= 1", "about 1", kit.SpreadOf(own), kit.SpreadOf(own).Median >= 1})
	}
	r.Tables = []kit.Table{{"Operations a second by processors", []kit.Column{{"system", "system"}, {"processors", "processors"}, {"mops", "M/s"}, {"published", "published, M/s"},
		{"times_one", "times one processor's"}, {"mops_per_cpu", "M per second of CPU"}}, r.Rows}}
	r.Notes = append(r.Notes, fmt.Sprintf("This machine has %d processors; the paper's figure goes to 24, where CLINK reads 22.8 million a second (WriteGuards, section 9.2 and figure 11a). What happens beyond is not shown by this.", runtime.NumCPU()),
		fmt.Sprintf("In process: a goroutine per processor and as many threads that run Go (GOMAXPROCS); %d keys in random order, values of %d bytes, which a hit hands out and does not copy; every operation is a hit, or the run is an error. Closed loop, as the paper's.", sizes.keys, hitValueBytes),
		"freshet-remote: GET over the Redis protocol, 50 connections, pipelines of 32, store memory:. On one processor the server has it alone, and the client another; on all of them server and client share them, and only M per second of CPU can be compared.",
		"The median of several rounds, with the least and the most in brackets. Systems take turns in rounds of "+sizes.round.String()+"; the server runs behind them.")
	if len(list) > 0 && len(counts) > 1 {
		fig, err := kit.Curves("Operations a second by processors, median of the rounds", "processors", "million operations a second", list)
		if err == nil {
			r.Plots = append(r.Plots, fig)
		}
	}
}
