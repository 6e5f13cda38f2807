package linear

import (
	"context"
	"fmt"

	"github.com/freshet-cache/freshet/bench/kit"
)

// hotKeys are the rows of linear-hotkey, of which the first is hot.
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

// hotSpikes are the writes a second of one key at which a percentile of the paper's
// reads becomes as slow as its storage (figure 12c).
var hotSpikes = []struct {
	percentile string
	of         func(*tableFound) []float64
	published  float64
}{
	{"P99", func(f *tableFound) []float64 { return f.p99 }, 80},
	{"P90", func(f *tableFound) []float64 { return f.p90 }, 200},
	{"P50", func(f *tableFound) []float64 { return f.p50 }, 400},
}

// linearHotkey is figure 12c: one key that is written more and more often, and one that
// gets more and more of all requests. It has one owner; linear-replicas has several.
func linearHotkey(ctx context.Context, opt kit.Options) (*kit.Report, error) {
	sizes := tableSizesOf(opt)
	perSecond, shares := []float64{0, 20, 80, 200, 400, 800}, []float64{0.01, 0.25, 0.5, 0.75, 1}
	switch {
	case opt.Preset == "tiny":
		perSecond, shares = []float64{0, 400}, []float64{0.5}
	case opt.Preset != "paper":
		perSecond, shares = []float64{0, 80, 200, 400, 800}, []float64{0.01, 0.5, 1}
	}
	n := sizes.warm + sizes.rounds*sizes.round
	var load []*workload
	var first, second []string
	for _, w := range perSecond {
		name := fmt.Sprintf("%g writes/s", w)
		load, first = append(load, hot(name, n, sizes.rate+w, 1, w/(sizes.rate+w), opt.Seed)), append(first, name)
	}
	for _, share := range shares {
		name := fmt.Sprintf("%g %% of requests", 100*share)
		load, second = append(load, hot(name, n, sizes.rate, share, 0.05, opt.Seed)), append(second, name)
	}
	t, err := measureTables(ctx, opt, load, sizes.loadSizes)
	if err != nil {
		return nil, err
	}
	r := t.report(opt, "hot key")
	for _, spike := range hotSpikes {
		t.spike(r, spike.percentile, spike.of, spike.published, perSecond, first)
	}
	for _, s := range opt.Systems {
		if s == "freshet" {
			r.Goals = append(r.Goals, kit.Goal{"stale reads", "0", "0", r.Anomalies[s], r.Anomalies[s] == 0})
		}
	}
	r.Notes = append(r.Notes, fmt.Sprintf("Writes/s: one key, %.0f reads a second besides. Per cent of requests: the hot key's share of %.0f requests a second, of which 5 %% are writes, among %d keys. Values of 230 bytes.", sizes.rate, sizes.rate, hotKeys))
	r.Notes = append(r.Notes, t.setting(sizes.loadSizes)...)
	r.Notes = append(r.Notes, "Published: P99, P90 and P50 of CLINK's reads of one key rise to the latency of storage, 2 to 2.8 ms, at 80, 200 and 400 writes a second of it (WriteGuards, section 9.4.2 and figure 12c); the rate of reads is not stated. A read that comes while its key is written goes to storage, so what counts is for how much of the time a write is under way: writes take some hundred microseconds here, and some milliseconds there.",
		"The key has one owner; linear-replicas measures one with several.")
	r.Plots = append(r.Plots, kit.Levels("P90 of reads of one key that is written, median of the rounds", "latency, µs", first, t.lines(opt.Systems, first)),
		kit.Levels("P90 of reads by the share of one key, 5 % writes", "latency, µs", second, t.lines(opt.Systems, second)))
	return r, nil
}

// spike finds from how many writes a second on, if any, a percentile is half of
// storage's or more.
func (t *tableRun) spike(r *kit.Report, percentile string, of func(*tableFound) []float64, published float64, perSecond []float64, names []string) {
	got, at := any(fmt.Sprintf("none up to %g writes/s", perSecond[len(perSecond)-1])), 0.0
	for i, name := range names {
		if perSecond[i] == 0 { // what is slow without a write is the machine
			continue
		}
		own, storage := kit.SpreadOf(of(t.at("freshet", name))).Median, kit.SpreadOf(of(t.at("storage", name))).Median
		if own == 0 || storage == 0 {
			return
		}
		if own > storage/2 {
			got, at = fmt.Sprintf("%g writes/s", perSecond[i]), perSecond[i]
			break
		}
	}
	r.Headline["spike_"+percentile+"_writes_per_second"] = at // 0 if there was none
	r.Goals = append(r.Goals, kit.Goal{percentile + " as slow as half of storage's from", fmt.Sprintf(">= %g writes/s", published), fmt.Sprintf("%g writes/s", published), got, at == 0 || at >= published})
}
