package linear

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/freshet-cache/freshet/bench/kit"
)

// tableCase is a system under a workload.
type tableCase struct{ workload, system string }

// tableCount has the counts of a case, over all rounds.
type tableCount struct {
	reads, stale, failed int
	reason               error // of the first failure
}

// tableRun has the measurements of all systems under all workloads.
type tableRun struct {
	opt    kit.Options
	sizes  loadSizes
	by     string // what distinguishes the workloads
	load   []*workload
	rounds kit.Rounds[tableCase]
	counts map[tableCase]tableCount
}

// measureTables runs all systems in turn under each workload.
func measureTables(ctx context.Context, opt kit.Options, by string, load []*workload) (t *tableRun, err error) {
	t = &tableRun{opt: opt, sizes: tableSizesOf(opt).loadSizes, by: by, load: load, counts: map[tableCase]tableCount{}}
	w, err := startWorld(ctx, opt)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, w.stop()) }()
	for _, l := range load {
		if err := t.compare(ctx, w, l); err != nil {
			return nil, err
		}
	}
	return t, nil
}

// systems returns the systems for a workload. If values are composed of several rows, freshet-rows
// keeps rows, in addition to freshet.
func (t *tableRun) systems(load *workload) []string {
	at := slices.Index(t.opt.Systems, "freshet")
	if at < 0 || !load.composed {
		return t.opt.Systems
	}
	return append([]string{"freshet", "freshet-rows"}, slices.Delete(slices.Clone(t.opt.Systems), at, at+1)...)
}

// compare runs the systems in turn under one workload.
func (t *tableRun) compare(ctx context.Context, w *world, load *workload) (err error) {
	systems, shape := t.systems(load), catalogue{}
	if load.composed {
		shape = smallUCOf(t.opt)
	}
	stage, err := w.stage(ctx, load, shape)
	if err != nil {
		return err
	}
	drivers := map[string]*driver{}
	defer func() {
		for _, d := range drivers {
			err = errors.Join(err, d.sys.close())
		}
		err = errors.Join(err, stage.close(context.WithoutCancel(ctx)))
	}()
	for _, s := range systems {
		t.opt.Progress(fmt.Sprintf("%s: %d rows for %s", load.name, len(load.rows), s))
		sys, err := stage.open(ctx, s)
		if err != nil {
			return fmt.Errorf("%s: %s: %w", load.name, s, err)
		}
		drivers[s] = newDriver(load, sys)
		if err := drivers[s].begin(ctx, s, t.sizes); err != nil {
			return fmt.Errorf("%s: %s: %w", load.name, s, err)
		}
	}
	for round := range t.sizes.rounds {
		for _, s := range kit.Order(systems, round) {
			t.opt.Progress(fmt.Sprintf("%s, round %d of %d: %s", load.name, round+1, t.sizes.rounds, s))
			from := t.sizes.warm + round*t.sizes.round
			p, err := drivers[s].run(ctx, from, from+t.sizes.round, load.rate)
			if err != nil {
				return fmt.Errorf("%s: %s: %w", load.name, s, err)
			}
			t.add(tableCase{load.name, s}, p)
		}
	}
	for s, d := range drivers {
		c := tableCase{load.name, s}
		sum := t.counts[c]
		sum.reads, sum.stale = d.judge.Counts()
		sum.reason = d.reason
		t.counts[c] = sum
	}
	return nil
}

// add adds the measurements of a round.
func (t *tableRun) add(c tableCase, p *part) {
	for column, v := range map[string]float64{"p50_us": p.reads.Micros(50), "p90_us": p.reads.Micros(90), "p99_us": p.reads.Micros(99),
		"hit_percent": 100 * float64(p.hits) / float64(max(1, p.read)), "queries": float64(p.queries) / float64(p.asks),
		"cpu_us": float64(p.cpu.Microseconds()) / float64(p.asks), "lag_us": p.lag.Micros(99)} {
		t.rounds.Add(c, column, v)
	}
	if p.writes.Count() > 0 {
		t.rounds.Add(c, "write_us", p.writes.Micros(50))
	}
	sum := t.counts[c]
	sum.failed += p.failed
	t.counts[c] = sum
}

// smallUC is the catalogue for quick runs.
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
