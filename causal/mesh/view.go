package mesh

import (
	"fmt"
	"math"
	"slices"
)

// viewed enters a newer view. A server that is not in its ring has departed.
func (s *Server) viewed(v View, out []Output) []Output {
	if v.Number <= s.view.Number {
		return out
	}
	if !slices.Contains(v.Ring, s.opt.Incarnation) {
		s.expelled, s.up = true, false
		return out
	}
	s.enter(v)
	out = s.forsake(out)
	s.elder = slices.DeleteFunc(slices.Clone(s.elder), s.retired)
	for _, f := range []*Frontier{&s.visible.Frontier, &s.received.Frontier, &s.stable, &s.durable} {
		*f = s.trim(*f) // V5
	}
	return s.giveBack(out)
}

// salvage asks for the writes of departed incarnations. The first server of a ring calls it with
// every beat, so it asks once in a view and again after a failure (V3).
func (s *Server) salvage(out []Output) []Output {
	if s.salvaging || len(s.view.Departed) == 0 {
		return out
	}
	if s.draining.rest > 0 {
		s.draining.rest--
		return out
	}
	s.salvaging = true
	return append(out, Recover{s.view.Number, s.view.Departed})
}

// recovered puts the journals of departed incarnations onto the ring, ordered by stamp, and so
// causes first. Causes that a write names one by one go before it, whichever incarnation made them.
func (s *Server) recovered(in Recovered, out []Output) []Output {
	switch {
	case in.View != s.view.Number || s.expelled:
		return append(out, Event{StaleMessage})
	case in.Status != OK:
		s.salvaging = false
		return out
	case s.opt.Async:
		return s.heard(in.Back, out)
	}
	return s.rescue(&load{rescue: in.View, got: in.Writes}, out)
}

func (s *Server) rescue(l *load, out []Output) []Output {
	var want []Dot
	for _, w := range l.got {
		for _, d := range w.After {
			if !s.has(d) && !slices.ContainsFunc(l.got, func(o *Write) bool { return o.Dot == d }) {
				want = append(want, d)
			}
		}
	}
	switch {
	case len(want) > 0 && l.asked != nil: // journal and server both lack it, so it is stable at servers of another ring
		return s.stranded(out)
	case len(want) > 0: // V3: the server that made it may not have sent it around the ring yet
		slices.SortFunc(want, Dot.Compare)
		c := s.call()
		l.asked, s.loads[c] = slices.Compact(want), l
		return append(out, Event{Journaled}, Fetch{c, l.asked})
	}
	slices.SortFunc(l.got, byStamp)
	for _, w := range l.got {
		if !s.reached(w.Deps) {
			return s.stranded(out)
		}
		out = s.inject(w, out)
	}
	if l.rescue == s.view.Number {
		s.salvaged = s.view.Departed
	}
	return out
}

// poll asks for external writes. The first server of a ring puts them onto the ring as if a client
// had brought them (M19).
func (s *Server) poll(out []Output) []Output {
	n := s.received.Upto(External)
	if s.polling || above(n, s.stable.Upto(External)) >= uint64(s.opt.Window) || s.foreign() >= s.opt.WindowBytes { // M16
		return out
	}
	s.polling = true
	return append(out, Poll{s.view.Number, n})
}

func (s *Server) polled(in Polled, out []Output) []Output {
	if in.View != s.view.Number || s.expelled {
		return append(out, Event{StaleMessage})
	}
	s.polling = false
	taken := s.foreign()
	for _, w := range in.Writes {
		if taken >= s.opt.WindowBytes { // M16: the next Poll asks for the rest
			break
		}
		taken += w.Weight()
		out = s.inject(w, out)
	}
	return out
}

// foreign returns how many bytes of external writes the log has.
func (s *Server) foreign() (n int) {
	for _, w := range s.log {
		if w.Dot.Incarnation == External {
			n += w.Weight()
		}
	}
	return n
}

// stranded ends a rescue. Another ring has gone on without this server, which will hear of it.
func (s *Server) stranded(out []Output) []Output {
	s.salvaging = false
	return append(out, Event{FellBehind})
}

// retire reports departed incarnations whose writes are all visible everywhere. The stability round
// that has come back told every server that they are stable (V4).
func (s *Server) retire(m StabilityRound, out []Output) []Output {
	shown := m.Stable
	if s.opt.Async {
		shown = m.Durable // A8
	}
	for _, o := range s.salvaged {
		all := s.received.Only(o)
		if all.Within(shown) {
			if n := all.Last(); n > 0 && !s.opt.Async {
				out = append(out, Truncate{o, n})
			}
			out = append(out, Retire{o})
		}
	}
	return out
}

// first reports whether this is the first server of its ring.
func (s *Server) first() bool { return s.view.Ring[0] == s.opt.Incarnation }

// retired reports whether every write of an incarnation is visible everywhere and no other can come
// (V5).
func (s *Server) retired(o Incarnation) bool { return s.view.Retired(o) }

// String names the view by its number.
func (v *View) String() string {
	if v == nil {
		return "no view"
	}
	return fmt.Sprint("view ", v.Number)
}

// Retired reports whether an incarnation has departed and all of its writes are visible everywhere.
func (v *View) Retired(o Incarnation) bool {
	return o <= v.Newest && !slices.Contains(v.Ring, o) && !slices.Contains(v.Departed, o)
}

// has reports whether a write was received, and shows whether it is visible, retired incarnations
// included.
func (s *Server) has(d Dot) bool   { return s.received.Covers(d) || s.retired(d.Incarnation) }
func (s *Server) shows(d Dot) bool { return s.visible.Covers(d) || s.retired(d.Incarnation) }

// trim leaves out writes of retired incarnations.
func (s *Server) trim(f Frontier) Frontier { return f.Without(s.retired) }

// reached reports whether this server has received everything in deps.
func (s *Server) reached(deps Frontier) bool {
	return deps.Within(s.received.Frontier) || s.trim(deps).Within(s.received.Frontier)
}

// asked sends its state to a server that joins behind this one. The server joins in the current
// view, so every write that this server forwards in the view reaches it (V2).
func (s *Server) asked(in Asked, out []Output) []Output {
	if in.View != s.view.Number || s.expelled {
		return append(out, Event{StaleMessage})
	}
	return append(out, Send{in.From, Snapshot{in.View, s.visible.share(), s.received.share(), s.stable, s.time, slices.Clone(s.log), s.durable, s.elder}})
}

// adopt begins with the state of the predecessor. The predecessor may have forgotten values of
// keys, so the floor is above every time that it has seen (M10).
func (s *Server) adopt(c *Snapshot) {
	s.visible = set{c.Visible, true}
	s.received = set{c.Received, true}
	s.elder, s.durable = c.Elder, c.Stable
	if s.opt.Async {
		s.durable = c.Durable
	}
	s.stable, s.time, s.log = c.Stable, max(s.time, c.Time), slices.Clone(c.Log)
	s.floor = Stamp{Time: s.time, Incarnation: math.MaxUint32}
	for _, w := range s.log {
		if !s.visible.Covers(w.Dot) {
			s.hidden[w.Dot] = w
			continue
		}
		for _, m := range w.Muts { // A5
			s.install(m, w)
			if k := s.cache[m.Key]; k != nil {
				s.weigh(k)
			}
		}
	}
}
