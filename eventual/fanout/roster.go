package fanout

import (
	"cmp"
	"maps"
	"slices"

	"github.com/freshet-cache/freshet/feed"
	"github.com/freshet-cache/freshet/ticks"
)

// peer is what a node knows of another incarnation.
type peer struct {
	feed     *feed.Receiver
	adopted  bool // what it has published up to Applied is known
	order    uint64
	beat     uint64 // the largest heard
	heardOf  uint64 // the largest own heartbeat that it echoes
	server   uint64 // that it names in its newest heartbeat (T4)
	heard    []heard
	pending  []standing // its heartbeats that say more than has been applied
	cover    ticks.Tick // my tick that its newest heartbeat within Applied echoes (Q2)
	covered  standing
	marks    map[uint64][]string
	closed   map[uint64]uint64 // what was closed, by the number of the notice that closed it
	evidence ticks.Tick        // when it was last known to live (L3)
	witness  uint64            // the largest beat that anybody is known to have heard
}

// heard is when a heartbeat was heard, or sent.
type heard struct {
	beat  uint64
	at    ticks.Tick
	order uint64
}

// standing is what a heartbeat says once all notices up to last have been applied.
type standing struct {
	beat, last uint64
	echoes     []Echo
}

const mostPending = 16

func (s standing) echo(of Incarnation) uint64 {
	if i, ok := slices.BinarySearchFunc(s.echoes, of, func(e Echo, of Incarnation) int { return cmp.Compare(e.Of, of) }); ok {
		return s.echoes[i].Beat
	}
	return 0
}

// TTL returns how long the registry keeps an incarnation that does not renew (L2).
func (o Options) TTL() ticks.Tick {
	o.defaults()
	return ticks.Lengthen(o.Lease+o.Land, 2*o.Drift)
}

// lease returns until when this incarnation may send writes (P5).
func (m *Node) lease() ticks.Tick { return m.renewed + m.opt.Lease }

// registered returns until when the registry certainly has this incarnation, by its own clock.
func (m *Node) registered() ticks.Tick { return m.renewed + m.opt.Lease + m.opt.Land }

const mostAsked = 64

func (m *Node) ask(renew bool, what func(seq uint64) Output) {
	m.seq++
	m.asked[m.seq] = request{m.now, m.tick(), renew}
	delete(m.asked, m.seq-mostAsked) // its answer counts no more
	m.put(what(m.seq))
}

func (m *Node) renewal(in Renewed) {
	r, ok := m.asked[in.Seq]
	if delete(m.asked, in.Seq); !ok || !r.renew || m.state == over {
		return
	}
	switch in.Status {
	case OK:
		m.renewed = max(m.renewed, r.at)
		if m.share.named == 0 && r.order >= m.share.order { // T5: it was asked when none was named
			m.share.told = true
			m.resume()
		}
	case Failed:
		m.expelled()
	}
}

// expelled ends an incarnation that the registry has struck out.
func (m *Node) expelled() {
	m.state = over
	m.put(Expelled{})
}

// survey takes who is registered. Nobody is struck out by an answer that did not come (L4), or by an
// older one.
func (m *Node) survey(in Listed) {
	r, ok := m.asked[in.Seq]
	if delete(m.asked, in.Seq); !ok || r.renew || m.state == over || in.Status != OK || r.order < m.listed {
		return
	}
	m.listed = r.order
	if in.Epoch > m.share.epoch { // T5
		m.share.epoch = in.Epoch
		m.reached(Reached{m.share.run})
	}
	if !slices.Contains(in.Members, m.opt.Self) { // it was asked after this incarnation had registered
		m.expelled()
		return
	}
	for _, id := range slices.Sorted(maps.Keys(m.peers)) {
		if !slices.Contains(in.Members, id) && m.peers[id].order < r.order {
			m.strike(id)
		}
	}
	for _, id := range in.Members {
		if id == m.opt.Self || m.ended.Has(id) {
			continue
		}
		m.meet(id)
	}
	m.surveyed = true
	m.prepare()
}

// meet returns what is known of an incarnation, from now on if nothing was.
func (m *Node) meet(id Incarnation) *peer {
	p := m.peers[id]
	if p == nil {
		p = &peer{feed: feed.NewReceiver(m.opt.Ring), order: m.tick(), cover: never, marks: map[uint64][]string{}, closed: map[uint64]uint64{}, evidence: m.now}
		m.peers[id] = p
	}
	return p
}

// prepare finds out whether this incarnation may write (P4).
func (m *Node) prepare() {
	ready := m.surveyed
	for _, p := range m.peers {
		ready = ready && p.heardOf > 0
	}
	m.ready = m.ready || ready
}

// strike ends an incarnation of which nobody knows what it did last (L2).
func (m *Node) strike(id Incarnation) {
	p := m.peers[id]
	for _, number := range slices.Sorted(maps.Keys(p.marks)) {
		if m.opt.Linger > 0 { // L5
			m.orphans = append(m.orphans, orphan{p.marks[number], m.now + m.opt.Linger})
			m.mark(p.marks[number])
		}
	}
	m.forget(id)
	m.dropAll()
}

// forget removes an incarnation for good.
func (m *Node) forget(id Incarnation) {
	for _, names := range m.peers[id].marks {
		m.unmark(names)
	}
	delete(m.peers, id)
	m.ended.Add(id)
	m.prepare()
}

// left takes another incarnation's Leave (L1).
func (m *Node) left(id Incarnation, in Leave) {
	p := m.meet(id)
	if !p.adopted || p.feed.Applied() < in.Last {
		m.strike(id)
		return
	}
	m.forget(id)
}

// leave ends this incarnation once none of its mutations is under way (L1).
func (m *Node) leave() {
	if m.state != leaving || len(m.mutations) > 0 {
		return
	}
	m.state = over
	m.put(Send{0, Leave{Last: m.feed.Last()}})
	if !m.opt.NoRegistry {
		m.put(Deregister{})
	}
}

// silence strikes out, without a registry, the incarnations that nobody has heard of for S and W
// while this one heard itself (L3).
func (m *Node) silence() {
	wait := ticks.Lengthen(m.opt.Stale+m.opt.Land, 2*m.opt.Drift)
	deaf := m.now-m.cover > m.opt.Stale
	for _, id := range slices.Sorted(maps.Keys(m.peers)) {
		switch p := m.peers[id]; {
		case deaf:
			p.evidence = m.now
		case m.now-p.evidence > wait:
			m.strike(id)
		}
	}
	if first, ok := m.sent[1]; !m.surveyed && !deaf && (!ok || m.now-first.at > m.opt.Stale) {
		m.surveyed = true
	}
	m.prepare()
}
