package node

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/freshet-cache/freshet/internal/testkit"
	"github.com/freshet-cache/freshet/link"
	"github.com/freshet-cache/freshet/peer"
	"github.com/freshet-cache/freshet/shard"
	"github.com/freshet-cache/freshet/shard/lease"
)

// A node whose link broke is lost since then; one that is silent, since that is noticed. Its slices
// take writes again when its leases are over, and it is not lost any more when it renews them.
func TestSinceWhenANodeIsLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var r roster
		var l, other link.Link
		endings := map[string]shard.Ending{"n1/a": {Slices: 2, Left: 4 * time.Second}, "": {Slices: 1, Left: 9 * time.Second}}
		look := func() (m Membership) { return r.survey(time.Now(), 3*time.Second, endings, nil) }
		renew := func() { r.renewed(&lease.Renew{Node: "n1/a", Addr: "one:1"}, &l) }
		renew()
		if m := look(); m.Members[0].Lost || m.Unwritable != 1 || !m.Writable.Equal(time.Now().Add(9*time.Second)) {
			t.Errorf("a slice that nobody owns: %+v", m)
		}
		delete(endings, "")
		r.broken(&other)
		r.broken(&l)
		broke := time.Now()
		time.Sleep(lostAfter - 1)
		r.broken(&l) // it is told twice
		if m := look(); m.Members[0].Lost || m.Unwritable != 0 || !m.Writable.IsZero() {
			t.Errorf("a node may dial again, and is lost: %+v", m)
		}
		time.Sleep(time.Nanosecond)
		for range 2 {
			if m := look(); !m.Members[0].Lost || !m.Members[0].Since.Equal(broke) || !m.Members[0].Writable.Equal(time.Now().Add(4*time.Second)) || m.Unwritable != 2 || !m.Writable.Equal(m.Members[0].Writable) {
				t.Errorf("a node whose link broke: %+v", m)
			}
			time.Sleep(time.Second)
		}
		renew()
		if m := look(); m.Members[0].Lost || !m.Members[0].Since.IsZero() || !m.Members[0].Writable.IsZero() || m.Unwritable != 0 {
			t.Errorf("a node that is back: %+v", m)
		}
		time.Sleep(3 * time.Second)
		if m := look(); m.Members[0].Lost {
			t.Errorf("a node has been silent for as long as it may: %+v", m)
		}
		time.Sleep(time.Nanosecond)
		noticed := time.Now()
		for range 2 {
			if m := look(); !m.Members[0].Lost || !m.Members[0].Since.Equal(noticed) {
				t.Errorf("a silent node: %+v", m)
			}
			time.Sleep(time.Second)
		}
	})
}

// A process that does not lead knows of the members what the leader says. When the leader does not
// answer for a while, the process says that it is lost, and what it owned.
func TestMembersAreThoseOfTheLeader(t *testing.T) {
	p, _, _ := twoNodes(t, nil)
	testkit.True(t, "the leader knows its members", func() bool { m := p.watch.membership.Load(); return m != nil && len(m.Members) == 2 })
	away, out := quiet(Config{Lease: time.Hour, Coordinator: "embedded"})
	x := peer.New(peer.Options{Version: frameVersion, Message: func([]byte) {}, Request: func(context.Context, []byte) []byte { return nil }})
	defer x.Close()
	away.nodes = []*Node{{p: away, id: "n3", addr: "three:1", peers: x, shard: p.nodes[1].shard}}
	away.leaderAddr = func() string { return p.nodes[0].addr }
	now := time.Now()
	away.lookAtLeader()
	away.watchMembers(t.Context(), now)
	m := away.watch.membership.Load()
	if m == nil || len(m.Members) != 2 || m.Members[0].Lost || m.Unwritable != 0 || out.text() != "" {
		t.Fatalf("the members are %+v, and the log says %q", m, out.text())
	}
	x.Close() // from here on nobody is reached
	for _, after := range []time.Duration{0, lostAfter - 1} {
		away.watchMembers(t.Context(), now.Add(after))
		if got := away.watch.membership.Load(); got != m || out.text() != "" {
			t.Errorf("after %v the members are %+v, and the log says %q", after, got, out.text())
		}
	}
	for range 2 {
		away.watchMembers(t.Context(), now.Add(lostAfter))
		got := away.watch.membership.Load()
		if one := got.Members[0]; !one.Lost || !one.Since.Equal(now) || one.Slices == 0 || got.Members[1].Lost || got.Unwritable != one.Slices {
			t.Errorf("the members are %+v", got)
		}
	}
	if got := out.lines("node_lost", "member=n1", "writable_at=unknown"); len(got) != 1 || len(out.lines("node_left")) != 0 {
		t.Errorf("the log says %q", out.text())
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	before := away.watch.membership.Load()
	if away.watchMembers(ended, now.Add(time.Hour)); away.watch.membership.Load() != before {
		t.Error("a process that ends finds out something new")
	}
	away.leaderAddr = func() string { return "three:1" } // of the process that was here before
	away.lookAtLeader()
	if away.watchMembers(t.Context(), now.Add(time.Hour)); away.watch.membership.Load() != before {
		t.Error("a process asks itself")
	}
}
