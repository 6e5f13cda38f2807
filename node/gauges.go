package node

import (
	"runtime"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// storeEnded passes on what a promise has asked of the process's store.
func (n *Node) storeEnded(request string, took time.Duration, err error) {
	n.p.watch.store.ended(n.log, request, took, err)
}

// class is the class of a command.
func (n *Node) class(name string) string {
	cmd := n.p.table[name]
	switch {
	case name == "exec":
		return "multi"
	case cmd == nil:
		return "admin"
	case classOf[name] != "":
		return classOf[name]
	case slices.Contains(cmd.Flags, "write"):
		return "write"
	case slices.Contains(cmd.Flags, "readonly") && cmd.FirstKey > 0 && name != "fr.explain":
		return "read"
	}
	return "admin"
}

// gauges are what is looked up when it is asked for.
func (n *Node) gauges() {
	m := n.m
	gauge := func(name, help string, v func() float64) {
		m.f.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: name, Help: help}, v))
	}
	count := func(name, help string, v func() uint64) {
		m.f.MustRegister(prometheus.NewCounterFunc(prometheus.CounterOpts{Name: name, Help: help}, func() float64 { return float64(v()) }))
	}
	gauge("entries", "Entries in memory.", func() float64 { return float64(n.cache.Len()) })
	gauge("entries_bytes", "Memory of entries, as bounded by --memory.", func() float64 { return float64(n.cache.Bytes()) })
	count("evictions_total", "Entries that had to make room for others.", n.cacheEvictions)
	gauge("connections", "Client connections.", func() float64 { return float64(n.server.Stats().Conns) })
	count("denied_total", "Wrong passwords, and commands of --deny-commands.", func() uint64 { return n.server.Stats().Denied })
	gauge("tracking_clients", "Clients with CLIENT TRACKING on.", func() float64 { return float64(n.track.Counts().Clients) })
	gauge("tracking_keys", "Keys remembered for them.", func() float64 { return float64(n.track.Counts().Keys) })
	gauge("tracking_peer_keys", "Keys remembered for the clients of other nodes.", func() float64 { return float64(n.track.Counts().PeerKeys) })
	gauge("tracking_prefixes", "Prefixes that clients follow with BCAST.", func() float64 { return float64(n.track.Counts().Prefixes) })
	count("tracking_pushes_total", "Invalidations sent to clients.", func() uint64 { return n.track.Counts().Pushes })
	count("tracking_evictions_total", "Keys invalidated because too many were remembered.", func() uint64 { return n.track.Counts().Evicted })
	count("tracking_dropped_total", "Clients cut off because they did not take an invalidation in time.", func() uint64 { return n.server.Stats().Dropped })
	gauge("slices_owned", "Slices this node owns.", func() float64 { own, _ := n.leased.Leases(); return float64(own) })
	gauge("replica_keys", "Keys of other nodes that this node keeps a replica of.", func() float64 { _, copies := n.leased.Leases(); return float64(copies) })
	gauge("table_version", "Version of the routing table; it grows with every resharding.", func() float64 { return float64(n.shard.Table().Version) })
	gauge("lease_margin_seconds", "How long the shortest lease of this node lasts unless it is renewed; 0 if it has none.", func() float64 {
		left, _ := n.shard.Margin()
		return left.Seconds()
	})
	gauge("slices_unwritable", "Slices that take no writes at the moment: nobody owns them, or a node that is lost.", func() float64 { return float64(n.p.Health().Unwritable) })
	m.f.MustRegister(lostMembers{n.p, prometheus.NewDesc("member_lost", "Members of the cluster: 1 while one is lost, else 0.", []string{"member"}, nil)})
	gauge("ready", "Whether the node is ready.", func() float64 { return float64(flag(n.ready())) })
	gauge("store_away", "Whether a shared store does not answer.", func() float64 { return float64(flag(n.p.watch.store.away.Load())) })
	info := prometheus.NewGauge(prometheus.GaugeOpts{Name: "build_info", Help: "1, with what runs here as labels.",
		ConstLabels: prometheus.Labels{"version": Version, "revision": Revision(), "go": runtime.Version()}})
	info.Set(1)
	m.f.MustRegister(info)
}

// cacheEvictions is asked for before there is a cache, too.
func (n *Node) cacheEvictions() uint64 {
	if !n.running() {
		return 0
	}
	return n.cache.Evictions()
}

// lostMembers collects which members are lost.
type lostMembers struct {
	p    *Process
	desc *prometheus.Desc
}

// Describe implements prometheus.Collector.
func (l lostMembers) Describe(ch chan<- *prometheus.Desc) { ch <- l.desc }

// Collect implements prometheus.Collector.
func (l lostMembers) Collect(ch chan<- prometheus.Metric) {
	m := l.p.watch.membership.Load()
	if m == nil {
		return
	}
	for _, x := range m.Members[:min(len(m.Members), maxMemberSeries)] {
		ch <- prometheus.MustNewConstMetric(l.desc, prometheus.GaugeValue, float64(flag(x.Lost)), x.ID)
	}
}

// maxMemberSeries bounds the members that metrics name.
const maxMemberSeries = 128

// histogram describes a histogram of a promise.
func (n *Node) histogram(name, help string) prometheus.HistogramOpts {
	return histogram(n.p.cfg.MetricsClassic, name, help)
}
