package node

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/freshet-cache/freshet/causal"
	"github.com/freshet-cache/freshet/causal/mesh"
	"github.com/freshet-cache/freshet/shard"
	"github.com/freshet-cache/freshet/shard/lease"
)

// causalVecs are the metrics of all causal spaces.
type causalVecs struct {
	reads, events, errors *prometheus.CounterVec
	calls                 *prometheus.HistogramVec
}

func (v *causalVecs) register(m *metrics, reads *prometheus.CounterVec) {
	v.reads = reads
	v.events = prometheus.NewCounterVec(prometheus.CounterOpts{Name: "causal_total", Help: "What servers of causal spaces did, by space and kind."}, []string{"space", "kind"})
	v.calls = prometheus.NewHistogramVec(m.histogram("causal_store_seconds", "How long the store took for causal spaces: to read, to write, or to write the log on disk."), []string{"space", "request"})
	v.errors = prometheus.NewCounterVec(prometheus.CounterOpts{Name: "causal_store_errors_total", Help: "Requests for causal spaces that the store refused or did not answer."}, []string{"space"})
	m.f.MustRegister(v.events, v.calls, v.errors, rings{m.n,
		prometheus.NewDesc("causal_departed_incarnations", "Former incarnations whose writes not every node has yet.", []string{"space"}, nil),
		prometheus.NewDesc("causal_owed_writes", "Writes of this node that are in its log and not in the store.", []string{"space"}, nil)})
}

// rings collects what is known of the rings of causal spaces.
type rings struct {
	n              *Node
	departed, owed *prometheus.Desc
}

// Describe implements prometheus.Collector.
func (r rings) Describe(ch chan<- *prometheus.Desc) { ch <- r.departed; ch <- r.owed }

// Collect implements prometheus.Collector.
func (r rings) Collect(ch chan<- prometheus.Metric) {
	if !r.n.running() {
		return
	}
	for _, s := range r.n.rings() {
		ch <- prometheus.MustNewConstMetric(r.departed, prometheus.GaugeValue, float64(s.Departed), s.Space)
		ch <- prometheus.MustNewConstMetric(r.owed, prometheus.GaugeValue, float64(s.Owes), s.Space)
	}
}

// causalEvents are the events of causal/mesh, by how metrics call them. What is served to
// a session is among the reads.
var causalEvents = [mesh.EventKinds]string{
	mesh.CarriedMiss: "carried_miss", mesh.Journaled: "journaled", mesh.Injected: "injected", mesh.Retried: "retried",
	mesh.Voided: "voided", mesh.Throttled: "throttled", mesh.FellBehind: "behind", mesh.StaleMessage: "stale_message", mesh.Resent: "resent",
	mesh.Extended: "extended", mesh.Aborted: "aborted", mesh.Drained: "merged", mesh.GaveBack: "given_back",
}

// causalCalls are the requests of causal spaces to the store, by the class that metrics
// give them.
var causalCalls = [causal.StoreCalls]string{"read", "write", "read", "write", "write", "read", "read", "log", "write", "write"}

// causalMetrics count what a server of a causal space does.
type causalMetrics struct {
	events [mesh.EventKinds]prometheus.Counter
	calls  [causal.StoreCalls]prometheus.Observer
	errors prometheus.Counter
	watch  func(request string, took time.Duration, err error)
}

// space counts for a causal space. A name is used once.
func (v *causalVecs) space(n *Node, space string) *causalMetrics {
	out := &causalMetrics{errors: v.errors.WithLabelValues(space)}
	for k, name := range causalEvents {
		switch mesh.EventKind(k) {
		case mesh.Hit:
			out.events[k] = v.reads.WithLabelValues(space, "memory", "client")
		case mesh.Missed:
			out.events[k] = v.reads.WithLabelValues(space, "store", "client")
		default:
			out.events[k] = v.events.WithLabelValues(space, name)
		}
	}
	for k, name := range causalCalls {
		out.calls[k] = v.calls.WithLabelValues(space, name)
	}
	out.watch = func(request string, took time.Duration, err error) {
		if request != "log" {
			n.p.watch.store.ended(n, request, took, err)
		}
	}
	return out
}

// Event implements causal.Recorder.
func (m *causalMetrics) Event(e mesh.EventKind) { m.events[e].Inc() }

// StoreCall implements causal.Recorder.
func (m *causalMetrics) StoreCall(kind causal.StoreCall, took time.Duration, err error) {
	m.calls[kind].Observe(took.Seconds())
	if err != nil {
		m.errors.Inc()
	}
	m.watch(causalCalls[kind], took, err)
}

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
	w.m.leases[ending(h)].Inc()
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
	w.m.leases[ending(h)].Inc()
}

// ending is which counter of leases counts a handle that has ended.
func ending(h *shard.Handle) int {
	if h.Lapsed {
		return 3
	}
	return 2
}
