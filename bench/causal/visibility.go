package causal

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/freshet-cache/freshet/bench/causalbase"
	"github.com/freshet-cache/freshet/bench/kit"
)

// The kinds of connections between the servers.
var visibilitySystems = []string{"freshet-tcp", "freshet-delayed"}

// publishedWindow has the figures of figure 17 by the number of servers, in microseconds.
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

// ringCase is a system with a number of servers; 0 for its slope.
type ringCase struct {
	system  string
	servers int
}

// visibility measures the times during which the servers of a ring differ.
type visibility struct {
	opt    kit.Options
	sizes  visibilitySizes
	rounds kit.Rounds[ringCase]
	result *kit.Report
}

// causalVisibility reproduces figure 17: the time from a write at the first server until the last
// server of the ring shows it.
func causalVisibility(ctx context.Context, opt kit.Options) (*kit.Report, error) {
	v := &visibility{opt: opt, sizes: visibilitySizesOf(opt), result: kit.NewReport()}
	err := kit.Turns(ctx, opt, v.sizes.rounds, func(system string, _ int) error {
		var at []kit.Point
		for _, n := range v.sizes.servers {
			l, err := v.window(ctx, system, n)
			if err != nil {
				return err
			}
			v.rounds.Add(ringCase{system, n}, "p50_us", l.Micros(50))
			v.rounds.Add(ringCase{system, n}, "p99_us", l.Micros(99))
			at = append(at, kit.Point{X: float64(n), Y: kit.SpreadOf([]float64{l.Micros(50)})})
		}
		v.rounds.Add(ringCase{system, 0}, "slope", slope(at))
		return nil
	})
	if err != nil {
		return nil, err
	}
	v.report()
	return v.result, nil
}

// slope returns the slope of the least-squares line.
func slope(at []kit.Point) float64 {
	var x, y, xx, xy float64
	n := float64(len(at))
	for _, p := range at {
		x, y, xx, xy = x+p.X, y+p.Y.Median, xx+p.X*p.X, xy+p.X*p.Y.Median
	}
	return (n*xy - x*y) / (n*xx - x*x)
}

// window writes at the first server and polls the last one until it shows the write.
func (v *visibility) window(ctx context.Context, system string, servers int) (l *kit.Latencies, err error) {
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
	seen, polls, wrong := "", 0, 0
	defer func() { v.result.Judge(system, polls, wrong) }()
	for i := range v.sizes.writes + 5 {
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
			polls++
			if got < seen || got > value {
				wrong++
			}
			if seen = got; got == value {
				break
			}
			poll.Sleep(20 * time.Microsecond)
		}
		if i >= 5 { // before that, the servers open their connections
			l.Add(time.Since(middle), 1)
		}
	}
	return l, nil
}

func (v *visibility) report() {
	r := v.result
	for i, n := range v.sizes.servers {
		for _, s := range v.opt.Systems {
			at := ringCase{s, n}
			row := kit.Row{"servers": n, "system": s}
			v.rounds.Fill(row, at, "p50_us", "p99_us")
			if i > 0 {
				before := v.sizes.servers[i-1]
				each := kit.Minus(v.rounds.Of(at, "p50_us"), v.rounds.Of(ringCase{s, before}, "p50_us"))
				for j := range each {
					each[j] /= float64(n - before)
				}
				row["added_us"] = kit.SpreadOf(each)
				if p, ok := publishedWindow[before]; ok && publishedWindow[n] > 0 {
					row["published_added"] = publishedWindow[n] - p
				}
			}
			median := v.rounds.Spread(at, "p50_us").Median
			if p, ok := publishedWindow[n]; ok {
				row["published"], row["times"] = p, median/p
			}
			r.Rows = append(r.Rows, row)
			r.Headline[fmt.Sprintf("%s_%d_servers_us", s, n)] = median
		}
	}
	for _, s := range v.opt.Systems {
		added := v.rounds.Spread(ringCase{s, 0}, "slope")
		r.Headline[s+"_added_us"] = added.Median
		r.Goal(s+": added per server, µs (least squares)", "< 330", "327 to 444", added, added.Median < 330)
	}
	r.Set("hop", causalHop)
	r.Set("writes", v.sizes.writes)
	r.Set("rounds", v.sizes.rounds)
}

func visibilityTables(r *kit.Report) []kit.Table {
	return []kit.Table{{Title: "Inconsistency window", Rows: r.Rows, Columns: kit.Columns("servers", "servers", "system", "system", "p50_us", "P50, µs", "p99_us", "P99, µs",
		"published", "published, µs", "times", "ours, times that", "added_us", "added per server, µs", "published_added", "published")}}
}

func visibilityPlots(r *kit.Report) []kit.Plot {
	list := kit.Curves(r.Rows, "servers", "p50_us")
	for _, s := range kit.Curves(r.Rows, "servers", "published")[:1] {
		list = append(list, kit.Series{Name: "published", Points: s.Points})
	}
	return []kit.Plot{{Title: "Inconsistency window by servers", X: "servers", Y: "window, µs", Series: list, Ticks: servers(r)}}
}
