package mesh

import "slices"

// take receives a write. The write is in hidden until it is visible, and in the log until it is
// durable. The caller forwards the write in the same step, so every server forwards writes in the
// order in which it received them (M3, M6).
func (s *Server) take(w *Write) {
	s.hidden[w.Dot] = w
	s.received.add(w.Dot)
	s.log = append(s.log, w)
	s.time = max(s.time, w.Stamp.Time) // M1
}

// inject puts a write that another server took onto the ring here, unless this server has received
// it already (M4, M12).
func (s *Server) inject(w *Write, out []Output) []Output {
	if s.has(w.Dot) {
		return out
	}
	s.take(w)
	return s.forward(s.opt.Incarnation, w, append(out, Event{Injected}))
}

// forward sends a write to the successor, or makes it visible if every server has received it.
// Without a connection the write stays in the log (M17).
func (s *Server) forward(head Incarnation, w *Write, out []Output) []Output {
	return s.goOn(head, w, Chain{s.view.Number, head, w}, out)
}

func (s *Server) goOn(head Incarnation, w *Write, m Message, out []Output) []Output {
	switch {
	case s.next == head: // M7: the chain ends here, so every server has the write
		if w != nil { // otherwise it is visible already
			s.show(w)
		}
	case s.up:
		out = append(out, Send{s.next, m})
	}
	return out
}

// chain receives a write from the predecessor; as is m as an interface, so that forwarding it
// allocates nothing. If this server has the write already, it forwards only the write's name, and
// only if the head made the write. Some server then soon learns that all have received it. If
// another server is the head, it put the write onto the ring to go before a write that depends on
// it; here it already does (M6).
func (s *Server) chain(m Chain, as Message, out []Output) []Output {
	if m.View != s.view.Number || s.expelled { // V1
		return append(out, Event{StaleMessage})
	}
	known := s.has(m.Write.Dot)
	if !known {
		s.take(m.Write)
	}
	if known && m.Head != m.Write.Dot.Incarnation {
		// M6, M17: another server is the head, or the write was sent again for servers that lacked
		// it.
		return out
	}
	if known { // M6: the server has forwarded the write before, so it forwards the name
		as = Named{m.View, m.Write.Dot}
	}
	return s.goOn(m.Head, m.Write, as, out)
}

// named receives the name of a write that this server has forwarded before.
func (s *Server) named(m Named, as Message, out []Output) []Output {
	if s.expelled || m.View != s.view.Number { // V1
		return append(out, Event{StaleMessage})
	}
	// M6: the predecessor forwards a write before its name. A stability round makes up for a fault.
	if !s.has(m.Dot) {
		s.misnamed = true
		return append(out, Event{StaleMessage})
	}
	return s.goOn(m.Dot.Incarnation, s.hidden[m.Dot], as, out)
}

// resynced hears what the successor has received, and sends it the rest of the log, in order. These
// writes have no head, because it is unknown how far they came before (M17).
func (s *Server) resynced(m Resync, out []Output) []Output {
	if m.View != s.view.Number || s.expelled {
		return append(out, Event{StaleMessage})
	}
	s.up = true
	for _, w := range s.log {
		if !m.Received.Covers(w.Dot) {
			out = append(out, Event{Resent}, Send{s.next, Chain{View: s.view.Number, Write: w}})
		}
	}
	return out
}

// beat starts a stability round if this is the first server of the ring and the previous round is
// back, or overdue.
func (s *Server) beat(out []Output) []Output {
	const overdue = 8
	if !s.first() || s.expelled {
		return out
	}
	out = s.poll(s.salvage(out))
	out = s.claim(out)
	if s.circling > 0 && s.circling < overdue {
		s.circling++
		return out
	}
	m := StabilityRound{View: s.view.Number, Seen: s.received.share(), Stable: s.stable, Low: s.low()}
	if s.opt.Async {
		m.Durable = s.durable
	}
	switch {
	case s.next == s.opt.Incarnation:
		return s.stabilityRound(m, out)
	case !s.up:
		return out
	}
	s.circling = 1
	return append(out, Send{s.next, m})
}

// stabilityRound forwards a stability round, behind everything that the first server had received
// when the round began. The first server learns from the round's return that it has been everywhere
// (M14).
func (s *Server) stabilityRound(m StabilityRound, out []Output) []Output {
	if m.View != s.view.Number || s.expelled {
		return append(out, Event{StaleMessage})
	}
	if !s.first() {
		out = s.becameDurable(m.Durable, s.becameStable(m.Stable, out))
		out = s.giveBack(out)
		m.Low = min(m.Low, s.low())
		if s.up {
			out = append(out, Send{s.next, m})
		}
		return out
	}
	s.circling = 0
	past := s.stable.Upto(External)
	out = s.becameStable(s.stable.Union(m.Seen), out)
	if n := s.stable.Upto(External); n > past && !s.opt.Async { // A10
		out = append(out, Truncate{External, n}) // M13
	}
	out = s.retire(m, out)
	out = s.giveBack(out)
	// M15: every server has shown all writes below m.Low, and none will be made. A departed
	// incarnation may have made some, so the ring collects nothing until it is retired.
	if m.Low > s.collected && s.dead >= s.collected && s.dead > 0 && len(s.view.Departed) == 0 {
		s.collected = m.Low
		out = append(out, CollectTombstones{m.Low})
	}
	return out
}

// low returns a time below which this incarnation will make no write and all of its writes are
// known to be stable and durable (M15).
func (s *Server) low() uint64 {
	low := s.time + 1
	for _, p := range s.pending {
		low = min(low, p.write.Stamp.Time)
	}
	for _, w := range s.log {
		if w.Dot.Incarnation == s.opt.Incarnation || w.Dot.Incarnation == External {
			// M19: no server is External, so every server counts its writes.
			low = min(low, w.Stamp.Time)
		}
	}
	return low
}

// Truncated returns the number up to which every server is known to have received this
// incarnation's writes.
func (s *Server) Truncated() uint64 { return s.stable.Upto(s.opt.Incarnation) }

// becameStable takes a set that every server has received. Its writes become visible, and need not
// be kept for any server (M14).
func (s *Server) becameStable(stable Frontier, out []Output) []Output {
	if stable.Within(s.stable) {
		return out
	}
	s.integrate(stable) // the set that a server has received contains the causes of every write in it
	s.stable = stable
	if s.opt.Async { // external writes are in the rows from the beginning
		return s.flush(s.becameDurable(stable.Only(External), out))
	}
	return s.becameDurable(stable, out)
}

// becameDurable takes a set that is stable and in the rows. The log need not keep its writes (M14,
// A7).
func (s *Server) becameDurable(durable Frontier, out []Output) []Output {
	if durable.Within(s.durable) {
		return out
	}
	own := s.durable.Upto(s.opt.Incarnation)
	s.durable = s.durable.Union(durable)
	s.log = slices.DeleteFunc(s.log, func(w *Write) bool {
		if !s.durable.Covers(w.Dot) {
			return false
		}
		s.free(w)
		return true
	})
	if n := s.durable.Upto(s.opt.Incarnation); n > own {
		s.paid(own, min(n, s.number))
		out = append(out, Truncate{s.opt.Incarnation, n}) // M13
	}
	return out
}
