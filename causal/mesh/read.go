package mesh

import "slices"

// wait is an operation that waits for the store.
type wait struct {
	op     Op
	keys   []string
	many   bool
	loads  int  // loads that it still waits for
	waited bool // it counts in Server.waiting
	look   *Look
	extras []*Write // to be carried, because they are newer than what is visible (M12)
}

// load is a request for a row or for writes, and what must be known before it can be answered.
type load struct {
	key    *key   // nil for a Recall
	rescue uint64 // the view in which journals of departed incarnations are read; 0 for readers
	row    Row
	asked  []Dot
	got    []*Write // from the journal
	dots   []Dot    // that must be found: of the row, or of a Recall
	with   []*Write // what the session of the Recall carries
	waits  []*wait
}

// admits says whether this server can serve a session that depends on deps.
func (s *Server) admits(deps Frontier) Outcome {
	switch {
	case s.expelled:
		return Expelled
	case !s.reached(deps):
		return Behind
	}
	if len(s.elder) == 0 || deps.Within(s.visible.Frontier) {
		return Done
	}
	for _, o := range s.elder { // V6: servers of this ring may lack what was visible at servers of earlier rings
		if !deps.Only(o).Within(s.visible.Frontier) {
			return Behind
		}
	}
	return Done
}

func (s *Server) read(in Read, out []Output) []Output {
	if why := s.admits(in.Deps); why != Done {
		return s.refuse(in.Op, why, out)
	}
	s.integrate(in.Deps)
	if k := s.cache[in.Key]; k != nil && k.complete {
		k.used = true
		return s.answer(Reply{Op: in.Op, Item: k.Item}, append(out, Event{Hit}))
	}
	return s.await(&wait{op: in.Op, keys: []string{in.Key}}, out)
}

// readMany answers all its keys in one step. What is visible in that step is a causal cut, and it
// stays one with the writes that the session carries.
func (s *Server) readMany(in ReadMany, out []Output) []Output {
	if why := s.admits(in.Deps); why != Done {
		return s.refuse(in.Op, why, out)
	}
	s.integrate(in.Deps)
	if items := s.held(in.Keys); items != nil {
		return s.answer(Reply{Op: in.Op, Items: items, At: Snap{s.visible.share(), s.view}}, append(out, Event{Hit}))
	}
	return s.await(&wait{op: in.Op, keys: in.Keys, many: true}, out)
}

// held returns the items of keys if all of them are in memory, otherwise nil.
func (s *Server) held(keys []string) []Item {
	items := make([]Item, len(keys))
	for i, name := range keys {
		k := s.cache[name]
		if k == nil || !k.complete {
			return nil
		}
		k.used, items[i] = true, k.Item
	}
	return items
}

// await asks the store for the keys that are not in memory. An operation that comes while a row is
// being loaded shares the load. What became visible before the load began was in the store by then,
// and the pinned key keeps what became visible since.
func (s *Server) await(w *wait, out []Output) []Output {
	missing := slices.ContainsFunc(w.keys, func(name string) bool { return s.cache[name] == nil || !s.cache[name].complete })
	if missing && s.waiting >= s.opt.Waits { // M16
		return s.refuse(w.op, Busy, out)
	}
	for _, name := range w.keys {
		k := s.pin(name) // M11
		if k.used = true; k.complete {
			continue
		}
		if k.load == nil {
			k.load = &load{key: k}
			c := s.call()
			s.loads[c] = k.load
			out = append(out, Event{Missed}, Load{c, name})
		}
		k.load.waits = append(k.load.waits, w)
		w.loads++
	}
	if w.loads > 0 {
		s.waiting++
		w.waited = true
		return out
	}
	return s.finish(w, append(out, Event{Hit}))
}

// recall looks for writes of which a session has only the dots.
func (s *Server) recall(now uint64, in Recall, out []Output) []Output {
	if why := s.admits(in.Deps); why != Done {
		return s.refuse(in.Op, why, out)
	}
	switch {
	case !s.follows(in.Carried):
		return s.refuse(in.Op, Behind, out)
	case s.waiting >= s.opt.Waits: // M16
		return s.refuse(in.Op, Busy, out)
	}
	if why := s.plausible(now, 0, in.Carried); why != Done {
		return s.refuse(in.Op, why, out)
	}
	s.integrate(in.Deps)
	s.waiting++
	// M4: recalled writes may depend on what the session carries, so the carried writes go first.
	return s.resolve(&load{dots: in.Dots, with: in.Carried, waits: []*wait{{op: in.Op, loads: 1, waited: true, extras: slices.Clone(in.Carried)}}}, out)
}

func (s *Server) loaded(in Loaded, out []Output) []Output {
	l := s.loads[in.Call]
	delete(s.loads, in.Call)
	if in.Status != OK {
		return s.give(l, Failed, out)
	}
	l.row = in.Row
	s.time = max(s.time, l.row.Stamp.Time) // M1
	if l.row.Dot != (Dot{}) {
		l.dots = []Dot{l.row.Dot}
	}
	for _, w := range l.row.Siblings {
		if s.time = max(s.time, w.Stamp.Time); w.Dot != (Dot{}) {
			l.dots = append(l.dots, w.Dot)
		}
	}
	if w := s.hidden[l.row.Dot]; w != nil && s.opt.Async && w.Dot.Incarnation != External {
		s.show(w) // A6
	}
	return s.resolve(l, out)
}

// resolve finds the writes that a load needs and that are not visible here, and their causes. It
// looks in this server's memory first, then in the journal.
func (s *Server) resolve(l *load, out []Output) []Output {
	var want []Dot
	for _, d := range l.dots {
		if w := s.find(l, d); w == nil && !s.shows(d) {
			want = append(want, d)
		} else if w != nil { // M21: a session that recalls may not know the causes
			if !s.reached(w.Deps) {
				return s.give(l, Behind, out)
			}
			s.integrate(w.Deps) // some server has made these causes visible, so this one may
			for _, c := range w.After {
				if s.find(l, c) == nil && !s.shows(c) {
					want = append(want, c)
				}
			}
		}
	}
	switch {
	case len(want) == 0:
		return s.settle(l, out)
	case s.opt.Async && slices.ContainsFunc(want, func(d Dot) bool { return d.Incarnation != External }):
		// A6: every member of the ring has received what is merged. This server has not.
		return s.give(l, Behind, out)
	}
	c := s.call()
	l.asked, s.loads[c] = want, l
	return append(out, Event{Journaled}, Fetch{c, want})
}

// find returns a write that is known and not visible here, or nil.
func (s *Server) find(l *load, d Dot) *Write {
	if w := s.hidden[d]; w != nil {
		return w
	}
	for _, known := range [][]*Write{l.got, l.with} {
		if i := slices.IndexFunc(known, func(w *Write) bool { return w.Dot == d }); i >= 0 && !s.shows(d) {
			return known[i]
		}
	}
	return nil
}

func (s *Server) fetched(in Fetched, out []Output) []Output {
	l := s.loads[in.Call]
	delete(s.loads, in.Call)
	if in.Status != OK && l.rescue > 0 {
		s.salvaging = false // the next beat asks again
		return out
	}
	if in.Status != OK {
		return s.give(l, Failed, out)
	}
	l.got = append(l.got, in.Writes...)
	if l.rescue > 0 {
		return s.rescue(l, out)
	}
	for _, d := range l.asked {
		switch {
		case slices.ContainsFunc(in.Writes, func(w *Write) bool { return w.Dot == d }):
		case s.hidden[d] != nil: // M13: its incarnation has truncated it, so it is stable
			s.show(s.hidden[d])
		case !s.shows(d):
			return s.give(l, Behind, out)
		}
	}
	return s.resolve(l, out)
}

// settle ends a load whose writes are all known.
func (s *Server) settle(l *load, out []Output) []Output {
	var extras []*Write
	for _, d := range l.dots {
		switch w := s.find(l, d); {
		case w == nil: // it has become visible meanwhile
		case l.key == nil:
			extras = s.withCauses(l, w, extras)
		case s.opt.Concurrent || l.key.Stamp.Less(w.Stamp): // otherwise something newer has become visible meanwhile
			extras = s.withCauses(l, w, extras)
			out = append(out, Event{CarriedMiss})
		}
	}
	if k := l.key; k != nil {
		k.load = nil
		switch {
		case s.opt.Concurrent:
			s.mergeRow(k, l.row)
		case l.row.Dot == (Dot{}) || s.shows(l.row.Dot):
			// M12: otherwise the row is newer than what is visible, and the key stays as it is.
			if !l.row.Stamp.Less(k.Stamp) { // M11: a late answer does not beat what became visible meanwhile
				k.restart(l.row.Item, l.row.Dot)
			}
			k.complete = true
		}
		s.weigh(k)
	}
	for _, w := range l.waits {
		w.extras = append(w.extras, extras...)
		if w.loads--; w.loads == 0 {
			out = s.finish(w, out)
		}
	}
	return out
}

// withCauses adds to extras a write and those of its causes that are not visible (M12, M21).
func (s *Server) withCauses(l *load, w *Write, extras []*Write) []*Write {
	extras = append(extras, w)
	for _, c := range w.After {
		if x := s.find(l, c); x != nil {
			extras = append(extras, x)
		}
	}
	return extras
}

// finish answers an operation with the newest of what is visible and what its session will carry,
// all as of this step.
func (s *Server) finish(w *wait, out []Output) []Output {
	if w.look != nil {
		return s.looked(w, out)
	}
	extras := s.extras(w)
	for _, x := range extras {
		out = s.inject(x, out)
	}
	items := make([]Item, len(w.keys))
	for i, name := range w.keys {
		items[i] = overlay(s.cache[name].Item, name, extras)
	}
	r := Reply{Op: w.op, Carried: extras}
	if w.many {
		r.Items, r.At = items, Snap{s.visible.share(), s.view}
	} else if len(items) > 0 {
		r.Item = items[0]
	}
	return s.unpinAll(w, s.answer(r, out))
}

// extras returns the writes that the operation's session must carry, causes first.
func (s *Server) extras(w *wait) []*Write {
	extras := slices.DeleteFunc(w.extras, func(x *Write) bool { return s.shows(x.Dot) })
	slices.SortFunc(extras, byStamp) // a stamp exceeds those of its causes
	return slices.CompactFunc(extras, func(a, b *Write) bool { return a.Dot == b.Dot })
}

// unpinAll releases the keys of an operation that has ended.
func (s *Server) unpinAll(w *wait, out []Output) []Output {
	if w.waited {
		s.waiting--
	}
	for _, name := range w.keys {
		s.unpin(name)
	}
	s.shrink()
	return out
}

// give ends a load that failed, and refuses the operations that wait for it.
func (s *Server) give(l *load, why Outcome, out []Output) []Output {
	if l.key != nil {
		l.key.load = nil
	}
	for _, w := range l.waits {
		if w.loads > 0 {
			for _, name := range w.keys {
				k := s.cache[name]
				if k.load != nil {
					k.load.waits = slices.DeleteFunc(k.load.waits, func(o *wait) bool { return o == w })
				}
				s.unpin(name)
			}
			out = s.refuse(w.op, why, out)
			w.loads = 0
			s.waiting--
		}
	}
	s.shrink()
	return out
}

// overlay returns the newest of an item and the values that writes give its key.
func overlay(it Item, name string, writes []*Write) Item {
	for _, w := range writes {
		switch m := w.to(name); {
		case m == nil:
		case m.Siblings: // S1
			it = siblings(name, join(name, it.Siblings, w), it.Stamp)
		case it.Stamp.Less(w.Stamp): // M9
			it = Item{Exists: !m.Delete, Value: m.Value, Stamp: w.Stamp}
		}
	}
	return it
}

func byStamp(a, b *Write) int {
	switch {
	case a.Stamp.Less(b.Stamp):
		return -1
	case b.Stamp.Less(a.Stamp):
		return 1
	}
	return 0
}
