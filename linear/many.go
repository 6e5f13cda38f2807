package linear

import (
	"context"
	"fmt"
	"slices"
	"sync"

	"golang.org/x/sync/errgroup"
)

// Stats are counts of a Cache since it was made, and its size now.
type Stats struct {
	Entries int
	Bytes   int64
	// Hits are reads from memory. They are estimated from a sample of one in 64, because an exact
	// counter would cost more than the read itself.
	Hits uint64
	// Misses are the other reads, also those that shared another read's request to the store.
	Misses uint64
	// Evictions are entries that made room for others.
	Evictions uint64
}

// Stats returns what the cache has counted. It is cheap, and may be called at any time.
func (c *Cache[V]) Stats() Stats {
	return Stats{Entries: c.Len(), Bytes: c.Bytes(), Hits: c.sampler.hits.Load() * sampleEvery, Misses: c.missed.Load(), Evictions: c.Evictions()}
}

// manyAtOnce bounds the keys that one GetMany asks for at the same time.
const manyAtOnce = 32

// GetMany returns the values of those keys that exist. Each read returns the latest value, but the
// reads take effect at different instants: use Update for keys that belong together. Keys that are
// not in memory are asked for at the same time, at most 32 at once. If a key cannot be read, the
// error names it, and nothing is returned.
func (c *Cache[V]) GetMany(ctx context.Context, keys ...string) (map[string]V, error) {
	found := make(map[string]V, len(keys))
	var missing []string
	for _, k := range keys {
		if e, ok := c.Peek(k); !ok {
			missing = append(missing, k)
		} else if e.Exists {
			found[k] = e.Value
		}
	}
	slices.Sort(missing)
	var mu sync.Mutex
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(manyAtOnce)
	for _, k := range slices.Compact(missing) {
		g.Go(func() error {
			e, err := c.miss(ctx, k)
			if err != nil {
				return fmt.Errorf("linear: reading %q of several: %w", k, err)
			}
			if e.Exists {
				mu.Lock()
				defer mu.Unlock()
				found[k] = e.Value
			}
			return nil
		})
	}
	if err := g.Wait(); err != nil {
		return nil, err
	}
	return found, nil
}

// GetOrLoad returns the value of a key. If the key does not exist, load makes a value, which is
// written with the time of Options.TTL and returned. Callers that come meanwhile wait for the same
// load. If the key was written while load ran, that value is kept and returned instead.
//
// load runs on a goroutine of its own for at most Options.Timeout: it keeps the values of the first
// caller's context, and does not end with it. Its error, or its panic as an error, goes to all that
// wait, and nothing is written. The key must be owned by this node, as for Update.
func (c *Cache[V]) GetOrLoad(ctx context.Context, key string, load func(ctx context.Context, key string) (V, error)) (V, error) {
	v, ok, err := c.Get(ctx, key)
	if ok || err != nil {
		return v, err
	}
	done := c.loads.DoChan(key, func() (out any, err error) {
		finished := make(chan struct{})
		c.work.Go(func() { // Close waits for it
			defer close(finished)
			out, err = c.loadAbsent(context.WithoutCancel(ctx), key, load)
		})
		<-finished
		return out, err
	})
	select {
	case r := <-done:
		if r.Err != nil {
			return v, r.Err
		}
		return r.Val.(V), nil
	case <-ctx.Done():
		return v, fmt.Errorf("linear: waiting for the load of %q: %w", key, context.Cause(ctx))
	}
}

// loadAbsent makes the value of a key and writes it, if the key still does not exist.
func (c *Cache[V]) loadAbsent(ctx context.Context, key string, load func(context.Context, string) (V, error)) (v V, err error) {
	ctx, cancel := context.WithTimeout(ctx, c.opt.Timeout)
	defer cancel()
	defer context.AfterFunc(c.ctx, cancel)() // the cache is closed, and its patience is over
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("linear: the load of %q panicked, nothing was written: %v", key, r)
		}
	}()
	if v, err = load(ctx, key); err != nil {
		return v, err
	}
	made := v
	_, err = c.Update(ctx, []string{key}, func(tx *Tx[V]) error {
		e, err := tx.Get(key)
		if err != nil || e.Exists {
			v = e.Value
			return err
		}
		v = made
		return tx.Set(key, made)
	})
	return v, err
}
