package linear

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"time"

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

// coresRun is one run of linear-cores.
type coresRun struct {
	opt    kit.Options
	sizes  coreSizes
	counts []int // of processors
	rounds kit.Rounds[coreCase]
	result *kit.Report
}

// linearCores reproduces figure 11a: operations per second by the number of processors.
func linearCores(ctx context.Context, opt kit.Options) (r *kit.Report, err error) {
	c := &coresRun{opt: opt, sizes: coreSizesOf(opt), result: kit.NewReport()}
	for n := 1; n < runtime.NumCPU(); n *= 2 {
		c.counts = append(c.counts, n)
	}
	c.counts = append(c.counts, runtime.NumCPU())
	if err := c.inProcess(ctx); err != nil {
		return nil, err
	}
	if slices.Contains(opt.Systems, "freshet-remote") {
		for _, n := range slices.Compact([]int{1, runtime.NumCPU()}) {
			if err := c.remote(ctx, n); err != nil {
				return nil, err
			}
		}
	}
	c.report()
	return c.result, nil
}

// inProcess measures hits of the caches in this process.
func (c *coresRun) inProcess(ctx context.Context) (err error) {
	c.opt.Progress("filling")
	h, err := newHits(ctx, hotSet{c.sizes.keys, false}, c.opt.Seed)
	if err != nil {
		return err
	}
	before := runtime.GOMAXPROCS(0)
	defer func() {
		runtime.GOMAXPROCS(before)
		err = errors.Join(err, h.close(ctx))
	}()
	for round := range c.sizes.rounds + 1 {
		for _, n := range c.counts {
			for _, system := range kit.Order(c.opt.Systems, round) {
				at := coreCase{system, n}
				if at.system == "freshet-remote" {
					continue
				}
				c.opt.Progress(fmt.Sprintf("round %d of %d, %d processors: %s", round, c.sizes.rounds, n, at.system))
				runtime.GOMAXPROCS(n)
				wall, busy, err := h.round(ctx, at.system, n, c.sizes.round)
				switch {
				case err != nil:
					return err
				case ctx.Err() != nil:
					return context.Cause(ctx)
				case round > 0: // the first round warms up
					c.rounds.Add(at, "mops", 1e3*float64(n)/wall)
					c.rounds.Add(at, "mops_per_cpu", 1e3/busy)
				}
			}
		}
	}
	runtime.GOMAXPROCS(before)
	ours, bare := h.wrong(ctx)
	c.result.Judge("freshet", c.sizes.keys, ours)
	c.result.Judge("otter", c.sizes.keys, bare)
	return nil
}

// remote measures GETs from a server that has n processors, in millions a second and per
// second of its processors.
func (c *coresRun) remote(ctx context.Context, n int) (err error) {
	pin := false
	if n == 1 {
		back, ok := kit.LeaveFirstProcessor()
		defer back()
		pin = ok
	}
	dir, err := kit.Scratch("cores")
	if err != nil {
		return err
	}
	defer os.RemoveAll(filepath.Dir(dir))
	c.opt.Progress(fmt.Sprintf("the server on %d processors", n))
	s, err := kit.StartFreshet(ctx, c.opt, pin, 1, dir, "--store", "memory:")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.Stop()) }()
	if err := fill(ctx, s.Addrs[0], c.sizes.keys); err != nil {
		return err
	}
	for round := range c.sizes.rounds + 1 {
		c.opt.Progress(fmt.Sprintf("the server on %d processors, round %d of %d", n, round, c.sizes.rounds))
		l, err := kit.NewLoad(ctx, s.Addrs[0], kit.RemoteConns)
		if err != nil {
			return err
		}
		busy := s.CPU()
		err = l.Run(ctx, false, 32, c.sizes.round, kit.Drawing(kit.Stream(c.opt.Seed+uint64(round), 8), c.sizes.keys))
		l.Close()
		if err != nil {
			return err
		}
		c.result.Judge("freshet-remote", int(l.Ops), int(l.Wrong))
		if round > 0 {
			used := max(10*time.Millisecond, s.CPU()-busy) // the kernel counts in hundredths of a second
			at := coreCase{"freshet-remote", n}
			c.rounds.Add(at, "mops", float64(l.Ops)/l.Took.Seconds()/1e6)
			c.rounds.Add(at, "mops_per_cpu", float64(l.Ops)/used.Seconds()/1e6)
		}
	}
	return nil
}

func (c *coresRun) report() {
	r := c.result
	for _, s := range coreSystems {
		for _, n := range c.counts {
			at, one := coreCase{s, n}, coreCase{s, 1}
			if !c.rounds.Has(at) {
				continue
			}
			row := kit.Row{"system": s, "processors": n}
			c.rounds.Fill(row, at, "mops", "mops_per_cpu")
			if n > 1 && c.rounds.Has(one) {
				scaled := c.rounds.Times(at, one, "mops")
				row["times_one"] = scaled
				r.Headline[fmt.Sprintf("%s_times_one_%d_processors", s, n)] = scaled.Median
				if s == "freshet" {
					want := 0.9 * float64(n)
					r.Goal(fmt.Sprintf("hits in process, %d processors, times one", n), fmt.Sprintf(">= %.1f", want), "near linear", scaled, scaled.Median >= want)
				}
			}
			if s == "freshet" {
				row["published"] = fmt.Sprintf("%d (CLINK)", n)
			}
			r.Rows = append(r.Rows, row)
			r.Headline[fmt.Sprintf("%s_mops_%d_processors", s, n)] = c.rounds.Spread(at, "mops").Median
		}
	}
	if one := (coreCase{"freshet", 1}); c.rounds.Has(one) {
		rate := c.rounds.Spread(one, "mops")
		r.Goal("million hits a second, one processor", ">= 1", "about 1", rate, rate.Median >= 1)
	}
	r.Set("processors", runtime.NumCPU())
	r.Set("keys", c.sizes.keys)
	r.Set("value_bytes", hitValueBytes)
	r.Set("round", c.sizes.round)
}

func coreTables(r *kit.Report) []kit.Table {
	return []kit.Table{{Title: "Operations a second by processors", Rows: r.Rows, Columns: kit.Columns("system", "system", "processors", "processors", "mops", "M/s", "published", "published, M/s",
		"times_one", "times one processor's", "mops_per_cpu", "M per second of CPU")}}
}

func corePlots(r *kit.Report) []kit.Plot {
	p := kit.Plot{Title: "Operations a second by processors", X: "processors", Y: "million operations a second", Series: kit.Curves(r.Rows, "processors", "mops"), LogY: true}
	for _, text := range kit.Distinct(r.Rows, "processors") {
		n, _ := strconv.Atoi(text) // the report itself wrote it as a number
		p.Ticks = append(p.Ticks, float64(n))
	}
	return []kit.Plot{p}
}
