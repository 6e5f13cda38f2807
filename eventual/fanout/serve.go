package fanout

import (
	"slices"

	"github.com/freshet-cache/freshet/ticks"
)

// entry is what a node knows of a value that its runtime keeps.
type entry struct {
	tags  []string
	grant Grant
	seen  uint64 // the own heartbeats that had been sent when its load ended
	began uint64 // the order of its load's start
	ended uint64 // the order of its load's end
}

// load is a question to the store.
type load struct {
	key     string
	count   uint64 // the count of invalidations when it began (R2)
	started ticks.Tick
	began   uint64
	waiters []Read
	server  uint64 // of the tier that was asked first
	loading bool   // and has answered
	lease   uint64
	counter uint64
}

// touched returns the keys of the entries that a name belongs to, in order.
func (m *Node) touched(name string) []string {
	keys := m.carriers.Keys(name)
	if _, ok := m.entries[name]; ok && !m.carriers[name][name] {
		keys = append(keys, name)
	}
	return keys
}

// invalidate removes the entries of names and overtakes their loads (Q1, R2).
func (m *Node) invalidate(names []string) {
	for _, name := range names {
		m.counts.Invalidate(name)
		delete(m.joinable, name) // R3
		for _, key := range m.touched(name) {
			m.remove(key)
			m.put(Drop{key})
		}
	}
}

// remove takes an entry out of the indexes. Loads of the key that are under way are overtaken: what
// they return may be older than what the entry has shown to sessions.
func (m *Node) remove(key string) {
	m.unindex(key)
	delete(m.entries, key)
	delete(m.joinable, key)
	m.counts.Invalidate(key)
}

func (m *Node) unindex(key string) {
	if e := m.entries[key]; e != nil {
		m.carriers.Remove(key, e.tags)
	}
}

// dropAll removes all entries and overtakes all loads.
func (m *Node) dropAll() {
	m.counts.InvalidateAll()
	clear(m.joinable)
	clear(m.entries)
	clear(m.carriers)
	m.put(DropAll{})
}

// read answers from memory or lets the caller wait for a load.
func (m *Node) read(in Read) {
	if in.Session {
		in.Token = m.normal(in.Token)
	}
	if e := m.entries[in.Key]; e != nil && Fresh(m.now, m.vouched, m.opt.Young, e.grant) {
		switch {
		case !in.Session:
			m.put(Answer{Op: in.Op, Source: Memory})
			return
		case !e.grant.Marked && m.shows(in.Token, e.began): // S2
			m.put(Answer{Op: in.Op, Source: Memory, Token: m.add(in.Token, Moment{Of: m.opt.Self, Beat: e.seen, Elsewhere: false})})
			return
		}
	}
	id, ok := m.joinable[in.Key]
	l := m.loads[id]
	if !ok || m.now-l.started > m.opt.Young || in.Session && (l.server != 0 || !m.joins(in.Token, l)) {
		l = m.begin(in.Key, in.Session) // R3
	}
	l.waiters = append(l.waiters, in)
}

// begin starts a load, which overtakes the load of the key before it. A session's goes past the tier.
func (m *Node) begin(key string, past bool) *load {
	m.load++
	l := &load{key: key, count: m.counts.Now(), started: m.now, began: m.tick()}
	m.loads[m.load], m.joinable[key] = l, m.load
	if past || !m.usable(m.share.named) {
		m.put(Load{m.load, key})
	} else { // T6
		l.server = m.share.named
		m.put(Fetch{m.load, l.server, key})
	}
	return l
}

// loaded keeps what the store returned if nothing has overtaken it (R2), and answers those who wait.
func (m *Node) loaded(in Loaded) {
	l := m.loads[in.Load]
	if l == nil {
		return
	}
	delete(m.loads, in.Load)
	latest := m.joinable[l.key] == in.Load
	if latest {
		delete(m.joinable, l.key)
	}
	if in.Status != OK {
		for _, w := range l.waiters {
			m.put(Answer{Op: w.Op, Source: Store, Load: in.Load, Status: in.Status, Token: w.Token})
		}
		return
	}
	kept, was := latest && !m.counts.Since(l.count, l.key, in.Tags), m.entries[l.key]
	moment := Moment{Of: m.opt.Self, Beat: m.beat, Elsewhere: !kept} // S3
	if kept {
		if was != nil && in.Same { // S4
			moment.Beat = was.seen
		}
		m.keep(l.key, in.Load, 0, entry{tags: in.Tags, grant: Grant{Started: l.started}, seen: moment.Beat, began: l.began})
		if l.lease > 0 && m.usable(l.server) { // T4
			m.put(Fill{in.Load, l.server, l.key, l.lease, in.Tags, l.counter})
		}
	}
	for _, w := range l.waiters {
		if w.Session {
			w.Token = m.add(w.Token, moment)
		}
		m.put(Answer{Op: w.Op, Source: Store, Load: in.Load, Token: w.Token})
	}
}

// keep makes a value the entry of its key, with its names in the index in place of those before (R7).
func (m *Node) keep(key string, from LoadID, op Op, e entry) {
	m.unindex(key)
	e.ended, e.tags = m.tick(), slices.Clone(e.tags)
	m.carriers.Add(key, e.tags)
	e.grant.Marked = m.marked[key] > 0 // R4
	for _, tag := range e.tags {
		e.grant.Marked = e.grant.Marked || m.marked[tag] > 0
	}
	m.entries[key] = &e
	m.put(Keep{key, from, op, e.grant})
}

// pageLoaded keeps the values of a page that nothing has overtaken.
func (m *Node) pageLoaded(in PageLoaded) {
	l := m.pages[in.Op]
	if l == nil {
		return
	}
	delete(m.pages, in.Op)
	for _, v := range in.Values {
		if e := m.entries[v.Key]; e != nil && e.ended > l.began || m.counts.Since(l.count, v.Key, v.Tags) {
			continue // R6: a load of the key that ended meanwhile may be later
		}
		delete(m.joinable, v.Key)
		m.keep(v.Key, 0, in.Op, entry{tags: v.Tags, grant: Grant{Started: l.started}, seen: m.beat, began: l.began})
	}
}
