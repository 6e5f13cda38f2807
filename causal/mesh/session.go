package mesh

import "slices"

// Session is what a workflow has read and written. The session travels with the workflow. It is a
// value: operations on a session do not change its forks. The zero Session has seen nothing.
type Session struct {
	Deps    Frontier // visible at some server, so received by every server
	Carried []*Write // written or read, and perhaps visible nowhere; causes first
	Bare    []Dot    // likewise, but only the names are known: Recall comes first (M18)
	Time    uint64   // the largest that was seen
}

// Read asks for a key. Bare must be empty.
func (s *Session) Read(op Op, key string) Read { return Read{op, key, s.Deps} }

// ReadMany asks for several keys, from one causal cut. Bare must be empty.
func (s *Session) ReadMany(op Op, keys ...string) ReadMany {
	return ReadMany{op, keys, s.Deps}
}

// Put asks to set or delete keys, all at once. Bare must be empty.
func (s *Session) Put(op Op, muts ...Mut) Put {
	return Put{op, muts, s.Deps, s.Carried, s.Time}
}

// Recall asks for the writes in Bare.
func (s *Session) Recall(op Op) Recall { return Recall{op, s.Bare, s.Deps, s.Carried} }

// Took takes the answer to a Read, ReadMany, Put or Recall. It returns what the session sees of
// keys, which must be the keys that were read.
func (s *Session) Took(r Reply, keys ...string) []Item {
	if r.Outcome != Done {
		return nil
	}
	s.Deps = s.Deps.Union(r.Visible)
	s.hears(r.View)
	s.carry(r.Carried...)
	if r.Write != nil {
		s.carry(r.Write)
	}
	if r.Write == nil && len(keys) == 0 {
		s.Bare = nil // each of them is in Carried, or visible
	}
	items := r.Items
	if len(keys) == 1 && items == nil {
		items = []Item{r.Item}
	}
	out := make([]Item, len(keys))
	for i, name := range keys {
		out[i] = overlay(items[i], name, s.Carried)
		s.Time = max(s.Time, out[i].Stamp.Time)
	}
	return out
}

// hears removes writes of incarnations that the view says are retired: every server shows them
// (V5).
func (s *Session) hears(v *View) {
	switch {
	case v == nil:
		return
	case len(s.Carried) > 0:
		s.Carried = slices.DeleteFunc(slices.Clone(s.Carried), func(w *Write) bool { return v.Retired(w.Dot.Incarnation) })
	}
	if s.Deps.Size() > len(v.Ring)+len(v.Departed) {
		s.Deps = s.Deps.Without(v.Retired)
	}
}

// Knows reports whether the session has seen a write, or may have seen it.
func (s *Session) Knows(d Dot) bool {
	return s.Deps.Covers(d) || slices.Contains(s.Bare, d) || slices.ContainsFunc(s.Carried, func(w *Write) bool { return w.Dot == d })
}

// carry adds writes to Carried, and removes those that are visible.
func (s *Session) carry(writes ...*Write) {
	if len(s.Carried)+len(writes) == 0 {
		return
	}
	all := append(slices.Clone(s.Carried), writes...)
	all = slices.DeleteFunc(all, func(w *Write) bool { return s.Deps.Covers(w.Dot) })
	slices.SortFunc(all, byStamp)
	s.Carried = slices.CompactFunc(all, func(a, b *Write) bool { return a.Dot == b.Dot })
	for _, w := range writes {
		s.Time = max(s.Time, w.Stamp.Time) // M1
	}
}

// Fork returns a session that has seen what this one has seen.
func (s *Session) Fork() *Session {
	f := *s
	return &f
}

// Join adds what another session has seen.
func (s *Session) Join(o *Session) {
	s.Deps = s.Deps.Union(o.Deps)
	s.Bare = append(slices.Clone(s.Bare), o.Bare...)
	s.Time = max(s.Time, o.Time)
	s.carry(o.Carried...)
	s.tidy()
}

// tidy removes from Bare the names of writes that are visible or carried whole.
func (s *Session) tidy() {
	slices.SortFunc(s.Bare, Dot.Compare)
	s.Bare = slices.DeleteFunc(slices.Compact(s.Bare), func(d Dot) bool {
		return s.Deps.Covers(d) || slices.ContainsFunc(s.Carried, func(w *Write) bool { return w.Dot == d })
	})
}
