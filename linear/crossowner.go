package linear

import (
	"context"
	"errors"
	"time"

	"github.com/freshet-cache/freshet/linear/clink"
	"github.com/freshet-cache/freshet/linear/crossowner"
)

// maxCrossOwner bounds the cross-owner transactions for which a cache has locked keys.
const maxCrossOwner = 4096

// locking is a cross-owner write for which this cache locks keys, until the coordinator knows the
// outcome.
type locking[V any] struct {
	id    clink.ID
	keys  []string
	w     *waiter[V]
	op    clink.Op
	call  clink.Call // in flight; 0 once the machine knows how the write ended
	timer *time.Timer
}

// lock locks keys, which are sorted, for the transaction that marks them with id. It returns the
// guards under which the transaction may write them. The caller must call settle afterwards.
func (c *Cache[V]) lock(ctx context.Context, id clink.ID, keys []string) ([]clink.Token, error) {
	l := &locking[V]{id: id, keys: keys, w: &waiter[V]{reply: make(chan answer[V], 1), locked: make(chan []clink.Token, 1)}}
	l.w.lock = l
	c.mu.Lock()
	err := c.unable()
	switch {
	case err != nil:
	case c.crossOwner[id] != nil:
		err = errors.New("linear: nothing was written: the lock was asked for twice")
	case len(c.crossOwner) >= maxCrossOwner:
		err = ErrBusy
	}
	if err != nil {
		c.mu.Unlock()
		return nil, err
	}
	for _, k := range keys {
		c.sampler.write(k)
	}
	c.ops++
	l.op = clink.Op(c.ops)
	c.crossOwner[id], c.waiting[l.op] = l, l.w
	asked := c.step(clink.Lock{Op: l.op, ID: id, Keys: keys}, nil)
	c.mu.Unlock()
	c.spawn(asked)
	select {
	case guards := <-l.w.locked:
		return guards, nil
	case a := <-l.w.reply:
		c.forget(id)
		return nil, a.err
	case <-ctx.Done():
	}
	c.mu.Lock()
	select {
	case guards := <-l.w.locked: // the lock was granted just then
		c.mu.Unlock()
		return guards, nil
	default:
	}
	asked = c.step(clink.Abandoned{Op: l.op}, context.Cause(ctx))
	c.mu.Unlock()
	c.spawn(asked)
	a := <-l.w.reply
	c.forget(id)
	return nil, a.err
}

// locked passes the guards of a granted lock to the caller that waits, and starts a timer. The
// cache holds its lock. If the coordinator has not answered after twice Options.Timeout, the write
// is fenced.
func (c *Cache[V]) locked(out clink.Locked) {
	w := c.waiting[out.Op]
	if w == nil {
		return
	}
	l := w.lock
	l.call = out.Call
	l.timer = time.AfterFunc(2*c.opt.Timeout, func() {
		c.tell(l, clink.StatusUnknown)
		c.mu.Lock()
		defer c.mu.Unlock() // remember the write: the coordinator may still ask for its outcome
		l.timer = time.AfterFunc(2*c.opt.Timeout, func() { c.forget(l.id) })
	})
	w.locked <- out.Guards
}

func (c *Cache[V]) forget(id clink.ID) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if l := c.crossOwner[id]; l != nil && l.timer != nil {
		l.timer.Stop()
	}
	delete(c.crossOwner, id)
}

// tell passes the status of a cross-owner write to the machine, once.
func (c *Cache[V]) tell(l *locking[V], status clink.Status) {
	c.mu.Lock()
	call := l.call
	if l.call = 0; call == 0 || c.closed {
		c.mu.Unlock()
		return
	}
	asked := c.step(clink.Stored{Call: call, Status: status}, nil)
	c.mu.Unlock()
	c.spawn(asked)
}

// giveBack ends a cross-owner write whose status is known, and ends the wait of its operation.
func (c *Cache[V]) giveBack(l *locking[V], status clink.Status) {
	c.tell(l, status)
	c.mu.Lock()
	asked := c.step(clink.Abandoned{Op: l.op}, nil)
	c.mu.Unlock()
	c.spawn(asked)
}

var statuses = [...]clink.Status{crossowner.OK: clink.OK, crossowner.Mismatch: clink.Mismatch, crossowner.Refused: clink.Refused, crossowner.StatusUnknown: clink.StatusUnknown}

// settle ends a cross-owner write and returns what this owner knows of its outcome. If the status
// is unknown, the machine finds the outcome behind a fence, as long as ctx lasts.
func (c *Cache[V]) settle(ctx context.Context, id clink.ID, status crossowner.Status) crossowner.Outcome {
	c.mu.Lock()
	l := c.crossOwner[id]
	c.mu.Unlock()
	if l == nil {
		return crossowner.Unknown
	}
	if status != crossowner.StatusUnknown {
		c.giveBack(l, statuses[status])
		c.forget(id)
		return crossowner.Unknown
	}
	c.tell(l, clink.StatusUnknown)
	defer c.forget(id)
	select {
	case a := <-l.w.reply:
		switch a.outcome {
		case clink.Done:
			return crossowner.Done
		case clink.Unknown:
			return crossowner.Unknown
		}
		return crossowner.Again
	case <-ctx.Done():
		return crossowner.Unknown
	}
}

// sure reports whether an error of lock proves that no key is locked.
func sure(err error) bool {
	return errors.Is(err, ErrNotOwner) || errors.Is(err, ErrBusy) || errors.Is(err, ErrUnreached)
}

// ErrUnreached means that another node could not be asked: no request was sent to it.
var ErrUnreached = errors.New("linear: the key's owner cannot be reached; nothing was written, try again")
