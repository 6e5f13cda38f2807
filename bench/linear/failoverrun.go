package linear

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/freshet-cache/freshet/bench/kit"
	"github.com/freshet-cache/freshet/check"
)

const timelineStep = 100 * time.Millisecond

// seen has the figures of an outage.
type seen struct {
	calm         *kit.Latencies // latencies of reads before the fault
	own, other   *kit.Latencies // latencies of reads after it: of keys of the victim, and of others
	reads        int            // after it
	readsFailed  int
	writes       int // of keys of the victim, after it
	writesFailed int
	waited       time.Duration // the longest successful one, from when it was due
	lastFailed   time.Duration // when the last one that failed was due, after the fault
	bins         []float64     // seconds after the fault
	served       []float64     // answered reads per second, by bin
	written      []float64
}

// see computes the figures from what the clients have recorded.
func (o *outage) see() *seen {
	s := &seen{calm: kit.NewLatencies(), own: kit.NewLatencies(), other: kit.NewLatencies()}
	last := o.r.schedule.Due(len(o.r.accesses))
	served, written := make([]float64, last/timelineStep+1), make([]float64, last/timelineStep+1)
	for i := range o.r.accesses {
		op, due, done := &o.r.history[i], o.r.schedule.Due(i), o.r.done[i]
		ok, owned := op.Outcome == check.OK, o.owned[op.Key]
		bin := min(int(done/timelineStep), len(served)-1)
		late := o.r.schedule.Late(i, done)
		switch {
		case op.Kind == check.Read && due < o.at:
			s.calm.Add(late, 1)
		case op.Kind == check.Read:
			s.read(owned, ok, late)
		case due >= o.at && owned:
			if s.writes++; ok {
				s.waited = max(s.waited, late)
			} else {
				s.writesFailed++
				s.lastFailed = max(s.lastFailed, due-o.at)
			}
		}
		switch {
		case ok && op.Kind == check.Read:
			served[bin]++
		case ok && owned:
			written[bin]++
		}
	}
	for bin := range served {
		x := (time.Duration(bin) * timelineStep).Seconds() - o.at.Seconds()
		s.bins = append(s.bins, x)
		s.served = append(s.served, served[bin]/timelineStep.Seconds())
		s.written = append(s.written, written[bin]/timelineStep.Seconds())
	}
	return s
}

// read adds a read after the fault.
func (s *seen) read(owned, ok bool, late time.Duration) {
	if s.reads++; !ok {
		s.readsFailed++
	}
	if owned {
		s.own.Add(late, 1)
	} else {
		s.other.Add(late, 1)
	}
}

// linearFailover measures reads and writes around a crash, a pause and a drain of an owner.
func linearFailover(ctx context.Context, opt kit.Options) (r *kit.Report, err error) {
	sizes := failoverSizesOf(opt)
	c, err := gather(ctx, opt, sizes)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, c.stop()) }()
	r = kit.NewReport()
	for i, system := range opt.Systems {
		o, err := c.trial(ctx, system, opt.Seed+uint64(i))
		if err != nil {
			return nil, fmt.Errorf("%s: %w", system, err)
		}
		outageRows(r, system, o, sizes)
	}
	r.Set("lease", sizes.lease)
	r.Set("keys", sizes.keys)
	r.Set("paused", sizes.paused)
	r.Set("rate", sizes.rate)
	r.Set("timeout", traceTimeout)
	return r, nil
}

// readLimit is the goal for the longest read: short in comparison with a lease.
const readLimit = 500 * time.Millisecond

// outageRows adds rows for a fault: one with the figures, and one for each tenth of a second, which
// the plots show.
func outageRows(r *kit.Report, system string, o *outage, sizes failoverSizes) {
	s := o.see()
	longest := time.Duration(max(s.own.Longest(), s.other.Longest()))
	row := kit.Row{"system": system, "reads": s.reads, "reads_failed": s.readsFailed, "stale": o.stale, "calm_p99_us": s.calm.Micros(99),
		"own_p50_us": s.own.Micros(50), "own_p99_us": s.own.Micros(99), "own_max_ms": float64(s.own.Longest()) / 1e6, "other_p99_us": s.other.Micros(99), "other_max_ms": float64(s.other.Longest()) / 1e6,
		"writes": s.writes, "writes_failed": s.writesFailed, "waited_ms": float64(s.waited.Milliseconds()), "last_failed_ms": "none"}
	if s.writesFailed > 0 {
		row["last_failed_ms"] = float64(s.lastFailed.Milliseconds())
	}
	r.Rows = append(r.Rows, row)
	for i, at := range s.bins {
		r.Rows = append(r.Rows, kit.Row{"system": system, "second": at, "reads_per_second": s.served[i], "writes_per_second": s.written[i]})
	}
	within, back := sizes.lease+2*time.Second, max(s.waited, s.lastFailed)
	r.Headline[system+"_reads_failed"], r.Headline[system+"_writes_back_ms"] = float64(s.readsFailed), float64(back.Milliseconds())
	r.Headline[system+"_stale"], r.Headline[system+"_longest_read_ms"] = float64(o.stale), float64(longest.Milliseconds())
	r.Judge(system, o.checked, o.wrong)
	r.Goal(system+": reads that failed", "0", "", s.readsFailed, s.readsFailed == 0)
	r.Goal(system+": stale reads", "0", "", o.stale, o.stale == 0)
	r.Goal(system+": the longest read", fmt.Sprint("<= ", readLimit), "", fmt.Sprintf("%.3f s", longest.Seconds()), longest <= readLimit)
	r.Goal(system+": writes succeed again", fmt.Sprintf("within the lease + 2 s = %v", within), "", fmt.Sprintf("%.1f s", back.Seconds()), s.writes > s.writesFailed && back <= within)
	if o.reason != "" {
		r.Remark("The checker says of %s: %s", system, o.reason)
	}
}

func failoverTables(r *kit.Report) []kit.Table {
	return []kit.Table{
		{Title: "Reads at the other nodes", Rows: r.With("reads"), Columns: kit.Columns("system", "fault", "reads", "reads after it", "reads_failed", "failed", "stale", "stale reads", "calm_p99_us", "P99 before, µs",
			"other_p99_us", "P99 after, keys of others, µs", "other_max_ms", "longest, ms", "own_p50_us", "P50, the victim's keys, µs", "own_p99_us", "P99, µs", "own_max_ms", "longest, ms")},
		{Title: "Writes of the victim's keys, at the other nodes", Rows: r.With("reads"), Columns: kit.Columns("system", "fault", "writes", "writes after it", "waited_ms", "the longest that succeeded, ms",
			"writes_failed", "failed or unknown", "last_failed_ms", "the last of them was due, ms after the fault")},
	}
}

// failoverPlots has a plot for each fault.
func failoverPlots(r *kit.Report) (out []kit.Plot) {
	for _, system := range kit.Systems(r.With("reads")) {
		rows := slices.DeleteFunc(r.With("second"), func(row kit.Row) bool { return row["system"] != system })
		p := kit.Plot{Title: system + ": answers around the fault, at 0 s", X: "seconds after the fault", Y: "answers a second", Mark: true}
		for _, what := range []struct{ column, name string }{{"reads_per_second", "reads"}, {"writes_per_second", "writes of the victim's keys"}} {
			for _, one := range kit.Curves(rows, "second", what.column) {
				whole := one.Points[:len(one.Points)-1] // the last tenth of a second ends with the run
				p.Series = append(p.Series, kit.Series{Name: what.name, Points: whole})
			}
		}
		out = append(out, p)
	}
	return out
}
