package resp

import (
	"errors"
	"io"
	"os"
	"time"
)

// publish adds what was counted without locks to the statistics.
func (c *Conn) publish() {
	c.s.stats.commands.Add(c.count)
	c.count = 0
	c.s.h.Idle(c)
	if c.recent != nil {
		c.mu.Lock()
		c.cmd = c.recent.Name
		c.mu.Unlock()
	}
}

func (c *Conn) limits() limits {
	if !c.authed.Load() {
		return beforeAuth
	}
	return limits{c.s.opt.MaxArgs, c.s.opt.MaxBulk, c.s.opt.MaxInline, c.s.opt.MaxRequest}
}

// fill reads more bytes into the buffer, which grows with what arrives.
func (c *Conn) fill() error {
	if c.r > 0 {
		c.in = c.in[:copy(c.in, c.in[c.r:])]
		c.r = 0
	}
	switch {
	case len(c.in) == cap(c.in):
		c.in = append(make([]byte, 0, 2*cap(c.in)), c.in...)
	case len(c.in) == 0 && cap(c.in) > keepBuffer:
		c.in = make([]byte, 0, firstBuffer)
	}
	c.publish()
	c.park(idle)
	if !c.mayRead() {
		return io.EOF
	}
	n, err := c.nc.Read(c.in[len(c.in):cap(c.in)])
	c.resume()
	c.s.stats.in.Add(uint64(n))
	c.in = c.in[:len(c.in)+n]
	c.mu.Lock()
	c.reading = false
	c.mu.Unlock()
	if n > 0 {
		return nil
	}
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return io.EOF
	}
	return err
}

// mayRead sets the deadline of the next read. It reports false if the connection is drained and
// nothing more may be read.
func (c *Conn) mayRead() bool {
	var end time.Time
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.draining:
		return false
	case !c.authed.Load():
		end = c.since.Add(c.s.opt.AuthTimeout)
	case c.spare:
		end = c.since.Add(time.Second)
	case c.s.opt.IdleTimeout > 0:
		end = time.Now().Add(c.s.opt.IdleTimeout)
	}
	if c.timed || !end.IsZero() {
		_ = c.nc.SetReadDeadline(end)
	}
	c.timed, c.reading = !end.IsZero(), true
	return true
}
