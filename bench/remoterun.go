package bench

import (
	"fmt"
	"slices"
)

func (f *remoteFound) report(opt Options, sizes remoteSizes) *Report {
	r := &Report{Headline: map[string]float64{}, Anomalies: f.anomal, checked: f.check}
	for _, shape := range shapes {
		for _, set := range []bool{false, true} {
			for _, s := range remoteSystems {
				if c := (remoteCase{s, set, shape[0], shape[1]}); slices.Contains(opt.Systems, s) {
					r.Rows = append(r.Rows, f.row(c))
				}
			}
		}
	}
	load := []column{{"system", "system"}, {"op", "command"}, {"connections", "connections"}, {"pipeline", "pipeline"}}
	var compared []Row
	for _, row := range r.Rows {
		if row["times_rate"] != nil {
			compared = append(compared, row)
		}
	}
	r.tables = []table{
		{"Beside redis-server: freshet divided by redis (memory by redis, pebble by redis-aof)", append(slices.Clone(load), column{"times_rate", "throughput"},
			column{"times_p50", "P50"}, column{"times_p99", "P99"}, column{"times_cpu", "server's CPU per operation"}), compared},
		{"Absolute", append(slices.Clone(load), column{"rate", "operations/s"}, column{"p50_us", "P50, µs"}, column{"p99_us", "P99, µs"},
			column{"cpu_us", "server's CPU, µs each"}, column{"client_us", "client's CPU, µs each"}), r.Rows},
	}
	f.goals(r)
	f.plot(r)
	r.notes = append(r.notes, "The median of several rounds, with the least and the most in brackets.", fmt.Sprintf("%d keys of %d bytes in random order, values of %d bytes; the same client for all systems: one thread that waits for all connections with epoll. Closed loop: a connection sends its next batch when all of the last is answered, as redis-benchmark does, so latencies of many connections follow from the throughput.", sizes.keys, keyBytes, valueBytes),
		"freshet-memory keeps its data in memory, as redis does with --save '' --appendonly no; freshet-pebble syncs every write to disk before it answers, as redis-aof does with --appendonly yes --appendfsync always. Writes that wait together are synced together, in both.",
		"Systems take turns in rounds of "+sizes.round.String()+"; all are running all the time, the others idle. Each measured GET must return the value of its key.")
	if f.pinned {
		r.notes = append(r.notes, "Every server has the first processor, and it alone (affinity; GOMAXPROCS follows); the client has the others. Where the client's CPU per operation is above the server's, the client is what limits the throughput.")
	} else {
		r.notes = append(r.notes, "There is one processor only: servers and client share it.")
	}
	if opt.Redis != "" {
		r.notes = append(r.notes, "redis-server at "+opt.Redis+" was running before; its persistence and processors are its own affair.")
	}
	return r
}

func (f *remoteFound) row(c remoteCase) Row {
	row := Row{"system": c.system, "op": c.op(), "connections": c.conns, "pipeline": c.pipeline,
		"rate": spreadOf(f.rate[c]), "p50_us": spreadOf(f.p50[c]), "p99_us": spreadOf(f.p99[c]), "cpu_us": spreadOf(f.cpu[c]), "client_us": spreadOf(f.client[c])}
	other := c
	other.system = beside[c.system]
	if len(f.rate[other]) > 0 {
		row["times_rate"] = spreadOf(ratios(f.rate[c], f.rate[other]))
		row["times_p50"] = spreadOf(ratios(f.p50[c], f.p50[other]))
		row["times_p99"] = spreadOf(ratios(f.p99[c], f.p99[other]))
		row["times_cpu"] = spreadOf(ratios(f.cpu[c], f.cpu[other]))
	}
	return row
}

// goals are of what is durable alike: throughput where commands are pipelined,
// latency where they are not.
func (f *remoteFound) goals(r *Report) {
	for _, row := range r.Rows {
		times, ok := row["times_rate"].(spread)
		if !ok {
			continue
		}
		name := fmt.Sprintf("%s %s, %d connections, pipeline %d", row["system"], row["op"], row["connections"], row["pipeline"])
		key := fmt.Sprintf("%s_%s_c%d_p%d", row["system"], row["op"], row["connections"], row["pipeline"])
		p50, p99 := row["times_p50"].(spread), row["times_p99"].(spread)
		r.Headline[key+"_times_rate"], r.Headline[key+"_times_p50"], r.Headline[key+"_times_p99"] = times.Median, p50.Median, p99.Median
		if row["pipeline"] == 1 {
			r.goals = append(r.goals, goal{name + ": P50", "<= 1.25 redis", "", p50, p50.Median <= 1.25}, goal{name + ": P99", "<= 1.25 redis", "", p99, p99.Median <= 1.25})
		} else {
			r.goals = append(r.goals, goal{name + ": throughput", ">= redis", "", times, times.Median >= 1})
		}
	}
}

// plot draws what the table of ratios says.
func (f *remoteFound) plot(r *Report) {
	for _, what := range []struct{ key, title string }{
		{"times_rate", "Throughput (more is better)"}, {"times_p99", "P99 latency (less is better)"},
	} {
		var groups []string
		values := map[any][]float64{}
		for _, row := range r.Rows {
			times, ok := row[what.key].(spread)
			if !ok {
				continue
			}
			name := fmt.Sprintf("%s\nc=%d P=%d", row["op"], row["connections"], row["pipeline"])
			if !slices.Contains(groups, name) {
				groups = append(groups, name)
			}
			values[row["system"]] = append(values[row["system"]], times.Median)
		}
		var list []series
		for _, s := range remoteSystems {
			if v := values[s]; len(v) > 0 {
				list = append(list, series{name: s + " / " + beside[s], values: v})
			}
		}
		if len(list) == 0 {
			continue // nothing was compared
		}
		fig, err := bars(what.title+", c connections, pipeline P", "times redis-server", groups, list)
		if err != nil {
			r.notes = append(r.notes, "A plot is missing: "+err.Error())
			continue
		}
		fig.level(1)
		r.plots = append(r.plots, fig)
	}
}
