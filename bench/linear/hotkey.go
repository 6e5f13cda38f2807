package linear

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/freshet-cache/freshet/bench/kit"
)

// hotKeys is the number of rows of linear-hotkey. The first row is the hot one.
const hotKeys = 1000

// hot makes n requests of rows of 230 bytes, as the paper's values: the first row gets
// the share hot of them, the others the rest; a share of all are writes.
func hot(name string, n int, rate, hot, writes float64, seed uint64) *workload {
	b, r := build(name, rate), kit.Stream(seed, 24)
	b.w.source = "generated"
	for i := range hotKeys {
		b.row(fmt.Sprintf("key:%06d", i), 230)
	}
	for range n {
		row := int32(0)
		if r.Float64() >= hot {
			row = int32(1 + r.IntN(hotKeys-1))
		}
		if r.Float64() < writes {
			b.write(row, 230)
		} else {
			b.read(row)
		}
	}
	return b.w
}

// hotSpikes are the published rates of writes of one key, per second, at which a percentile of
// reads becomes as slow as storage (figure 12c).
var hotSpikes = []struct {
	percentile, column string
	published          float64
}{{"P99", "p99_us", 80}, {"P90", "p90_us", 200}, {"P50", "p50_us", 400}}

// hotLoads are the workloads of linear-hotkey: by the writes of the hot key per second, and by its
// share of the requests.
func hotLoads(opt kit.Options) (perSecond []float64, load []*workload) {
	sizes := tableSizesOf(opt)
	perSecond, shares := []float64{0, 20, 80, 200, 400, 800}, []float64{0.01, 0.25, 0.5, 0.75, 1}
	switch opt.Preset {
	case "tiny":
		perSecond, shares = []float64{0, 400}, []float64{0.5}
	case "smoke":
		perSecond, shares = []float64{0, 80, 200, 400, 800}, []float64{0.01, 0.5, 1}
	}
	n := sizes.warm + sizes.rounds*sizes.round
	for _, w := range perSecond {
		load = append(load, hot(fmt.Sprintf("%g writes/s", w), n, sizes.rate+w, 1, w/(sizes.rate+w), opt.Seed))
	}
	for _, share := range shares {
		load = append(load, hot(fmt.Sprintf("%g %% of requests", 100*share), n, sizes.rate, share, 0.05, opt.Seed))
	}
	return perSecond, load
}

// linearHotkey reproduces figure 12c: one key with a growing rate of writes, and one with a growing
// share of all requests. The key has one owner; linear-replicas measures several.
func linearHotkey(ctx context.Context, opt kit.Options) (*kit.Report, error) {
	perSecond, load := hotLoads(opt)
	t, err := measureTables(ctx, opt, "hot key", load)
	if err != nil {
		return nil, err
	}
	r := t.report()
	for _, spike := range hotSpikes {
		t.spike(r, spike.percentile, spike.column, spike.published, perSecond)
	}
	if slices.Contains(opt.Systems, "freshet") {
		r.Goal("stale reads", "0", "0", r.Anomalies["freshet"], r.Anomalies["freshet"] == 0)
	}
	r.Set("rate", tableSizesOf(opt).rate)
	r.Set("keys", hotKeys)
	return r, nil
}

// spike returns the least rate of writes at which a percentile is half of that of storage or more.
// The workloads by writes per second come first in the run.
func (t *tableRun) spike(r *kit.Report, percentile, column string, published float64, perSecond []float64) {
	got, at := any(fmt.Sprintf("none up to %g writes/s", perSecond[len(perSecond)-1])), 0.0
	for i, rate := range perSecond {
		if rate == 0 { // without writes, only the machine makes a read slow
			continue
		}
		name := t.load[i].name
		own, storage := t.rounds.Spread(tableCase{name, "freshet"}, column).Median, t.rounds.Spread(tableCase{name, "storage"}, column).Median
		if own == 0 || storage == 0 {
			return
		}
		if own > storage/2 {
			got, at = fmt.Sprintf("%g writes/s", rate), rate
			break
		}
	}
	r.Headline["spike_"+percentile+"_writes_per_second"] = at // 0 if there was none
	r.Goal(percentile+" as slow as half of storage's from", fmt.Sprintf(">= %g writes/s", published), fmt.Sprintf("%g writes/s", published), got, at == 0 || at >= published)
}

func hotkeyTables(r *kit.Report) []kit.Table { return latencyTables(r, "hot key") }

// hotkeyPlots shows writes per second and shares as lines, because they are numbers.
func hotkeyPlots(r *kit.Report) []kit.Plot {
	written := kit.Plot{Title: "P90 of reads of one key that is written", X: "writes a second of the key", Y: "latency, µs", LogY: true}
	share := kit.Plot{Title: "P90 of reads by the share of one key, 5 % writes", X: "requests for the key, % of all", Y: "latency, µs", LogY: true}
	var rows [2][]kit.Row
	for _, row := range systemsFirst(r.With("p90_us")) {
		name, n := kit.Text(row["hot key"]), 0.0
		if _, err := fmt.Sscan(name, &n); err != nil {
			continue // a name without a number has no place on an axis
		}
		at := 0
		if strings.HasSuffix(name, "of requests") {
			at = 1
		}
		rows[at] = append(rows[at], kit.Row{"system": row["system"], "x": n, "p90_us": row["p90_us"]})
	}
	for i, p := range []*kit.Plot{&written, &share} {
		p.Series = kit.Curves(rows[i], "x", "p90_us")
		for _, text := range kit.Distinct(rows[i], "x") {
			n, _ := strconv.ParseFloat(text, 64) // numbers were checked above
			p.Ticks = append(p.Ticks, n)
		}
	}
	return []kit.Plot{written, share}
}
