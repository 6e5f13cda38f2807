package causal

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"github.com/freshet-cache/freshet/causal/mesh"
	"github.com/freshet-cache/freshet/clock"
	"github.com/freshet-cache/freshet/member"
	"github.com/freshet-cache/freshet/member/view"
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

// Options configures a Ring. Store, Addr and Ask are required; Dial is too if the ring has other
// nodes.
type Options struct {
	Store RingStore
	Addr  string // where the Dial of other servers reaches this node
	Host  string // names the process, for coordinators that see processes end
	// Ask sends a request to the member.Leader that leads, and returns its Answer.
	Ask func(ctx context.Context, request []byte) ([]byte, error)
	// Dial opens an ordered connection to another server, which passes it to its Accept. deliver
	// takes the frames that arrive.
	Dial  func(ctx context.Context, to RingServer, deliver func(frame []byte)) (Conn, error)
	Clock clock.Clock
	// Beat is the time between two requests. Default 200 ms. It must be well below a third of a
	// lease.
	Beat time.Duration
	// Settings are those of the servers that the Ring begins.
	Settings
}

// Ring is this process's place in a ring of servers. It begins an incarnation of a server, and
// another one when that has ended. All methods are safe for concurrent use.
type Ring struct {
	opt    Options
	place  *member.Membership
	server atomic.Pointer[Server] // nil while there is none
}

// joinBeat is how often something is looked at that is about to change.
const joinBeat = 20 * time.Millisecond

// Join asks for a place in a ring, and for another one whenever the place is lost, until Close.
func Join(opt Options) (*Ring, error) {
	if opt.Store == nil || opt.Ask == nil || opt.Addr == "" {
		return nil, errors.New("causal: Options need a Store, an Addr and Ask")
	}
	if opt.Beat <= 0 {
		opt.Beat = 200 * time.Millisecond
	}
	probe := ServerOptions{Store: opt.Store, Incarnation: 1, View: View{Ring: []RingServer{{Incarnation: 1}}}, Settings: opt.Settings} // reports wrong options at once
	if err := probe.check(); err != nil {
		return nil, err
	}
	opt.Logger, opt.Timeout = probe.Logger, probe.Timeout
	r := &Ring{opt: opt}
	r.place = member.Join(member.Options{Addr: opt.Addr, Host: opt.Host, Ask: opt.Ask, Known: r.openIncarnations, Begin: r.beginAt, Clock: opt.Clock, Beat: opt.Beat, Logger: opt.Logger})
	return r, nil
}

// Server returns the current server, or ErrJoining as long as there is none.
func (r *Ring) Server() (*Server, error) {
	if s := r.server.Load(); s != nil {
		return s, nil
	}
	return nil, ErrJoining
}

// TokenKey returns the key that authenticates the tokens of spaces without a key of their own. All
// servers of the ring have it from the leader. It returns ErrJoining as long as this process has
// not received it.
func (r *Ring) TokenKey() ([]byte, error) {
	key, err := r.place.Key()
	if err != nil {
		return nil, ErrJoining
	}
	return key, nil
}

// Keyed waits until there is a TokenKey. It returns ErrJoining if ctx ends before that.
func (r *Ring) Keyed(ctx context.Context) error {
	if err := r.place.Keyed(ctx); err != nil {
		return fmt.Errorf("%w (%w)", ErrJoining, context.Cause(ctx))
	}
	return nil
}

// View returns the latest ring that this process has heard of.
func (r *Ring) View() View { return public(r.place.View()) }

// Accept takes a connection that another server has opened. See Server.Accept.
func (r *Ring) Accept(conn Conn) (deliver func(frame []byte)) {
	s, err := r.Server()
	if err != nil {
		conn.Break() // the other server tries again
		return func([]byte) {}
	}
	return s.Accept(conn)
}

// known returns what the store knows of the incarnations of the space.
func (r *Ring) known(ctx context.Context) (journal.Known, error) {
	ctx, cancel := context.WithTimeout(ctx, r.opt.Timeout)
	defer cancel()
	return r.opt.Store.Known(ctx)
}

// openIncarnations is known, for the leader (K8).
func (r *Ring) openIncarnations(ctx context.Context) (view.Known, error) {
	known, err := r.known(ctx)
	return view.Known{Newest: known.Newest, Open: known.Open, Number: known.Term}, err
}

// beginAt begins the server of an incarnation.
func (r *Ring) beginAt(ctx context.Context, at member.Place) (member.Server, error) {
	s, err := r.begin(ctx, at)
	if err != nil {
		return nil, err
	}
	r.server.Store(s)
	return placed{r, s}, nil
}

// placed is a Server as its Membership sees it.
type placed struct {
	r *Ring
	s *Server
}

// Enter implements member.Server.
func (p placed) Enter(v view.View) { p.s.Enter(public(v)) }

// Knows implements member.Server.
func (p placed) Knows() bool { return p.s.Joined() }

// End implements member.Server.
func (p placed) End() {
	p.r.server.Store(nil)
	ctx, cancel := context.WithTimeout(context.Background(), p.r.opt.Timeout)
	defer cancel()
	_ = p.s.Close(ctx)
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
func (r *Ring) begin(ctx context.Context, at member.Place) (*Server, error) {
	opt := ServerOptions{Store: r.opt.Store, Incarnation: at.Number, View: public(at.View), Joins: at.Position > 0, Dial: r.opt.Dial, Settings: r.opt.Settings,
		Serves: at.Serves, Ended: at.Ended, Retired: at.Retire}
	name := journal.Name(at.ID)
	bounded := func(do func(ctx context.Context) error) error {
		ctx, cancel := context.WithTimeout(ctx, opt.Timeout)
		defer cancel()
		return do(ctx)
	}
	err := bounded(func(ctx context.Context) error { return r.opt.Store.KeepSiblings(ctx, opt.Concurrent) })
	if err == nil && opt.Log != nil {
		err = bounded(func(ctx context.Context) error { return opt.Log.Begin(ctx, at.Number, name) })
	}
	if err != nil {
		return nil, err
	}
	if err = bounded(func(ctx context.Context) error { return r.opt.Store.Begin(ctx, at.Number, name) }); err != nil {
		return nil, fmt.Errorf("causal: beginning as number %d: %w", at.Number, err)
	}
	if opt.Mark, err = r.claim(ctx, at.View, at.Position); err != nil {
		return nil, err
	}
	if at.Position == 0 {
		if err := r.remember(ctx, &opt, at.View); err != nil {
			return nil, err
		}
	}
	return NewServer(opt)
}

// remember fills opt with what the store knows, for the first server of a ring. It returns an error
// if the store has incarnations of which the ring does not know that they departed. The next
// incarnation tells the leader of them (K8).
func (r *Ring) remember(ctx context.Context, opt *ServerOptions, v view.View) error {
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
	ctx, cancel := context.WithTimeout(ctx, r.opt.Timeout)
	defer cancel()
	if place > 0 || !merges {
		return nil, nil
	}
	if r.opt.Log != nil {
		return store.Claim(ctx, v.Number)
	}
	_, err = store.Claim(ctx, 0)
	if errors.Is(err, journal.ErrFenced) {
		err = errors.New("causal: this space is asynchronous, and its writes are in logs; give Options.Log")
	}
	return nil, err
}

// Leave asks for removal from the ring, and waits until that is decided or ctx ends. The ring goes
// on without this node, and soon shows everything that was written here. In an asynchronous space
// the node first drains: a write that is not in the store is missing until this process runs again.
func (r *Ring) Leave(ctx context.Context) error {
	if server, err := r.Server(); err == nil {
		drain, cancel := context.WithTimeout(ctx, r.opt.Timeout)
		err = server.Drain(drain)
		cancel()
		if err != nil {
			r.opt.Logger.Warn("this node leaves with writes that are only in its log; start it again, or give it up", "incarnation", server.opt.Incarnation, "err", err)
		}
	}
	return r.place.Leave(ctx)
}

// Close ends the current incarnation. The leader removes it when it has been silent for too long.
func (r *Ring) Close() { r.place.Close() }
