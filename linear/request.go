package linear

import (
	"context"
	"errors"
	"time"

	"github.com/freshet-cache/freshet/internal/drive"
	"github.com/freshet-cache/freshet/linear/clink"
	"github.com/freshet-cache/freshet/linear/replica"
	"github.com/freshet-cache/freshet/store"
	"github.com/freshet-cache/freshet/ticks"
)

// carry performs requests. A caller without a deadline performs the last one itself, which saves
// two switches between goroutines. All other requests run on goroutines of their own, so that a
// caller's deadline never ends a request that others share.
func (c *Cache[V]) carry(ctx context.Context, asked []request) {
	for len(asked) > 0 {
		last := len(asked) - 1
		if _, decide := asked[last].(clink.Evaluate); ctx.Done() != nil && !decide {
			c.spawn(asked)
			return
		}
		c.spawn(asked[:last])
		asked = c.perform(asked[last])
	}
}

// spawn performs each request on a goroutine of its own.
func (c *Cache[V]) spawn(asked []request) {
	for _, r := range asked {
		c.pool.Do(r)
	}
}

// performAll performs a request, and what the machine asks for then.
func (c *Cache[V]) performAll(r request) {
	for next := c.perform(r); len(next) > 0; next = c.perform(next[len(next)-1]) {
		c.spawn(next[:len(next)-1])
	}
}

// perform sends a request to the store and steps the machine with the answer.
func (c *Cache[V]) perform(r request) []request {
	if c.ctx.Err() != nil {
		return nil
	}
	var in clink.Input
	var err error
	began := time.Now()
	switch r := r.(type) {
	case clink.Load:
		in, err = c.load(r)
		c.opt.Recorder.StoreCall(CallLoad, time.Since(began), err)
	case clink.Store:
		in, err = c.commit(r)
		c.opt.Recorder.StoreCall(CallCommit, time.Since(began), err)
	case clink.SetGuard:
		in, err = c.setGuard(r)
		c.opt.Recorder.StoreCall(CallSetGuard, time.Since(began), err)
	case clink.ReadSplits:
		in, err = c.splits(r)
		c.opt.Recorder.StoreCall(CallSplits, time.Since(began), err)
	case replica.Load:
		return c.loadCopy(r)
	case clink.Evaluate:
		c.evaluate(r)
		return nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	asked := c.step(in, err)
	if c.closed && len(c.waiting) == 0 { // a request without a caller is not repeated, or Close would wait for the store
		return nil
	}
	return asked
}

func (c *Cache[V]) load(r clink.Load) (clink.Input, error) {
	drive.Retry(c.ctx, r.Try)
	ctx, cancel := context.WithTimeout(c.ctx, c.opt.Timeout)
	defer cancel()
	load := c.opt.Store.Load
	if l, ok := c.opt.Store.(interface {
		Look(ctx context.Context, key string) (store.Row, error)
	}); ok && r.Bare {
		load = l.Look
	}
	row, err := load(ctx, r.Key)
	if err != nil {
		return clink.Loaded{Call: r.Call, Status: clink.StatusUnknown}, err
	}
	return clink.Loaded{Call: r.Call, Row: fromRow(row)}, nil
}

func (c *Cache[V]) commit(r clink.Store) (clink.Input, error) {
	ctx, cancel := context.WithTimeout(c.ctx, c.opt.Timeout)
	defer cancel()
	muts := make([]store.Mutation, len(r.Muts))
	for i, m := range r.Muts {
		muts[i] = store.Mutation{Key: m.Key, Guard: store.Token(m.Guard), Delete: m.Delete, Value: m.Value,
			TTL: time.Duration(m.TTL), Check: m.Check, Expect: store.Version(m.Expect)}
	}
	stamps, err := c.opt.Store.Commit(ctx, store.ID(r.ID), muts)
	in := clink.Stored{Call: r.Call, Status: status(err)}
	for _, s := range stamps {
		in.Stamps = append(in.Stamps, clink.Stamp{Version: uint64(s.Version), TTL: ticks.Tick(s.TTL)})
	}
	return in, err
}

func (c *Cache[V]) setGuard(r clink.SetGuard) (clink.Input, error) {
	drive.Retry(c.ctx, r.Try)
	ctx, cancel := context.WithTimeout(c.ctx, c.opt.Timeout)
	defer cancel()
	err := c.opt.Store.SetGuard(ctx, r.Range.Low, r.Range.High, store.Token(r.Token))
	return clink.Guarded{Call: r.Call, Status: status(err)}, err
}

func (c *Cache[V]) splits(r clink.ReadSplits) (clink.Input, error) {
	drive.Retry(c.ctx, r.Try)
	ctx, cancel := context.WithTimeout(c.ctx, c.opt.Timeout)
	defer cancel()
	points, err := c.opt.Store.Splits(ctx, r.Range.Low, r.Range.High)
	if err != nil {
		return clink.Splits{Call: r.Call, Status: clink.StatusUnknown}, err
	}
	return clink.Splits{Call: r.Call, Points: points}, nil
}

// status sorts the errors of a store. No other code does so.
func status(err error) clink.Status {
	switch {
	case err == nil:
		return clink.OK
	case errors.Is(err, store.ErrGuardMismatch):
		return clink.Mismatch
	case errors.Is(err, store.ErrConflict):
		return clink.Conflict
	case errors.Is(err, store.ErrLayoutChanged):
		return clink.Layout
	case store.Definite(err):
		return clink.Refused
	default: // unknown: the call may still take effect
		return clink.StatusUnknown
	}
}
