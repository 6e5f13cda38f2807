package mesh

import (
	"maps"
	"slices"
)

// drain is the way of an asynchronous space's writes into the store, and of logs that were
// found back onto the ring.
type drain struct {
	rest     int    // beats until it is asked again whose logs are back
	call     Call   // under way: of a Claim or a Flush
	claim    Claim  // of this view
	mine     bool   // it was granted
	done     bool   // it never will be
	flush    Flush  // the one under way, or the last
	number   uint64 // of it
	external uint64 // external writes and is remembered by the store, up to this number
	returns  []found
}

// found is the log of a departed incarnation, which is given back.
type found struct {
	incarnation Incarnation
	todo        []*Write // not on the ring yet
	dots        []Dot    // of all that was in it
}

// batchBytes is about how much is merged at once.
const batchBytes = 4 << 20

// restBeats is for how long nobody asks whether logs are back.
const restBeats = 16

// enter begins anew in a ring: whoever is its first server claims.
func (d *drain) enter() {
	*d = drain{returns: d.returns}
}

// durably reports whether the store has a write, or need not have it.
func (s *Server) durably(d Dot) bool {
	return !s.opt.Async || d == Dot{} || d.Incarnation == External || s.durable.Covers(d) || s.retired(d.Incarnation)
}

// kept reports whether memory is the only place where a key's newest value is: it must not
// go, for a miss would bring back an older one (A4).
func (s *Server) kept(k *key) bool { return !s.durably(k.dot) }

// alone are the writes of which nobody's log may be sure (A1).
func (s *Server) alone(carried []*Write) (out []*Write) {
	for _, c := range carried {
		if !s.durably(c.Dot) {
			out = append(out, c)
		}
	}
	return out
}

// free releases what is kept beside absent keys for a write that is durable by now (A5).
func (s *Server) free(w *Write) {
	if !s.opt.Async {
		return
	}
	for _, m := range w.Muts {
		if k := s.cache[m.Key]; k != nil && !k.complete && k.pins == 0 && !s.kept(k) {
			s.evict(k)
		}
	}
	s.shrink()
}

// claim makes this server the one that merges, if it is the first of its ring (A3).
func (s *Server) claim(out []Output) []Output {
	d := &s.draining
	if !s.opt.Async || d.mine || d.done || d.call != 0 {
		return out
	}
	d.call = s.call()
	d.claim = Claim{d.call, s.view.Number, d.claim.Try}
	return append(out, d.claim)
}

// claimed hears that nobody else merges any more, and what was merged until then.
func (s *Server) claimed(in Claimed, out []Output) []Output {
	d := &s.draining
	if in.Call != d.call || s.expelled { // of another view
		return out
	}
	d.call = 0
	switch {
	case in.Status == StatusUnknown:
		d.claim.Try++
		return s.claim(out)
	case in.Status != OK: // there is a later view
		d.done = true
		return out
	case !s.reached(in.Durable):
		d.done = true
		return append(out, Event{FellBehind})
	}
	durable := s.trim(in.Durable)
	out = s.becameStable(s.stable.Union(durable), out)
	out = s.becameDurable(durable, out)
	if d.external = in.Durable.Upto(External); d.external > 0 { // M13: who knew may not have lived to say so
		out = append(out, Truncate{External, d.external})
	}
	d.mine = true
	return s.flush(out)
}

// flush merges the next of what is stable. The log is in an order in which causes come
// first, and nothing is asked for before the last has been done, so that the rows are a
// causal cut at every instant (A2).
func (s *Server) flush(out []Output) []Output {
	d := &s.draining
	if !d.mine || d.call != 0 || s.expelled {
		return out
	}
	var batch []*Write
	durable, bytes := s.durable.Clone(), 0
	for _, w := range s.log {
		if !s.stable.Covers(w.Dot) {
			continue
		}
		for _, m := range w.Muts {
			bytes += len(m.Key) + len(m.Value)
		}
		if len(batch) == s.opt.Batch || bytes > batchBytes && len(batch) > 0 {
			break
		}
		batch = append(batch, w)
		durable.Add(w.Dot)
	}
	if len(batch) == 0 && durable.Upto(External) <= d.external { // A10: else the store is to remember that much
		return out
	}
	d.call = s.call()
	d.number++
	d.flush = Flush{Call: d.call, Term: s.view.Number, Number: d.number, Writes: batch, Durable: durable}
	return append(out, d.flush)
}

// flushed hears that a batch is in the rows.
func (s *Server) flushed(in Flushed, out []Output) []Output {
	d := &s.draining
	if in.Call != d.call || s.expelled {
		return out
	}
	d.call = 0
	switch in.Status {
	case StatusUnknown: // it may have been merged, so it is the same again
		d.call = s.call()
		d.flush.Call, d.flush.Try = d.call, d.flush.Try+1
		return append(out, d.flush)
	case OK:
		out = s.becameDurable(d.flush.Durable, append(out, Event{Drained}))
		if n := d.flush.Durable.Upto(External); n > d.external {
			d.external = n
			out = append(out, Truncate{External, n}) // A10
		}
		return s.flush(out)
	}
	d.mine, d.done = false, true // A3: there is a later view
	return out
}

// returned begins to give back the log of a departed incarnation (A8).
func (s *Server) returned(in Returned, out []Output) []Output {
	d := &s.draining
	if s.expelled || slices.ContainsFunc(d.returns, func(f found) bool { return f.incarnation == in.Incarnation }) {
		return out
	}
	f := found{incarnation: in.Incarnation}
	for _, w := range in.Writes {
		f.dots = append(f.dots, w.Dot)
		f.todo = append(f.todo, w)
	}
	d.returns = append(d.returns, f)
	return s.giveBack(out)
}

// giveBack puts writes of logs that were found onto the ring when all their causes have
// come: those of other incarnations may lie in logs that nobody has found yet (A8).
func (s *Server) giveBack(out []Output) []Output {
	d := &s.draining
	if len(d.returns) == 0 || s.expelled {
		return out
	}
	var todo []*Write
	for _, f := range d.returns {
		todo = append(todo, f.todo...)
	}
	slices.SortFunc(todo, byStamp)
	for _, w := range todo {
		if !s.has(w.Dot) && s.reached(w.Deps) && !slices.ContainsFunc(w.After, func(c Dot) bool { return !s.has(c) }) {
			out = s.inject(w, append(out, Event{GaveBack}))
		}
	}
	d.returns = slices.DeleteFunc(d.returns, func(f found) bool { return s.retired(f.incarnation) })
	for i := range d.returns {
		f := &d.returns[i]
		f.todo = slices.DeleteFunc(slices.Clone(f.todo), func(w *Write) bool { return s.has(w.Dot) })
		if !slices.ContainsFunc(f.dots, func(o Dot) bool { return !s.durably(o) }) {
			out = append(out, Release{f.incarnation}) // again with every stability round, until the incarnation is retired
		}
	}
	return out
}

// heard is told whose logs have been given back. The others are asked for again after a while.
func (s *Server) heard(back []Incarnation, out []Output) []Output {
	s.salvaged = back
	if len(back) < len(s.view.Departed) {
		s.salvaging, s.draining.rest = false, restBeats
	}
	return out
}

// forsake drops what is under way of an incarnation that was given up, and so retired before all of
// it was durable.
func (s *Server) forsake(out []Output) []Output {
	s.log = slices.DeleteFunc(s.log, func(w *Write) bool {
		if !s.retired(w.Dot.Incarnation) {
			return false
		}
		delete(s.hidden, w.Dot)
		for _, m := range w.Muts {
			k := s.cache[m.Key]
			switch {
			case k == nil || k.dot != w.Dot:
			case k.pins > 0:
				k.restart(Item{}, Dot{})
				k.complete = false
				s.weigh(k)
				out = s.reload(k, out)
			default:
				s.evict(k)
			}
		}
		return true
	})
	return out
}

// reload asks for a key that was in memory, for who has counted on that and waits for others.
func (s *Server) reload(k *key, out []Output) []Output {
	if k.load != nil {
		return out
	}
	var waits []*wait
	for _, c := range slices.Sorted(maps.Keys(s.loads)) {
		for _, w := range s.loads[c].waits {
			if !slices.Contains(waits, w) {
				waits = append(waits, w)
			}
		}
	}
	k.load = &load{key: k}
	for _, w := range waits {
		for _, name := range w.keys {
			if name == k.name {
				k.load.waits = append(k.load.waits, w)
				w.loads++
			}
		}
	}
	c := s.call()
	s.loads[c] = k.load
	return append(out, Event{Missed}, Load{c, k.name})
}
