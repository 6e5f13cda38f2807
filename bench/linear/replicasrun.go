package linear

import (
	"context"
	"errors"
	"fmt"

	"github.com/freshet-cache/freshet/bench/kit"
)

func (m *replicasRun) report() {
	r := m.result
	most, peak := 0, m.scaled[0]
	for _, s := range m.scaled {
		most = max(most, s.members)
		if s.asked > peak.asked {
			peak = s
		}
		r.Rows = append(r.Rows, kit.Row{"system": "freshet", "asked_per_second": s.asked, "got_per_second": s.got, "members": s.members})
	}
	const none, last = 0, replicaNodes - 1
	for n := range replicaNodes {
		row := kit.Row{"system": "freshet", "replicas": n, "write_p99_times": m.rounds.Times(n, none, "write_p99_us"), "reads_times": m.rounds.Times(n, none, "reads_per_second")}
		m.rounds.Fill(row, n, "write_p50_us", "write_p99_us", "reads_per_second")
		r.Rows = append(r.Rows, row)
	}
	times, more, stale := m.rounds.Times(last, none, "write_p99_us"), m.rounds.Times(last, none, "reads_per_second"), r.Anomalies["freshet"]
	r.Headline["most_members"], r.Headline["write_p99_times_5_replicas"], r.Headline["reads_times_5_replicas"], r.Headline["stale"] = float64(most), times.Median, more.Median, float64(stale)
	r.Goal("reads that are not the latest", "0", "0", stale, stale == 0)
	r.Goal("reads that failed", "0", "0", m.failed, m.failed == 0)
	r.Goal(fmt.Sprintf("nodes that serve the key at %.1f times what one should carry", peak.asked/m.sizes.one), fmt.Sprint(replicaNodes), fmt.Sprint(replicaNodes), peak.members, peak.members == replicaNodes)
	r.Goal("P99 of writes with 5 replicas, times that of one owner", "<= 3", "small", times, times.Median <= 3)
	r.Goal("reads/s with 5 replicas, times that of one owner", "> 1", "-", more, more.Median > 1)
	for name, v := range map[string]any{"writes": m.writes, "reads": m.reads, "one": m.sizes.one, "step": m.sizes.step, "rounds": m.sizes.rounds, "clients": m.sizes.lanes * replicaNodes} {
		r.Set(name, v)
	}
}

func replicaTables(r *kit.Report) []kit.Table {
	return []kit.Table{
		{Title: "Members by load", Rows: r.With("members"), Columns: kit.Columns("asked_per_second", "reads/s asked for", "got_per_second", "reads/s answered", "members", "nodes that serve the key")},
		{Title: "By replicas", Rows: r.With("replicas"), Columns: kit.Columns("replicas", "replicas", "write_p50_us", "P50 of writes, µs", "write_p99_us", "P99", "write_p99_times", "P99, times that without",
			"reads_per_second", "reads/s, as fast as they go", "reads_times", "times that without")},
	}
}

func replicaPlots(r *kit.Report) []kit.Plot {
	return []kit.Plot{
		{Title: "Nodes that serve one key, by its load", X: "reads a second asked for", Y: "nodes", Series: kit.Curves(r.With("members"), "asked_per_second", "members")},
		{Title: "P99 of writes of one key, by its replicas", X: "replicas", Y: "latency, µs", Series: kit.Curves(r.With("replicas"), "replicas", "write_p99_us"), Ticks: []float64{0, 1, 2, 3, 4, 5}},
	}
}

// linearReplicas reproduces figures 13b and 13c: one key that gets more replicas as its load grows,
// and what they cost its writes.
func linearReplicas(ctx context.Context, opt kit.Options) (*kit.Report, error) {
	m := &replicasRun{opt: opt, sizes: replicaSizesOf(opt), result: kit.NewReport()}
	if err := errors.Join(m.scale(ctx), m.compare(ctx)); err != nil {
		return nil, err
	}
	m.report()
	return m.result, nil
}
