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

// hitRun is one run of linear-hit.
type hitRun struct {
	opt    kit.Options
	sizes  hitSizes
	rounds kit.Rounds[hitCase]
	allocs map[hitCase]float64
	result *kit.Report
}

func linearHit(ctx context.Context, opt kit.Options) (*kit.Report, error) {
	h := &hitRun{opt: opt, sizes: hitSizesOf(opt), allocs: map[hitCase]float64{}, result: kit.NewReport()}
	opt.Progress(fmt.Sprintf("memory of %d entries", h.sizes.entries))
	ours, bare, err := overhead(ctx, h.sizes.entries)
	if err != nil {
		return nil, err
	}
	for _, hot := range h.sizes.hot {
		if err := h.measure(ctx, hot); err != nil {
			return nil, err
		}
	}
	opt.Progress("reads and writes for the checker")
	checked, wrong, err := hitVerdict(ctx, h.sizes.verdict, opt.Seed)
	if err != nil && wrong == 0 {
		return nil, err
	}
	h.result.Judge("freshet", checked, wrong)
	if err != nil {
		h.result.Remark("The checker says: %v", err)
	}
	h.report(ours, bare)
	return h.result, nil
}

// measure fills both systems with one hot set and runs them in turn.
func (h *hitRun) measure(ctx context.Context, hot hotSet) error {
	h.opt.Progress("filling " + hot.String())
	set, err := newHits(ctx, hot, h.opt.Seed)
	if err != nil {
		return err
	}
	for round := range h.sizes.rounds + 1 {
		for _, goroutines := range []int{1, 2} {
			for _, system := range kit.Order(h.opt.Systems, round) {
				c := hitCase{system, hot, goroutines}
				h.opt.Progress(fmt.Sprintf("%v, round %d of %d, %d goroutines: %s", hot, round, h.sizes.rounds, goroutines, c.system))
				wall, cpu, err := set.round(ctx, c.system, goroutines, h.sizes.round)
				switch {
				case err != nil:
					return err
				case ctx.Err() != nil:
					return context.Cause(ctx)
				case round > 0: // the first round warms up
					h.rounds.Add(c, "cpu_ns", cpu)
					h.rounds.Add(c, "wall_ns", wall)
				}
			}
		}
	}
	for _, system := range h.opt.Systems {
		h.allocs[hitCase{system, hot, 1}] = set.allocs(ctx, system, h.sizes.allocs)
	}
	ours, bare := set.wrong(ctx)
	h.result.Judge("freshet", hot.keys, ours)
	h.result.Judge("otter", hot.keys, bare)
	return set.close(ctx)
}

func (h *hitRun) report(ours, bare float64) {
	r := h.result
	for _, hot := range h.sizes.hot {
		for _, g := range []int{1, 2} {
			for _, s := range hitSystems {
				c := hitCase{s, hot, g}
				if !slices.Contains(h.opt.Systems, s) {
					continue
				}
				row := kit.Row{"system": s, "hot_keys": hot.keys, "full": hot.full, "hot_set": hot.String(), "goroutines": g, "mops_per_core": 1e3 / h.rounds.Spread(c, "cpu_ns").Median}
				h.rounds.Fill(row, c, "cpu_ns", "wall_ns")
				if a, ok := h.allocs[c]; ok {
					row["allocs"] = a
				}
				if bare := (hitCase{"otter", hot, g}); h.rounds.Has(bare) && s != "otter" && s != "clock" {
					row["times_otter"] = h.rounds.Times(c, bare, "cpu_ns")
				}
				r.Rows = append(r.Rows, row)
			}
		}
	}
	r.Rows = append(r.Rows, kit.Row{"system": "freshet", "overhead_bytes": ours}, kit.Row{"system": "otter", "overhead_bytes": bare})
	for _, set := range h.sizes.hot {
		h.aboveMap(set)
	}
	h.alone(ours)
	r.Set("key_bytes", len(hitKey(0)))
	r.Set("value_bytes", hitValueBytes)
	r.Set("round", h.sizes.round)
	r.Set("entries", h.sizes.entries)
}

// aboveMap compares a hit with the bare map and one reading of the clock.
func (h *hitRun) aboveMap(set hotSet) {
	for _, g := range []int{1, 2} {
		at := func(system string) []float64 { return h.rounds.Of(hitCase{system, set, g}, "cpu_ns") }
		own, floor, clock, bare := at("freshet"), at("otter+clock"), at("clock"), at("otter")
		if len(own) == 0 {
			continue
		}
		name := strings.NewReplacer(" ", "_", ",", "").Replace(set.String())
		h.result.Headline[fmt.Sprintf("hit_ns_%s_%d_goroutines", name, g)] = kit.SpreadOf(own).Median
		if len(floor) > 0 {
			extra := kit.SpreadOf(kit.Minus(own, floor))
			h.result.Headline[fmt.Sprintf("hit_beyond_otter_then_clock_ns_%s_%d_goroutines", name, g)] = extra.Median
			h.result.Goal(fmt.Sprintf("hit - (otter, then clock), %v, %d goroutines", set, g), "<= 10 ns", "", extra, extra.Median <= 10)
		}
		if len(clock) > 0 && len(bare) > 0 {
			extra := kit.SpreadOf(kit.Minus(own, clock, bare))
			h.result.Goal(fmt.Sprintf("hit - otter alone - clock alone, %v, %d goroutines", set, g), "<= 10 ns", "", extra, extra.Median <= 10)
		}
	}
}

// alone judges hits on the smallest hot set, where the cost is that of freshet and not that of
// fetching a key from memory.
func (h *hitRun) alone(ours float64) {
	r := h.result
	for _, s := range []struct{ system, name, what string }{{"freshet", "hit", "one at a time"}, {"freshet-batch", "batch_hit", "32 at a time"}} {
		c := hitCase{s.system, h.sizes.hot[0], 1}
		if !h.rounds.Has(c) {
			continue
		}
		rate, allocs := 1e3/h.rounds.Spread(c, "cpu_ns").Median, h.allocs[c]
		r.Headline[s.name+"_mops_per_core"], r.Headline[s.name+"_allocs"] = rate, allocs
		r.Goal("hits per core, M/s, "+s.what, ">= 15", "about 1", rate, rate >= 15)
		r.Goal("allocations of a hit, "+s.what, "0", "", allocs, allocs < 0.001)
	}
	r.Headline["overhead_bytes"] = ours
	r.Goal("bytes an entry takes beyond key and value", "< 120", "", ours, ours < 120)
}

func hitTables(r *kit.Report) []kit.Table {
	return []kit.Table{
		{Title: "One operation", Rows: r.With("cpu_ns"), Columns: kit.Columns("system", "system", "hot_set", "hot set", "goroutines", "goroutines", "cpu_ns", "CPU ns each",
			"wall_ns", "ns each, by the clock", "mops_per_core", "M/s per core", "allocs", "allocations", "times_otter", "CPU, times otter's")},
		{Title: fmt.Sprintf("Memory beyond key and value, of %s entries", r.Setting["entries"]), Rows: r.With("overhead_bytes"), Columns: kit.Columns("system", "system", "overhead_bytes", "bytes an entry")},
	}
}

// hitPlots returns a plot for each hot set, because their scales differ.
func hitPlots(r *kit.Report) (out []kit.Plot) {
	for _, set := range kit.Distinct(r.Rows, "hot_set") {
		rows := slices.DeleteFunc(r.With("cpu_ns"), func(row kit.Row) bool { return row["hot_set"] != set })
		p := kit.Plot{Title: "One hit, " + set, Y: "CPU ns per operation"}
		p.Groups, p.Series = kit.Grouped(rows, func(row kit.Row) string {
			if row["goroutines"] == 1 {
				return "1 goroutine"
			}
			return fmt.Sprint(row["goroutines"], " goroutines")
		}, kit.By("system"), "cpu_ns")
		out = append(out, p)
	}
	return out
}
