package node

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/freshet-cache/freshet/internal/eventlog"
	"github.com/freshet-cache/freshet/shard/lease"
)

// startWatch begins to watch.
func (p *Process) startWatch() {
	ctx, cancel := context.WithCancel(context.Background())
	p.watch.stop = cancel
	p.watch.wall = time.Now()
	p.watch.work.Go(func() {
		tick := time.NewTicker(watchBeat)
		defer tick.Stop()
		for {
			p.look(ctx)
			select {
			case <-tick.C:
			case <-ctx.Done():
				return
			}
		}
	})
	if p.cfg.shared() {
		p.watch.work.Go(func() { p.watch.store.run(ctx, p.log, p.probe) })
	}
}

// probe reads a key that nobody writes, to see that the store answers.
func (p *Process) probe(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, p.cfg.Timeout)
	defer cancel()
	_, err := p.store.Load(ctx, "freshet")
	return err
}

// stopWatch ends it.
func (p *Process) stopWatch() {
	if p.watch.stop != nil {
		p.watch.stop()
		p.watch.work.Wait()
	}
	if p.events != nil {
		p.events.Sweep(time.Now().Add(time.Hour)) // what was counted is said
	}
}

// look is one round.
func (p *Process) look(ctx context.Context) {
	w, now := &p.watch, time.Now()
	if wall, mono := now.Round(0).Sub(w.wall.Round(0)), now.Sub(w.wall); (wall - mono).Abs() > clockJump {
		eventlog.ClockJump.Log(p.log, "the clock of the machine was set", "ms", eventlog.Ms(wall-mono))
	}
	w.wall = now
	p.events.Sweep(now)
	p.lookAtLeader()
	p.watchMembers(ctx, now)
	p.lookAtSlices()
	for _, n := range p.nodes {
		if left, ok := n.shard.Margin(); ok && left < p.cfg.Lease/4 && !n.draining.Load() {
			eventlog.LeaseLate.Log(n.log, "leases are renewed late, or not at all", "margin_ms", eventlog.Ms(left))
		}
	}
	p.lookAtRings()
}

// lookAtLeader says who has the assigner, if that changes.
func (p *Process) lookAtLeader() {
	w, leaderAddr := &p.watch, p.leaderAddr()
	if leaderAddr == "" || leaderAddr == w.leaderAddr {
		return
	}
	if w.leaderAddr != "" {
		eventlog.LeaderChanged.Log(p.log, "another process assigns slices", "from", p.nameOf(w.leaderAddr), "to", p.nameOf(leaderAddr))
	}
	w.leaderAddr, w.missing = leaderAddr, time.Time{}
}

// nameOf is the id of the node at an address, or the address.
func (p *Process) nameOf(addr string) string {
	for _, n := range p.nodes {
		if n.addr == addr {
			return n.id
		}
	}
	if m := p.watch.membership.Load(); m != nil {
		for _, x := range m.Members {
			if x.Addr == addr {
				return x.ID
			}
		}
	}
	return addr
}

// watchMembers finds out how the members are, and says what has changed.
func (p *Process) watchMembers(ctx context.Context, now time.Time) {
	w := &p.watch
	old := Membership{}
	if m := w.membership.Load(); m != nil {
		old = *m
	}
	var fresh Membership
	switch leads := p.leads(); {
	case leads:
		endings := p.assigner.Endings()
		if !w.led {
			owners := []string{}
			for name := range endings {
				owners = append(owners, name)
			}
			w.roster.begin(old.Members, owners)
			w.led, w.known = true, true
		}
		own := map[string]bool{}
		for _, n := range p.nodes {
			own[n.incarnation] = true
		}
		fresh = w.roster.survey(now, max(silentBeats*p.beat(), time.Second), endings, own)
	default:
		if w.led {
			w.roster.end()
			w.led = false
		}
		if w.leaderAddr == p.nodes[0].addr { // the coordinator still names the process that was here before
			return
		}
		m, ok := p.askMembers(ctx, w.leaderAddr)
		switch {
		case ctx.Err() != nil:
			return
		case ok:
			fresh, w.missing = m, time.Time{}
		case w.missing.IsZero():
			w.missing = now
			return
		case now.Sub(w.missing) < lostAfter:
			return
		default:
			fresh = p.absent(old, w.leaderAddr, w.missing)
		}
	}
	w.membership.Store(&fresh)
	if w.known {
		p.tellMembers(old.Members, fresh.Members, now)
	}
	w.known = true
}

// tellMembers says which nodes came, left, were lost and came back.
func (p *Process) tellMembers(old, fresh []ClusterMember, now time.Time) {
	mine := func(m ClusterMember) bool {
		return slices.ContainsFunc(p.nodes, func(n *Node) bool { return n.incarnation == m.Incarnation })
	}
	for _, m := range fresh {
		i := slices.IndexFunc(old, func(o ClusterMember) bool { return o.ID == m.ID })
		switch {
		case mine(m):
		case i >= 0 && (old[i].Lost || old[i].Incarnation != m.Incarnation) && !m.Lost:
			since := old[i].Since
			if since.IsZero() {
				since = now
			}
			eventlog.NodeBack.Log(p.log, "node "+m.ID+" is back", "member", m.ID, "ms", eventlog.Ms(now.Sub(since)), "incarnation", m.Incarnation)
		case m.Lost && (i < 0 || !old[i].Lost):
			eventlog.NodeLost.Log(p.log, lostText(m), "member", m.ID, "slices", m.Slices, "writable_at", writableAt(m), "incarnation", m.Incarnation, "addr", m.Addr)
		case i < 0:
			eventlog.NodeJoined.Log(p.log, "node "+m.ID+" has joined", "member", m.ID, "incarnation", m.Incarnation, "addr", m.Addr)
		}
	}
	for _, o := range old {
		if !mine(o) && !slices.ContainsFunc(fresh, func(m ClusterMember) bool { return m.ID == o.ID }) {
			eventlog.NodeLeft.Log(p.log, "node "+o.ID+" has left", "member", o.ID, "incarnation", o.Incarnation)
		}
	}
}

// writableAt is when the slices of a lost node take writes again, as text.
func writableAt(m ClusterMember) string {
	switch {
	case m.Slices == 0:
		return m.Since.UTC().Format(time.RFC3339Nano)
	case m.Writable.IsZero():
		return "unknown"
	}
	return m.Writable.UTC().Format(time.RFC3339Nano)
}

// changed takes a state of the assigner; the loop looks at it.
func (p *Process) changed(s lease.State) {
	w := &p.watch
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.states) == maxPending { // what lies between two states is not told
		w.states = w.states[1:]
	}
	s.Slices = slices.Clone(s.Slices) // its encoding for the coordinator goes over the same memory
	for i := range s.Slices {
		s.Slices[i].Copies = slices.Clone(s.Slices[i].Copies)
	}
	w.states = append(w.states, s)
}

// lookAtSlices says which slices have changed hands, or the number of their replicas.
func (p *Process) lookAtSlices() {
	w := &p.watch
	w.mu.Lock()
	states := w.states
	w.states = nil
	w.mu.Unlock()
	for _, s := range states {
		if len(w.assigned.Slices) > 0 && p.leads() {
			p.compare(w.assigned, s)
		}
		w.assigned = s
	}
	if len(states) == 0 {
		return
	}
	present := map[lease.Gen]bool{}
	for _, s := range w.assigned.Slices {
		present[s.Gen] = true
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	for g := range w.recalled {
		if !present[g] {
			delete(w.recalled, g)
		}
	}
	for g := range w.rates {
		if !present[g] {
			delete(w.rates, g)
		}
	}
	for k, t := range w.ordered {
		if time.Since(t) > 2*p.cfg.Lease {
			delete(w.ordered, k)
		}
	}
}

// compare says what has changed from one state to the next.
func (p *Process) compare(from, to lease.State) {
	for _, s := range to.Slices {
		i, _ := slices.BinarySearchFunc(from.Slices, s.Low, func(h lease.Held, low string) int { return strings.Compare(h.Low, low) })
		if i == len(from.Slices) || from.Slices[i].Low != s.Low {
			i-- // it was cut out of the one before
		}
		if i < 0 || from.Slices[i].Gen == s.Gen {
			continue
		}
		old := from.Slices[i]
		if old.Node != s.Node && s.Node != "" && old.Node != "" {
			why, ms := p.whyMoved(old, s)
			eventlog.SliceMoved.Log(p.log, "a slice has changed hands", "range", p.hashedRange(s.Range), "from", idOf(old.Node), "to", idOf(s.Node),
				"why", why, "ms", ms, "generation", uint64(s.Gen))
		}
		if len(old.Copies) != len(s.Copies) && old.Range == s.Range {
			p.watch.mu.Lock()
			rate := max(p.watch.rates[s.Gen], p.watch.rates[old.Gen])
			p.watch.mu.Unlock()
			eventlog.ReplicasChanged.Log(p.log, "a key has another number of replicas", "slice", p.hashedRange(s.Range), "n", len(s.Copies), "rate", rate)
		}
	}
}

// whyMoved says why a slice has changed hands, and for how long nobody took writes.
func (p *Process) whyMoved(old, fresh lease.Held) (why string, ms int64) {
	w := &p.watch
	w.mu.Lock()
	began, asked := w.recalled[old.Gen]
	ordered := false
	for k := range w.ordered {
		ordered = ordered || fresh.Contains(k)
	}
	w.mu.Unlock()
	if asked {
		ms = eventlog.Ms(time.Since(began))
	}
	w.roster.mu.Lock()
	s := w.roster.all[old.Node]
	if s != nil {
		known := *s
		s = &known
	}
	w.roster.mu.Unlock()
	draining := slices.ContainsFunc(p.nodes, func(n *Node) bool { return n.incarnation == old.Node && n.draining.Load() })
	switch {
	case idOf(old.Node) == idOf(fresh.Node):
		return "restart", ms
	case s != nil && s.Lost:
		return "lost", eventlog.Ms(time.Since(s.Since))
	case s == nil && !draining:
		return "lost", ms
	case draining || s.Leaving:
		return "drain", ms
	case ordered:
		return "operator", ms
	}
	return "load", ms
}

// lookAtRings says which incarnations of causal spaces are lost: not everything that
// they acknowledged has been everywhere. It is told of one that stays so for a round.
func (p *Process) lookAtRings() {
	w := &p.watch
	lost := map[string]bool{}
	for _, r := range p.nodes[0].groups() {
		for _, incarnation := range r.Incarnations {
			key := fmt.Sprint(r.Space, " ", incarnation)
			told, seen := w.incarnations[key]
			if lost[key] = seen; seen && !told {
				eventlog.IncarnationLost.Log(p.log, "not everything that a former incarnation has written has been everywhere", "space", r.Space, "incarnation", incarnation)
			}
		}
	}
	w.incarnations = lost
}
