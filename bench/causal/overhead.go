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

// publishedOverhead has the figures of figure 14.
var publishedOverhead = map[string]struct{ cpu, memory, metadata float64 }{
	"freshet": {42.0, 54.4, 35.1}, "freshet-tcc": {53.3, 57.4, 69.9}, "hydro-con": {98.3, 69.3, 45.3}, "hydro-opt": {54.4, 69.6, 99.8}, "faastcc": {52.9, 61.0, 28.8},
}

// overhead measures what causal caches cost.
type overhead struct {
	opt      kit.Options
	sizes    causalOverheadSizes
	data     float64 // size of the data set, in KB
	rounds   kit.Rounds[string]
	verdicts verdicts
}

// overheadServers is how many servers each system has.
const overheadServers = 3

// causalOverhead reproduces figure 14.
func causalOverhead(ctx context.Context, opt kit.Options) (*kit.Report, error) {
	o := &overhead{opt: opt, sizes: causalOverheadSizesOf(opt), verdicts: verdicts{}}
	for k, v := range numbered(o.sizes.keys) {
		o.data += float64(len(k)+len(v)) / 1e3
	}
	if err := kit.Turns(ctx, opt, o.sizes.rounds, func(system string, round int) error { return o.round(ctx, system, opt.Seed+uint64(round)) }); err != nil {
		return nil, err
	}
	return o.report(), nil
}

func heapSize() float64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return float64(m.HeapAlloc) / 1e6
}

// round runs one system at a constant rate and samples the sizes of its metadata.
func (o *overhead) round(ctx context.Context, system string, seed uint64) error {
	before := heapSize()
	r, err := startCausal(ctx, system, micro(overheadServers, o.sizes.keys, seed), nil)
	if err != nil {
		return err
	}
	o.rounds.Add(system, "heap_mb", (heapSize()-before)/overheadServers)
	ends, end := context.WithCancel(ctx)
	looked := make(chan float64)
	go func() {
		sum, n := 0.0, 0.0
		for ends.Err() == nil {
			sum, n = sum+float64(r.system.Metadata()), n+1
			kit.Sleep(ends, o.sizes.span/10)
		}
		looked <- sum / n / overheadServers / 1e3
	}()
	p, err := r.open(ctx, o.sizes.rate, o.sizes.span)
	end()
	metadata := <-looked
	o.rounds.Add(system, "metadata_kb", metadata)
	o.rounds.Add(system, "metadata_percent", 100*metadata/o.data)
	o.rounds.Add(system, "cpu_percent", p.cpu*o.sizes.rate/1e4) // per cent of one processor
	o.rounds.Add(system, "p99_us", p.p99)
	if ring, ok := r.system.(*causalbase.Ring); ok && err == nil && system == "freshet" {
		var bytes float64
		bytes, err = longestToken(ctx, ring)
		o.rounds.Add(system, "token", bytes)
	}
	if err = errors.Join(err, r.stop(ctx)); err != nil {
		return err
	}
	v, err := r.judge(len(r.history.Acts()))
	o.verdicts.add(system, v)
	return err
}

// longestToken returns the size of the longest token of a session that visited all servers when
// every write was visible, so that it carries no writes.
func longestToken(ctx context.Context, ring *causalbase.Ring) (longest float64, err error) {
	s := ring.Spaces[0].Begin()
	for i := range overheadServers {
		token, e := s.Token()
		if err = errors.Join(err, e); err != nil {
			return longest, err
		}
		longest = math.Max(longest, float64(len(token)))
		if s, e = ring.Spaces[i].Resume(token); e == nil {
			_, e = s.GetMany(ctx, "0", "1", "2")
		}
		err = errors.Join(err, e)
	}
	if token, e := s.Token(); e == nil {
		longest = math.Max(longest, float64(len(token)))
	}
	return longest, err
}

func (o *overhead) report() *kit.Report {
	r := kit.NewReport()
	common(r)
	o.verdicts.report(r)
	for _, s := range o.opt.Systems {
		row := kit.Row{"system": s}
		o.rounds.Fill(row, s, "cpu_percent", "heap_mb", "metadata_kb", "metadata_percent", "p99_us")
		if o.rounds.Has("freshet") && s != "freshet" {
			row["cpu_times"] = o.rounds.Times(s, "freshet", "cpu_percent")
		}
		if p := publishedOverhead[s]; p.cpu > 0 {
			row["published_cpu"], row["published_mb"], row["published_kb"] = p.cpu, p.memory, p.metadata
		}
		r.Rows = append(r.Rows, row)
		r.Headline[s+"_cpu_percent"], r.Headline[s+"_metadata_percent"] = o.rounds.Spread(s, "cpu_percent").Median, o.rounds.Spread(s, "metadata_percent").Median
	}
	if o.rounds.Has("freshet") {
		meta, token := o.rounds.Spread("freshet", "metadata_percent"), o.rounds.Spread("freshet", "token")
		r.Headline["token_bytes"] = token.Max
		r.Goal("freshet: metadata, % of the data set", "< 2.2", "2.2", meta, meta.Median < 2.2)
		r.Goal("freshet: bytes of a token that carries nothing, 3 servers", "< 200", "-", token, token.Max < 200)
		judged(r, "freshet")
	}
	if o.rounds.Has("freshet-tcc") {
		meta := o.rounds.Spread("freshet-tcc", "metadata_percent")
		r.Goal("freshet-tcc: metadata, % of the data set", "< 4.5", "4.5", meta, meta.Median < 4.5)
		judged(r, "freshet-tcc")
	}
	r.Set("rate", o.sizes.rate)
	r.Set("keys", o.sizes.keys)
	r.Set("data", fmt.Sprintf("%.0f", o.data))
	r.Set("rounds", o.sizes.rounds)
	r.Set("span", o.sizes.span)
	return r
}

func overheadTables(r *kit.Report) []kit.Table {
	return []kit.Table{{Title: fmt.Sprintf("At %s workflows a second", r.Setting["rate"]), Rows: r.Rows, Columns: kit.Columns("system", "system",
		"cpu_percent", "CPU, % of a processor, all servers", "cpu_times", "times freshet's", "published_cpu", "published, %", "heap_mb", "heap, MB per server", "published_mb", "published, MB",
		"metadata_kb", "metadata, KB per server", "published_kb", "published, KB", "metadata_percent", "% of the data set", "p99_us", "P99, µs")}}
}

func overheadPlots(r *kit.Report) []kit.Plot {
	p := kit.Plot{Title: "Metadata of a server", Y: "% of the data set"}
	p.Groups, p.Series = kit.Grouped(r.Rows, kit.By("system"), func(kit.Row) string { return "metadata of a server" }, "metadata_percent")
	return []kit.Plot{p}
}
