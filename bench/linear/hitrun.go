package linear

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/freshet-cache/freshet/bench/kit"
)

// hitCase is one line of linear-hit.
type hitCase struct {
	system     string
	hot        hotSet
	goroutines int
}

// hitFound is what linear-hit measured.
type hitFound struct {
	ns     map[hitCase][]float64 // of processors, by round
	wall   map[hitCase][]float64
	allocs map[hitCase]float64
	anomal map[string]int
	check  map[string]int
}

func linearHit(ctx context.Context, opt kit.Options) (*kit.Report, error) {
	sizes := hitSizesOf(opt)
	f := &hitFound{map[hitCase][]float64{}, map[hitCase][]float64{}, map[hitCase]float64{}, map[string]int{}, map[string]int{}}
	opt.Progress(fmt.Sprintf("memory of %d entries", sizes.entries))
	ours, bare, err := overhead(ctx, sizes.entries)
	if err != nil {
		return nil, err
	}
	for _, hot := range sizes.hot {
		if err := f.measure(ctx, opt, hot, sizes); err != nil {
			return nil, err
		}
	}
	opt.Progress("reads and writes for the checker")
	checked, wrong, err := hitVerdict(ctx, sizes.verdict, opt.Seed)
	if err != nil && wrong == 0 {
		return nil, err
	}
	f.check["freshet"], f.anomal["freshet"] = f.check["freshet"]+checked, f.anomal["freshet"]+wrong
	r := f.report(opt, sizes, ours, bare)
	if err != nil {
		r.Notes = append(r.Notes, "The checker says: "+err.Error())
	}
	return r, nil
}

// measure fills both systems with one hot set and lets them take turns.
func (f *hitFound) measure(ctx context.Context, opt kit.Options, hot hotSet, sizes hitSizes) error {
	opt.Progress("filling " + hot.String())
	h, err := newHits(ctx, hot, opt.Seed)
	if err != nil {
		return err
	}
	for round := range sizes.rounds + 1 {
		for _, goroutines := range []int{1, 2} {
			for i := range opt.Systems { // who is first changes from round to round
				system := opt.Systems[(i+round)%len(opt.Systems)]
				opt.Progress(fmt.Sprintf("%v, round %d of %d, %d goroutines: %s", hot, round, sizes.rounds, goroutines, system))
				wall, cpu, err := h.round(ctx, system, goroutines, sizes.round)
				switch {
				case err != nil:
					return err
				case ctx.Err() != nil:
					return context.Cause(ctx)
				case round > 0: // the first one warms up
					c := hitCase{system, hot, goroutines}
					f.ns[c], f.wall[c] = append(f.ns[c], cpu), append(f.wall[c], wall)
				}
			}
		}
	}
	for _, system := range opt.Systems {
		f.allocs[hitCase{system, hot, 1}] = h.allocs(ctx, system, sizes.allocs)
	}
	ours, bare := h.wrong(ctx)
	f.anomal["freshet"] += ours
	f.anomal["otter"] += bare
	f.check["freshet"] += hot.keys
	f.check["otter"] += hot.keys
	return h.close(ctx)
}

func (f *hitFound) report(opt kit.Options, sizes hitSizes, ours, bare float64) *kit.Report {
	r := &kit.Report{Headline: map[string]float64{}, Anomalies: f.anomal, Checked: f.check}
	for _, hot := range sizes.hot {
		for _, g := range []int{1, 2} {
			for _, s := range hitSystems {
				c := hitCase{s, hot, g}
				if !slices.Contains(opt.Systems, s) {
					continue
				}
				row := kit.Row{"system": s, "hot_keys": hot.keys, "full": hot.full, "hot_set": hot.String(), "goroutines": g, "cpu_ns": kit.SpreadOf(f.ns[c]), "wall_ns": kit.SpreadOf(f.wall[c]), "mops_per_core": 1e3 / kit.SpreadOf(f.ns[c]).Median}
				if a, ok := f.allocs[c]; ok {
					row["allocs"] = a
				}
				if x := kit.Ratios(f.ns[c], f.ns[hitCase{"otter", hot, g}]); len(x) > 0 && s != "otter" && s != "clock" {
					row["times_otter"] = kit.SpreadOf(x)
				}
				r.Rows = append(r.Rows, row)
			}
		}
	}
	r.Tables = []kit.Table{{"One operation", []kit.Column{{"system", "system"}, {"hot_set", "hot set"}, {"goroutines", "goroutines"}, {"cpu_ns", "CPU ns each"},
		{"wall_ns", "ns each, by the clock"}, {"mops_per_core", "M/s per core"}, {"allocs", "allocations"}, {"times_otter", "CPU, times otter's"}}, r.Rows}}
	memory := []kit.Row{{"system": "freshet", "overhead_bytes": ours}, {"system": "otter", "overhead_bytes": bare}}
	r.Rows = append(r.Rows, memory...)
	r.Tables = append(r.Tables, kit.Table{fmt.Sprintf("Memory beyond key and value, of %d entries", sizes.entries),
		[]kit.Column{{"system", "system"}, {"overhead_bytes", "bytes an entry"}}, memory})
	f.goals(r, sizes.hot, ours)
	r.Notes = append(r.Notes, fmt.Sprintf("Keys of %d bytes, values of %d, in random order; look-ups use copies of the keys, so that strings are compared and not only their addresses.", len(hitKey(0)), hitValueBytes),
		"freshet is linear.Cache over store/memory, one Get at a time; freshet-batch is its Hits, 32 keys at a time, which read the clock once; otter is the map of linear.Cache alone, with the same bound; otter+clock reads the clock after each of its look-ups, which is the least a lease can cost; clock is one time.Since.",
		"A clock reading waits for what came before it, so that look-ups which follow one another no longer overlap: otter, then clock costs more than the two measured alone.",
		"The median of several rounds, with the least and the most in brackets.",
		"Closed loop, one operation after the other on each goroutine; systems take turns in rounds of "+sizes.round.String()+". A round with a single miss is an error.",
		"CPU ns are those of the whole process, work in the background included; they survive what else runs on the machine, and M/s per core follow from them. Ratios and goals are of CPU ns.",
		"The paper's figure is of reads in process over 24 cores (WriteGuards, figure 11a), on other hardware.")
	return r
}

// goals are judged on the smallest hot set: there the cost is ours, and not that
// of fetching a key from memory.
func (f *hitFound) goals(r *kit.Report, hot []hotSet, ours float64) {
	at := func(system string, hot hotSet, goroutines int) []float64 {
		return f.ns[hitCase{system, hot, goroutines}]
	}
	for _, set := range hot {
		for _, g := range []int{1, 2} {
			own, floor, clock, bare := at("freshet", set, g), at("otter+clock", set, g), at("clock", set, g), at("otter", set, g)
			if len(own) == 0 {
				continue
			}
			name := strings.NewReplacer(" ", "_", ",", "").Replace(set.String())
			r.Headline[fmt.Sprintf("hit_ns_%s_%d_goroutines", name, g)] = kit.SpreadOf(own).Median
			if len(floor) > 0 {
				extra := kit.SpreadOf(kit.Minus(own, floor))
				r.Headline[fmt.Sprintf("hit_beyond_otter_then_clock_ns_%s_%d_goroutines", name, g)] = extra.Median
				r.Goals = append(r.Goals, kit.Goal{fmt.Sprintf("hit - (otter, then clock), %v, %d goroutines", set, g), "<= 10 ns", "", extra, extra.Median <= 10})
			}
			if len(clock) > 0 && len(bare) > 0 {
				extra := kit.SpreadOf(kit.Minus(own, clock, bare))
				r.Goals = append(r.Goals, kit.Goal{fmt.Sprintf("hit - otter alone - clock alone, %v, %d goroutines", set, g), "<= 10 ns", "", extra, extra.Median <= 10})
			}
		}
	}
	for _, s := range []struct{ system, name, what string }{{"freshet", "hit", "one at a time"}, {"freshet-batch", "batch_hit", "32 at a time"}} {
		own := at(s.system, hot[0], 1)
		if len(own) == 0 {
			continue
		}
		rate, allocs := 1e3/kit.SpreadOf(own).Median, f.allocs[hitCase{s.system, hot[0], 1}]
		r.Headline[s.name+"_mops_per_core"], r.Headline[s.name+"_allocs"] = rate, allocs
		r.Goals = append(r.Goals,
			kit.Goal{"hits per core, M/s, " + s.what, ">= 15", "about 1", rate, rate >= 15},
			kit.Goal{"allocations of a hit, " + s.what, "0", "", allocs, allocs < 0.001})
	}
	r.Headline["overhead_bytes"] = ours
	r.Goals = append(r.Goals, kit.Goal{"bytes an entry takes beyond key and value", "< 120", "", ours, ours < 120})
	f.plot(r, hot)
}

// plot draws a figure for each hot set: their scales differ.
func (f *hitFound) plot(r *kit.Report, hot []hotSet) {
	for _, n := range hot {
		var list []kit.Series
		for _, s := range hitSystems {
			one := kit.Series{Name: s}
			for _, g := range []int{1, 2} {
				one.Values = append(one.Values, kit.SpreadOf(f.ns[hitCase{s, n, g}]).Median)
			}
			list = append(list, one)
		}
		fig, err := kit.Bars(fmt.Sprintf("One hit, %v, median of the rounds", n), "CPU ns per operation", []string{"1 goroutine", "2 goroutines"}, list)
		if err != nil {
			r.Notes = append(r.Notes, "A plot is missing: "+err.Error())
			continue
		}
		r.Plots = append(r.Plots, fig)
	}
}
