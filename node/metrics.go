package node

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"

	"github.com/freshet-cache/freshet/linear"
	"github.com/freshet-cache/freshet/linear/clink"
)

// metrics count what a node does; docs/operating.md lists them, and a test compares.
type metrics struct {
	hooks
	registry  *prometheus.Registry
	f         prometheus.Registerer // with freshet's prefix and the node's name
	hits      atomic.Uint64         // reads served from memory here, for whomever
	missed    atomic.Uint64
	expired   atomic.Uint64                  // of them, for what had expired
	reads     [sources][2]prometheus.Counter // by source, for clients and for other nodes
	events    [clink.EventKinds]prometheus.Counter
	misses    [linear.MissCauses]prometheus.Counter
	forwarded [2]prometheus.Counter // reads, writes
	leases    [4]prometheus.Counter
	aside     prometheus.Counter
	store     [4]prometheus.Observer
	storeAll  [4]prometheus.Counter
	storeErr  [4]prometheus.Counter
	classes   map[string]prometheus.Observer // of commands
	calls     *prometheus.CounterVec
	byName    sync.Map // of *calls

	spaceReads *prometheus.CounterVec // reads, by space too
}

// hooks are what metrics need of their node.
type hooks struct {
	class      func(command string) string // the class of a command
	storeEnded func(request string, took time.Duration, err error)
}

// Where a read was served from.
const (
	fromMemory = iota
	fromReplica
	fromJoined
	fromStore
	sources
)

// For whom.
const (
	forClient = iota
	forNode
)

// calls is what is known of one command.
type calls struct {
	count  atomic.Uint64
	micros atomic.Uint64 // of those that were timed
	metric prometheus.Counter
}

var eventNames = [clink.EventKinds][2]string{
	clink.FillRefusedNoGuard:  {"fills_refused_total", "no_guard"},
	clink.FillRefusedOverlap:  {"fills_refused_total", "overlap"},
	clink.FillRefusedLease:    {"fills_refused_total", "lease"},
	clink.FillRefusedExpired:  {"fills_refused_total", "expired"},
	clink.OutcomeUnknown:      {"writes_unresolved_total", "began"},
	clink.OutcomeProvenDone:   {"writes_unresolved_total", "proven_done"},
	clink.OutcomeProvenFailed: {"writes_unresolved_total", "proven_failed"},
	clink.OutcomeLeftUnknown:  {"writes_unresolved_total", "left_unknown"},
	clink.GuardInstalled:      {"guards_total", "installed"},
	clink.GuardRefused:        {"guards_total", "refused"},
	clink.GuardLost:           {"guards_total", "unanswered"},
	clink.Mismatched:          {"writes_refused_total", "guard_mismatch"},
	clink.Conflicted:          {"writes_refused_total", "conflict"},
	clink.Combined:            {"combined_total", "writes"},
	clink.Joined:              {"combined_total", "reads"},
	clink.Transferred:         {"transferred_total", "entries"},
}

var eventHelp = map[string]string{
	"fills_refused_total":     "Rows that were read and not kept, by the rule that refused.",
	"writes_unresolved_total": "Writes whose outcome was unknown for a while, by how far they came.",
	"guards_total":            "Requests to install a guard, by what the store said.",
	"writes_refused_total":    "Attempts of writes that the store refused, by why; they are decided anew.",
	"combined_total":          "Writes and reads that shared another's request to the store.",
	"transferred_total":       "Entries taken over from a slice's former owner.",
}

var storeCalls = [4]string{linear.CallLoad: "load", linear.CallCommit: "commit", linear.CallSetGuard: "set_guard", linear.CallSplits: "splits"}

var missCauses = [linear.MissCauses]string{
	linear.Absent: "absent", linear.Expired: "expired", linear.Invalid: "lease_over", linear.Evicted: "evicted", linear.Invalidated: "invalidated", linear.Unguarded: "guarding",
}

// histogram describes a histogram of seconds: a native one, or with --metrics-classic
// eight buckets.
func histogram(classic bool, name, help string) prometheus.HistogramOpts {
	if classic {
		return prometheus.HistogramOpts{Name: name, Help: help, Buckets: []float64{.0001, .0003, .001, .003, .01, .03, .1, 1}}
	}
	return prometheus.HistogramOpts{Name: name, Help: help, NativeHistogramBucketFactor: 1.2, NativeHistogramMaxBucketNumber: 80, NativeHistogramMinResetDuration: time.Hour}
}

func newMetrics(node string, classic bool, hooks hooks) *metrics {
	m := &metrics{hooks: hooks, registry: prometheus.NewRegistry(), classes: map[string]prometheus.Observer{}}
	m.f = prometheus.WrapRegistererWithPrefix("freshet_", prometheus.WrapRegistererWith(prometheus.Labels{"node": node}, m.registry))
	m.registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	vecs := map[string]*prometheus.CounterVec{}
	vec := func(name, help string, labels ...string) *prometheus.CounterVec {
		if vecs[name] == nil {
			vecs[name] = prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, labels)
			m.f.MustRegister(vecs[name])
		}
		return vecs[name]
	}
	reads := vec("reads_total", "Reads served by this node, by where from and for whom; forwarded reads count where they are served.", "space", "source", "for")
	for i, source := range [sources]string{fromMemory: "memory", fromReplica: "replica", fromJoined: "joined", fromStore: "store"} {
		for j, who := range []string{forClient: "client", forNode: "node"} {
			m.reads[i][j] = reads.WithLabelValues("default", source, who)
		}
	}
	for k, name := range eventNames {
		m.events[k] = vec(name[0], eventHelp[name[0]], "kind").WithLabelValues(name[1])
	}
	for i, why := range missCauses {
		m.misses[i] = vec("misses_total", "Reads that were not served from memory, by cause.", "cause").WithLabelValues(why)
	}
	for i, what := range []string{"read", "write"} {
		m.forwarded[i] = vec("forwarded_total", "Requests that went to another node, by kind.", "kind").WithLabelValues(what)
	}
	for i, what := range []string{"acquired", "renewed", "ended", "lapsed"} {
		m.leases[i] = vec("leases_total", "Leases of slices, by what became of them; those that ended were recalled or replaced, those that lapsed were not renewed in time.", "kind").WithLabelValues(what)
	}
	m.aside = prometheus.NewCounter(prometheus.CounterOpts{Name: "stepped_aside_total", Help: "Invariants that failed; the node reads through after one."})
	m.f.MustRegister(m.aside)
	store := prometheus.NewHistogramVec(histogram(classic, "store_seconds", "How long the store took, by request."), []string{"request"})
	classes := prometheus.NewHistogramVec(histogram(classic, "command_seconds", "How long commands took, but GETs served from memory, by class."), []string{"class"})
	m.calls = vec("calls_total", "Commands, by name.", "command")
	m.f.MustRegister(store, classes)
	for i, name := range storeCalls {
		m.store[i] = store.WithLabelValues(name)
		m.storeAll[i] = vec("store_calls_total", "Requests to the store, by request.", "request").WithLabelValues(name)
		m.storeErr[i] = vec("store_errors_total", "Requests the store refused or did not answer, by request.", "request").WithLabelValues(name)
	}
	for _, class := range commandClasses {
		m.classes[class] = classes.WithLabelValues(class)
	}
	m.spaceReads = reads
	return m
}

// served counts a read that was served here.
func (m *metrics) served(e linear.Entry[string], who int) {
	source := fromStore
	switch {
	case e.Hit && e.Copy:
		source = fromReplica
	case e.Hit:
		source = fromMemory
	case e.Joined:
		source = fromJoined
	}
	if e.Hit {
		m.hits.Add(1)
	}
	m.reads[source][who].Inc()
}

// hit counts reads served from memory for a client, of which some came from replicas.
func (m *metrics) hit(all, copies uint64) {
	m.hits.Add(all)
	m.reads[fromMemory][forClient].Add(float64(all - copies))
	m.reads[fromReplica][forClient].Add(float64(copies))
	m.call("get").add(all, 0)
}

// commandClasses are the classes of commands.
var commandClasses = []string{"read", "write", "multi", "session", "admin"}

// call is the count of a command, which is made at its first use.
func (m *metrics) call(name string) *calls {
	if c, ok := m.byName.Load(name); ok {
		return c.(*calls)
	}
	c, _ := m.byName.LoadOrStore(name, &calls{metric: m.calls.WithLabelValues(name)})
	return c.(*calls)
}

func (c *calls) add(n uint64, took time.Duration) {
	c.count.Add(n)
	c.micros.Add(uint64(took.Microseconds()))
	c.metric.Add(float64(n))
}

// took counts commands of one name that were done at once. Names are those of the
// command table, of which there are few.
func (m *metrics) took(name string, commands int, took time.Duration) {
	o := m.classes[m.class(name)]
	for range commands {
		o.Observe(took.Seconds())
	}
	m.call(name).add(uint64(commands), took)
}

// Miss implements linear.Recorder.
func (m *metrics) Miss(why linear.MissCause) {
	m.missed.Add(1)
	if why == linear.Expired {
		m.expired.Add(1)
	}
	m.misses[why].Inc()
}

// Event implements linear.Recorder.
func (m *metrics) Event(e clink.EventKind) { m.events[e].Inc() }

// StoreCall implements linear.Recorder.
func (m *metrics) StoreCall(kind linear.StoreCall, took time.Duration, err error) {
	m.store[kind].Observe(took.Seconds())
	m.storeAll[kind].Inc()
	if err != nil {
		m.storeErr[kind].Inc()
	}
	m.storeEnded(storeCalls[kind], took, err)
}

// SteppedAside implements linear.Recorder.
func (m *metrics) SteppedAside() { m.aside.Inc() }
