package causal

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"runtime"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/freshet-cache/freshet/bench/causalbase"
	"github.com/freshet-cache/freshet/bench/kit"
	"github.com/freshet-cache/freshet/check"
)

// The delays on the machines of the paper, which every system gets here.
const (
	causalHop   = 75 * time.Microsecond // one way; a round trip in the paper took 0.15 ms
	causalStore = 5 * time.Millisecond  // added to each answer of the store
)

var causalSystems = causalbase.Names

// workflow is a workflow before it begins.
type workflow struct {
	places []int    // the servers of its functions
	reads  []string // the keys that it will read, if they are known
	body   func(ctx context.Context, f *causalbase.Recorded) error
	done   func(r *causalRun) // called when it has ended, if not nil
}

// causalLoad is the load of all systems. The i-th workflow of a run is always the same, except for
// the numbers of the values that it writes.
type causalLoad struct {
	servers int
	rows    map[string]string
	next    func(i int, r *rand.Rand, number func() int64) workflow
	seed    uint64
}

// numbered returns the keys 0 to n-1, as decimal strings, with values of 8 bytes.
func numbered(n int) map[string]string {
	rows := make(map[string]string, n)
	for i := range n {
		rows[strconv.Itoa(i)] = causalbase.Initial(fmt.Sprintf("%07d", i))
	}
	return rows
}

// causalRun is one system in one round.
type causalRun struct {
	load    causalLoad
	world   *causalbase.World
	system  causalbase.System
	history causalbase.History
	name    string
	begun   atomic.Int64 // workflows
	written atomic.Int64
	missing atomic.Int64 // workflows that saw a reference to a missing value
	mu      sync.Mutex
	failed  error
}

// startCausal starts a system and fills its caches.
func startCausal(ctx context.Context, name string, load causalLoad, make func(w *causalbase.World) (causalbase.System, error)) (*causalRun, error) {
	w, err := causalbase.NewWorld(load.servers, causalHop, causalStore)
	if err != nil {
		return nil, err
	}
	r := &causalRun{load: load, world: w, name: name}
	if make == nil {
		make = func(w *causalbase.World) (causalbase.System, error) { return causalbase.New(ctx, name, w, load.rows) }
	}
	if r.system, err = make(w); err != nil {
		w.Close()
		return nil, err
	}
	r.history.Servers = load.servers
	runtime.GC()
	return r, nil
}

// stop ends the system and its background work, before the next measurement.
func (r *causalRun) stop(ctx context.Context) error {
	err := errors.Join(r.failed, r.system.Settle(ctx), r.system.Close(ctx))
	r.world.Close()
	return err
}

// one runs the next workflow.
func (r *causalRun) one(ctx context.Context) {
	i := int(r.begun.Add(1) - 1)
	w := r.load.next(i, kit.Stream(r.load.seed, uint64(1000+i)), func() int64 { return r.written.Add(1) })
	err := r.history.Do(ctx, r.system, w.places, w.reads, func(f *causalbase.Recorded) error { return w.body(ctx, f) })
	if err != nil {
		r.mu.Lock()
		r.failed = errors.Join(r.failed, fmt.Errorf("%s: %w", r.name, err))
		r.mu.Unlock()
	} else if w.done != nil {
		w.done(r)
	}
}

// phase has the measurements of a part of a run.
type phase struct {
	p50, p99 float64 // µs
	rate     float64 // workflows per second
	cpu      float64 // µs of processor time per workflow
	aborts   float64 // aborted tries per workflow
	settled  float64 // ms until all writes were visible at all servers
	messages float64 // over links, a workflow
	requests float64 // to the store, a workflow
	metadata int     // bytes at its end
}

// measured runs work and returns its measurements, when all writes are visible at all servers.
func (r *causalRun) measured(ctx context.Context, work func() (*kit.Latencies, error)) (p phase, err error) {
	sent, asked := r.world.Links.Sent(), r.world.Store.Sent()
	flows, aborts, cpu, began := r.history.Flows(), r.history.Aborts.Load(), kit.OwnCPU(), time.Now()
	l, err := work()
	if err != nil {
		return p, err
	}
	took := time.Since(began)
	p.metadata = r.system.Metadata()
	if err = r.system.Settle(ctx); err != nil {
		return p, err
	}
	n := float64(r.history.Flows() - flows)
	p.p50, p.p99, p.rate, p.cpu = l.Micros(50), l.Micros(99), n/took.Seconds(), float64(kit.OwnCPU()-cpu)/1e3/max(1, n)
	p.aborts, p.settled = float64(r.history.Aborts.Load()-aborts)/max(1, n), float64(time.Since(began)-took)/1e6
	p.messages, p.requests = float64(r.world.Links.Sent()-sent)/max(1, n), float64(r.world.Store.Sent()-asked)/max(1, n)
	return p, r.failed
}

// open begins workflows at a constant rate, however long the earlier ones take.
func (r *causalRun) open(ctx context.Context, rate float64, span time.Duration) (phase, error) {
	return r.measured(ctx, func() (*kit.Latencies, error) {
		sleep, err := causalbase.NewSleeper()
		if err != nil {
			return nil, err
		}
		defer sleep.Close()
		var mu sync.Mutex
		all, s := kit.NewLatencies(), kit.Schedule{Rate: rate}
		return all, kit.OpenLoop{Schedule: s, Sleep: sleep.Sleep}.Run(int(rate*span.Seconds()), func(i int, began time.Time) {
			r.one(ctx)
			late := s.Late(i, time.Since(began))
			mu.Lock()
			all.Add(late, 1)
			mu.Unlock()
		})
	})
}

// closed runs clients, each of which begins a workflow when its last one has ended.
func (r *causalRun) closed(ctx context.Context, clients int, span time.Duration) (phase, error) {
	return r.measured(ctx, func() (*kit.Latencies, error) {
		return kit.ClosedLoop(ctx, clients, span, func() { r.one(ctx) })
	})
}

// causalVerdict has the findings of the checker about the histories of one system.
type causalVerdict struct {
	flows, acts, anomalous int
	missing                int
	reason                 string
}

// sampled is the share of the keys whose reads are judged, if there are too many concurrent writes
// to judge all reads.
const sampled = 32

// judge checks the recorded history: all keys of the first acts, and some keys of all acts. A
// history is right if one causal order explains it. judge also counts the workflows that read a
// value although they had seen a later one.
func (r *causalRun) judge(first int) (v causalVerdict, err error) {
	acts := r.history.Acts()
	v = causalVerdict{flows: r.history.Flows(), acts: len(acts), missing: int(r.missing.Load())}
	bad := map[string]bool{}
	for _, part := range [][]check.Act{acts[:first], some(acts)} {
		if whole := check.Causal(part); !whole.OK {
			v.reason = whole.Reason
		}
		late, err := check.Overtaken(part)
		if err != nil {
			return v, err
		}
		for _, i := range late {
			bad[part[i].Session] = true
		}
		if first == len(acts) {
			break
		}
	}
	if v.anomalous = len(bad); v.reason != "" {
		v.anomalous = max(1, v.anomalous)
	}
	return v, nil
}

// some returns the history of some of the keys. Reads of the other keys still name the writers of
// their values.
func some(acts []check.Act) []check.Act {
	writers := map[check.Cell]int{}
	for i, a := range acts {
		for _, w := range a.Writes {
			writers[w] = i
		}
	}
	kept := func(key string) bool {
		h := fnv.New32a()
		_, _ = h.Write([]byte(key))
		return h.Sum32()%sampled == 0
	}
	out := make([]check.Act, len(acts))
	for i, a := range acts {
		b := check.Act{Session: a.Session, After: slices.Clone(a.After)}
		for _, c := range a.Reads {
			if from, ok := writers[c]; kept(c.Key) || c.Write != "" && !ok {
				b.Reads = append(b.Reads, c)
			} else if ok {
				b.After = append(b.After, from)
			}
		}
		for _, c := range a.Writes {
			if kept(c.Key) {
				b.Writes = append(b.Writes, c)
			}
		}
		out[i] = b
	}
	return out
}

func (v *causalVerdict) add(o causalVerdict) {
	v.flows, v.acts, v.anomalous = v.flows+o.flows, v.acts+o.acts, v.anomalous+o.anomalous
	v.missing += o.missing
	if v.reason == "" {
		v.reason = o.reason
	}
}

// verdicts are the findings of the checker, by system.
type verdicts map[string]causalVerdict

func (all verdicts) add(system string, v causalVerdict) {
	sum := all[system]
	sum.add(v)
	all[system] = sum
}

// report adds the findings about all systems to a report.
func (all verdicts) report(r *kit.Report) {
	for s, v := range all {
		r.Judge(s, v.acts, v.anomalous)
		r.Headline[s+"_anomalies"] = float64(v.anomalous)
		if v.reason != "" {
			r.Remark("The checker says of %s: %s", s, v.reason)
		}
	}
}

// judged adds the goal that no workflow of a system saw an anomaly.
func judged(r *kit.Report, system string) {
	r.Goal(system+": workflows that saw an anomaly", "0", "0", r.Anomalies[system], r.Anomalies[system] == 0)
}

// micro is the workflow of the micro-benchmark: two functions that read three keys each and one
// function that writes one key, each at a random server.
func micro(servers, keys int, seed uint64) causalLoad {
	z, rows := kit.NewZipf(keys, 1), numbered(keys)
	names := make([]string, keys)
	for i := range names {
		names[i] = strconv.Itoa(i)
	}
	return causalLoad{servers: servers, rows: rows, seed: seed, next: func(_ int, r *rand.Rand, number func() int64) workflow {
		places := []int{r.IntN(servers), r.IntN(servers), r.IntN(servers)}
		pick := func() string { return names[z.Draw(r)-1] }
		first, second, last := []string{pick(), pick(), pick()}, []string{pick(), pick(), pick()}, pick()
		return workflow{places: places, reads: append(append([]string{}, first...), second...), body: func(ctx context.Context, f *causalbase.Recorded) error {
			if _, err := f.Read(ctx, first...); err != nil {
				return err
			}
			if err := f.Move(places[1]); err != nil {
				return err
			}
			if _, err := f.Read(ctx, second...); err != nil {
				return err
			}
			if err := f.Move(places[2]); err != nil {
				return err
			}
			return f.Write(ctx, last, causalbase.Fresh(number(), ""))
		}}
	}}
}

// common sets the figures of pages/shared.md.
func common(r *kit.Report) {
	r.Set("hop", causalHop)
	r.Set("store", causalStore)
	r.Set("sampled", sampled)
}

// addPhase adds the measurements of a phase to the rounds of a case.
func addPhase[C comparable](all *kit.Rounds[C], c C, p phase) {
	for column, v := range map[string]float64{"p50_us": p.p50, "p99_us": p.p99, "per_second": p.rate, "cpu_us": p.cpu, "aborts": p.aborts, "settled_ms": p.settled, "messages": p.messages, "requests": p.requests} {
		all.Add(c, column, v)
	}
}
