package tracking

import (
	"context"
	"slices"
	"sync"

	"github.com/freshet-cache/freshet/internal/drive"
	"github.com/freshet-cache/freshet/shard"
	"github.com/freshet-cache/freshet/shard/lease"
)

// LinkLost takes that the link is broken over which another node may have asked to be told.
// That node hears of it before a write is acknowledged of which it is not told; a
// node that cannot be reached is not waited for for long.
func (t *Tracking) LinkLost(a *Asker) { t.linkLost(a) }

// linkLost is LinkLost, and returns what ends when that node knows.
func (t *Tracking) linkLost(a *Asker) *takeover {
	t.mu.Lock()
	defer t.mu.Unlock()
	if a.parting != nil {
		return a.parting
	}
	in := &takeover{done: make(chan struct{})}
	a.parting = in
	if !a.asked.Load() || t.opt.Context.Err() != nil {
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
	t.work.Go(func() {
		ctx, cancel := context.WithTimeout(t.opt.Context, takeoverWait)
		defer cancel()
		message := appendAcquired(nil, t.opt.Addr, own)
		if len(own) == 0 { // a write may have been made before the last slice went
			message = appendInvalid(nil, cause{}, nil)
		}
		if len(own) > 0 || !t.n.Draining() {
			if err := t.n.Insist(ctx, a.Addr, message, t.n.Living(ctx)[a.Addr]); err != nil {
				t.opt.Logger.Debug("a node was not told that its link broke", "peer", a.Addr, "err", err)
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

// Acquired begins to announce this node as the owner of a slice, unless it has
// been that all along. Writes to the slice are acknowledged when all nodes know. It must be called
// before the slice can be written.
func (t *Tracking) Acquired(h *shard.Handle) {
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
		t.work.Go(t.announce)
	}
}

// holds reports whether leases in force cover a range.
func (t *Tracking) holds(r lease.Range) bool {
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
func (t *Tracking) announce() {
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
		ctx, cancel := context.WithTimeout(t.opt.Context, takeoverWait)
		message := appendAcquired(nil, t.opt.Addr, all)
		var wg sync.WaitGroup
		for addr, lives := range t.n.Living(ctx) {
			wg.Go(func() {
				if err := t.n.Insist(ctx, addr, message, lives); err != nil {
					t.opt.Logger.Debug("a node was not told of a new owner", "peer", addr, "err", err)
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
func (t *Tracking) leave(all []*takeover) {
	within := func(key string, _ any) bool {
		return slices.ContainsFunc(all, func(in *takeover) bool { return in.Contains(key) })
	}
	t.tell(t.local.TakeIf(within), cause{})
}

// announced takes another node's takeover announcement.
func (t *Tracking) announced(ctx context.Context, message []byte) error {
	addr, all, err := decodeAcquired(message)
	if err != nil {
		return err
	}
	t.mu.Lock()
	if len(t.known) > maxNodes {
		clear(t.known)
	}
	t.known[addr] = true
	l := t.told[addr]
	knew := l != nil && l.Err() == nil // it tells of all it writes, or the link breaks
	t.mu.Unlock()
	ctx, cancel := context.WithTimeout(ctx, takeoverWait)
	defer cancel()
	for !t.subscribe(ctx, addr) { // the link may be one that breaks just now
		if ctx.Err() != nil || t.n.Closed() {
			t.seek(addr)
			break
		}
		drive.Pause(ctx, insistPause)
	}
	t.leave(all)
	if !knew { // this node may have stood still, and the other not waited
		t.flushed(t.followers(), cause{})
	}
	return nil
}

// awaitTakeovers waits until everybody knows that this node owns the keys.
func (t *Tracking) awaitTakeovers(keys []string) {
	t.mu.Lock()
	awaited := slices.Clone(t.awaited)
	t.mu.Unlock()
	for _, in := range awaited {
		if slices.ContainsFunc(keys, in.Contains) {
			<-in.done // which takes takeoverWait at most
		}
	}
}

// Away takes that the assigner has lost this node: the next owner of a slice
// may not know of it. Clients are told that all they keep may be old, and once more at Back.
func (t *Tracking) Away() {
	t.mu.Lock()
	t.apart = true
	t.mu.Unlock()
	t.forgetAll(cause{})
}

// Back takes that the assigner has this node again, which ends what Away began.
func (t *Tracking) Back() {
	t.mu.Lock()
	was := t.apart
	t.apart = false
	t.mu.Unlock()
	if was {
		t.work.Go(func() {
			t.spread(true)
			t.forgetAll(cause{})
		})
	}
}
