package sim

import (
	"fmt"

	"github.com/freshet-cache/freshet/shard/lease"
	"github.com/freshet-cache/freshet/ticks"
)

// coordinator keeps one leader at a time among the assigners, by its own clock,
// and the state that a leader saves.
type coordinator struct {
	s         *storm
	clock     clock
	term      uint64
	leader    *assignerProcess
	until     ticks.Tick // of the leadership, by the coordinator's clock
	state     []byte
	rev       uint64 // of the state, in this term
	assigners []*assignerProcess
	leadSpan  ticks.Tick
}

// assignerProcess is one assigner, through all its incarnations.
type assignerProcess struct {
	coord        *coordinator
	index        int
	incarnations int
	up           bool
	name         string
	clock        clock
	machine      *lease.Assigner
	term         uint64
	paused       ticks.Tick
	cutOff       ticks.Tick // from the coordinator
}

func newCoordinator(s *storm) *coordinator {
	d := &coordinator{s: s, clock: newClock(s.rng("coordinator clock"), s.plan.Config.Drift), leadSpan: s.plan.Config.Lease}
	for i := range s.plan.Config.Assigners {
		c := &assignerProcess{coord: d, index: i}
		d.assigners = append(d.assigners, c)
		c.boot()
	}
	return d
}

func (c *assignerProcess) boot() {
	s := c.coord.s
	c.incarnations++
	c.up, c.paused, c.term = true, 0, 0
	c.name = fmt.Sprintf("a%d.%d", c.index, c.incarnations)
	c.clock = newClock(s.rng("clock "+c.name), s.plan.Config.Drift)
	c.machine = lease.NewAssigner(lease.AssignerOptions{Length: s.plan.Config.Lease, Drift: max(1, s.plan.Config.Drift), First: []string{"c", "g"}})
	c.beat()
}

func (c *assignerProcess) now() ticks.Tick { return c.clock.read(c.coord.s.now) }

// awake does something in this incarnation as soon as the assigner is not paused.
func (c *assignerProcess) awake(do func()) {
	incarnation, s := c.incarnations, c.coord.s
	switch {
	case !c.up:
	case s.now < c.paused:
		s.after(c.paused-s.now, func() {
			if c.incarnations == incarnation {
				c.awake(do)
			}
		})
	default:
		do()
	}
}

func (c *assignerProcess) later(d ticks.Tick, do func()) {
	incarnation := c.incarnations
	c.coord.s.after(d, func() {
		if c.up && c.incarnations == incarnation {
			c.awake(do)
		}
	})
}

// beat asks for the leadership, or for more of it, and lets the machine look
// around.
func (c *assignerProcess) beat() {
	c.awake(func() {
		s := c.coord.s
		r, incarnation, sent, term := s.rng("campaign "+c.name), c.incarnations, c.now(), c.term
		if s.now >= c.cutOff {
			s.after(spread(r, s.plan.Config.Delay), func() {
				if won, state, ok := c.coord.campaign(c, incarnation, term); ok && s.now >= c.cutOff {
					c.later(spread(r, s.plan.Config.Delay), func() { c.elected(sent, won, term, state) })
				}
			})
		}
		c.perform(c.machine.Beat(c.now(), nil))
		c.later(s.plan.Config.Beat/2, c.beat)
	})
}

// campaign makes a assigner the leader if there is none, or lets its leadership
// last longer.
func (d *coordinator) campaign(c *assignerProcess, incarnation int, term uint64) (uint64, []byte, bool) {
	now := d.clock.read(d.s.now)
	switch {
	case c.incarnations != incarnation:
		return 0, nil, false
	case d.term != 0 && d.term == term && d.leader == c: // still; also if it lapsed and nobody took it
	case now >= d.until:
		if d.term > 0 {
			d.s.sometimes("another leader is elected")
		}
		d.term++
		d.leader, d.rev = c, 0
	default:
		return 0, nil, false
	}
	d.until = max(d.until, now+ticks.Lengthen(d.leadSpan, d.s.plan.Config.Drift))
	return d.term, d.state, true
}

// elected takes the answer to a campaign that was sent at the tick sent.
func (c *assignerProcess) elected(sent ticks.Tick, won, asked uint64, state []byte) {
	led := sent + ticks.Shorten(c.coord.leadSpan, c.coord.s.plan.Config.Drift)
	if won == c.term {
		c.machine.Led(won, led)
		return
	}
	if won == asked || c.now() >= led { // of a term that is over
		return
	}
	var st lease.State
	if state != nil {
		m, err := lease.Decode(state)
		if err != nil {
			c.coord.s.fail(fmt.Errorf("a saved state cannot be read: %w", err))
			return
		}
		st = *m.(*lease.State)
	}
	c.term = won
	c.coord.s.log("%s leads term %d", c.name, won)
	c.perform(c.machine.Elected(c.now(), won, led, 0, st, nil, nil))
}

// perform carries out what a machine asks.
func (c *assignerProcess) perform(outs []lease.AssignerOutput) {
	c.machine.Check()
	for _, out := range outs {
		switch out := out.(type) {
		case lease.Save:
			c.save(out)
		case lease.SendGrant:
			c.coord.send(c, out.Node, &out.Grant)
		case lease.SendRecall:
			c.coord.send(c, out.Node, &out.Recall)
		}
	}
}

// save has the coordinator store a state; without an answer the machine hears of that
// and saves its newest state, as in the runtime. An attempt that arrives when a later
// state has been saved changes nothing: coordinators see to that.
func (c *assignerProcess) save(out lease.Save) {
	s, d := c.coord.s, c.coord
	r, incarnation, heard := s.rng("saves "+c.name), c.incarnations, false
	if s.now >= c.cutOff {
		bytes := lease.Append(nil, &out.State)
		s.after(spread(r, s.plan.Config.Delay), func() {
			ok := d.term == out.Term
			switch {
			case !ok:
				s.sometimes("a deposed leader saves")
			case out.Rev < d.rev:
				s.sometimes("a save arrives after the next one")
			default:
				d.state, d.rev = bytes, out.Rev
			}
			if c.incarnations != incarnation || s.now < c.cutOff {
				return
			}
			c.later(spread(r, s.plan.Config.Delay), func() {
				if !heard {
					heard = true
					c.perform(c.machine.Saved(c.now(), out.Term, out.Rev, ok, nil))
				}
			})
		})
	}
	c.later(max(s.plan.Config.Timeout, 4*s.plan.Config.Delay), func() {
		if !heard && c.term == out.Term {
			heard = true
			s.sometimes("a save has no answer")
			c.perform(c.machine.Unsaved(out.Term, out.Rev, nil))
		}
	})
}

// hear carries a node's message to every assigner: the one that leads answers.
func (d *coordinator) hear(n *stormNode, msg any) {
	s := d.s
	r := s.rng("to assigners from " + n.name)
	for _, c := range d.assigners {
		if s.now < n.cutOff[c.index] {
			s.sometimes("a lease message is lost")
			continue
		}
		for range copies(r) {
			c.later(spread(r, s.plan.Config.Delay), func() {
				switch m := msg.(type) {
				case *lease.Renew:
					c.perform(c.machine.Renewed(c.now(), *m, nil))
				case *lease.Gave:
					c.perform(c.machine.GaveUp(c.now(), *m, nil))
				}
			})
		}
	}
}

// send carries an assigner's message to a node, if it is still that incarnation's.
func (d *coordinator) send(c *assignerProcess, name string, msg any) {
	s := d.s
	for _, n := range s.nodes {
		if n.name != name || s.now < n.cutOff[c.index] {
			continue
		}
		r := s.rng("from " + c.name + " to " + name)
		for range copies(r) {
			n.later(spread(r, s.plan.Config.Delay), func() { n.fromAssigner(msg) })
		}
	}
}

// copies is how often a message arrives: machines tolerate loss and repetition.
func copies(r interface{ IntN(int) int }) int {
	switch r.IntN(30) {
	case 0:
		return 0
	case 1:
		return 2
	}
	return 1
}

// inject lets a fault of the assigners happen.
func (d *coordinator) inject(f Fault) {
	c := d.assigners[f.Node%len(d.assigners)]
	for _, leader := range d.assigners { // half of them are injected at the leader
		if leader.machine.Leads(leader.now()) && f.Node%2 == 0 {
			c = leader
		}
	}
	switch f.Kind {
	case AssignerCrash:
		if c.up {
			c.up = false
			d.s.after(f.For, c.boot)
		}
	case AssignerPause:
		c.paused = max(c.paused, d.s.now+f.For)
	case AssignerCut:
		c.cutOff = max(c.cutOff, d.s.now+f.For)
	case MoveSlice:
		c.awake(func() {
			if n := d.s.nodes[f.Node]; c.machine.Move(f.Key, n.name) {
				d.s.sometimes("an operator moves a slice")
			}
			c.perform(c.machine.Beat(c.now(), nil))
		})
	case Replicate:
		c.awake(func() {
			if c.machine.Leads(c.now()) && c.machine.Replicate(c.now(), f.Key, 1+f.Node%3) {
				d.s.sometimes("an operator replicates a key")
			}
			c.perform(c.machine.Beat(c.now(), nil))
		})
	case Unreplicate:
		c.awake(func() {
			c.machine.Unreplicate(c.now(), f.Key)
			c.perform(c.machine.Beat(c.now(), nil))
		})
	case SplitSlice:
		c.awake(func() {
			c.machine.Cut(c.now(), []string{f.Key})
			c.perform(c.machine.Beat(c.now(), nil))
		})
	case JoinSlices:
		c.awake(func() {
			c.machine.Join(f.Key)
			c.perform(c.machine.Beat(c.now(), nil))
		})
	}
}
