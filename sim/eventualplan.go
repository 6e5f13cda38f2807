package sim

import (
	"fmt"
	"slices"
	"strings"

	"github.com/freshet-cache/freshet/ticks"
)

// EventualPlan is a plan of the simulation of eventual: its sizes, its rates, the calls that clients
// make, and the faults that are injected.
type EventualPlan struct {
	Seed   uint64
	Config EventualConfig
	Calls  []EventualCall
	Faults []EventualFault
}

// EventualConfig is drawn anew for every seed (swarm testing).
type EventualConfig struct {
	Nodes, Keys, Sessions int
	Span                  ticks.Tick // for so long calls and faults begin
	Delay, Disk           ticks.Tick // a message's, and what the store takes
	Drift                 int64      // millionths
	Loss                  int        // percent of messages
	Unanswered            int        // percent of requests to the store that get no answer
	Tags                  bool       // the values of all keys depend on one tag, which is written
	Slots, Ring           int
}

// EventualCall is a client's call.
type EventualCall struct {
	At            ticks.Tick
	Node, Session int // Session 0: none
	Key           string
	Write, Set    bool
	Page          bool
}

// EventualFault is one fault, for a time.
type EventualFault struct {
	At, For  ticks.Tick
	Kind     EventualFaultKind
	Node, To int
}

// EventualFaultKind is a kind of fault.
type EventualFaultKind uint8

// The kinds.
const (
	EventualCrash EventualFaultKind = iota // a node ends and begins another incarnation
	EventualPause                          // a node stands still, its clock does not
	EventualCut                            // what a node says does not arrive at another, or at itself
	EventualSlow                           // what a node says takes longer than S
	EventualDeaf                           // a node and the registry do not hear each other
	EventualLeave                          // a node leaves, and begins another incarnation
	EventualEvict                          // a node's memory is full
	eventualFaultKinds
)

var eventualFaultNames = [...]string{"crash", "pause", "cut", "slow", "deaf", "leave", "evict"}

func (k EventualFaultKind) String() string { return eventualFaultNames[k] }

// NewEventualPlan draws a plan from a seed.
func NewEventualPlan(seed uint64) EventualPlan {
	r := newWorld(seed).rng("plan")
	pick := func(vs ...int) int { return vs[r.IntN(len(vs))] }
	p := EventualPlan{Seed: seed, Config: EventualConfig{
		Nodes: 1 + r.IntN(4), Keys: 1 + r.IntN(3), Sessions: pick(0, 1, 4), Span: 40 * sec,
		Delay: ticks.Tick(pick(1, 20, 100)) * ms, Disk: ticks.Tick(pick(1, 20, 300, 2000)) * ms, Drift: int64(pick(1, 200, 10_000)),
		Loss: pick(0, 1, 20), Unanswered: pick(0, 3, 20), Tags: r.IntN(3) == 0, Slots: pick(1, 0), Ring: pick(1, 4, 0),
	}}
	c := p.Config
	gap, writes := ticks.Tick(pick(20, 100, 400))*ms, pick(2, 10, 30)
	for t := spread(r, gap); t < c.Span; t += spread(r, gap) {
		call := EventualCall{At: t, Node: r.IntN(c.Nodes), Key: string(rune('a' + r.IntN(c.Keys))), Write: chance(r, writes), Set: r.IntN(3) == 0, Page: chance(r, 3)}
		if c.Sessions > 0 && r.IntN(2) == 0 {
			call.Session = 1 + r.IntN(c.Sessions)
		}
		p.Calls = append(p.Calls, call)
	}
	var on []EventualFaultKind
	for k := range eventualFaultKinds {
		if r.IntN(2) == 0 {
			on = append(on, k)
		}
	}
	gap = ticks.Tick(pick(500, 2000, 10_000)) * ms
	for t := spread(r, gap); len(on) > 0 && t < c.Span; t += spread(r, gap) {
		p.Faults = append(p.Faults, EventualFault{At: t, For: spread(r, ticks.Tick(pick(300, 2000, 9000))*ms), Kind: on[r.IntN(len(on))], Node: r.IntN(c.Nodes), To: r.IntN(c.Nodes)})
	}
	return p
}

// String returns the plan for people.
func (p EventualPlan) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "seed %d: %d calls, %d faults, %+v\n", p.Seed, len(p.Calls), len(p.Faults), p.Config)
	for _, f := range p.Faults {
		fmt.Fprintf(&b, "  %9s  %v node %d to %d for %s\n", show(f.At), f.Kind, f.Node, f.To, show(f.For))
	}
	for i, c := range p.Calls {
		fmt.Fprintf(&b, "  %9s  call %d: %+v\n", show(c.At), i, c)
	}
	return b.String()
}

// Run implements Plan.
func (p EventualPlan) Run(log bool) Result { return runEventual(p, log) }

func (p EventualPlan) until(at ticks.Tick) Plan {
	p.Calls = slices.DeleteFunc(slices.Clone(p.Calls), func(c EventualCall) bool { return c.At > at })
	p.Faults = slices.DeleteFunc(slices.Clone(p.Faults), func(f EventualFault) bool { return f.At > at })
	return p
}

func (p EventualPlan) lists() []list {
	return []list{
		parts(p.Faults, func(f []EventualFault) Plan { p.Faults = f; return p }),
		parts(p.Calls, func(c []EventualCall) Plan { p.Calls = c; return p }),
	}
}

func (p EventualPlan) calmer() []Plan {
	return calmer(p.Config, func(c EventualConfig) Plan { p.Config = c; return p },
		func(c *EventualConfig) { c.Loss = 0 },
		func(c *EventualConfig) { c.Unanswered = 0 },
		func(c *EventualConfig) { c.Drift = 1 },
		func(c *EventualConfig) { c.Tags = false },
		func(c *EventualConfig) { c.Slots = 0 },
		func(c *EventualConfig) { c.Ring = 0 },
	)
}
