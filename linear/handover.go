package linear

import (
	"context"
	"maps"
	"slices"

	"github.com/freshet-cache/freshet/linear/clink"
	"github.com/freshet-cache/freshet/shard"
	"github.com/freshet-cache/freshet/shard/lease"
)

// moved is an entry that an owner transfers to the next owner when its slice moves.
type moved struct {
	Key     string
	Value   []byte // encoded
	Exists  bool
	Version uint64
	Bare    bool // the key exists and Value was left out; only a cache of versions can use the entry
}

const (
	offerBytes    = 256 << 10
	offerOverhead = 32
)

// handedOver offers the entries of the part that moves to the next
// owner. A key with a write in flight has no entry. Entries that expire are not offered, because
// the next owner's clock cannot count their TTL.
func (c *Cache[V]) handedOver(h *shard.Handle, over lease.Range, under lease.Gen, next string) {
	if _, single := c.opt.Peers.(alone); single || c.opt.MaxBytes < 0 {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return
	}
	done := make(chan struct{})
	c.offering[done] = true
	c.work.Go(func() {
		c.offer(h, over, under, next)
		c.mu.Lock()
		delete(c.offering, done)
		c.mu.Unlock()
		close(done)
	})
}

// offersDone waits until every transfer that is under way has ended, or until ctx ends.
func (c *Cache[V]) offersDone(ctx context.Context) error {
	c.mu.Lock()
	under := slices.Collect(maps.Keys(c.offering))
	c.mu.Unlock()
	for _, done := range under {
		select {
		case <-done:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	return nil
}

func (c *Cache[V]) offer(h *shard.Handle, over lease.Range, under lease.Gen, next string) {
	ctx, cancel := context.WithTimeout(c.ctx, c.opt.Timeout)
	defer cancel()
	var batch []moved
	size := 0
	for key, e := range c.kept.All() {
		if e.validity.current(key).handle != h || e.validity.until != 0 || !over.Contains(key) {
			continue
		}
		o := moved{Key: key, Exists: e.version&gone == 0, Version: e.version &^ gone}
		if o.Bare = o.Exists && c.opt.VersionsOnly; o.Exists && !o.Bare {
			var err error
			if o.Value, err = c.opt.Codec.Append(nil, e.value); err != nil {
				continue
			}
		}
		batch, size = append(batch, o), size+len(o.Key)+len(o.Value)+offerOverhead
		if size < offerBytes {
			continue
		}
		if ctx.Err() != nil {
			return
		}
		c.offerPeers(ctx, next, under, batch)
		batch, size = nil, 0
	}
	if len(batch) > 0 && ctx.Err() == nil {
		c.offerPeers(ctx, next, under, batch)
	}
}

// offered takes entries that the owner of generation after had in memory when it gave their slice
// up for this node. The cache keeps those that are certainly the latest (R19).
func (c *Cache[V]) offered(after lease.Gen, batch []moved) {
	for _, o := range batch {
		if o.Bare && !c.opt.VersionsOnly {
			continue
		}
		row := clink.Row{Exists: o.Exists, Version: o.Version}
		if o.Exists {
			row.Value = o.Value
		}
		c.mu.Lock()
		if !c.closed {
			c.step(clink.Offered{After: after, Key: o.Key, Row: row}, nil)
		}
		c.mu.Unlock()
	}
}
