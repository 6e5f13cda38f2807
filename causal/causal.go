// Package causal is a cache for workflows that move between servers. Whichever server the next step
// of a workflow asks, it sees nothing older than what it has seen or written, and no effect without
// its cause. No read or write waits for another cache server, and none is undone.
//
// What may be relied on: causal+ consistency of every [Session], across servers, forks and joins,
// under delays, lost connections and crashes, as long as the store keeps what it acknowledged.
// Servers that have received the same writes agree on every key. A write that was acknowledged is
// in the store, or, if Options.Log is set, in that log.
//
// What it costs: a session carries a token of some tens of bytes. It also carries writes that some
// server may not have received, until every server has them.
//
// The protocol is package causal/mesh, machines without I/O. This package runs them: it asks the
// store, keeps a connection to the next server of the ring, and gives callers deadlines.
package causal

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/freshet-cache/freshet/causal/dot"
	"github.com/freshet-cache/freshet/causal/mesh"
	"github.com/freshet-cache/freshet/causal/wire"
	"github.com/freshet-cache/freshet/store/journal"
)

// Store is what causal needs of a store. Package journal says what the methods promise.
type Store interface {
	Load(ctx context.Context, keys ...string) ([]journal.Row, error)
	Persist(ctx context.Context, w journal.Write) error
	Fetch(ctx context.Context, dots []journal.Dot) ([][]byte, error)
	Entries(ctx context.Context, incarnation uint32, after uint64, limit int) ([]journal.Entry, uint64, error)
	Fence(ctx context.Context, incarnation uint32) error
	Truncate(ctx context.Context, incarnation uint32, upto uint64) error
	TruncateFenced(ctx context.Context, incarnation uint32, upto uint64) error
	CollectTombstones(ctx context.Context, before uint64) error
}

// Errors of operations. After each of them the session is as it was, and usable.
var (
	// ErrBusy means that nothing happened: too much is under way at this server.
	ErrBusy = errors.New("causal: busy: nothing happened; too much is under way at this server, try again later")
	// ErrBehind means that nothing happened: the session has seen writes that this server has not
	// received.
	ErrBehind = errors.New("causal: behind: nothing happened; this server has not received what the session has seen, ask another or try again")
	// ErrOutcomeUnknown means that the write is under way, and takes effect unless the server ends
	// first.
	ErrOutcomeUnknown = errors.New("causal: outcome unknown: the write is under way and may take effect; read the key to find out")
	// ErrRejected means that nothing was written: the store cannot take the write, and never will.
	ErrRejected = errors.New("causal: rejected: nothing was written; the store does not take it")
	// ErrStale means that nothing was written: the transaction's snapshot is gone, and something
	// that it has read has changed.
	ErrStale = errors.New("causal: stale: nothing was written; the transaction's snapshot is gone, begin it again")
	// ErrExpelled means that this incarnation of the server has departed, or cannot tell whether it
	// has. A write that was under way may take effect.
	ErrExpelled = errors.New("causal: over: this server is not a member of the ring, or cannot tell; ask another")
	// ErrClockAhead means that nothing happened: a time that the session has seen is further ahead
	// of this server's clock than the clocks of servers may be apart.
	ErrClockAhead = errors.New("causal: ahead: nothing happened; the session has seen a time more than an hour ahead of this server's clock: set the clocks of all nodes, or begin a session")
	// ErrJoining means that nothing was done: the server is not in the ring yet.
	ErrJoining = errors.New("causal: joining: nothing was done; this server is not in the ring yet, try again")
	// ErrClosed means that nothing was done: the server is closed.
	ErrClosed = errors.New("causal: closed")
)

// RingServer is a server of a ring.
type RingServer struct {
	Incarnation uint32 // one incarnation of the server: a number that is used once
	Addr        string // where Dial reaches it
}

// View is a ring, as all its servers know it.
type View struct {
	Number   uint64 // grows with every change
	Ring     []RingServer
	Departed []uint32 // departed incarnations that are not retired
	Newest   uint32   // the largest number of an incarnation so far
}

func (v View) machine() mesh.View {
	out := mesh.View{Number: v.Number, Newest: mesh.Incarnation(v.Newest)}
	for _, m := range v.Ring {
		out.Ring = append(out.Ring, mesh.Incarnation(m.Incarnation))
		out.Newest = max(out.Newest, mesh.Incarnation(m.Incarnation))
	}
	for _, o := range v.Departed {
		out.Departed = append(out.Departed, mesh.Incarnation(o))
	}
	return out
}

// Options configures a Server. Store, Incarnation and View are required.
type Options struct {
	Store Store
	// Incarnation is the number of this incarnation, which has begun in the store.
	Incarnation uint32
	// View is the ring in which the server begins: alone, together with other servers that begin,
	// or, if Joins is set, behind a server that is in the ring already.
	View  View
	Joins bool
	// Floor is the largest time of a stamp that the store held when the ring began. Truncated says
	// up to which number the journals of departed incarnations were truncated by then.
	Floor     uint64
	Truncated map[uint32]uint64
	// Log makes the space asynchronous: a write is acknowledged when Log has it, and merged into
	// the store, a MergeStore, when every server has received it. Incarnation has begun in Log.
	// Servers of one process may share a Log. When a ring begins, Mark is what the store's Claim of
	// the view's number returned, and Truncated is for external writes only. Default: the store has
	// every write before it is acknowledged.
	Log  Log
	Mark []byte
	// Dial opens an ordered connection to another server, which passes it to its Accept. deliver
	// takes the frames that arrive. Dial is required if the ring has other servers.
	Dial func(ctx context.Context, to RingServer, deliver func(frame []byte)) (Conn, error)
	// Serves reports whether this server is certainly a member now. Default: it always is.
	Serves func() bool
	// Ended waits until a departed incarnation answers no caller any more. Default: it does not
	// wait.
	Ended func(ctx context.Context, incarnation uint32) error
	// Retired is called with incarnations that a view need not list as Departed any more. It may be
	// called again with the same one, and must not block. Default: none.
	Retired func(incarnation uint32)
	// Keys bounds the keys in memory, Window the writes of this server that are not known to be
	// durable, and Waits the operations that wait for rows. Defaults 1 << 20, 4096, 4096.
	Keys, Window, Waits int
	// Bytes bounds the memory of keys and their versions, and WindowBytes the memory of the writes
	// that Window counts. Beyond WindowBytes callers get ErrBusy. Every other server needs as much
	// memory for them. Defaults 1 GiB, 64 MiB.
	Bytes, WindowBytes int
	// Versions is how many values of a key are kept for transactions. A transaction whose values
	// are gone begins again. Default 8.
	Versions int
	// Concurrent keeps siblings, for spaces with a merge function. The store's KeepSiblings was
	// called with it. Default: the larger stamp wins.
	Concurrent bool
	// Beat is the time between stability rounds. Default 10 ms.
	Beat time.Duration
	// Timeout bounds each request to the store. A request may end up to an eighth of it earlier.
	// Default 5 s.
	Timeout time.Duration
	// Recorder is called with what happens, for metrics. Default: nothing is recorded.
	Recorder Recorder
	// Logger gets what an operator should know. Default: discard.
	Logger *slog.Logger
}

func (o *Options) check() error {
	self := false
	for _, m := range o.View.Ring {
		self = self || m.Incarnation == o.Incarnation
	}
	switch {
	case o.Store == nil:
		return errors.New("causal: Options.Store is nil; give it a store, for example memory.NewJournal")
	case o.Incarnation == 0 || !self:
		return fmt.Errorf("causal: Options.Incarnation is %d, which is not in the view's ring; an incarnation of a server has a number above 0", o.Incarnation)
	case len(o.View.Ring) > 1 && o.Dial == nil:
		return errors.New("causal: Options.Dial is nil, and the view has other servers")
	case o.Joins && len(o.View.Ring) == 1:
		return errors.New("causal: Options.Joins is set, and the view has no other servers")
	case o.Log != nil && o.Concurrent:
		return errors.New("causal: Options.Log and Options.Concurrent do not go together: rows are merged by their stamps")
	case o.Log != nil && !o.canMerge():
		return errors.New("causal: Options.Log is set, and the store cannot merge; use store/pebble, store/postgres or store/memory")
	case o.Timeout < 0 || o.Beat < 0:
		return fmt.Errorf("causal: Options.Timeout is %v, Options.Beat %v; they must not be negative", o.Timeout, o.Beat)
	}
	if o.Beat == 0 {
		o.Beat = 10 * time.Millisecond
	}
	if o.Versions <= 0 {
		o.Versions = 8
	}
	if o.Timeout == 0 {
		o.Timeout = 5 * time.Second
	}
	if o.Recorder == nil {
		o.Recorder = nobody{}
	}
	if o.Serves == nil {
		o.Serves = func() bool { return true }
	}
	if o.Ended == nil {
		o.Ended = func(context.Context, uint32) error { return nil }
	}
	if o.Retired == nil {
		o.Retired = func(uint32) {}
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	return nil
}

func (o *Options) canMerge() bool {
	_, ok := o.Store.(MergeStore)
	return ok
}

// Recorder records what a server does, for metrics. The methods are called with or without the
// server's lock, must be quick, and must not call the server.
type Recorder interface {
	// Event: the protocol did something worth counting.
	Event(e mesh.EventKind)
	// StoreCall: a request to the store ended.
	StoreCall(kind StoreCall, took time.Duration, err error)
}

// StoreCall is a kind of request to the store.
type StoreCall uint8

// The kinds.
const (
	CallLoad StoreCall = iota
	CallPersist
	CallFetch
	CallTruncate
	CallCollect
	CallRecover
	CallPoll
	CallLog   // a write to the log of an asynchronous space
	CallClaim // of the right to merge into the rows
	CallMerge // of a batch into the rows
	StoreCalls
)

type nobody struct{}

func (nobody) Event(mesh.EventKind)                      {}
func (nobody) StoreCall(StoreCall, time.Duration, error) {}

// Server is one cache server of a ring. All methods are safe for concurrent use.
type Server struct {
	opt Options

	mu      sync.Mutex   // guards the fields below, and every step of the machine
	machine *mesh.Server // nil until a server that joins has its predecessor's snapshot
	view    View
	changed chan struct{} // closed when the view changes, or the machine is made
	outs    []mesh.Output
	ops     mesh.Op
	waiting map[mesh.Op]chan answer
	cause   error              // of the request to the store whose answer is being stepped
	refused map[mesh.Dot]error // why the store refused a write, until its caller gets the answer
	ring    ring
	settle  settling
	seeking seeking
	closed  bool
	pace    atomic.Int64 // wait between requests for external writes

	draining bool                     // the server takes no more writes
	deadline atomic.Pointer[deadline] // shared by requests to the store that begin now

	next chan mesh.Output // requests to the store, for a goroutine that has finished one
	idle atomic.Int64

	work sync.WaitGroup
	ctx  context.Context
	stop context.CancelFunc
}

// answer is a Reply, and the store's error if it failed for one.
type answer struct {
	mesh.Reply
	err error
}

// New returns a server that has received nothing, and that joins its ring.
func New(opt Options) (*Server, error) {
	if err := opt.check(); err != nil {
		return nil, err
	}
	s := &Server{opt: opt, view: opt.View, changed: make(chan struct{}), next: make(chan mesh.Output), waiting: map[mesh.Op]chan answer{}, refused: map[mesh.Dot]error{}, settle: settling{upto: map[mesh.Incarnation]uint64{}, said: map[mesh.Incarnation]uint64{}, released: map[mesh.Incarnation]bool{}}, seeking: seeking{given: map[uint32]bool{}, begun: map[uint32]bool{}}}
	s.pace.Store(int64(pollOften))
	s.ctx, s.stop = context.WithCancel(context.Background())
	if !opt.Joins {
		var settled mesh.Frontier
		for o, n := range opt.Truncated {
			settled = settled.Union(dot.All(mesh.Incarnation(o), n))
		}
		if opt.Log != nil {
			mark, err := wire.DecodeSet(opt.Mark)
			if err != nil {
				return nil, fmt.Errorf("causal: what was merged into the store: %w", err)
			}
			settled = settled.Union(mark)
		}
		s.begin(mesh.Options{Floor: mesh.Stamp{Time: opt.Floor}, Truncated: settled})
	}
	s.work.Go(s.keepConnected)
	s.work.Go(s.beat)
	return s, nil
}

// begin makes the machine.
func (s *Server) begin(o mesh.Options) {
	o.Incarnation, o.View, o.Window, o.Keys, o.Waits, o.Versions = mesh.Incarnation(s.opt.Incarnation), s.view.machine(), s.opt.Window, s.opt.Keys, s.opt.Waits, s.opt.Versions
	o.Concurrent, o.Bytes, o.WindowBytes = s.opt.Concurrent, s.opt.Bytes, s.opt.WindowBytes
	o.Async = s.opt.Log != nil
	s.machine = mesh.New(o)
}

// Enter takes a view that the coordinator has decided on. The server ignores older views.
func (s *Server) Enter(v View) {
	s.mu.Lock()
	if s.closed || v.Number <= s.view.Number {
		s.mu.Unlock()
		return
	}
	s.view = v
	for _, c := range []*stream{s.ring.out, s.ring.in} {
		if c != nil {
			c.conn.Break()
		}
	}
	s.ring = ring{}
	var asked []mesh.Output
	if s.machine != nil {
		asked = s.step(mesh.Viewed{View: v.machine()})
	}
	s.change()
	s.mu.Unlock()
	s.spawn(asked)
}

// change wakes keepConnected.
func (s *Server) change() {
	close(s.changed)
	s.changed = make(chan struct{})
}

// Joined reports whether the server has a state from which it can answer.
func (s *Server) Joined() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.machine != nil
}

// Truncated returns the number up to which every server has received this server's writes.
func (s *Server) Truncated() uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.machine == nil {
		return 0
	}
	return s.machine.Truncated()
}

// Close ends the server. It waits until the requests to the store that are under way have ended, or
// ctx has. Every acknowledged write is in the store, or in the log.
func (s *Server) Close(ctx context.Context) error {
	s.mu.Lock()
	s.closed = true
	for op, ch := range s.waiting {
		delete(s.waiting, op)
		ch <- answer{err: ErrClosed}
	}
	out, in := s.ring.out, s.ring.in
	s.ring.out, s.ring.in = nil, nil
	s.mu.Unlock()
	s.stop()
	for _, c := range []*stream{out, in} {
		if c != nil {
			c.conn.Break()
		}
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
		return context.Cause(ctx)
	}
}

// beat starts stability rounds, and repeats what the store did not acknowledge.
func (s *Server) beat() {
	tick := time.NewTicker(s.opt.Beat)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-s.ctx.Done():
			return
		}
		s.mu.Lock()
		var asked []mesh.Output
		if s.machine != nil {
			asked = s.step(mesh.Beat{})
		}
		s.mu.Unlock()
		s.spawn(asked)
		s.truncate()
		s.seek()
	}
}

// answers are channels for reuse. No answer is under way on any of them.
var answers = sync.Pool{New: func() any { return make(chan answer, 1) }}

// do carries out one operation of a session.
func (s *Server) do(ctx context.Context, op func(op mesh.Op) mesh.Input) (mesh.Reply, error) {
	if err := ctx.Err(); err != nil {
		return mesh.Reply{}, context.Cause(ctx)
	}
	s.mu.Lock()
	if err := s.unable(); err != nil {
		s.mu.Unlock()
		return mesh.Reply{}, err
	}
	s.ops++
	id := s.ops
	in := op(id)
	if _, write := in.(mesh.Put); write && s.draining {
		s.mu.Unlock()
		return mesh.Reply{}, ErrExpelled
	}
	asked, got, done := s.stepFor(in, id)
	if done { // most often: the answer was in memory
		s.mu.Unlock()
		s.spawn(asked)
		return got, outcome(got, nil)
	}
	ch := answers.Get().(chan answer)
	s.waiting[id] = ch
	s.mu.Unlock()
	s.spawn(asked)
	select {
	case a := <-ch: // no second answer follows, so the channel can be reused
		answers.Put(ch)
		_, write := in.(mesh.Put)
		switch {
		case write && (a.Op == 0 || a.Outcome == mesh.Expelled):
			// The write had begun, and other servers may recover it.
			return mesh.Reply{}, fmt.Errorf("%w (%w)", ErrOutcomeUnknown, errors.Join(a.err, outcome(a.Reply, nil)))
		case a.err != nil && a.Op == 0:
			return mesh.Reply{}, a.err
		}
		return a.Reply, outcome(a.Reply, a.err)
	case <-ctx.Done():
	}
	s.mu.Lock()
	delete(s.waiting, id)
	s.mu.Unlock()
	if _, write := in.(mesh.Put); write {
		return mesh.Reply{}, fmt.Errorf("%w (%w)", ErrOutcomeUnknown, context.Cause(ctx))
	}
	return mesh.Reply{}, context.Cause(ctx)
}

// unable returns why no operation can begin, or nil.
func (s *Server) unable() error {
	switch {
	case s.closed:
		return ErrClosed
	case s.machine == nil:
		return ErrJoining
	case !s.opt.Serves():
		return ErrExpelled
	}
	return nil
}

func outcome(r mesh.Reply, cause error) (err error) {
	switch r.Outcome {
	case mesh.Done:
		return nil
	case mesh.Busy:
		err = ErrBusy
	case mesh.Behind:
		err = ErrBehind
	case mesh.Rejected:
		err = ErrRejected
	case mesh.Stale:
		err = ErrStale
	case mesh.Expelled:
		err = ErrExpelled
	case mesh.Forged:
		err = ErrForged
	case mesh.ClockAhead:
		err = ErrClockAhead
	default:
		err = errors.New("causal: the store gave no answer")
	}
	if cause != nil {
		err = fmt.Errorf("%w: %w", err, cause)
	}
	return err
}
