package node

import (
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"

	"github.com/freshet-cache/freshet/causal"
	"github.com/freshet-cache/freshet/causal/mesh"
	"github.com/freshet-cache/freshet/linear"
	"github.com/freshet-cache/freshet/linear/clink"
	"github.com/freshet-cache/freshet/shard"
	"github.com/freshet-cache/freshet/shard/lease"
)

// metrics count what a node does; docs/operating.md lists them.
type metrics struct {
	registry  *prometheus.Registry
	hits      atomic.Uint64
	missed    atomic.Uint64
	events    [clink.EventKinds]prometheus.Counter
	misses    [3]prometheus.Counter
	forwarded [2]prometheus.Counter // reads, writes
	leases    [3]prometheus.Counter
	aside     prometheus.Counter
	store     [4]prometheus.Observer
	storeErr  [4]prometheus.Counter
	commands  map[string]prometheus.Observer
	rest      prometheus.Observer

	causalEvents *prometheus.CounterVec
	causalCalls  *prometheus.HistogramVec
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
	clink.Inherited:           {"inherited_total", "entries"},
}

var eventHelp = map[string]string{
	"fills_refused_total":     "Rows that were read and not kept, by the rule that refused.",
	"writes_unresolved_total": "Writes whose outcome was unknown for a while, by how far they came.",
	"guards_total":            "Requests to install a guard, by what the store said.",
	"writes_refused_total":    "Attempts of writes that the store refused, by why; they are decided anew.",
	"combined_total":          "Writes and reads that shared another's request to the store.",
	"inherited_total":         "Entries taken over from a slice's former owner.",
}

func newMetrics(n *Node) *metrics {
	m := &metrics{registry: prometheus.NewRegistry(), commands: map[string]prometheus.Observer{}}
	f := prometheus.WrapRegistererWithPrefix("freshet_", prometheus.WrapRegistererWith(prometheus.Labels{"node": n.id}, m.registry))
	m.registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	vecs := map[string]*prometheus.CounterVec{}
	vec := func(name, help, label string) *prometheus.CounterVec {
		if vecs[name] == nil {
			vecs[name] = prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, []string{label})
			f.MustRegister(vecs[name])
		}
		return vecs[name]
	}
	for k, name := range eventNames {
		m.events[k] = vec(name[0], eventHelp[name[0]], "kind").WithLabelValues(name[1])
	}
	for i, why := range []string{"absent", "expired", "lease_over"} {
		m.misses[i] = vec("misses_total", "Reads that were not served from memory, by cause.", "cause").WithLabelValues(why)
	}
	for i, what := range []string{"read", "write"} {
		m.forwarded[i] = vec("forwarded_total", "Requests that went to another node, by kind.", "kind").WithLabelValues(what)
	}
	for i, what := range []string{"acquired", "renewed", "ended"} {
		m.leases[i] = vec("leases_total", "Leases of slices, by what became of them; those that end were recalled, lapsed or replaced.", "kind").WithLabelValues(what)
	}
	m.aside = prometheus.NewCounter(prometheus.CounterOpts{Name: "stepped_aside_total", Help: "Invariants that failed; the node reads through after one."})
	f.MustRegister(m.aside)
	buckets := prometheus.ExponentialBuckets(1e-6, 2, 24)
	calls := prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: "store_seconds", Help: "How long the store took, by request.", Buckets: buckets}, []string{"request"})
	cmds := prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: "command_seconds", Help: "How long commands took, but GETs served from memory, by name.", Buckets: buckets}, []string{"command"})
	m.causalEvents = prometheus.NewCounterVec(prometheus.CounterOpts{Name: "causal_total", Help: "What servers of causal spaces did, by space and kind."}, []string{"space", "kind"})
	m.causalCalls = prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: "causal_store_seconds", Help: "How long the store took for causal spaces, by request.", Buckets: buckets}, []string{"space", "request"})
	f.MustRegister(calls, cmds, m.causalEvents, m.causalCalls)
	for i, name := range []string{"load", "commit", "set_guard", "splits"} {
		m.store[i] = calls.WithLabelValues(name)
		m.storeErr[i] = vec("store_errors_total", "Requests the store refused or did not answer, by request.", "request").WithLabelValues(name)
	}
	for _, c := range n.p.commands {
		m.commands[c.Name] = cmds.WithLabelValues(c.Name)
	}
	m.commands["exec"] = cmds.WithLabelValues("exec")
	m.rest = cmds.WithLabelValues("other")
	gauge := func(name, help string, v func() float64) {
		f.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: name, Help: help}, v))
	}
	gauge("entries", "Entries in memory.", func() float64 { return float64(n.cache.Len()) })
	gauge("entries_bytes", "Memory of entries, as bounded by --memory.", func() float64 { return float64(n.cache.Bytes()) })
	gauge("connections", "Client connections.", func() float64 { return float64(n.server.Stats().Conns) })
	count := func(name, help string, v func() uint64) {
		f.MustRegister(prometheus.NewCounterFunc(prometheus.CounterOpts{Name: name, Help: help}, func() float64 { return float64(v()) }))
	}
	count("hits_total", "Reads served from memory.", m.hits.Load)
	gauge("tracking_clients", "Clients with CLIENT TRACKING on.", func() float64 { return float64(n.track.counts().clients) })
	gauge("tracking_keys", "Keys remembered for them.", func() float64 { return float64(n.track.counts().keys) })
	gauge("tracking_peer_keys", "Keys remembered for the clients of other nodes.", func() float64 { return float64(n.track.counts().peerKeys) })
	gauge("tracking_prefixes", "Prefixes that clients follow with BCAST.", func() float64 { return float64(n.track.counts().prefixes) })
	count("tracking_pushes_total", "Invalidations sent to clients.", n.track.pushes.Load)
	count("tracking_evictions_total", "Keys invalidated because too many were remembered.", func() uint64 { return n.track.counts().evicted })
	count("tracking_dropped_total", "Clients cut off because they did not take an invalidation in time.", func() uint64 { return n.server.Stats().Dropped })
	gauge("slices_owned", "Slices this node owns.", func() float64 { own, _ := n.cache.Leases(); return float64(own) })
	gauge("replica_keys", "Keys of other nodes that this node keeps a replica of.", func() float64 { _, copies := n.cache.Leases(); return float64(copies) })
	gauge("table_version", "Version of the routing table; it grows with every resharding.", func() float64 { return float64(n.shard.Table().Version) })
	gauge("ready", "Whether the node is ready.", func() float64 {
		if n.ready() {
			return 1
		}
		return 0
	})
	return m
}

func (m *metrics) hit() { m.hits.Add(1) }

// watcher counts leases on their way to the cache.
type watcher struct {
	shard.Watcher
	m *metrics
	t *tracking
}

// Acquired implements shard.Watcher.
func (w watcher) Acquired(h *shard.Handle, after lease.Gen) {
	w.m.leases[0].Inc()
	w.t.acquired(h) // first: no write may be acknowledged before
	w.Watcher.Acquired(h, after)
}

// Extended implements shard.Watcher.
func (w watcher) Extended(h *shard.Handle) {
	w.m.leases[1].Inc()
	w.Watcher.Extended(h)
}

// Revoked implements shard.Watcher.
func (w watcher) Revoked(h *shard.Handle) {
	w.Watcher.Revoked(h)
	w.m.leases[2].Inc()
}

// causalEvents are the events of causal/mesh, by how metrics call them.
var causalEvents = [mesh.EventKinds]string{
	mesh.Hit: "hit", mesh.Missed: "missed", mesh.CarriedMiss: "carried_miss", mesh.Journaled: "journaled", mesh.Injected: "injected", mesh.Retried: "retried",
	mesh.Voided: "voided", mesh.Throttled: "throttled", mesh.FellBehind: "behind", mesh.StaleMessage: "stale_message", mesh.Resent: "resent",
	mesh.Extended: "extended", mesh.Aborted: "aborted", mesh.Drained: "merged", mesh.GaveBack: "given_back",
}

var causalCalls = [causal.StoreCalls]string{"load", "persist", "fetch", "forget", "bury", "recover", "poll", "log", "claim", "merge"}

// causalMetrics count what a server of a causal space does.
type causalMetrics struct {
	events [mesh.EventKinds]prometheus.Counter
	calls  [causal.StoreCalls]prometheus.Observer
}

// causal counts for a space. A name is used once.
func (m *metrics) causal(space string) *causalMetrics {
	out := &causalMetrics{}
	for k, name := range causalEvents {
		out.events[k] = m.causalEvents.WithLabelValues(space, name)
	}
	for k, name := range causalCalls {
		out.calls[k] = m.causalCalls.WithLabelValues(space, name)
	}
	return out
}

// Event implements causal.Recorder.
func (m *causalMetrics) Event(e mesh.EventKind) { m.events[e].Inc() }

// StoreCall implements causal.Recorder.
func (m *causalMetrics) StoreCall(kind causal.StoreCall, took time.Duration, _ error) {
	m.calls[kind].Observe(took.Seconds())
}

// Shared implements shard.Sharer.
func (w watcher) Shared(h *shard.Handle) {
	w.m.leases[0].Inc()
	if s, ok := w.Watcher.(shard.Sharer); ok {
		s.Shared(h)
	}
}

// Unshared implements shard.Sharer.
func (w watcher) Unshared(h *shard.Handle) {
	if s, ok := w.Watcher.(shard.Sharer); ok {
		s.Unshared(h)
	}
	w.m.leases[2].Inc()
}

// timer measures a command, or several that are done at once.
func (m *metrics) timer(name string, commands int) func() {
	began := time.Now()
	return func() {
		o := m.commands[name]
		if o == nil {
			o = m.rest
		}
		took := time.Since(began).Seconds()
		for range commands {
			o.Observe(took)
		}
	}
}

// Miss implements linear.Recorder.
func (m *metrics) Miss(why linear.MissCause) {
	m.missed.Add(1)
	m.misses[why].Inc()
}

// Event implements linear.Recorder.
func (m *metrics) Event(e clink.EventKind) { m.events[e].Inc() }

// StoreCall implements linear.Recorder.
func (m *metrics) StoreCall(kind linear.StoreCall, took time.Duration, err error) {
	m.store[kind].Observe(took.Seconds())
	if err != nil {
		m.storeErr[kind].Inc()
	}
}

// SteppedAside implements linear.Recorder.
func (m *metrics) SteppedAside() { m.aside.Inc() }
