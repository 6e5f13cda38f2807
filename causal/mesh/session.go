package mesh

import "slices"

// Session is what a workflow knows: it travels with it. It is a value: what is done
// to one leaves its forks alone. The zero Session knows nothing.
type Session struct {
	deps    Frontier // visible somewhere, hence present everywhere
	carried []*Write // made or read, and perhaps visible nowhere; causes first
	bare    []Dot    // the same, of which only the names are known (M18)
	time    uint64   // the largest that was seen
}

// Read asks for a key. Bare must be false.
func (s *Session) Read(op Op, key string) Read { return Read{op, key, s.deps} }

// ReadMany asks for several keys, from one causal cut. Bare must be false.
func (s *Session) ReadMany(op Op, keys ...string) ReadMany { return ReadMany{op, keys, s.deps} }

// Put asks to set or delete keys. Bare must be false.
func (s *Session) Put(op Op, muts ...Mut) Put { return Put{op, muts, s.deps, s.carried, s.time} }

// Bare reports whether the session carries writes of which it has only the names:
// then Recall comes first.
func (s *Session) Bare() bool { return len(s.bare) > 0 }

// Recall asks for the writes that are bare.
func (s *Session) Recall(op Op) Recall { return Recall{op, s.bare, s.deps} }

// Took takes the answer to a Read, ReadMany, Put or Recall. What it returns is what
// the session sees of keys, which are those that were read.
func (s *Session) Took(r Reply, keys ...string) []Item {
	if r.Outcome != Done {
		return nil
	}
	s.deps = s.deps.Union(r.Visible)
	s.carry(r.Carried...)
	if r.Write != nil {
		s.carry(r.Write)
	}
	s.bare = slices.DeleteFunc(slices.Clone(s.bare), func(d Dot) bool {
		return s.deps.Covers(d) || slices.ContainsFunc(s.carried, func(w *Write) bool { return w.Dot == d })
	})
	items := r.Items
	if len(keys) == 1 && items == nil {
		items = []Item{r.Item}
	}
	out := make([]Item, len(keys))
	for i, name := range keys {
		// M18: what is carried is laid over only after what has become visible was let
		// go, or a deleted value would come back.
		out[i] = overlay(items[i], name, s.carried)
		s.time = max(s.time, out[i].Stamp.Time)
	}
	return out
}

// carry takes writes to those that are carried, and lets go of what is visible.
func (s *Session) carry(writes ...*Write) {
	if len(s.carried)+len(writes) == 0 {
		return
	}
	all := append(slices.Clone(s.carried), writes...)
	all = slices.DeleteFunc(all, func(w *Write) bool { return s.deps.Covers(w.Dot) })
	slices.SortFunc(all, byStamp)
	s.carried = slices.CompactFunc(all, func(a, b *Write) bool { return a.Dot == b.Dot })
	for _, w := range writes {
		s.time = max(s.time, w.Stamp.Time) // M1
	}
}

// Fork is a session that knows what this one knows.
func (s *Session) Fork() *Session {
	f := *s
	return &f
}

// Join takes what another session knows.
func (s *Session) Join(o *Session) {
	s.deps = s.deps.Union(o.deps)
	s.bare = append(slices.Clone(s.bare), o.bare...)
	s.time = max(s.time, o.time)
	s.carry(o.carried...)
	slices.SortFunc(s.bare, Dot.compare)
	s.bare = slices.DeleteFunc(slices.Compact(s.bare), func(d Dot) bool {
		return s.deps.Covers(d) || slices.ContainsFunc(s.carried, func(w *Write) bool { return w.Dot == d })
	})
}

// Deps is what the session relies on every server to have received.
func (s *Session) Deps() Frontier { return s.deps }

// Carried are the writes the session carries, causes first, and the dots of those it
// knows only by name.
func (s *Session) Carried() ([]*Write, []Dot) { return s.carried, s.bare }
