package sim

import (
	"github.com/freshet-cache/freshet/linear/clink"
	"github.com/freshet-cache/freshet/ticks"
)

// asked is one request to the store, from when it is sent to when its answer is
// delivered or given up.
type asked struct {
	n           *stormNode
	incarnation int
	out         clink.Output
	closed      bool               // the node was told something already
	done        func(clink.Status) // set for a transaction: hears of its end instead of the node
}

// request sends a request; after the timeout the node is told that there was no
// answer, whatever becomes of it.
func (s *storm) request(n *stormNode, out clink.Output) {
	r, c := s.rng("store of "+n.name), s.plan.Config
	a := &asked{n: n, incarnation: n.incarnations, out: out}
	delay := spread(r, c.Delay) + pause(out)
	n.later(c.Timeout+pause(out), func() { s.tell(a, lost(out)) })
	if s.now < n.muted && chance(r, 50) {
		s.sometimes("a request to the store is lost")
		return
	}
	if s.now < n.muted && chance(r, 30) { // it hangs in some buffer
		delay += spread(r, 3*c.Timeout)
	}
	s.after(delay, func() { s.arrive(a) })
}

// pause is how long a repeated request waits.
func pause(out clink.Output) ticks.Tick {
	try := 0
	switch out := out.(type) {
	case clink.Load:
		try = out.Try
	case clink.SetGuard:
		try = out.Try
	case clink.ReadSplits:
		try = out.Try
	}
	if try == 0 {
		return 0
	}
	return ms << min(try, 10)
}

func lost(out clink.Output) clink.Input {
	switch out := out.(type) {
	case clink.Load:
		return clink.Loaded{Call: out.Call, Status: clink.StatusUnknown}
	case clink.SetGuard:
		return clink.Guarded{Call: out.Call, Status: clink.StatusUnknown}
	case clink.ReadSplits:
		return clink.Splits{Call: out.Call, Status: clink.StatusUnknown}
	case clink.Store:
		return clink.Stored{Call: out.Call, Status: clink.StatusUnknown}
	}
	panic("sim: not a request")
}

// arrive takes a request to the store.
func (s *storm) arrive(a *asked) {
	if a.closed || a.incarnation != a.n.incarnations {
		s.sometimes("a request arrives after it was given up")
	}
	switch out := a.out.(type) {
	case clink.Load:
		s.reply(a, clink.Loaded{Call: out.Call, Row: s.store.Load(s.clock(), out.Key)})
	case clink.ReadSplits:
		s.reply(a, clink.Splits{Call: out.Call, Points: s.store.Points()})
	case clink.SetGuard:
		s.guard(a, out)
	case clink.Store:
		s.commit(a, out)
	}
}

func (s *storm) guard(a *asked, out clink.SetGuard) {
	if s.store.Blocked(out.Range) {
		s.sometimes("a SetGuard waits for a commit")
		s.blocks = append(s.blocks, func() { s.guard(a, out) })
		return
	}
	status := s.store.SetGuard(out.Range, out.Token)
	s.log("store: guard %v over %v for %s: %d", out.Token, out.Range, a.n.name, status)
	s.reply(a, clink.Guarded{Call: out.Call, Status: status})
}

// commit admits a write, and applies it a while later.
func (s *storm) commit(a *asked, out clink.Store) {
	admitted, status := s.store.Admit(out.Muts)
	if status != clink.OK {
		s.log("store: write %v of %s under %v is refused", out.ID, a.n.name, out.Muts[0].Guard)
		s.reply(a, clink.Stored{Call: out.Call, Status: status})
		return
	}
	d := spread(s.rng("disk"), s.plan.Config.Disk)
	if s.now < s.slow {
		d = max(d, ms) * 20
	}
	s.after(d, func() { s.apply(a, out, admitted) })
}

func (s *storm) apply(a *asked, out clink.Store, admitted int) {
	was := s.judge.nowOf(out.Muts)
	status, stamps := s.store.Apply(s.clock(), admitted, out.ID, out.Muts)
	if status == clink.OK {
		for i, m := range out.Muts {
			if b, ok := s.belief[string(m.Value)]; ok && !m.Delete && was[i] != b {
				s.fail(s.judge.Atomic(m.Key, string(m.Value), b))
			}
		}
		for i, m := range out.Muts {
			s.log("store: %s=%q version %d for %s", m.Key, m.Value, stamps[i].Version, a.n.name)
			s.fail(s.judge.Changed(m.Key, string(m.Value), !m.Delete))
			s.expire(m.Key, stamps[i])
			s.sweep(m, stamps[i])
		}
	}
	s.reply(a, clink.Stored{Call: out.Call, Status: status, Stamps: stamps})
	blocked := s.blocks
	s.blocks = nil
	for _, again := range blocked {
		again()
	}
}

// clock is the store's.
func (s *storm) clock() ticks.Tick { return s.storec.read(s.now) }

// expire tells the judge when a row's TTL ends.
func (s *storm) expire(name string, st clink.Stamp) {
	if st.TTL == 0 {
		return
	}
	left := s.store.rows[name].expires - s.clock()
	wait := left - left*ticks.Tick(s.storec.rate)/1e6 // about; the rest in small steps
	s.after(max(wait, 1), func() {
		switch row := s.store.rows[name]; {
		case row.Version != st.Version:
		case s.clock() < row.expires:
			s.expire(name, clink.Stamp{Version: st.Version, TTL: 1})
		default:
			s.log("store: %s expires", name)
			s.sometimes("a row expires")
			s.fail(s.judge.Changed(name, "", false))
			if chance(s.rng("sweep"), 50) {
				s.store.Sweep(s.clock(), name)
			}
		}
	})
}

// sweep lets the store forget a deleted row, sooner or later.
func (s *storm) sweep(m clink.Mut, st clink.Stamp) {
	if r := s.rng("sweep"); m.Delete {
		s.after(spread(r, s.plan.Config.Timeout), func() {
			if s.store.rows[m.Key].Version == st.Version {
				s.store.Sweep(s.clock(), m.Key)
			}
		})
	}
}

// reply sends an answer back.
func (s *storm) reply(a *asked, in clink.Input) {
	if a.done != nil {
		a.done(in.(clink.Stored).Status)
		return
	}
	r := s.rng("answers to " + a.n.name)
	if s.now < a.n.muted && chance(r, 50) {
		s.sometimes("an answer of the store is lost")
		return
	}
	s.after(spread(r, s.plan.Config.Delay), func() { s.tell(a, in) })
}

// tell steps the node with the first answer there is.
func (s *storm) tell(a *asked, in clink.Input) {
	n := a.n
	if a.closed || a.incarnation != n.incarnations || !n.up {
		return
	}
	n.awake(func() {
		if a.closed {
			return
		}
		a.closed = true
		n.locked(func() { n.step(in) })
	})
}
