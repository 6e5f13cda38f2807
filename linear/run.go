package linear

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/freshet-cache/freshet/linear/clink"
	"github.com/freshet-cache/freshet/linear/replica"
	"github.com/freshet-cache/freshet/shard"
	"github.com/freshet-cache/freshet/shard/lease"
	"github.com/freshet-cache/freshet/store"
	"github.com/freshet-cache/freshet/ticks"
)

// waiter is a caller that waits for a Reply.
type waiter[V any] struct {
	reply  chan answer[V] // holds one
	decide func(op clink.Op, rows []clink.Row)

	lock   *locking[V]        // set for a Lock
	locked chan []clink.Token // holds one

	joined bool // the read shares another read's request
}

// answer is a Reply, decoded for the caller.
type answer[V any] struct {
	entry  Entry[V]
	stamps []clink.Stamp
	err    error

	outcome clink.Outcome
}

// request is a clink.Output or a replica.Load that the runtime performs outside the lock.
type request any

// do runs one operation, from the input that begins it to its answer.
func (c *Cache[V]) do(ctx context.Context, begin func(op clink.Op, w *waiter[V]) clink.Input) (answer[V], error) {
	w := &waiter[V]{reply: make(chan answer[V], 1)}
	c.mu.Lock()
	if err := c.unable(); err != nil {
		c.mu.Unlock()
		return answer[V]{}, err
	}
	c.ops++
	op := clink.Op(c.ops)
	c.waiting[op] = w
	asked := c.step(begin(op, w), nil)
	c.mu.Unlock()
	c.carry(ctx, asked)
	select {
	case a := <-w.reply:
		return a, a.err
	case <-ctx.Done():
	}
	c.mu.Lock()
	asked = c.step(clink.Abandoned{Op: op}, context.Cause(ctx))
	c.mu.Unlock()
	c.carry(context.Background(), asked)
	a := <-w.reply // the machine answers an abandoned operation too, unless it has answered already
	return a, a.err
}

// unable returns why no operation can begin, or nil.
func (c *Cache[V]) unable() error {
	switch {
	case c.closed:
		return ErrClosed
	case c.broken:
		return fmt.Errorf("linear: nothing was written: %w", errAside)
	}
	return nil
}

// miss reads a key that memory could not serve.
func (c *Cache[V]) miss(ctx context.Context, key string) (Entry[V], error) {
	c.missed.Add(1)
	guarding := c.guarding(key)
	if why := c.why(key); guarding && why == Absent {
		c.opt.Recorder.Miss(Unguarded)
	} else {
		c.opt.Recorder.Miss(why)
	}
	if e, ok := c.fetch(ctx, key); ok {
		return e, nil
	}
	c.sampler.write(key)
	e, ok, err := c.copied(ctx, key)
	switch {
	case errors.Is(err, errAside):
		return c.through(ctx, key)
	case ok:
		return e, err
	}
	a, err := c.do(ctx, func(op clink.Op, _ *waiter[V]) clink.Input { return clink.Read{Op: op, Key: key} })
	if errors.Is(err, errAside) {
		return c.through(ctx, key)
	}
	a.entry.Guarding = guarding
	return a.entry, err
}

func (c *Cache[V]) why(key string) MissCause {
	e, ok := c.kept.GetIfPresent(key)
	switch {
	case !ok:
		return c.fates.why(key)
	case e.validity.until != 0 && c.opt.Clock.Now() >= e.validity.until:
		return Expired
	}
	return Invalid
}

// step runs the machine. The caller holds the lock. step performs outputs in order; it returns
// those that need the store. err is the cause if this step answers a caller with a failure.
func (c *Cache[V]) step(in clink.Input, err error) (asked []request) {
	if c.broken {
		return nil
	}
	defer func() {
		if r := recover(); r != nil {
			c.stepAside(r)
			asked = nil
		}
	}()
	asked = c.beforeStep(in, asked)
	outs := c.pod.Step(c.opt.Clock.Now(), in, nil)
	if checkAlways {
		c.pod.Check()
	}
	for _, out := range outs {
		switch out := out.(type) {
		case clink.Keep:
			c.keep(out)
			asked = c.afterKeep(out, asked)
		case clink.Drop:
			c.kept.Invalidate(out.Key)
		case clink.Reply:
			c.answer(out, err)
		case clink.Event:
			c.opt.Recorder.Event(out.Kind)
			if r, ok := in.(clink.Read); ok && out.Kind == clink.Joined && c.waiting[r.Op] != nil {
				c.waiting[r.Op].joined = true
			}
		case clink.Retag:
			c.transfer(out)
		default:
			asked = c.gate(out, asked)
		}
	}
	return asked
}

// keep stores an entry in the map.
func (c *Cache[V]) keep(k clink.Keep) {
	e := entry[V]{version: k.Row.Version, validity: c.validities[k.Gen]}
	if !k.Row.Exists {
		e.version |= gone
	} else if !c.opt.VersionsOnly {
		var err error
		if e.value, err = c.opt.Codec.Decode(k.Row.Value); err != nil {
			c.kept.Invalidate(k.Key) // the reader gets the error of decoding
			return
		}
	}
	if e.validity == nil || c.opt.MaxBytes < 0 {
		c.kept.Invalidate(k.Key)
		return
	}
	e.validity = e.validity.before(k.Until)
	c.kept.Set(k.Key, e)
}

// entry returns the entry of key to the machine.
func (c *Cache[V]) entry(key string) (clink.Keep, bool) {
	e, ok := c.kept.GetIfPresent(key)
	if !ok || c.opt.VersionsOnly { // an update needs the value to decide
		return clink.Keep{}, false
	}
	k := clink.Keep{Key: key, Gen: e.validity.current(key).handle.Gen, Until: e.validity.until, Row: clink.Row{Exists: e.version&gone == 0, Version: e.version &^ gone}}
	if k.Row.Exists {
		b, err := c.opt.Codec.Append(nil, e.value)
		if err != nil {
			return clink.Keep{}, false
		}
		k.Row.Value = b
	}
	return k, true
}

// answer passes a Reply to its caller.
func (c *Cache[V]) answer(r clink.Reply, cause error) {
	w := c.waiting[r.Op]
	if w == nil {
		return
	}
	delete(c.waiting, r.Op)
	a := answer[V]{stamps: r.Stamps, outcome: r.Outcome}
	switch r.Outcome {
	case clink.Done:
		a.entry, a.err = c.decode(r.Row)
		a.entry.Joined = w.joined
	case clink.NotOwner:
		a.err = ErrNotOwner
	case clink.Unknown:
		a.err = ErrOutcomeUnknown
		if cause != nil {
			a.err = fmt.Errorf("%w (%w)", ErrOutcomeUnknown, cause)
		}
	case clink.Busy:
		a.err = ErrBusy
	case clink.NotSent:
		a.err = fmt.Errorf("linear: nothing was written: %w", cause)
	default: // Rejected, Failed
		a.err = cause
		if cause == nil {
			a.err = errors.New("linear: the store gave no answer")
		}
	}
	w.reply <- a
}

func (c *Cache[V]) decode(r clink.Row) (Entry[V], error) {
	e := Entry[V]{Exists: r.Exists, Version: r.Version, TTL: time.Duration(r.TTL)}
	if !r.Exists {
		return e, nil
	}
	v, err := c.opt.Codec.Decode(r.Value)
	if err != nil {
		return e, fmt.Errorf("linear: the stored value of version %d cannot be decoded: %w", r.Version, err)
	}
	e.Value = v
	return e, nil
}

// stepAside drops every entry and lets reads go to the store. A database must stop when an
// invariant fails; a cache need not.
func (c *Cache[V]) stepAside(cause any) {
	c.broken = true
	for _, r := range c.validities {
		r.handle.Revoke()
	}
	c.kept.InvalidateAll()
	for op, w := range c.waiting {
		delete(c.waiting, op)
		w.reply <- answer[V]{err: fmt.Errorf("%w (%w)", ErrOutcomeUnknown, errAside)}
	}
	c.opt.Recorder.SteppedAside()
	c.opt.Logger.Log(context.Background(), slog.Level(12), "an invariant failed; this cache holds nothing and reads through from here on: restart the process, and report this", "event", "stepped_aside", "rule", cause)
}

// through reads from the store and keeps nothing.
func (c *Cache[V]) through(ctx context.Context, key string) (Entry[V], error) {
	row, err := c.opt.Store.Load(ctx, key)
	if err != nil {
		return Entry[V]{}, err
	}
	return c.decode(fromRow(row))
}

func fromRow(r store.Row) clink.Row {
	return clink.Row{Exists: r.Exists, Value: r.Value, Version: uint64(r.Version), Writer: clink.ID(r.Writer), TTL: ticks.Tick(r.TTL), Guard: clink.Token(r.Guard)}
}

// acquired takes a lease of this node.
func (c *Cache[V]) acquired(h *shard.Handle, after lease.Gen) {
	c.mu.Lock()
	c.validities[h.Gen] = newValidity(h)
	c.notifyPrimary(h)
	asked := c.step(clink.Acquired{Lease: h.Lease, Until: h.Until(), After: after}, nil)
	c.mu.Unlock()
	c.spawn(asked)
}

// extended takes a new end of a lease.
func (c *Cache[V]) extended(h *shard.Handle) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.step(clink.Extended{Gen: h.Gen, Until: h.Until()}, nil)
}

// revoked ends a lease: when it returns, the machine knows that the lease is over.
func (c *Cache[V]) revoked(h *shard.Handle) {
	c.mu.Lock()
	delete(c.validities, h.Gen)
	asked := c.step(clink.Revoked{Gen: h.Gen}, nil)
	asked = c.stepPrimary(replica.Revoked{Gen: h.Gen}, asked) // the pod learns of it before the primary
	c.mu.Unlock()
	c.spawn(asked)
}

// sliceLoads returns the load of each slice since the last call, for the assigner. It includes slices
// without any operation, because otherwise the assigner would assume their former load.
func (c *Cache[V]) sliceLoads() []lease.Load {
	c.mu.Lock()
	var handles []*shard.Handle
	for _, r := range c.validities {
		handles = append(handles, r.handle)
	}
	c.mu.Unlock()
	slices.SortFunc(handles, func(a, b *shard.Handle) int { return cmp.Compare(b.Gen, a.Gen) })
	keys, n, d := c.sampler.take(c.opt.Clock.Now())
	if d == 0 {
		return nil
	}
	perKey := float64(n) / float64(max(1, len(keys))) * sampleEvery / (float64(d) / 1e9)
	return spread(handles, keys, perKey)
}

// spread counts the sampled keys by slice. Each sample stands for rate operations per second.
func spread(handles []*shard.Handle, keys []string, rate float64) (out []lease.Load) {
	const some = 64 // sampled keys are reported, spread evenly over the operations
	for _, h := range handles {
		l := lease.Load{Gen: h.Gen}
		var asked, others []string
		count := map[string]int{}
		for _, k := range keys {
			if !h.Contains(k) {
				others = append(others, k)
				continue
			}
			asked = append(asked, k)
			count[k]++
		}
		keys = others
		for i := range min(len(asked), some) {
			l.Sample = append(l.Sample, asked[i*len(asked)/min(len(asked), some)])
		}
		for k, n := range count {
			l.Hot = append(l.Hot, lease.HotKey{Key: k, Rate: uint64(float64(n) * rate)})
		}
		slices.SortFunc(l.Hot, func(a, b lease.HotKey) int { return cmp.Compare(b.Rate, a.Rate) })
		l.Hot = l.Hot[:min(len(l.Hot), 4)]
		l.Rate = uint64(float64(len(asked)) * rate)
		out = append(out, l)
	}
	return out
}
