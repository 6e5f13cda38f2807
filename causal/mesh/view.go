package mesh

import (
	"math"
	"slices"
)

// viewed enters a new ring, or hears that there is no place in it.
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

// salvage looks after the writes of departed incarnations, as the first server of a ring does,
// whether it has just come or not (V3).
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

// recovered puts the journal of departed incarnations onto the ring, causes first: each in
// the order of its stamp, and before it what it names one by one, wherever that was made.
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
	case len(want) > 0 && l.asked != nil: // stable, and not received here
		return s.stranded(out)
	case len(want) > 0: // V3: who made it may not have got it round yet
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

// poll asks external writes, as the first server of a ring does: that goes
// round from here as if a client had brought it (M19).
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
		if taken >= s.opt.WindowBytes { // M16: what follows is asked for again
			break
		}
		taken += w.Weight()
		out = s.inject(w, out)
	}
	return out
}

// foreign is what the log has of writes that came from outside.
func (s *Server) foreign() (n int) {
	for _, w := range s.log {
		if w.Dot.Incarnation == External {
			n += w.Weight()
		}
	}
	return n
}

// stranded gives a rescue up: another ring has gone on without this server, which will hear.
func (s *Server) stranded(out []Output) []Output {
	s.salvaging = false
	return append(out, Event{FellBehind})
}

// retire reports incarnations of which everything has been shown everywhere, as the stability round that is back
// has told every server (V4).
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

// retired reports whether every write of an incarnation has been shown everywhere, and there will
// be no other (V5).
func (s *Server) retired(o Incarnation) bool { return s.view.Retired(o) }

// Retired reports whether an incarnation is over and everything of it has been shown everywhere.
func (v *View) Retired(o Incarnation) bool {
	return o <= v.Newest && !slices.Contains(v.Ring, o) && !slices.Contains(v.Departed, o)
}

// has and shows are what was received and is visible, retired incarnations included.
func (s *Server) has(d Dot) bool   { return s.received.Covers(d) || s.retired(d.Incarnation) }
func (s *Server) shows(d Dot) bool { return s.visible.Covers(d) || s.retired(d.Incarnation) }

// trim leaves out what is retired.
func (s *Server) trim(f Frontier) Frontier { return f.Without(s.retired) }

// reached reports whether this server can show everything in deps.
func (s *Server) reached(deps Frontier) bool {
	return deps.Within(s.received.Frontier) || s.trim(deps).Within(s.received.Frontier)
}

// asked gives a server that joins behind this one all that it must begin with. It joins in
// the view that this server is in: what is passed on in that view reaches it (V2).
func (s *Server) asked(in Asked, out []Output) []Output {
	if in.View != s.view.Number || s.expelled {
		return append(out, Event{StaleMessage})
	}
	return append(out, Send{in.From, Snapshot{in.View, s.visible.share(), s.received.share(), s.stable, s.time, slices.Clone(s.log), s.durable, s.elder}})
}

// adopt begins with another's snapshot. What it has shown, and more, counts as forgotten.
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
