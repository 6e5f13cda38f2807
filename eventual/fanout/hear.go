package fanout

import (
	"maps"
	"slices"

	"github.com/freshet-cache/freshet/feed"
)

// received takes a message, unless it is of an incarnation that has ended.
func (m *Node) received(in Received) {
	if in.From == m.opt.Self {
		if h, ok := in.Message.(Heartbeat); ok { // it came back
			if own, ok := m.sent[h.Beat]; ok {
				m.cover = max(m.cover, own.at) // Q2
			}
		}
		return
	}
	if m.ended.Has(in.From) || m.state == over {
		return
	}
	switch msg := in.Message.(type) {
	case Heartbeat:
		m.heartbeat(in.From, msg)
	case Notice:
		m.notice(in.From, msg)
	case Missing:
		m.resend(in.From, msg)
	case Snapshot:
		m.snapshot(in.From, msg)
	case Leave:
		m.left(in.From, msg)
	}
}

// heartbeat takes what another incarnation says of itself and of those it hears.
func (m *Node) heartbeat(id Incarnation, h Heartbeat) {
	p := m.meet(id)
	m.witness(id, p, h)
	if h.Beat <= p.beat {
		return // a later one was heard
	}
	first := p.beat == 0
	p.beat, p.server = h.Beat, h.Server
	p.heard = append(p.heard, heard{h.Beat, m.now, m.tick()})
	p.heard = p.heard[max(0, len(p.heard)-beats):]
	said := standing{h.Beat, h.Last, h.Echoes}
	p.heardOf = max(p.heardOf, said.echo(m.opt.Self))
	m.prepare() // P4
	m.resume()
	p.feed.Heard(h.Last)
	if !p.adopted && (h.Last <= p.feed.Applied() || h.Marks == 0) {
		m.adopt(p, h.Last, nil)
	}
	if len(p.pending) == mostPending {
		p.pending = p.pending[:mostPending-1] // the older ones are complete earlier
	}
	p.pending = append(p.pending, said)
	m.settle(p)
	if first && h.Hello && m.beat > 0 {
		if slices.ContainsFunc(h.Echoes, func(e Echo) bool { return e.Of == m.opt.Self }) {
			p.cover = m.now // Q6
		}
		m.say()
	}
	m.request(id, p)
}

// request asks for what is missing (Q4).
func (m *Node) request(id Incarnation, p *peer) {
	if !p.adopted {
		m.put(Send{id, Missing{}})
		return
	}
	if from, to, ok := p.feed.Gap(mostSay); ok {
		m.put(Send{id, Missing{From: from, To: to}})
	}
}

// witness notes who is known to live without a registry (L3).
func (m *Node) witness(id Incarnation, p *peer, h Heartbeat) {
	if h.Beat > p.beat {
		p.witness, p.evidence = max(p.witness, h.Beat), m.now
	}
	for _, e := range h.Echoes {
		if q := m.peers[e.Of]; q != nil && e.Beat > q.witness {
			q.witness, q.evidence = e.Beat, m.now
		}
	}
}

// settle takes what heartbeats say whose notices have all been applied (Q2).
func (m *Node) settle(p *peer) {
	for p.adopted && len(p.pending) > 0 && p.pending[0].last <= p.feed.Applied() {
		p.covered = p.pending[0]
		p.pending = p.pending[1:]
		if own, ok := m.sent[p.covered.echo(m.opt.Self)]; ok {
			p.cover = max(p.cover, own.at)
		}
	}
	maps.DeleteFunc(p.closed, func(by, _ uint64) bool { return by <= p.feed.Applied() })
}

// notice takes a notice, in whatever order it comes (Q1).
func (m *Node) notice(id Incarnation, n Notice) {
	p := m.meet(id)
	verdict := p.feed.Receive(n.Number)
	switch {
	case verdict == feed.Repeat:
		return
	case n.Closes == 0:
		m.dirty(p, n.Number, n.Names)
	default:
		m.unmark(p.marks[n.Closes])
		m.invalidate(p.marks[n.Closes])
		delete(p.marks, n.Closes)
		if m.invalidate(n.Names); verdict == feed.New {
			p.closed[n.Number] = n.Closes
		}
	}
	m.settle(p)
}

// dirty marks names, unless their mutation has been closed (Q1).
func (m *Node) dirty(p *peer, number uint64, names []string) {
	for _, closed := range p.closed {
		if closed == number {
			return
		}
	}
	if _, ok := p.marks[number]; !ok {
		p.marks[number] = names
		m.mark(names)
	}
}

// mark flags the entries of names, and those that will be kept (R4).
func (m *Node) mark(names []string) {
	for _, name := range names {
		m.marked[name]++
		for _, key := range m.touched(name) {
			if e := m.entries[key]; !e.grant.Marked {
				e.grant.Marked = true
				m.put(Flag{key})
			}
		}
	}
}

func (m *Node) unmark(names []string) {
	for _, name := range names {
		if m.marked[name]--; m.marked[name] == 0 {
			delete(m.marked, name)
		}
	}
}

// snapshot takes what stands for notices that are no longer there (Q4).
func (m *Node) snapshot(id Incarnation, s Snapshot) {
	p := m.meet(id)
	if p.adopted && s.Last <= p.feed.Applied() {
		return // it is late
	}
	m.adopt(p, s.Last, s.Marks)
	m.settle(p)
}

// adopt takes that an incarnation has published up to last, of which marks are under way. If some of
// that was not heard, nothing that was loaded before counts any more.
func (m *Node) adopt(p *peer, last uint64, marks []Mark) {
	unheard := p.feed.Adopt(last)
	p.adopted = true
	if !unheard {
		return
	}
	for _, number := range slices.Sorted(maps.Keys(p.marks)) {
		if number <= last {
			m.unmark(p.marks[number])
			delete(p.marks, number)
		}
	}
	m.dropAll()
	for _, k := range marks {
		m.dirty(p, k.Number, k.Names)
	}
}

// resend answers who lacks notices of this incarnation.
func (m *Node) resend(to Incarnation, in Missing) {
	if in.From > 0 {
		if notices, ok := m.feed.Resend(in.From, in.To, mostSay); ok {
			for _, n := range notices {
				m.put(Send{to, n})
			}
			return
		}
	}
	s := Snapshot{Last: m.feed.Last()}
	for _, number := range slices.Sorted(maps.Keys(m.own)) {
		s.Marks = append(s.Marks, Mark{Number: number, Names: m.own[number]})
	}
	m.put(Send{to, s})
}
