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

// What the paper's machines had, and what every system gets here.
const (
	causalHop   = 75 * time.Microsecond // one way; a round trip took 0.15 ms
	causalStore = 5 * time.Millisecond  // added to each answer of the store
)

var causalSystems = causalbase.Names

// workflow is one that is about to run.
type workflow struct {
	places []int    // of its functions
	reads  []string // what it will read, if that is known
	body   func(ctx context.Context, f *causalbase.Recorded) error
	done   func(r *causalRun) // when it has ended, if not nil
}

// causalLoad is what is asked of all systems: the i-th workflow of a run is always the
// same, but for the numbers of what it writes.
type causalLoad struct {
	servers int
	rows    map[string]string
	next    func(i int, r *rand.Rand, number func() int64) workflow
	seed    uint64
}

// numbered are keys 0 to n-1, as decimal strings, with values of 8 bytes.
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
	missing atomic.Int64 // workflows to which something was told of that was not there
	mu      sync.Mutex
	failed  error
}

// startCausal makes a system with its caches filled.
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

// stop ends the system; what is measured next does not pay for it.
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

// phase is what a stretch of work took.
type phase struct {
	p50, p99 float64 // µs
	rate     float64 // workflows a second
	cpu      float64 // µs of processor a workflow
	aborts   float64 // in vain, for each workflow
	settled  float64 // ms until all was seen everywhere
	messages float64 // over links, a workflow
	requests float64 // to the store, a workflow
	metadata int     // bytes at its end
}

// measured runs work and says what it took, until everything is seen everywhere.
func (r *causalRun) measured(ctx context.Context, work func(l *kit.Latencies) error) (p phase, err error) {
	l := kit.NewLatencies()
	sent, asked := r.world.Links.Sent(), r.world.Store.Sent()
	flows, aborts, cpu, began := r.history.Flows(), r.history.Aborts.Load(), kit.OwnCPU(), time.Now()
	if err = work(l); err != nil {
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

// open begins workflows at a constant rate, however the earlier ones fare.
func (r *causalRun) open(ctx context.Context, rate float64, span time.Duration) (phase, error) {
	return r.measured(ctx, func(l *kit.Latencies) error {
		sleep, err := causalbase.NewSleeper()
		if err != nil {
			return err
		}
		defer sleep.Close()
		var mu sync.Mutex
		var wg sync.WaitGroup
		s, began := kit.Schedule{Rate: rate}, time.Now()
		for i := range int(rate * span.Seconds()) {
			sleep.Sleep(s.Due(i) - time.Since(began))
			wg.Go(func() {
				r.one(ctx)
				late := s.Late(i, time.Since(began))
				mu.Lock()
				l.Add(late, 1)
				mu.Unlock()
			})
		}
		wg.Wait()
		return nil
	})
}

// closed has so many clients, each of which begins a workflow when its last has ended.
func (r *causalRun) closed(ctx context.Context, clients int, span time.Duration) (phase, error) {
	return r.measured(ctx, func(l *kit.Latencies) error {
		var mu sync.Mutex
		var wg sync.WaitGroup
		began := time.Now()
		for range clients {
			wg.Go(func() {
				for time.Since(began) < span && ctx.Err() == nil {
					at := time.Now()
					r.one(ctx)
					late := time.Since(at)
					mu.Lock()
					l.Add(late, 1)
					mu.Unlock()
				}
			})
		}
		wg.Wait()
		return context.Cause(ctx)
	})
}

// causalVerdict is what the checker found in one system's histories.
type causalVerdict struct {
	flows, acts, anomalous int
	missing                int
	reason                 string
}

// sampled is the share of the keys whose reads are judged where there are too many
// concurrent writes to judge all.
const sampled = 32

// judge looks at what was recorded: all keys of the first acts, and of all acts a part of
// the keys. A history is right if one causal order explains it, and every workflow is
// counted that read what it knew to be overtaken.
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

// some is a history of a part of the keys. What was read of the others is still known to
// come from its writers.
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

// verdicts puts what was found of all systems into a report.
func verdicts(r *kit.Report, all map[string]causalVerdict) {
	for s, v := range all {
		r.Anomalies[s], r.Checked[s] = v.anomalous, v.acts
		r.Headline[s+"_anomalies"] = float64(v.anomalous)
	}
}

// micro is the workflow of the micro-benchmark: two functions that read three keys each,
// and one that writes one, each at a server by chance.
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

// causalNotes say what all of these experiments have in common.
func causalNotes() []string {
	return []string{
		fmt.Sprintf("Everything runs in one process, on all its processors, one system at a time; systems take turns and begin anew in each round, with their caches filled. One wrapper delays links by %v one way (the paper's round trip takes 0.15 ms), one delays every answer of the store by %v, as the paper does; both are the same for all systems, and so are the store, which is memory, the workflows and the servers at which their functions run, which are drawn by chance. A cache at the function's own server costs a call. What is measured includes the emulation.", causalHop, causalStore),
		"Baselines: hydro-con, hydro-opt and faastcc are written from what the CausalMesh and HydroCache papers say of them, to win: versions are numbers of the store's commits instead of vector clocks, each server's cache is a prefix of these, kept in two hash tables of which one is refreshed, each function reads its keys with one call, dependencies that all servers have had are dropped, hydro-opt asks servers where the workflow has been before it gives up, faastcc moves its snapshot forward if nothing that it has read has changed. Refresh period: HydroCache 100 ms, FaaSTCC 50 ms. dax: eventual caches that write through and copy to the others later, by a time distributed exponentially with a mean of 1 ms. none: the store alone.",
		"What each pays for: every message is encoded by who sends it and taken apart by who gets it, for freshet as for the others. freshet: tokens between functions, as text; writes on the ring, at every hop; the journal's entry of a write. hydro: what a workflow has read and what that needs, between functions; what a version needs, with its value, in the store, and in the feed that every server takes apart every period; hydro-con besides the read set to all servers, what each has of it and what that needs, and the cut to all; hydro-opt what it asks servers for. faastcc: the interval and what was read, between functions; the feed. dax: its copies. Between functions and servers nothing costs more than that and the link's delay: no runtime of functions, no gRPC.",
		"Judged: every workflow's reads and writes, those of attempts that were undone left out, by check.Causal. What is one act: a workflow with transactions (freshet-tcc, hydro, faastcc), a function (freshet, none), a read (dax). Anomalies are workflows that read something although they knew of a later write to it.",
	}
}

// phases are what the rounds of one system gave, in order.
type phases []phase

func (p phases) of(what func(phase) float64) []float64 {
	out := make([]float64, len(p))
	for i, x := range p {
		out[i] = what(x)
	}
	return out
}
