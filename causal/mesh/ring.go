package mesh

import "slices"

// take receives a write: it is in I until it is shown, and in the log until it is
// stable. Whoever takes one passes it on in the same step, so that what was received
// has been passed on, and in this order (M3, M6).
func (s *Server) take(w *Write) {
	s.hidden[w.Dot] = w
	s.received.add(w.Dot)
	s.log = append(s.log, w)
	s.time = max(s.time, w.Stamp.Time) // M1
}

// inject puts a write onto the ring here, though it was taken elsewhere, unless it
// has passed already (M4, M12).
func (s *Server) inject(w *Write, out []Output) []Output {
	if s.has(w.Dot) {
		return out
	}
	s.take(w)
	return s.forward(s.opt.Incarnation, w, append(out, Event{Injected}))
}

// forward sends a write on to the successor, or shows it if it has been everywhere.
// Without a connection the log keeps it (M17).
func (s *Server) forward(head Incarnation, w *Write, out []Output) []Output {
	return s.goOn(head, w, Chain{s.view.Number, head, w}, out)
}

func (s *Server) goOn(head Incarnation, w *Write, m Message, out []Output) []Output {
	switch {
	case s.next == head: // M7: the ring ends here, everybody has it
		if w != nil { // else it is visible
			s.show(w)
		}
	case s.up:
		out = append(out, Send{s.next, m})
	}
	return out
}

// chain receives a write, and as is m in the memory that it has. What is known already goes
// on as well if its incarnation is the head: somebody has to tell, soon, that it has been
// everywhere. Who else put it onto the ring wants it in front of what depends on it, and
// where it is known it is (M6).
func (s *Server) chain(m Chain, as Message, out []Output) []Output {
	if m.View != s.view.Number || s.expelled { // V1
		return append(out, Event{StaleMessage})
	}
	known := s.has(m.Write.Dot)
	if !known {
		s.take(m.Write)
	}
	if known && m.Head != m.Write.Dot.Incarnation { // M6, M17: or it was sent again only because somebody lacked it
		return out
	}
	if known { // M6: what was passed on once is named from here on
		as = Named{m.View, m.Write.Dot}
	}
	return s.goOn(m.Head, m.Write, as, out)
}

// named hears that a write which has passed here before is on its way round.
func (s *Server) named(m Named, as Message, out []Output) []Output {
	if s.expelled || m.View != s.view.Number { // V1
		return append(out, Event{StaleMessage})
	}
	if !s.has(m.Dot) { // M6: whoever says so has passed it on before; a stability round will tell
		s.misnamed = true
		return append(out, Event{StaleMessage})
	}
	return s.goOn(m.Dot.Incarnation, s.hidden[m.Dot], as, out)
}

// resynced hears from the successor what it has, and sends what it lacks, in order. That
// goes without a head: it is unknown how far it came before (M17).
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

// beat sends a stability round on its way, if this is the first server of the ring and the last stability round
// has come back, or is overdue.
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

// stability round passes a stability round on, which has what the first server had received go before it on every
// connection; or hears that it has been everywhere (M14).
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
	// M15: every server has shown all writes below m.Low, and none will be made; but who is
	// not in the ring may have made some.
	if m.Low > s.collected && s.dead >= s.collected && s.dead > 0 && len(s.view.Departed) == 0 {
		s.collected = m.Low
		out = append(out, CollectTombstones{m.Low})
	}
	return out
}

// low is a time below which no write of this incarnation is to come or is not known to be
// stable, and durable (M15).
func (s *Server) low() uint64 {
	low := s.time + 1
	for _, p := range s.pending {
		low = min(low, p.write.Stamp.Time)
	}
	for _, w := range s.log {
		if w.Dot.Incarnation == s.opt.Incarnation || w.Dot.Incarnation == External { // M19: nobody else holds back for who is no server
			low = min(low, w.Stamp.Time)
		}
	}
	return low
}

// Truncated is the number up to which everybody is known to have received this incarnation's writes.
func (s *Server) Truncated() uint64 { return s.stable.Upto(s.opt.Incarnation) }

// becameStable hears what everybody has received: it may be shown, and need not be kept
// for anybody (M14).
func (s *Server) becameStable(stable Frontier, out []Output) []Output {
	if stable.Within(s.stable) {
		return out
	}
	s.integrate(stable) // what a server has received is closed under causes
	s.stable = stable
	if s.opt.Async { // external writes is in the rows
		return s.flush(s.becameDurable(stable.Only(External), out))
	}
	return s.becameDurable(stable, out)
}

// becameDurable hears what is in the rows, and stable: it need not be kept for anybody (M14, A7).
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
