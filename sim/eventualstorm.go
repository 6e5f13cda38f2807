package sim

import (
	"fmt"
	"maps"
	"slices"

	"github.com/freshet-cache/freshet/eventual/fanout"
	"github.com/freshet-cache/freshet/eventual/wire"
	"github.com/freshet-cache/freshet/ticks"
)

// eventualStorm is the world of eventual: nodes with the machine that ships, a store, a registry and
// a bus that loses, repeats, delays and reorders.
type eventualStorm struct {
	*world
	plan     EventualPlan
	opt      fanout.Options
	nodes    []*eventualNode
	newest   fanout.Incarnation
	registry map[fanout.Incarnation]ticks.Tick
	struck   map[fanout.Incarnation]bool
	rows     map[string][]ticks.Tick // when each version landed
	sessions []*eventualSession
	cuts     map[[2]int]ticks.Tick
	calm     bool
	res      Result
	logged   bool
}

// eventualNode is a node, through all its incarnations.
type eventualNode struct {
	s                   *eventualStorm
	index               int
	id                  fanout.Incarnation
	m                   *fanout.Node
	clock               clock
	entries             map[string]eventualEntry
	vouched             ticks.Tick
	paused, deaf, slow  ticks.Tick
	calls               map[fanout.Op]*eventualCall
	loaded              map[fanout.LoadID]int // what the store has returned
	paged               map[fanout.Op]map[string]int
	op                  fanout.Op
	up, leaving, ticked bool
}

type eventualEntry struct {
	version int
	grant   fanout.Grant
}

// eventualCall is a call under way.
type eventualCall struct {
	EventualCall
	begun   ticks.Tick // by the node's clock
	oldest  int        // the version that a read may return at least
	version int
	hit     bool
}

// eventualSession is a session, which does one thing after the other.
type eventualSession struct {
	token []byte
	saw   map[string]int
	busy  bool
}

const eventualTag = "tag"

// runEventual runs a plan to its end, and then until every node is in step.
func runEventual(p EventualPlan, log bool) (res Result) {
	s := &eventualStorm{world: newWorld(p.Seed), plan: p, registry: map[fanout.Incarnation]ticks.Tick{}, struck: map[fanout.Incarnation]bool{}, rows: map[string][]ticks.Tick{}, cuts: map[[2]int]ticks.Tick{}, logged: log}
	s.res.Sometimes = map[string]int{}
	s.opt = fanout.Options{Lease: 4 * sec, Land: 5 * sec, Drift: p.Config.Drift, Slots: p.Config.Slots, Ring: p.Config.Ring, Stale: 1500 * ms, Young: 1500 * ms}
	defer func() {
		if r := recover(); r != nil {
			s.fail(fmt.Errorf("panic: %v", r))
			res = s.res
		}
	}()
	for i := range p.Config.Keys {
		s.rows[string(rune('a'+i))] = []ticks.Tick{0}
	}
	for range p.Config.Sessions {
		s.sessions = append(s.sessions, &eventualSession{saw: map[string]int{}})
	}
	for i := range p.Config.Nodes {
		n := &eventualNode{s: s, index: i}
		s.nodes = append(s.nodes, n)
		n.boot()
	}
	for _, c := range p.Calls {
		s.after(c.At, func() { s.nodes[c.Node].awake(func() { s.nodes[c.Node].call(c) }) })
	}
	for _, f := range p.Faults {
		s.after(f.At, func() { s.inject(f) })
	}
	for s.res.Err == nil && s.next(p.Config.Span) {
		s.res.Events++
	}
	s.calm = true
	for _, n := range s.nodes {
		n.paused, n.deaf, n.slow = min(n.paused, s.now), 0, 0
	}
	clear(s.cuts)
	for end := s.now + 60*sec; s.res.Err == nil && s.next(end); {
		s.res.Events++
	}
	s.rest()
	return s.res
}

func (s *eventualStorm) fail(err error) {
	if s.res.Err == nil {
		s.res.Err, s.res.At = fmt.Errorf("at %s: %w", show(s.now), err), s.now
	}
}

func (s *eventualStorm) sometimes(what string) { s.res.Sometimes[what]++ }

func (s *eventualStorm) log(format string, a ...any) {
	if s.logged {
		s.res.Log = append(s.res.Log, show(s.now)+"  "+fmt.Sprintf(format, a...))
	}
}

// rest demands that every node is in step, and that nothing is marked or under way (E6).
func (s *eventualStorm) rest() {
	for _, n := range s.nodes {
		if s.res.Err == nil && (n.vouched < n.now() || !n.m.Quiet()) {
			s.fail(fmt.Errorf("faults are over, and %d is not in step, or something is under way:\n%s", n.id, n.m.Dump()))
		}
	}
}

// inject lets a fault happen.
func (s *eventualStorm) inject(f EventualFault) {
	n := s.nodes[f.Node]
	s.log("%v of %d to %d for %s", f.Kind, f.Node, f.To, show(f.For))
	switch f.Kind {
	case EventualCrash:
		n.end(f.For)
	case EventualPause:
		n.paused = max(n.paused, s.now+min(f.For, 20*sec))
	case EventualCut:
		s.cuts[[2]int{f.Node, f.To}] = s.now + f.For
	case EventualSlow:
		n.slow = s.now + f.For
	case EventualDeaf:
		n.deaf = s.now + f.For
	case EventualLeave:
		n.awake(func() { n.leaving = true; n.step(fanout.Closing{}) })
	case EventualEvict:
		n.awake(func() {
			for _, key := range slices.Sorted(maps.Keys(n.entries)) {
				delete(n.entries, key)
				n.step(fanout.Evicted{Key: key})
			}
		})
	}
}

// boot begins an incarnation.
func (n *eventualNode) boot() {
	s := n.s
	s.newest++
	opt := s.opt
	opt.Self = s.newest
	n.id, n.m, n.clock = s.newest, fanout.New(opt), newClock(s.rng(fmt.Sprint("clock ", s.newest)), s.plan.Config.Drift)
	n.entries, n.vouched, n.up, n.leaving, n.ticked = map[string]eventualEntry{}, -1<<60, true, false, false
	n.calls, n.loaded, n.paged = map[fanout.Op]*eventualCall{}, map[fanout.LoadID]int{}, map[fanout.Op]map[string]int{}
	n.tick()
}

// end ends an incarnation; another one begins later.
func (n *eventualNode) end(later ticks.Tick) {
	if !n.up {
		return
	}
	n.up = false
	for _, op := range slices.Sorted(maps.Keys(n.calls)) {
		n.release(n.calls[op])
	}
	n.s.after(min(later, 20*sec), n.boot)
}

func (n *eventualNode) release(c *eventualCall) {
	if c.Session > 0 {
		n.s.sessions[c.Session-1].busy = false
	}
}

func (n *eventualNode) now() ticks.Tick { return n.clock.read(n.s.now) }

// awake does something in this incarnation as soon as it is not paused.
func (n *eventualNode) awake(do func()) {
	switch id := n.id; {
	case !n.up:
	case n.s.now < n.paused:
		n.s.after(n.paused-n.s.now, func() {
			if n.id == id {
				n.awake(do)
			}
		})
	default:
		do()
	}
}

// later does something in this incarnation after a time.
func (n *eventualNode) later(d ticks.Tick, do func()) {
	id := n.id
	n.s.after(d, func() {
		if n.id == id {
			n.awake(do)
		}
	})
}

func (n *eventualNode) tick() {
	n.awake(func() {
		n.step(fanout.Ticked{})
		n.later(250*ms, n.tick)
	})
}

func (n *eventualNode) step(in fanout.Input) {
	if !n.up {
		return
	}
	outs := n.m.Step(n.now(), in, nil)
	n.m.Check()
	for _, out := range outs {
		if n.up {
			n.perform(out)
		}
	}
}

func (n *eventualNode) perform(out fanout.Output) {
	s := n.s
	switch out := out.(type) {
	case fanout.Send:
		for _, to := range s.nodes {
			if out.To == 0 || out.To == to.id {
				s.send(n, to, out.Message)
			}
		}
	case fanout.Renew, fanout.List, fanout.Deregister, fanout.Expelled:
		n.register(out)
	case fanout.Load:
		n.load(out)
	case fanout.Keep:
		n.keep(out)
	case fanout.Flag:
		e := n.entries[out.Key]
		e.grant.Marked = true
		n.entries[out.Key] = e
	case fanout.Drop:
		delete(n.entries, out.Key)
	case fanout.DropAll:
		s.sometimes("a node drops everything")
		clear(n.entries)
	case fanout.Vouch:
		n.vouched = out.Until
	case fanout.Write:
		n.write(out)
	case fanout.Answer:
		n.answered(out)
	case fanout.Done:
		n.done(out)
	}
}

// send carries a message through its encoding and over the bus.
func (s *eventualStorm) send(n, to *eventualNode, msg fanout.Message) {
	r, b := s.rng(fmt.Sprintf("from %d to %d", n.index, to.index)), wire.Append(nil, n.id, msg)
	if s.now < s.cuts[[2]int{n.index, to.index}] || !s.calm && chance(r, s.plan.Config.Loss) {
		s.sometimes("a message is lost")
		return
	}
	delay := spread(r, s.plan.Config.Delay)
	if s.now < n.slow {
		delay += spread(r, 2*sec)
		s.sometimes("a message takes longer than S")
	}
	for range 1 + (r.IntN(30) / 29) {
		to.later(delay, func() {
			from, msg, err := wire.Decode(b)
			if err != nil {
				s.fail(err)
				return
			}
			to.step(fanout.Received{From: from, Message: msg})
		})
		delay += spread(r, s.plan.Config.Delay)
	}
}
