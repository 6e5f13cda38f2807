package shard

import (
	"time"

	"github.com/freshet-cache/freshet/ticks"
)

// Ending says how many slices a node owns, and when the last of their leases ends unless it is
// renewed.
type Ending struct {
	Slices int
	Left   time.Duration
}

// Endings returns an Ending for each node, by incarnation, as this assigner knows them. The empty
// name has the slices without an owner.
func (a *Assigner) Endings() map[string]Ending {
	a.mu.Lock()
	all := a.machine.Endings()
	a.mu.Unlock()
	now, out := a.opt.Clock.Now(), make(map[string]Ending, len(all))
	for node, e := range all {
		out[node] = Ending{e.Slices, max(0, time.Duration(e.Last-now))}
	}
	return out
}

// Margin returns how soon the first lease that this node owns ends unless it is renewed. ok is
// false if the node owns none.
func (n *Node) Margin() (left time.Duration, ok bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	now, least := n.opt.Clock.Now(), ticks.Tick(1<<63-1)
	for _, h := range n.handles {
		if !h.Copy {
			least, ok = min(least, h.Until()), true
		}
	}
	return max(0, time.Duration(least-now)), ok
}
