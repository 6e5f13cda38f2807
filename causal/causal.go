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
	"sync"
	"sync/atomic"
	"time"

	"github.com/freshet-cache/freshet/causal/dot"
	"github.com/freshet-cache/freshet/causal/mesh"
	"github.com/freshet-cache/freshet/causal/wire"
	"github.com/freshet-cache/freshet/internal/drive"
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
	opt ServerOptions

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

	work drive.Tasks
	pool *drive.Pool[mesh.Output] // requests to the store
	ctx  context.Context
	stop context.CancelFunc
}

// answer is a Reply, and the store's error if it failed for one.
type answer struct {
	mesh.Reply
	err error
}

// New returns a server that has received nothing, and that joins its ring.
func NewServer(opt ServerOptions) (*Server, error) {
	if err := opt.check(); err != nil {
		return nil, err
	}
	s := &Server{opt: opt, view: opt.View, changed: make(chan struct{}), waiting: map[mesh.Op]chan answer{}, refused: map[mesh.Dot]error{}, settle: settling{upto: map[mesh.Incarnation]uint64{}, said: map[mesh.Incarnation]uint64{}, released: map[mesh.Incarnation]bool{}}, seeking: seeking{given: map[uint32]bool{}, begun: map[uint32]bool{}}}
	s.pace.Store(int64(pollOften))
	s.ctx, s.stop = context.WithCancel(context.Background())
	s.pool = drive.NewPool(s.ctx, &s.work, s.perform)
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
		s.pool.Wait()
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
	tick := time.NewTicker(s.opt.Round)
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
