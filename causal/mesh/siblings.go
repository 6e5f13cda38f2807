package mesh

import "slices"

// to returns what a write does to a key, or nil.
func (w *Write) to(name string) *Mut {
	if i := slices.IndexFunc(w.Muts, func(m Mut) bool { return m.Key == name }); i >= 0 {
		return &w.Muts[i]
	}
	return nil
}

// replaces reports whether the author of a write of a key had seen another one (S1). An external
// write names no writes, so stamps decide.
func (w *Write) replaces(name string, o *Write) bool {
	if w.Dot == (Dot{}) || o.Dot == (Dot{}) {
		return o.Stamp.Less(w.Stamp)
	}
	return slices.Contains(w.to(name).Supersedes, o.Dot)
}

// join adds a write to a set of siblings of a key, ordered by stamp. It does not modify the given
// set. A caller that adds several writes adds causes first, because a replaced write may have
// replaced others.
func join(name string, set []*Write, w *Write) []*Write {
	out, replaced := make([]*Write, 0, len(set)+1), false
	for _, o := range set {
		if o.Dot == w.Dot && o.Stamp == w.Stamp {
			return set
		}
		if !w.replaces(name, o) {
			out = append(out, o)
		}
		replaced = replaced || o.replaces(name, w)
	}
	if replaced {
		return out
	}
	i, _ := slices.BinarySearchFunc(out, w, byStamp)
	return slices.Insert(out, i, w)
}

// siblings returns the item of a key that holds a set of writes. Its stamp is at least low. Its
// value is that of the write with the largest stamp that is not a deletion.
func siblings(name string, set []*Write, low Stamp) Item {
	it := Item{Stamp: low, Siblings: set}
	for _, w := range set {
		if m := w.to(name); !m.Delete {
			it.Exists, it.Value = true, m.Value
		}
		if it.Stamp.Less(w.Stamp) {
			it.Stamp = w.Stamp
		}
	}
	return it
}

// Of returns the item of a key with all Siblings, in whatever order they came.
func (it Item) Of(name string) Item {
	var set []*Write
	for _, w := range it.Siblings {
		set = join(name, set, w)
	}
	return siblings(name, set, it.Stamp)
}

// Dots returns the dots of the siblings that a key holds. A Mut whose author has seen the item
// supersedes them.
func (it Item) Dots() (out []Dot) {
	for _, w := range it.Siblings {
		if w.Dot != (Dot{}) {
			out = append(out, w.Dot)
		}
	}
	return out
}

// mergeInto joins a write that has become visible with the siblings of its key. A key that is not
// in memory is left to the next miss, because only the store has its other siblings (S2).
func (s *Server) mergeInto(m Mut, w *Write) {
	k := s.cache[m.Key]
	if k == nil {
		return
	}
	was := k.Siblings
	k.Item = siblings(k.name, join(k.name, was, w), k.Stamp)
	if !k.complete {
		k.gone = append(k.gone, m.Supersedes...) // S3
		return
	}
	for _, o := range append(slices.Clone(was), w) { // T2
		if !slices.Contains(k.Siblings, o) {
			i, _ := slices.BinarySearchFunc(k.past, o, byStamp)
			k.past = slices.Insert(k.past, i, o)
		}
	}
	for len(k.past) >= max(1, s.opt.Versions) {
		o := k.past[0]
		k.past = slices.Delete(k.past, 0, 1)
		for _, w := range append(slices.Clone(k.past), k.Siblings...) {
			if w.replaces(k.name, o) {
				k.needs = join(k.name, k.needs, w)
			}
		}
	}
}

// mergeRow takes the row of a key that was loaded. The visible writes of the row join those that
// became visible since, except writes that were replaced since (S3). If all of the row is visible,
// the key is complete (M12).
func (s *Server) mergeRow(k *key, row Row) {
	var set []*Write
	complete := true
	for _, w := range row.Siblings {
		switch {
		case w.Dot != (Dot{}) && !s.shows(w.Dot):
			complete = false
		case !slices.Contains(k.gone, w.Dot):
			set = join(k.name, set, w)
		}
	}
	for _, w := range k.Siblings {
		set = join(k.name, set, w)
	}
	k.Item, k.complete = siblings(k.name, set, row.Stamp), complete
	if k.past, k.needs, k.from = nil, set, (Frontier{}); row.Stamp.Time > 0 {
		k.from = s.visible.share()
	}
	if complete {
		k.gone = nil
	}
}

// mixed returns a key's value in a snapshot, and false if memory does not have it any more. Memory
// has it if writes within the snapshot have replaced all that was forgotten (T2). A tombstone may
// have been collected that the snapshot does not contain, so a loaded row says nothing of older
// snapshots.
func (s *Server) mixed(k *key, at Snap) (Item, bool) {
	for _, w := range k.needs {
		if w.Dot != (Dot{}) && !at.Has(w.Dot) {
			return Item{}, false
		}
	}
	if !at.contains(k.from) {
		return Item{}, false
	}
	var set []*Write
	for _, w := range append(slices.Clone(k.past), k.Siblings...) {
		if w.Dot == (Dot{}) || at.Has(w.Dot) {
			set = join(k.name, set, w)
		}
	}
	return siblings(k.name, set, Stamp{}), true
}

// live returns how many siblings of a key are not deletions.
func (it Item) live(name string) (n int) {
	for _, w := range it.Siblings {
		if !w.to(name).Delete {
			n++
		}
	}
	return n
}

// changed reports whether a key has changed since a transaction read it (T3). It has if there is a
// newer write, or fewer siblings than were read.
func (s *Server) changed(in *Look, seen Seen, now Item) bool {
	if !s.opt.Concurrent {
		return seen.Stamp.Less(now.Stamp)
	}
	for _, w := range now.Siblings {
		if w.Dot != (Dot{}) && !in.At.Has(w.Dot) && !slices.ContainsFunc(in.Carried, func(c *Write) bool { return c.Dot == w.Dot }) {
			return true
		}
	}
	return now.live(seen.Key) < seen.Siblings
}
