package linear

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"gonum.org/v1/plot/plotter"

	"github.com/freshet-cache/freshet/bench/kit"
)

// publishedP90 is what WriteGuards says in section 9.4.1 of figure 12a, over all its
// traces.
var publishedP90 = map[string]string{"freshet": "0.5 - 4.2 µs (CLINK)", "storage": "4.8 - 10.3 ms", "version": "3.3 - 9.0 ms", "chrono": "2.3 - 5.5 ms"}

// smallUC is the catalogue of quick runs.
func smallUCOf(o kit.Options) catalogue {
	c := ucWhole
	switch {
	case o.Preset == "tiny":
		c.tenants, c.catalogs, c.schemas, c.tables = 1, 2, 2, 5
	case o.Preset != "paper":
		c.tenants, c.catalogs, c.schemas = 2, 2, 10
	}
	return c
}

// tableSizes are the sizes of linear-traces and linear-writes.
type tableSizes struct {
	loadSizes
	rate, rateUC float64
}

func tableSizesOf(o kit.Options) tableSizes {
	switch {
	case o.Preset == "tiny":
		return tableSizes{loadSizes{100, 1, 100}, 2000, 2000}
	case o.Preset == "paper":
		return tableSizes{loadSizes{200_000, 5, 30_000}, cmp.Or(o.Number("rate"), 3000), cmp.Or(o.Number("rate"), 1000)}
	}
	return tableSizes{loadSizes{1200, 2, 400}, cmp.Or(o.Number("rate"), 2000), cmp.Or(o.Number("rate"), 1000)}
}

// linearTraces is figure 12a: read latency by trace.
func linearTraces(ctx context.Context, opt kit.Options) (r *kit.Report, err error) {
	sizes, dir := tableSizesOf(opt), ""
	if dir, err = dataDir(opt); err != nil {
		return nil, err
	}
	n := sizes.warm + sizes.rounds*sizes.round
	load := []*workload{uc(smallUCOf(opt), n, sizes.rateUC, 0.006, opt.Seed)}
	for i, make := range []func() (*workload, error){
		func() (*workload, error) { return meta(dir, n, sizes.rate, opt.Seed) },
		func() (*workload, error) { return twitter(clusters[0], n, sizes.rate, opt.Seed), nil },
		func() (*workload, error) { return twitter(clusters[1], n, sizes.rate, opt.Seed), nil },
		func() (*workload, error) { return twitter(clusters[2], n, sizes.rate, opt.Seed), nil },
		func() (*workload, error) { return twitter(clusters[3], n, sizes.rate, opt.Seed), nil },
		func() (*workload, error) { return recorded(dir, n, sizes.rate, opt.Number("writes"), opt.Seed) },
		func() (*workload, error) { return lobsters(n, sizes.rate, opt.Seed) },
	} {
		w, err := make()
		if err != nil {
			return nil, fmt.Errorf("workload %d: %w", i+2, err)
		}
		load = append(load, w)
	}
	t, err := measureTables(ctx, opt, load, sizes.loadSizes)
	if err != nil {
		return nil, err
	}
	r = t.report(opt, "workload")
	for _, w := range load {
		t.goals(r, w.name)
		r.Notes = append(r.Notes, fmt.Sprintf("%s: %d requests of %d rows, %.0f a second. %s.", w.name, len(w.asks), len(w.rows), w.rate, strings.TrimSuffix(w.source, ".")))
	}
	r.Notes = append(r.Notes, t.setting(sizes.loadSizes)...)
	r.Notes = append(r.Notes, "Published are the ranges that the paper gives for the P90 of reads over all its traces (WriteGuards, section 9.4.1 and figure 12a), on a cloud network with latencies of single-digit milliseconds and storage on nine machines; here everything is on one, and reading the store costs some hundred microseconds.")
	var names []string
	for _, w := range load {
		names = append(names, w.name)
	}
	r.Plots = append(r.Plots, kit.Levels("P90 of reads, median of the rounds", "latency, µs", names, t.lines(opt.Systems, names)))
	return r, nil
}

// linearWrites is figure 12b: read latency by the share of writes, under uc.
func linearWrites(ctx context.Context, opt kit.Options) (*kit.Report, error) {
	sizes := tableSizesOf(opt)
	shares := []float64{0, 0.006, 0.01, 0.05, 0.1, 0.2, 0.5}
	switch {
	case opt.Preset == "tiny":
		shares = []float64{0.006, 0.5}
	case opt.Preset != "paper":
		shares = []float64{0, 0.006, 0.05, 0.2, 0.5}
	}
	n := sizes.warm + sizes.rounds*sizes.round
	var load []*workload
	var names []string
	for _, share := range shares {
		w := uc(smallUCOf(opt), n, sizes.rateUC, share, opt.Seed)
		w.name = fmt.Sprintf("%g %%", 100*share)
		load, names = append(load, w), append(names, w.name)
	}
	t, err := measureTables(ctx, opt, load, sizes.loadSizes)
	if err != nil {
		return nil, err
	}
	r := t.report(opt, "writes")
	for _, s := range opt.Systems {
		first, last := t.at(s, names[0]), t.at(s, names[len(names)-1])
		grown := kit.SpreadOf(kit.Ratios(last.p90, first.p90))
		r.Headline["p90_times_"+s+"_"+headline(names[len(names)-1])] = grown.Median
		if strings.HasPrefix(s, "freshet") {
			r.Goals = append(r.Goals, kit.Goal{fmt.Sprintf("%s: stale reads, all shares", s), "0", "0", r.Anomalies[s], r.Anomalies[s] == 0})
		}
	}
	r.Notes = append(r.Notes, fmt.Sprintf("Rows and requests: %s; %.0f requests a second. Reads are made writes by chance, 60 %% of them of a table's grants, 25 %% of a table, 10 %% of a schema's grants, which fifty values show, 5 %% of a principal's groups.", load[0].source, load[0].rate))
	r.Notes = append(r.Notes, t.setting(sizes.loadSizes)...)
	r.Notes = append(r.Notes, "Published: \"latency remains stable as in-flight writes increase, except for Chrono\" (WriteGuards, section 9.4.2 and figure 12b), of CLINK, CRINK and Chrono; the figure's numbers are not in the text. Its axis is writes a second of a service whose rate of reads is not stated.")
	r.Plots = append(r.Plots, kit.Levels("P90 of reads by share of writes, median of the rounds", "latency, µs", names, t.lines(append([]string{"freshet-rows"}, opt.Systems...), names)))
	return r, nil
}

// tableRun is what was measured of all systems under all workloads.
type tableRun struct {
	load  []*workload
	found map[string]map[string]*tableFound // by workload, then system
}

func (t *tableRun) at(system, load string) *tableFound {
	if f := t.found[load][system]; f != nil {
		return f
	}
	return &tableFound{}
}

func measureTables(ctx context.Context, opt kit.Options, load []*workload, sizes loadSizes) (t *tableRun, err error) {
	w, err := startWorld(ctx, opt)
	if err != nil {
		return nil, err
	}
	defer func() {
		if e := w.stop(); err == nil {
			err = e
		}
	}()
	t = &tableRun{load, map[string]map[string]*tableFound{}}
	for _, l := range load {
		shape, systems := catalogue{}, opt.Systems
		if strings.HasPrefix(l.source, "synthetic") { // only uc composes values
			shape = smallUCOf(opt)
			if slices.Contains(systems, "freshet") {
				systems = append([]string{"freshet", "freshet-rows"}, slices.DeleteFunc(slices.Clone(systems), func(s string) bool { return s == "freshet" })...)
			}
		}
		if t.found[l.name], err = compare(ctx, opt, w, l, shape, systems, sizes); err != nil {
			return nil, err
		}
	}
	return t, nil
}

// report makes the rows and the tables that both experiments have; by is what the
// workloads are told apart by.
func (t *tableRun) report(opt kit.Options, by string) *kit.Report {
	r := &kit.Report{Headline: map[string]float64{}, Anomalies: map[string]int{}, Checked: map[string]int{}}
	for _, l := range t.load {
		all := t.found[l.name]
		for _, s := range slices.SortedFunc(maps.Keys(all), func(a, b string) int { return cmp.Compare(order(a), order(b)) }) {
			f := all[s]
			row := kit.Row{"system": s, by: l.name, "p50_us": kit.SpreadOf(f.p50), "p90_us": kit.SpreadOf(f.p90), "p99_us": kit.SpreadOf(f.p99), "hit_percent": kit.SpreadOf(f.hits),
				"queries": kit.SpreadOf(f.queries), "cpu_us": kit.SpreadOf(f.cpu), "lag_us": kit.SpreadOf(f.lag), "stale": f.stale, "reads": f.reads, "failed": f.failed}
			if len(f.write) > 0 {
				row["write_us"] = kit.SpreadOf(f.write)
			}
			if own := all["freshet"]; own != nil && s != "freshet" {
				row["times_p90"] = kit.SpreadOf(kit.Ratios(f.p90, own.p90))
			}
			if p, ok := publishedP90[s]; ok && by == "workload" {
				row["published"] = p
			}
			r.Rows = append(r.Rows, row)
			r.Anomalies[s] += f.stale
			r.Checked[s] += f.reads
			key := s + "_" + headline(l.name)
			r.Headline[key+"_p90_us"], r.Headline[key+"_hit_percent"], r.Headline[key+"_stale"] = kit.SpreadOf(f.p90).Median, kit.SpreadOf(f.hits).Median, float64(f.stale)
			if f.reason != nil {
				r.Notes = append(r.Notes, fmt.Sprintf("%s, %s: %d requests failed, the first one so: %v", l.name, s, f.failed, f.reason))
			}
		}
	}
	head := []kit.Column{{by, by}, {"system", "system"}}
	r.Tables = []kit.Table{
		{"Latency of reads", append(slices.Clone(head), kit.Column{"p50_us", "P50, µs"}, kit.Column{"p90_us", "P90, µs"}, kit.Column{"p99_us", "P99, µs"},
			kit.Column{"times_p90", "P90, times freshet's"}, kit.Column{"published", "published P90"}), r.Rows},
		{"What it takes", append(slices.Clone(head), kit.Column{"hit_percent", "reads from memory, %"}, kit.Column{"queries", "store's answers per request"}, kit.Column{"write_us", "P50 of writes, µs"},
			kit.Column{"cpu_us", "CPU µs per request"}, kit.Column{"stale", "stale reads"}, kit.Column{"reads", "rows read"}, kit.Column{"failed", "failed"}, kit.Column{"lag_us", "P99 of the sender's lag, µs"}), r.Rows},
	}
	if by != "workload" { // the paper has no numbers for them
		r.Tables[0].Columns = r.Tables[0].Columns[:6]
	}
	return r
}

// order is where a system stands in tables.
func order(system string) int {
	if system == "freshet-rows" {
		return 0
	}
	return 2*slices.Index(tableSystems, system) - 1
}

// headline is a name for scripts.
func headline(name string) string {
	return strings.NewReplacer(" ", "_", "%", "percent", ".", "_", "/s", "_per_second").Replace(name)
}

// goals are judged for each workload.
func (t *tableRun) goals(r *kit.Report, load string) {
	own, storage := t.at("freshet", load), t.at("storage", load)
	if len(own.p90) == 0 {
		return
	}
	r.Goals = append(r.Goals, kit.Goal{load + ": stale reads", "0", "0", own.stale, own.stale == 0})
	if times := kit.SpreadOf(kit.Ratios(storage.p90, own.p90)); len(storage.p90) > 0 {
		r.Headline["storage_p90_times_"+headline(load)] = times.Median
		r.Goals = append(r.Goals, kit.Goal{load + ": P90 of storage, times freshet's", ">= 1000", "about 1000 - 20000", times, times.Median >= 1000})
	}
}

// setting says what all systems have in common.
func (t *tableRun) setting(sizes loadSizes) []string {
	return []string{
		"The median of the rounds, with the least and the most in brackets. " + fmt.Sprintf("Systems take turns in rounds of %d requests, in the state of a service that has run for long, as the paper's have: what is to be read has been read before, so that no miss is the first of its row, and %d requests with their writes came behind that (a tenth for storage, which gains nothing).", sizes.round, sizes.warm),
		fmt.Sprintf("Open loop: %d clients, each on a schedule of its own; a request that has to wait for the one before counts from when it was due. Latency is seen from within the application, the time a sleeping client is woken late is told apart as lag.", driveClients),
		fmt.Sprintf("All systems use the same PostgreSQL, synced to disk, with %d connections each, on the same processors. storage, version, chrono, ttl and csc have a plain table without guards, and read all rows of a request with one statement; freshet's writes check a guard.", poolConns),
		"freshet is linear.Cache in process, as the owner of all keys has it: requests are taken to be sent to owners, as the paper's are. Under uc it is linear.View, which keeps the composed value, and freshet-rows keeps rows. A store's answer is one statement, or, for a View, one transaction.",
		fmt.Sprintf("ttl: %d instances of the application, rows live %v. csc: %d instances with client-side caching through rueidis, a redis-server beside the database, keys deleted behind each write, rows live %v. chrono: bounds %v ahead, its service and cache in redis-server; it keeps rows from the cache for as long after a write, which is longer than a quick run: its hit rate there is only right with the preset paper.", appInstances, rowTTL, appInstances, asideTTL, chronoAhead),
		"Stale reads are rows whose version was older than one acknowledged before the read began, judged alike for all systems, the filling of caches included. CPU is that of all processes: application, PostgreSQL and redis-server.",
	}
}

// lines are the P90s of systems, group by group.
func (t *tableRun) lines(systems, names []string) (list []kit.Series) {
	for _, s := range systems {
		one := kit.Series{Name: s}
		for i, n := range names {
			if f := t.at(s, n); len(f.p90) > 0 {
				one.Points = append(one.Points, plotter.XY{X: float64(i), Y: max(0.1, kit.SpreadOf(f.p90).Median)})
			}
		}
		if len(one.Points) > 0 {
			list = append(list, one)
		}
	}
	return list
}
