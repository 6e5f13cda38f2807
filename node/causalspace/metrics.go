package causalspace

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/freshet-cache/freshet/causal"
	"github.com/freshet-cache/freshet/causal/mesh"
)

// metrics are those of all causal spaces of a node.
type metrics struct {
	n              *node
	events, errors *prometheus.CounterVec
	calls          *prometheus.HistogramVec
	departed, owed *prometheus.Desc
}

func newMetrics(n *node) *metrics {
	m := &metrics{
		n:        n,
		events:   prometheus.NewCounterVec(prometheus.CounterOpts{Name: "causal_total", Help: "What servers of causal spaces did, by space and kind."}, []string{"space", "kind"}),
		calls:    prometheus.NewHistogramVec(n.Metrics.Histogram("causal_store_seconds", "How long the store took for causal spaces: to read, to write, or to write the log on disk."), []string{"space", "request"}),
		errors:   prometheus.NewCounterVec(prometheus.CounterOpts{Name: "causal_store_errors_total", Help: "Requests for causal spaces that the store refused or did not answer."}, []string{"space"}),
		departed: prometheus.NewDesc("causal_departed_incarnations", "Former incarnations whose writes not every node has yet.", []string{"space"}, nil),
		owed:     prometheus.NewDesc("causal_owed_writes", "Writes of this node that are in its log and not in the store.", []string{"space"}, nil),
	}
	n.Metrics.MustRegister(m.events, m.calls, m.errors, m)
	return m
}

// Describe implements prometheus.Collector.
func (m *metrics) Describe(ch chan<- *prometheus.Desc) { ch <- m.departed; ch <- m.owed }

// Collect implements prometheus.Collector.
func (m *metrics) Collect(ch chan<- prometheus.Metric) {
	for _, s := range m.n.Groups() {
		ch <- prometheus.MustNewConstMetric(m.departed, prometheus.GaugeValue, float64(s.Departed), s.Space)
		ch <- prometheus.MustNewConstMetric(m.owed, prometheus.GaugeValue, float64(s.Owes), s.Space)
	}
}

// eventNames are the events of causal/mesh, by how metrics call them. What is served to
// a session is among the reads.
var eventNames = [mesh.EventKinds]string{
	mesh.CarriedMiss: "carried_miss", mesh.Journaled: "journaled", mesh.Injected: "injected", mesh.Retried: "retried",
	mesh.Voided: "voided", mesh.Throttled: "throttled", mesh.FellBehind: "behind", mesh.StaleMessage: "stale_message", mesh.Resent: "resent",
	mesh.Extended: "extended", mesh.Aborted: "aborted", mesh.Drained: "merged", mesh.GaveBack: "given_back",
}

// callNames are the requests of causal spaces to the store, by the class that metrics
// give them.
var callNames = [causal.StoreCalls]string{"read", "write", "read", "write", "write", "read", "read", "log", "write", "write"}

// recorder counts what a server of a causal space does.
type recorder struct {
	events [mesh.EventKinds]prometheus.Counter
	calls  [causal.StoreCalls]prometheus.Observer
	errors prometheus.Counter
	store  func(request string, took time.Duration, err error)
}

// space counts for a causal space. A name is used once.
func (m *metrics) space(space string) *recorder {
	out := &recorder{errors: m.errors.WithLabelValues(space), store: m.n.Metrics.Store}
	for k, name := range eventNames {
		switch mesh.EventKind(k) {
		case mesh.Hit:
			out.events[k] = m.n.Metrics.Reads.WithLabelValues(space, "memory", "client")
		case mesh.Missed:
			out.events[k] = m.n.Metrics.Reads.WithLabelValues(space, "store", "client")
		default:
			out.events[k] = m.events.WithLabelValues(space, name)
		}
	}
	for k, name := range callNames {
		out.calls[k] = m.calls.WithLabelValues(space, name)
	}
	return out
}

// Event implements causal.Recorder.
func (m *recorder) Event(e mesh.EventKind) { m.events[e].Inc() }

// StoreCall implements causal.Recorder.
func (m *recorder) StoreCall(kind causal.StoreCall, took time.Duration, err error) {
	m.calls[kind].Observe(took.Seconds())
	if err != nil {
		m.errors.Inc()
	}
	if name := callNames[kind]; name != "log" {
		m.store(name, took, err)
	}
}
