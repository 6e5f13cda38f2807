package resp

import (
	"bufio"
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"log/slog"
	"net"
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

// Command describes a command, as COMMAND tells clients.
type Command struct {
	Name                    string // in lower case
	Arity                   int    // with the name; -n is at least n
	Flags                   []string
	FirstKey, LastKey, Step int // positions of keys; LastKey may count from the end
	Group                   string
	Summary                 string
	Since                   string
	// Denied says why no client may run the command, as an error text; empty if it may.
	Denied string
	// Spare lets the command run on the connections beyond MaxConns.
	Spare bool

	open       bool // before authentication
	immediate  bool // not queued by MULTI
	subscribed bool // possible while subscribed in RESP2
	counted    bool // the number of keys stands before them
	run        func(*Conn, [][]byte, *Writer)
}

// Tracker is a Handler that tells clients when what they have read changes.
// Without it CLIENT TRACKING is refused.
type Tracker interface {
	// Track is told that a client has turned tracking on, off, or to something
	// else. What it returns is an error for the client, and nothing is changed.
	Track(c *Conn, t Tracking) string
}

// Tracking is what a client has asked for with CLIENT TRACKING.
type Tracking struct {
	On                           bool
	Bcast, OptIn, OptOut, NoLoop bool
	Redirect                     int64 // the connection that pushes go to; 0 is its own
	Prefixes                     []string
}

// redirect is as CLIENT GETREDIR has it.
func (t *Tracking) redirect() int64 {
	if !t.On {
		return -1
	}
	return t.Redirect
}

// outbox is where others leave what a client is to be told without having asked.
// A push is never in the middle of a reply: while the connection's goroutine
// waits, with all that is answered written, whoever pushes writes; while it is
// busy, it writes what has been left as soon as a command is answered.
type outbox struct {
	mu     sync.Mutex
	turns  sync.Cond // when somebody else has written
	turn   turn
	back   turn          // what turn was before pushing
	left   []byte        // pushes to be written by the connection's goroutine
	batch  chan struct{} // closed when left is written, or never will be
	late   []byte        // pushes that follow the reply of the command at hand
	closed bool

	some  atomic.Bool // left or late is not empty
	reads atomic.Bool // the command at hand reads what the client may keep
}

// turn says who may write to the connection.
type turn uint8

const (
	busy    turn = iota // its goroutine, which runs a command
	idle                // whoever pushes: its goroutine waits for the client
	waiting             // whoever pushes: its goroutine waits within a command
	pushing             // somebody who pushes, and does
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

func (c *Conn) kill() {
	c.closing.Store(true)
	c.nc.Close() // first: a command that ends because it is cancelled is not answered
	c.cancel()
}

// ErrGone means that a client has gone, or had to go because it did not take a
// push in time: whatever it keeps, it knows that it was cut off.
var ErrGone = errors.New("resp: the client has gone")

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
