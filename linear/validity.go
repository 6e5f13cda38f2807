package linear

import (
	"sync/atomic"
	"time"

	"github.com/freshet-cache/freshet/linear/clink"
	"github.com/freshet-cache/freshet/shard"
	"github.com/freshet-cache/freshet/shard/lease"
)

// validity is what entries are served under: as long as the handle holds and, if
// until is not 0, before until. Those that do not expire share that of their lease.
type validity struct {
	handle     *shard.Handle
	until      lease.Tick
	successors *successors // the same for all rights of a lease
}

func newValidity(h *shard.Handle) *validity { return &validity{handle: h, successors: &successors{}} }

// before is the right of an entry that expires, under the same lease.
func (r *validity) before(until lease.Tick) *validity {
	if until == 0 {
		return r
	}
	return &validity{r.handle, until, r.successors}
}

func (r *validity) serves(now lease.Tick) bool { return clink.Serves(now, r.handle.Until(), r.until) }

// successors are the leases that a lease goes on under, when its slice has been cut or
// joined: its keys were held all along.
type successors struct{ list atomic.Pointer[[]successor] }

type successor struct {
	keys     lease.Range
	validity *validity
}

// add is called under the cache's lock.
func (h *successors) add(x successor) {
	var list []successor
	if old := h.list.Load(); old != nil {
		list = append(list, *old...)
	}
	list = append(list, x)
	h.list.Store(&list)
}

func (h *successors) of(key string) *validity {
	if list := h.list.Load(); list != nil {
		for _, x := range *list {
			if x.keys.Contains(key) {
				return x.validity
			}
		}
	}
	return nil
}

// current is the right, but for its end, that a key kept under r stands under by now.
// An successor's generation is higher, so this comes to an end.
func (r *validity) current(key string) *validity {
	for next := r.successors.of(key); next != nil; next = r.successors.of(key) {
		r = next
	}
	return r
}

// heldBySuccessor reports whether what is kept of key under r, whose lease is over, may be
// served all the same: the key is held under another, and was in between.
func (r *validity) heldBySuccessor(key string, now lease.Tick) bool {
	to := r.current(key)
	return to != r && clink.Serves(now, to.handle.Until(), r.until)
}

// retagDelay is how long cuts and joins are gathered before entries are moved.
const retagDelay = time.Second

// transfer lets what is kept under a lease stand under the one that goes on. Entries are
// moved there before long, all of them at once, so that no line of leases grows.
func (c *Cache[V]) transfer(r clink.Retag) {
	old, fresh := c.validities[r.Old], c.validities[r.New]
	if old == nil || fresh == nil {
		return
	}
	old.successors.add(successor{r.Range, fresh})
	if c.retags {
		return
	}
	c.retags = true
	time.AfterFunc(retagDelay, func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		if c.retags = false; !c.closed {
			c.work.Go(c.retag)
		}
	})
}

// retag moves entries to the rights they stand under.
func (c *Cache[V]) retag() {
	for key, e := range c.kept.All() {
		if e.validity.successors.of(key) == nil {
			continue
		}
		c.mu.Lock() // no Drop or Keep may come in between
		if now, ok := c.kept.GetIfPresent(key); ok {
			if to := now.validity.current(key); to != now.validity {
				now.validity = to.before(now.validity.until)
				c.kept.Set(key, now)
			}
		}
		c.mu.Unlock()
	}
}
