package mesh

import (
	"cmp"
	"slices"
)

// Snap is the snapshot that a transaction reads: one causal cut, the same at every server.
type Snap struct {
	Set  Frontier
	View *View // in which it was fixed; writes of incarnations that it counts as retired belong to the snapshot
}

// Has reports whether a write belongs to the snapshot.
func (p Snap) Has(d Dot) bool {
	return d != Dot{} && (p.Set.Covers(d) || p.View != nil && p.View.Retired(d.Incarnation))
}

// contains reports whether all of a set belongs to the snapshot.
func (p Snap) contains(f Frontier) bool {
	return f.Within(p.Set) || p.View != nil && f.Without(p.View.Retired).Within(p.Set)
}

// Seen is what a transaction has read of a key.
type Seen struct {
	Key      string
	Stamp    Stamp
	Siblings int // how many there were, without deletions, in a space that keeps them
}

// Look: a transaction wants several keys as of its snapshot. If the server does not have them as of
// the snapshot, and Extend is set, the server may move the snapshot to what is visible now (T3).
type Look struct {
	Op     Op
	Keys   []string
	At     Snap
	Extend bool // no branch of the transaction reads elsewhere (T4)
	Seen   []Seen
	// Carried are the writes that the transaction lays over what it reads.
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

// present reports whether a snapshot equals what is visible now. Equal sets of different views may
// leave out different incarnations (V5).
func (s *Server) present(at Snap) bool {
	return at.View != nil && at.View.Number == s.view.Number && at.Set.Equal(s.visible.Frontier)
}

// pick returns a key's value in a snapshot, and false if memory does not have it any more.
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

// looked ends a Look whose keys are in memory. If a value of the snapshot is gone, the snapshot
// moves to what is visible now, provided that no key that was read has changed (T3).
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

// retain keeps a former value of a key, if its stamp is not below the key's base. Below the base
// some versions are unknown, so the value would pass for the newest of a snapshot that it is not
// (T2).
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
	if i < len(k.older) { // otherwise the value itself is the oldest of too many
		copy(k.older[i+1:], k.older[i:])
		k.older[i] = v
	}
	if full {
		k.base = k.older[len(k.older)-1].Stamp
	}
}

// restart leaves one version of a key.
func (k *key) restart(it Item, d Dot) {
	k.Item, k.dot, k.base, k.older = it, d, it.Stamp, nil
}

// Tx is a transaction, or a branch of one. It travels with its workflow. Begin comes first.
type Tx struct {
	Session
	At     Snap
	Seen   []Seen // sorted
	Buffer []Mut
	Open   int  // branches that were not joined yet
	Branch bool // this is a branch
}

// Begin asks for the snapshot. Began takes the answer.
func (t *Tx) Begin(op Op) ReadMany { return t.ReadMany(op) }

// Began takes the answer to Begin, and reports whether the transaction has a snapshot.
func (t *Tx) Began(r Reply) bool {
	if r.Outcome == Done {
		t.carried(r)
		t.At = r.At
	}
	return r.Outcome == Done
}

// carried takes what a snapshot brings. Deps grows by the snapshot's set, not by what the answering
// server shows.
func (t *Tx) carried(r Reply) {
	t.Deps = t.Deps.Union(r.At.Set)
	t.hears(r.At.View)
	t.carry(r.Carried...)
}

// Look asks for several keys. Bare must be empty.
func (t *Tx) Look(op Op, keys ...string) Look {
	return Look{op, keys, t.At, t.Open == 0 && !t.Branch, t.Seen, t.Carried}
}

// Looked takes the answer to a Look, and returns what the transaction sees of its keys. If the
// outcome is Stale, the workflow begins the transaction again.
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
			if m.Key == name { // the last write of the transaction counts
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

// Set buffers a write until Commit. It replaces an earlier write of the key.
func (t *Tx) Set(m Mut) {
	t.Buffer = slices.DeleteFunc(slices.Clone(t.Buffer), func(o Mut) bool { return o.Key == m.Key })
	t.Buffer = append(t.Buffer, m)
}

// Commit asks to write the buffer as one write with one dot (T5). A branch must not commit, and no
// branch may be open.
func (t *Tx) Commit(op Op) Put { return t.Put(op, t.Buffer...) }

// Fork returns a branch that reads from the same snapshot. The snapshot does not move until Join
// (T4).
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
