package mesh

// put is an own write that the store has not confirmed.
type put struct {
	op    Op
	write *Write
	try   int
	void  bool // the store refused it, so its number goes to an empty write (M2)
	with  []*Write
}

func (s *Server) put(now uint64, in Put, out []Output) []Output {
	switch why := s.admits(in.Deps); {
	case why != Done:
		return s.refuse(in.Op, why, out)
	case !s.follows(in.Carried):
		return s.refuse(in.Op, Behind, out)
	case s.crowded(): // M16
		return s.refuse(in.Op, Busy, out)
	}
	if why := s.plausible(now, in.Time, in.Carried); why != Done {
		return s.refuse(in.Op, why, out)
	}
	s.integrate(in.Deps)
	var after []Dot
	for _, c := range in.Carried {
		out = s.inject(c, out) // M4
		after = append(after, c.Dot)
	}
	s.number++
	s.time = max(s.time, in.Time, now) + 1 // M1
	for i := range in.Muts {
		in.Muts[i].Siblings = s.opt.Concurrent
	}
	w := &Write{Dot{Incarnation: s.opt.Incarnation, N: s.number}, Stamp{Time: s.time, Incarnation: s.opt.Incarnation}, s.trim(in.Deps), after, in.Muts}
	s.owe(w)
	return s.persist(&put{op: in.Op, write: w, with: s.alone(in.Carried)}, out)
}

// follows reports whether the visible causes of carried writes have been received.
func (s *Server) follows(carried []*Write) bool {
	for _, c := range carried {
		if !s.reached(c.Deps) {
			return false
		}
	}
	return true
}

func (s *Server) persist(p *put, out []Output) []Output {
	c := s.call()
	s.pending[c] = p
	return append(out, Persist{c, p.write, p.try, p.with})
}

// persisted takes the store's answer for an own write. No other server learns of the write before
// (M2).
func (s *Server) persisted(in Persisted, out []Output) []Output {
	p := s.pending[in.Call]
	delete(s.pending, in.Call)
	switch in.Status {
	case StatusUnknown: // M2: the write may have been committed, or may still be, so its number is taken
		p.try++
		return s.persist(p, append(out, Event{Retried}))
	case Refused: // M2: nothing after a missing number would become stable
		void := *p.write
		void.Muts = nil
		p.write, p.void = &void, true
		return s.persist(p, append(out, Event{Voided}))
	case Fenced:
		s.expelled = true
		return s.refuse(p.op, Expelled, out)
	}
	if s.expelled {
		// The session must ask elsewhere: the write is in the journal, and is recovered from there.
		return s.refuse(p.op, Expelled, out)
	}
	if !s.received.Covers(p.write.Dot) {
		// A reader may have found the write in the store and put it onto the ring already.
		s.take(p.write) // M3
	}
	out = s.forward(s.opt.Incarnation, p.write, out)
	if p.void {
		return s.refuse(p.op, Rejected, out)
	}
	return s.answer(Reply{Op: p.op, Write: p.write}, out)
}
