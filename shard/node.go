package shard

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/freshet-cache/freshet/shard/lease"
)

// NodeOptions configure a Node.
type NodeOptions struct {
	lease.NodeOptions
	Clock Clock
	// Beat is how often leases are renewed. Default 1 s; well below a third of
	// the lease's length.
	Beat time.Duration
	// Send carries a *lease.Renew or *lease.Gave to the assigner, and may lose it.
	// It must not block for long.
	Send func(msg any)
	// Loads reports what was asked since its last call. Default: nothing.
	Loads func() []lease.Load
	// Watch is told of every handle.
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
	stayed  int        // how often Stay was called
	empty   *sync.Cond // signalled when a handle ends
	now     chan struct{}
	stop    context.CancelFunc
	done    chan struct{}
}

// StartNode begins to ask for leases.
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
		n.step(func(now lease.Tick) []lease.NodeOutput { return n.machine.Beat(now, loads, nil) })
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

// Hurry renews at once instead of at the next beat, though not more often than a
// hundred times in a beat.
func (n *Node) Hurry() {
	select {
	case n.now <- struct{}{}:
	default:
	}
}

// Deliver takes a message from the assigner: a *lease.Grant or *lease.Recall.
func (n *Node) Deliver(msg any) {
	n.step(func(now lease.Tick) []lease.NodeOutput {
		switch m := msg.(type) {
		case *lease.Grant:
			return n.machine.Granted(now, *m, nil)
		case *lease.Recall:
			return n.machine.Recalled(now, *m, nil)
		}
		return nil
	})
}

// step carries out, in order, what the machine asks: a handle is revoked, and
// its watcher has heard of it, before the acknowledgement is sent.
func (n *Node) step(in func(now lease.Tick) []lease.NodeOutput) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.closed { // a message that was on its way
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

// Watch has w be told of every handle too, from those on that are held now.
func (n *Node) Watch(w Watcher) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, g := range slices.Sorted(maps.Keys(n.handles)) {
		begin(w, n.handles[g], 0)
	}
	n.watch = append(n.watch, w)
}

// begin tells a watcher of a handle, if it is one for it.
func begin(w Watcher, h *Handle, after lease.Gen) {
	if !h.Copy {
		w.Acquired(h, after)
	} else if s, ok := w.(Sharer); ok {
		s.Shared(h)
	}
}

// end tells a watcher that a handle is over.
func end(w Watcher, h *Handle) {
	if !h.Copy {
		w.Revoked(h)
	} else if s, ok := w.(Sharer); ok {
		s.Unshared(h)
	}
}

// Acquire returns the handle of the slice that contains key, if this node owns it, or nil. Of several,
// which follow one another after a split, it is the latest.
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

// Table is the latest routing table the node has heard of.
func (n *Node) Table() *lease.Table { return n.table.Load() }

// Leave asks the assigner to move everything elsewhere, and waits until it has
// or ctx ends. The node goes on renewing what it still holds.
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

// Release gives up every lease at once, and says so with a last renewal: the assigner
// need not wait until they are over. The node asks for nothing more.
func (n *Node) Release() {
	n.step(func(now lease.Tick) []lease.NodeOutput { return n.machine.Beat(now, nil, n.machine.Release(nil)) })
}

// Stay ends Leave, also one that waits: the node can be given slices again.
func (n *Node) Stay() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.machine.Stay()
	n.stayed++
	n.empty.Broadcast()
	n.Hurry()
}

// ErrStayed is what Leave returns when Stay has ended it.
var ErrStayed = errors.New("shard: stayed: the node was told to keep its slices before all of them had moved")

// Close stops renewing and revokes every handle. Others can have the keys when
// the leases are over.
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
