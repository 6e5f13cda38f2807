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

// Handler runs the commands of clients. Connections call its methods concurrently; one connection
// makes one call at a time.
type Handler interface {
	// Command runs one command. Its name and arity were checked. args[0] is the name as the client
	// sent it; args are valid until Command returns.
	Command(c *Conn, cmd *Command, args [][]byte, w *Writer)
	// Gets runs several GETs that arrived together, in order. keys are valid until Gets returns.
	Gets(c *Conn, cmd *Command, keys [][]byte, w *Writer)
	// Sets runs several SETs without options that arrived together, in order. pairs holds keys and
	// values in turn, and is valid until Sets returns.
	Sets(c *Conn, cmd *Command, pairs [][]byte, w *Writer)
	// Exec runs the commands of a transaction together and writes the whole reply of EXEC.
	Exec(c *Conn, cmds []Queued, w *Writer)
	// Idle is called when all requests read so far are answered, so that the handler can publish
	// what it counts for the connection. It must be quick.
	Idle(c *Conn)
	// Closed is called when a connection has ended.
	Closed(c *Conn)
}

// Resetter is a Handler that drops its state of a connection when the client sends RESET.
type Resetter interface{ Reset(c *Conn) }

// Queued is a command of a transaction. Exec may keep Args.
type Queued struct {
	Cmd  *Command
	Args [][]byte
}

// Options configure a Server. The zero value works.
type Options struct {
	// Commands are the commands of the handler. The commands about the connection are built in.
	Commands []Command
	// Password that clients must give. Default: none is asked.
	Password string
	// TLS, if set, is used on every connection.
	TLS *tls.Config
	// MaxConns bounds the connections. Default 10 000.
	MaxConns int
	// Databases are the numbers besides 0 that SELECT accepts; Conn.DB returns the selected one.
	// Default: none.
	Databases []int
	// Spare is how many connections are accepted beyond MaxConns, so that clients cannot keep other
	// nodes out. Only commands that are marked Spare run on them; any other command gets an error
	// and ends the connection. Default 0.
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
	// WriteTimeout ends the connection of a client that does not read its replies. Default 10 s.
	WriteTimeout time.Duration
	// PushTimeout ends the connection of a client that does not read a push. Default 1 s.
	PushTimeout time.Duration
	// IdleTimeout ends a connection over which the client sends nothing. Default 0: never.
	IdleTimeout time.Duration
	// AuthTimeout ends a connection that has not authenticated. Default 10 s.
	AuthTimeout time.Duration
	// Version is what HELLO and INFO announce. Default 7.4.0.
	Version string
	// Logger gets panics and clients that were cut off or denied. Default: discard.
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
	tracker Tracker // h, if it implements Tracker
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

// Stats are counts since the start; Conns is the number of open connections. Dropped counts clients
// that did not read a push in time, Denied counts wrong passwords and denied commands. In and Out
// are bytes.
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
	Arity                   int    // arguments including the name; -n means at least n
	Flags                   []string
	FirstKey, LastKey, Step int // positions of keys; LastKey may count from the end
	Group                   string
	Summary                 string
	Since                   string
	// Denied, if not empty, is the error text with which the command is refused to every client.
	Denied string
	// Spare lets the command run on the connections beyond MaxConns.
	Spare bool

	open       bool // before authentication
	immediate  bool // not queued by MULTI
	subscribed bool // possible while subscribed in RESP2
	counted    bool // an argument before the keys says how many there are
	run        func(*Conn, [][]byte, *Writer)
}

// Tracker is a Handler that pushes invalidations to clients. Without one, CLIENT TRACKING is
// refused.
type Tracker interface {
	// Track is called when a client turns tracking on or off or changes its options. If Track
	// returns an error text, the client gets that error and nothing changes.
	Track(c *Conn, t Tracking) string
}

// Tracking holds the options of CLIENT TRACKING that a client has set.
type Tracking struct {
	On                           bool
	Bcast, OptIn, OptOut, NoLoop bool
	Redirect                     int64 // ID of the connection that gets the pushes; 0 means the same connection
	Prefixes                     []string
}

// redirect returns what CLIENT GETREDIR answers.
func (t *Tracking) redirect() int64 {
	if !t.On {
		return -1
	}
	return t.Redirect
}

// outbox holds pushes that other goroutines send to the client. A push never lies inside a reply.
// While the goroutine of the connection waits and has written all replies, the goroutine that
// pushes writes itself. While the goroutine of the connection is busy, it writes pending pushes
// after the command that it runs.
type outbox struct {
	mu     sync.Mutex
	turns  sync.Cond // signals the end of pushing
	turn   turn
	back   turn          // what turn was before pushing
	left   []byte        // pushes to be written by the connection's goroutine
	batch  chan struct{} // closed when left is written, or never will be
	late   []byte        // pushes that follow the reply of the current command
	closed bool

	some  atomic.Bool // left or late is not empty
	reads atomic.Bool // the current command reads what the client may keep
}

// turn says which goroutine may write to the connection.
type turn uint8

const (
	busy    turn = iota // the goroutine of the connection, which runs a command
	idle                // any goroutine that pushes: that of the connection waits for the client
	waiting             // any goroutine that pushes: that of the connection waits within a command
	pushing             // one goroutine that pushes, which is writing
)

// Conn is the connection of one client. Its methods are safe for concurrent use. State belongs to
// the handler.
type Conn struct {
	// State is what the handler keeps with the connection. Only calls for this connection may touch
	// it.
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
	held    [][]byte // the arguments read so far of a long request
	heldLen int      // the length of held in the encoding of the request
	left    int      // how many arguments of that request are missing
	authed  atomic.Bool
	db      atomic.Int32 // the selected database
	proto   atomic.Int32
	closing atomic.Bool // close after the current reply
	hijack  func(net.Conn, *bufio.Reader)
	silent  replyMode
	multi   *transaction
	request int      // the length of the request being answered
	count   uint64   // commands since they were last counted
	recent  *Command // the last command; the next one is likely the same
	raw     []byte   // the name of recent as the client sent it
	alike   [][]byte // arguments of GETs, or SETs, that arrived together
	next    [][]byte // the request after alike
	tracks  bool     // CLIENT TRACKING is on
	caching bool     // CLIENT CACHING was sent and applies to the next command
	reads   bool     // box.reads is set
	parked  bool     // box lets other goroutines write during a command
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
	broken     atomic.Bool // the connection to which pushes were redirected has ended
}

// DB returns the selected database; 0 at first.
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

// Proto returns the version of RESP that the client chose: 2 or 3.
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
	c.nc.Close() // before cancel: a command that ends because it is cancelled must not be answered
	c.cancel()
}

// ErrGone means that the client has gone, or was cut off because it did not read a push in time.
// Either way the client notices the lost connection and drops its copies.
var ErrGone = errors.New("resp: the client has gone")

const (
	firstBuffer = 16 << 10
	flushAt     = 64 << 10
	keepBuffer  = 1 << 20 // a larger buffer is released
	keepArgs    = 4096    // a larger slice of arguments is released
	maxTogether = 64
	maxAlike    = 1 << 20 // bytes of SETs taken together
	maxQueued   = 100_000
	maxQueue    = 64 << 20
	argBytes    = 32 // what an argument costs beyond its bytes
)
