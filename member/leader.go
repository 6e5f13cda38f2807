package member

import (
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/freshet-cache/freshet/clock"
	"github.com/freshet-cache/freshet/leader"
	"github.com/freshet-cache/freshet/member/view"
	"github.com/freshet-cache/freshet/ticks"
)

// LeaderOptions configures a Leader.
type LeaderOptions struct {
	view.Options
	Clock clock.Clock
	// Beat is how often the Leader looks for silent members. Default a twentieth of a lease.
	Beat   time.Duration
	Logger *slog.Logger // default: discard
}

// Leader decides who is in a group, while its coordinator lets it lead. All methods are safe for
// concurrent use.
type Leader struct {
	opt     LeaderOptions
	loop    *leader.Loop
	mu      sync.Mutex
	machine *view.Leader
}

// StartLeader begins to stand for election. coord must be the coordinator of this group alone.
func StartLeader(coord leader.Coordinator, opt LeaderOptions) *Leader {
	if opt.Length <= 0 {
		opt.Length = ticks.Tick(10 * time.Second)
	}
	if opt.Beat <= 0 {
		opt.Beat = max(time.Duration(opt.Length)/20, time.Millisecond)
	}
	if opt.Logger == nil {
		opt.Logger = slog.New(slog.DiscardHandler)
	}
	if len(opt.Key) == 0 {
		opt.Key = make([]byte, 32)
		_, _ = rand.Read(opt.Key) // it never fails
	}
	k := &Leader{opt: opt, machine: view.NewLeader(opt.Options)}
	k.loop = leader.New(coord, leader.Options{Beat: opt.Beat, Name: "the leader of the ring", Halts: "the ring does not change", Logger: opt.Logger})
	k.loop.Start(candidate{k})
	return k
}

// candidate carries out what the leader's loop asks of a Leader.
type candidate struct{ *Leader }

// Elected implements leader.Candidate.
func (c candidate) Elected(l leader.Leadership) error {
	var v view.View
	if l.State != nil {
		var err error
		if v, err = view.DecodeView(l.State); err != nil {
			return fmt.Errorf("member: the coordinator's view of term %d cannot be read; restore it, or remove it when no node is running: %w", l.Term, err)
		}
	}
	c.step(func(now ticks.Tick) []view.Save {
		c.machine.Elected(now, l.Term, l.Ends(), l.Slack, v)
		return nil
	})
	for _, m := range v.Ring {
		if l.Ended(m.Host) {
			c.step(func(now ticks.Tick) []view.Save { return c.machine.Gone(now, m.Host) })
		}
	}
	return nil
}

// Beat implements leader.Candidate.
func (c candidate) Beat(l leader.Leadership) (leads bool) {
	c.step(func(now ticks.Tick) []view.Save {
		c.machine.Led(l.Term, l.Ends())
		leads = c.machine.Leads(now)
		return c.machine.Beat(now)
	})
	return leads
}

// Saved implements leader.Candidate. A view that is too large is never stored, so the leader stands
// for election again, with the view that was stored last.
func (c candidate) Saved(s leader.State, _ int, err error) {
	c.step(func(ticks.Tick) []view.Save {
		if err == nil || errors.Is(err, leader.ErrDeposed) || errors.Is(err, leader.ErrStateTooLarge) {
			return c.machine.Saved(s.Term, s.Number, err == nil)
		}
		return c.machine.Unsaved(s.Term)
	})
}

func (k *Leader) step(do func(now ticks.Tick) []view.Save) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, s := range do(k.opt.Clock.Now()) {
		k.loop.Save(leader.State{Term: s.Term, Number: s.View.Number, Encode: func() []byte { return view.AppendView(nil, s.View) }})
	}
}

// Answer answers a Membership's request. It returns nil if this leader does not lead, or cannot
// read the request.
func (k *Leader) Answer(request []byte) (answer []byte) {
	in, err := view.DecodeRenew(request)
	if err != nil {
		k.opt.Logger.Warn("a server asked for a place in the ring in a way that cannot be read", "err", err)
		return nil
	}
	k.step(func(now ticks.Tick) []view.Save {
		g, saves, ok := k.machine.Renewed(now, in)
		if ok {
			answer = view.AppendGrant(nil, g)
		}
		return saves
	})
	return answer
}

// View returns the latest view that was stored.
func (k *Leader) View() view.View {
	k.mu.Lock()
	defer k.mu.Unlock()
	v := k.machine.View()
	v.Ring, v.Departed = slices.Clone(v.Ring), slices.Clone(v.Departed)
	return v
}

// Trouble returns why this leader can neither lead nor save a view. It is empty if it can, or if
// another one leads.
func (k *Leader) Trouble() string { return k.loop.Trouble() }

// Close stops deciding. The group stays as it is until leases end.
func (k *Leader) Close() { k.loop.Close() }
