package fanout

import (
	"math"
	"slices"

	"github.com/freshet-cache/freshet/ticks"
)

// mutation is a write that was permitted and is not closed yet.
type mutation struct {
	numbers []uint64 // of the notices that announced it
	names   []string
	proceed bool
	set     bool // its value may be kept (R5)
	tags    []string
	count   uint64
	began   uint64
	started ticks.Tick
	unknown bool       // the caller has been answered
	until   ticks.Tick // then the write has landed, or never will (P3)
	token   Token
	wants   [][]string // names that are not announced yet: the tier is not marked, or others come first
	asked   uint64     // the server of the tier that was asked to mark
	marked  ticks.Tick
	on      uint64 // the server on which it is marked
	waits   bool   // until nobody uses the tier
	written bool   // the write was permitted
}

const mostNames = 256 // in one notice

// refused says why a mutation is not permitted.
func (m *Node) refused(in Mutate) Reason {
	switch {
	case m.state != running:
		return Ended
	case !m.ready: // P4
		return NotReady
	case !in.Proceed && !m.opt.NoRegistry && m.now >= m.lease(): // P5
		return Isolated
	case len(m.mutations) >= m.opt.Mutations || m.mutations[in.Op] != nil:
		return Busy
	}
	return Permitted
}

// mutate announces a mutation and permits its write (P3).
func (m *Node) mutate(in Mutate) {
	if why := m.refused(in); why != Permitted {
		m.put(Done{Op: in.Op, Refused: why, Status: Failed, Token: in.Token})
		return
	}
	u := &mutation{set: in.Set && len(in.Names) > 0, tags: in.Tags, started: m.now, began: m.tick(), token: m.normal(in.Token)}
	m.mutations[in.Op] = u
	u.proceed = in.Proceed
	u.wants = [][]string{in.Names}
	m.begins(in.Op, u, m.reaches())
}

// writeUntil returns until when a write may be sent: under the lease (P5), and within S of its mark in
// the tier, which expires S and W after it (T5).
func (m *Node) writeUntil(u *mutation) ticks.Tick {
	until := ticks.Tick(math.MaxInt64)
	if !u.proceed && !m.opt.NoRegistry {
		until = m.lease()
	}
	if u.on != 0 {
		until = min(until, u.marked+m.opt.Stale)
	}
	return until
}

// announce marks names here and publishes them (P1, P3).
func (m *Node) announce(u *mutation, names []string) {
	for part := range slices.Chunk(names, mostNames) {
		n := Notice{Number: m.feed.Next(), Names: slices.Clone(part)}
		m.feed.Append(n)
		m.own[n.Number] = n.Names
		u.numbers, u.names = append(u.numbers, n.Number), append(u.names, n.Names...)
		m.mark(n.Names)
		m.put(Send{0, n})
	}
}

// discovered announces names that the write itself has found.
func (m *Node) discovered(in Discovered) {
	u := m.mutations[in.Op]
	if u == nil || !u.written || u.unknown {
		return
	}
	if u.wants = append(u.wants, in.Names); len(u.wants) == 1 {
		m.begins(in.Op, u, u.on)
	}
}

// wrote takes the outcome of a write. One whose outcome is not known may still land (P3).
func (m *Node) wrote(in Wrote) {
	u := m.mutations[in.Op]
	if u == nil || u.unknown || !u.written {
		return
	}
	if in.Status == Unknown {
		u.unknown, u.until = true, m.now+ticks.Lengthen(m.opt.Land, 2*m.opt.Drift)
		m.put(Done{Op: in.Op, Status: Unknown, Token: u.token})
		return
	}
	keep := in.Status == OK && u.set && m.alone(u)
	m.end(in.Op, u)
	if keep {
		m.keep(u.names[0], 0, in.Op, entry{tags: u.tags, grant: Grant{Started: u.started}, seen: m.beat, began: u.began})
	}
	if in.Status == OK {
		u.token = m.add(u.token, Moment{Of: m.opt.Self, Beat: m.beat, Elsewhere: false}) // S1
	}
	m.put(Done{Op: in.Op, Status: in.Status, Token: u.token})
	m.leave()
}

// alone reports whether no notice but the mutation's own has named its key or tags since it was
// announced, and nothing else marks them (R5).
func (m *Node) alone(u *mutation) bool {
	if m.counts.Since(u.count, u.names[0], u.tags) {
		return false
	}
	for _, name := range append(slices.Clone(u.tags), u.names[0]) {
		mine := 0
		for _, n := range u.names {
			if n == name {
				mine++
			}
		}
		if m.marked[name] > mine {
			return false
		}
	}
	return true
}

// end closes a mutation here and publishes that (P3).
func (m *Node) end(op Op, u *mutation) {
	delete(m.mutations, op)
	if u.on != 0 {
		m.put(UnmarkTier{op, u.on, u.names})
	}
	for _, number := range u.numbers {
		names := m.own[number]
		delete(m.own, number)
		m.unmark(names)
		m.invalidate(names)
		n := Notice{Number: m.feed.Next(), Closes: number, Names: names}
		m.feed.Append(n)
		m.put(Send{0, n})
	}
}
