package fanout

import (
	"maps"
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
}

// slot returns the place of a name's count (R2): FNV-1a of its bytes.
func (m *Node) slot(name string) *uint64 {
	h := uint64(14695981039346656037)
	for i := range len(name) {
		h = (h ^ uint64(name[i])) * 1099511628211
	}
	return &m.slots[h%uint64(len(m.slots))]
}

// overtaken reports whether one of the names, or everything, was invalidated after a count (R2).
func (m *Node) overtaken(count uint64, key string, tags []string) bool {
	if count < m.floor || *m.slot(key) > count {
		return true
	}
	for _, tag := range tags {
		if *m.slot(tag) > count {
			return true
		}
	}
	return false
}

// touched returns the keys of the entries that a name belongs to, in order.
func (m *Node) touched(name string) []string {
	keys := slices.Sorted(maps.Keys(m.carriers[name]))
	if _, ok := m.entries[name]; ok && !m.carriers[name][name] {
		keys = append(keys, name)
	}
	return keys
}

// invalidate removes the entries of names and overtakes their loads (Q1, R2).
func (m *Node) invalidate(names []string) {
	for _, name := range names {
		m.count++
		*m.slot(name) = m.count
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
	m.count++
	*m.slot(key) = m.count
}

func (m *Node) unindex(key string) {
	e := m.entries[key]
	if e == nil {
		return
	}
	for _, tag := range e.tags {
		if delete(m.carriers[tag], key); len(m.carriers[tag]) == 0 {
			delete(m.carriers, tag)
		}
	}
}

func (m *Node) evicted(key string) {
	if m.entries[key] != nil {
		m.remove(key)
	}
}

// dropAll removes all entries and overtakes all loads.
func (m *Node) dropAll() {
	m.count++
	m.floor = m.count
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
			m.put(Answer{Op: in.Op, Source: Memory, Token: m.add(in.Token, Moment{m.opt.Self, e.seen, false})})
			return
		}
	}
	id, ok := m.joinable[in.Key]
	l := m.loads[id]
	if !ok || m.now-l.started > m.opt.Young || in.Session && !m.joins(in.Token, l) {
		l = m.begin(in.Key) // R3
	}
	l.waiters = append(l.waiters, in)
}

// begin starts a load, which overtakes the load of the key before it.
func (m *Node) begin(key string) *load {
	m.load++
	l := &load{key: key, count: m.count, started: m.now, began: m.tick()}
	m.loads[m.load], m.joinable[key] = l, m.load
	m.put(Load{m.load, key})
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
	kept, was := latest && !m.overtaken(l.count, l.key, in.Tags), m.entries[l.key]
	moment := Moment{m.opt.Self, m.beat, !kept} // S3
	if kept {
		if was != nil && in.Same { // S4
			moment.Beat = was.seen
		}
		m.keep(l.key, in.Load, 0, entry{tags: in.Tags, grant: Grant{Started: l.started}, seen: moment.Beat, began: l.began})
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
	e.ended = m.tick()
	e.tags = slices.Clone(e.tags)
	e.grant.Marked = m.marked[key] > 0 // R4
	for _, tag := range e.tags {
		if m.carriers[tag] == nil {
			m.carriers[tag] = map[string]bool{}
		}
		m.carriers[tag][key] = true
		e.grant.Marked = e.grant.Marked || m.marked[tag] > 0
	}
	m.entries[key] = &e
	m.put(Keep{key, from, op, e.grant})
}

// pageBegan notes the count of invalidations for a page of a prefetch (R6).
func (m *Node) pageBegan(in PageBegan) {
	m.pages[in.Op] = &load{count: m.count, started: m.now, began: m.tick()}
}

// pageLoaded keeps the values of a page that nothing has overtaken.
func (m *Node) pageLoaded(in PageLoaded) {
	l := m.pages[in.Op]
	if l == nil {
		return
	}
	delete(m.pages, in.Op)
	for _, v := range in.Values {
		if e := m.entries[v.Key]; e != nil && e.ended > l.began || m.overtaken(l.count, v.Key, v.Tags) {
			continue // R6: a load of the key that ended meanwhile may be later
		}
		delete(m.joinable, v.Key)
		m.keep(v.Key, 0, in.Op, entry{tags: v.Tags, grant: Grant{Started: l.started}, seen: m.beat, began: l.began})
	}
}
