package node

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/freshet-cache/freshet/internal/follower"
	"github.com/freshet-cache/freshet/resp"
)

// shared are the nodes that keep a copy of a key, and its owner; nil as long as not all
// that were asked for are there.
func shared(p *Process, key string, want int) (copies []*Node, owner *Node) {
	for _, n := range p.nodes {
		switch r, _ := n.shard.Table().Find(key); {
		case len(r.Copies) != want:
			return nil, nil
		case n.cache.Owns(key):
			owner = n
		case n.leased.MayCopy(key):
			copies = append(copies, n)
		}
	}
	if len(copies) != want || owner == nil {
		return nil, nil
	}
	return copies, owner
}

// replicate has a key kept by want nodes beside its owner.
func replicate(t *testing.T, p *Process, key string, want int) (copies []*Node, owner *Node) {
	t.Helper()
	c := dial(t, p.nodes[0].addr)
	for ok := false; !ok; ok = c.do("FR.REPLICAS", key, fmt.Sprint(want)).Text == "OK" {
	}
	for owner == nil {
		c.do("ping")
		copies, owner = shared(p, key, want)
	}
	return copies, owner
}

// A key that an operator has replicated is served from memory by its members, at every
// node with what was last written at any.
func TestReplicatedKey(t *testing.T) {
	p := start(t, func(c *Config) { c.Nodes = 4 })
	copies, owner := replicate(t, p, "hot", 2)
	var all []*wire
	for _, n := range p.nodes {
		all = append(all, dial(t, n.addr))
	}
	for i := range 40 {
		want := fmt.Sprint("v", i)
		if v := all[i%4].do("set", "hot", want); v.Text != "OK" {
			t.Fatal(v)
		}
		for j, c := range all {
			if v := c.do("get", "hot"); v.Text != want {
				t.Fatalf("node %d says %q after %q was written", j+1, v.Text, want)
			}
			if v := c.do("mget", "hot", "cold"); v.Elems[0].Text != want {
				t.Fatalf("node %d says %q after %q was written", j+1, v.Elems[0].Text, want)
			}
		}
	}
	for _, n := range copies {
		for ok := false; !ok; {
			dial(t, n.addr).do("get", "hot")
			e, hit := n.cache.Peek("hot")
			ok = hit && e.Copy && e.Value == "v39"
		}
	}
	outside := p.nodes[0]
	for _, n := range p.nodes {
		if n != owner && n != copies[0] && n != copies[1] {
			outside = n
		}
	}
	c := dial(t, outside.addr)
	missed := make([]uint64, 4)
	for i, n := range p.nodes {
		missed[i] = n.m.missed.Load()
	}
	for range 30 {
		if v := c.do("get", "hot"); v.Text != "v39" {
			t.Fatal(v)
		}
	}
	for i, n := range p.nodes {
		if n.m.missed.Load() != missed[i] {
			t.Errorf("node %s did not serve all from memory", n.id)
		}
	}
	state := string(p.stateJSON(context.Background()))
	if !strings.Contains(state, `"replicas":["`+copies[0].id+`"`) && !strings.Contains(state, `"replicas":["`+copies[1].id+`"`) {
		t.Errorf("the state says nothing of replicas: %s", state)
	}
	if v := c.do("FR.REPLICAS", "hot", "9"); !strings.HasPrefix(v.Text, "ERR not so many") {
		t.Error(v)
	}
	if v := c.do("FR.REPLICAS", "hot", "-1"); !strings.HasPrefix(v.Text, "ERR FR.REPLICAS") {
		t.Error(v)
	}
	if v := c.do("FR.REPLICAS", "hot", "0"); v.Text != "OK" {
		t.Error(v)
	}
	for owner = nil; owner == nil; _, owner = shared(p, "hot", 0) {
		c.do("ping")
	}
	if v := c.do("get", "hot"); v.Text != "v39" {
		t.Error(v)
	}
}

// A key that is asked for more often than one node should carry gets replicas by
// itself, and loses them again when it is not.
func TestReplicatedByLoad(t *testing.T) {
	p := start(t, func(c *Config) { c.Nodes, c.ReplicateAt, c.MaxReplicas = 3, 300, 2 })
	var wg sync.WaitGroup
	var cool atomic.Bool
	for _, n := range p.nodes {
		wg.Go(func() {
			for c := dial(t, n.addr); !cool.Load(); {
				c.do("get", "hot")
			}
		})
	}
	c := dial(t, p.nodes[0].addr)
	for members := []*Node(nil); len(members) == 0; members, _ = shared(p, "hot", 2) {
		c.do("set", "hot", "v")
	}
	cool.Store(true)
	wg.Wait()
	for owner := (*Node)(nil); owner == nil; _, owner = shared(p, "hot", 0) {
		c.do("get", "another")
	}
}

// Clients that track a replicated key are told of every write before it is
// acknowledged, while members come and go.
func TestToldOfReplicatedKeys(t *testing.T) {
	p := start(t, func(c *Config) { c.Nodes = 3 })
	followed(t, addresses(p), 8, func(rounds func(int64)) {
		for i := range 4 {
			replicate(t, p, follower.Key(i), 2)
			rounds(5000)
		}
		replicate(t, p, follower.Key(0), 1)
		replicate(t, p, follower.Key(1), 0)
		rounds(300)
	})
}

// A client that tracks what it reads at a node with a copy is told as well: the owner,
// who tells of writes, knows of it.
func TestToldBesideACopy(t *testing.T) {
	p := start(t, func(c *Config) { c.Nodes = 3 })
	copies, owner := replicate(t, p, "hot", 2)
	w := dial(t, owner.addr)
	for round := range 20 {
		for _, n := range copies {
			for ok := false; !ok; {
				dial(t, n.addr).do("get", "hot")
				e, hit := n.cache.Peek("hot")
				ok = hit && e.Copy
			}
		}
		var all []*wire
		for _, n := range copies {
			c := tracker(t, n.addr)
			if round%2 == 0 {
				c.do("get", "hot")
			} else { // together
				var three []byte
				for _, key := range []string{"another", "hot", "hot"} {
					three = resp.AppendCommand(three, "get", key)
				}
				if _, err := c.nc.Write(three); err != nil {
					t.Fatal(err)
				}
				for range 3 {
					c.reply()
				}
			}
			all = append(all, c)
		}
		w.do("set", "hot", fmt.Sprint(round))
		for i, c := range all {
			if len(c.told()) == 0 {
				t.Errorf("round %d: the client of node %s was not told", round, copies[i].id)
			}
			c.nc.Close()
		}
	}
}
