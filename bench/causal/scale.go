package causal

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"time"

	"gonum.org/v1/plot/plotter"

	"github.com/freshet-cache/freshet/bench/causalbase"
	"github.com/freshet-cache/freshet/bench/kit"
)

var scaleSystems = []string{"freshet", "freshet-tcc", "hydro-con", "faastcc"}

type scaleSizes struct {
	servers []int
	keys    int
	clients int // of all servers
	span    time.Duration
	rounds  int
}

func scaleSizesOf(o kit.Options) scaleSizes {
	switch {
	case o.Preset == "tiny":
		return scaleSizes{[]int{2, 4}, 200, 8, 60 * time.Millisecond, 1}
	case o.Preset == "paper":
		return scaleSizes{[]int{2, 4, 6, 8, 10, 12, 14, 16}, 100_000, 128, 10 * time.Second, 5}
	}
	return scaleSizes{[]int{2, 4, 8, 16}, 5000, 128, 400 * time.Millisecond, 3}
}

// mixed is a workflow of three functions, each of which reads two keys and writes one,
// all as likely.
func mixed(servers, keys int, seed uint64) causalLoad {
	return causalLoad{servers: servers, rows: numbered(keys), seed: seed, next: func(_ int, r *rand.Rand, number func() int64) workflow {
		w := workflow{}
		var writes []string
		for range 3 {
			w.places = append(w.places, r.IntN(servers))
			w.reads = append(w.reads, strconv.Itoa(r.IntN(keys)), strconv.Itoa(r.IntN(keys)))
			writes = append(writes, strconv.Itoa(r.IntN(keys)))
		}
		w.body = func(ctx context.Context, f *causalbase.Recorded) error {
			for i := range 3 {
				if i > 0 {
					if err := f.Move(w.places[i]); err != nil {
						return err
					}
				}
				if _, err := f.Read(ctx, w.reads[2*i:2*i+2]...); err != nil {
					return err
				}
				if err := f.Write(ctx, writes[i], causalbase.Fresh(number(), "")); err != nil {
					return err
				}
			}
			return nil
		}
		return w
	}}
}

// causalScale is figure 15.
func causalScale(ctx context.Context, opt kit.Options) (*kit.Report, error) {
	sizes := scaleSizesOf(opt)
	found, all := map[string]map[int]phases{}, map[string]causalVerdict{}
	err := kit.Turns(ctx, opt, sizes.rounds, func(system string, round int) error {
		if found[system] == nil {
			found[system] = map[int]phases{}
		}
		for _, n := range sizes.servers {
			r, err := startCausal(ctx, system, mixed(n, sizes.keys, opt.Seed+uint64(round)), nil)
			if err != nil {
				return err
			}
			p, err := r.closed(ctx, sizes.clients, sizes.span)
			if err = errors.Join(err, r.stop(ctx)); err != nil {
				return err
			}
			v, err := r.judge(0)
			if err != nil {
				return err
			}
			found[system][n] = append(found[system][n], p)
			sum := all[system]
			sum.add(v)
			all[system] = sum
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return scaleReport(opt, sizes, found, all)
}

// perServer is the throughput of one server that has a processor of its own.
func perServer(p phase) float64 { return 1e6 / p.cpu }

func scaleReport(opt kit.Options, sizes scaleSizes, found map[string]map[int]phases, all map[string]causalVerdict) (*kit.Report, error) {
	r := &kit.Report{Headline: map[string]float64{}, Anomalies: map[string]int{}, Checked: map[string]int{}}
	verdicts(r, all)
	least, most := sizes.servers[0], sizes.servers[len(sizes.servers)-1]
	var names []string
	lines := map[string]plotter.XYs{}
	for i, n := range sizes.servers {
		names = append(names, fmt.Sprintf("%d servers", n))
		for _, s := range opt.Systems {
			p := found[s][n]
			each := p.of(perServer)
			row := kit.Row{"system": s, "servers": n, "per_second": kit.SpreadOf(p.of(rateOf)), "cpu_us": kit.SpreadOf(p.of(cpuOf)), "per_server": kit.SpreadOf(each),
				"kept": kit.SpreadOf(kit.Ratios(each, found[s][least].of(perServer))), "messages": kit.SpreadOf(p.of(func(p phase) float64 { return p.messages })),
				"aborts": kit.SpreadOf(p.of(func(p phase) float64 { return p.aborts })), "p99_us": kit.SpreadOf(p.of(p99Of))}
			if own := found["freshet"]; own != nil && s != "freshet" {
				row["freshet_times"] = kit.SpreadOf(kit.Ratios(own[n].of(perServer), each))
			}
			r.Rows = append(r.Rows, row)
			lines[s] = append(lines[s], plotter.XY{X: float64(i), Y: kit.SpreadOf(each).Median})
			r.Headline[fmt.Sprintf("%s_%d_servers_cpu_us", s, n)] = kit.SpreadOf(p.of(cpuOf)).Median
		}
	}
	r.Tables = []kit.Table{{"Throughput by servers", []kit.Column{{"servers", "servers"}, {"system", "system"}, {"per_second", "workflows/s, all on this machine"}, {"cpu_us", "CPU µs per workflow"}, {"per_server", "workflows per CPU second"}, {"kept", fmt.Sprintf("times that with %d servers", least)}, {"freshet_times", "freshet's, times this"}, {"messages", "messages per workflow"}, {"aborts", "undone per workflow"}, {"p99_us", "P99, µs"}}, r.Rows}}
	published := map[string]string{"freshet": "nearly constant", "freshet-tcc": "saturates at about 2800/s", "faastcc": "falls", "hydro-con": "does not reach 8 servers"}
	var list []kit.Series
	for _, s := range opt.Systems {
		kept := kit.SpreadOf(kit.Ratios(found[s][most].of(perServer), found[s][least].of(perServer)))
		r.Headline[s+"_kept"] = kept.Median
		if len(s) >= 7 && s[:7] == "freshet" {
			r.Goals = append(r.Goals, kit.Goal{fmt.Sprintf("%s: workflows per CPU second with %d servers, times those with %d", s, most, least), ">= 0.9", published[s], kept, kept.Median >= 0.9},
				kit.Goal{s + ": workflows that saw an anomaly", "0", "0", r.Anomalies[s], r.Anomalies[s] == 0})
		}
		list = append(list, kit.Series{Name: s, Points: lines[s]})
	}
	r.Notes = append([]string{
		fmt.Sprintf("A workflow is three functions, each at a server by chance, each of which reads two keys and writes one of %d, all as likely. %d clients, each of which begins a workflow when its last has ended, however many servers there are: they share the processors of this machine, and with clients for each server few of them would idle and many would queue; %d rounds of %v, medians with the least and the most.", sizes.keys, sizes.clients, sizes.rounds, sizes.span),
		"All servers share the processors of this machine, however many there are, so throughput of all is of no use by itself. What is shown per server is what a server would carry if it had one processor of its own: a second over the processor time that all servers together, the emulation and the clients spend on a workflow. The paper's servers had machines of their own, which were not busy with the ring.",
		"A write passes every server of the ring, so its cost has a part that grows with their number, whoever implements it: with n servers, each of which takes an equal share of the workflows, every server hears of all writes: freshet's on the ring, the others' in the store's feed.",
		"freshet writes three times a workflow, each acknowledged by the store and passed round the ring; the systems with transactions write all three keys once, at the end.",
		"Messages are what goes over links at once: freshet's ring sends what waits for the same neighbour as one, the others say all they have to say in one already.",
		"Judged: one key in 32, with everything that was read of the others as causes.",
		"Published (section 9.4 and figure 15): CausalMesh's throughput per server is nearly constant from 2 to 16 servers, CausalMesh-TCC saturates at about 2800/s and is 1.3 to 1.8 times FaaSTCC, whose throughput falls as servers are added; HydroCache does not reach 8.",
	}, causalNotes()...)
	r.Plots = []kit.Figure{kit.Levels("Workflows per CPU second, by servers", "workflows", names, list)}
	return r, nil
}
