package sim

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"

	"github.com/freshet-cache/freshet/ticks"
)

// LinearPlan is a plan of the simulation of linear: its sizes and rates, the calls that clients
// make, and the faults that are injected.
type LinearPlan struct {
	Seed   uint64
	Config Config
	Calls  []Call
	Faults []Fault
}

// Config is drawn anew for every seed (swarm testing): a storm in which every
// fault is always on never sees what needs one of them to be absent.
type Config struct {
	Nodes, Assigners, Keys int
	Span                   ticks.Tick // for so long calls and faults begin
	Lease, Beat            ticks.Tick
	Drift                  int64      // millionths
	Delay, Disk            ticks.Tick // a message's, and a commit's inside the store
	Timeout                ticks.Tick // after which an answer of the store is unknown
	Lag                    int        // percent of steps carried out with pauses in between
	Tags                   bool
	Queue                  int
	Groups                 bool // keys may be replicated
	Loss                   int  // percent of messages between members of a group
}

// Call is a client's call. Half of them go to whoever owns the key, as a router
// would send them.
type Call struct {
	At       ticks.Tick
	Node     int // -1: the owner
	Kind     Kind
	Keys     []string
	TTL      ticks.Tick
	Deadline ticks.Tick // 0 waits for ever
}

// Fault is one fault.
type Fault struct {
	At, For ticks.Tick
	Kind    FaultKind
	Node    int
	Key     string
}

// FaultKind is a kind of fault.
type FaultKind uint8

// The kinds.
const (
	Crash         FaultKind = iota // a node ends and begins another incarnation
	Pause                          // a node stands still, its clock does not
	Cut                            // a node and an assigner, or both, do not hear each other
	StoreMute                      // requests of a node to the store, or answers, are lost
	StoreSlow                      // the store takes much longer
	Forget                         // a tablet restarts and loses its guards
	SplitTablet                    // a tablet is cut
	MergeTablets                   // two tablets become one
	Evict                          // a node's memory is full
	Drain                          // a node hands over what it owns, and ends
	MoveSlice                      // an operator moves a slice
	SplitSlice                     // the assigner cuts a slice
	JoinSlices                     // the assigner joins two
	AssignerCrash                  // an assigner ends and begins another incarnation
	AssignerPause                  // an assigner stands still
	AssignerCut                    // an assigner and the coordinator do not hear each other
	faultKinds
)

// What an operator does to hot keys is drawn apart: seeds that once failed keep their
// other faults.
const (
	Replicate   = faultKinds + iota // an operator asks for replicas of a key
	Unreplicate                     // and for none any more
)

var faultNames = [...]string{"crash", "pause", "cut", "store-mute", "store-slow", "forget", "split-tablet", "merge-tablets", "evict",
	"drain", "move-slice", "split-slice", "join-slices", "assigner-crash", "assigner-pause", "assigner-cut", "replicate", "unreplicate"}

func (k FaultKind) String() string { return faultNames[k] }

const (
	ms  ticks.Tick = 1e6
	sec ticks.Tick = 1e9
)

// NewLinearPlan draws a plan from a seed.
func NewLinearPlan(seed uint64) LinearPlan {
	r := rand.New(rand.NewPCG(seed, 0x66726573686574))
	pick := func(of ...ticks.Tick) ticks.Tick { return of[r.IntN(len(of))] }
	c := Config{
		Nodes: 2 + r.IntN(4), Assigners: 1 + r.IntN(2), Keys: 1 + r.IntN(8), Span: 60 * sec,
		Lease: pick(2*sec, 5*sec, 10*sec), Drift: int64(pick(0, 200, 20_000, 100_000)),
		Delay: pick(ms, 20*ms, 200*ms), Disk: pick(0, ms, 50*ms, 500*ms), Timeout: pick(500*ms, 2*sec),
		Lag: []int{0, 10, 40}[r.IntN(3)], Tags: r.IntN(2) == 0, Queue: []int{0, 0, 2}[r.IntN(3)],
	}
	c.Beat = c.Lease / 5
	p := LinearPlan{Seed: seed, Config: c}
	p.calls(r, pick(20*ms, 100*ms, 500*ms))
	p.faults(r)
	p.groups()
	return p
}

// groups has an operator replicate keys in half of the plans.
func (p *LinearPlan) groups() {
	r := rand.New(rand.NewPCG(p.Seed, 0x67726f7570))
	if p.Config.Groups = r.IntN(2) == 0; !p.Config.Groups {
		return
	}
	p.Config.Loss = []int{0, 0, 5, 30}[r.IntN(4)]
	gap := []ticks.Tick{2 * sec, 8 * sec, 30 * sec}[r.IntN(3)]
	for t := spread(r, sec); t < p.Config.Span; t += spread(r, gap) {
		f := Fault{At: t, Kind: Replicate, Node: r.IntN(p.Config.Nodes), Key: key(r.IntN(p.Config.Keys))}
		if r.IntN(4) == 0 {
			f.Kind = Unreplicate
		}
		p.Faults = append(p.Faults, f)
		p.heat(r, f.Key, t)
	}
	if r.IntN(2) == 0 {
		return
	}
	for t := spread(r, 10*sec); t < p.Config.Span; t += spread(r, 10*sec) { // members fall silent for longer than a lease
		kind := []FaultKind{Pause, Cut}[r.IntN(2)]
		p.Faults = append(p.Faults, Fault{At: t, Kind: kind, Node: r.IntN(p.Config.Nodes), Key: "b", For: p.Config.Lease + spread(r, p.Config.Lease/2)})
	}
}

// heat has a key read everywhere, and written now and then, for a while.
func (p *LinearPlan) heat(r *rand.Rand, key string, from ticks.Tick) {
	for t := from; t < min(from+10*sec, p.Config.Span) && len(p.Calls) < 1500; t += spread(r, 300*ms) {
		c := Call{At: t, Node: r.IntN(p.Config.Nodes), Keys: []string{key}}
		if r.IntN(4) == 0 {
			c.Kind, c.Node = Put, -1
		}
		p.Calls = append(p.Calls, c)
	}
}

func key(i int) string { return string(rune('b' + 2*i)) } // room for boundaries in between

func (p *LinearPlan) calls(r *rand.Rand, gap ticks.Tick) {
	weight := []int{6, 3, 1, 2, 1}
	for i := range weight {
		weight[i] *= r.IntN(3)
	}
	weight[Get]++
	weight[Put]++
	var kinds []Kind
	for k, n := range weight {
		kinds = append(kinds, slices.Repeat([]Kind{Kind(k)}, n)...)
	}
	expiring, hurried, paired := r.IntN(3)*20, r.IntN(3)*20, r.IntN(2)*30
	twins := rand.New(rand.NewPCG(p.Seed, 0x707574)) // apart: seeds that once failed keep their calls
	locks := rand.New(rand.NewPCG(p.Seed, 0x6c6f616e))
	lending := locks.IntN(2) * 40
	layers := rand.New(rand.NewPCG(p.Seed, 0x6c61796572))
	layering := layers.IntN(2) * 50
	for t := ticks.Tick(0); t < p.Config.Span && len(p.Calls) < 1500; t += spread(r, gap) {
		c := Call{At: t, Node: -1, Kind: kinds[r.IntN(len(kinds))], Keys: []string{key(r.IntN(p.Config.Keys))}}
		if r.IntN(2) == 0 {
			c.Node = r.IntN(p.Config.Nodes)
		}
		another := func(r *rand.Rand) {
			c.Keys = append(c.Keys, key(r.IntN(p.Config.Keys)))
			slices.Sort(c.Keys)
			c.Keys = slices.Compact(c.Keys)
		}
		switch {
		case c.Kind == Append && chance(r, paired):
			another(r)
		case c.Kind == Put && chance(twins, paired):
			another(twins)
		}
		if c.Kind == Get && chance(layers, layering) {
			c.Kind = Layered
		}
		if !c.Kind.reads() && chance(locks, lending) {
			c.Kind = Transact
			another(locks)
			another(locks)
		}
		if !c.Kind.reads() && c.Kind != Del && chance(r, expiring) {
			c.TTL = ms * ticks.Tick(100+r.IntN(5000))
		}
		if chance(r, hurried) {
			c.Deadline = ms * ticks.Tick(1+r.IntN(3000))
		}
		p.Calls = append(p.Calls, c)
	}
}

func (p *LinearPlan) faults(r *rand.Rand) {
	var on []FaultKind
	for k := range faultKinds {
		if r.IntN(2) == 0 {
			on = append(on, k)
		}
	}
	if len(on) == 0 {
		return
	}
	gap := []ticks.Tick{500 * ms, 2 * sec, 10 * sec}[r.IntN(3)]
	for t := spread(r, gap); t < p.Config.Span && len(p.Faults) < 200; t += spread(r, gap) {
		f := Fault{At: t, Kind: on[r.IntN(len(on))], Node: r.IntN(p.Config.Nodes), For: spread(r, []ticks.Tick{100 * ms, p.Config.Lease / 2, 2 * p.Config.Lease}[r.IntN(3)])}
		if f.For > 3*p.Config.Lease {
			f.For = 3 * p.Config.Lease
		}
		f.Key = key(r.IntN(p.Config.Keys))
		if r.IntN(2) == 0 { // a boundary, not a key
			f.Key = string(rune(f.Key[0] + 1))
		}
		p.Faults = append(p.Faults, f)
	}
}

// String is the plan for people.
func (p LinearPlan) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "seed %d: %d calls, %d faults, %+v\n", p.Seed, len(p.Calls), len(p.Faults), p.Config)
	for _, f := range p.Faults {
		fmt.Fprintf(&b, "  %9s  %v node %d key %s for %s\n", show(f.At), f.Kind, f.Node, f.Key, show(f.For))
	}
	for i, c := range p.Calls {
		fmt.Fprintf(&b, "  %9s  call %d: %v %v at node %d ttl %s deadline %s\n", show(c.At), i, c.Kind, c.Keys, c.Node, show(c.TTL), show(c.Deadline))
	}
	return b.String()
}

func show(t ticks.Tick) string { return fmt.Sprintf("%d.%03ds", t/sec, t%sec/ms) }

// Run implements Plan.
func (p LinearPlan) Run(log bool) Result { return runLinear(p, log) }

func (p LinearPlan) until(at ticks.Tick) Plan {
	p.Calls = slices.DeleteFunc(slices.Clone(p.Calls), func(c Call) bool { return c.At > at })
	p.Faults = slices.DeleteFunc(slices.Clone(p.Faults), func(f Fault) bool { return f.At > at })
	return p
}

func (p LinearPlan) lists() []list {
	return []list{
		parts(p.Faults, func(f []Fault) Plan { p.Faults = f; return p }),
		parts(p.Calls, func(c []Call) Plan { p.Calls = c; return p }),
	}
}

func (p LinearPlan) calmer() []Plan {
	return calmer(p.Config, func(c Config) Plan { p.Config = c; return p },
		func(c *Config) { c.Lag = 0 },
		func(c *Config) { c.Tags = false },
		func(c *Config) { c.Queue = 0 },
		func(c *Config) { c.Drift = 0 },
		func(c *Config) { c.Assigners = 1 },
	)
}
