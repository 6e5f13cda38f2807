package shard

import (
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/freshet-cache/freshet/clock"
	"github.com/freshet-cache/freshet/leader"
	"github.com/freshet-cache/freshet/shard/lease"
	"github.com/freshet-cache/freshet/ticks"
)

// AssignerOptions configure an Assigner.
type AssignerOptions struct {
	lease.AssignerOptions
	Clock clock.Clock
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
	loop    *leader.Loop
	mu      sync.Mutex
	machine *lease.Assigner
}

// StartAssigner starts an assigner, which stands for election until Close.
func StartAssigner(coord leader.Coordinator, opt AssignerOptions) *Assigner {
	if opt.Beat <= 0 {
		opt.Beat = 500 * time.Millisecond
	}
	if opt.Logger == nil {
		opt.Logger = slog.New(slog.DiscardHandler)
	}
	a := &Assigner{opt: opt, machine: lease.NewAssigner(opt.AssignerOptions)}
	a.loop = leader.New(coord, leader.Options{Beat: opt.Beat, Name: "assigner", Halts: "no slice changes hands", Logger: opt.Logger})
	a.loop.Start(candidate{a})
	return a
}

// Trouble returns why this assigner can neither lead nor save, so that no slice changes hands. It
// is empty if the assigner can, or if another one leads.
func (a *Assigner) Trouble() string { return a.loop.Trouble() }

// candidate carries out what the leader's loop asks of an Assigner.
type candidate struct{ *Assigner }

// Elected implements leader.Candidate.
func (c candidate) Elected(l leader.Leadership) error {
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
		if l.Ended(s.Host) {
			gone = append(gone, s.Host)
		}
	}
	c.step(func(now ticks.Tick) []lease.AssignerOutput {
		return c.machine.Elected(now, l.Term, l.Ends(), l.Slack, state, gone, nil)
	})
	return nil
}

// Beat implements leader.Candidate.
func (c candidate) Beat(l leader.Leadership) (leads bool) {
	c.step(func(now ticks.Tick) []lease.AssignerOutput {
		c.machine.Led(l.Term, l.Ends())
		leads = c.machine.Leads(now)
		return c.machine.Beat(now, nil)
	})
	return leads
}

// Saved implements leader.Candidate.
func (c candidate) Saved(s leader.State, size int, err error) {
	c.step(func(now ticks.Tick) []lease.AssignerOutput {
		switch {
		case err == nil, errors.Is(err, leader.ErrDeposed):
			return c.machine.Saved(now, s.Term, s.Number, err == nil, nil)
		case errors.Is(err, leader.ErrStateTooLarge):
			c.machine.Refused(s.Term, s.Number, size)
			return nil
		}
		return c.machine.Unsaved(s.Term, s.Number, nil) // the newest state replaces a state that may be stored
	})
}

// Deliver receives a message of a node: a *lease.Renew or *lease.Gave.
func (a *Assigner) Deliver(msg any) {
	a.step(func(now ticks.Tick) []lease.AssignerOutput {
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
	a.step(func(now ticks.Tick) []lease.AssignerOutput {
		ok = a.machine.Move(key, to)
		return a.machine.Beat(now, nil)
	})
	return ok
}

// Cut cuts slices at the points. It reports false if there would be too many slices, or if their
// bounds would take too many bytes.
func (a *Assigner) Cut(points ...string) bool {
	ok := false
	a.step(func(now ticks.Tick) []lease.AssignerOutput {
		ok = a.machine.Cut(now, points)
		return a.machine.Beat(now, nil)
	})
	return ok
}

// Replicate asks for n replicas of key beside its owner; with 0 the load of the key decides. It
// reports false if there cannot be so many, or if the key's slice is moving: call it again.
func (a *Assigner) Replicate(key string, n int) bool {
	ok := false
	a.step(func(now ticks.Tick) []lease.AssignerOutput {
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

func (a *Assigner) step(in func(now ticks.Tick) []lease.AssignerOutput) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, out := range in(a.opt.Clock.Now()) {
		switch out := out.(type) {
		case lease.Save:
			if a.opt.Changed != nil {
				a.opt.Changed(out.State)
			}
			a.loop.Save(leader.State{Term: out.Term, Number: out.Rev, Encode: func() []byte { return lease.Append(nil, &out.State) }})
		case lease.SendGrant:
			a.opt.Send(out.Node, &out.Grant)
		case lease.SendRecall:
			a.opt.Send(out.Node, &out.Recall)
		}
	}
}

// Close stops assigning. Granted leases last until they end.
func (a *Assigner) Close() { a.loop.Close() }
