package tracking

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/freshet-cache/freshet/link"
	"github.com/freshet-cache/freshet/shard/lease"
)

// watch has clients told when a link breaks through which they have read.
func (t *Tracking) watch(l *link.Link) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.watched[l] {
		return
	}
	t.watched[l] = true
	t.work.Go(func() {
		<-l.Done()
		t.mu.Lock()
		delete(t.watched, l)
		lost := ""
		for addr, over := range t.told {
			if over == l {
				lost = addr
				delete(t.told, addr)
			}
		}
		t.mu.Unlock()
		t.tell(t.local.TakeIf(func(_ string, via any) bool { return via == l }), cause{})
		if lost != "" {
			t.flushed(t.followers(), cause{})
			t.seek(lost)
		}
	})
}

// spread tells the owners of all slices which prefixes are followed here. It waits
// for them, if asked, but not for long: one that cannot be reached hears of it later.
func (t *Tracking) spread(wait bool) {
	ctx, cancel := context.WithTimeout(t.opt.Context, takeoverWait)
	for wait && len(t.n.Table().Slices) == 0 && ctx.Err() == nil { // it has begun just now
		t.n.Newer(ctx, t.n.Table().Version)
	}
	t.mu.Lock()
	owners := maps.Clone(t.known)
	t.mu.Unlock()
	for _, r := range t.n.Table().Slices {
		owners[r.Addr] = true
	}
	delete(owners, "")
	delete(owners, t.opt.Addr)
	var wg sync.WaitGroup
	for addr := range owners {
		wg.Add(1)
		t.work.Go(func() {
			defer wg.Done()
			if !t.subscribe(ctx, addr) {
				t.seek(addr)
			}
		})
	}
	if !wait {
		t.work.Go(func() { wg.Wait(); cancel() })
		return
	}
	wg.Wait()
	cancel()
}

// subscribe asks an owner to tell of what is followed here. Nothing is asked if
// nothing is followed and it was never told otherwise.
func (t *Tracking) subscribe(ctx context.Context, addr string) bool {
	t.mu.Lock()
	one := t.lists[addr]
	if one == nil {
		if len(t.lists) > maxNodes {
			clear(t.lists)
		}
		one = &sync.Mutex{}
		t.lists[addr] = one
	}
	t.mu.Unlock()
	one.Lock() // a list must not overtake a later one
	defer one.Unlock()
	prefixes := t.followed()
	t.mu.Lock()
	idle := len(prefixes) == 0 && t.told[addr] == nil
	t.mu.Unlock()
	if idle {
		return true
	}
	l, err := t.n.Link(ctx, addr)
	if err != nil {
		return false
	}
	t.mu.Lock()
	t.told[addr] = l
	t.mu.Unlock()
	t.watch(l)
	return t.n.Tell(ctx, l, appendFollow(nil, prefixes)) == nil
}

// followed are the prefixes to ask others for: everything, if there are too many.
func (t *Tracking) followed() []string {
	all := t.local.Prefixes()
	size := 0
	for _, p := range all {
		size += len(p)
	}
	if len(all) > maxPrefixList || size > maxPrefixBytes {
		return []string{""}
	}
	return all
}

// seek subscribes at an owner that could not be reached, as long as it owns
// something. What was written there meanwhile nobody was told of: when it is
// reached, clients are to forget what they keep.
func (t *Tracking) seek(addr string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.seeking[addr] {
		return
	}
	t.seeking[addr] = true
	t.work.Go(func() {
		tick := time.NewTicker(seekingInterval)
		defer tick.Stop()
		for try := 0; t.sought(addr, try); try++ {
			select {
			case <-tick.C:
			case <-t.opt.Context.Done():
				return
			}
			ctx, cancel := context.WithTimeout(t.opt.Context, takeoverWait)
			if t.subscribe(ctx, addr) {
				t.mu.Lock()
				delete(t.seeking, addr)
				t.mu.Unlock()
				t.flushed(t.followers(), cause{})
			}
			cancel()
		}
	})
}

// sought reports whether an owner is still to be told, and ends the search if not.
// Of one that has announced itself the table may not know yet; but it must answer
// some time.
func (t *Tracking) sought(addr string, try int) bool {
	owns := slices.ContainsFunc(t.n.Table().Slices, func(r lease.Route) bool { return r.Addr == addr })
	t.mu.Lock()
	defer t.mu.Unlock()
	if !owns && try >= seekingTries {
		delete(t.known, addr)
	}
	if !owns && !t.known[addr] || len(t.local.Prefixes()) == 0 {
		delete(t.seeking, addr)
	}
	return t.seeking[addr]
}

// follow takes the prefixes that another node follows.
func (t *Tracking) follow(message []byte, over *Asker) error {
	prefixes, err := decodeFollow(message)
	if err != nil || over == nil {
		return errMessage
	}
	over.asked.Store(true)
	t.remote.Subscribe(over, prefixes)
	if over.Err() != nil {
		t.remote.Forget(over)
	}
	return nil
}
