package linear

import (
	"hash/maphash"
	"sync/atomic"

	"github.com/maypok86/otter/v2"
)

// fates remembers why keys are no longer in memory, so that a miss can report its cause. It has a
// fixed size: a key may overwrite the record of another one.
type fates struct {
	seed    maphash.Seed
	slots   [8192]atomic.Uint64 // hash of a key, and in the lowest bits the cause
	evicted atomic.Uint64
}

const fateBits = 7

func (f *fates) note(key string, why MissCause) {
	h := maphash.String(f.seed, key)
	f.slots[h/8%uint64(len(f.slots))].Store(h&^fateBits | uint64(why))
}

// why returns the recorded cause for a key that is not in memory.
func (f *fates) why(key string) MissCause {
	h := maphash.String(f.seed, key)
	if s := f.slots[h/8%uint64(len(f.slots))].Load(); s&^fateBits == h&^fateBits {
		return MissCause(s & fateBits)
	}
	return Absent
}

// fate records why an entry has left the map.
func (c *Cache[V]) fate(e otter.DeletionEvent[string, entry[V]]) {
	switch e.Cause {
	case otter.CauseOverflow:
		c.fates.evicted.Add(1)
		c.fates.note(e.Key, Evicted)
	case otter.CauseInvalidation:
		c.fates.note(e.Key, Invalidated)
	}
}

// Evictions returns how many entries were evicted to make room for others.
func (c *Cache[V]) Evictions() uint64 { return c.fates.evicted.Load() }
