package resp

import (
	"errors"
	"os"
	"time"
)

const maxLeft = 1 << 20 // bytes of pushes that wait for one client

// Push sends b, a complete message in the dialect of the client, without a request. When it returns
// nil, b is with the operating system, behind every reply that was complete. If the current command
// reads (see Reads), b is written behind its reply as well. A client that does not read it within
// PushTimeout is cut off.
func (c *Conn) Push(b []byte) error {
	o := &c.box
	o.mu.Lock()
	switch o.turn {
	case idle, waiting:
		err := c.pushNow(b)
		o.mu.Unlock()
		return err
	case pushing:
		if o.back == waiting {
			o.again(b)
		}
	}
	if o.closed {
		o.mu.Unlock()
		return ErrGone
	}
	if len(o.left)+len(b) > maxLeft {
		o.mu.Unlock()
		return c.cut()
	}
	o.left = append(o.left, b...)
	o.some.Store(true)
	if o.batch == nil {
		o.batch = make(chan struct{})
	}
	written := o.batch
	o.mu.Unlock()
	t := time.NewTimer(c.s.opt.PushTimeout)
	defer t.Stop()
	select {
	case <-written:
		return nil
	case <-t.C:
		return c.cut()
	}
}

// pushNow writes b, and what other goroutines add meanwhile, in place of the goroutine of the
// connection. The caller holds the lock; pushNow releases it while it writes.
func (c *Conn) pushNow(b []byte) error {
	o := &c.box
	if o.closed {
		return ErrGone
	}
	o.back, o.turn = o.turn, pushing
	if o.back == waiting {
		o.again(b)
	}
	var err error
	for batch := (chan struct{})(nil); err == nil && len(b) > 0; {
		o.mu.Unlock()
		_ = c.nc.SetWriteDeadline(time.Now().Add(c.s.opt.PushTimeout))
		if _, err = c.nc.Write(b); err != nil {
			err = c.cut()
		}
		if batch != nil {
			close(batch)
		}
		o.mu.Lock()
		b, batch, o.left, o.batch = o.left, o.batch, nil, nil
	}
	o.some.Store(len(o.late) > 0)
	o.turn = o.back
	o.turns.Broadcast()
	return err
}

// again queues a push to be repeated behind the reply of the current read. The value in that reply
// may be older than the change that the push announces.
func (o *outbox) again(b []byte) {
	if o.reads.Load() {
		o.late = append(o.late, b...)
		o.some.Store(true)
	}
}

// PushAfter is Push for changes that the client itself made. During a command, b follows the reply,
// and PushAfter does not wait for it.
func (c *Conn) PushAfter(b []byte) error {
	o := &c.box
	o.mu.Lock()
	if o.turn == idle || o.turn == pushing && o.back == idle {
		o.mu.Unlock()
		return c.Push(b)
	}
	defer o.mu.Unlock()
	if o.closed || len(o.late)+len(b) > maxLeft {
		return c.cut()
	}
	o.late = append(o.late, b...)
	o.some.Store(true)
	return nil
}

// Reads marks the current command as one that reads what the client may keep. The handler must call
// it before it looks up the value. A push that comes before the reply is then repeated behind the
// reply.
func (c *Conn) Reads() {
	c.box.reads.Store(true)
	c.reads = true
}

// cut ends the connection of a client that does not read its pushes.
func (c *Conn) cut() error {
	if !c.closing.Load() {
		c.s.stats.dropped.Add(1)
		c.tellCut("it did not take an invalidation in time")
	}
	c.kill()
	return ErrGone
}

// answered ends a command: pending pushes follow its reply.
func (c *Conn) answered() {
	o := &c.box
	o.mu.Lock()
	for o.turn == pushing {
		o.turns.Wait()
	}
	o.turn = busy
	o.reads.Store(false)
	c.reads, c.parked = false, false
	c.w.buf = append(c.w.buf, o.late...)
	o.late = nil
	left := len(o.left) > 0
	o.some.Store(left)
	o.mu.Unlock()
	if left {
		c.flush()
	}
}

// flush writes the pending replies and pushes.
func (c *Conn) flush() { c.park(busy) }

// park does what flush does and, unless next is busy, lets other goroutines write from then on. The
// goroutine of the connection must call answered or resume before it writes again.
func (c *Conn) park(next turn) {
	o := &c.box
	for {
		o.mu.Lock()
		for o.turn == pushing {
			o.turns.Wait()
		}
		o.turn = busy
		left, batch := o.left, o.batch
		if len(left) > 0 && next == waiting {
			o.again(left)
		}
		o.left, o.batch = nil, nil
		if next == idle {
			left, o.late = append(left, o.late...), nil
		}
		o.some.Store(len(o.late) > 0)
		if len(c.w.buf) == 0 && len(left) == 0 {
			o.turn = next
			c.parked = next == waiting
			o.mu.Unlock()
			return
		}
		o.mu.Unlock()
		c.w.buf = append(c.w.buf, left...)
		c.write()
		if batch != nil {
			close(batch)
		}
	}
}

// resume takes the right to write back from goroutines that push.
func (c *Conn) resume() {
	o := &c.box
	o.mu.Lock()
	for o.turn == pushing {
		o.turns.Wait()
	}
	o.turn = busy
	o.mu.Unlock()
}

// endPushes releases all goroutines that wait for a connection that has ended.
func (c *Conn) endPushes() {
	o := &c.box
	o.mu.Lock()
	defer o.mu.Unlock()
	for o.turn == pushing {
		o.turns.Wait()
	}
	o.turn, o.closed = idle, true
	if o.batch != nil {
		close(o.batch)
	}
	o.left, o.late, o.batch = nil, nil, nil
}

// write writes the pending replies. No other goroutine writes meanwhile.
func (c *Conn) write() {
	if c.w.err == nil {
		_ = c.nc.SetWriteDeadline(time.Now().Add(c.s.opt.WriteTimeout))
		c.s.stats.out.Add(uint64(len(c.w.buf)))
		if _, c.w.err = c.nc.Write(c.w.buf); c.w.err != nil {
			if errors.Is(c.w.err, os.ErrDeadlineExceeded) {
				c.tellCut("it does not read its answers")
			}
			c.closing.Store(true) // a client that does not read is not served
			c.cancel()
		}
	}
	if cap(c.w.buf) > keepBuffer {
		c.w.buf = nil
	}
	c.w.buf = c.w.buf[:0]
}
