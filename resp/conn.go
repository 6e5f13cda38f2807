package resp

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"os"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"
)

// Conn is one client's connection. The methods are safe for concurrent use;
// State belongs to the handler.
type Conn struct {
	// State is whatever the handler keeps with the connection. Only calls for
	// this connection may touch it.
	State any

	s       *Server
	nc      net.Conn
	id      int64
	created time.Time
	ctx     context.Context
	cancel  context.CancelFunc
	w       Writer
	in      []byte // read and not yet parsed: in[r:]
	r       int
	args    [][]byte
	held    [][]byte // the arguments read of a request that is long and not all there
	heldLen int      // their length as they were sent
	left    int      // how many more it has
	authed  atomic.Bool
	db      atomic.Int32 // what SELECT has chosen
	proto   atomic.Int32
	closing atomic.Bool // after the reply at hand
	hijack  func(net.Conn, *bufio.Reader)
	silent  replyMode
	multi   *transaction
	request int      // the length of the request being answered
	count   uint64   // commands since they were last counted
	recent  *Command // the last one, which is likely the next one
	raw     []byte   // its name as it was sent
	alike   [][]byte // arguments of GETs, or SETs, that arrived together
	next    [][]byte // the request after them
	tracks  bool     // CLIENT TRACKING is on
	caching bool     // CLIENT CACHING was said, and the next command is what it meant
	reads   bool     // box.reads is set
	parked  bool     // box lets others write though a command is at hand
	box     outbox

	mu             sync.Mutex
	name, lib, ver string
	cmd            string
	reading        bool // a drain may cut it
	timed          bool // a read deadline is set
	spare          bool // beyond MaxConns
	draining       bool
	since          time.Time // when the client was first asked to authenticate
	fails          int
	tracking       Tracking

	subscribed atomic.Bool // to pushes, in RESP2
	broken     atomic.Bool // whoever pushes were to go to has gone
}

// DB is the database that SELECT has chosen, 0 at first.
func (c *Conn) DB() int { return int(c.db.Load()) }

type replyMode uint8

const (
	replyOn replyMode = iota
	replyOff
	replySkip  // the next one
	replyAgain // this one, and the next one
)

// transaction is what MULTI has queued.
type transaction struct {
	cmds  []Queued
	bytes int
	bad   bool
}

const (
	firstBuffer = 16 << 10
	flushAt     = 64 << 10
	keepBuffer  = 1 << 20 // a buffer that grew beyond it is given back
	keepArgs    = 4096    // and so are arguments
	maxTogether = 64
	maxAlike    = 1 << 20 // bytes of SETs taken together
	maxQueued   = 100_000
	maxQueue    = 64 << 20
	argBytes    = 32 // what an argument costs beyond its bytes
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

// ID is unique to the connection within the server.
func (c *Conn) ID() int64 { return c.id }

// Proto is the dialect the client chose: 2 or 3.
func (c *Conn) Proto() int { return int(c.proto.Load()) }

// RemoteAddr is the client's address.
func (c *Conn) RemoteAddr() string { return c.nc.RemoteAddr().String() }

// LocalAddr is the address the client connected to.
func (c *Conn) LocalAddr() string { return c.nc.LocalAddr().String() }

// Authenticated reports whether the client gave the password, if one is asked.
func (c *Conn) Authenticated() bool { return c.authed.Load() }

// Context ends with the connection.
func (c *Conn) Context() context.Context { return c.ctx }

// Name is what CLIENT SETNAME set.
func (c *Conn) Name() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.name
}

// Hijack lets take have the connection once the reply of the command at hand is
// sent; the reader holds what was read already. The connection is closed when
// take returns.
func (c *Conn) Hijack(take func(nc net.Conn, r *bufio.Reader)) { c.hijack = take }

func (c *Conn) kill() {
	c.closing.Store(true)
	c.nc.Close() // first: a command that ends because it is cancelled is not answered
	c.cancel()
}

// drain ends the connection once every command that has been read is answered.
func (c *Conn) drain() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.draining = true
	if c.reading {
		_ = c.nc.SetReadDeadline(time.Unix(1, 0))
	}
}

// serve answers until the connection ends, or is to be taken over.
func (c *Conn) serve() (take func()) {
	defer func() {
		if take == nil {
			c.cancel()
			c.nc.Close()
		}
	}()
	if tc, ok := c.nc.(*tls.Conn); ok { // whoever does not finish the handshake is not waited for
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

// answer answers request after request, until the connection ends or is to be
// taken over. It reports whether to go on: a command panicked, and that is said.
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

// more looks whether the request is a GET, or a SET without options, that others
// follow, as they do in a pipeline: then alike are the arguments of them all, and
// request is as long as they are.
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

// hush takes back what CLIENT REPLY does not want to hear; mode is what it was
// when the command began.
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

// panicked answers for a command that panicked. If it was not a command, nobody
// knows where the next request begins, and the connection ends.
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

// publish makes known what is counted without locks while commands run.
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

// end tells a client whose framing is lost why the connection ends.
func (c *Conn) end(err error) {
	var p *protocolError
	if errors.As(err, &p) {
		c.s.stats.protocol.Add(1)
		c.tellCut("it does not speak the Redis protocol")
		c.w.Error("ERR " + err.Error())
	}
	c.flush()
}

func (c *Conn) limits() limits {
	if !c.authed.Load() {
		return beforeAuth
	}
	return limits{c.s.opt.MaxArgs, c.s.opt.MaxBulk, c.s.opt.MaxInline, c.s.opt.MaxRequest}
}

// fill reads more, into a buffer that grows with what arrives.
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

// mayRead sets how long a read may take. False means that there is to be none:
// the connection is drained.
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

// write writes what is answered. Nobody else writes meanwhile.
func (c *Conn) write() {
	if c.w.err == nil {
		_ = c.nc.SetWriteDeadline(time.Now().Add(c.s.opt.WriteTimeout))
		c.s.stats.out.Add(uint64(len(c.w.buf)))
		if _, c.w.err = c.nc.Write(c.w.buf); c.w.err != nil {
			if errors.Is(c.w.err, os.ErrDeadlineExceeded) {
				c.tellCut("it does not read its answers")
			}
			c.closing.Store(true) // who does not read is not served
			c.cancel()
		}
	}
	if cap(c.w.buf) > keepBuffer {
		c.w.buf = nil
	}
	c.w.buf = c.w.buf[:0]
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

// lookup finds a command by its name in any case, without allocating.
func (s *Server) lookup(name []byte) *Command {
	var low [32]byte
	if len(name) > len(low) {
		return nil
	}
	for i, b := range name {
		if b >= 'A' && b <= 'Z' {
			b += 'a' - 'A'
		}
		low[i] = b
	}
	return s.table[string(low[:len(name)])]
}

func wrongArity(name string) string {
	return "ERR wrong number of arguments for '" + name + "' command"
}

// spoil makes EXEC refuse a transaction one of whose commands was refused.
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
