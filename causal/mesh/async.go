package mesh

import (
	"maps"
	"slices"
)

// drain brings the writes of an asynchronous space into the store, and puts logs of departed
// incarnations that were found back onto the ring.
type drain struct {
	rest     int    // beats until the server sends Recover again
	call     Call   // of the Claim or Flush under way; 0 if there is none
	claim    Claim  // the one of this view
	mine     bool   // the claim was granted: this server merges
	done     bool   // the claim will never be granted, or no longer holds
	flush    Flush  // the one under way, or the last
	number   uint64 // of the flush
	external uint64 // the store remembers that external writes up to this number were merged (A10)
	returns  []found
}

// found is the log of a departed incarnation that this server puts back onto the ring.
type found struct {
	incarnation Incarnation
	todo        []*Write // not on the ring yet
	dots        []Dot    // of all writes in the log
}

// batchBytes is about how many bytes of keys and values one Flush merges.
const batchBytes = 4 << 20

// restBeats is how many beats the server waits between two questions about logs.
const restBeats = 16

// enter resets the drain for another ring, whose first server claims anew. It keeps found logs.
func (d *drain) enter() {
	*d = drain{returns: d.returns}
}

// durably reports whether the store has a write, or need not have it.
func (s *Server) durably(d Dot) bool {
	return !s.opt.Async || d == Dot{} || d.Incarnation == External || s.durable.Covers(d) || s.retired(d.Incarnation)
}

// kept reports whether only memory has a key's newest value. Such a key is not evicted, because the
// next miss would read an older value (A4).
func (s *Server) kept(k *key) bool { return !s.durably(k.dot) }

// alone returns the carried writes that are not known to be durable. This server's log must keep
// them, because no other log may have them (A1).
func (s *Server) alone(carried []*Write) (out []*Write) {
	for _, c := range carried {
		if !s.durably(c.Dot) {
			out = append(out, c)
		}
	}
	return out
}

// free evicts incomplete keys that stayed in memory only for a write that is durable now (A5).
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

// claim asks the store to let this server merge. Only the first server of a ring calls it (A3).
func (s *Server) claim(out []Output) []Output {
	d := &s.draining
	if !s.opt.Async || d.mine || d.done || d.call != 0 {
		return out
	}
	d.call = s.call()
	d.claim = Claim{d.call, s.view.Number, d.claim.Try}
	return append(out, d.claim)
}

// claimed takes the answer to a Claim. If it is OK, no earlier view merges any more, and the answer
// says what was merged so far.
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
	case in.Status != OK: // a later view has claimed
		d.done = true
		return out
	case !s.reached(in.Durable):
		d.done = true
		return append(out, Event{FellBehind})
	}
	durable := s.trim(in.Durable)
	out = s.becameStable(s.stable.Union(durable), out)
	out = s.becameDurable(durable, out)
	if d.external = in.Durable.Upto(External); d.external > 0 { // M13: the one that merged may not have truncated
		out = append(out, Truncate{External, d.external})
	}
	d.mine = true
	return s.flush(out)
}

// flush merges the next batch of stable writes. The log has causes first, and the server sends no
// Flush before the previous one is answered, so the rows are a causal cut at every instant (A2).
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
	// A10: a batch without writes is sent if it makes the store remember more external writes.
	if len(batch) == 0 && durable.Upto(External) <= d.external {
		return out
	}
	d.call = s.call()
	d.number++
	d.flush = Flush{Call: d.call, Term: s.view.Number, Number: d.number, Writes: batch, Durable: durable}
	return append(out, d.flush)
}

// flushed takes the answer to a Flush.
func (s *Server) flushed(in Flushed, out []Output) []Output {
	d := &s.draining
	if in.Call != d.call || s.expelled {
		return out
	}
	d.call = 0
	switch in.Status {
	case StatusUnknown: // it may have been merged, so the server repeats the same batch under the same number
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
	d.mine, d.done = false, true // A3: a later view has claimed
	return out
}

// returned begins to put the log of a departed incarnation back onto the ring (A8).
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

// giveBack puts those writes of found logs onto the ring whose causes have been received. Causes of
// other incarnations may lie in logs that have not been found yet (A8).
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
			out = append(out, Release{f.incarnation}) // with every round until it is retired
		}
	}
	return out
}

// heard takes the list of incarnations whose logs were given back or given up. If some are missing,
// the server asks again after restBeats.
func (s *Server) heard(back []Incarnation, out []Output) []Output {
	s.salvaged = back
	if len(back) < len(s.view.Departed) {
		s.salvaging, s.draining.rest = false, restBeats
	}
	return out
}

// forsake drops the writes of incarnations that were given up. Such an incarnation is retired
// before all of its writes are durable.
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

// reload asks the store for a key that was in memory. Operations that wait for other keys relied on
// it, so they wait for this load as well.
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
