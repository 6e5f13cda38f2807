package sim

import (
	"slices"

	"github.com/freshet-cache/freshet/causal/mesh"
	"github.com/freshet-cache/freshet/causal/wire"
	"github.com/freshet-cache/freshet/ticks"
)

// enter opens the connection of a server in its view.
func (s *meshStorm) enter(n *meshNode) {
	v := n.m.View()
	i := slices.Index(v.Ring, n.incarnation)
	if i < 0 {
		return
	}
	n.link = &meshLink{from: n, to: s.nodes[v.Ring[(i+1)%len(v.Ring)]-1], view: v.Number, streams: map[int]*[2]wire.Stream{}}
	s.connect(n.link)
}

// connect opens a connection, and tries again until the other side has entered the view.
func (s *meshStorm) connect(l *meshLink) {
	l.conn++
	conn := l.conn
	s.after(spread(s.rng("net"), s.cfg.Delay), func() {
		switch {
		case l.conn != conn || l.from.down || l.from.link != l:
		case s.frozen || l.to.down || l.to.m == nil || l.to.m.View().Number < l.view:
			s.after(s.cfg.Delay+1, func() {
				if l.conn == conn {
					s.connect(l)
				}
			})
		default:
			s.step(l.to, mesh.Opened{View: l.view})
		}
	})
}

func (s *meshStorm) send(n *meshNode, out mesh.Send) {
	r, d := s.rng("net"), spread(s.rng("net"), s.cfg.Delay)
	if chance(r, s.cfg.Crawl) && !s.calm {
		d *= 20
	}
	switch m := out.Message.(type) {
	case mesh.Snapshot:
		b := new(wire.Stream).Append(nil, m)
		s.after(d, func() { s.joined(s.nodes[out.To-1], b) })
	case mesh.Resync:
		back := s.nodes[out.To-1]
		l := back.link
		if l == nil || l.view != m.View || l.to != n {
			return
		}
		b, conn := new(wire.Stream).Append(nil, m), l.conn
		l.back = max(l.back, s.now+d)
		s.after(l.back-s.now, func() { s.arrive(l, conn, back, new(wire.Stream), b) })
	default:
		l, conn := n.link, n.link.sends
		if l.streams[conn] == nil {
			l.streams[conn] = &[2]wire.Stream{}
		}
		b, in := l.streams[conn][0].Append(nil, m), &l.streams[conn][1]
		l.there = max(l.there, s.now+d)
		chain := 0
		switch m.(type) {
		case mesh.Chain, mesh.Named:
			chain = 1
		}
		s.flying += chain
		s.after(l.there-s.now, func() { s.flying -= chain; s.arrive(l, conn, l.to, in, b) })
	}
}

func (s *meshStorm) arrive(l *meshLink, conn int, to *meshNode, in *wire.Stream, b []byte) {
	if s.frozen {
		s.postponed = append(s.postponed, func() { s.arrive(l, conn, to, in, b) })
		return
	}
	if conn != l.conn {
		return
	}
	m, err := in.Decode(b)
	if s.fail(err); err != nil {
		return
	}
	if _, ok := m.(mesh.Resync); ok {
		l.sends, l.up = conn, true
	}
	s.step(to, mesh.Received{Message: m})
}

// cut breaks a connection. Its sender notices later, and opens another.
func (s *meshStorm) cut(n *meshNode) {
	l := n.link
	if s.calm || l == nil || !l.up {
		return
	}
	s.sometimes("a connection breaks")
	l.conn++
	l.up = false
	s.after(spread(s.rng("net"), s.cfg.Delay), func() {
		if n.link == l {
			s.step(n, mesh.Broken{})
			s.after(spread(s.rng("net"), 3*s.cfg.Delay), func() { s.connect(l) })
		}
	})
}

// healthy returns how many members of the ring run and have joined.
func (s *meshStorm) healthy() (n int) {
	for _, o := range s.view.Ring {
		if m := s.nodes[o-1]; !m.down && m.m != nil {
			n++
		}
	}
	return n
}

// crash ends an incarnation. The coordinator removes it later, and a new incarnation may join.
func (s *meshStorm) crash(n *meshNode) {
	if s.calm || n.down || slices.Contains(s.view.Ring, n.incarnation) && s.healthy() < 2 {
		return
	}
	s.sometimes("a server crashes")
	s.log("server %d crashes", n.incarnation)
	s.stop(n)
	r := s.rng("coordinator")
	s.after(spread(r, 20*s.cfg.Delay), func() { s.exclude(n) })
	if chance(r, 70) {
		s.after(spread(r, 30*s.cfg.Delay), s.join)
	}
}

// suspect removes a running server from the ring. The server goes on until it hears of that.
func (s *meshStorm) suspect(n *meshNode) {
	if s.calm || n.down || s.healthy() < 2 {
		return
	}
	s.sometimes("a server is suspected")
	s.exclude(n)
}

func (s *meshStorm) exclude(n *meshNode) {
	if i := slices.Index(s.view.Ring, n.incarnation); i >= 0 && len(s.view.Ring) > 1 {
		v := s.following()
		v.Ring = slices.Delete(v.Ring, i, i+1)
		v.Departed = append(v.Departed, n.incarnation)
		s.announce(v)
		if s.cfg.Async {
			s.bring(n.incarnation)
		}
	}
}

// join adds a new incarnation to the ring, at any position.
func (s *meshStorm) join() {
	if s.calm || len(s.view.Ring) > 6 {
		return
	}
	s.sometimes("a server joins")
	v := s.following()
	v.Newest++
	n := &meshNode{incarnation: v.Newest}
	s.nodes = append(s.nodes, n)
	v.Ring = slices.Insert(v.Ring, s.rng("coordinator").IntN(len(v.Ring)+1), n.incarnation)
	s.announce(v)
	s.beg(n)
}

// beg asks the predecessor in the current ring for a snapshot, again and again until it comes.
func (s *meshStorm) beg(n *meshNode) {
	i := slices.Index(s.view.Ring, n.incarnation)
	if n.m != nil || i < 0 {
		return
	}
	back, view := s.nodes[s.view.Ring[(i+len(s.view.Ring)-1)%len(s.view.Ring)]-1], s.view.Number
	d := spread(s.rng("net"), s.cfg.Delay)
	s.after(d, func() { s.step(back, mesh.Asked{From: n.incarnation, View: view}) })
	s.after(4*d+s.cfg.Delay*20, func() { s.beg(n) })
}

// joined begins a server with a snapshot.
func (s *meshStorm) joined(n *meshNode, b []byte) {
	m, err := new(wire.Stream).Decode(b)
	if s.fail(err); err != nil || n.m != nil || n.down {
		return
	}
	c := m.(mesh.Snapshot)
	if c.View != s.view.Number { // the predecessor may be another server in the current view
		s.sometimes("a snapshot comes too late")
		return
	}
	opt := s.options(n.incarnation)
	opt.Copy = &c
	n.m = mesh.New(opt)
	n.m.Check()
	s.checkRing()
	s.enter(n)
}

func (s *meshStorm) retire(o mesh.Incarnation) {
	if i := slices.Index(s.view.Departed, o); i >= 0 {
		s.sometimes("an incarnation is retired")
		v := s.following()
		v.Departed = slices.Delete(v.Departed, i, i+1)
		s.announce(v)
	}
}

// end is when the leases of departed incarnations end: they answer no client after that.
func (s *meshStorm) end(incarnations []mesh.Incarnation) {
	for _, o := range incarnations {
		s.stop(s.nodes[o-1])
	}
}

// stop ends an incarnation, and frees the clients that wait for it.
func (s *meshStorm) stop(n *meshNode) {
	if n.down {
		return
	}
	n.down = true
	for op, c := range s.open { // in any order: each only frees its client
		if c.server == n {
			delete(s.open, op)
			c.client.busy = false
		}
	}
	for _, c := range s.clients {
		if !c.busy {
			s.think(c)
		}
	}
}

// following returns the current view with the next number.
func (s *meshStorm) following() mesh.View {
	v := s.view
	v.Number++
	v.Ring, v.Departed = slices.Clone(v.Ring), slices.Clone(v.Departed)
	return v
}

// announce sends a view to every server, with a delay of its own. Servers that are not in the ring
// may hear of it very late.
func (s *meshStorm) announce(v mesh.View) {
	s.view = v
	s.log("view %+v", v)
	for _, n := range s.nodes {
		d := spread(s.rng("coordinator"), 3*s.cfg.Delay)
		if !slices.Contains(v.Ring, n.incarnation) {
			d *= ticks.Tick(1 + s.rng("coordinator").IntN(100))
		}
		s.after(d, func() {
			if n.m != nil && !n.down && n.m.View().Number < v.Number {
				s.step(n, mesh.Viewed{View: v})
				s.enter(n)
			}
		})
	}
}
