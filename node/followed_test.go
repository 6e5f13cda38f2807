package node

import (
	"slices"
	"testing"

	"github.com/freshet-cache/freshet/internal/testkit"
	"github.com/freshet-cache/freshet/peer"
)

// A node that reads for clients through a link notes the link once, and forgets it when it breaks;
// its clients are told that what they have read through it may be old.
func TestLinksThatAreReadThrough(t *testing.T) {
	p, _, theirs := twoNodes(t, nil)
	x := p.nodes[0].track
	c, other := tracker(t, p.nodes[0].addr), tracker(t, p.nodes[0].addr)
	watched := func() int { return x.Counts().Links }
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
	testkit.True(t, "nothing is remembered", func() bool { return x.Counts().Keys == 0 })
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
