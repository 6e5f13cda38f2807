package mesh

import "slices"

// key is what memory (the paper's C-cache) knows of one key, or waits to know.
type key struct {
	complete bool // Item is the newest visible value; otherwise the newest since the key entered memory
	used     bool // since the hand of the dial last passed it
	Item
	name  string
	pins  int // waiting operations that need it (M11)
	load  *load
	slot  int       // index in the dial
	bytes int       // in memory
	dot   Dot       // of Item
	older []version // larger stamps first
	base  Stamp     // every visible write above it is among the versions

	// In a space that keeps siblings, instead of older and base:
	past  []*Write // former values, by stamp
	needs []*Write // a snapshot must contain all of them, because they replaced what was forgotten (T2)
	from  Frontier // a snapshot must contain this set, because tombstones in it may have been collected (T2)
	gone  []Dot    // dots of the writes that were replaced while the key was incomplete (S3)
}

// integrate makes every write in deps visible. Sessions and writes name causes that are visible at
// some server, so every server has received them (M8). Such a set contains the causes of every
// write in it.
func (s *Server) integrate(deps Frontier) {
	if deps.Within(s.visible.Frontier) {
		return
	}
	missing := s.trim(deps).Missing(s.visible.Frontier, s.missing[:0])
	s.missing = missing
	if s.opt.Concurrent { // S1: a write becomes visible after those that it replaces
		slices.SortFunc(missing, func(a, b Dot) int { return byStamp(s.hidden[a], s.hidden[b]) })
	}
	for _, d := range missing {
		s.place(s.hidden[d])
	}
}

// show makes a write and its causes visible (M7).
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

// place moves a write from hidden (the paper's I-cache) to memory (its C-cache).
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
	case k == nil && !s.durably(w.Dot) && !s.floor.Less(stamp):
		// A5: only memory has the write, so the next miss must find it here.
		k = s.enlist(m.Key)
		k.restart(it, w.Dot)
	case k == nil && !s.floor.Less(stamp): // M10: memory may have forgotten something newer, and the store has it
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
		k.complete = s.floor.Less(stamp) // M10: memory has forgotten nothing newer
		if !k.complete && k.pins == 0 && !s.kept(k) {
			s.evict(k) // A5: the store has it
		}
	}
}

// enlist adds a key to memory, with nothing known of it.
func (s *Server) enlist(name string) *key {
	k := &key{name: name, slot: len(s.dial)}
	s.dial = append(s.dial, k)
	s.cache[name] = k
	s.weigh(k)
	return k
}

// shrink evicts keys that were not used recently until memory is within its bounds, or nothing more
// can be evicted.
func (s *Server) shrink() {
	// The hand passes a key at most twice, and the key that takes an evicted key's slot once more.
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
			s.evict(k) // the last key of the dial takes its slot, so the hand stays
		}
	}
}

// evict forgets a key. A later miss reads a row that is at least as new as the forgotten value, and
// the floor prevents that an older write passes for the newest (M10).
func (s *Server) evict(k *key) {
	if s.floor.Less(k.Stamp) {
		s.floor = k.Stamp
	}
	last := s.dial[len(s.dial)-1]
	s.dial[k.slot], last.slot = last, k.slot
	s.dial[len(s.dial)-1] = nil // the array would keep the key in memory
	s.dial = s.dial[:len(s.dial)-1]
	delete(s.cache, k.name)
	s.bytes -= k.bytes
}

// pin keeps a key in memory, with what becomes visible of it, until unpin.
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
