package resp

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"runtime/debug"
	"time"
)

func newConn(s *Server, nc net.Conn, id int64) *Conn {
	now := time.Now()
	c := &Conn{s: s, nc: nc, id: id, created: now, since: now}
	c.ctx, c.cancel = context.WithCancel(context.Background())
	c.proto.Store(2)
	c.w = Writer{proto: 2, wait: func() { c.park(waiting) }}
	c.box.turns.L = &c.box.mu
	c.authed.Store(s.opt.Password == "")
	return c
}

// Hijack passes the connection to take when the reply of the current command is sent. The reader r
// begins with the bytes that were read already. The connection is closed when take returns.
func (c *Conn) Hijack(take func(nc net.Conn, r *bufio.Reader)) { c.hijack = take }

// drain ends the connection once every command that has been read is answered.
func (c *Conn) drain() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.draining = true
	if c.reading {
		_ = c.nc.SetReadDeadline(time.Unix(1, 0))
	}
}

// serve answers requests until the connection ends or is hijacked.
func (c *Conn) serve() (take func()) {
	defer func() {
		if take == nil {
			c.cancel()
			c.nc.Close()
		}
	}()
	if tc, ok := c.nc.(*tls.Conn); ok { // a client that does not finish the handshake is not waited for
		ctx, cancel := context.WithTimeout(c.ctx, c.s.opt.AuthTimeout)
		err := tc.HandshakeContext(ctx)
		if cancel(); err != nil {
			return nil
		}
	}
	c.in = make([]byte, 0, firstBuffer)
	for c.answer() {
	}
	c.flush()
	c.publish()
	c.endPushes()
	if c.hijack == nil || c.closing.Load() {
		return nil
	}
	_ = c.nc.SetDeadline(time.Time{})
	r := bufio.NewReaderSize(io.MultiReader(bytes.NewReader(bytes.Clone(c.in[c.r:])), c.nc), flushAt)
	return func() {
		defer c.cancel()
		defer c.nc.Close()
		c.hijack(c.nc, r)
	}
}

// answer answers requests until the connection ends or is hijacked. It reports whether to go on,
// which is so after a command that panicked.
func (c *Conn) answer() (again bool) {
	mark := 0
	defer func() {
		if r := recover(); r != nil {
			c.panicked(r, mark)
			again = true
		}
	}()
	for !c.closing.Load() && c.hijack == nil {
		c.request = 0
		n, args, err := c.parse()
		switch {
		case err == errOversize:
			err = c.oversize()
		case err == nil && n == 0:
			err = c.fill()
		case err == nil:
			c.args, c.request = args, n
			if len(args) > 0 {
				mark = len(c.w.buf)
				mode := c.silent
				switch {
				case !c.more(args):
					c.command(args)
				case len(args) == 2:
					c.s.h.Gets(c, c.recent, c.alike, &c.w)
				default:
					c.s.h.Sets(c, c.recent, c.alike, &c.w)
				}
				if mode != replyOn || c.silent != replyOn {
					c.hush(mode, mark)
				}
				if c.parked || c.reads || c.box.some.Load() {
					c.answered()
				}
				if c.caching && c.multi == nil && c.recent.Name != "client" {
					c.caching = false
				}
			}
			c.r += c.request
			if cap(c.args) > keepArgs {
				c.args = nil
			}
		}
		if err != nil {
			c.end(err)
			return false
		}
		if len(c.w.buf) >= flushAt {
			c.flush()
		}
	}
	return false
}

// more reports whether the request is a GET, or a SET without options, that further ones of its
// kind follow in the buffer. Then alike holds the arguments of all of them, and request is their
// length.
func (c *Conn) more(args [][]byte) bool {
	if c.recent == nil || c.recent.Denied != "" || !bytes.Equal(c.raw, args[0]) || c.multi != nil || !c.authed.Load() || c.silent != replyOn {
		return false
	}
	if !(c.recent.Name == "get" && len(args) == 2 || c.recent.Name == "set" && len(args) == 3) {
		return false
	}
	lim, some := c.limits(), 1
	c.alike = append(c.alike[:0], args[1:]...)
	for some < maxTogether && c.request < maxAlike {
		n, next, err := parse(c.in[c.r+c.request:], c.next, lim)
		if c.next = next; n == 0 || err != nil || len(next) != len(args) || !bytes.Equal(c.raw, next[0]) {
			break
		}
		c.alike = append(c.alike, next[1:]...)
		c.request += n
		some++
	}
	if some == 1 {
		return false
	}
	c.count += uint64(some)
	return true
}

// hush removes a reply that CLIENT REPLY suppresses. mode is the mode when the command began.
func (c *Conn) hush(mode replyMode, mark int) {
	skipped := mode == replySkip
	switch {
	case c.silent == replyAgain:
		c.silent = replySkip
	case skipped && c.silent == replySkip:
		c.silent = replyOn
	}
	if skipped || c.silent == replyOff {
		c.w.buf = c.w.buf[:min(mark, len(c.w.buf))]
	}
}

// panicked answers a command that panicked. If the panic was outside a command, the start of the
// next request is unknown, and the connection ends.
func (c *Conn) panicked(cause any, mark int) {
	c.s.stats.panics.Add(1)
	name := ""
	if len(c.args) > 0 {
		name = string(c.args[0][:min(len(c.args[0]), 32)])
	}
	c.s.opt.Logger.Error("a command panicked", "command", name, "cause", cause, "stack", string(debug.Stack()))
	if c.request == 0 {
		c.closing.Store(true)
	}
	c.w.buf = c.w.buf[:min(mark, len(c.w.buf))]
	c.w.Error("ERR internal error; the outcome of the command is unknown, please report it")
	c.hush(c.silent, mark)
	c.answered()
	c.r += c.request
}

// end sends the protocol error of a client and ends the connection.
func (c *Conn) end(err error) {
	var p *protocolError
	if errors.As(err, &p) {
		c.s.stats.protocol.Add(1)
		c.tellCut("it does not speak the Redis protocol")
		c.w.Error("ERR " + err.Error())
	}
	c.flush()
}

// command answers one command.
func (c *Conn) command(args [][]byte) {
	c.count++
	cmd := c.recent
	if cmd == nil || !bytes.Equal(c.raw, args[0]) {
		if cmd = c.s.lookup(args[0]); cmd != nil {
			c.recent, c.raw = cmd, append(c.raw[:0], args[0]...)
		}
	}
	switch {
	case cmd == nil:
		c.spoil()
		c.w.Error(unknownCommand(args))
	case cmd.Arity > 0 && len(args) != cmd.Arity || len(args) < -cmd.Arity:
		c.spoil()
		c.w.Error(wrongArity(cmd.Name))
	case !c.authed.Load() && !cmd.open:
		c.w.Error("NOAUTH Authentication required.")
	case cmd.Denied != "":
		c.spoil()
		c.tellDenied("default", cmd.Name)
		c.w.Error(cmd.Denied)
	case c.spare && !cmd.Spare && cmd.Name != "auth":
		c.s.stats.rejected.Add(1)
		c.w.Error(tooMany)
		c.closing.Store(true)
	case c.subscribed.Load() && c.Proto() == 2 && !cmd.subscribed:
		c.w.Error(onlySubscribed(cmd, args))
	case c.multi != nil && cmd.Name == "watch":
		c.w.Error("ERR WATCH inside MULTI is not allowed")
	case c.multi != nil && !cmd.immediate:
		c.queue(cmd, args)
	case cmd.run != nil:
		cmd.run(c, args, &c.w)
	default:
		c.s.h.Command(c, cmd, args, &c.w)
	}
}

// spoil makes EXEC refuse the transaction, because one of its commands was refused.
func (c *Conn) spoil() {
	if c.multi != nil {
		c.multi.bad = true
	}
}

// queue adds a command to the transaction.
func (c *Conn) queue(cmd *Command, args [][]byte) {
	t := c.multi
	q := Queued{Cmd: cmd}
	for _, a := range args {
		t.bytes += len(a) + argBytes
		q.Args = append(q.Args, bytes.Clone(a))
	}
	if len(t.cmds) >= maxQueued || t.bytes > maxQueue {
		t.bad, t.cmds = true, nil
		c.w.Error("ERR transaction is too large; it will be discarded")
		return
	}
	t.cmds = append(t.cmds, q)
	c.w.SimpleString("QUEUED")
}

const tooMany = "ERR max number of clients reached"

// oversize answers a request with an argument over the limit, without storing the argument.
func (c *Conn) oversize() error {
	if !c.authed.Load() { // before authentication, no long argument is read
		return malformed("unauthenticated bulk length")
	}
	if err := c.skip(); err != nil {
		return err
	}
	c.count++
	c.spoil() // a transaction must not run without one of its commands
	mode, mark := c.silent, len(c.w.buf)
	c.w.Error(errOversize.Error())
	c.hush(mode, mark)
	return nil
}
