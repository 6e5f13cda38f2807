package node

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/freshet-cache/freshet/internal/testkit"
	"github.com/freshet-cache/freshet/peer"
	"github.com/freshet-cache/freshet/shard"
	"github.com/freshet-cache/freshet/shard/lease"
)

// A node asks others for the prefixes that its clients follow; if these are too many, or too long
// together, for everything.
func TestTooManyPrefixesFollowEverything(t *testing.T) {
	n := start(t, nil).nodes[0]
	c := dial(t, n.addr)
	id := int64(0)
	fmt.Sscan(c.do("CLIENT", "ID").Text, &id)
	conn := n.server.Conn(id)
	if got := n.track.followed(); len(got) != 0 {
		t.Errorf("nothing is followed, and asked for are %q", got)
	}
	many := make([]string, maxPrefixList+1)
	for i := range many {
		many[i] = fmt.Sprintf("%05d", i)
	}
	long := strings.Repeat("x", maxPrefixBytes-1)
	for _, prefixes := range [][]string{{"a", "b"}, many[:maxPrefixList], {"y", long}} {
		n.track.local.Subscribe(conn, prefixes)
		if got := n.track.followed(); !slices.Equal(got, slices.Sorted(slices.Values(prefixes))) {
			t.Errorf("%d prefixes are followed, and asked for are %d", len(prefixes), len(got))
		}
	}
	for _, prefixes := range [][]string{many, {"yy", long}} {
		n.track.local.Subscribe(conn, prefixes)
		if got := n.track.followed(); !slices.Equal(got, []string{""}) {
			t.Errorf("%d prefixes are followed, and asked for are %d", len(prefixes), len(got))
		}
	}
	n.track.local.Subscribe(conn, nil)
}

// A range is held if leases in force cover all of it, one behind the other.
func TestLeasesCoverARange(t *testing.T) {
	x := start(t, nil).nodes[0].track
	x.mu.Lock()
	defer x.mu.Unlock()
	if !x.holds(lease.Range{}) || !x.holds(lease.Range{Low: "a", High: "b"}) || !x.holds(lease.Range{Low: "z"}) {
		t.Error("the only node does not hold every range")
	}
	all := x.handles
	x.handles = nil
	if x.holds(lease.Range{Low: "a", High: "b"}) {
		t.Error("without a lease a range is held")
	}
	x.handles = []*shard.Handle{{}} // which has ended
	if x.holds(lease.Range{Low: "a", High: "b"}) {
		t.Error("under a lease that has ended a range is held")
	}
	x.handles = all
}

// A node that reads for clients through a link notes the link once, and forgets it when it breaks;
// its clients are told that what they have read through it may be old.
func TestLinksThatAreReadThrough(t *testing.T) {
	p, _, theirs := twoNodes(t, nil)
	x := p.nodes[0].track
	c, other := tracker(t, p.nodes[0].addr), tracker(t, p.nodes[0].addr)
	watched := func() int {
		x.mu.Lock()
		defer x.mu.Unlock()
		return len(x.watched)
	}
	c.do("get", theirs[0])
	c.do("mget", theirs[0], theirs[1])
	c.do("get", theirs[1])
	if n := watched(); n != 1 {
		t.Errorf("%d links are noted", n)
	}
	l, err := p.nodes[0].peers.Link(t.Context(), p.nodes[1].addr, peer.Tracked)
	if err != nil {
		t.Fatal(err)
	}
	l.Close()
	testkit.True(t, "the link is forgotten", func() bool { return watched() == 0 })
	testkit.True(t, "nothing is remembered", func() bool { return x.counts().keys == 0 })
	testkit.True(t, "the client hears that what it has read may be old", func() bool {
		got := c.told()
		return slices.Contains(got, "[invalidate ["+theirs[0]+"]]") || slices.Contains(got, "[invalidate (nil)]")
	})
	for _, said := range other.told() {
		if said != "[invalidate (nil)]" { // the owner has forgotten all that it remembered for this node
			t.Errorf("a client that read nothing hears %q", said)
		}
	}
}
