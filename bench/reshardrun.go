package bench

import "fmt"

func reportReshard(opt Options, sizes reshardSizes, found map[string]*moved) *Report {
	r := &Report{Headline: map[string]float64{}, Anomalies: map[string]int{}, checked: map[string]int{}}
	calm := found["freshet"]
	var list []series
	for _, s := range opt.Systems {
		d := found[s]
		row := Row{"system": s, "reads": d.reads, "served_percent": spreadOf(d.served), "p50_us": spreadOf(d.p50), "p90_us": spreadOf(d.p90), "p99_us": spreadOf(d.p99),
			"write_p50_us": spreadOf(d.w50), "write_p99_us": spreadOf(d.w99), "hit_percent": spreadOf(d.hits), "lag_p99_us": spreadOf(d.lag), "stale": d.stale, "unanswered": d.unanswered}
		r.Anomalies[s], r.checked[s] = d.wrong, d.checked
		r.Headline[s+"_GET_p99_us"], r.Headline[s+"_served_percent"], r.Headline[s+"_stale"] = spreadOf(d.p99).Median, spreadOf(d.served).Min, float64(d.stale)
		r.goals = append(r.goals, goal{s + ": reads served", "100 %", "100 %", spreadOf(d.served), d.failed == 0}, goal{s + ": stale reads", "0", "0", d.stale, d.stale == 0})
		if s != "freshet" {
			row["moves"], row["pause_p50_ms"], row["pause_p99_ms"], row["took_p50_ms"], row["took_p99_ms"] = d.moves, d.pause.micros(50)/1e3, d.pause.micros(99)/1e3, d.took.micros(50)/1e3, d.took.micros(99)/1e3
			r.Headline["pause_p99_ms"], r.Headline["move_p99_ms"] = d.pause.micros(99)/1e3, d.took.micros(99)/1e3
			r.goals = append(r.goals, goal{"writes of a key that moves wait, P99", "<= 50 ms", "", fmt.Sprintf("%.1f ms", d.pause.micros(99)/1e3), d.pause.micros(99) <= 50e3},
				goal{"reads from memory while keys move", ">= 98 %", "", spreadOf(d.hits), spreadOf(d.hits).Median >= 98},
				goal{"a move takes, P99", "< 20 ms", "< 20 ms", fmt.Sprintf("%.1f ms", d.took.micros(99)/1e3), d.took.micros(99) < 20e3})
			if calm != nil {
				times := spreadOf(ratios(d.p99, calm.p99))
				row["times_p50"], row["times_p90"], row["times_p99"] = spreadOf(ratios(d.p50, calm.p50)), spreadOf(ratios(d.p90, calm.p90)), times
				r.Headline["GET_p99_times_calm"] = times.Median
				r.goals = append(r.goals, goal{"P99 of reads, times that without moves", "<= 1.25", "low", times, times.Median <= 1.25})
			}
		}
		for _, reason := range d.reasons {
			r.notes = append(r.notes, "The checker says of "+s+": "+reason)
		}
		r.Rows = append(r.Rows, row)
		list = append(list, series{name: s, values: []float64{spreadOf(d.p50).Median, spreadOf(d.p90).Median, spreadOf(d.p99).Median, spreadOf(d.w50).Median, spreadOf(d.w99).Median}})
	}
	r.tables = []table{
		{"Latency from when a request was due, µs", []column{{"system", "system"}, {"p50_us", "P50 of reads"}, {"p90_us", "P90"}, {"p99_us", "P99"}, {"write_p50_us", "P50 of writes"}, {"write_p99_us", "P99"},
			{"times_p50", "P50 of reads, times without moves"}, {"times_p90", "P90"}, {"times_p99", "P99"}}, r.Rows},
		{"Reads and moves", []column{{"system", "system"}, {"reads", "reads"}, {"served_percent", "served, %"}, {"hit_percent", "from memory, %"}, {"lag_p99_us", "P99 of the client behind its schedule, µs"}, {"stale", "stale reads"}, {"unanswered", "requests without an answer"},
			{"moves", "moves"}, {"took_p50_ms", "P50 of a move, ms"}, {"took_p99_ms", "P99"}, {"pause_p50_ms", "P50 of the wait for a write, ms"}, {"pause_p99_ms", "P99"}}, r.Rows},
	}
	r.notes = append(r.notes, fmt.Sprintf("Three nodes in one process over store pebble:, each write synced to disk; %d keys, asked for as zipf 0.99 says, %g %% writes, %d clients at all nodes. Client and nodes share all processors. Reads and writes go over connections apart, for what comes behind a write on a connection waits for its answer.", sizes.keys, 100*opt.Writes, traceClients),
		fmt.Sprintf("Open loop: %.0f requests a second, whether or not others are answered, latency counts from when one was due. Rounds of %d requests, with moves and without them in turn; the median of the rounds, with the least and the most in brackets.", sizes.rate, sizes.requests),
		fmt.Sprintf("A move: 1/%d of the keys, a random part, goes to another node every %v, by FR.MOVE, as soon as FR.SPLIT has cut it out. One move in %d is watched: what it takes is from FR.MOVE until FR.EXPLAIN, asked every %v, names the new owner.", sizes.each, sizes.every, watchOneIn, probeEvery),
		fmt.Sprintf("The wait for a write: of one key of each part whose move is watched, written every %v from before the move until behind it, the longest write; that of a write without a move is in it.", probeEvery),
		"Published: 100 % availability and low latency with 0.5 % of the traffic moved; assignments change in less than 20 ms (WriteGuards, section 9.4.3 and figure 13a), on six machines. The paper does not say in which time 0.5 % were moved; here it is each second.")
	fig, err := bars("Latency with and without moves, median of the rounds", "µs", []string{"GET P50", "GET P90", "GET P99", "SET P50", "SET P99"}, list)
	if err != nil {
		r.notes = append(r.notes, "A plot is missing: "+err.Error())
		return r
	}
	r.plots = append(r.plots, fig)
	return r
}
