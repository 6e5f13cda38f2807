package node

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/freshet-cache/freshet/shard/lease"
)

// Stop drains: slices move to other processes, if there are any; then there are no
// new connections, every command under way is finished, and everything is closed.
// When ctx ends, what is left is cut.
func (p *Process) Stop(ctx context.Context) error {
	var errs []error
	var wg sync.WaitGroup
	p.mu.Lock()
	p.stopping = true // from here on FR.UNDRAIN is refused
	p.mu.Unlock()
	var left []func(error)
	for _, n := range p.nodes {
		n.draining.Store(true)
		left = append(left, n.leaving())
	}
	p.leave(ctx)
	for _, done := range left {
		done(nil)
	}
	for _, n := range p.nodes {
		wg.Go(func() { n.drain(ctx) })
	}
	wg.Wait()
	p.release()
	part, cancel := context.WithTimeout(ctx, partTimeout)
	defer cancel()
	for _, n := range p.nodes {
		wg.Go(func() { n.drainLinks(part) })
	}
	wg.Wait()
	p.stopWatch()
	for _, n := range p.nodes {
		errs = append(errs, n.close(ctx))
	}
	errs = append(errs, p.closePromises())
	if p.assigner != nil {
		p.assigner.Close()
	}
	if p.coord != nil {
		errs = append(errs, p.coord.Close())
	}
	if p.store != nil {
		errs = append(errs, p.store.Close())
	}
	return errors.Join(errs...)
}

// leave moves what this process owns to others, with what it has in memory, and has it
// leave the rings of causal spaces, if there are any nodes that stay. A lease that is not
// taken over in time ends by itself.
func (p *Process) leave(ctx context.Context) {
	if len(p.nodes) == 0 || !p.nodes[len(p.nodes)-1].running() {
		return
	}
	rings, end := context.WithTimeout(ctx, 2*leaveTimeout)
	defer end()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	if !p.othersStay(ctx) {
		cancel(errNobodyStays)
	}
	done := make(chan struct{})
	defer close(done)
	go p.leaveAlone(ctx, cancel, done)
	stays := context.AfterFunc(ctx, func() { time.AfterFunc(ringsAlone, end) })
	defer stays()
	p.leaveSlices(ctx)
	var wg sync.WaitGroup
	for _, n := range p.nodes {
		wg.Go(func() { n.leaveGroups(rings) })
	}
	wg.Wait()
}

// leaveSlices moves what this process owns to others.
func (p *Process) leaveSlices(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, leaveTimeout)
	defer cancel()
	if ctx.Err() != nil { // no node stays
		return
	}
	var wg sync.WaitGroup
	for _, n := range p.nodes {
		wg.Go(func() {
			if err := n.shard.Leave(ctx); errors.Is(err, errNobodyStays) {
				n.log.Info("slices are not handed over: every other node stops too, or no assigner is left")
			} else if err != nil {
				n.log.Warn("slices could not be handed over; they can be written again when their leases are over", "err", err)
			}
			_ = n.leased.Offers(ctx) // what is not taken over is read anew
		})
	}
	wg.Wait()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for _, n := range p.nodes { // a successor that did not know of it would wait for their leases
		for p.leads() && ctx.Err() == nil && !p.assigner.Released(n.incarnation) {
			<-tick.C
		}
	}
}

// release gives up the leases that no node has taken over, when every command has been
// answered: the leader, or the next one, need not wait until they are over. If all
// processes stop, the one with the assigner waits until the others have done the same.
func (p *Process) release() {
	for _, n := range p.nodes {
		if n.shard != nil {
			n.shard.Release()
		}
	}
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	alone, limit := p.leads() && p.nodes[0].running() && !p.othersStay(context.Background()), releaseTimeout
	if alone {
		limit = othersTimeout
	}
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	released := func() bool {
		for _, n := range p.nodes {
			if n.shard != nil && !p.assigner.Released(n.incarnation) {
				return false
			}
		}
		return !alone || !slices.ContainsFunc(p.assigner.State().Slices, func(s lease.Held) bool { return s.Node != "" })
	}
	for p.leads() && !released() && ctx.Err() == nil {
		<-tick.C
	}
}

// errNobodyStays ends the hand-over of slices that no other node can take.
var errNobodyStays = errors.New("node: nobody stays who could take the slices over")

const (
	othersTimeout  = 3 * time.Second        // for what all other processes give up, which stop too
	ringsAlone     = time.Second            // for leaving the rings when no node stays: a later start recovers from the store
	releaseTimeout = time.Second            // for the assigner to save what this process has given up
	stayBeat       = 100 * time.Millisecond // how often the assigner is asked which nodes stay
	noLeader       = 15                     // times that no assigner answered, after which none is waited for
)

// othersStay reports whether there is a node of another process that could take slices.
func (p *Process) othersStay(ctx context.Context) bool {
	return slices.ContainsFunc(p.State(ctx).Nodes, func(s NodeState) bool { return s.ID != "?" && !s.Lost && !s.Draining }) // our own are draining
}

// leaveAlone ends the hand-over when no node stays any more: processes that are stopped
// together must not wait for each other.
func (p *Process) leaveAlone(ctx context.Context, cancel context.CancelCauseFunc, done chan struct{}) {
	tick := time.NewTicker(stayBeat)
	defer tick.Stop()
	for silent := 0; ; {
		select {
		case <-done:
			return
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		if silent++; p.assignerAnswers(ctx) {
			silent = 0
		}
		if silent >= noLeader || !p.othersStay(ctx) {
			cancel(errNobodyStays)
			return
		}
	}
}

// assignerAnswers reports whether an assigner leads and can be reached.
func (p *Process) assignerAnswers(ctx context.Context) bool {
	leaderAddr := p.leaderAddr()
	if p.leads() || leaderAddr == "" {
		return leaderAddr != ""
	}
	ctx, cancel := context.WithTimeout(ctx, stateTimeout)
	defer cancel()
	b, err := p.nodes[0].ask(ctx, leaderAddr, []byte{frameVersion, frameHello})
	return err == nil && len(b) > 0 && b[0] == answerDone
}
