package linear

import (
	"fmt"
	"slices"

	"github.com/freshet-cache/freshet/bench/kit"
)

// report makes tables of what was found.
func (f *trackingFound) report(opt kit.Options, sizes trackingSizes) *kit.Report {
	r := &kit.Report{Headline: map[string]float64{}, Anomalies: f.anomal, Checked: f.check}
	for _, s := range trackingSystems {
		if !slices.Contains(opt.Systems, s) {
			continue
		}
		longest := kit.SpreadOf(f.longest[s])
		r.Rows = append(r.Rows, kit.Row{"system": s, "stale_percent": kit.SpreadOf(f.share[s]), "longest_ms": longest, "window_us": kit.SpreadOf(f.window[s]), "reads": kit.SpreadOf(f.rate[s])})
		r.Headline[s+"_stale_percent"], r.Headline[s+"_longest_ms"] = kit.SpreadOf(f.share[s]).Median, longest.Max
	}
	r.Tables = []kit.Table{{"Reads from a client's own cache that were older than a write acknowledged before they began", []kit.Column{{"system", "system"},
		{"stale_percent", "stale reads, %"}, {"longest_ms", "longest window in a round, ms"}, {"window_us", "median window, µs"}, {"reads", "reads/s"}}, r.Rows}}
	for _, client := range []string{"rueidis", "go-redis"} {
		a, b := "freshet-"+client, "redis-"+client
		if len(f.share[a]) == 0 || len(f.share[b]) == 0 {
			continue
		}
		ours, theirs := kit.SpreadOf(f.share[a]), kit.SpreadOf(f.share[b])
		r.Goals = append(r.Goals, kit.Goal{client + ": stale reads, beside the same client of redis-server, %", "<= the most of redis's rounds: " + kit.Text(theirs.Max), "", ours, ours.Median <= theirs.Max})
	}
	for _, s := range r.Rows {
		system := s["system"].(string)
		r.Goals = append(r.Goals, kit.Goal{system + ": values kept by a connection that has drained its pushes, and older", "0", "", f.anomal[system], f.anomal[system] == 0})
	}
	f.plot(r)
	r.Notes = append(r.Notes, "The median of several rounds, with the least and the most in brackets.",
		fmt.Sprintf("One key is written every %v, by one connection that waits for each answer; %d goroutines read it through one client, which keeps it in its own memory and is told when it changes. A read is stale if a later value had been acknowledged before the read began; its window is the time from that acknowledgement to the beginning of the read. Each pauses for %v between reads. Meanwhile %d connections ask the server for other keys, as fast as it answers.", sizes.writes, readers, readPause, burdenConns),
		"freshet tells a client before it answers the writer, and so does redis-server nearly always. What is left is the client's: the push is in its socket while its memory is read. rueidis reads its socket all the time; go-redis looks at it now and then.",
		"The verdict is of a connection that keeps what it reads, by hand, while another one writes: once it has taken everything up to the answer of a PING it must keep nothing older than what had been acknowledged before the PING was sent (package internal/follower).",
		"Systems take turns in rounds of "+sizes.round.String()+"; both servers are running all the time, with their data in memory.")
	return r
}

func (f *trackingFound) plot(r *kit.Report) {
	for _, what := range []struct {
		title, unit string
		values      map[string][]float64
	}{{"Stale reads from clients' own caches, median of the rounds", "%", f.share}, {"Longest stale window, median of the rounds", "ms", f.longest}} {
		list := []kit.Series{{Name: "freshet"}, {Name: "redis"}}
		clients := []string{"rueidis", "go-redis"}
		for i := range list {
			for _, c := range clients {
				list[i].Values = append(list[i].Values, kit.SpreadOf(what.values[list[i].Name+"-"+c]).Median)
			}
		}
		fig, err := kit.Bars(what.title, what.unit, clients, list)
		if err != nil {
			r.Notes = append(r.Notes, "A plot is missing: "+err.Error())
			continue
		}
		r.Plots = append(r.Plots, fig)
	}
}
