package node

import (
	"fmt"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/freshet-cache/freshet/internal/testkit"
	"github.com/freshet-cache/freshet/linear"
	"github.com/freshet-cache/freshet/linear/clink"
	"github.com/freshet-cache/freshet/store"
)

// Each command is counted under its name, also one of several that were done at once, and measured
// in the class of what it does.
func TestCommandsAreCounted(t *testing.T) {
	p := start(t, func(c *Config) { c.DenyCommands = "keys" })
	n := p.nodes[0]
	c := dial(t, n.addr)
	classes := func() map[string]uint64 {
		out := map[string]uint64{}
		for _, m := range gathered(t, n)["freshet_command_seconds"].GetMetric() {
			for _, l := range m.Label {
				if l.GetName() == "class" {
					out[l.GetValue()] = m.GetHistogram().GetSampleCount()
				}
			}
		}
		return out
	}
	before := classes()
	for _, cmd := range []string{"SET k v", "SET k w", "GET k", "GET none", "MGET k none", "STRLEN k", "DEL k", "INCR n", "MULTI", "INCR n", "GET n", "EXEC", "FR.EXPLAIN n", "DBSIZE", "FR.VERSION n"} {
		if r := c.do(strings.Fields(cmd)...); r.Kind == '-' {
			t.Fatalf("%s: %v", cmd, r)
		}
	}
	for range 3 { // arrive together
		c.send("SET", "together", "v")
	}
	for range 3 {
		c.reply()
	}
	c.do("KEYS", "*")
	c.do("PING")
	if got := metric(t, n, "freshet_denied_total"); got != 1 {
		t.Errorf("%v commands were denied", got)
	}
	after := classes()
	for class, want := range map[string]uint64{"read": 4, "write": 7, "multi": 1, "session": 0, "admin": 2} { // a GET from memory is not measured
		if got := after[class] - before[class]; got != want {
			t.Errorf("%d commands are measured as %s, want %d", got, class, want)
		}
	}
	for name, want := range map[string]float64{"set": 5, "get": 2, "mget": 1, "exec": 1, "fr.version": 1, "del": 1} {
		if got := metric(t, n, "freshet_calls_total", "command", name); got != want {
			t.Errorf("%s is counted %v times, want %v", name, got, want)
		}
	}
	var names []string
	for _, m := range regexp.MustCompile(`(?m)^cmdstat_([^:]+):calls=(\d+),usec=(\d+),usec_per_call=(\d+\.\d\d)\r$`).FindAllStringSubmatch(c.do("INFO", "commandstats").Text, -1) {
		names = append(names, m[1])
		calls, micros := 0.0, 0.0
		fmt.Sscan(m[2], &calls)
		if fmt.Sscan(m[3], &micros); fmt.Sprintf("%.2f", micros/calls) != m[4] {
			t.Errorf("%v", m)
		}
	}
	if got := strings.Join(names, " "); got != "dbsize del exec fr.explain fr.link fr.version get incr mget set strlen" { // the node has a link to itself
		t.Errorf("INFO counts %s", got)
	}
}

// Every command has a class: what writes, what reads keys, transactions, sessions, and the rest.
func TestCommandsHaveClasses(t *testing.T) {
	n := start(t, nil).nodes[0]
	for class, names := range map[string]string{
		"multi": "exec", "admin": "info dbsize scan fr.explain fr.state config unknown time fr.drain", "write": "set del mset incr eval flushall expire fr.setv",
		"read": "get mget exists ttl strlen fr.version", "session": "fr.begin fr.cget fr.cset fr.tbegin fr.tcommit",
	} {
		for _, name := range strings.Fields(names) {
			if got := n.class(name); got != class {
				t.Errorf("%s is of the class %s, want %s", name, got, class)
			}
		}
	}
}

// What the cache and the store tell of is counted by kind, errors apart.
func TestWhatTheCacheTellsIsCounted(t *testing.T) {
	p := start(t, nil)
	n := p.nodes[0]
	before := func(name string, labels ...string) func() float64 {
		was := metric(t, n, name, labels...)
		return func() float64 { return metric(t, n, name, labels...) - was }
	}
	calls, errs := before("freshet_store_calls_total", "request", "splits"), before("freshet_store_errors_total", "request", "splits")
	aside, expired, conflicts := before("freshet_stepped_aside_total"), before("freshet_misses_total", "cause", "expired"), before("freshet_writes_refused_total", "kind", "conflict")
	missed, gone := n.m.missed.Load(), n.m.expired.Load()
	n.m.StoreCall(linear.CallSplits, time.Millisecond, nil)
	n.m.StoreCall(linear.CallSplits, time.Millisecond, store.ErrLayoutChanged)
	n.m.SteppedAside()
	n.m.Miss(linear.Expired)
	n.m.Miss(linear.Absent)
	n.m.Event(clink.Conflicted)
	if calls() != 2 || errs() != 1 || aside() != 1 || expired() != 1 || conflicts() != 1 {
		t.Errorf("%v calls, %v errors, %v invariants, %v expired, %v conflicts", calls(), errs(), aside(), expired(), conflicts())
	}
	if n.m.missed.Load() != missed+2 || n.m.expired.Load() != gone+1 {
		t.Errorf("INFO counts %d misses and %d expired", n.m.missed.Load()-missed, n.m.expired.Load()-gone)
	}
	for i, e := range []linear.Entry[string]{{Hit: true, Copy: true}, {Hit: true}, {Joined: true}, {}} {
		source := [...]string{"replica", "memory", "joined", "store"}[i]
		for who, name := range [...]string{"client", "node"} {
			was, hits := metric(t, n, "freshet_reads_total", "source", source, "for", name), n.m.hits.Load()
			n.m.served(e, who)
			if got := metric(t, n, "freshet_reads_total", "source", source, "for", name) - was; got != 1 || (n.m.hits.Load() != hits) != e.Hit {
				t.Errorf("a read from %s for a %s is counted %v times, as a hit %v", source, name, got, n.m.hits.Load() != hits)
			}
		}
	}
}

// Gauges show what there is now: clients that track, what is remembered for them and pushed to them,
// and members that are lost, but not more than a bounded number of these.
func TestGaugesShowWhatThereIs(t *testing.T) {
	p, mine, theirs := twoNodes(t, nil)
	n := p.nodes[0]
	c, b := tracker(t, n.addr), tracker(t, n.addr, "bcast", "prefix", "x", "prefix", "y")
	c.do("get", mine[0])
	c.do("get", theirs[0])
	b.do("ping")
	for name, want := range map[string]float64{"tracking_clients": 2, "tracking_keys": 2, "tracking_prefixes": 2, "tracking_peer_keys": 0, "tracking_evictions_total": 0, "tracking_dropped_total": 0, "ready": 1, "store_away": 0, "replica_keys": 0, "slices_unwritable": 0} {
		if got := metric(t, n, "freshet_"+name); got != want {
			t.Errorf("%s is %v, want %v", name, got, want)
		}
	}
	if got := metric(t, p.nodes[1], "freshet_tracking_peer_keys"); got != 1 {
		t.Errorf("the other node remembers %v keys for this one", got)
	}
	pushed := metric(t, n, "freshet_tracking_pushes_total")
	w := dial(t, p.nodes[1].addr)
	w.answers("OK", "MSET", mine[0], "v")
	w.answers("OK", "MSET", theirs[0], "v")
	c.hears("[invalidate ["+mine[0]+"]]", "[invalidate ["+theirs[0]+"]]")
	if got := metric(t, n, "freshet_tracking_pushes_total") - pushed; got != 2 {
		t.Errorf("%v pushes are counted, want 2", got)
	}
	own, _ := n.leased.Leases()
	if own == 0 || metric(t, n, "freshet_slices_owned") != float64(own) || metric(t, n, "freshet_table_version") != float64(n.shard.Table().Version) || metric(t, n, "freshet_entries") != float64(n.cache.Len()) || metric(t, n, "freshet_entries_bytes") != float64(n.cache.Bytes()) {
		t.Error("slices, table or entries are others than there are")
	}
	if left := metric(t, n, "freshet_lease_margin_seconds"); left <= 0 || left > time.Hour.Seconds() {
		t.Errorf("the shortest lease lasts for %v s", left)
	}
	if got := metric(t, n, "freshet_connections"); got != 2 {
		t.Errorf("%v connections of clients", got)
	}
	testkit.True(t, "the members are known", func() bool { m := p.watch.membership.Load(); return m != nil && len(m.Members) == 2 })
	p.stopWatch()
	m := &Membership{Unwritable: 3}
	for i := range maxMemberSeries + 10 {
		m.Members = append(m.Members, ClusterMember{ID: fmt.Sprint("m", i), Lost: i == 1})
	}
	p.watch.membership.Store(m)
	if metric(t, n, "freshet_member_lost", "member", "m1") != 1 || metric(t, n, "freshet_member_lost", "member", "m0") != 0 || metric(t, n, "freshet_slices_unwritable") != 3 {
		t.Error("a lost member is not shown")
	}
	if got := len(gathered(t, n)["freshet_member_lost"].GetMetric()); got != maxMemberSeries {
		t.Errorf("%d members are shown", got)
	}
}

// INFO tells the rate of commands between two times that it is asked, and the memory of the process.
func TestInfoTellsRatesAndMemory(t *testing.T) {
	var r opsRate
	at := time.Unix(1000, 0)
	for _, c := range []struct {
		count uint64
		after time.Duration
		rate  uint64
	}{{50, 0, 0}, {100, 99 * time.Millisecond, 0}, {150, 100 * time.Millisecond, 1000}, {5000, 150 * time.Millisecond, 1000}, {350, 2100 * time.Millisecond, 100}} {
		if got := r.now(c.count, at.Add(c.after)); got != c.rate {
			t.Errorf("after %v and %d commands the rate is %d, want %d", c.after, c.count, got, c.rate)
		}
	}
	if residentBytes() < 1<<20 {
		t.Errorf("the process takes %d bytes", residentBytes())
	}
	p := start(t, nil)
	text := dial(t, p.nodes[0].addr).do("INFO", "everything").Text
	for _, pattern := range []string{`used_memory_rss:[1-9]\d{6,}\r`, `mem_fragmentation_ratio:\d*[1-9]\d*\.\d\d|mem_fragmentation_ratio:0\.\d*[1-9]`, `used_cpu_user:\d+\.\d\d\r`, `connected_clients:1\r`, `maxmemory:268435456\r`, `tcp_port:` + p.nodes[0].addr[strings.LastIndexByte(p.nodes[0].addr, ':')+1:] + `\r`} {
		if !regexp.MustCompile(pattern).MatchString(text) {
			t.Errorf("INFO has no %s:\n%s", pattern, text)
		}
	}
}

// The store of a configuration is known by its scheme, and only some stores can be shared.
func TestStoresHaveKinds(t *testing.T) {
	for url, want := range map[string]string{
		"pebble:": "pebble", "memory:": "memory", "postgres://h/d": "postgres shared", "postgresql://h/d": "postgres shared", "mysql://h/d": "mysql shared", "etcd://h:1": "etcd shared", "etcds://h:1": "etcd shared",
		"redis://h:1": "", "mysql:": "", "postgres:h": "", "etcd": "", "": "", "freshet://h:1": "",
	} {
		c := Config{Store: url}
		got := c.kind()
		if c.shared() {
			got += " shared"
		}
		if got != want {
			t.Errorf("%s is %q, want %q", url, got, want)
		}
	}
}

// A new key space is cut so that each node gets several slices of it, at different printable bytes.
func TestTheFirstCut(t *testing.T) {
	for _, c := range []struct {
		store string
		nodes int
		cuts  int
	}{{"memory:", 1, 0}, {"memory:", 2, 7}, {"memory:", 4, 15}, {"memory:", 64, 74}, {"postgres://h/d", 1, 15}, {"postgres://h/d", 8, 31}} {
		p := &Process{cfg: Config{Store: c.store, Nodes: c.nodes}}
		points := p.firstCut()
		if len(points) != c.cuts {
			t.Errorf("%d nodes over %s: %d cuts, want %d", c.nodes, c.store, len(points), c.cuts)
		}
		for i, at := range points {
			if len(at) != 1 || at < "0" || at >= "z" || i > 0 && points[i-1] >= at {
				t.Errorf("%d nodes over %s are cut at %q", c.nodes, c.store, points)
			}
		}
	}
}
