package node

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/freshet-cache/freshet/internal/follower"
	"github.com/freshet-cache/freshet/internal/packed"
	"github.com/freshet-cache/freshet/peer"
	"github.com/freshet-cache/freshet/redis/tracking"
)

// followed runs writers and followers at all addresses while fault runs, and judges
// the followers. Those whose connections end begin anew.
func followed(t *testing.T, addrs []string, keys int, fault func(rounds func(n int64))) {
	t.Helper()
	floor := make(follower.Floor, keys)
	var wg sync.WaitGroup
	var stop atomic.Bool
	var rounds, checked, told, writes atomic.Int64
	for i, addr := range addrs {
		wg.Go(func() {
			c := dial(t, addr)
			r := rand.New(rand.NewPCG(7, uint64(i)))
			for !stop.Load() {
				k := r.IntN(keys)
				if v := c.do("INCR", follower.Key(k)); v.Kind == ':' {
					n := int64(0)
					fmt.Sscan(v.Text, &n)
					floor.Raise(k, n)
					writes.Add(1)
				}
			}
		})
		for j, options := range [][]string{nil, {"NOLOOP"}, {"BCAST"}, {"BCAST", "PREFIX", "0", "PREFIX", "U"}} {
			wg.Go(func() {
				r := rand.New(rand.NewPCG(8, uint64(10*i+j)))
				f, err := follower.Dial(addr, floor, options...)
				if err != nil {
					t.Error(err)
					return
				}
				defer f.Close()
				for !stop.Load() && !t.Failed() {
					if j == 3 {
						err = f.Judge() // it keeps nothing that it is not told of
					} else {
						err = f.Round(r)
					}
					if err != nil {
						t.Errorf("node %d, tracking %v: %v", i+1, options, err)
						return
					}
					rounds.Add(1)
				}
				checked.Add(int64(f.Checked))
				told.Add(int64(f.Told))
			})
		}
	}
	wait := func(n int64) {
		for n += rounds.Load(); rounds.Load() < n && !t.Failed(); {
			c := dial(t, addrs[0])
			c.do("ping")
			c.nc.Close()
		}
	}
	fault(wait)
	stop.Store(true)
	wg.Wait()
	t.Logf("%d writes, %d pushes, %d kept values judged in %d rounds", writes.Load(), told.Load(), checked.Load(), rounds.Load())
	if told.Load() == 0 || checked.Load() == 0 {
		t.Error("nothing was judged")
	}
}

func addresses(p *Process) (out []string) {
	for _, n := range p.nodes {
		out = append(out, n.addr)
	}
	return out
}

// When a write is acknowledged, at whichever node, all who keep what it changed
// have been told, at whichever node they are.
func TestToldBeforeAcknowledged(t *testing.T) {
	for _, nodes := range []int{1, 3} {
		t.Run(fmt.Sprintf("%d nodes", nodes), func(t *testing.T) {
			p := start(t, func(c *Config) { c.Nodes = nodes })
			followed(t, addresses(p), 40, func(rounds func(int64)) { rounds(3000) })
		})
	}
}

// Also while slices move from node to node.
func TestToldWhileSlicesMove(t *testing.T) {
	p := start(t, func(c *Config) { c.Nodes = 3 })
	followed(t, addresses(p), 40, func(rounds func(int64)) {
		admin := dial(t, p.nodes[0].addr)
		for i := range 40 {
			admin.do("FR.MOVE", follower.Key(i), fmt.Sprint("n", 1+i%3))
			rounds(60)
		}
	})
}

// Also while links between nodes break.
func TestToldWhileLinksBreak(t *testing.T) {
	p := start(t, func(c *Config) { c.Nodes = 3 })
	followed(t, addresses(p), 40, func(rounds func(int64)) {
		for i := range 30 {
			n := p.nodes[i%3]
			l, err := n.peers.Link(context.Background(), p.nodes[(i+1+i/3%2)%3].addr, peer.Tracked)
			if err != nil && !errors.Is(err, peer.ErrUnreached) {
				t.Fatal(err)
			}
			if err == nil {
				l.Close()
			}
			rounds(60)
		}
	})
}

// moves gives a key to a node, and returns when all know that it owns it.
func moves(t *testing.T, p *Process, key string, i int) {
	t.Helper()
	admin := dial(t, p.nodes[0].addr)
	admin.do("FR.SPLIT", key)
	for _, n := range p.nodes {
		for {
			if r, _ := n.shard.Table().Find(key); r.Node == p.nodes[i].incarnation && p.nodes[i].cache.Owns(key) {
				break
			}
			admin.do("FR.MOVE", key, fmt.Sprint("n", i+1))
		}
	}
}

// What was read through one owner is invalid by the time another acknowledges a
// write.
func TestToldByTheNextOwner(t *testing.T) {
	p := start(t, func(c *Config) { c.Nodes = 3 })
	for round := range 12 {
		key := fmt.Sprint("k:", round)
		owner, next := round%3, (round+1)%3
		moves(t, p, key, owner)
		var all []*wire
		for _, n := range p.nodes {
			c := tracker(t, n.addr)
			c.do("get", key)
			all = append(all, c)
		}
		moves(t, p, key, next)
		dial(t, p.nodes[round/3%3].addr).do("set", key, "v")
		for i, c := range all {
			if len(c.told()) == 0 {
				t.Errorf("round %d: the client of node %d was not told", round, i+1)
			}
			c.nc.Close()
		}
	}
}

// A node that stood still while an owner announced itself has not been told of
// what was written meanwhile: its followers forget what they keep. If it was known
// to the owner, the owner has told it, or cut it off.
func TestFollowersOfAStrangersKeys(t *testing.T) {
	p := start(t, func(c *Config) { c.Nodes = 2 })
	moves(t, p, "k", 1)
	dial(t, p.nodes[1].addr).do("set", "k", "v") // is acknowledged when the owner has announced itself
	c := tracker(t, p.nodes[0].addr, "bcast", "prefix", "k")
	announced := func(addr string) []byte {
		frame := packed.AppendString([]byte{frameVersion, tracking.Acquired}, addr)
		return packed.AppendString(packed.AppendString(append(frame, 1), "k"), "l")
	}
	c.told()
	p.nodes[0].serve(t.Context(), announced(p.nodes[1].addr), nil)
	c.hears()
	stranger, err := net.Listen("tcp", "127.0.0.1:0") // which does not answer
	if err != nil {
		t.Fatal(err)
	}
	defer stranger.Close()
	p.nodes[0].serve(t.Context(), announced(stranger.Addr().String()), nil)
	c.hears("[invalidate (nil)]")
	dial(t, p.nodes[1].addr).do("set", "k", "v")
	c.hears("[invalidate [k]]")
}

// When the link is broken over which a node asked to be told, a write is not
// acknowledged before the node has told its clients all the same.
func TestToldThoughTheLinkIsBroken(t *testing.T) {
	p := start(t, func(c *Config) { c.Nodes = 2 })
	moves(t, p, "k", 0)
	c := tracker(t, p.nodes[1].addr)
	w := dial(t, p.nodes[0].addr)
	for range 40 {
		c.do("get", "k")
		c.told()
		l, err := p.nodes[1].peers.Link(t.Context(), p.nodes[0].addr, peer.Tracked)
		if err != nil {
			t.Fatal(err)
		}
		l.Close()
		w.do("set", "k", "v")
		if len(c.told()) == 0 {
			t.Fatal("the client was not told")
		}
	}
}
