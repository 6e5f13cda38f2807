package linear

import (
	"fmt"

	"github.com/freshet-cache/freshet/bench/kit"
)

func reportReshard(opt kit.Options, sizes reshardSizes, found map[string]*moved) *kit.Report {
	r := &kit.Report{Headline: map[string]float64{}, Anomalies: map[string]int{}, Checked: map[string]int{}}
	calm := found["freshet"]
	var list []kit.Series
	for _, s := range opt.Systems {
		d := found[s]
		row := kit.Row{"system": s, "reads": d.reads, "served_percent": kit.SpreadOf(d.served), "p50_us": kit.SpreadOf(d.p50), "p90_us": kit.SpreadOf(d.p90), "p99_us": kit.SpreadOf(d.p99),
			"write_p50_us": kit.SpreadOf(d.w50), "write_p99_us": kit.SpreadOf(d.w99), "hit_percent": kit.SpreadOf(d.hits), "lag_p99_us": kit.SpreadOf(d.lag), "stale": d.stale, "unanswered": d.unanswered}
		r.Anomalies[s], r.Checked[s] = d.wrong, d.checked
		r.Headline[s+"_GET_p99_us"], r.Headline[s+"_served_percent"], r.Headline[s+"_stale"] = kit.SpreadOf(d.p99).Median, kit.SpreadOf(d.served).Min, float64(d.stale)
		r.Goals = append(r.Goals, kit.Goal{s + ": reads served", "100 %", "100 %", kit.SpreadOf(d.served), d.failed == 0}, kit.Goal{s + ": stale reads", "0", "0", d.stale, d.stale == 0})
		if s != "freshet" {
			row["moves"], row["pause_p50_ms"], row["pause_p99_ms"], row["took_p50_ms"], row["took_p99_ms"] = d.moves, d.pause.Micros(50)/1e3, d.pause.Micros(99)/1e3, d.took.Micros(50)/1e3, d.took.Micros(99)/1e3
			r.Headline["pause_p99_ms"], r.Headline["move_p99_ms"] = d.pause.Micros(99)/1e3, d.took.Micros(99)/1e3
			r.Goals = append(r.Goals, kit.Goal{"writes of a key that moves wait, P99", "<= 50 ms", "", fmt.Sprintf("%.1f ms", d.pause.Micros(99)/1e3), d.pause.Micros(99) <= 50e3},
				kit.Goal{"reads from memory while keys move", ">= 98 %", "", kit.SpreadOf(d.hits), kit.SpreadOf(d.hits).Median >= 98},
				kit.Goal{"a move takes, P99", "< 20 ms", "< 20 ms", fmt.Sprintf("%.1f ms", d.took.Micros(99)/1e3), d.took.Micros(99) < 20e3})
			if calm != nil {
				times := kit.SpreadOf(kit.Ratios(d.p99, calm.p99))
				row["times_p50"], row["times_p90"], row["times_p99"] = kit.SpreadOf(kit.Ratios(d.p50, calm.p50)), kit.SpreadOf(kit.Ratios(d.p90, calm.p90)), times
				r.Headline["GET_p99_times_calm"] = times.Median
				r.Goals = append(r.Goals, kit.Goal{"P99 of reads, times that without moves", "<= 1.25", "low", times, times.Median <= 1.25})
			}
		}
		for _, reason := range d.reasons {
			r.Notes = append(r.Notes, "The checker says of "+s+": "+reason)
		}
		r.Rows = append(r.Rows, row)
		list = append(list, kit.Series{Name: s, Values: []float64{kit.SpreadOf(d.p50).Median, kit.SpreadOf(d.p90).Median, kit.SpreadOf(d.p99).Median, kit.SpreadOf(d.w50).Median, kit.SpreadOf(d.w99).Median}})
	}
	r.Tables = []kit.Table{
		{"Latency from when a request was due, µs", []kit.Column{{"system", "system"}, {"p50_us", "P50 of reads"}, {"p90_us", "P90"}, {"p99_us", "P99"}, {"write_p50_us", "P50 of writes"}, {"write_p99_us", "P99"},
			{"times_p50", "P50 of reads, times without moves"}, {"times_p90", "P90"}, {"times_p99", "P99"}}, r.Rows},
		{"Reads and moves", []kit.Column{{"system", "system"}, {"reads", "reads"}, {"served_percent", "served, %"}, {"hit_percent", "from memory, %"}, {"lag_p99_us", "P99 of the client behind its schedule, µs"}, {"stale", "stale reads"}, {"unanswered", "requests without an answer"},
			{"moves", "moves"}, {"took_p50_ms", "P50 of a move, ms"}, {"took_p99_ms", "P99"}, {"pause_p50_ms", "P50 of the wait for a write, ms"}, {"pause_p99_ms", "P99"}}, r.Rows},
	}
	r.Notes = append(r.Notes, fmt.Sprintf("Three nodes in one process over store pebble:, each write synced to disk; %d keys, asked for as zipf 0.99 says, %g %% writes, %d clients at all nodes. Client and nodes share all processors. Reads and writes go over connections apart, for what comes behind a write on a connection waits for its answer.", sizes.keys, 100*opt.Number("writes"), traceClients),
		fmt.Sprintf("Open loop: %.0f requests a second, whether or not others are answered, latency counts from when one was due. Rounds of %d requests, with moves and without them in turn; the median of the rounds, with the least and the most in brackets.", sizes.rate, sizes.requests),
		fmt.Sprintf("A move: 1/%d of the keys, a random part, goes to another node every %v, by FR.MOVE, as soon as FR.SPLIT has cut it out. One move in %d is watched: what it takes is from FR.MOVE until FR.EXPLAIN, asked every %v, names the new owner.", sizes.each, sizes.every, watchOneIn, probeEvery),
		fmt.Sprintf("The wait for a write: of one key of each part whose move is watched, written every %v from before the move until behind it, the longest write; that of a write without a move is in it.", probeEvery),
		"Published: 100 % availability and low latency with 0.5 % of the traffic moved; assignments change in less than 20 ms (WriteGuards, section 9.4.3 and figure 13a), on six machines. The paper does not say in which time 0.5 % were moved; here it is each second.")
	fig, err := kit.Bars("Latency with and without moves, median of the rounds", "µs", []string{"GET P50", "GET P90", "GET P99", "SET P50", "SET P99"}, list)
	if err != nil {
		r.Notes = append(r.Notes, "A plot is missing: "+err.Error())
		return r
	}
	r.Plots = append(r.Plots, fig)
	return r
}
