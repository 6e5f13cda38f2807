package fanout

import (
	"maps"
	"slices"

	"github.com/freshet-cache/freshet/eventual/fanout/names"
	"github.com/freshet-cache/freshet/ticks"
)

// share is what a node knows of the shared tier.
type share struct {
	run    uint64 // the server that the runtime reaches; 0: none
	epoch  uint64 // how many incarnations were struck out that named no server
	target uint64 // where mutations are marked: run and epoch in one number; 0: nowhere
	named  uint64 // the server that heartbeats name, and from which this node fills; 0: none
	since  ticks.Tick
	beat   uint64 // the first heartbeat that names none
	order  uint64 // of that
	told   bool   // the registry has it that this incarnation names none
	former map[uint64]bool

	// What was written without a mark at target, and must be removed there before it is named again.
	// Nobody has filled it since the first of that was written, and nobody will before it is named.
	spoiled  names.Few
	removing bool // a removal is under way
}

// join returns one number for a server and an epoch; 0 only for no server.
func join(run, epoch uint64) uint64 {
	if run == 0 {
		return 0
	}
	return max(1, (run^epoch*0x9e3779b97f4a7c15)*1099511628211)
}

// reached takes which server the runtime reaches.
func (m *Node) reached(in Reached) {
	if !m.opt.Tier {
		return
	}
	s := &m.share
	s.run = in.Server
	server := join(in.Server, s.epoch)
	if s.former[server] {
		server = 0 // what was written since without a mark there is not known any more
	}
	if server != s.target {
		m.unname()
	}
	if server != 0 && server != s.target {
		s.former[s.target] = true
		s.spoiled.Remove()
		s.target, s.removing = server, false
	}
	m.name()
}

// reaches returns the server on which mutations are marked, or 0 if the runtime does not reach it.
func (m *Node) reaches() uint64 {
	if s := &m.share; join(s.run, s.epoch) == s.target {
		return s.target
	}
	return 0
}

// unname names no server any more (T5): what this node writes from now on is marked nowhere.
func (m *Node) unname() {
	s := &m.share
	if s.named == 0 {
		return
	}
	s.named, s.told, s.since, s.beat, s.order, s.removing = 0, false, m.now, m.beat+1, m.tick(), false
	if m.renewed != never {
		m.say()
	}
}

// off reports whether no node uses the tier: all have heard that this one names none, or none of them
// is in step unless it has; and the registry has it, should this node die (T5).
func (m *Node) off() bool {
	s := &m.share
	if s.named != 0 || !s.told {
		return false
	}
	heard := true
	for _, p := range m.peers {
		heard = heard && p.heardOf >= s.beat
	}
	return heard || m.now > s.since+ticks.Lengthen(m.opt.Stale, 2*m.opt.Drift)
}

// usable reports whether all nodes agree on a server (T4).
func (m *Node) usable(server uint64) bool {
	if server == 0 || m.share.named != server || m.now > m.vouched {
		return false
	}
	for _, p := range m.peers {
		if p.beat == 0 || p.server != server {
			return false
		}
	}
	return true
}

// name names the server again, once nothing was or will be written that is not marked there (T5).
func (m *Node) name() {
	s := &m.share
	if s.named != 0 || m.reaches() == 0 || m.state != running {
		return
	}
	for _, u := range m.mutations {
		if u.on != s.target {
			return
		}
	}
	if !s.spoiled.Empty() {
		if !s.removing {
			s.removing = true
			m.put(MarkTier{Server: s.target, Names: s.spoiled.List(), Seq: s.order})
		}
		return
	}
	s.named = s.target
	if m.renewed != never {
		m.say()
	}
}

// begins marks the first wanted names of a mutation in the tier before they are announced (T5).
func (m *Node) begins(op Op, u *mutation, server uint64) {
	if u.asked = server; server == 0 {
		m.permit(op, u)
		return
	}
	if !u.written {
		u.marked = m.now
	}
	m.put(MarkTier{Op: op, Server: u.asked, Names: u.wants[0], TTL: ticks.Lengthen(m.opt.Stale+m.opt.Land, 2*m.opt.Drift)})
}

// tierMarked takes the answer to a mark.
func (m *Node) tierMarked(in TierMarked) {
	s := &m.share
	switch u := m.mutations[in.Op]; {
	case in.Op == 0 && in.Seq == s.order && in.Server == s.target: // else the tier may have been filled since
		s.removing = false
		if in.Status == OK { // else the next tick asks again
			s.spoiled.Remove(in.Names...)
			m.name()
		}
	case in.Op == 0 || u == nil || u.asked != in.Server:
	case in.Status == OK:
		u.asked, u.on = 0, in.Server
		m.permit(in.Op, u)
	default:
		u.asked, u.on = 0, 0
		m.unname()
		s.run = 0 // until the runtime reaches a server again
		m.permit(in.Op, u)
	}
}

// permit announces a mutation and permits its write, once it is marked where all may use it, or nobody
// uses the tier (T5).
func (m *Node) permit(op Op, u *mutation) {
	if !m.opt.Tier || u.on != 0 && u.on == m.share.named || m.off() {
		m.announce(u, u.wants[0])
		if u.on == 0 && m.opt.Tier {
			m.share.spoiled.Add(u.names...)
		}
		u.wants, u.waits = u.wants[1:], false
		if u.written {
			if m.put(Announced{op, m.writeUntil(u)}); len(u.wants) > 0 {
				m.begins(op, u, u.on)
			}
			return
		}
		u.written, u.count = true, m.counts.Now()
		m.put(Write{op, m.writeUntil(u)})
		return
	}
	u.waits = true
}

// resume permits the mutations that have waited.
func (m *Node) resume() {
	for _, op := range slices.Sorted(maps.Keys(m.mutations)) {
		if u := m.mutations[op]; u.waits {
			m.permit(op, u)
		}
	}
}

// fetched takes the tier's answer (T6).
func (m *Node) fetched(in Fetched) {
	l := m.loads[in.Load]
	if l == nil || l.server == 0 || l.loading {
		return
	}
	agreed := in.Status == OK && m.usable(l.server)
	if agreed && in.Found && m.joinable[l.key] == in.Load && !m.counts.Since(l.count, l.key, in.Tags) {
		delete(m.loads, in.Load)
		delete(m.joinable, l.key)
		m.keep(l.key, in.Load, 0, entry{tags: in.Tags, grant: Grant{Started: NeverYoung}, seen: m.beat})
		for _, w := range l.waiters {
			m.put(Answer{Op: w.Op, Source: Shared, Load: in.Load})
		}
		return
	}
	if l.loading = true; agreed && !in.Found {
		l.lease, l.counter = in.Lease, in.Counter
	}
	l.count, l.started, l.began = m.counts.Now(), m.now, m.tick()
	m.put(Load{in.Load, l.key})
}
