package shard

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/freshet-cache/freshet/shard/lease"
)

// Leadership is the right to assign slices.
type Leadership struct {
	Term  uint64
	State []byte // the state that the predecessor saved; nil if there was none
	// Gone reports whether a host, and every node on it, has certainly ended. Nil: no host is known
	// to have ended.
	Gone func(host string) bool
	// Slack is how long the predecessor might still believe that it leads.
	Slack lease.Tick
	// Until returns when the leadership ends unless it is renewed, by Clock. Nil: it lasts as long
	// as the coordinator is open.
	Until func() lease.Tick
}

// Coordinator elects one leader at a time and stores the state that must survive the leader.
type Coordinator interface {
	// Lead waits until this process leads.
	Lead(ctx context.Context) (Leadership, error)
	// Save stores state durably. It returns ErrDeposed if term is not the newest, and
	// ErrStateTooLarge if the state will never be stored. After any other error the state may be
	// stored or not, but it must not be stored after a later one.
	Save(ctx context.Context, term uint64, state []byte) error
}

var (
	// ErrDeposed means that another assigner leads. Stop assigning.
	ErrDeposed = errors.New("shard: deposed: another assigner leads a newer term")
	// ErrStateTooLarge means that a state was not stored and never will be.
	ErrStateTooLarge = errors.New("shard: the state of the assigner is too large for the coordinator; it cuts fewer slices from here on")
)

// AssignerOptions configure an Assigner.
type AssignerOptions struct {
	lease.AssignerOptions
	Clock Clock
	// Beat is how often recalls are repeated and the load is balanced. Default 500 ms.
	Beat time.Duration
	// Send sends a *lease.Grant or *lease.Recall to a node, and may lose it. It must not block for
	// long.
	Send func(node string, msg any)
	// Changed receives every state that is to be saved, one after the other. It must be quick, and
	// must not call the Assigner. Default: nothing is called.
	Changed func(lease.State)
	Logger  *slog.Logger // default: discard
}

// Assigner grants the leases of a cluster while it leads. All methods are safe for concurrent use.
type Assigner struct {
	opt     AssignerOptions
	coord   Coordinator
	mu      sync.Mutex
	machine *lease.Assigner
	saves   chan lease.Save
	stop    context.CancelFunc
	done    sync.WaitGroup
	trouble trouble
}

// trouble is the reason why no slice can change hands at the moment.
type trouble struct {
	mu   sync.Mutex
	what string
	said time.Time
}

// retell is how often the same trouble is logged.
const retell = time.Minute

// is records the trouble, which is empty if there is none, and reports whether to log it.
func (t *trouble) is(what string) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if what == t.what && (what == "" || time.Since(t.said) < retell) {
		return false
	}
	t.what, t.said = what, time.Now()
	return true
}

// Trouble returns why this assigner can neither lead nor save, so that no slice changes hands. It
// is empty if the assigner can, or if another one leads.
func (a *Assigner) Trouble() string {
	a.trouble.mu.Lock()
	defer a.trouble.mu.Unlock()
	return a.trouble.what
}

// StartAssigner starts an assigner, which stands for election until Close.
func StartAssigner(coord Coordinator, opt AssignerOptions) *Assigner {
	if opt.Beat <= 0 {
		opt.Beat = 500 * time.Millisecond
	}
	if opt.Logger == nil {
		opt.Logger = slog.New(slog.DiscardHandler)
	}
	ctx, cancel := context.WithCancel(context.Background())
	a := &Assigner{opt: opt, coord: coord, machine: lease.NewAssigner(opt.AssignerOptions), saves: make(chan lease.Save, 1), stop: cancel}
	a.done.Go(func() { a.run(ctx) })
	a.done.Go(func() { a.save(ctx) })
	return a
}

func (a *Assigner) run(ctx context.Context) {
	tick := time.NewTicker(a.opt.Beat)
	defer tick.Stop()
	for ctx.Err() == nil {
		lead, err := a.coord.Lead(ctx)
		if err == nil {
			err = a.lead(ctx, lead, tick.C)
		}
		if err != nil && ctx.Err() == nil {
			if !errors.Is(err, ErrDeposed) && a.trouble.is("no assigner leads here: "+err.Error()) || errors.Is(err, ErrDeposed) {
				a.opt.Logger.Error("assigner does not lead", "err", err)
			}
			select {
			case <-tick.C:
			case <-ctx.Done():
			}
		}
	}
}

// lead assigns slices until the leadership is lost.
func (a *Assigner) lead(ctx context.Context, l Leadership, tick <-chan time.Time) error {
	var state lease.State
	if l.State != nil {
		m, err := lease.Decode(l.State)
		s, ok := m.(*lease.State)
		if err != nil || !ok {
			return fmt.Errorf("shard: the coordinator's state of term %d cannot be read; restore it, or remove it when no node is running: %w", l.Term, err)
		}
		state = *s
	}
	var gone []string
	for _, s := range state.Slices {
		if l.Gone != nil && l.Gone(s.Host) {
			gone = append(gone, s.Host)
		}
	}
	until := func() lease.Tick { return 1<<63 - 1 }
	if l.Until != nil {
		until = l.Until
	}
	a.trouble.is("")
	a.step(func(now lease.Tick) []lease.AssignerOutput {
		return a.machine.Elected(now, l.Term, until(), l.Slack, state, gone, nil)
	})
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-tick:
		}
		led := true
		a.step(func(now lease.Tick) []lease.AssignerOutput {
			a.machine.Led(l.Term, until())
			led = a.machine.Leads(now)
			return a.machine.Beat(now, nil)
		})
		if !led {
			return ErrDeposed
		}
	}
}

// save stores one state after the other.
func (a *Assigner) save(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case s := <-a.saves:
			a.store(ctx, s)
		}
	}
}

// store saves a state with the coordinator, and passes the result to the machine.
func (a *Assigner) store(ctx context.Context, s lease.Save) {
	state := lease.Append(nil, &s.State)
	err := a.coord.Save(ctx, s.Term, state)
	switch {
	case ctx.Err() != nil:
		return
	case err == nil, errors.Is(err, ErrDeposed):
		a.trouble.is("")
		a.step(func(now lease.Tick) []lease.AssignerOutput {
			return a.machine.Saved(now, s.Term, s.Rev, err == nil, nil)
		})
		return
	}
	if a.trouble.is("the coordinator does not save, so no slice changes hands: " + err.Error()) {
		a.opt.Logger.Error("coordinator does not save; no slice changes hands until it does", "err", err, "bytes", len(state), "slices", len(s.State.Slices))
	}
	if errors.Is(err, ErrStateTooLarge) {
		a.step(func(lease.Tick) []lease.AssignerOutput {
			a.machine.Refused(s.Term, s.Rev, len(state))
			return nil
		})
		return
	}
	t := time.NewTimer(a.opt.Beat)
	defer t.Stop()
	select {
	case <-ctx.Done():
	case <-t.C:
	}
	a.step(func(lease.Tick) []lease.AssignerOutput {
		return a.machine.Unsaved(s.Term, s.Rev, nil) // the newest state replaces a state that may be stored
	})
}

// Deliver receives a message of a node: a *lease.Renew or *lease.Gave.
func (a *Assigner) Deliver(msg any) {
	a.step(func(now lease.Tick) []lease.AssignerOutput {
		switch m := msg.(type) {
		case *lease.Renew:
			return a.machine.Renewed(now, *m, nil)
		case *lease.Gave:
			return a.machine.GaveUp(now, *m, nil)
		}
		return nil
	})
}

// Move begins to move the slice of key to the node to. It reports false if it cannot. Cut changes
// the slices without moving them. Both are for administration and tests.
func (a *Assigner) Move(key, to string) bool {
	ok := false
	a.step(func(now lease.Tick) []lease.AssignerOutput {
		ok = a.machine.Move(key, to)
		return a.machine.Beat(now, nil)
	})
	return ok
}

// Cut cuts slices at the points. It reports false if there would be too many slices, or if their
// bounds would take too many bytes.
func (a *Assigner) Cut(points ...string) bool {
	ok := false
	a.step(func(now lease.Tick) []lease.AssignerOutput {
		ok = a.machine.Cut(now, points)
		return a.machine.Beat(now, nil)
	})
	return ok
}

// Replicate asks for n replicas of key beside its owner; with 0 the load of the key decides. It
// reports false if there cannot be so many, or if the key's slice is moving: call it again.
func (a *Assigner) Replicate(key string, n int) bool {
	ok := false
	a.step(func(now lease.Tick) []lease.AssignerOutput {
		ok = a.machine.Replicate(now, key, n)
		return a.machine.Beat(now, nil)
	})
	return ok
}

// Leads reports whether this assigner may grant leases now.
func (a *Assigner) Leads() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.machine.Leads(a.opt.Clock.Now())
}

// Released reports whether a node owns nothing, and the saved state says so too.
func (a *Assigner) Released(node string) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.machine.Released(node)
}

// State returns the current assignment.
func (a *Assigner) State() lease.State {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.machine.State()
}

func (a *Assigner) step(in func(now lease.Tick) []lease.AssignerOutput) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, out := range in(a.opt.Clock.Now()) {
		switch out := out.(type) {
		case lease.Save:
			if a.opt.Changed != nil {
				a.opt.Changed(out.State)
			}
			select {
			case <-a.saves: // a save of an older term that has not begun: no term waits for it
			default:
			}
			a.saves <- out
		case lease.SendGrant:
			a.opt.Send(out.Node, &out.Grant)
		case lease.SendRecall:
			a.opt.Send(out.Node, &out.Recall)
		}
	}
}

// Close stops assigning. Granted leases last until they end.
func (a *Assigner) Close() {
	a.stop()
	a.done.Wait()
}
