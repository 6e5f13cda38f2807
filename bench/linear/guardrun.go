package linear

import (
	"fmt"
	"slices"
	"strings"

	"github.com/freshet-cache/freshet/bench/kit"
)

func (f *guardFound) report(opt kit.Options, sizes guardSizes) *kit.Report {
	r := &kit.Report{Headline: map[string]float64{}, Anomalies: f.anomal, Checked: f.check}
	var beside, flips []kit.Row
	for _, guards := range sizes.guards {
		for _, conns := range sizes.conns {
			for _, s := range opt.Systems {
				c := guardCase{s, guards, conns}
				row := kit.Row{"system": s, "guards": guards, "connections": conns, "rate": kit.SpreadOf(f.rate[c]), "p50_us": kit.SpreadOf(f.p50[c]), "p99_us": kit.SpreadOf(f.p99[c])}
				if other := (guardCase{s + "-unguarded", guards, conns}); len(f.rate[other]) > 0 {
					row["times_rate"] = kit.SpreadOf(kit.Ratios(f.rate[c], f.rate[other]))
					row["times_p50"] = kit.SpreadOf(kit.Ratios(f.p50[c], f.p50[other]))
					beside = append(beside, row)
					f.goal(r, c, row["times_rate"].(kit.Spread))
				}
				r.Rows = append(r.Rows, row)
			}
		}
	}
	for _, s := range opt.Systems {
		l := f.flips[s]
		if l == nil {
			continue
		}
		flips = append(flips, kit.Row{"system": s, "set_guards": int(l.Count()), "set_p50_us": l.Micros(50), "set_p99_us": l.Micros(99), "set_max_us": l.Micros(100), "busy": f.busy[s]})
		r.Headline["set_guard_p99_us_"+s] = l.Micros(99)
		r.Goals = append(r.Goals, kit.Goal{s + ": SetGuard under full load, P99", "< 500 ms", "", fmt.Sprintf("%.1f ms", l.Micros(99)/1e3), l.Micros(99) < 500e3})
	}
	r.Rows = append(r.Rows, flips...)
	load := []kit.Column{{"system", "system"}, {"guards", "guards"}, {"connections", "connections"}}
	r.Tables = []kit.Table{
		{"Guarded divided by unguarded", append(slices.Clone(load), kit.Column{"times_rate", "writes/s"}, kit.Column{"times_p50", "P50"}), beside},
		{"Absolute", append(slices.Clone(load), kit.Column{"rate", "writes/s"}, kit.Column{"p50_us", "P50, µs"}, kit.Column{"p99_us", "P99, µs"}), kit.WithKey(r.Rows, "rate")},
		{"SetGuard over all keys, while they are written as fast as can be", []kit.Column{{"system", "system"}, {"set_guards", "guards installed"}, {"set_p50_us", "P50, µs"},
			{"set_p99_us", "P99, µs"}, {"set_max_us", "longest, µs"}, {"busy", "writes/s meanwhile"}}, flips},
	}
	r.Notes = append(r.Notes, "The median of several rounds, with the least and the most in brackets.",
		fmt.Sprintf("Blind writes of one key each, %d keys in random order, values of %d bytes (the paper's), through the stores' own Commit; unguarded is the same code, and for PostgreSQL the same statement, without the guard. Each write is durable before the next of its connection begins.", sizes.keys, guardValueBytes),
		"Systems take turns in rounds of "+sizes.round.String()+"; closed loop. Client and PostgreSQL share all processors.",
		fmt.Sprintf("SetGuard: of all keys at once, one after the other for %v, while %d connections write under the latest guard they know of; rows are read when SetGuard has returned, and read again, and none may have been written under an older guard.", sizes.flips, sizes.conns[len(sizes.conns)-1]),
		"The paper saw no difference with guards on and off (WriteGuards, figure 11b), on TiKV at 75 % of its processors.")
	f.plot(r, opt, sizes)
	return r
}

// goal judges what guards cost: 2 % on pebble, 12 % on PostgreSQL at several
// connections.
func (f *guardFound) goal(r *kit.Report, c guardCase, got kit.Spread) {
	least := 0.98
	if c.system == "postgres" {
		if least = 0.88; c.conns == 1 {
			return
		}
	}
	r.Headline[fmt.Sprintf("guarded_rate_%s_%d_guards_%d_connections", c.system, c.guards, c.conns)] = got.Median
	r.Goals = append(r.Goals, kit.Goal{fmt.Sprintf("%s, %d guards, %d connections: writes/s of unguarded", c.system, c.guards, c.conns),
		fmt.Sprintf(">= %.2f", least), "1.0", got, got.Median >= least})
}

func (f *guardFound) plot(r *kit.Report, opt kit.Options, sizes guardSizes) {
	for _, kind := range []string{"pebble", "postgres"} {
		var list []kit.Series
		for _, s := range opt.Systems {
			if !strings.HasPrefix(s, kind) {
				continue
			}
			one := kit.Series{Name: s}
			for _, conns := range sizes.conns {
				one.Values = append(one.Values, kit.SpreadOf(f.rate[guardCase{s, sizes.guards[len(sizes.guards)-1], conns}]).Median)
			}
			list = append(list, one)
		}
		if len(list) == 0 {
			continue
		}
		var groups []string
		for _, conns := range sizes.conns {
			groups = append(groups, fmt.Sprint(conns, " connections"))
		}
		fig, err := kit.Bars(fmt.Sprintf("Writes with and without guards, %s", kind), "writes per second", groups, list)
		if err != nil {
			r.Notes = append(r.Notes, "A plot is missing: "+err.Error())
			continue
		}
		r.Plots = append(r.Plots, fig)
	}
}
