package node

import (
	"net"
	"testing"
	"time"

	"github.com/freshet-cache/freshet/link"
	"github.com/freshet-cache/freshet/shard/lease"
)

// A node of the same name and address is the successor of the one before, whose link may
// seem to stand; one of another address is a second node that must not have the name.
func TestSuccessorsAndDuplicates(t *testing.T) {
	p := start(t, func(c *Config) { c.Lease = time.Hour })
	var links []*link.Link
	for range 4 {
		a, b := net.Pipe()
		l := link.New(a, nil, link.Options{})
		t.Cleanup(func() { b.Close(); l.Close() })
		links = append(links, l)
	}
	for i, c := range []struct {
		node, addr string
		over       int
		admitted   bool
		why        string
	}{
		{"n9/a", "10.0.0.9:1", 0, true, "the first of its name"},
		{"n9/a", "10.0.0.9:1", 0, true, "it renews"},
		{"n9/x", "10.0.0.7:1", 1, false, "a second node at another address"},
		{"n9/b", "10.0.0.9:1", 2, true, "the first one, started again"},
		{"n9/a", "10.0.0.9:1", 0, false, "what the first one had sent before it ended"},
		{"n9/b", "10.0.0.9:1", 2, true, "it renews"},
		{"n8/a", "10.0.0.9:1", 3, true, "another name"},
	} {
		if got := p.admit(&lease.Renew{Node: c.node, Addr: c.addr}, links[c.over]); got != c.admitted {
			t.Errorf("%d: %s: admitted %v", i, c.why, got)
		}
	}
}
