package sim

import (
	"fmt"
	"maps"
	"slices"

	"github.com/freshet-cache/freshet/linear/clink"
	"github.com/freshet-cache/freshet/shard/lease"
	"github.com/freshet-cache/freshet/ticks"
)

// Result is what became of a run.
type Result struct {
	Err       error // the promise that broke
	At        ticks.Tick
	Events    int
	Sometimes map[string]int // how often what the rules are for has happened
	Log       []string       // what happened, if it was asked for
}

// storm is the world of linear: nodes with the machines that ship, one store, one
// coordinator, assigners, and messages between them.
type storm struct {
	*world
	plan       LinearPlan
	store      *Store
	judge      *Judge
	nodes      []*stormNode
	coord      *coordinator
	belief     map[string]string  // what a decided value was decided from
	open       map[int]*stormNode // calls under way
	slow       ticks.Tick         // until then the store takes longer
	blocks     []func()           // SetGuards that wait for commits in flight
	storec     clock
	crossOwner uint64
	values     map[string][]item // what the value cache of a layered cache was told
	res        Result
	logged     bool
	granted    bool // a lease began or was extended since check looked: time only ends them
}

// Run runs a plan to its end, and on until nothing is under way. With log it
// writes down what happens.
func runLinear(p LinearPlan, log bool) (res Result) {
	s := &storm{world: newWorld(p.Seed), plan: p, store: NewStore(), judge: NewJudge(), belief: map[string]string{}, open: map[int]*stormNode{}, values: map[string][]item{}, logged: log}
	s.res.Sometimes = map[string]int{}
	s.storec = newClock(s.rng("store clock"), p.Config.Drift)
	defer func() {
		if r := recover(); r != nil {
			s.fail(fmt.Errorf("panic: %v", r))
			res = s.res
		}
	}()
	s.coord = newCoordinator(s)
	for i := range p.Config.Nodes {
		n := &stormNode{s: s, index: i}
		s.nodes = append(s.nodes, n)
		n.boot()
	}
	for i, c := range p.Calls {
		s.after(c.At, func() { s.call(i, c) })
	}
	for _, f := range p.Faults {
		s.after(f.At, func() { s.inject(f) })
	}
	s.run(p.Config.Span)
	s.settle()
	s.res.At = s.now
	return s.res
}

const mostEvents = 2_000_000

var eventNames = [clink.EventKinds]string{
	clink.FillRefusedNoGuard: "R5 refuses a fill", clink.FillRefusedOverlap: "R6 refuses a fill", clink.FillRefusedLease: "R7 refuses a fill",
	clink.FillRefusedExpired: "R10 refuses a fill", clink.OutcomeUnknown: "a write gets no answer", clink.OutcomeProvenDone: "a write without answer is found",
	clink.OutcomeProvenFailed: "a write without answer is proven to have failed", clink.OutcomeLeftUnknown: "a write is left unknown",
	clink.GuardInstalled: "a guard is installed", clink.GuardRefused: "a guard comes too late", clink.GuardLost: "a SetGuard gets no answer",
	clink.Mismatched: "the store refuses a write's guard", clink.Conflicted: "a row expires under an update", clink.Combined: "writes are combined", clink.Joined: "a read is shared", clink.Transferred: "an entry is transferred",
}

var outcomeNames = [...]string{clink.Done: "answered: done", clink.NotOwner: "answered: not the owner", clink.NotSent: "answered: not sent",
	clink.Rejected: "answered: rejected", clink.Failed: "answered: read failed", clink.Unknown: "answered: unknown", clink.Busy: "answered: busy", clink.Lapsed: "answered: lapsed"}

// Rare lists what every campaign of storms must have seen at least once: a rule
// whose reason never occurs is not tested.
func Rare() (out []string) {
	out = append(out, eventNames[:]...)
	for o, name := range outcomeNames {
		if clink.Outcome(o) != clink.Rejected && clink.Outcome(o) != clink.Lapsed { // the simulated store refuses nothing; cross-owner writes are counted below
			out = append(out, name)
		}
	}
	return append(out, "a hit", "a caller gives up", "a lease lapses", "a lease is recalled", "a lease message is lost", "a node crashes with a write under way",
		"a request arrives after it was given up", "a request to the store is lost", "an answer of the store is lost", "a SetGuard waits for a commit",
		"a row expires", "an entry outlives a split", "an entry outlives its lease", "a drain completes", "leases are given up by who stops", "an operator moves a slice", "another leader is elected", "a deposed leader saves", "a save has no answer",
		"a transaction has several owners", "a locked write is not settled in time", "a message of a locked write is lost", "the end of a transaction is not heard of",
		"a layered read is served by the value cache", "a layered read finds another version", "an operator replicates a key", "a node becomes primary", "a replica keeps an entry", "a value comes with finish",
		"a hit at a replica", "a write waits for replicas", "a write is refused, for its group is over", "a message between members is lost", "a replica's lease lapses", "an owner finds out: 0", "an owner finds out: 2", "an owner finds out: 3")
}

func (s *storm) run(end ticks.Tick) {
	for s.res.Err == nil && s.next(end) {
		s.res.Events++
		s.check()
		if s.res.Events > mostEvents {
			s.fail(fmt.Errorf("more than %d events: something repeats itself without pause", mostEvents))
		}
	}
}

// settle lets everything come to rest, and reads every key everywhere: whoever
// was promised an answer must have it, and every node must agree with the store.
func (s *storm) settle() {
	c := s.plan.Config
	patience := c.Span + 40*c.Lease + 60*c.Timeout + ticks.Tick(60+len(s.plan.Calls))*(3*c.Disk+6*c.Delay)
	s.run(patience)
	if s.res.Err != nil {
		return
	}
	if n := len(s.open); n > 0 {
		id := slices.Min(slices.Collect(maps.Keys(s.open)))
		s.fail(fmt.Errorf("call %d and %d others have no answer though every fault ended long ago", id, n-1))
		return
	}
	id := len(s.plan.Calls)
	for _, n := range s.nodes {
		for i := range c.Keys {
			s.begin(n, id, Call{Kind: Get, Keys: []string{key(i)}})
			id++
		}
	}
	for i := range c.Keys { // and every key can be written
		s.call(id, Call{Kind: Put, Node: -1, Keys: []string{key(i)}})
		id++
	}
	s.run(patience + 20*c.Lease)
	if s.res.Err == nil && len(s.open) > 0 {
		s.fail(fmt.Errorf("%d calls made when everything had settled have no answer", len(s.open)))
	}
}

func (s *storm) fail(err error) {
	if s.res.Err == nil && err != nil {
		s.res.Err, s.res.At = err, s.now
		s.log("BROKEN: %v", err)
	}
}

func (s *storm) sometimes(what string) { s.res.Sometimes[what]++ }

func (s *storm) log(format string, a ...any) {
	if s.logged {
		s.res.Log = append(s.res.Log, fmt.Sprintf("%9s  ", show(s.now))+fmt.Sprintf(format, a...))
	}
}

// check looks at the whole world after every event: leases exclude each other,
// and every entry that would be served equals the store.
func (s *storm) check() {
	if s.granted {
		s.granted = false
		s.checkLeases()
	}
	for _, n := range s.nodes {
		var wrong []string
		for k := range n.entries {
			if n.hit(k) != nil {
				wrong = append(wrong, k)
			}
		}
		if len(wrong) > 0 {
			s.fail(n.hit(slices.Min(wrong)))
		}
	}
	if s.plan.Config.Groups {
		s.checkCopies()
	}
}

// hit is what is wrong with an entry that would be served now, if anything is.
func (n *stormNode) hit(key string) error {
	if e, ok := n.serves(key); ok {
		return n.s.judge.Hit(n.index, key, string(e.Row.Value), e.Row.Exists)
	}
	return nil
}

// checkLeases sees that leases exclude each other.
func (s *storm) checkLeases() {
	for i, n := range s.nodes {
		now := n.clock.read(s.now)
		for g, h := range n.handles { // the order shows only in what a violation is called
			if now < h.until {
				s.exclusive(i, g, h)
			}
		}
	}
	if s.plan.Config.Groups {
		s.checkGroups()
	}
}

func (s *storm) exclusive(i int, g lease.Gen, h handle) {
	for _, m := range s.nodes[i+1:] {
		now := m.clock.read(s.now)
		for o, other := range m.handles {
			if now < other.until && other.Range.Overlaps(h.Range) {
				s.fail(fmt.Errorf("%s holds %v under generation %d while %s holds %v under generation %d",
					s.nodes[i].name, h.Range, g, m.name, other.Range, o))
			}
		}
	}
}

// owner is the node that holds key now, if any does; else any that is up.
func (s *storm) owner(name string) *stormNode {
	for _, n := range s.nodes {
		for _, h := range n.handles {
			if n.up && h.Range.Contains(name) && n.clock.read(s.now) < h.until {
				return n
			}
		}
	}
	return s.nodes[s.rng("nobody owns").IntN(len(s.nodes))]
}

// call lets a client make a call.
func (s *storm) call(id int, c Call) {
	var n *stormNode
	if c.Node < 0 {
		n = s.owner(c.Keys[0])
	} else {
		n = s.nodes[c.Node]
	}
	if n.up {
		s.begin(n, id, c)
	}
}

func (s *storm) begin(n *stormNode, id int, c Call) {
	value := fmt.Sprintf("v%d", id)
	s.log("call %d: %v %v at %s", id, c.Kind, c.Keys, n.name)
	s.judge.Began(id, n.index, c.Kind, value, c.Keys...)
	s.open[id] = n
	n.calls[clink.Op(id)] = c
	if c.Deadline > 0 {
		n.later(c.Deadline, func() {
			if _, ok := n.calls[clink.Op(id)]; ok {
				s.sometimes("a caller gives up")
				n.locked(func() { n.step(clink.Abandoned{Op: clink.Op(id)}) })
			}
		})
	}
	n.awake(func() { n.take(clink.Op(id), c, value) })
}

// answered hands a Reply to its caller.
func (s *storm) answered(n *stormNode, r clink.Reply) {
	if l := n.locks[r.Op]; l != nil {
		n.replied(l, r.Outcome)
		return
	}
	if l := n.layered[r.Op]; l != nil && r.Outcome == clink.Done {
		l.version(r.Row)
		return
	}
	delete(n.layered, r.Op)
	id := int(r.Op)
	if s.open[id] != n {
		s.fail(fmt.Errorf("call %d was answered twice", id))
		return
	}
	delete(s.open, id)
	if c := n.calls[r.Op]; c.Kind == Put && len(c.Keys) == 1 && r.Outcome == clink.Done && len(r.Stamps) == 1 {
		s.tellValues(c.Keys[0], item{r.Stamps[0].Version, fmt.Sprintf("v%d", id), true})
	}
	delete(n.calls, r.Op)
	s.log("call %d is answered %v: %v %q", id, r.Outcome, r.Row.Exists, r.Row.Value)
	s.sometimes(outcomeNames[r.Outcome])
	s.fail(s.judge.Answered(id, r.Outcome, r.Row))
}

// inject lets a fault happen.
func (s *storm) inject(f Fault) {
	s.log("%v: node %d, key %s, for %s", f.Kind, f.Node, f.Key, show(f.For))
	n := s.nodes[f.Node]
	until := s.now + f.For
	switch f.Kind {
	case Crash:
		n.crash(f.For)
	case Pause:
		n.pause(f.For)
	case Cut: // from one assigner, or from both
		for i := range n.cutOff {
			if part := int(f.Key[0]) % 3; part == i || part == 2 {
				n.cutOff[i] = max(n.cutOff[i], until)
			}
		}
	case StoreMute:
		n.muted = max(n.muted, until)
	case StoreSlow:
		s.slow = max(s.slow, until)
	case Forget:
		s.store.Forget(f.Key)
	case SplitTablet:
		s.store.Split(f.Key)
	case MergeTablets:
		s.store.Merge(f.Node % max(1, len(s.store.tablets)))
	case Evict:
		clear(n.entries)
	case Drain:
		n.drain(f.For)
	default:
		s.coord.inject(f)
	}
}
