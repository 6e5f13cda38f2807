package sim

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"

	"github.com/freshet-cache/freshet/eventual/fanout"
	"github.com/freshet-cache/freshet/eventual/wire"
	"github.com/freshet-cache/freshet/ticks"
)

// register carries a request to the registry.
func (n *eventualNode) register(out fanout.Output) {
	s := n.s
	r := s.rng(fmt.Sprint("registry ", n.index))
	if s.now < n.deaf {
		s.sometimes("the registry is not reached")
	}
	switch out := out.(type) {
	case fanout.Renew:
		in := fanout.Renewed{Seq: out.Seq, Status: fanout.Unknown}
		if s.expire(); s.now >= n.deaf {
			if in.Status = fanout.OK; s.struck[n.id] {
				in.Status = fanout.Failed
			} else {
				s.registry[n.id] = s.now + out.TTL
			}
		}
		n.later(spread(r, s.plan.Config.Delay), func() { n.step(in) })
	case fanout.List:
		in := fanout.Listed{Seq: out.Seq, Status: fanout.Unknown}
		if s.expire(); s.now >= n.deaf {
			in = fanout.Listed{Seq: out.Seq, Members: slices.Sorted(maps.Keys(s.registry))}
		}
		n.later(spread(r, s.plan.Config.Delay), func() { n.step(in) })
	case fanout.Deregister:
		delete(s.registry, n.id)
		s.struck[n.id] = true
		s.sometimes("a node leaves")
		n.end(sec)
	case fanout.Expelled:
		s.sometimes("a node finds that it was struck out")
		n.end(sec)
	}
}

// expire strikes out the incarnations that have not renewed.
func (s *eventualStorm) expire() {
	for _, id := range slices.Sorted(maps.Keys(s.registry)) {
		if s.now > s.registry[id] {
			s.sometimes("an incarnation is struck out")
			delete(s.registry, id)
			s.struck[id] = true
		}
	}
}

// call begins a client's call.
func (n *eventualNode) call(c EventualCall) {
	s := n.s
	if n.leaving || !n.up {
		return
	}
	n.op++
	call := &eventualCall{EventualCall: c, begun: n.now(), version: -1}
	if c.Page {
		n.page()
		return
	}
	var token fanout.Token
	if c.Session > 0 {
		session := s.sessions[c.Session-1]
		if session.busy {
			return
		}
		var err error
		if token, err = wire.DecodeToken(session.token); err != nil {
			s.fail(err)
		}
		session.busy = true
	}
	n.calls[n.op] = call
	if c.Write {
		names, set := []string{c.Key}, c.Set
		if s.plan.Config.Tags {
			names, set = []string{eventualTag}, false
		}
		n.step(fanout.Mutate{Op: n.op, Names: names, Set: set, Token: token})
		return
	}
	e, there := n.entries[c.Key]
	call.hit = there && fanout.Fresh(n.now(), n.vouched, s.opt.Young, e.grant)
	call.oldest = s.oldest(n, c.Key)
	n.step(fanout.Read{Op: n.op, Key: c.Key, Session: c.Session > 0, Token: token})
}

// oldest is the oldest version of a key that may be served: one that was replaced later than the
// bound ago, by the node's own clock (E1).
func (s *eventualStorm) oldest(n *eventualNode, key string) int {
	versions := s.rows[key]
	for i := 1; i < len(versions); i++ {
		if n.now()-n.clock.read(versions[i]) <= max(s.opt.Stale, s.opt.Young) {
			return i - 1
		}
	}
	return len(versions) - 1
}

// disk is how long the store takes for a part of a request.
func (s *eventualStorm) disk(r *rand.Rand) ticks.Tick {
	return min(spread(r, s.plan.Config.Disk), s.opt.Land)
}

// page reads all keys at once.
func (n *eventualNode) page() {
	op, r := n.op, n.s.rng("pages")
	n.step(fanout.PageBegan{Op: op})
	n.later(n.s.disk(r), func() {
		n.paged[op] = map[string]int{}
		in := fanout.PageLoaded{Op: op}
		for _, key := range slices.Sorted(maps.Keys(n.s.rows)) {
			n.paged[op][key] = len(n.s.rows[key]) - 1
			in.Values = append(in.Values, fanout.Value{Key: key, Tags: n.s.tags()})
		}
		n.later(n.s.disk(r), func() { n.step(in) })
	})
}

func (s *eventualStorm) tags() []string {
	if s.plan.Config.Tags {
		return []string{eventualTag}
	}
	return nil
}

// load asks the store for a key.
func (n *eventualNode) load(out fanout.Load) {
	s, r := n.s, n.s.rng("loads")
	n.later(s.disk(r), func() {
		version := len(s.rows[out.Key]) - 1
		n.later(s.disk(r), func() {
			if !s.calm && chance(r, s.plan.Config.Unanswered) {
				n.step(fanout.Loaded{Load: out.Load, Status: fanout.Unknown})
				return
			}
			n.loaded[out.Load] = version
			e, there := n.entries[out.Key]
			n.step(fanout.Loaded{Load: out.Load, Tags: s.tags(), Same: there && e.version == version})
		})
	})
}

func (n *eventualNode) keep(out fanout.Keep) {
	version := -1
	switch c := n.calls[out.Op]; {
	case out.Load > 0:
		version = n.loaded[out.Load]
	case n.paged[out.Op] != nil:
		version = n.paged[out.Op][out.Key]
	case c != nil:
		version = c.version
		n.s.sometimes("a write's value is kept")
	}
	n.entries[out.Key] = eventualEntry{version, out.Grant}
}

// write sends a write to the store, where it lands within W or never.
func (n *eventualNode) write(out fanout.Write) {
	s, r, c := n.s, n.s.rng("writes"), n.calls[out.Op]
	if n.now() >= out.Until {
		n.later(0, func() { n.step(fanout.Wrote{Op: out.Op, Status: fanout.Failed}) })
		return
	}
	at := s.disk(r)
	unanswered, refused := !s.calm && chance(r, s.plan.Config.Unanswered), chance(r, 5)
	if unanswered && r.IntN(2) == 0 {
		at = ticks.Tick(r.Int64N(int64(s.opt.Land)))
		s.sometimes("a write of unknown outcome lands late")
	}
	if !refused {
		s.after(at, func() {
			for _, key := range slices.Sorted(maps.Keys(s.rows)) {
				if key == c.Key || s.plan.Config.Tags {
					s.rows[key] = append(s.rows[key], s.now)
				}
			}
			c.version = len(s.rows[c.Key]) - 1
		})
	}
	status := fanout.OK
	switch {
	case unanswered:
		status, at = fanout.Unknown, s.disk(r)
	case refused:
		status = fanout.Failed
	}
	n.later(at+s.disk(r), func() { n.step(fanout.Wrote{Op: out.Op, Status: status}) })
}

// answered judges an answer (E1, E2), and whether a hit is one by Fresh.
func (n *eventualNode) answered(a fanout.Answer) {
	s, c := n.s, n.calls[a.Op]
	delete(n.calls, a.Op)
	n.release(c)
	if a.Status != fanout.OK {
		return
	}
	version := n.loaded[a.Load]
	if a.Source == fanout.Memory {
		version = n.entries[c.Key].version
		s.sometimes("a hit")
	}
	switch memory := a.Source == fanout.Memory; {
	case memory && !c.hit, !memory && c.hit && c.Session == 0:
		s.fail(fmt.Errorf("%d answers from memory: %v, and Fresh says: %v", n.id, memory, c.hit))
	case version < c.oldest:
		s.fail(fmt.Errorf("%d answers %s with version %d, memory %v, and %d is the oldest within the bound", n.id, c.Key, version, memory, c.oldest))
	}
	if c.Session == 0 {
		return
	}
	session := s.sessions[c.Session-1]
	if version < session.saw[c.Key] {
		s.fail(fmt.Errorf("session %d reads version %d of %s at %d after %d", c.Session, version, c.Key, n.id, session.saw[c.Key]))
	}
	if a.Source == fanout.Memory {
		s.sometimes("a hit of a session")
	}
	session.saw[c.Key], session.token = version, wire.AppendToken(nil, a.Token)
}

func (n *eventualNode) done(d fanout.Done) {
	s, c := n.s, n.calls[d.Op]
	delete(n.calls, d.Op)
	n.release(c)
	switch {
	case d.Refused != fanout.Permitted:
		s.sometimes("a mutation is refused")
	case d.Status == fanout.OK && c.Session > 0:
		session := s.sessions[c.Session-1]
		session.token = wire.AppendToken(nil, d.Token)
		if session.saw[c.Key] = max(session.saw[c.Key], c.version); s.plan.Config.Tags {
			for key := range s.rows {
				session.saw[key] = max(session.saw[key], c.version)
			}
		}
	}
}
