// Package resp speaks the Redis protocol, RESP2, RESP3 and inline, so that any
// Redis client can talk to what stands behind a [Handler]. A connection's
// commands are answered in order; what one client sends, however malformed or
// slow, neither ends another's connection nor takes more memory than the limits.
//
// The parser is our own: redcon is to be had at v1.6.2 only and knows little of
// RESP3, and this is the hot path: reading a command and writing its reply
// allocate nothing once a connection's buffers have grown.
package resp

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"log/slog"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// Handler does what clients ask. Its methods are called by many connections at
// once, for one connection one at a time.
type Handler interface {
	// Command runs one command whose name and arity were checked. args[0] is the
	// name as it was sent; args are valid until Command returns.
	Command(c *Conn, cmd *Command, args [][]byte, w *Writer)
	// Gets runs several GETs that arrived together, in order; keys are valid until
	// it returns.
	Gets(c *Conn, cmd *Command, keys [][]byte, w *Writer)
	// Sets runs several SETs without options that arrived together, in order; keys
	// and values alternate in pairs, and are valid until it returns.
	Sets(c *Conn, cmd *Command, pairs [][]byte, w *Writer)
	// Exec runs the commands of a transaction together and writes the reply of
	// EXEC, all of it.
	Exec(c *Conn, cmds []Queued, w *Writer)
	// Idle tells that everything read so far is answered: what is counted with the
	// connection can be published. It must be quick.
	Idle(c *Conn)
	// Closed tells that a connection has ended.
	Closed(c *Conn)
}

// Resetter is a Handler that hears of RESET: what it keeps with the connection is over.
type Resetter interface{ Reset(c *Conn) }

// Queued is a command of a transaction. Its Args are the receiver's.
type Queued struct {
	Cmd  *Command
	Args [][]byte
}

// Options configure a Server. The zero value works.
type Options struct {
	// Commands are the handler's; those about the connection are built in.
	Commands []Command
	// Password that clients must give. Default: none is asked.
	Password string
	// TLS, if set, is spoken on every connection.
	TLS *tls.Config
	// MaxConns bounds the connections. Default 10 000.
	MaxConns int
	// Databases are the numbers beside 0 that SELECT takes; Conn.DB says which one is
	// selected. Default: none.
	Databases []int
	// Spare connections are taken beyond MaxConns, for commands that are marked Spare:
	// what clients take must not keep other nodes out. Any other command is answered
	// with an error there, and ends the connection. Default 0.
	Spare int
	// MaxBulk bounds one argument, in bytes. Default 16 MiB.
	MaxBulk int
	// MaxRequest bounds one command with all its arguments, in bytes. Default
	// 64 MiB, or twice MaxBulk if that is more.
	MaxRequest int
	// MaxArgs bounds the arguments of a command. Default 1 048 576.
	MaxArgs int
	// MaxInline bounds a command typed as a line. Default 64 KiB.
	MaxInline int
	// WriteTimeout ends a connection that does not read. Default 10 s.
	WriteTimeout time.Duration
	// PushTimeout ends the connection of a client that does not take a push.
	// Default 1 s.
	PushTimeout time.Duration
	// IdleTimeout ends a connection that sends nothing. Default 0: never.
	IdleTimeout time.Duration
	// AuthTimeout ends a connection that has not authenticated. Default 10 s.
	AuthTimeout time.Duration
	// Version is what HELLO and INFO announce. Default 7.4.0.
	Version string
	// Logger hears of panics. Default: discard.
	Logger *slog.Logger
}

func (o *Options) defaults() {
	o.MaxConns = cmp.Or(o.MaxConns, 10_000)
	o.MaxBulk = cmp.Or(o.MaxBulk, 16<<20)
	o.MaxRequest = cmp.Or(o.MaxRequest, max(64<<20, 2*o.MaxBulk))
	o.MaxArgs = cmp.Or(o.MaxArgs, 1<<20)
	o.MaxInline = cmp.Or(o.MaxInline, 64<<10)
	o.WriteTimeout = cmp.Or(o.WriteTimeout, 10*time.Second)
	o.PushTimeout = cmp.Or(o.PushTimeout, time.Second)
	o.AuthTimeout = cmp.Or(o.AuthTimeout, 10*time.Second)
	o.Version = cmp.Or(o.Version, "7.4.0")
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
}

// Server serves connections. All methods are safe for concurrent use.
type Server struct {
	opt     Options
	h       Handler
	tracker Tracker // the same, if it is one
	table   map[string]*Command
	names   []string
	stats   stats

	mu       sync.Mutex
	conns    map[int64]*Conn
	next     int64
	listener map[net.Listener]bool
	closing  atomic.Bool
	work     sync.WaitGroup
	taken    map[*Conn]bool // hijacked, and not yet given back
	hijacked sync.WaitGroup
}

type stats struct{ total, rejected, commands, protocol, panics, dropped, denied, in, out atomic.Uint64 }

// Stats are counts since the start, but for Conns. Dropped are the clients that
// did not take a push in time, Denied the wrong passwords and the denied commands; In and Out are bytes.
type Stats struct {
	Conns                                                int
	Total, Rejected, Commands, Protocol, Panics, Dropped uint64
	Denied, In, Out                                      uint64
}

// ErrClosed is what Serve returns after Shutdown or Close.
var ErrClosed = errors.New("resp: server closed")

// NewServer returns a server; call Serve.
func NewServer(h Handler, o Options) *Server {
	o.defaults()
	s := &Server{opt: o, h: h, table: map[string]*Command{}, conns: map[int64]*Conn{}, taken: map[*Conn]bool{}, listener: map[net.Listener]bool{}}
	s.tracker, _ = h.(Tracker)
	for _, list := range [][]Command{connectionCommands, pushCommands, o.Commands} {
		for i := range list {
			s.table[list[i].Name] = &list[i]
		}
	}
	for name := range s.table {
		s.names = append(s.names, name)
	}
	slices.Sort(s.names)
	return s
}

// Serve accepts connections until Shutdown or Close, then returns ErrClosed.
func (s *Server) Serve(l net.Listener) error {
	s.mu.Lock()
	s.listener[l] = true
	closing := s.closing.Load()
	s.mu.Unlock()
	defer l.Close()
	if closing {
		return ErrClosed
	}
	wait := time.Millisecond
	for {
		nc, err := l.Accept()
		if s.closing.Load() {
			if err == nil {
				nc.Close()
			}
			return ErrClosed
		}
		var ne net.Error
		if errors.As(err, &ne) && !errors.Is(err, net.ErrClosed) { // out of descriptors, for instance
			s.opt.Logger.Warn("cannot accept a connection for now", "err", err)
			time.Sleep(wait)
			wait = min(2*wait, time.Second)
			continue
		}
		if err != nil {
			return err
		}
		wait = time.Millisecond
		s.accept(nc)
	}
}

func (s *Server) accept(nc net.Conn) {
	s.stats.total.Add(1)
	if s.opt.TLS != nil {
		nc = tls.Server(nc, s.opt.TLS)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.conns) >= s.opt.MaxConns+s.opt.Spare || s.closing.Load() {
		s.stats.rejected.Add(1)
		if !s.closing.Load() {
			s.opt.Logger.Warn("a client was refused", "event", "client_cut", "why", "--max-conns clients are connected", "client", nc.RemoteAddr().String())
		}
		s.work.Go(func() {
			_ = nc.SetDeadline(time.Now().Add(time.Second))
			_, _ = nc.Write([]byte("-" + tooMany + "\r\n"))
			nc.Close()
		})
		return
	}
	s.next++
	c := newConn(s, nc, s.next)
	c.spare = len(s.conns) >= s.opt.MaxConns
	s.conns[c.id] = c
	s.work.Go(func() {
		take := c.serve()
		s.mu.Lock()
		delete(s.conns, c.id)
		if take != nil {
			s.taken[c] = true
			s.hijacked.Go(func() {
				take()
				s.mu.Lock()
				delete(s.taken, c)
				s.mu.Unlock()
			})
		}
		s.mu.Unlock()
		s.h.Closed(c)
	})
}

const tooMany = "ERR max number of clients reached"

// Conns are the connections open now, in the order they came.
func (s *Server) Conns() []*Conn {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := make([]*Conn, 0, len(s.conns))
	for _, c := range s.conns {
		out = append(out, c)
	}
	slices.SortFunc(out, func(a, b *Conn) int { return cmp.Compare(a.id, b.id) })
	return out
}

// Conn is the connection of an ID, nil if it has ended.
func (s *Server) Conn(id int64) *Conn {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.conns[id]
}

// Stats counts.
func (s *Server) Stats() Stats {
	s.mu.Lock()
	n := len(s.conns)
	s.mu.Unlock()
	return Stats{n, s.stats.total.Load(), s.stats.rejected.Load(), s.stats.commands.Load(), s.stats.protocol.Load(), s.stats.panics.Load(), s.stats.dropped.Load(),
		s.stats.denied.Load(), s.stats.in.Load(), s.stats.out.Load()}
}

// Shutdown stops accepting, lets every command under way finish and its reply be
// sent, and closes the connections, but not those that were hijacked. If ctx ends
// first, they are cut.
func (s *Server) Shutdown(ctx context.Context) error {
	s.stop()
	for _, c := range s.Conns() {
		c.drain()
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		s.work.Wait()
	}()
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		for _, c := range s.Conns() {
			c.kill()
		}
		<-done
		return context.Cause(ctx)
	}
}

// Close cuts every connection, hijacked ones too, and waits until nothing runs any more.
func (s *Server) Close() error {
	s.stop()
	for _, c := range s.Conns() {
		c.kill()
	}
	s.work.Wait()
	s.mu.Lock()
	for c := range s.taken {
		c.nc.Close()
	}
	s.mu.Unlock()
	s.hijacked.Wait()
	return nil
}

func (s *Server) stop() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closing.Store(true)
	for l := range s.listener {
		l.Close()
	}
}
