package bench

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// Options say what to run. Only Experiment is required.
type Options struct {
	Experiment string
	// Preset is smoke, in less than a minute, or paper, for figures that are
	// published. Default smoke.
	Preset string
	// Systems are those to measure. Default: all the experiment knows.
	Systems []string
	// Trace is a file of big-endian uint32 keys, in gzip if its name ends so.
	// Default: the cut that comes with this package. For linear-traces it is a
	// directory, with traces, meta and lobsters in it; default $FRESHET_DATA.
	Trace string
	// Out is where results go. Default bench-out.
	Out string
	// Redis is the address of a running redis-server, whose persistence is then
	// its own affair. Default: redis-server is started from PATH.
	Redis string
	// Rate is how many requests a second an open loop sends. Default: by preset.
	Rate float64
	// Writes is the share of a trace's accesses that are made writes. Default
	// 0.05; negative makes none.
	Writes float64
	// History is where linear-trace keeps what was asked and answered, for
	// freshet check. Default: nowhere; it takes 150 bytes a request.
	History string
	// Postgres is the URL of a database in which schemas are made.
	// Default: a server is started for it.
	Postgres string
	// Seed makes the requests. Default 1.
	Seed uint64
	// Serve is the command that runs freshet serve. Default: this executable.
	Serve []string
	// Command is the command line as the results show it.
	Command string
	// Progress is told what is going on, often. Default: nobody is.
	Progress func(text string)
	// Table takes the tables. Default: they go nowhere.
	Table io.Writer

	tiny bool // for tests: the least that runs through everything
}

// experiment is something that can be measured.
type experiment struct {
	about   string
	systems []string
	run     func(ctx context.Context, opt Options) (*Report, error)
}

var experiments = map[string]experiment{
	"causal-anomalies":  {"workflows that do not see what they have written, by the number of cache nodes, beside eventual caches", anomalySystems, causalAnomalies},
	"causal-micro":      {"latency and throughput of a workflow of three functions that roam among three servers, beside causal caches that others describe", causalSystems, causalMicro},
	"causal-movie":      {"a service of movie reviews as workflows that fork, join and roam, beside causal caches that others describe", movieSystems, causalMovie},
	"causal-overhead":   {"processor time, memory and metadata of causal caches at a constant rate, and the size of a token", causalOverheadSystems, causalOverhead},
	"causal-scale":      {"throughput of causal caches from 2 to 16 servers, at equal processor time", scaleSystems, causalScale},
	"causal-visibility": {"how long after a write at one server the last of the ring shows it, by the number of servers", visibilitySystems, causalVisibility},
	"guard-overhead":    {"what guards cost the writes of a store, beside the same writes without", guardSystems, guardOverhead},
	"linear-cores":      {"hits in process and GET over the Redis protocol, by the number of processors", coreSystems, linearCores},
	"linear-failover":   {"reads and writes around a crash, a pause and a drain of the keys' owner", failoverSystems, linearFailover},
	"linear-hit":        {"a hit of the linear cache in process, beside the bare map it stands on", hitSystems, linearHit},
	"linear-hotkey":     {"one key that is written more and more, and that gets more and more of all requests, beside what people use", tableSystems, linearHotkey},
	"linear-remote":     {"GET and SET over the Redis protocol, beside redis-server", remoteSystems, linearRemote},
	"linear-traces":     {"reads and writes like those of eight services over PostgreSQL, beside what people use and what papers describe", tableSystems, linearTraces},
	"linear-replicas":   {"one hot key that several nodes serve: how many as it is read more, and what that costs its writes", replicaSystems, linearReplicas},
	"linear-reshard":    {"reads and writes at three nodes while half a percent of the keys move each second", reshardSystems, linearReshard},
	"linear-trace":      {"a recorded trace against three nodes at a constant rate, every answer checked", traceSystems, linearTrace},
	"linear-writes":     {"read latency over PostgreSQL as the share of writes grows, beside what people use and what papers describe", tableSystems, linearWrites},
	"linear-tracking":   {"reads from clients' own caches (CLIENT TRACKING) that are older than an acknowledged write, beside redis-server", trackingSystems, linearTracking},
}

// Experiments are the names that Options.Experiment may have, with what each is
// about.
func Experiments() (names []string, about map[string]string) {
	about = map[string]string{}
	for name, e := range experiments {
		about[name] = e.about
	}
	return slices.Sorted(maps.Keys(about)), about
}

func (o *Options) check() error {
	names, _ := Experiments()
	e, ok := experiments[o.Experiment]
	if !ok {
		return fmt.Errorf("bench: experiment %q is not known; there are %s", o.Experiment, strings.Join(names, ", "))
	}
	if len(o.Systems) == 0 {
		o.Systems = e.systems
	}
	for _, s := range o.Systems {
		if !slices.Contains(e.systems, s) {
			return fmt.Errorf("bench: %s has no system %q; it has %s", o.Experiment, s, strings.Join(e.systems, ", "))
		}
	}
	o.Preset, o.Out = cmp.Or(o.Preset, "smoke"), cmp.Or(o.Out, "bench-out")
	o.Seed, o.Writes = cmp.Or(o.Seed, 1), cmp.Or(o.Writes, 0.05)
	switch {
	case o.Preset != "smoke" && o.Preset != "paper":
		return fmt.Errorf("bench: preset %q is neither smoke nor paper", o.Preset)
	case o.Rate < 0:
		return fmt.Errorf("bench: a rate of %g requests a second is negative", o.Rate)
	case o.Writes > 1:
		return fmt.Errorf("bench: a share of writes of %g is more than all", o.Writes)
	}
	o.Writes = max(0, o.Writes)
	if len(o.Serve) == 0 {
		exe, err := os.Executable()
		if err != nil {
			return fmt.Errorf("bench: this executable cannot be found: %w", err)
		}
		o.Serve = []string{exe, "serve"}
	}
	if o.Progress == nil {
		o.Progress = func(string) {}
	}
	if o.Table == nil {
		o.Table = io.Discard
	}
	return nil
}

// ErrAnomaly means that a system's answers were wrong: the figures are void.
var ErrAnomaly = errors.New("bench: a checker found wrong answers; the figures are void, look at anomalies in the results")

// Run runs an experiment and leaves its results in Out: EXPERIMENT.json, a page
// EXPERIMENT.md, and plots. The error is ErrAnomaly if freshet answered wrongly.
func Run(ctx context.Context, opt Options) (*Report, error) {
	if err := opt.check(); err != nil {
		return nil, err
	}
	began := time.Now()
	if err := os.MkdirAll(opt.Out, 0o755); err != nil {
		return nil, fmt.Errorf("bench: results cannot be kept: %w", err)
	}
	r, err := experiments[opt.Experiment].run(ctx, opt)
	if err != nil {
		return nil, fmt.Errorf("bench: %s: %w", opt.Experiment, err)
	}
	opt.Progress("")
	r.Experiment, r.Command, r.about = opt.Experiment, opt.Command, experiments[opt.Experiment].about
	if opt.Trace != "" { // where it lies on this machine tells a reader nothing
		r.Command = strings.ReplaceAll(r.Command, opt.Trace, filepath.Base(opt.Trace))
	}
	r.Machine, r.Commit = machine(), commit()
	r.took = time.Since(began)
	if err := r.write(opt.Out); err != nil {
		return nil, fmt.Errorf("bench: results cannot be kept: %w", err)
	}
	r.print(opt.Table)
	fmt.Fprintf(opt.Table, "\nresults: %s\n", filepath.Join(opt.Out, opt.Experiment+".{md,json,png,svg}"))
	for system, n := range r.Anomalies {
		if n > 0 && (strings.HasPrefix(system, "freshet") || opt.Experiment == "guard-overhead") { // there all are ours
			return r, ErrAnomaly
		}
	}
	return r, nil
}
