package node

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/freshet-cache/freshet/internal/testkit"
	"github.com/freshet-cache/freshet/shard/lease"
)

// The log of a process of two nodes tells, with its fields, that they listen, that an operator moves
// a slice and replicates a key, that a setting changes, and that a node hands over its slices.
func TestTheLogTellsWhatANodeDoes(t *testing.T) {
	out := &logged{}
	p := start(t, func(c *Config) { c.Nodes, c.LogOutput, c.LogKeys, c.NodeID = 2, out, true, "node1" })
	keysByNode(t, p, 1)
	told := func(event string, fields ...string) {
		t.Helper()
		testkit.True(t, fmt.Sprintf("the log has one %s with %q; it has %q", event, fields, out.lines(event)), func() bool { return len(out.lines(event, fields...)) == 1 })
	}
	for i, n := range p.nodes {
		listen, admin := p.Addr(i)
		if n.ID() != fmt.Sprint("node", i+1) {
			t.Errorf("node %d is called %s", i+1, n.ID())
		}
		told("node_started", "node="+n.id, "store=memory:", "lease=10s", "redis="+listen, "admin=http://"+admin, "version="+Version)
	}
	c := dial(t, p.nodes[1].addr)
	testkit.True(t, "the key is cut off", func() bool {
		c.do("FR.SPLIT", "key")
		r, _ := p.nodes[0].shard.Table().Find("key")
		return r.Low == "key"
	})
	r, _ := p.nodes[0].shard.Table().Find("key")
	from, to := p.nodes[0], p.nodes[1]
	if r.Node == to.incarnation {
		from, to = to, from
	}
	testkit.True(t, "the key moves", func() bool { return c.do("FR.MOVE", "key", to.id).Text == "OK" })
	told("slice_moved", "range="+p.hashedRange(r.Range), "from="+from.id, "to="+to.id, "why=operator")
	replicate(t, p, "hot", 1)
	told("replicas_changed", "n=1")
	c.answers("OK", "CONFIG", "SET", "log-level", "debug")
	told("config_changed", "name=log-level", "value=debug", "by="+c.nc.LocalAddr().String())
	testkit.True(t, "the node is drained", func() bool { return c.do("FR.DRAIN").Text == "OK" })
	told("drain_began", "node=node2")
	told("drain_done", "node=node2")
	if began, done := out.lines("drain_began")[0], out.lines("drain_done")[0]; !strings.Contains(done, began[strings.Index(began, "slices="):]) || strings.Contains(began, "slices=0") {
		t.Errorf("%q, then %q", began, done)
	}
	testkit.True(t, "the log says where the slices went", func() bool { return len(out.lines("slice_moved", "from=node2", "to=node1", "why=drain")) > 0 })
	for _, event := range []string{"data_refused", "clock_jump", "node_lost", "node_joined", "leader_changed", "outcome_unknown"} {
		if lines := out.lines(event); len(lines) > 0 {
			t.Errorf("the log tells of what did not happen: %q", lines)
		}
	}
}

// Settings that cannot be changed at run time, or that another program makes, are refused by name.
func TestSettingsThatCannotBeChanged(t *testing.T) {
	p, _ := quiet(Config{})
	for name, says := range map[string]string{"timeout": "timeout cannot be changed at run time", "log-format": "the program that embeds freshet writes the log", "log-level": "loud"} {
		if err := p.setLog(name, "loud", "nobody"); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: %v, want %q", name, err, says)
		}
	}
}

// A process that does not reach the leader says of the others what it knew, and that the leader is
// lost: its slices take no writes, and with etcd it is known when they do.
func TestMembersWithoutALeader(t *testing.T) {
	p := start(t, func(c *Config) { c.Nodes, c.Lease = 2, time.Minute })
	keysByNode(t, p, 1)
	own, slices := map[string]int{}, p.nodes[0].shard.Table().Slices
	for _, s := range slices {
		own[s.Node]++
	}
	one, two := p.nodes[0], p.nodes[1]
	since, earlier := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC), time.Date(2026, 1, 2, 3, 0, 0, 0, time.UTC)
	old := Membership{Unwritable: 99, Members: []ClusterMember{
		{ID: one.id, Incarnation: one.incarnation, Addr: one.addr, Slices: 77},
		{ID: two.id, Incarnation: two.incarnation, Addr: two.addr},
		{ID: "n3", Incarnation: "n3/a", Addr: "three:1", Lost: true, Since: earlier, Slices: 5, Writable: earlier.Add(time.Hour)},
	}}
	for _, c := range []struct {
		coordinator string
		writable    time.Time
	}{{"embedded", earlier.Add(time.Hour)}, {"etcd://localhost:2379", since.Add(90 * time.Minute)}} {
		p := &Process{cfg: p.cfg, nodes: p.nodes}
		p.cfg.Coordinator, p.cfg.Lease = c.coordinator, time.Hour
		m := p.absent(old, one.addr, since)
		if len(m.Members) != 3 || m.Unwritable != own[one.incarnation] || !m.Writable.Equal(c.writable) {
			t.Fatalf("%s: %+v, with %d of %d slices", c.coordinator, m, own[one.incarnation], len(slices))
		}
		if a := m.Members[0]; !a.Lost || !a.Since.Equal(since) || a.Slices != own[one.incarnation] || a.Writable.IsZero() != (c.coordinator == "embedded") {
			t.Errorf("%s: the leader is %+v", c.coordinator, a)
		}
		if b := m.Members[1]; b.Lost || b.Slices != own[two.incarnation] || !b.Since.IsZero() {
			t.Errorf("%s: another node is %+v", c.coordinator, b)
		}
		if x := m.Members[2]; !x.Lost || !x.Since.Equal(earlier) || x.Slices != 0 {
			t.Errorf("%s: a node that was lost before is %+v", c.coordinator, x)
		}
		if old.Members[0].Lost || old.Members[0].Slices != 77 {
			t.Error("what was known before has changed")
		}
	}
	if m := p.absent(old, "three:1", since); len(m.Members) != 2 || m.Unwritable != 0 || !m.Writable.IsZero() {
		t.Errorf("a leader that handed over first, and owns nothing, is still there: %+v", m)
	}
}

// Health is one word, and sentences about what is lost.
func TestHealthSaysWhatIsLost(t *testing.T) {
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	for _, c := range []struct {
		m      *Membership
		away   bool
		status string
		says   string
	}{
		{nil, false, "SAFE", ""},
		{&Membership{Members: []ClusterMember{{ID: "n1"}}}, false, "SAFE", ""},
		{nil, true, "WAITING", "the store does not answer\n"},
		{&Membership{Unwritable: 2, Writable: at}, false, "WAITING", "2 slices take no writes\n"},
		{&Membership{Members: []ClusterMember{{ID: "n1"}, {ID: "n2", Lost: true, Since: at}}}, false, "WAITING", "node n2 is lost; it owned nothing\n"},
		{&Membership{Unwritable: 3, Members: []ClusterMember{{ID: "n2", Lost: true, Slices: 3}}}, true, "WAITING",
			"node n2 is lost; its 3 slices take no writes until it is back or another assigner leads\n3 slices take no writes\nthe store does not answer\n"},
		{&Membership{Unwritable: 3, Writable: at, Members: []ClusterMember{{ID: "n2", Lost: true, Slices: 3, Writable: at}}}, false, "WAITING",
			"node n2 is lost; its 3 slices take no writes until 03:04:05\n3 slices take no writes\n"},
	} {
		p := &Process{}
		p.watch.membership.Store(c.m)
		p.watch.store.away.Store(c.away)
		h := p.Health()
		if h.Status != c.status || h.String() != c.says || h.StoreAway != c.away || c.m != nil && (h.Unwritable != c.m.Unwritable || !h.Writable.Equal(c.m.Writable)) {
			t.Errorf("%+v: %+v, %q", c.m, h, h)
		}
	}
	for want, m := range map[string]ClusterMember{"2026-01-02T03:04:05Z": {Since: at, Writable: at.Add(time.Hour)}, "unknown": {Slices: 1, Since: at}, "2026-01-02T04:04:05Z": {Slices: 1, Since: at, Writable: at.Add(time.Hour)}} {
		if got := writableAt(m); got != want {
			t.Errorf("%+v can be written at %s, want %s", m, got, want)
		}
	}
}

// In the state of the cluster a lost node is shown as such, unless it answered after all.
func TestLostNodesAreShown(t *testing.T) {
	at := time.Unix(1_700_000_000, 0)
	p := &Process{}
	answered := []NodeState{{ID: "n1", Addr: "one:1"}, {ID: "?", Addr: "two:1"}, {ID: "n3", Addr: "three:1", Ready: true}}
	if got := p.lost(answered); len(got) != 3 || got[1].Lost {
		t.Errorf("without a membership: %+v", got)
	}
	lost := func(id, addr string) ClusterMember {
		return ClusterMember{ID: id, Addr: addr, Lost: true, Since: at, Writable: at.Add(time.Second), Slices: 4}
	}
	p.watch.membership.Store(&Membership{Members: []ClusterMember{{ID: "n1", Addr: "one:1"}, lost("n2", "two:1"), lost("n3", "three:1"), lost("n4", "four:1")}})
	got := p.lost(answered)
	shown := func(id, addr string) NodeState {
		return NodeState{ID: id, Addr: addr, Lost: true, Since: at, Writable: at.Add(time.Second), Slices: 4}
	}
	want := []NodeState{{ID: "n1", Addr: "one:1"}, shown("n2", "two:1"), {ID: "n3", Addr: "three:1", Ready: true}, shown("n4", "four:1")}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("shown are %+v, want %+v", got, want)
	}
}

// A process that begins to lead knows the members that it was told of before, lost ones included,
// and the owners of slices. Their number is bounded.
func TestANewLeaderKnowsTheMembers(t *testing.T) {
	var r roster
	at := time.Now().Add(-time.Minute)
	r.renewed(&lease.Renew{Node: "n1/a", Addr: "one:1"}, nil)
	r.begin([]ClusterMember{{ID: "n1", Incarnation: "n1/a", Addr: "stale"}, {ID: "n2", Incarnation: "n2/a", Addr: "two:1"}, {ID: "n3", Incarnation: "n3/a", Lost: true, Since: at}}, []string{"n2/a", "n4/a", ""})
	m := r.survey(time.Now(), time.Second, nil, nil)
	text := ""
	for _, x := range m.Members {
		text += fmt.Sprintf("%s at %s lost=%v; ", x.ID, x.Addr, x.Lost)
		if x.Lost && !x.Since.Equal(at) {
			t.Errorf("%s is lost since %v", x.ID, x.Since)
		}
	}
	if text != "n1 at one:1 lost=false; n2 at two:1 lost=false; n3 at  lost=true; n4 at  lost=false; " {
		t.Errorf("known are %s", text)
	}
	for i := range 2 * maxMembers {
		r.renewed(&lease.Renew{Node: fmt.Sprint("x", i, "/a")}, nil)
		r.begin([]ClusterMember{{Incarnation: fmt.Sprint("y", i, "/a")}}, nil)
	}
	if len(r.all) != maxMembers {
		t.Errorf("%d members are known", len(r.all))
	}
	r.end()
	if m := r.survey(time.Now(), time.Second, nil, nil); len(m.Members) != 0 {
		t.Errorf("a process that leads no more knows %v", m.Members)
	}
}
