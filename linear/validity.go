package linear

import (
	"sync/atomic"
	"time"

	"github.com/freshet-cache/freshet/linear/clink"
	"github.com/freshet-cache/freshet/shard"
	"github.com/freshet-cache/freshet/shard/lease"
	"github.com/freshet-cache/freshet/ticks"
)

// validity says how long an entry may be served: while the handle holds and, if until is not 0,
// before until. Entries that do not expire share the validity of their lease.
type validity struct {
	handle     *shard.Handle
	until      ticks.Tick
	successors *successors // shared by all validities of a lease
}

func newValidity(h *shard.Handle) *validity { return &validity{handle: h, successors: &successors{}} }

// before returns the validity of an entry that expires, under the same lease.
func (r *validity) before(until ticks.Tick) *validity {
	if until == 0 {
		return r
	}
	return &validity{r.handle, until, r.successors}
}

func (r *validity) serves(now ticks.Tick) bool { return clink.Serves(now, r.handle.Until(), r.until) }

// successors are the leases that replace a lease whose slice was cut or joined. They hold the
// keys without an interruption (R21).
type successors struct{ list atomic.Pointer[[]successor] }

type successor struct {
	keys     lease.Range
	validity *validity
}

// add records a successor. The caller holds the cache's lock.
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

// current returns the validity, apart from until, that a key kept under r has by now. A successor
// has a higher generation, so the loop ends.
func (r *validity) current(key string) *validity {
	for next := r.successors.of(key); next != nil; next = r.successors.of(key) {
		r = next
	}
	return r
}

// heldBySuccessor reports whether an entry under r may be served although r's lease is over. It may
// if a successor holds the key and the key was held in between.
func (r *validity) heldBySuccessor(key string, now ticks.Tick) bool {
	to := r.current(key)
	return to != r && clink.Serves(now, to.handle.Until(), r.until)
}

// retagDelay is how long the cache collects cuts and joins before it gives entries their current
// validity.
const retagDelay = time.Second

// transfer makes the entries of a lease valid under its successor. The cache soon retags all such
// entries at once, so that no chain of leases grows.
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

// retag gives every entry its current validity.
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
