package mesh

import "slices"

// wait is an operation that needs the store.
type wait struct {
	op     Op
	keys   []string
	many   bool
	loads  int  // it waits for
	waited bool // it is counted
	look   *Look
	extras []*Write // newer than what is visible, to be carried (M12)
}

// load is a row that is asked for, and what must be known of it before it can be told.
type load struct {
	key    *key   // none for a Recall
	rescue uint64 // the view that asks for departed incarnations; 0 for readers
	row    Row
	asked  []Dot
	got    []*Write // from the journal
	dots   []Dot    // of a Recall
	with   []*Write // what its session carries
	waits  []*wait
}

// admits says whether a session that knows of deps can be served here.
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
	for _, o := range s.elder { // V6: what was visible at servers that are all gone need not be received at these
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

// readMany reads all its keys in one step, the last one: what is visible then is a
// causal cut, and with what is carried still one.
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

// held are the items of keys if all of them are in memory.
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

// await asks the store for what is missing. Whoever comes while a row is asked for
// shares it: what became visible before it was asked for was in the store by then,
// and what became visible since has been kept.
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
	// M4: what is recalled may depend on what came along, which goes on first.
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

// resolve finds the writes that a load speaks of and that are not visible here, and
// those among their causes: here, or in the journal.
func (s *Server) resolve(l *load, out []Output) []Output {
	var want []Dot
	for _, d := range l.dots {
		if w := s.find(l, d); w == nil && !s.shows(d) {
			want = append(want, d)
		} else if w != nil { // M21: a session that recalls may not know the causes
			if !s.reached(w.Deps) {
				return s.give(l, Behind, out)
			}
			s.integrate(w.Deps) // that part of its causes is visible somewhere, so it may be shown here
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
	case s.opt.Async && slices.ContainsFunc(want, func(d Dot) bool { return d.Incarnation != External }): // A6: what is merged has been received by every member
		return s.give(l, Behind, out)
	}
	c := s.call()
	l.asked, s.loads[c] = want, l
	return append(out, Event{Journaled}, Fetch{c, want})
}

// find is a write that is not visible, if it is known.
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
		s.salvaging = false // the next beat begins again
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
		case s.hidden[d] != nil: // M13: its incarnation has let the journal drop it, so it is stable
			s.show(s.hidden[d])
		case !s.shows(d):
			return s.give(l, Behind, out)
		}
	}
	return s.resolve(l, out)
}

// settle ends a load of which everything is known.
func (s *Server) settle(l *load, out []Output) []Output {
	var extras []*Write
	for _, d := range l.dots {
		switch w := s.find(l, d); {
		case w == nil: // it is visible by now
		case l.key == nil:
			extras = s.withCauses(l, w, extras)
		case s.opt.Concurrent || l.key.Stamp.Less(w.Stamp): // else what has become visible meanwhile is newer
			extras = s.withCauses(l, w, extras)
			out = append(out, Event{CarriedMiss})
		}
	}
	if k := l.key; k != nil {
		k.load = nil
		switch {
		case s.opt.Concurrent:
			s.mergeRow(k, l.row)
		case l.row.Dot == (Dot{}) || s.shows(l.row.Dot): // M12: else the key stays as it is
			if !l.row.Stamp.Less(k.Stamp) { // M11: a late answer does not beat what came meanwhile
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

// withCauses adds a write and those of its causes that are not visible (M12, M21).
func (s *Server) withCauses(l *load, w *Write, extras []*Write) []*Write {
	extras = append(extras, w)
	for _, c := range w.After {
		if x := s.find(l, c); x != nil {
			extras = append(extras, x)
		}
	}
	return extras
}

// finish answers an operation: the newest of what is visible and what it carries
// away, all as of this step.
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

// extras are what an operation carries away, causes first.
func (s *Server) extras(w *wait) []*Write {
	extras := slices.DeleteFunc(w.extras, func(x *Write) bool { return s.shows(x.Dot) })
	slices.SortFunc(extras, byStamp) // a stamp exceeds those of its causes
	return slices.CompactFunc(extras, func(a, b *Write) bool { return a.Dot == b.Dot })
}

// unpinAll releases what an operation has waited for.
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

// give ends a load that came to nothing, and whoever waited for it.
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

// overlay is the newest of an item and what writes make of its key.
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
