// Package member keeps a process in a numbered group of servers: the group is the same for all who
// have heard of its number, and a server that no longer belongs to it stops serving before any
// other server acts as if it were gone.
//
// Package member runs the machines of member/view. A [Membership] asks the [Leader] of the group for
// a place, begins one incarnation of a server whenever it has one, and ends it when the place is
// lost. The caller carries the requests.
package member

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/freshet-cache/freshet/clock"
	"github.com/freshet-cache/freshet/internal/drive"
	"github.com/freshet-cache/freshet/member/view"
	"github.com/freshet-cache/freshet/ticks"
)

// ErrJoining means that this process has no place in the group yet.
var ErrJoining = errors.New("member: this process has no place in the group yet; try again")

// Server is one incarnation of what has a place in the group. A Membership calls its methods from
// one goroutine.
type Server interface {
	// Enter tells of a newer view. The server may no longer be in it.
	Enter(v view.View)
	// Knows reports whether the server has what a member must know (K5).
	Knows() bool
	// End ends the server. It must return soon.
	End()
}

// Options configures a Membership. Addr, Ask, Known, Begin and Logger are required.
type Options struct {
	Addr string // where other members reach this process
	Host string // names the process, for coordinators that see processes end
	// Ask sends a request to the Leader that leads, and returns its Answer.
	Ask func(ctx context.Context, request []byte) ([]byte, error)
	// Known returns what the store knows of the incarnations that have begun there.
	Known func(ctx context.Context) (view.Known, error)
	// Begin begins the server of an incarnation that has a place.
	Begin func(ctx context.Context, at Place) (Server, error)
	Clock clock.Clock
	// Beat is the time between two requests. It must be well below a third of a lease.
	Beat   time.Duration
	Logger *slog.Logger
}

// Place is where an incarnation of this process stands in the group.
type Place struct {
	*Incarnation
	View     view.View
	Position int // in View.Ring
}

// Incarnation is one stay of this process in the group. All methods are safe for concurrent use.
type Incarnation struct {
	ID     [16]byte // drawn at random, so that no other incarnation has it
	Number uint32   // given by the leader; no other incarnation of the group has it
	in     *Membership
	member *view.Member
}

// Serves reports whether the incarnation certainly belongs to the group now.
func (i *Incarnation) Serves() bool { return int64(i.in.opt.Clock.Now()) < i.in.until.Load() }

// Retire tells the leader that all members have what a departed incarnation has left behind (K4).
func (i *Incarnation) Retire(departed uint32) {
	i.in.mu.Lock()
	defer i.in.mu.Unlock()
	i.member.Retire(departed)
}

// Ended waits until a departed incarnation certainly answers no caller any more (K7).
func (i *Incarnation) Ended(ctx context.Context, departed uint32) error {
	for {
		i.in.mu.Lock()
		at, ok := i.member.Ended(departed)
		i.in.mu.Unlock()
		wait := at - i.in.opt.Clock.Now()
		if ok && wait <= 0 {
			return nil
		}
		if !ok || wait > ticks.Tick(time.Second) {
			wait = ticks.Tick(joinBeat)
		}
		drive.Pause(ctx, time.Duration(wait))
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
	}
}

// Membership is this process's place in a group. All methods are safe for concurrent use.
type Membership struct {
	opt   Options
	until atomic.Int64 // when the lease of the current incarnation ends
	key   atomic.Pointer[[]byte]
	keyed chan struct{} // closed when there is a key

	mu      sync.Mutex
	member  *view.Member
	leaving bool
	out     chan struct{} // closed when an incarnation that leaves has been removed
	hurry   chan struct{}

	stop context.CancelFunc
	done chan struct{}
}

const (
	joinBeat   = 20 * time.Millisecond // while this process has no place in the group
	askTimeout = time.Second
)

// Join asks for a place in a group, and for another one whenever the place is lost, until Close.
func Join(opt Options) *Membership {
	ctx, cancel := context.WithCancel(context.Background())
	m := &Membership{opt: opt, keyed: make(chan struct{}), out: make(chan struct{}), hurry: make(chan struct{}, 1), stop: cancel, done: make(chan struct{})}
	go m.run(ctx)
	return m
}

// Key returns the key that all members have from the leader, for as long as its coordinator has a
// state (K9). It returns ErrJoining as long as this process has not received it.
func (m *Membership) Key() ([]byte, error) {
	key := m.key.Load()
	if key == nil {
		return nil, ErrJoining
	}
	return *key, nil
}

// Keyed waits until there is a Key. It returns ErrJoining if ctx ends before that.
func (m *Membership) Keyed(ctx context.Context) error {
	select {
	case <-m.keyed:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("%w (%w)", ErrJoining, context.Cause(ctx))
	}
}

// View returns the latest view that this process has heard of.
func (m *Membership) View() view.View {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.member == nil {
		return view.View{}
	}
	return m.member.View()
}

// run runs one incarnation after the other.
func (m *Membership) run(ctx context.Context) {
	defer close(m.done)
	for ctx.Err() == nil {
		if err := m.live(ctx); err != nil && ctx.Err() == nil {
			m.opt.Logger.Warn("this node has no place in the ring; it asks again", "err", err)
			drive.Pause(ctx, m.opt.Beat)
		}
	}
}

// live runs one incarnation, and returns when it has ended.
func (m *Membership) live(ctx context.Context) error {
	m.until.Store(0)
	known, err := m.opt.Known(ctx)
	if err != nil {
		return err
	}
	one := &Incarnation{in: m}
	_, _ = rand.Read(one.ID[:]) // it never fails
	one.member = view.NewMember(view.MemberOptions{Name: fmt.Sprintf("%s/%x", m.opt.Addr, one.ID), Addr: m.opt.Addr, Host: m.opt.Host, Store: known})
	m.mu.Lock()
	if m.member = one.member; m.leaving {
		m.member.Leave()
	}
	m.mu.Unlock()
	var server Server
	defer func() {
		if server != nil {
			server.End()
		}
	}()
	for ctx.Err() == nil {
		newer, err := m.ask(ctx, one.member, server)
		if err != nil && ctx.Err() == nil {
			m.opt.Logger.Debug("nobody who keeps the ring answers", "err", err)
		}
		m.mu.Lock()
		v, position, number := one.member.View(), one.member.Place(), one.member.Incarnation()
		m.mu.Unlock()
		switch {
		case position < 0 && number != 0: // removed
			if server != nil {
				server.Enter(v)
			}
			m.gone()
			return nil
		case position >= 0 && server == nil:
			one.Number = number
			if server, err = m.opt.Begin(ctx, Place{Incarnation: one, View: v, Position: position}); err != nil {
				server = nil
				m.mu.Lock()
				one.member.Leave() // nobody is to wait for this incarnation
				m.mu.Unlock()
				_, e := m.ask(ctx, one.member, nil)
				return errors.Join(err, e)
			}
		case newer && server != nil:
			server.Enter(v)
		}
		m.rest(ctx, server)
	}
	return nil
}

// gone wakes Leave when the incarnation was removed.
func (m *Membership) gone() {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.leaving {
		select {
		case <-m.out:
		default:
			close(m.out)
		}
	}
}

// rest waits for the next beat.
func (m *Membership) rest(ctx context.Context, server Server) {
	beat := m.opt.Beat
	if server == nil || !server.Knows() {
		beat = min(beat, joinBeat)
	}
	t := time.NewTimer(beat)
	defer t.Stop()
	select {
	case <-t.C:
	case <-m.hurry:
	case <-ctx.Done():
	}
}

// ask sends one request to the leader, and reports whether there is a newer view.
func (m *Membership) ask(ctx context.Context, member *view.Member, server Server) (newer bool, err error) {
	// The server's lock is never taken under this one: the server calls Retire, which takes this
	// lock, under its own.
	known := server != nil && server.Knows()
	m.mu.Lock()
	// The first server of a group takes its state from the store. A server that has begun tells
	// whether it has its state.
	knows := member.Place() == 0
	if server != nil {
		knows = known
	}
	in := member.Beat(m.opt.Clock.Now(), knows)
	m.mu.Unlock()
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	b, err := m.opt.Ask(ctx, view.AppendRenew(nil, in))
	if err != nil {
		return false, err
	}
	g, err := view.DecodeGrant(b)
	if err != nil {
		return false, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	newer = member.Granted(m.opt.Clock.Now(), g)
	m.until.Store(int64(member.Until()))
	if key := member.View().Key; newer && len(key) > 0 {
		if m.key.Swap(&key) == nil {
			close(m.keyed)
		}
	}
	return newer, nil
}

// Leave asks for removal from the group, and waits until that is decided or ctx ends.
func (m *Membership) Leave(ctx context.Context) error {
	m.mu.Lock()
	m.leaving = true
	if m.member != nil {
		m.member.Leave()
	}
	m.mu.Unlock()
	select {
	case m.hurry <- struct{}{}:
	default:
	}
	select {
	case <-m.out:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// Close ends the current incarnation. The leader removes it when it has been silent for too long.
func (m *Membership) Close() {
	m.stop()
	<-m.done
}
