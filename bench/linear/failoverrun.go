package linear

import (
	"context"
	"errors"
	"fmt"
	"time"

	"gonum.org/v1/plot/plotter"

	"github.com/freshet-cache/freshet/bench/kit"
	"github.com/freshet-cache/freshet/check"
)

const timelineStep = 100 * time.Millisecond

// seen is an outage in figures.
type seen struct {
	calm         *kit.Latencies // of reads before the fault
	own, other   *kit.Latencies // of reads behind it: of the victim's keys, and of others
	reads        int            // behind it
	readsFailed  int
	writes       int // of the victim's keys, behind it
	writesFailed int
	waited       time.Duration // the longest of those that succeeded, from when it was due
	lastFailed   time.Duration // when the last one that failed was due, after the fault
	served       plotter.XYs   // by time, a second
	written      plotter.XYs
}

// see makes figures of what the clients have recorded.
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
		s.served = append(s.served, plotter.XY{X: x, Y: served[bin] / timelineStep.Seconds()})
		s.written = append(s.written, plotter.XY{X: x, Y: written[bin] / timelineStep.Seconds()})
	}
	return s
}

// read adds a read behind the fault.
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

// linearFailover is reads and writes around a crash, a pause and a drain of an owner.
func linearFailover(ctx context.Context, opt kit.Options) (r *kit.Report, err error) {
	sizes := failoverSizesOf(opt)
	c, err := gather(ctx, opt, sizes)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, c.stop()) }()
	r = &kit.Report{Headline: map[string]float64{}, Anomalies: map[string]int{}, Checked: map[string]int{}}
	for i, system := range opt.Systems {
		o, err := c.trial(ctx, system, opt.Seed+uint64(i))
		if err != nil {
			return nil, fmt.Errorf("%s: %w", system, err)
		}
		outageRows(r, system, o, sizes)
	}
	var lines []kit.Row // ten a second would fill the page: the plots have them all
	for _, row := range r.Rows {
		if _, ok := row["reads"]; ok {
			lines = append(lines, row)
		}
	}
	r.Tables = []kit.Table{
		{"Reads at the other nodes", []kit.Column{{"system", "fault"}, {"reads", "reads behind it"}, {"reads_failed", "failed"}, {"stale", "stale reads"}, {"calm_p99_us", "P99 before, µs"},
			{"other_p99_us", "P99 behind, keys of others, µs"}, {"other_max_ms", "longest, ms"}, {"own_p50_us", "P50, the victim's keys, µs"}, {"own_p99_us", "P99, µs"}, {"own_max_ms", "longest, ms"}}, lines},
		{"Writes of the victim's keys, at the other nodes", []kit.Column{{"system", "fault"}, {"writes", "writes behind it"}, {"waited_ms", "the longest that succeeded, ms"}, {"writes_failed", "failed or unknown"}, {"last_failed_ms", "the last of them was due, ms after the fault"}}, lines},
	}
	r.Notes = append(r.Notes, fmt.Sprintf("Three processes over one PostgreSQL, leases of %v; the second, without the assigner, owns at least the middle third of %d keys and is killed (SIGKILL), or stopped for %v (SIGSTOP), or told to end (SIGTERM). All clients are at the other two, with connections apart for writes, for reads of the victim's keys, and for other reads: answers of a connection come in the order of its commands, so that what comes behind a request that waits waits with it. Which keys the victim owns is asked before the requests begin; one that moves to it after that, because of the load, is counted with those of others. Client, nodes and PostgreSQL share all processors.", sizes.lease, sizes.keys, sizes.paused),
		fmt.Sprintf("Open loop: %.0f requests a second, 20 %% of them writes, sent when they are due; a request that gets no answer within %v has failed. A write that failed may have happened: the checker knows.", sizes.rate, traceTimeout),
		"Every answer of each history was judged. The plots show, for each tenth of a second, what was answered in it.",
		"The paper (WriteGuards) has no figure of this.")
	return r, nil
}

// readLimit is how long no read may take: a moment, beside a lease.
const readLimit = 500 * time.Millisecond

// outage adds what was seen of a fault.
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
	for i, at := range s.served {
		r.Rows = append(r.Rows, kit.Row{"system": system, "second": at.X, "reads_per_second": at.Y, "writes_per_second": s.written[i].Y})
	}
	within, back := sizes.lease+2*time.Second, max(s.waited, s.lastFailed)
	r.Headline[system+"_reads_failed"], r.Headline[system+"_writes_back_ms"] = float64(s.readsFailed), float64(back.Milliseconds())
	r.Headline[system+"_stale"], r.Headline[system+"_longest_read_ms"] = float64(o.stale), float64(longest.Milliseconds())
	r.Anomalies[system], r.Checked[system] = o.wrong, o.checked
	r.Goals = append(r.Goals, kit.Goal{system + ": reads that failed", "0", "", s.readsFailed, s.readsFailed == 0}, kit.Goal{system + ": stale reads", "0", "", o.stale, o.stale == 0},
		kit.Goal{system + ": the longest read", fmt.Sprint("<= ", readLimit), "", fmt.Sprintf("%.3f s", longest.Seconds()), longest <= readLimit},
		kit.Goal{system + ": writes succeed again", fmt.Sprintf("within the lease + 2 s = %v", within), "", fmt.Sprintf("%.1f s", back.Seconds()), s.writes > s.writesFailed && back <= within})
	if o.reason != "" {
		r.Notes = append(r.Notes, "The checker says of "+system+": "+o.reason)
	}
	r.Plots = append(r.Plots, kit.Timeline(system+": answers around the fault, at 0 s", []kit.Series{{Name: "reads", Points: s.served}, {Name: "writes of the victim's keys", Points: s.written}}))
}
