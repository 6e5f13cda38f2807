package sim

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"

	"github.com/freshet-cache/freshet/causal/mesh"
	"github.com/freshet-cache/freshet/ticks"
)

// CausalPlan is a plan of the simulation of causal: its sizes, its rates, and the faults that are
// injected. The plan does not have the calls of clients. They are drawn during the run, because
// they follow from what clients read.
type CausalPlan struct {
	Seed   uint64
	Config CausalConfig
	Faults []CausalFault
}

// CausalConfig is drawn anew for every seed (swarm testing).
type CausalConfig struct {
	Servers, Keys, Clients, Calls int
	Window, Capacity, Waits       int // of a server
	Delay, Disk, Beat             ticks.Tick
	Crawl                         int // percent of messages between servers that take twenty times as long
	Unanswered                    int // percent of requests to the store that get no answer
	Roam, Branch, Strip, Transact int // percent of calls
	Versions                      int // of a server
	External                      bool
	Concurrent                    bool
	Async                         bool
	Late                          int // how many times longer than usual it takes until a log is found
	Outages                       bool
	Batch                         int // of a server
	Bytes, WindowBytes            int // of a server
	Past                          int // percent of reads that ask the store alone
}

// CausalFault is one fault, or one external write.
type CausalFault struct {
	At     ticks.Tick
	Kind   CausalFaultKind
	Node   int    // index of the incarnation, modulo how many there are
	Key    string // of a CausalTrigger and a CausalEvict
	Delete bool   // of a CausalTrigger
}

// CausalFaultKind is a kind of fault.
type CausalFaultKind uint8

// The kinds.
const (
	CausalBreak   CausalFaultKind = iota // a connection between neighbours breaks
	CausalCrash                          // a server ends
	CausalSuspect                        // a server is removed from the ring and does not know it
	CausalJoin                           // a server joins
	CausalOutage                         // all servers end
	CausalTrigger                        // an external write that leaves a dot
	CausalEvict                          // the runtime asks a server to drop a key
)

var causalFaultNames = [...]string{"break", "crash", "suspect", "join", "outage", "external-write", "evict"}

func (k CausalFaultKind) String() string { return causalFaultNames[k] }

// NewCausalPlan draws a plan from a seed.
func NewCausalPlan(seed uint64) CausalPlan {
	r := newWorld(seed).rng("config")
	pick := func(vs ...int) int { return vs[r.IntN(len(vs))] }
	c := CausalConfig{
		Servers: pick(1, 2, 3, 3, 3, 4, 5), Keys: pick(1, 2, 3, 6), Clients: 2 + r.IntN(5), Calls: 60 + r.IntN(120),
		Window: pick(2, 5, 0), Capacity: pick(1, 2, 0, 0),
		Delay: ticks.Tick(pick(100, 2_000, 20_000)), Disk: ticks.Tick(pick(0, 1_000, 10_000)), Crawl: pick(0, 0, 5, 30),
	}
	breaks, evictions := pick(0, 0, 3, 10), pick(0, 10, 60)
	c.Unanswered, c.Roam, c.Branch, c.Strip, c.External = pick(0, 5, 25), pick(10, 50, 100), pick(0, 5, 15), pick(0, 10, 50), r.IntN(10) == 0
	var crashes, suspects, joins, triggers, outages int
	if r.IntN(2) == 0 {
		crashes, suspects, joins = r.IntN(4), r.IntN(3), r.IntN(4)
	}
	c.Waits = pick(1, 3, 0)
	c.Versions, c.Transact = pick(1, 2, 4), pick(0, 10, 40)
	c.Beat = (c.Delay + c.Disk) * ticks.Tick(pick(1, 4, 20))
	if r.IntN(3) == 0 {
		c.Concurrent, c.External = true, false
	} else if r.IntN(4) == 0 {
		triggers = 1 + r.IntN(20)
	}
	if r := newWorld(seed).rng("async"); !c.Concurrent && r.IntN(2) == 0 {
		c.Async, c.Late, outages, c.Batch = true, []int{1, 1, 10}[r.IntN(3)], []int{0, 0, 1, 2}[r.IntN(4)], []int{1, 3, 0}[r.IntN(3)]
	}
	if r := newWorld(seed).rng("bytes"); r.IntN(2) == 0 {
		c.Bytes, c.WindowBytes = []int{0, 300, 2000}[r.IntN(3)], []int{0, 200, 700, 3000}[r.IntN(4)]
	}
	if r := newWorld(seed).rng("past reads"); !c.Async {
		c.Past = []int{0, 0, 5, 30}[r.IntN(4)]
	}
	c.Outages = outages > 0
	p := CausalPlan{Seed: seed, Config: c}
	p.faults(newWorld(seed).rng("faults"), []int{CausalBreak: breaks, CausalCrash: crashes, CausalSuspect: suspects, CausalJoin: joins,
		CausalOutage: outages, CausalTrigger: triggers, CausalEvict: evictions})
	return p
}

// faults draws counts[kind] faults of each kind.
func (p *CausalPlan) faults(r *rand.Rand, counts []int) {
	c := p.Config
	span := ticks.Tick(c.Calls) * (c.Delay + c.Disk) / ticks.Tick(c.Clients) * 3
	for kind, n := range counts {
		for range n {
			node := r.IntN(100)
			p.Faults = append(p.Faults, CausalFault{At: ticks.Tick(r.Int64N(int64(span))), Kind: CausalFaultKind(kind), Node: node})
		}
	}
	slices.SortStableFunc(p.Faults, func(a, b CausalFault) int { return int(a.At - b.At) })
	for i := range p.Faults {
		switch f := &p.Faults[i]; f.Kind {
		case CausalTrigger:
			f.Delete = chance(r, 20)
			f.Key = c.key(r)
		case CausalEvict:
			f.Key = c.key(r)
		}
	}
}

func (c *CausalConfig) key(r *rand.Rand) string { return string(rune('a' + r.IntN(c.Keys))) }

// inject makes a fault happen.
func (s *meshStorm) inject(f CausalFault) {
	n := s.nodes[f.Node%len(s.nodes)]
	switch f.Kind {
	case CausalBreak:
		s.cut(n)
	case CausalCrash:
		s.crash(n)
	case CausalSuspect:
		s.suspect(n)
	case CausalJoin:
		s.join()
	case CausalOutage:
		s.outage()
	case CausalTrigger:
		value := ""
		if !f.Delete {
			value = fmt.Sprint("external", s.calls)
		}
		s.sometimes("a row is written externally")
		s.store.Trigger(f.Key, value, uint64(s.now)/1000)
	case CausalEvict:
		s.step(n, mesh.Evicted{Key: f.Key})
	}
}

// String returns the plan for people.
func (p CausalPlan) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "seed %d: %d calls, %d faults, %+v\n", p.Seed, p.Config.Calls, len(p.Faults), p.Config)
	for _, f := range p.Faults {
		fmt.Fprintf(&b, "  %12s  %v server %d", showMicros(f.At), f.Kind, f.Node)
		if f.Key != "" {
			fmt.Fprintf(&b, " key %s", f.Key)
		}
		if f.Delete {
			b.WriteString(" is deleted")
		}
		b.WriteString("\n")
	}
	return b.String()
}

// Run implements Plan.
func (p CausalPlan) Run(log bool) Result { return runCausal(p, log) }

func (p CausalPlan) until(at ticks.Tick) Plan {
	p.Faults = slices.DeleteFunc(slices.Clone(p.Faults), func(f CausalFault) bool { return f.At > at })
	return p
}

func (p CausalPlan) lists() []list {
	return []list{parts(p.Faults, func(f []CausalFault) Plan { p.Faults = f; return p })}
}

func (p CausalPlan) calmer() []Plan {
	return calmer(p.Config, func(c CausalConfig) Plan { p.Config = c; return p },
		func(c *CausalConfig) { c.Calls = (c.Calls + 1) / 2 },
		func(c *CausalConfig) { c.Calls = max(1, c.Calls-c.Calls/8-1) },
		func(c *CausalConfig) { c.Clients = max(1, c.Clients-1) },
		func(c *CausalConfig) { c.Servers = max(1, c.Servers-1) },
		func(c *CausalConfig) { c.Keys = max(1, c.Keys-1) },
		func(c *CausalConfig) { c.Unanswered = 0 },
		func(c *CausalConfig) { c.Crawl = 0 },
		func(c *CausalConfig) { c.Branch = 0 },
		func(c *CausalConfig) { c.Strip = 0 },
		func(c *CausalConfig) { c.Transact = 0 },
		func(c *CausalConfig) { c.Past = 0 },
		func(c *CausalConfig) { c.External = false },
		func(c *CausalConfig) { c.Bytes, c.WindowBytes = 0, 0 },
		func(c *CausalConfig) { c.Window = 0 },
		func(c *CausalConfig) { c.Capacity = 0 },
		func(c *CausalConfig) { c.Waits = 0 },
	)
}

func showMicros(t ticks.Tick) string { return fmt.Sprintf("%d.%03dµs", t/1000, t%1000) }
