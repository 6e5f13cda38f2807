package linear

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/freshet-cache/freshet/linear/clink"
	"github.com/freshet-cache/freshet/store"
	"github.com/freshet-cache/freshet/ticks"
)

// KeepTTL as the TTL of Tx.SetTTL keeps the deadline that the row has.
const KeepTTL = store.KeepTTL

// Tx is what an update reads and writes. It is valid only during the call that receives it, and not
// safe for concurrent use.
type Tx[V any] struct {
	c    *Cache[V]
	keys []string
	rows []clink.Row
	muts map[string]clink.Mut
	err  error
}

// Update reads keys, calls decide to choose what to write to them, and commits all of it or
// nothing. Nobody writes these keys in between. This node must own all of them.
//
// Update may call decide several times, each time with the latest state. decide may run on another
// goroutine, but never after Update has returned. An error of decide ends the update, and nothing
// is written.
//
// Update returns the versions written, by key; the map is empty if decide wrote nothing.
func (c *Cache[V]) Update(ctx context.Context, keys []string, decide func(tx *Tx[V]) error) (map[string]uint64, error) {
	keys = slices.Compact(slices.Sorted(slices.Values(keys)))
	if len(keys) == 0 {
		return nil, errors.New("linear: an update names no key")
	}
	for _, k := range keys {
		c.sampler.write(k)
	}
	var deciding sync.Mutex // held while decide runs, so that none runs or begins once Update has returned
	var tx *Tx[V]
	over := false
	a, err := c.do(ctx, func(op clink.Op, w *waiter[V]) clink.Input {
		w.decide = func(op clink.Op, rows []clink.Row) {
			deciding.Lock()
			if over {
				deciding.Unlock()
				return
			}
			tx = &Tx[V]{c: c, keys: keys, rows: rows, muts: map[string]clink.Mut{}}
			tx.run(decide)
			muts := tx.list()
			deciding.Unlock()
			c.mu.Lock()
			asked := c.step(clink.Evaluated{Op: op, Muts: muts}, nil)
			c.mu.Unlock()
			c.carry(ctx, asked)
		}
		return clink.Update{Op: op, Keys: keys}
	})
	deciding.Lock()
	over = true
	deciding.Unlock()
	switch {
	case err != nil:
		return nil, err
	case tx.err != nil:
		return nil, tx.err
	}
	versions := map[string]uint64{}
	for i, m := range tx.list() {
		if i < len(a.stamps) {
			versions[m.Key] = a.stamps[i].Version
		}
	}
	return versions, nil
}

// evaluate runs a caller's decide function, outside the lock.
func (c *Cache[V]) evaluate(e clink.Evaluate) {
	c.mu.Lock()
	w := c.waiting[e.Op]
	c.mu.Unlock()
	if w != nil {
		w.decide(e.Op, e.Rows)
	}
}

// run calls decide and turns a panic into an error.
func (t *Tx[V]) run(decide func(*Tx[V]) error) {
	defer func() {
		if r := recover(); r != nil {
			t.err = fmt.Errorf("linear: the update's function panicked, nothing was written: %v", r)
		}
		if t.err != nil {
			clear(t.muts)
		}
	}()
	t.err = decide(t)
}

// list returns the mutations in the order of keys.
func (t *Tx[V]) list() (out []clink.Mut) {
	for _, k := range t.keys {
		if m, ok := t.muts[k]; ok {
			out = append(out, m)
		}
	}
	return out
}

func (t *Tx[V]) index(key string) (int, error) {
	i, ok := slices.BinarySearch(t.keys, key)
	if !ok {
		return 0, fmt.Errorf("linear: the update does not name %q; name every key it reads or writes", key)
	}
	return i, nil
}

// Get returns the state of one of the update's keys, including what this update has written.
// Version is the committed one.
func (t *Tx[V]) Get(key string) (Entry[V], error) {
	i, err := t.index(key)
	if err != nil {
		return Entry[V]{}, err
	}
	row := t.rows[i]
	if m, ok := t.muts[key]; ok {
		row.Exists, row.Value = !m.Delete, m.Value
		switch {
		case m.Delete:
			row.TTL = 0
		case m.TTL != clink.KeepTTL:
			row.TTL = m.TTL
		}
	}
	return t.c.decode(row)
}

// Set writes one of the update's keys for the time of Options.TTL.
func (t *Tx[V]) Set(key string, value V) error { return t.SetTTL(key, value, t.c.opt.TTL) }

// SetTTL writes one of the update's keys for the time ttl. With 0 the row does not expire; with
// KeepTTL it keeps the deadline that it has.
func (t *Tx[V]) SetTTL(key string, value V, ttl time.Duration) error {
	i, err := t.index(key)
	if err != nil {
		return err
	}
	b, err := t.c.opt.Codec.Append(nil, value)
	if err != nil {
		return fmt.Errorf("linear: value of %q cannot be encoded: %w", key, err)
	}
	if ttl < 0 && ttl != KeepTTL {
		return fmt.Errorf("linear: the TTL of %q is negative: %v; use 0 for ever, or KeepTTL", key, ttl)
	}
	m := clink.Mut{Key: key, Value: b, TTL: ticks.Tick(min(ttl, MaxTTL))}
	if was, ok := t.muts[key]; ttl == KeepTTL && ok { // keep the deadline that an earlier write of this update set
		m.TTL = was.TTL // 0 after a delete
	} else if ttl == KeepTTL && (!t.rows[i].Exists || t.rows[i].TTL == 0) {
		m.TTL = 0
	}
	t.muts[key] = m
	return nil
}

// Delete removes one of the update's keys.
func (t *Tx[V]) Delete(key string) error {
	if _, err := t.index(key); err != nil {
		return err
	}
	t.muts[key] = clink.Mut{Key: key, Delete: true}
	return nil
}
