package mesh

import "slices"

// key is what the C-cache knows of one key, or will know.
type key struct {
	complete bool // Item is the newest of what is visible; else the newest since the key was pinned
	used     bool // since the hand of the dial passed
	Item
	name  string
	pins  int // operations that wait and want it (M11)
	load  *load
	slot  int       // in the dial
	bytes int       // in memory
	dot   Dot       // of Item
	older []version // larger stamps first
	base  Stamp     // every visible write above it is among the versions

	// Where concurrent writes are kept, instead of older and base:
	past  []*Write // former values, by stamp
	needs []*Write // what was forgotten is replaced by one of them
	from  Frontier // nothing is known of snapshots that lack some of it
	gone  []Dot    // replaced since it was pinned
}

// integrate shows everything in deps. Sessions and writes name causes that are
// visible somewhere, hence here to be shown (M8); and such sets are closed: the
// causes of what is in them are in them too.
func (s *Server) integrate(deps Frontier) {
	if deps.Within(s.visible.Frontier) {
		return
	}
	missing := s.trim(deps).Missing(s.visible.Frontier, s.missing[:0])
	s.missing = missing
	if s.opt.Concurrent { // S1: what replaces comes after what it replaces
		slices.SortFunc(missing, func(a, b Dot) int { return byStamp(s.hidden[a], s.hidden[b]) })
	}
	for _, d := range missing {
		s.place(s.hidden[d])
	}
}

// show makes a write visible, its causes with it (M7).
func (s *Server) show(w *Write) {
	s.integrate(w.Deps)
	for _, d := range w.After {
		if c := s.hidden[d]; c != nil {
			s.place(c)
		}
	}
	if s.hidden[w.Dot] != nil {
		s.place(w)
	}
}

// place moves a write from I to C.
func (s *Server) place(w *Write) {
	delete(s.hidden, w.Dot)
	s.visible.add(w.Dot)
	for _, m := range w.Muts {
		if m.Delete {
			s.dead = max(s.dead, w.Stamp.Time)
		}
		if s.opt.Concurrent {
			s.mergeInto(m, w)
		} else {
			s.install(m, w)
		}
		if k := s.cache[m.Key]; k != nil {
			s.weigh(k)
			s.shrink()
		}
	}
}

// install lets a write that has become visible compete for its key.
func (s *Server) install(m Mut, w *Write) {
	k, stamp, it := s.cache[m.Key], w.Stamp, Item{Exists: !m.Delete, Value: m.Value, Stamp: w.Stamp}
	switch {
	case k == nil && !s.durably(w.Dot) && !s.floor.Less(stamp): // A5: the store does not have it, so the next miss must find it here
		k = s.enlist(m.Key)
		k.restart(it, w.Dot)
	case k == nil && !s.floor.Less(stamp): // M10: something newer may have been here, and the store has it
		return
	case k == nil:
		k = s.enlist(m.Key)
		k.complete = true
		k.restart(it, w.Dot)
	case stamp.Less(k.Stamp): // M9
		s.retain(k, version{it, w.Dot})
		return
	case k.complete:
		was := version{k.Item, k.dot}
		k.Item, k.dot = it, w.Dot
		s.retain(k, was)
	default:
		k.restart(it, w.Dot)
		k.complete = s.floor.Less(stamp) // M10: nothing newer was here
		if !k.complete && k.pins == 0 && !s.kept(k) {
			s.evict(k) // A5: the store has it
		}
	}
}

// enlist makes room in memory for what is to be known of a key.
func (s *Server) enlist(name string) *key {
	k := &key{name: name, slot: len(s.dial)}
	s.dial = append(s.dial, k)
	s.cache[name] = k
	s.weigh(k)
	return k
}

// shrink evicts what was not used for a while until the bound is kept, or nothing
// may go.
func (s *Server) shrink() {
	// Each is looked at twice, and where one goes another is looked at.
	for tries := 3 * len(s.dial); s.full() && tries > 0; tries-- {
		s.hand %= len(s.dial)
		switch k := s.dial[s.hand]; {
		case k.pins > 0 || !k.complete: // M11
			s.hand++
		case s.kept(k): // A4
			s.hand++
		case k.used:
			k.used = false
			s.hand++
		default:
			s.evict(k) // another stands there now
		}
	}
}

// evict forgets a key. A later miss reads a row at least as new as what is
// forgotten, and the floor keeps anything older from being taken for it (M10).
func (s *Server) evict(k *key) {
	if s.floor.Less(k.Stamp) {
		s.floor = k.Stamp
	}
	last := s.dial[len(s.dial)-1]
	s.dial[k.slot], last.slot = last, k.slot
	s.dial[len(s.dial)-1] = nil // else it is kept in memory from here
	s.dial = s.dial[:len(s.dial)-1]
	delete(s.cache, k.name)
	s.bytes -= k.bytes
}

// pin keeps a key, and what is shown of it, until it is released.
func (s *Server) pin(name string) *key {
	k := s.cache[name]
	if k == nil {
		k = s.enlist(name)
	}
	k.pins++
	return k
}

func (s *Server) unpin(name string) {
	k := s.cache[name]
	if k.pins--; k.pins == 0 && !k.complete && !s.kept(k) { // A5
		s.evict(k)
	}
}
