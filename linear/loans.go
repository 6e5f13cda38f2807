package linear

import (
	"context"
	"errors"
	"time"

	"github.com/freshet-cache/freshet/linear/clink"
	"github.com/freshet-cache/freshet/linear/loan"
)

// maxLoans bounds the transactions that a cache has lent keys to.
const maxLoans = 4096

// lending is a loan this cache has granted, until its borrower has been told how it
// ended.
type lending[V any] struct {
	id    clink.ID
	keys  []string
	w     *waiter[V]
	op    clink.Op
	call  clink.Call // in flight; 0 when the machine was told how it ended
	timer *time.Timer
}

// lend waits until keys, which are sorted, may be written under the guards it
// returns, by a transaction that marks them with id; settle must follow.
func (c *Cache[V]) lend(ctx context.Context, id clink.ID, keys []string) ([]clink.Token, error) {
	l := &lending[V]{id: id, keys: keys, w: &waiter[V]{reply: make(chan answer[V], 1), lent: make(chan []clink.Token, 1)}}
	l.w.loan = l
	c.mu.Lock()
	err := c.unable()
	switch {
	case err != nil:
	case c.loans[id] != nil:
		err = errors.New("linear: nothing was written: the loan was asked for twice")
	case len(c.loans) >= maxLoans:
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
	c.loans[id], c.waiting[l.op] = l, l.w
	asked := c.step(clink.Lend{Op: l.op, ID: id, Keys: keys}, nil)
	c.mu.Unlock()
	c.spawn(asked)
	select {
	case guards := <-l.w.lent:
		return guards, nil
	case a := <-l.w.reply:
		c.forget(id)
		return nil, a.err
	case <-ctx.Done():
	}
	c.mu.Lock()
	select {
	case guards := <-l.w.lent: // just then
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

// lent takes a loan that the machines grant, under the lock, and begins the time after
// which a borrower that says nothing is fenced: twice what a transaction may take.
func (c *Cache[V]) lent(out clink.Lent) {
	w := c.waiting[out.Op]
	if w == nil {
		return
	}
	l := w.loan
	l.call = out.Call
	l.timer = time.AfterFunc(2*c.opt.Timeout, func() {
		c.tell(l, clink.Lost)
		c.mu.Lock()
		defer c.mu.Unlock() // the borrower may still ask how it ended
		l.timer = time.AfterFunc(2*c.opt.Timeout, func() { c.forget(l.id) })
	})
	w.lent <- out.Guards
}

func (c *Cache[V]) forget(id clink.ID) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if l := c.loans[id]; l != nil && l.timer != nil {
		l.timer.Stop()
	}
	delete(c.loans, id)
}

// tell lets the machine know how a loan ended, once.
func (c *Cache[V]) tell(l *lending[V], status clink.Status) {
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

// giveBack ends a loan, or the wait for it.
func (c *Cache[V]) giveBack(l *lending[V], status clink.Status) {
	c.tell(l, status)
	c.mu.Lock()
	asked := c.step(clink.Abandoned{Op: l.op}, nil)
	c.mu.Unlock()
	c.spawn(asked)
}

var statuses = [...]clink.Status{loan.OK: clink.OK, loan.Mismatch: clink.Mismatch, loan.Refused: clink.Refused, loan.Lost: clink.Lost}

// settle ends a loan, and returns what is known of it: of one that was Lost, behind a
// fence, if ctx lasts.
func (c *Cache[V]) settle(ctx context.Context, id clink.ID, status loan.Status) loan.Outcome {
	c.mu.Lock()
	l := c.loans[id]
	c.mu.Unlock()
	if l == nil {
		return loan.Unknown
	}
	if status != loan.Lost {
		c.giveBack(l, statuses[status])
		c.forget(id)
		return loan.Unknown
	}
	c.tell(l, clink.Lost)
	defer c.forget(id)
	select {
	case a := <-l.w.reply:
		switch a.outcome {
		case clink.Done:
			return loan.Done
		case clink.Unknown:
			return loan.Unknown
		}
		return loan.Again
	case <-ctx.Done():
		return loan.Unknown
	}
}

// sure reports whether an error of lend says that nothing is lent.
func sure(err error) bool {
	return errors.Is(err, ErrNotOwner) || errors.Is(err, ErrBusy) || errors.Is(err, ErrUnreached)
}

// ErrUnreached means that another node could not be asked: nothing was sent to it.
var ErrUnreached = errors.New("linear: the key's owner cannot be reached; nothing was written, try again")
