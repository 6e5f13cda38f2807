package sim

import (
	"fmt"
	"maps"
	"slices"

	"github.com/freshet-cache/freshet/causal/mesh"
	"github.com/freshet-cache/freshet/causal/wire"
	"github.com/freshet-cache/freshet/check"
	"github.com/freshet-cache/freshet/ticks"
)

// think lets a client act after a while.
func (s *meshStorm) think(c *meshClient) {
	s.after(spread(s.rng("think"), s.cfg.Delay+s.cfg.Disk), func() {
		if !c.gone && !c.busy && !s.calm {
			s.act(c)
		}
	})
}

// act makes a client's next call.
func (s *meshStorm) act(c *meshClient) {
	r := s.rng("clients")
	if chance(r, s.cfg.Roam) {
		c.at = s.nodes[r.IntN(len(s.nodes))]
	}
	for i := 0; c.at == nil || c.at.down || c.at.m == nil || i == 0 && chance(r, 80) && !slices.Contains(s.view.Ring, c.at.incarnation); i++ {
		c.at = s.nodes[r.IntN(len(s.nodes))] // servers that are not in the ring are mostly avoided
	}
	if s.calls--; s.calls < 0 {
		return
	}
	if chance(r, s.cfg.Strip) { // as a token, on its way to the next step of the workflow
		limit := 40 * r.IntN(20)
		if s.cfg.Async { // A9: a token carries no names
			limit = wire.MaxToken
		}
		session, err := wire.Resume(wire.Token(c.session, limit))
		s.fail(err)
		c.session = session
	}
	if chance(r, s.cfg.Branch) {
		s.branch(c)
		return
	}
	if len(c.session.Bare) > 0 {
		s.sometimes("a token is short")
		s.call(c, &meshCall{}, func(op mesh.Op) mesh.Input { return c.session.Recall(op) })
		return
	}
	if chance(r, s.cfg.Transact) {
		s.transact(c)
		return
	}
	switch n := r.IntN(100); {
	case n < 40:
		s.read(c, s.cfg.key(r))
	case n < 60:
		keys := []string{s.cfg.key(r)}
		for range r.IntN(3) {
			keys = append(keys, s.cfg.key(r))
		}
		s.read(c, keys...)
	default:
		muts := []mesh.Mut{{Key: s.cfg.key(r), Value: fmt.Appendf(nil, "v%d", s.calls)}}
		if k := s.cfg.key(r); n > 95 && k != muts[0].Key {
			muts = append(muts, mesh.Mut{Key: k, Value: fmt.Appendf(nil, "w%d", s.calls)})
		}
		switch m := &muts[0]; {
		case n < 64:
			m.Value, m.Delete = nil, true
		case n < 66:
			m.Value = append([]byte("!"), m.Value...)
		}
		for i := range muts { // the writes that the client saw last, however long ago
			muts[i].Supersedes = c.saw[muts[i].Key]
		}
		s.call(c, &meshCall{muts: muts}, func(op mesh.Op) mesh.Input { return c.session.Put(op, muts...) })
	}
}

// branch forks a client, joins two clients, or crashes one.
func (s *meshStorm) branch(c *meshClient) {
	r := s.rng("branches")
	defer s.think(c)
	switch o := s.clients[r.IntN(len(s.clients))]; {
	case r.IntN(3) == 0 && len(s.clients) < 40:
		s.sometimes("a fork")
		f := &meshClient{name: fmt.Sprint("c", len(s.clients)), session: c.session.Fork(), last: c.last, at: c.at, saw: maps.Clone(c.saw)}
		s.clients = append(s.clients, f)
		s.think(f)
	case o != c && !o.busy && !o.gone && r.IntN(2) == 0:
		s.sometimes("a join")
		other := o.session
		if chance(r, s.cfg.Strip) && !s.cfg.Async { // the other session came as a token that has only names
			var err error
			other, err = wire.Resume(wire.Token(o.session, 0))
			s.fail(err)
		}
		c.session.Join(other)
		a := check.Act{Session: c.name}
		for _, last := range []int{c.last, o.last} {
			if last >= 0 {
				a.After = append(a.After, last)
			}
		}
		c.last = len(s.acts)
		s.acts = append(s.acts, a)
	case r.IntN(4) == 0: // the client begins a new session; its calls go on
		s.sometimes("a client crashes")
		c.session, c.last, c.saw = &mesh.Session{}, -1, nil
	}
}

func (s *meshStorm) read(c *meshClient, keys ...string) {
	if s.cfg.Past > 0 && chance(s.rng("past"), s.cfg.Past) {
		s.past(&meshCall{client: c, server: c.at, keys: keys, view: c.at.m.View()})
		return
	}
	s.call(c, &meshCall{keys: keys}, func(op mesh.Op) mesh.Input {
		if len(keys) == 1 {
			return c.session.Read(op, keys[0])
		}
		return c.session.ReadMany(op, keys...)
	})
}

// call sends an operation to the client's server. call.retry sends it again.
func (s *meshStorm) call(c *meshClient, call *meshCall, in func(mesh.Op) mesh.Input) {
	s.ops++
	op := s.ops
	c.busy = true
	call.client, call.server = c, c.at
	call.retry = func() {
		if c.at == nil || c.at.down {
			c.busy = false
			s.think(c)
			return
		}
		s.call(c, &meshCall{keys: call.keys, muts: call.muts}, in)
	}
	s.open[op] = call
	input := in(op)
	s.log("%s at %d: %T %v", c.name, c.at.incarnation, input, c.session)
	s.after(spread(s.rng("net of clients"), s.cfg.Delay/10), func() {
		if s.step(call.server, input); call.server.down && s.open[op] == call {
			delete(s.open, op)
			c.busy = false
			s.think(c)
		}
	})
}

// replied takes an answer back to its client.
func (s *meshStorm) replied(r mesh.Reply) {
	call := s.open[r.Op]
	if call == nil {
		s.fail(fmt.Errorf("operation %d was answered twice", r.Op))
		return
	}

	if r.Outcome == mesh.Done && r.Write != nil && !s.store.Committed(r.Write.Dot) {
		s.fail(fmt.Errorf("%v is acknowledged, and is nowhere", r.Write))
	}
	delete(s.open, r.Op)
	call.view = call.server.m.View()
	s.after(spread(s.rng("net of clients"), s.cfg.Delay/10), func() { s.told(call, r) })
}

func (s *meshStorm) told(call *meshCall, r mesh.Reply) {
	c := call.client
	c.busy = false
	if call.done != nil {
		call.done(r)
		return
	}
	switch r.Outcome {
	case mesh.Done:
	case mesh.Behind, mesh.Expelled: // another server can answer; a Put may have happened
		if len(call.muts) == 0 && !s.cfg.Async && !s.calm && chance(s.rng("past"), 70) {
			s.past(call)
			return
		}
		c.at = nil
		s.think(c)
		return
	case mesh.Busy, mesh.Failed:
		if !s.calm {
			s.after(s.cfg.Delay+ticks.Tick(1000), call.retry)
			c.busy = true
		}
		return
	default:
		if r.Outcome != mesh.Rejected {
			s.fail(fmt.Errorf("%s was answered %d", c.name, r.Outcome))
		}
		s.think(c)
		return
	}
	items := c.session.Took(r, call.keys...)
	for _, w := range c.session.Carried {
		if c.session.Deps.Covers(w.Dot) {
			s.fail(fmt.Errorf("%s carries %v though it is visible", c.name, w))
		}
	}
	var after []int
	if c.last >= 0 {
		after = []int{c.last}
	}
	if r.Write != nil {
		if s.wrote(r.Write, after, c.name) {
			c.last = len(s.acts) - 1
		}
		s.think(c)
		return
	}
	if len(call.keys) == 0 && len(c.session.Bare) > 0 {
		s.fail(fmt.Errorf("%s is not told what it carries: %v", c.name, c.session))
	}
	s.saw(c, call, items)
	s.think(c)
}

// past answers a call from the store alone, if a server has departed or lacks writes. It also
// serves a session that knows writes by name only, although no server has recalled them.
func (s *meshStorm) past(call *meshCall) {
	s.sometimes("the store is read past the servers")
	c := call.client
	c.busy = true
	if len(call.keys) == 0 {
		call.keys = []string{s.cfg.key(s.rng("past"))}
	}
	s.after(s.disk(), func() {
		rows := make([]mesh.Row, len(call.keys))
		for i, k := range call.keys {
			rows[i] = s.store.Load(k)
		}
		call.horizon = s.store.Horizon()
		s.fetch(call, c.session.Past(rows, call.keys, s.cfg.Concurrent))
	})
}

func (s *meshStorm) fetch(call *meshCall, p *mesh.Past) {
	s.after(s.disk(), func() {
		if len(p.Wants()) > 0 {
			p.Fetched(s.store.Fetch(p.Wants()))
			s.fetch(call, p)
			return
		}
		c := call.client
		c.busy = false
		items := c.session.TookPast(p)
		s.log("%s reads %v past the servers: %v, and is %v", c.name, call.keys, items, c.session)
		if len(c.session.Bare) > 0 {
			s.sometimes("the journal has truncated what is read past the servers")
		}
		s.saw(c, call, items)
		s.think(c)
	})
}

// saw adds what a client has read to the histories.
func (s *meshStorm) saw(c *meshClient, call *meshCall, items []mesh.Item) {
	var after []int
	if c.last >= 0 {
		after = []int{c.last}
	}
	s.remain(c, call, items)
	c.last = len(s.acts)
	s.acts = append(s.acts, check.Act{Session: c.name, After: after, Reads: cells(call.keys, items)})
}

// remain judges a read in a space that keeps siblings. The answer must be the siblings that remain
// of all writes that the session has seen.
func (s *meshStorm) remain(c *meshClient, call *meshCall, items []mesh.Item) {
	for i, k := range call.keys {
		if !s.cfg.Concurrent {
			return
		}
		if len(items[i].Siblings) > 1 {
			s.sometimes("concurrent writes are read")
		}
		if c.saw == nil {
			c.saw = map[string][]mesh.Dot{}
		}
		c.saw[k] = items[i].Dots()
		s.fail(s.store.Same(k, items[i], func(d mesh.Dot) bool {
			return c.session.Knows(d) || call.view.Retired(d.Incarnation) || s.store.Older(d, call.horizon) || slices.ContainsFunc(c.session.Bare, func(b mesh.Dot) bool { return s.store.Causes(b, d) })
		}))
	}
}

// cells returns what was read, for the histories.
func cells(keys []string, items []mesh.Item) (out []check.Cell) {
	for i, k := range keys {
		cell := check.Cell{Key: k, Gone: !items[i].Exists}
		if items[i].Stamp.Incarnation != 0 { // otherwise the write was external, or from before the simulation
			cell.Write = items[i].Stamp.String()
		} else if items[i].Exists {
			continue
		}
		out = append(out, cell)
	}
	return out
}
