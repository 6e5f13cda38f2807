package causal

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/freshet-cache/freshet/causal/mesh"
	"github.com/freshet-cache/freshet/causal/view"
	"github.com/freshet-cache/freshet/shard"
	"github.com/freshet-cache/freshet/shard/lease"
	"github.com/freshet-cache/freshet/store/journal"
)

// RingStore is what a Ring needs of a store, in addition to what its servers need.
type RingStore interface {
	Store
	KeepSiblings(ctx context.Context, concurrent bool) error
	Begin(ctx context.Context, incarnation uint32, name journal.Name) error
	Known(ctx context.Context) (journal.Known, error)
	Largest(ctx context.Context) (uint64, error)
}

// RingOptions configures a Ring. Store, Addr and Ask are required.
type RingOptions struct {
	// Server has the options of the Ring's servers. The Ring sets Store, Incarnation, View, Joins,
	// Floor, Truncated, Mark, Serves, Ended and Retired.
	Server Options
	Store  RingStore
	Addr   string // where the Dial of other servers reaches this node
	Host   string // names the process, for coordinators that see processes end
	// Ask sends a request to the Leader that leads, and returns its Answer.
	Ask   func(ctx context.Context, request []byte) ([]byte, error)
	Clock shard.Clock
	// Beat is the time between two requests. Default 200 ms. It must be well below a third of a
	// lease.
	Beat time.Duration
}

// Ring is this process's place in a ring of servers. It begins an incarnation of a server, and
// another one when that has ended. All methods are safe for concurrent use.
type Ring struct {
	opt   RingOptions
	until atomic.Int64 // when the lease of the current incarnation ends
	key   atomic.Pointer[[]byte]
	keyed chan struct{} // closed when there is a key

	mu      sync.Mutex
	member  *view.Member
	server  *Server
	leaving bool
	out     chan struct{} // closed when an incarnation that leaves has been removed
	hurry   chan struct{}

	stop context.CancelFunc
	done chan struct{}
}

const (
	joinBeat   = 20 * time.Millisecond // while this process has no place in the ring
	askTimeout = time.Second
)

// JoinRing asks for a place in a ring, and for another one whenever the place is lost, until Close.
func JoinRing(opt RingOptions) (*Ring, error) {
	if opt.Store == nil || opt.Ask == nil || opt.Addr == "" {
		return nil, errors.New("causal: RingOptions need a Store, an Addr and Ask")
	}
	if opt.Beat <= 0 {
		opt.Beat = 200 * time.Millisecond
	}
	probe := opt.Server // reports wrong options at once
	probe.Store, probe.Incarnation, probe.View = opt.Store, 1, View{Ring: []RingServer{{Incarnation: 1}}}
	if err := probe.check(); err != nil {
		return nil, err
	}
	opt.Server.Logger, opt.Server.Timeout = probe.Logger, probe.Timeout
	ctx, cancel := context.WithCancel(context.Background())
	r := &Ring{opt: opt, keyed: make(chan struct{}), out: make(chan struct{}), hurry: make(chan struct{}, 1), stop: cancel, done: make(chan struct{})}
	go r.run(ctx)
	return r, nil
}

// Server returns the current server, or ErrJoining as long as there is none.
func (r *Ring) Server() (*Server, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.server == nil {
		return nil, ErrJoining
	}
	return r.server, nil
}

// TokenKey returns the key that authenticates the tokens of spaces without a key of their own. All
// servers of the ring have it from the leader. It returns ErrJoining as long as this process has
// not received it.
func (r *Ring) TokenKey() ([]byte, error) {
	key := r.key.Load()
	if key == nil {
		return nil, ErrJoining
	}
	return *key, nil
}

// Keyed waits until there is a TokenKey. It returns ErrJoining if ctx ends before that.
func (r *Ring) Keyed(ctx context.Context) error {
	select {
	case <-r.keyed:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("%w (%w)", ErrJoining, context.Cause(ctx))
	}
}

// View returns the latest ring that this process has heard of.
func (r *Ring) View() View {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.member == nil {
		return View{}
	}
	return public(r.member.View())
}

// Accept takes a connection that another server has opened. See Server.Accept.
func (r *Ring) Accept(conn Conn) (deliver func(frame []byte)) {
	s, err := r.Server()
	if err != nil {
		conn.Break() // the other server tries again
		return func([]byte) {}
	}
	return s.Accept(conn)
}

// run runs one incarnation after the other.
func (r *Ring) run(ctx context.Context) {
	defer close(r.done)
	for ctx.Err() == nil {
		if err := r.live(ctx); err != nil && ctx.Err() == nil {
			r.opt.Server.Logger.Warn("this node has no place in the ring; it asks again", "err", err)
			pause(ctx, r.opt.Beat)
		}
	}
}

func pause(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
}

// live runs one incarnation, and returns when it has ended.
func (r *Ring) live(ctx context.Context) error {
	r.until.Store(0)
	known, err := r.known(ctx)
	if err != nil {
		return err
	}
	name := journal.NewName()
	m := view.NewMember(view.MemberOptions{Name: fmt.Sprintf("%s/%x", r.opt.Addr, name), Addr: r.opt.Addr, Host: r.opt.Host,
		Store: view.Known{Newest: known.Newest, Open: known.Open, Number: known.Term}})
	r.mu.Lock()
	if r.member = m; r.leaving {
		m.Leave()
	}
	r.mu.Unlock()
	var server *Server
	defer func() {
		r.mu.Lock()
		r.server = nil
		r.mu.Unlock()
		if server != nil {
			end, cancel := context.WithTimeout(context.Background(), r.opt.Server.Timeout)
			defer cancel()
			_ = server.Close(end)
		}
	}()
	for ctx.Err() == nil {
		newer, err := r.ask(ctx, m, server)
		if err != nil && ctx.Err() == nil {
			r.opt.Server.Logger.Debug("nobody who keeps the ring answers", "err", err)
		}
		r.mu.Lock()
		v, place, incarnation := m.View(), m.Place(), m.Incarnation()
		r.mu.Unlock()
		switch {
		case place < 0 && incarnation != 0: // removed
			if server != nil {
				server.Enter(public(v))
			}
			r.gone()
			return nil
		case place >= 0 && server == nil:
			if server, err = r.begin(ctx, m, v, place, incarnation, name); err != nil {
				r.mu.Lock()
				m.Leave() // nobody is to wait for this incarnation
				r.mu.Unlock()
				_, e := r.ask(ctx, m, nil)
				return errors.Join(err, e)
			}
			r.mu.Lock()
			r.server = server
			r.mu.Unlock()
		case newer && server != nil:
			server.Enter(public(v))
		}
		r.rest(ctx, server)
	}
	return nil
}

// known returns what the store knows of the incarnations of the space.
func (r *Ring) known(ctx context.Context) (journal.Known, error) {
	ctx, cancel := context.WithTimeout(ctx, r.opt.Server.Timeout)
	defer cancel()
	return r.opt.Store.Known(ctx)
}

// gone wakes Leave when the incarnation was removed.
func (r *Ring) gone() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.leaving {
		select {
		case <-r.out:
		default:
			close(r.out)
		}
	}
}

// rest waits for the next beat.
func (r *Ring) rest(ctx context.Context, server *Server) {
	beat := r.opt.Beat
	if server == nil || !server.Joined() {
		beat = min(beat, joinBeat)
	}
	t := time.NewTimer(beat)
	defer t.Stop()
	select {
	case <-t.C:
	case <-r.hurry:
	case <-ctx.Done():
	}
}

// ask sends one request to the leader, and reports whether there is a newer view.
func (r *Ring) ask(ctx context.Context, m *view.Member, server *Server) (newer bool, err error) {
	// The server's lock is never taken under the Ring's: the server calls Retired, which takes the
	// Ring's lock, under its own.
	joined := server != nil && server.Joined()
	r.mu.Lock()
	// The first server of a ring takes its state from the store. A server that has begun tells
	// whether it has its state.
	knows := m.Place() == 0
	if server != nil {
		knows = joined
	}
	in := m.Beat(r.opt.Clock.Now(), knows)
	r.mu.Unlock()
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	b, err := r.opt.Ask(ctx, view.AppendRenew(nil, in))
	if err != nil {
		return false, err
	}
	g, err := view.DecodeGrant(b)
	if err != nil {
		return false, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	newer = m.Granted(r.opt.Clock.Now(), g)
	r.until.Store(int64(m.Until()))
	if key := m.View().Key; newer && len(key) > 0 {
		if r.key.Swap(&key) == nil {
			close(r.keyed)
		}
	}
	return newer, nil
}

func public(v view.View) View {
	out := View{Number: v.Number, Departed: v.Departed, Newest: v.Newest}
	for _, m := range v.Ring {
		out.Ring = append(out.Ring, RingServer{m.Incarnation, m.Addr})
	}
	return out
}

// begin makes the server of an incarnation. The first server of a ring begins with what the store
// knows, any other server with the state of its predecessor.
func (r *Ring) begin(ctx context.Context, m *view.Member, v view.View, place int, incarnation uint32, name journal.Name) (*Server, error) {
	opt := r.opt.Server
	opt.Store, opt.Incarnation, opt.View, opt.Joins = r.opt.Store, incarnation, public(v), place > 0
	bounded := func(do func(ctx context.Context) error) error {
		ctx, cancel := context.WithTimeout(ctx, opt.Timeout)
		defer cancel()
		return do(ctx)
	}
	err := bounded(func(ctx context.Context) error { return r.opt.Store.KeepSiblings(ctx, opt.Concurrent) })
	if err == nil && opt.Log != nil {
		err = bounded(func(ctx context.Context) error { return opt.Log.Begin(ctx, incarnation, name) })
	}
	if err != nil {
		return nil, err
	}
	if err = bounded(func(ctx context.Context) error { return r.opt.Store.Begin(ctx, incarnation, name) }); err != nil {
		return nil, fmt.Errorf("causal: beginning as number %d: %w", incarnation, err)
	}
	if opt.Mark, err = r.claim(ctx, v, place); err != nil {
		return nil, err
	}
	if place == 0 {
		if err := r.remember(ctx, &opt, v); err != nil {
			return nil, err
		}
	}
	opt.Serves = func() bool { return int64(r.opt.Clock.Now()) < r.until.Load() }
	opt.Ended = func(ctx context.Context, incarnation uint32) error { return r.ended(ctx, m, incarnation) }
	opt.Retired = func(incarnation uint32) {
		r.mu.Lock()
		defer r.mu.Unlock()
		m.Retire(incarnation)
	}
	return New(opt)
}

// remember fills opt with what the store knows, for the first server of a ring. It returns an error
// if the store has incarnations of which the ring does not know that they departed. The next
// incarnation tells the leader of them (K8).
func (r *Ring) remember(ctx context.Context, opt *Options, v view.View) error {
	bounded := func(do func(ctx context.Context) error) error {
		ctx, cancel := context.WithTimeout(ctx, opt.Timeout)
		defer cancel()
		return do(ctx)
	}
	known, err := r.known(ctx)
	if err != nil {
		return err
	}
	for _, o := range known.Open {
		if o <= v.Newest && !slices.Contains(v.Departed, o) && !slices.ContainsFunc(v.Ring, func(p view.Place) bool { return p.Incarnation == o }) {
			return fmt.Errorf("causal: the store has writes of incarnation %d, of which the ring does not know: its coordinator's state is older than the store; it is told, and this node asks again", o)
		}
	}
	err = bounded(func(ctx context.Context) (e error) {
		opt.Floor, e = r.opt.Store.Largest(ctx)
		return e
	})
	opt.Truncated = map[uint32]uint64{}
	err = errors.Join(err, bounded(func(ctx context.Context) (e error) {
		_, n, e := r.opt.Store.Entries(ctx, uint32(mesh.External), 0, 1)
		if errors.Is(e, journal.ErrFenced) { // the store does not watch for external writes
			return nil
		}
		opt.Truncated[uint32(mesh.External)] = n
		return e
	}))
	for _, o := range v.Departed {
		if opt.Log != nil { // their writes are in their logs
			break
		}
		err = errors.Join(err, bounded(func(ctx context.Context) (e error) {
			// Otherwise a late write could be committed before the journal is read.
			if e = r.opt.Store.Fence(ctx, o); e != nil {
				return e
			}
			_, opt.Truncated[o], e = r.opt.Store.Entries(ctx, o, 0, 1)
			if errors.Is(e, journal.ErrFenced) { // it never began
				e = nil
			}
			return e
		}))
	}
	return err
}

// claim ends the merging of earlier rings, if this is the first server of the ring of an
// asynchronous space, so the mark that it returns is final. It returns an error if the space was
// asynchronous before and has no log now: otherwise the writes in logs would not be found.
func (r *Ring) claim(ctx context.Context, v view.View, place int) (mark []byte, err error) {
	store, merges := r.opt.Store.(MergeStore)
	ctx, cancel := context.WithTimeout(ctx, r.opt.Server.Timeout)
	defer cancel()
	if place > 0 || !merges {
		return nil, nil
	}
	if r.opt.Server.Log != nil {
		return store.Claim(ctx, v.Number)
	}
	_, err = store.Claim(ctx, 0)
	if errors.Is(err, journal.ErrFenced) {
		err = errors.New("causal: this space is asynchronous, and its writes are in logs; give Options.Log")
	}
	return nil, err
}

// ended waits until a departed incarnation answers no caller any more.
func (r *Ring) ended(ctx context.Context, m *view.Member, incarnation uint32) error {
	for {
		r.mu.Lock()
		at, ok := m.Ended(incarnation)
		r.mu.Unlock()
		wait := at - r.opt.Clock.Now()
		if ok && wait <= 0 {
			return nil
		}
		if !ok || wait > lease.Tick(time.Second) {
			wait = lease.Tick(joinBeat)
		}
		pause(ctx, time.Duration(wait))
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
	}
}

// Leave asks for removal from the ring, and waits until that is decided or ctx ends. The ring goes
// on without this node, and soon shows everything that was written here. In an asynchronous space
// the node first drains: a write that is not in the store is missing until this process runs again.
func (r *Ring) Leave(ctx context.Context) error {
	if server, err := r.Server(); err == nil {
		drain, cancel := context.WithTimeout(ctx, r.opt.Server.Timeout)
		err = server.Drain(drain)
		cancel()
		if err != nil {
			r.opt.Server.Logger.Warn("this node leaves with writes that are only in its log; start it again, or give it up", "incarnation", server.opt.Incarnation, "err", err)
		}
	}
	r.mu.Lock()
	r.leaving = true
	if r.member != nil {
		r.member.Leave()
	}
	r.mu.Unlock()
	select {
	case r.hurry <- struct{}{}:
	default:
	}
	select {
	case <-r.out:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// Close ends the current incarnation. The leader removes it when it has been silent for too long.
func (r *Ring) Close() {
	r.stop()
	<-r.done
}
