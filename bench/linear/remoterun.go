package linear

import (
	"fmt"
	"slices"

	"github.com/freshet-cache/freshet/bench/kit"
)

func (f *remoteFound) report(opt kit.Options, sizes remoteSizes) *kit.Report {
	r := &kit.Report{Headline: map[string]float64{}, Anomalies: f.anomal, Checked: f.check}
	for _, shape := range shapes {
		for _, set := range []bool{false, true} {
			for _, s := range remoteSystems {
				if c := (remoteCase{s, set, shape[0], shape[1]}); slices.Contains(opt.Systems, s) {
					r.Rows = append(r.Rows, f.row(c))
				}
			}
		}
	}
	load := []kit.Column{{"system", "system"}, {"op", "command"}, {"connections", "connections"}, {"pipeline", "pipeline"}}
	var compared []kit.Row
	for _, row := range r.Rows {
		if row["times_rate"] != nil {
			compared = append(compared, row)
		}
	}
	r.Tables = []kit.Table{
		{"Beside redis-server: freshet divided by redis (memory by redis, pebble by redis-aof)", append(slices.Clone(load), kit.Column{"times_rate", "throughput"},
			kit.Column{"times_p50", "P50"}, kit.Column{"times_p99", "P99"}, kit.Column{"times_cpu", "server's CPU per operation"}), compared},
		{"Absolute", append(slices.Clone(load), kit.Column{"rate", "operations/s"}, kit.Column{"p50_us", "P50, µs"}, kit.Column{"p99_us", "P99, µs"},
			kit.Column{"cpu_us", "server's CPU, µs each"}, kit.Column{"client_us", "client's CPU, µs each"}), r.Rows},
	}
	f.goals(r)
	f.plot(r)
	r.Notes = append(r.Notes, "The median of several rounds, with the least and the most in brackets.", fmt.Sprintf("%d keys of %d bytes in random order, values of %d bytes; the same client for all systems: one thread that waits for all connections with epoll. Closed loop: a connection sends its next batch when all of the last is answered, as redis-benchmark does, so latencies of many connections follow from the throughput.", sizes.keys, kit.KeyBytes, kit.ValueBytes),
		"freshet-memory keeps its data in memory, as redis does with --save '' --appendonly no; freshet-pebble syncs every write to disk before it answers, as redis-aof does with --appendonly yes --appendfsync always. Writes that wait together are synced together, in both.",
		"Systems take turns in rounds of "+sizes.round.String()+"; all are running all the time, the others idle. Each measured GET must return the value of its key.")
	if f.pinned {
		r.Notes = append(r.Notes, "Every server has the first processor, and it alone (affinity; GOMAXPROCS follows); the client has the others. Where the client's CPU per operation is above the server's, the client is what limits the throughput.")
	} else {
		r.Notes = append(r.Notes, "There is one processor only: servers and client share it.")
	}
	if opt.Text("redis") != "" {
		r.Notes = append(r.Notes, "redis-server at "+opt.Text("redis")+" was running before; its persistence and processors are its own affair.")
	}
	return r
}

func (f *remoteFound) row(c remoteCase) kit.Row {
	row := kit.Row{"system": c.system, "op": c.op(), "connections": c.conns, "pipeline": c.pipeline,
		"rate": kit.SpreadOf(f.rate[c]), "p50_us": kit.SpreadOf(f.p50[c]), "p99_us": kit.SpreadOf(f.p99[c]), "cpu_us": kit.SpreadOf(f.cpu[c]), "client_us": kit.SpreadOf(f.client[c])}
	other := c
	other.system = beside[c.system]
	if len(f.rate[other]) > 0 {
		row["times_rate"] = kit.SpreadOf(kit.Ratios(f.rate[c], f.rate[other]))
		row["times_p50"] = kit.SpreadOf(kit.Ratios(f.p50[c], f.p50[other]))
		row["times_p99"] = kit.SpreadOf(kit.Ratios(f.p99[c], f.p99[other]))
		row["times_cpu"] = kit.SpreadOf(kit.Ratios(f.cpu[c], f.cpu[other]))
	}
	return row
}

// goals are of what is durable alike: throughput where commands are pipelined,
// latency where they are not.
func (f *remoteFound) goals(r *kit.Report) {
	for _, row := range r.Rows {
		times, ok := row["times_rate"].(kit.Spread)
		if !ok {
			continue
		}
		name := fmt.Sprintf("%s %s, %d connections, pipeline %d", row["system"], row["op"], row["connections"], row["pipeline"])
		key := fmt.Sprintf("%s_%s_c%d_p%d", row["system"], row["op"], row["connections"], row["pipeline"])
		p50, p99 := row["times_p50"].(kit.Spread), row["times_p99"].(kit.Spread)
		r.Headline[key+"_times_rate"], r.Headline[key+"_times_p50"], r.Headline[key+"_times_p99"] = times.Median, p50.Median, p99.Median
		if row["pipeline"] == 1 {
			r.Goals = append(r.Goals, kit.Goal{name + ": P50", "<= 1.25 redis", "", p50, p50.Median <= 1.25}, kit.Goal{name + ": P99", "<= 1.25 redis", "", p99, p99.Median <= 1.25})
		} else {
			r.Goals = append(r.Goals, kit.Goal{name + ": throughput", ">= redis", "", times, times.Median >= 1})
		}
	}
}

// plot draws what the table of ratios says.
func (f *remoteFound) plot(r *kit.Report) {
	for _, what := range []struct{ key, title string }{
		{"times_rate", "Throughput (more is better)"}, {"times_p99", "P99 latency (less is better)"},
	} {
		var groups []string
		values := map[any][]float64{}
		for _, row := range r.Rows {
			times, ok := row[what.key].(kit.Spread)
			if !ok {
				continue
			}
			name := fmt.Sprintf("%s\nc=%d P=%d", row["op"], row["connections"], row["pipeline"])
			if !slices.Contains(groups, name) {
				groups = append(groups, name)
			}
			values[row["system"]] = append(values[row["system"]], times.Median)
		}
		var list []kit.Series
		for _, s := range remoteSystems {
			if v := values[s]; len(v) > 0 {
				list = append(list, kit.Series{Name: s + " / " + beside[s], Values: v})
			}
		}
		if len(list) == 0 {
			continue // nothing was compared
		}
		fig, err := kit.Bars(what.title+", c connections, pipeline P", "times redis-server", groups, list)
		if err != nil {
			r.Notes = append(r.Notes, "A plot is missing: "+err.Error())
			continue
		}
		fig.Level(1)
		r.Plots = append(r.Plots, fig)
	}
}
