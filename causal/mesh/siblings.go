package mesh

import "slices"

// to is what a write does to a key, if anything.
func (w *Write) to(name string) *Mut {
	if i := slices.IndexFunc(w.Muts, func(m Mut) bool { return m.Key == name }); i >= 0 {
		return &w.Muts[i]
	}
	return nil
}

// replaces reports whether a write of a key was made in sight of another one (S1). What
// came from outside saw nothing: there the stamps decide.
func (w *Write) replaces(name string, o *Write) bool {
	if w.Dot == (Dot{}) || o.Dot == (Dot{}) {
		return o.Stamp.Less(w.Stamp)
	}
	return slices.Contains(w.to(name).Supersedes, o.Dot)
}

// join adds a write to those of a key of which none replaces another, by stamp. The set it
// is given stays as it is. Whoever adds several adds causes first: what is replaced may
// have replaced others.
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

// siblings is the item of a key that holds a set of writes: its stamp is at least low, and
// its value that of the largest one that is not a deletion.
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

// Of is the item of a key with all Siblings, in whichever order they came.
func (it Item) Of(name string) Item {
	var set []*Write
	for _, w := range it.Siblings {
		set = join(name, set, w)
	}
	return siblings(name, set, it.Stamp)
}

// Dots are the writes that a key holds, where concurrent ones are kept: what a Mut is to
// replace that was made in sight of it.
func (it Item) Dots() (out []Dot) {
	for _, w := range it.Siblings {
		if w.Dot != (Dot{}) {
			out = append(out, w.Dot)
		}
	}
	return out
}

// mergeInto lets a write that has become visible join those of its key. A key that is not in
// memory waits for the next miss: the store has what it would have to join (S2).
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

// mergeRow takes the row of a key that was asked for. What of it is visible joins what has
// become visible since, but for what was replaced since (S3); and if all of it is visible,
// the key is known (M12).
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

// mixed is a key's value in a snapshot, if it is still known: what was forgotten of it has
// been replaced within the snapshot (T2). A deletion may be collected that the snapshot does
// not have, so what was loaded after one says nothing of older snapshots.
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

// live is how many writes a key holds that are no deletions.
func (it Item) live(name string) (n int) {
	for _, w := range it.Siblings {
		if !w.to(name).Delete {
			n++
		}
	}
	return n
}

// changed reports whether what a transaction has read of a key is not what there is now
// (T3): something newer, or, of several that it has read, not all.
func (s *Server) changed(in *Look, seen Seen, now Item) bool {
	if !s.opt.Concurrent {
		return seen.Stamp.Less(now.Stamp)
	}
	for _, w := range now.Siblings {
		if w.Dot != (Dot{}) && !in.At.Has(w.Dot) && !slices.ContainsFunc(in.Carried, func(c *Write) bool { return c.Dot == w.Dot }) {
			return true
		}
	}
	return now.live(seen.Key) < seen.Incarnations
}
