package causal

import (
	"context"
	"errors"
	"fmt"
	"math"
	"runtime"
	"time"

	"github.com/freshet-cache/freshet/bench/causalbase"
	"github.com/freshet-cache/freshet/bench/kit"
)

var causalOverheadSystems = []string{"freshet", "freshet-tcc", "hydro-con", "hydro-opt", "faastcc", "none"}

type causalOverheadSizes struct {
	keys   int
	rate   float64
	span   time.Duration
	rounds int
}

func causalOverheadSizesOf(o kit.Options) causalOverheadSizes {
	switch {
	case o.Preset == "tiny":
		return causalOverheadSizes{500, 300, 100 * time.Millisecond, 1}
	case o.Preset == "paper":
		return causalOverheadSizes{100_000, 1000, time.Minute, 3}
	}
	return causalOverheadSizes{100_000, 1000, 1500 * time.Millisecond, 2}
}

// weighed is what one round found of a system.
type weighed struct {
	phase
	heap     float64 // MB for each server
	metadata float64 // KB for each server, on average over the round
	token    float64 // bytes when nothing is carried
}

// publishedOverhead is figure 14.
var publishedOverhead = map[string]struct{ cpu, memory, metadata float64 }{
	"freshet": {42.0, 54.4, 35.1}, "freshet-tcc": {53.3, 57.4, 69.9}, "hydro-con": {98.3, 69.3, 45.3}, "hydro-opt": {54.4, 69.6, 99.8}, "faastcc": {52.9, 61.0, 28.8},
}

// causalOverhead is figure 14.
func causalOverhead(ctx context.Context, opt kit.Options) (*kit.Report, error) {
	sizes := causalOverheadSizesOf(opt)
	found, all := map[string][]weighed{}, map[string]causalVerdict{}
	err := kit.Turns(ctx, opt, sizes.rounds, func(system string, round int) error {
		w, v, err := weigh(ctx, sizes, system, opt.Seed+uint64(round))
		found[system] = append(found[system], w)
		sum := all[system]
		sum.add(v)
		all[system] = sum
		return err
	})
	if err != nil {
		return nil, err
	}
	return causalOverheadReport(opt, sizes, found, all)
}

func heapSize() float64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return float64(m.HeapAlloc) / 1e6
}

// weigh runs one system at a constant rate and looks now and then at what it holds.
func weigh(ctx context.Context, sizes causalOverheadSizes, system string, seed uint64) (w weighed, v causalVerdict, err error) {
	const servers = 3
	load := micro(servers, sizes.keys, seed)
	before := heapSize()
	r, err := startCausal(ctx, system, load, nil)
	if err != nil {
		return w, v, err
	}
	w.heap = (heapSize() - before) / servers
	ends, end := context.WithCancel(ctx)
	looked := make(chan float64)
	go func() {
		sum, n := 0.0, 0.0
		for ends.Err() == nil {
			sum, n = sum+float64(r.system.Metadata()), n+1
			kit.Sleep(ends, sizes.span/10)
		}
		looked <- sum / n / servers / 1e3
	}()
	w.phase, err = r.open(ctx, sizes.rate, sizes.span)
	end()
	w.metadata = <-looked
	if ring, ok := r.system.(*causalbase.Ring); ok && err == nil && system == "freshet" {
		s := ring.Spaces[0].Begin()
		for i := range servers { // it has been everywhere, and all is visible
			token, e := s.Token()
			if err = errors.Join(err, e); err != nil {
				break
			}
			w.token = math.Max(w.token, float64(len(token)))
			if s, e = ring.Spaces[i].Resume(token); e == nil {
				_, e = s.GetMany(ctx, "0", "1", "2")
			}
			err = errors.Join(err, e)
		}
		if token, e := s.Token(); e == nil {
			w.token = math.Max(w.token, float64(len(token)))
		}
	}
	if err = errors.Join(err, r.stop(ctx)); err != nil {
		return w, v, err
	}
	v, err = r.judge(len(r.history.Acts()))
	return w, v, err
}

func weights(list []weighed, what func(weighed) float64) []float64 {
	out := make([]float64, len(list))
	for i, w := range list {
		out[i] = what(w)
	}
	return out
}

func causalOverheadReport(opt kit.Options, sizes causalOverheadSizes, found map[string][]weighed, all map[string]causalVerdict) (*kit.Report, error) {
	r := &kit.Report{Headline: map[string]float64{}, Anomalies: map[string]int{}, Checked: map[string]int{}}
	verdicts(r, all)
	data := 0.0 // KB
	for k, v := range numbered(sizes.keys) {
		data += float64(len(k)+len(v)) / 1e3
	}
	own := found["freshet"]
	cpu := func(w weighed) float64 { return w.cpu * sizes.rate / 1e4 } // % of a processor
	share := func(w weighed) float64 { return 100 * w.metadata / data }
	var values []float64
	for _, s := range opt.Systems {
		f, p := found[s], publishedOverhead[s]
		row := kit.Row{"system": s, "cpu_percent": kit.SpreadOf(weights(f, cpu)), "heap_mb": kit.SpreadOf(weights(f, func(w weighed) float64 { return w.heap })),
			"metadata_kb": kit.SpreadOf(weights(f, func(w weighed) float64 { return w.metadata })), "metadata_percent": kit.SpreadOf(weights(f, share)), "p99_us": kit.SpreadOf(weights(f, func(w weighed) float64 { return w.p99 }))}
		if own != nil && s != "freshet" {
			row["cpu_times"] = kit.SpreadOf(kit.Ratios(weights(f, cpu), weights(own, cpu)))
		}
		if p.cpu > 0 {
			row["published_cpu"], row["published_mb"], row["published_kb"] = p.cpu, p.memory, p.metadata
		}
		r.Rows = append(r.Rows, row)
		r.Headline[s+"_cpu_percent"], r.Headline[s+"_metadata_percent"] = kit.SpreadOf(weights(f, cpu)).Median, kit.SpreadOf(weights(f, share)).Median
		values = append(values, kit.SpreadOf(weights(f, share)).Median)
	}
	r.Tables = []kit.Table{{fmt.Sprintf("At %.0f workflows a second", sizes.rate), []kit.Column{{"system", "system"}, {"cpu_percent", "CPU, % of a processor, all servers"}, {"cpu_times", "times freshet's"}, {"published_cpu", "published, %"}, {"heap_mb", "heap, MB per server"}, {"published_mb", "published, MB"}, {"metadata_kb", "metadata, KB per server"}, {"published_kb", "published, KB"}, {"metadata_percent", "% of the data set"}, {"p99_us", "P99, µs"}}, r.Rows}}
	if own != nil {
		meta, token := kit.SpreadOf(weights(own, share)), kit.SpreadOf(weights(own, func(w weighed) float64 { return w.token }))
		r.Headline["token_bytes"] = token.Max
		r.Goals = []kit.Goal{{"freshet: metadata, % of the data set", "< 2.2", "2.2", meta, meta.Median < 2.2},
			{"freshet: bytes of a token that carries nothing, 3 servers", "< 200", "-", token, token.Max < 200},
			{"freshet: workflows that saw an anomaly", "0", "0", r.Anomalies["freshet"], r.Anomalies["freshet"] == 0}}
	}
	if t := found["freshet-tcc"]; t != nil {
		meta := kit.SpreadOf(weights(t, share))
		r.Goals = append(r.Goals, kit.Goal{"freshet-tcc: metadata, % of the data set", "< 4.5", "4.5", meta, meta.Median < 4.5},
			kit.Goal{"freshet-tcc: workflows that saw an anomaly", "0", "0", r.Anomalies["freshet-tcc"], r.Anomalies["freshet-tcc"] == 0})
	}
	r.Notes = append([]string{
		fmt.Sprintf("The micro-benchmark's workflows, %.0f a second, three servers, %d keys with values of 8 bytes: a data set of %.0f KB. %d rounds of %v; medians with the least and the most. CPU is the process's: three servers, the store, the clients and the emulation, most of which is the emulation at this rate: the row none is what there is without a cache.", sizes.rate, sizes.keys, data, sizes.rounds, sizes.span),
		"Metadata, as the paper counts it: the I-cache for freshet, taken from above as all that the store's journal has, in the ring's encoding, which outlives I-cache and log; for freshet-tcc the same, for its C-cache holds no dependencies, and without the former values that it keeps; dependencies of what is in the cache for HydroCache; interval ends for FaaSTCC. Beside that freshet keeps a stamp and a name of 16 bytes each with every key, as the paper's servers keep a vector clock, which it does not count.",
		"The heap is what filled caches and the store take together, over three. Published: section 9.3 and figure 14, one cache server each, its metadata after a minute.",
	}, causalNotes()...)
	b, err := kit.Bars("Metadata of a server", "% of the data set", opt.Systems, []kit.Series{{Name: "metadata", Values: values}})
	r.Plots = []kit.Figure{b}
	return r, err
}
