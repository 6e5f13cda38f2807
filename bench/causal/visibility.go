package causal

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"gonum.org/v1/plot/plotter"

	"github.com/freshet-cache/freshet/bench/causalbase"
	"github.com/freshet-cache/freshet/bench/kit"
)

// What the servers are connected by.
var visibilitySystems = []string{"freshet-tcp", "freshet-delayed"}

// publishedWindow is figure 17, by the number of servers, in microseconds.
var publishedWindow = map[int]float64{3: 1259, 4: 1586, 5: 2030, 6: 2360, 7: 2799, 8: 3138}

type visibilitySizes struct {
	servers []int
	writes  int // in each round
	rounds  int
}

func visibilitySizesOf(o kit.Options) visibilitySizes {
	switch {
	case o.Preset == "tiny":
		return visibilitySizes{[]int{3, 5}, 10, 1}
	case o.Preset == "paper":
		return visibilitySizes{[]int{3, 4, 5, 6, 7, 8, 10, 12, 14, 16}, 2000, 7}
	}
	return visibilitySizes{[]int{3, 4, 5, 6, 7, 8, 12, 16}, 100, 3}
}

// visibilityFound is the windows of each round, in microseconds, by system and servers.
type visibilityFound struct {
	sizes  visibilitySizes
	median map[string]map[int][]float64
	tail   map[string]map[int][]float64
	slopes map[string][]float64 // a server, by round
	polls  map[string]int
	wrong  map[string]int
}

// causalVisibility is figure 17: how long after a write at the first server the last of
// the ring shows it.
func causalVisibility(ctx context.Context, opt kit.Options) (*kit.Report, error) {
	f := &visibilityFound{visibilitySizesOf(opt), map[string]map[int][]float64{}, map[string]map[int][]float64{}, map[string][]float64{}, map[string]int{}, map[string]int{}}
	err := kit.Turns(ctx, opt, f.sizes.rounds, func(system string, _ int) error {
		var at plotter.XYs
		for _, n := range f.sizes.servers {
			l, err := f.window(ctx, system, n)
			if err != nil {
				return err
			}
			if f.median[system] == nil {
				f.median[system], f.tail[system] = map[int][]float64{}, map[int][]float64{}
			}
			f.median[system][n] = append(f.median[system][n], l.Micros(50))
			f.tail[system][n] = append(f.tail[system][n], l.Micros(99))
			at = append(at, plotter.XY{X: float64(n), Y: l.Micros(50)})
		}
		f.slopes[system] = append(f.slopes[system], slope(at))
		return nil
	})
	if err != nil {
		return nil, err
	}
	return f.report(opt), nil
}

// slope is that of the line with the least squares.
func slope(at plotter.XYs) float64 {
	var x, y, xx, xy float64
	n := float64(len(at))
	for _, p := range at {
		x, y, xx, xy = x+p.X, y+p.Y, xx+p.X*p.X, xy+p.X*p.Y
	}
	return (n*xy - x*y) / (n*xx - x*x)
}

// window writes at the first server, and polls the last one until it shows that.
func (f *visibilityFound) window(ctx context.Context, system string, servers int) (l *kit.Latencies, err error) {
	hop := time.Duration(0)
	if system == "freshet-delayed" {
		hop = causalHop
	}
	w, err := causalbase.NewWorld(servers, hop, 0)
	if err != nil {
		return nil, err
	}
	defer w.Close()
	w.Loopback = hop == 0
	s, err := causalbase.New(ctx, "freshet", w, map[string]string{"100": causalbase.Initial("0000000")})
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, s.Close(ctx)) }()
	ring := s.(*causalbase.Ring)
	poll, err := causalbase.NewSleeper()
	if err != nil {
		return nil, err
	}
	defer poll.Close()
	l = kit.NewLatencies()
	seen := ""
	for i := range f.sizes.writes + 5 {
		value := causalbase.Fresh(int64(i), "")
		from := time.Now()
		if err := ring.Spaces[0].Begin().Set(ctx, "100", value); err != nil {
			return nil, err
		}
		middle := from.Add(time.Since(from) / 2)
		for {
			got, _, err := ring.Spaces[servers-1].Begin().Get(ctx, "100")
			if err != nil {
				return nil, err
			}
			f.polls[system]++
			if got < seen || got > value {
				f.wrong[system]++
			}
			if seen = got; got == value {
				break
			}
			poll.Sleep(20 * time.Microsecond)
		}
		if i >= 5 { // until then connections are made
			l.Add(time.Since(middle), 1)
		}
	}
	return l, nil
}

func (f *visibilityFound) report(opt kit.Options) *kit.Report {
	r := &kit.Report{Headline: map[string]float64{}, Anomalies: map[string]int{}, Checked: map[string]int{}}
	lines := map[string]plotter.XYs{}
	var names []string
	for i, n := range f.sizes.servers {
		names = append(names, fmt.Sprint(n))
		for _, s := range opt.Systems {
			row := kit.Row{"servers": n, "system": s, "p50_us": kit.SpreadOf(f.median[s][n]), "p99_us": kit.SpreadOf(f.tail[s][n])}
			if i > 0 {
				before := f.sizes.servers[i-1]
				each := kit.Minus(f.median[s][n], f.median[s][before])
				for j := range each {
					each[j] /= float64(n - before)
				}
				row["added_us"] = kit.SpreadOf(each)
				if p, ok := publishedWindow[before]; ok && publishedWindow[n] > 0 {
					row["published_added"] = publishedWindow[n] - p
				}
			}
			if p, ok := publishedWindow[n]; ok {
				row["published"], row["times"] = p, kit.SpreadOf(f.median[s][n]).Median/p
			}
			r.Rows = append(r.Rows, row)
			lines[s] = append(lines[s], plotter.XY{X: float64(i), Y: kit.SpreadOf(f.median[s][n]).Median})
			r.Headline[fmt.Sprintf("%s_%d_servers_us", s, n)] = kit.SpreadOf(f.median[s][n]).Median
		}
	}
	r.Tables = []kit.Table{{"Inconsistency window", []kit.Column{{"servers", "servers"}, {"system", "system"}, {"p50_us", "P50, µs"}, {"p99_us", "P99, µs"}, {"published", "published, µs"}, {"times", "ours, times that"}, {"added_us", "added per server, µs"}, {"published_added", "published"}}, r.Rows}}
	var list []kit.Series
	for _, s := range opt.Systems {
		r.Anomalies[s], r.Checked[s] = f.wrong[s], f.polls[s]
		r.Headline[s+"_added_us"] = kit.SpreadOf(f.slopes[s]).Median
		list = append(list, kit.Series{Name: s, Points: lines[s]})
		r.Goals = append(r.Goals, kit.Goal{s + ": added per server, µs (least squares)", "< 330", "327 to 444", kit.SpreadOf(f.slopes[s]), kit.SpreadOf(f.slopes[s]).Median < 330})
	}
	var published plotter.XYs
	for i, n := range f.sizes.servers {
		if p, ok := publishedWindow[n]; ok {
			published = append(published, plotter.XY{X: float64(i), Y: p})
		}
	}
	r.Notes = []string{
		fmt.Sprintf("One client writes key \"100\" at the first server and, when that is acknowledged, polls the last one of the ring every 20 µs, without a token, until it shows the write; the window is from the middle of the write to then. %d writes one after the other in each of %d rounds; each value is the median, or P99, of a round, and of these the median with the least and the most.", f.sizes.writes, f.sizes.rounds),
		fmt.Sprintf("freshet-tcp: TCP over the loopback interface, no delay added. freshet-delayed: connections delayed by %v one way, as the paper's machines were apart. The store answers at once in both, so that the window is the ring's. All servers and the client share the processors of this machine.", causalHop),
		"Checked: a poll never shows an older value than the one before, nor one that was not written.",
		"Published: section 9.6 and figure 17, one machine for each server. HydroCache and FaaSTCC show a write after up to 100 ms and 50 ms, which is their refresh period.",
	}
	r.Plots = []kit.Figure{kit.Levels("Inconsistency window by servers, median of the rounds", "µs", names, slices.Concat(list, []kit.Series{{Name: "published", Points: published}}))}
	return r
}
