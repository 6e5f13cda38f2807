package linear

import (
	"fmt"

	"gonum.org/v1/plot/plotter"

	"github.com/freshet-cache/freshet/bench/kit"
)

// scaled is what one step of the load found.
type scaled struct {
	asked, got float64
	members    int
}

// replicasFound is what linear-replicas found.
type replicasFound struct {
	sizes                        replicaSizes
	scaled                       []scaled
	byCopies                     [][]writing // by replicas, then by round
	reads, stale, failed, writes int64
}

func (f *replicasFound) sum(h *hotOne) {
	f.reads, f.stale, f.failed, f.writes = f.reads+h.reads.Load(), f.stale+h.stale.Load(), f.failed+h.failed.Load(), f.writes+h.sent.Load()
}

// of is a figure of so many replicas, by round.
func (f *replicasFound) of(n int, what func(writing) float64) (out []float64) {
	for _, w := range f.byCopies[n] {
		out = append(out, what(w))
	}
	return out
}

func (f *replicasFound) report(opt kit.Options) (*kit.Report, error) {
	r := &kit.Report{Headline: map[string]float64{}, Anomalies: map[string]int{"freshet": int(f.stale)}, Checked: map[string]int{"freshet": int(f.reads)}}
	p50, p99, perSecond := func(w writing) float64 { return w.p50 }, func(w writing) float64 { return w.p99 }, func(w writing) float64 { return w.reads }
	var scaleRows, copyRows []kit.Row
	var members, latency plotter.XYs
	most := 0
	for _, s := range f.scaled {
		most = max(most, s.members)
		scaleRows = append(scaleRows, kit.Row{"system": "freshet", "asked_per_second": s.asked, "got_per_second": s.got, "members": s.members})
		members = append(members, plotter.XY{X: float64(len(members)), Y: float64(s.members)})
	}
	const none, last = 0, replicaNodes - 1
	for n := range replicaNodes {
		times := kit.SpreadOf(kit.Ratios(f.of(n, p99), f.of(none, p99)))
		copyRows = append(copyRows, kit.Row{"system": "freshet", "replicas": n, "write_p50_us": kit.SpreadOf(f.of(n, p50)), "write_p99_us": kit.SpreadOf(f.of(n, p99)), "write_p99_times": times,
			"reads_per_second": kit.SpreadOf(f.of(n, perSecond)), "reads_times": kit.SpreadOf(kit.Ratios(f.of(n, perSecond), f.of(none, perSecond)))})
		latency = append(latency, plotter.XY{X: float64(n), Y: kit.SpreadOf(f.of(n, p99)).Median})
	}
	times, more := kit.SpreadOf(kit.Ratios(f.of(last, p99), f.of(none, p99))), kit.SpreadOf(kit.Ratios(f.of(last, perSecond), f.of(none, perSecond)))
	r.Rows = append(scaleRows, copyRows...)
	r.Headline["most_members"], r.Headline["write_p99_times_5_replicas"], r.Headline["reads_times_5_replicas"], r.Headline["stale"] = float64(most), times.Median, more.Median, float64(f.stale)
	r.Tables = []kit.Table{
		{"Members by load", []kit.Column{{"asked_per_second", "reads/s asked for"}, {"got_per_second", "reads/s answered"}, {"members", "nodes that serve the key"}}, scaleRows},
		{"By replicas", []kit.Column{{"replicas", "replicas"}, {"write_p50_us", "P50 of writes, µs"}, {"write_p99_us", "P99"}, {"write_p99_times", "P99, times that without"}, {"reads_per_second", "reads/s, as fast as they go"}, {"reads_times", "times that without"}}, copyRows},
	}
	r.Goals = []kit.Goal{
		{"reads that are not the latest", "0", "0", f.stale, f.stale == 0},
		{"reads that failed", "0", "0", f.failed, f.failed == 0},
		{fmt.Sprintf("nodes that serve the key at %.1f times what one should carry", f.scaled[f.peak()].asked/f.sizes.one), fmt.Sprint(replicaNodes), fmt.Sprint(replicaNodes), f.scaled[f.peak()].members, f.scaled[f.peak()].members == replicaNodes},
		{"P99 of writes with 5 replicas, times that of one owner", "<= 3", "small", times, times.Median <= 3},
		{"reads/s with 5 replicas, times that of one owner", "> 1", "-", more, more.Median > 1},
	}
	r.Notes = []string{
		fmt.Sprintf("Six nodes in one process over store pebble:, each write synced to disk; clients, and all nodes, share all processors, so reads grow with replicas only by what it costs to forward them. One key of a number, %d writes, %d reads in all. Clients at all nodes; what a node does not keep itself it asks a member for.", f.writes, f.reads),
		fmt.Sprintf("Members by load: a node should carry %.0f operations a second of one key (--replicate-above; the default is 100000), which is little, as the paper's pods were made to carry little for this. Each step lasts %v; members are those at its end.", f.sizes.one, f.sizes.step),
		fmt.Sprintf("By replicas: FR.REPLICAS sets how many; in turn, %d rounds, median with the least and the most in brackets. Writes: one client, one after the other, beside 1000 reads a second at all nodes. Reads: %d clients, each one after the other, without writes.", f.sizes.rounds, f.sizes.lanes*replicaNodes),
		"Every read is checked: there is one writer, whose numbers grow, so an answer is wrong if somebody had a later one before the read began, or if it was not yet written.",
		"Published: the auto-sharder adds replicas of a key as it is read more, from 1 to 5, and the latency of writes rises modestly with them (WriteGuards, section 9.5 and figures 13b and 13c), on machines of their own.",
	}
	names := make([]string, len(f.scaled))
	for i, s := range f.scaled {
		names[i] = fmt.Sprintf("%.0f/s", s.asked)
	}
	counts := make([]string, replicaNodes)
	for n := range counts {
		counts[n] = fmt.Sprintf("%d replicas", n)
	}
	r.Plots = append(r.Plots, kit.Levels("Nodes that serve one key, by the reads a second asked for", "nodes", names, []kit.Series{{Name: "freshet", Points: members}}),
		kit.Levels("P99 of writes of one key, by its replicas", "latency, µs", counts, []kit.Series{{Name: "freshet", Points: latency}}))
	return r, nil
}

// peak is the step with the most load.
func (f *replicasFound) peak() (at int) {
	for i, s := range f.scaled {
		if s.asked > f.scaled[at].asked {
			at = i
		}
	}
	return at
}
