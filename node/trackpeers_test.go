package node

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/freshet-cache/freshet/internal/follower"
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
			l, err := n.peers.to(context.Background(), p.nodes[(i+1+i/3%2)%3].addr)
			if err != nil && !errors.Is(err, errUnreached) {
				t.Fatal(err)
			}
			if err == nil {
				l.Close()
			}
			rounds(60)
		}
	})
}
