package shard

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/freshet-cache/freshet/clock"
	"github.com/freshet-cache/freshet/shard/lease"
	"github.com/freshet-cache/freshet/ticks"
)

// NodeOptions configure a Node.
type NodeOptions struct {
	lease.NodeOptions
	Clock clock.Clock
	// Beat is how often leases are renewed. Default 1 s. It should be well below a third of the
	// lease's length.
	Beat time.Duration
	// Send sends a *lease.Renew or *lease.Gave to the assigner, and may lose it. It must not block
	// for long.
	Send func(msg any)
	// Loads returns the load of each slice since its last call. Default: it returns nothing.
	Loads func() []lease.Load
	// Watch receives every handle of the node.
	Watch Watcher
}

// Node holds the leases of this process. All methods are safe for concurrent use.
type Node struct {
	opt     NodeOptions
	table   atomic.Pointer[lease.Table]
	mu      sync.Mutex
	watch   []Watcher
	machine *lease.Node
	handles map[lease.Gen]*Handle
	closed  bool
	stayed  int        // how many times Stay was called
	empty   *sync.Cond // signalled when a handle ends
	now     chan struct{}
	stop    context.CancelFunc
	done    chan struct{}
}

// StartNode starts a node, which asks for leases until Close.
func StartNode(opt NodeOptions) *Node {
	if opt.Beat <= 0 {
		opt.Beat = time.Second
	}
	if opt.Loads == nil {
		opt.Loads = func() []lease.Load { return nil }
	}
	ctx, cancel := context.WithCancel(context.Background())
	n := &Node{
		opt: opt, watch: []Watcher{opt.Watch}, machine: lease.NewNode(opt.NodeOptions), handles: map[lease.Gen]*Handle{},
		now: make(chan struct{}, 1), stop: cancel, done: make(chan struct{}),
	}
	n.empty = sync.NewCond(&n.mu)
	n.table.Store(&lease.Table{})
	go n.run(ctx)
	return n
}

func (n *Node) run(ctx context.Context) {
	defer close(n.done)
	tick := time.NewTicker(n.opt.Beat)
	defer tick.Stop()
	least := time.NewTicker(max(time.Millisecond, n.opt.Beat/100))
	defer least.Stop()
	for {
		loads := n.opt.Loads()
		n.step(func(now ticks.Tick) []lease.NodeOutput { return n.machine.Beat(now, loads, nil) })
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		case <-n.now:
			select {
			case <-least.C:
			case <-ctx.Done():
				return
			}
		}
	}
}

// Hurry renews at once instead of at the next beat, but not more often than a hundred times in a
// beat.
func (n *Node) Hurry() {
	select {
	case n.now <- struct{}{}:
	default:
	}
}

// Deliver receives a message of the assigner: a *lease.Grant or *lease.Recall.
func (n *Node) Deliver(msg any) {
	n.step(func(now ticks.Tick) []lease.NodeOutput {
		switch m := msg.(type) {
		case *lease.Grant:
			return n.machine.Granted(now, *m, nil)
		case *lease.Recall:
			return n.machine.Recalled(now, *m, nil)
		}
		return nil
	})
}

// step carries out the outputs of the machine in order. The node revokes a handle, and every
// watcher has learned of it, before it sends the acknowledgement (N4).
func (n *Node) step(in func(now ticks.Tick) []lease.NodeOutput) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.closed { // a message may arrive after Close
		return
	}
	for _, out := range in(n.opt.Clock.Now()) {
		switch out := out.(type) {
		case lease.SendRenew:
			n.opt.Send(&out.Renew)
		case lease.SendGave:
			n.opt.Send(&out.Gave)
		case lease.Acquire:
			h := NewHandle(out.Lease, n.opt.Clock, out.Until)
			h.Group, h.Copy = out.Group, !out.Group.Primary(n.opt.Node)
			n.handles[out.Gen] = h
			for _, w := range n.watch {
				begin(w, h, out.After)
			}
		case lease.Extend:
			h := n.handles[out.Gen]
			h.extend(out.Until)
			for _, w := range n.watch {
				if !h.Copy {
					w.Extended(h)
				}
			}
		case lease.Revoke:
			h := n.handles[out.Gen]
			delete(n.handles, out.Gen)
			held := h.Valid()
			h.Lapsed = !held
			h.Revoke()
			for _, w := range n.watch {
				end(w, h)
				if held && out.Next != "" && !h.Copy {
					w.HandedOver(h, out.Range, out.Under, out.Next)
				}
			}
			n.empty.Broadcast()
		case lease.Routes:
			n.table.Store(&out.Table)
		}
	}
}

// Watch adds a watcher, which first receives every handle that the node holds now.
func (n *Node) Watch(w Watcher) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, g := range slices.Sorted(maps.Keys(n.handles)) {
		begin(w, n.handles[g], 0)
	}
	n.watch = append(n.watch, w)
}

// begin passes a new handle to a watcher. Only a Sharer receives a Copy.
func begin(w Watcher, h *Handle, after lease.Gen) {
	if !h.Copy {
		w.Acquired(h, after)
	} else if s, ok := w.(Sharer); ok {
		s.Shared(h)
	}
}

// end tells a watcher that a handle has ended. Only a Sharer learns of a Copy.
func end(w Watcher, h *Handle) {
	if !h.Copy {
		w.Revoked(h)
	} else if s, ok := w.(Sharer); ok {
		s.Unshared(h)
	}
}

// Acquire returns the latest valid handle of the slice that contains key, or nil if this node does
// not own it. A slice that was cut or joined may have several handles for a while.
func (n *Node) Acquire(key string) *Handle {
	n.mu.Lock()
	defer n.mu.Unlock()
	var best *Handle
	for _, h := range n.handles {
		if !h.Copy && h.Contains(key) && h.Valid() && (best == nil || h.Gen > best.Gen) {
			best = h
		}
	}
	return best
}

// Table returns the latest routing table that the node has received.
func (n *Node) Table() *lease.Table { return n.table.Load() }

// Leave asks the assigner to move all slices of this node elsewhere. It waits until they have
// moved, ctx ends, or Stay is called, which is ErrStayed. The node keeps renewing what it still
// holds.
func (n *Node) Leave(ctx context.Context) error {
	stop := context.AfterFunc(ctx, n.empty.Broadcast)
	defer stop()
	n.mu.Lock()
	defer n.mu.Unlock()
	n.machine.Leave()
	n.Hurry()
	stayed := n.stayed
	for len(n.handles) > 0 && ctx.Err() == nil && n.stayed == stayed {
		n.empty.Wait()
	}
	if n.stayed != stayed {
		return ErrStayed
	}
	return context.Cause(ctx)
}

// Release gives up every lease at once and sends a last renewal that says so. The assigner then
// need not wait until the leases end. The node takes no lease afterwards.
func (n *Node) Release() {
	n.step(func(now ticks.Tick) []lease.NodeOutput { return n.machine.Beat(now, nil, n.machine.Release(nil)) })
}

// Stay cancels Leave, including a call that waits: the node may receive slices again.
func (n *Node) Stay() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.machine.Stay()
	n.stayed++
	n.empty.Broadcast()
	n.Hurry()
}

// ErrStayed is the error of a Leave that Stay has cancelled.
var ErrStayed = errors.New("shard: stayed: the node was told to keep its slices before all of them had moved")

// Close stops renewing and revokes every handle. Other nodes can get the keys when the leases have
// ended.
func (n *Node) Close() {
	n.stop()
	<-n.done
	n.mu.Lock()
	defer n.mu.Unlock()
	n.closed = true
	for g, h := range n.handles {
		delete(n.handles, g)
		h.Revoke()
		for _, w := range n.watch {
			end(w, h)
		}
	}
}
