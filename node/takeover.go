package node

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/freshet-cache/freshet/internal/drive"
	"github.com/freshet-cache/freshet/link"
	"github.com/freshet-cache/freshet/shard"
	"github.com/freshet-cache/freshet/shard/lease"
)

// asker is another node that may ask to be told, by the link it opened.
type asker struct {
	*link.Link
	addr    string // where it is reached; empty if it did not say
	asked   atomic.Bool
	parting *takeover // when the link has broken
}

// takeover is a slice that this node has taken over, until all nodes know; or
// all keys, until a node whose link broke knows that.
type takeover struct {
	lease.Range
	done chan struct{}
}

// linkLost takes that the link is broken over which another node asked to be told.
// It shall know of that before a write is acknowledged of which it is not told; a
// node that cannot be reached is not waited for for long.
func (t *tracking) linkLost(a *asker) *takeover {
	t.mu.Lock()
	defer t.mu.Unlock()
	if a.parting != nil {
		return a.parting
	}
	in := &takeover{done: make(chan struct{})}
	a.parting = in
	if !a.asked.Load() || t.n.ctx.Err() != nil {
		close(in.done)
		return in
	}
	t.awaited = append(t.awaited, in)
	t.busy.Add(1)
	var own []*takeover
	for _, h := range t.handles {
		if h.Valid() {
			own = append(own, &takeover{Range: h.Range})
		}
	}
	t.n.work.Go(func() {
		ctx, cancel := context.WithTimeout(t.n.ctx, takeoverWait)
		defer cancel()
		frame := appendAcquired(nil, t.n.addr, own)
		if len(own) == 0 { // a write may have been made before the last slice went
			frame = appendInvalid(nil, cause{}, nil)
		}
		if len(own) > 0 || !t.n.draining.Load() {
			if _, err := t.n.peers.Insist(ctx, a.addr, frame, t.n.p.living(ctx, t.n)[a.addr]); err != nil {
				t.n.log.Debug("a node was not told that its link broke", "peer", a.addr, "err", err)
			}
		}
		t.remote.Forget(a)
		t.mu.Lock()
		t.awaited = slices.DeleteFunc(t.awaited, func(o *takeover) bool { return o == in })
		t.mu.Unlock()
		close(in.done)
		t.busy.Add(-1)
	})
	return in
}

// acquired begins to introduce this node as the owner of a slice, unless it has
// been that all along. Writes to the slice are acknowledged when all know.
func (t *tracking) acquired(h *shard.Handle) {
	t.mu.Lock()
	defer t.mu.Unlock()
	held := t.holds(h.Range)
	t.handles = append(slices.DeleteFunc(t.handles, func(o *shard.Handle) bool { return !o.Valid() }), h)
	if held {
		return
	}
	in := &takeover{h.Range, make(chan struct{})}
	t.pending, t.awaited = append(t.pending, in), append(t.awaited, in)
	t.busy.Add(1)
	if !t.working {
		t.working = true
		t.n.work.Go(t.announce)
	}
}

// holds reports whether leases in force cover a range.
func (t *tracking) holds(r lease.Range) bool {
	from := r.Low
	for {
		i := slices.IndexFunc(t.handles, func(h *shard.Handle) bool { return h.Contains(from) && h.Valid() })
		if i < 0 {
			return false
		}
		high := t.handles[i].High
		if high == "" || r.High != "" && high >= r.High {
			return true
		}
		from = high
	}
}

// announce works until nothing is pending.
func (t *tracking) announce() {
	for {
		t.mu.Lock()
		all := t.pending
		t.pending = nil
		if len(all) == 0 {
			t.working = false
			t.mu.Unlock()
			return
		}
		t.mu.Unlock()
		ctx, cancel := context.WithTimeout(t.n.ctx, takeoverWait)
		frame := appendAcquired(nil, t.n.addr, all)
		var wg sync.WaitGroup
		for addr, lives := range t.n.p.living(ctx, t.n) {
			wg.Go(func() {
				if _, err := t.n.peers.Insist(ctx, addr, frame, lives); err != nil {
					t.n.log.Debug("a node was not told of a new owner", "peer", addr, "err", err)
				}
			})
		}
		t.leave(all)
		wg.Wait()
		cancel()
		t.mu.Lock()
		t.awaited = slices.DeleteFunc(t.awaited, func(in *takeover) bool { return slices.Contains(all, in) })
		t.mu.Unlock()
		for _, in := range all {
			close(in.done)
		}
		t.busy.Add(int64(-len(all)))
	}
}

// leave tells this node's clients of keys that have changed hands: whoever owned
// them does not tell any more.
func (t *tracking) leave(all []*takeover) {
	within := func(key string, _ any) bool {
		return slices.ContainsFunc(all, func(in *takeover) bool { return in.Contains(key) })
	}
	t.tell(t.local.TakeIf(within), cause{})
}

// announced takes another node's takeover announcement.
func (t *tracking) announced(ctx context.Context, frame []byte) []byte {
	addr, all, err := decodeAcquired(frame)
	if err != nil {
		return append([]byte{answerError}, "ERR "+err.Error()...)
	}
	t.mu.Lock()
	if len(t.known) > maxMembers { // of former incarnations
		clear(t.known)
	}
	t.known[addr] = true
	l := t.told[addr]
	knew := l != nil && l.Err() == nil // it tells of all it writes, or the link breaks
	t.mu.Unlock()
	ctx, cancel := context.WithTimeout(ctx, takeoverWait)
	defer cancel()
	for !t.subscribe(ctx, addr) { // the link may be one that breaks just now
		if ctx.Err() != nil || t.n.peers.Closed() {
			t.seek(addr)
			break
		}
		drive.Pause(ctx, insistPause)
	}
	t.leave(all)
	if !knew { // this node may have stood still, and the other not waited
		t.flushed(t.followers(), cause{})
	}
	return []byte{answerDone}
}

// awaitTakeovers waits until everybody knows that this node owns the keys.
func (t *tracking) awaitTakeovers(keys []string) {
	t.mu.Lock()
	awaited := slices.Clone(t.awaited)
	t.mu.Unlock()
	for _, in := range awaited {
		if slices.ContainsFunc(keys, in.Contains) {
			<-in.done // which takes introduceWait at most
		}
	}
}

// away takes that the assigner has lost this node: who takes a slice over may not
// know of it. When the assigner has it again, clients are told once more.
func (t *tracking) away() {
	t.mu.Lock()
	t.apart = true
	t.mu.Unlock()
	t.forgetAll(cause{})
}

// back ends it.
func (t *tracking) back() {
	t.mu.Lock()
	was := t.apart
	t.apart = false
	t.mu.Unlock()
	if was {
		t.n.work.Go(func() {
			t.spread(true)
			t.forgetAll(cause{})
		})
	}
}
