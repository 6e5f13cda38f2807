package mesh

import (
	"cmp"
	"slices"
)

// Snap is what a transaction reads from: one causal cut, the same at every server.
type Snap struct {
	Set  Frontier
	View *View // it was fixed in; what was retired by then belongs to it
}

// Has reports whether a write belongs to a snapshot.
func (p Snap) Has(d Dot) bool {
	return d != Dot{} && (p.Set.Covers(d) || p.View != nil && p.View.Retired(d.Incarnation))
}

// contains reports whether all of a set belongs to a snapshot.
func (p Snap) contains(f Frontier) bool {
	return f.Within(p.Set) || p.View != nil && f.Without(p.View.Retired).Within(p.Set)
}

// Seen is what a transaction has read of a key.
type Seen struct {
	Key          string
	Stamp        Stamp
	Incarnations int // how many there were, where concurrent writes are kept
}

// Look: a transaction wants several keys as of its snapshot. If they are not to be had any
// more, and Seen may be looked at again, it wants all of them as of now.
type Look struct {
	Op     Op
	Keys   []string
	At     Snap
	Extend bool // no branch of the transaction reads elsewhere (T4)
	Seen   []Seen
	// Carried is what the transaction lays over what it reads.
	Carried []*Write
}

func (Look) input() {}

// version is a former value of a key.
type version struct {
	Item
	dot Dot
}

// look answers from the versions of keys (T1, T2).
func (s *Server) look(in Look, out []Output) []Output {
	if why := s.admits(in.At.Set); why != Done {
		return s.refuse(in.Op, why, out)
	}
	s.integrate(in.At.Set)
	return s.await(&wait{op: in.Op, keys: in.Keys, many: true, look: &in}, out)
}

// present reports whether a snapshot is what is visible now. Equal sets of different views
// may leave out different incarnations (V5).
func (s *Server) present(at Snap) bool {
	return at.View != nil && at.View.Number == s.view.Number && at.Set.Equal(s.visible.Frontier)
}

// pick is a key's value in a snapshot, if it is still known.
func (s *Server) pick(k *key, at Snap) (Item, bool) {
	switch {
	case !k.complete:
		return Item{}, false
	case s.opt.Concurrent && !s.present(at):
		return s.mixed(k, at)
	case s.present(at), at.Has(k.dot), k.dot == Dot{} && (k.Exists || k.Stamp == Stamp{}):
		return k.Item, true
	}
	for _, v := range k.older {
		if at.Has(v.dot) || v.Stamp == (Stamp{}) {
			return v.Item, true
		}
	}
	return Item{}, false
}

// looked ends a Look whose keys have been asked for. What is not to be had at the snapshot
// may be had now, if nothing that was read has changed since: then the snapshot moves (T3).
func (s *Server) looked(w *wait, out []Output) []Output {
	in, items := w.look, make([]Item, 0, len(w.look.Keys))
	for _, name := range in.Keys {
		if it, ok := s.pick(s.cache[name], in.At); ok {
			items = append(items, it)
		}
	}
	again := len(w.keys) > len(in.Keys) || len(in.Seen) == 0
	switch {
	case len(items) == len(in.Keys):
		out = s.answer(Reply{Op: w.op, Items: items, At: in.At}, out)
	case !in.Extend:
		out = append(out, Event{Aborted}, Reply{Op: w.op, Outcome: Stale})
	case !again:
		next := &wait{op: w.op, keys: slices.Clone(in.Keys), many: true, look: in}
		for _, seen := range in.Seen {
			next.keys = append(next.keys, seen.Key)
		}
		out = s.await(next, out)
	default:
		extras := s.extras(w)
		for _, seen := range in.Seen {
			if s.changed(in, seen, overlay(s.cache[seen.Key].Item, seen.Key, extras)) {
				return s.unpinAll(w, append(out, Event{Aborted}, Reply{Op: w.op, Outcome: Stale}))
			}
		}
		for _, x := range extras {
			out = s.inject(x, out)
		}
		for _, name := range in.Keys {
			items = append(items, overlay(s.cache[name].Item, name, extras))
		}
		r := Reply{Op: w.op, Items: items[len(items)-len(in.Keys):], Carried: extras, At: Snap{s.visible.share(), s.view}}
		out = s.answer(r, append(out, Event{Extended}))
	}
	return s.unpinAll(w, out)
}

// retain keeps a former value of a key, among those above its base: below it some are not
// known, and one more would pass for the newest of a snapshot that it is not (T2).
func (s *Server) retain(k *key, v version) {
	if s.opt.Versions < 2 || !k.complete || v.Stamp.Less(k.base) {
		return
	}
	i := slices.IndexFunc(k.older, func(o version) bool { return o.Stamp.Less(v.Stamp) })
	if i < 0 {
		i = len(k.older)
	}
	full := len(k.older) == s.opt.Versions-1
	if !full {
		k.older = append(k.older, v)
	}
	if i < len(k.older) { // else it is one too many itself
		copy(k.older[i+1:], k.older[i:])
		k.older[i] = v
	}
	if full {
		k.base = k.older[len(k.older)-1].Stamp
	}
}

// restart begins a key's versions anew.
func (k *key) restart(it Item, d Dot) {
	k.Item, k.dot, k.base, k.older = it, d, it.Stamp, nil
}

// Tx is a transaction, or a branch of one: it travels with its workflow. Begin comes first.
type Tx struct {
	Session
	At     Snap
	Seen   []Seen // sorted
	Buffer []Mut
	Open   int  // branches that have not come back
	Branch bool // it is one
}

// Begin fixes the snapshot; Began takes the answer.
func (t *Tx) Begin(op Op) ReadMany { return t.ReadMany(op) }

// Began takes the answer to Begin, and reports whether there is one.
func (t *Tx) Began(r Reply) bool {
	if r.Outcome == Done {
		t.carried(r)
		t.At = r.At
	}
	return r.Outcome == Done
}

// carried takes what a snapshot brings with it: Deps is the snapshot's set, not what any
// server has shown since.
func (t *Tx) carried(r Reply) {
	t.Deps = t.Deps.Union(r.At.Set)
	t.hears(r.At.View)
	t.carry(r.Carried...)
}

// Look asks for several keys. Nothing may be bare.
func (t *Tx) Look(op Op, keys ...string) Look {
	return Look{op, keys, t.At, t.Open == 0 && !t.Branch, t.Seen, t.Carried}
}

// Looked takes the answer to a Look: what the transaction sees of its keys. If it is Stale
// the workflow begins again.
func (t *Tx) Looked(r Reply, keys ...string) ([]Item, Outcome) {
	if r.Outcome != Done {
		return nil, r.Outcome
	}
	t.At = r.At
	t.carried(r)
	items := make([]Item, len(keys))
	for i, name := range keys {
		it := overlay(r.Items[i], name, t.Carried)
		t.Time = max(t.Time, it.Stamp.Time) // M1
		t.saw(Seen{name, it.Stamp, it.live(name)})
		for _, m := range t.Buffer {
			if m.Key == name { // the last one counts
				it = Item{Exists: !m.Delete, Value: m.Value, Stamp: it.Stamp, Siblings: it.Siblings}
			}
		}
		items[i] = it
	}
	return items, Done
}

// saw remembers what was read of a key first.
func (t *Tx) saw(n Seen) {
	if j, ok := slices.BinarySearchFunc(t.Seen, n.Key, func(s Seen, key string) int { return cmp.Compare(s.Key, key) }); !ok {
		t.Seen = slices.Insert(slices.Clone(t.Seen), j, n)
	}
}

// Set buffers a write until Commit.
func (t *Tx) Set(m Mut) {
	t.Buffer = slices.DeleteFunc(slices.Clone(t.Buffer), func(o Mut) bool { return o.Key == m.Key })
	t.Buffer = append(t.Buffer, m)
}

// Commit asks to write everything at once, as one write with one dot (T5). A branch does
// not commit; and none may be open.
func (t *Tx) Commit(op Op) Put { return t.Put(op, t.Buffer...) }

// Fork is a branch that reads from the same snapshot; no snapshot moves until it is joined.
func (t *Tx) Fork() *Tx {
	t.Open++
	f := *t
	f.Open, f.Branch = 0, true
	return &f
}

// Join takes back a branch, with what it has read and buffered.
func (t *Tx) Join(f *Tx) {
	t.Open--
	t.Session.Join(&f.Session)
	for _, s := range f.Seen {
		t.saw(s)
	}
	for _, m := range f.Buffer {
		t.Set(m)
	}
}
