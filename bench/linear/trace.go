package linear

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/redis/rueidis"
	"golang.org/x/sys/unix"

	"github.com/freshet-cache/freshet/bench/kit"
	"github.com/freshet-cache/freshet/check"
)

// The systems of linear-trace: three nodes with memory for every entry, and three nodes with memory
// for a tenth of the bytes.
var traceSystems = []string{"freshet", "freshet-tenth"}

const (
	traceNodes   = 3
	traceClients = 12
	traceFlight  = 4096 // with more requests under way, the system does not sustain the rate
	traceTimeout = 10 * time.Second
)

// traceSizes are the sizes of a run of linear-trace.
type traceSizes struct {
	requests int
	rate     float64
}

func traceSizesOf(o kit.Options) traceSizes {
	switch {
	case o.Preset == "tiny":
		return traceSizes{500, cmp.Or(o.Number("rate"), 2000)}
	case o.Preset == "paper":
		return traceSizes{5_000_000, cmp.Or(o.Number("rate"), 10_000)}
	}
	return traceSizes{80_000, cmp.Or(o.Number("rate"), 5000)}
}

// replay is one run of a trace against one system.
type replay struct {
	began    time.Time
	accesses []access
	schedule kit.Schedule
	clients  []rueidis.Client

	history []check.Op      // as accesses
	sent    []time.Duration // time after the start of the schedule
	done    []time.Duration
	flight  atomic.Int64
	failed  atomic.Int64 // requests without an answer
	torn    atomic.Int64 // damaged values
}

// traceKey returns the name of an object: its type, its number, its index.
func traceKey(key uint32) string {
	return fmt.Sprintf("%c:%d:%d:%d", 'a'+key>>27%26, key>>27, key>>10&(1<<17-1), key&(1<<10-1))
}

// traceValue returns a unique value of the length that is usual for its type.
func traceValue(key uint32, name string) string {
	return name + "|" + strings.Repeat(".", max(0, size(key)-len(name)-1))
}

// original names the value that a key has before the trace.
const original = "original"

// newReplay prepares a trace: the keys, in the order of their first use, and the history, which
// begins with the writes that created them.
func newReplay(accesses []access, rate float64) (r *replay, keys []uint32) {
	r = &replay{began: time.Now(), accesses: accesses, schedule: kit.Schedule{Rate: rate}, history: make([]check.Op, len(accesses)),
		sent: make([]time.Duration, len(accesses)), done: make([]time.Duration, len(accesses))}
	seen := map[uint32]bool{}
	for _, a := range accesses {
		if !seen[a.key] {
			seen[a.key] = true
			keys = append(keys, a.key)
		}
	}
	return r, keys
}

func connect(addr string) (rueidis.Client, error) {
	return rueidis.NewClient(rueidis.ClientOption{InitAddress: []string{addr}, DisableCache: true, ForceSingleClient: true, DisableRetry: true})
}

// load writes the original value of every key.
func (r *replay) load(ctx context.Context, addr string, keys []uint32) error {
	c, err := connect(addr)
	if err != nil {
		return err
	}
	defer c.Close()
	for part := range slices.Chunk(keys, 500) {
		var sets []rueidis.Completed
		for _, k := range part {
			sets = append(sets, c.B().Set().Key(traceKey(k)).Value(traceValue(k, original)).Build())
		}
		for _, res := range c.DoMulti(ctx, sets...) {
			if err := res.Error(); err != nil {
				return fmt.Errorf("writing the keys of the trace: %w", err)
			}
		}
	}
	end := int64(time.Since(r.began))
	for _, k := range keys {
		r.history = append(r.history, check.Op{Client: -1, Kind: check.Write, Key: traceKey(k), Value: original, End: end, Outcome: check.OK})
	}
	return nil
}

var errFlight = errors.New("the rate is not sustained: too many requests are under way; say a lower --rate")

// run sends every request when it is due, whether or not the earlier ones are answered.
func (r *replay) run(ctx context.Context, progress func(done int)) error {
	back := sender()
	defer back()
	return kit.OpenLoop{Schedule: r.schedule, Sleep: preciseSleep, Before: func(i int) error {
		switch {
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case r.flight.Load() > traceFlight:
			return fmt.Errorf("%w (at request %d)", errFlight, i)
		case i%1000 == 0:
			progress(i)
		}
		r.flight.Add(1)
		return nil
	}}.Run(len(r.accesses), func(i int, began time.Time) {
		defer r.flight.Add(-1)
		r.sent[i] = time.Since(began)
		r.request(ctx, i)
		r.done[i] = time.Since(began)
	})
}

// preciseSleep sleeps on the thread of the sender.
func preciseSleep(d time.Duration) {
	ts := unix.NsecToTimespec(int64(d))
	_ = unix.Nanosleep(&ts, nil) // an interrupted sleep continues
}

// sender gives the goroutine its own thread, which sleeps to the microsecond, and a processor in
// addition to those that the answers need. time.Sleep wakes up to a millisecond late, which would
// count as latency.
func sender() (back func()) {
	runtime.LockOSThread()
	_ = unix.Prctl(unix.PR_SET_TIMERSLACK, 1, 0, 0, 0) // without it, the thread wakes 50 µs late
	before := runtime.GOMAXPROCS(0)
	runtime.GOMAXPROCS(before + 1)
	return func() {
		runtime.GOMAXPROCS(before)
		_ = unix.Prctl(unix.PR_SET_TIMERSLACK, 0, 0, 0, 0)
		runtime.UnlockOSThread()
	}
}

// request sends one request and records it.
func (r *replay) request(ctx context.Context, i int) {
	ctx, cancel := context.WithTimeout(ctx, traceTimeout)
	defer cancel()
	a := r.accesses[i]
	c := r.clients[a.client]
	o := check.Op{Client: a.client, Kind: check.Read, Key: traceKey(a.key), Outcome: check.OK}
	var err error
	if a.write {
		o.Kind, o.Value = check.Write, strconv.Itoa(i)
		value := traceValue(a.key, o.Value)
		o.Start = int64(time.Since(r.began))
		err = c.Do(ctx, c.B().Set().Key(o.Key).Value(value).Build()).Error()
	} else {
		o.Start = int64(time.Since(r.began))
		var value string
		if value, err = c.Do(ctx, c.B().Get().Key(o.Key).Build()).ToString(); rueidis.IsRedisNil(err) {
			err = nil
		} else if err == nil {
			o.Value, _, o.Found = strings.Cut(value, "|")
			if len(value) != size(a.key) || !o.Found {
				r.torn.Add(1)
			}
		}
	}
	if o.End = int64(time.Since(r.began)); err != nil {
		o.Outcome = check.Unknown
		r.failed.Add(1)
	}
	r.history[i] = o
}

// failedReads counts the reads without an answer.
func (r *replay) failedReads() (n int) {
	for _, o := range r.history {
		if o.Kind == check.Read && o.Outcome != check.OK {
			n++
		}
	}
	return n
}

// keep writes the history to a file for freshet check.
func (r *replay) keep(file string) error {
	f, err := os.Create(file)
	if err != nil {
		return err
	}
	w := check.NewWriter(f)
	for _, o := range r.history {
		w.Add(o)
	}
	return errors.Join(w.Close(), f.Close())
}

// traceResult has the figures of one system.
type traceResult struct {
	reads, writes   *kit.Latencies
	lag             *kit.Latencies // delay of the sender behind its schedule
	hits, saved     float64        // shares of the reads
	possible        float64        // the share of hits with memory for all entries
	forwarded       float64        // share of all requests
	memory          string
	checked, failed int
	stale, wrong    int
	reason          string
}

// replayOn runs a trace against three new nodes with empty memory.
func replayOn(ctx context.Context, opt kit.Options, system string, accesses []access, rate float64) (f *traceResult, err error) {
	r, keys := newReplay(accesses, rate)
	dir, err := kit.Scratch(system)
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(filepath.Dir(dir))
	opt.Progress(fmt.Sprintf("%s: writing %d keys", system, len(keys)))
	s, err := kit.StartFreshet(ctx, opt, false, 1, dir, "--no-sync")
	if err != nil {
		return nil, err
	}
	if err := errors.Join(r.load(ctx, s.Addrs[0], keys), s.Stop()); err != nil { // a restart empties the memory
		return nil, err
	}
	var flags []string
	f = &traceResult{memory: "all"}
	if system == "freshet-tenth" {
		total := 0
		for _, k := range keys {
			total += len(traceKey(k)) + size(k)
		}
		flags, f.memory = []string{"--memory", strconv.Itoa(total / 10 / traceNodes)}, "a tenth"
	}
	if s, err = kit.StartFreshet(ctx, opt, false, traceNodes, dir, flags...); err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, s.Stop()) }()
	for i := range traceClients {
		c, err := connect(s.Addrs[i%traceNodes])
		if err != nil {
			return nil, err
		}
		defer c.Close()
		r.clients = append(r.clients, c)
	}
	before, err := kit.Count(ctx, s.Admins)
	if err != nil {
		return nil, err
	}
	if err := r.run(ctx, func(done int) {
		opt.Progress(fmt.Sprintf("%s: %d of %d requests, %.0f a second", system, done, len(accesses), rate))
	}); err != nil {
		return nil, err
	}
	after, err := kit.Count(ctx, s.Admins)
	if err != nil {
		return nil, err
	}
	opt.Progress(system + ": checking the history")
	f.sum(r, before, after)
	if opt.Text("history") == "" {
		return f, nil
	}
	return f, r.keep(filepath.Join(opt.Text("history"), "linear-trace-"+system+".jsonl"))
}

// sum computes the figures of a replay.
func (f *traceResult) sum(r *replay, before, after kit.Counters) {
	f.reads, f.writes, f.lag = kit.NewLatencies(), kit.NewLatencies(), kit.NewLatencies()
	reads, first, seen := 0.0, 0.0, map[uint32]bool{}
	for i, a := range r.accesses {
		f.lag.Add(r.schedule.Late(i, r.sent[i]), 1)
		late := r.schedule.Late(i, r.done[i])
		switch {
		case a.write:
			f.writes.Add(late, 1)
		default:
			f.reads.Add(late, 1)
			if reads++; !seen[a.key] {
				first++
			}
		}
		seen[a.key] = true
	}
	f.possible = 1 - first/reads
	f.hits = 1 - after.Since(before, "freshet_misses_total")/reads
	f.saved = 1 - after.Since(before, "freshet_store_seconds_count/load")/reads
	f.forwarded = after.Since(before, "freshet_forwarded_total") / float64(len(r.accesses))
	f.stale, _ = check.Stale(r.history)
	f.failed = int(r.failed.Load())
	var err error
	f.checked, f.wrong, err = kit.Judged(r.history)
	if f.wrong += int(r.torn.Load()); err != nil {
		f.reason = err.Error()
	}
}
