package explore

import (
	"fmt"
	"maps"
	"slices"

	"github.com/freshet-cache/freshet/eventual/fanout"
	"github.com/freshet-cache/freshet/eventual/fanout/tier"
	"github.com/freshet-cache/freshet/ticks"
)

// Eventual is a scope for eventual/fanout: nodes, one store, one registry, a bus, and how often each
// thing may happen. What is sent arrives at once unless a link holds it.
type Eventual struct {
	Nodes  int
	Keys   []string // default x
	Tagged bool     // every key's value depends on the name t, and writes change that
	Slots  int
	Linger int // units that what the dead were writing stays marked
	Bus    bool
	Tier   bool // the nodes share a tier

	Units     int // how often time passes: S and t are 2 units, L and W are 3
	Reads     int // a node is asked for a key that it does not serve
	Pages     int // a node reads all keys in one page
	Writes    int
	Sets      int // writes whose value the writer keeps
	Unknowns  int // the answer to a write is lost
	Refusals  int // the store refuses a write
	Evicts    int
	Holds     int // a link between two nodes, or of a node with itself, begins to hold what is sent
	Slows     int // a link between two nodes begins to take three units
	Losses    int // a message that is held is lost
	Copies    int // a message that is held arrives, and will again
	Crashes   int
	Pauses    int // a node stands still until it is woken
	Joins     int
	Leaves    int
	Deaf      int // a node and the registry begin to hear nothing of each other
	Failovers int // another server of the tier takes over; each node finds it in its own time
	TierCuts  int // a node and the tier begin to hear nothing of each other
	TierLoses int // the tier evicts a key
	Session   int // reads and writes of one session, at any node
	Ring      int
	Drift     bool // clocks run a hundredth fast, slow, or right
	Calm      bool // once faults are over, everything comes to rest (E6)
}

// Plenty is a scope for stories, in which everything may happen as often as a story likes.
var Plenty = Eventual{Nodes: 2, Units: 99, Reads: 99, Pages: 99, Writes: 99, Sets: 99, Unknowns: 99, Refusals: 99, Evicts: 99, Holds: 99, Slows: 99, Losses: 99,
	Copies: 99, Crashes: 99, Pauses: 99, Joins: 99, Leaves: 99, Deaf: 99, Session: 99, Failovers: 99, TierCuts: 99, TierLoses: 99, Calm: true}

// unit is what time passes by.
const unit ticks.Tick = 1e9

// caches is the world of a scope.
type caches struct {
	left     Eventual
	opt      fanout.Options
	now      ticks.Tick
	nodes    []*cacher // every incarnation, by its number less one
	registry map[fanout.Incarnation]ticks.Tick
	struck   map[fanout.Incarnation]bool
	links    map[[2]int]*busLink
	rows     map[string][]ticks.Tick // when each version of a row landed
	writes   []*storing
	loads    []*fetching
	op       fanout.Op
	ops      map[fanout.Op]*asking
	token    fanout.Token
	saw      map[string]int // the newest version that the session saw or wrote
	busy     bool           // an operation of the session is under way
	err      error
	over     bool
	run      uint64 // the tier's server
	tiers    map[uint64]*tier.Tier
	names    map[fanout.Incarnation]uint64 // what the registry has of each
	epoch    uint64
	ending   int               // the version of the write whose answer is being taken
	invs     map[[2]uint64]int // versions by the incarnation and number of their Inv
	todo     []func()          // what is sent while a node's outputs are carried out
	draining bool
	next     []choice // what may happen, once it was asked for
}

// cacher is a node and the entries of its runtime.
type cacher struct {
	id      fanout.Incarnation
	m       *fanout.Node
	entries map[string]cached
	vouched ticks.Tick
	down    bool
	paused  bool
	deaf    bool
	ended   bool
	run     uint64         // the server of the tier that it reaches; 0: none
	closed  map[string]int // by row: the newest version whose Inv it has heard
}

type cached struct {
	version int
	grant   fanout.Grant
}

// busLink is what one node has sent to another and has not arrived, if it holds anything.
type busLink struct {
	holds bool
	slow  bool // what it holds arrives by itself
	held  []fanout.Message
	since []ticks.Tick
}

// storing is a write that was sent to the store, or whose answer is under way.
type storing struct {
	node    int
	op      fanout.Op
	row     string
	sent    ticks.Tick
	version int // once it has landed
	orphan  bool
}

// fetching is a read of the store for a load or a page.
type fetching struct {
	node int
	load fanout.LoadID
	page fanout.Op
	key  string
	read bool
	tier bool // the tier was asked
	in   fanout.Fetched
	got  map[string]int
}

// asking is a caller's read or write.
type asking struct {
	node    int
	key     string
	session bool
	hit     bool // Fresh says that the node may serve it
	version int
}

// Begin returns the first state: all nodes are in step, and each has every key in memory.
func (s Eventual) Begin() World {
	if len(s.Keys) == 0 {
		s.Keys = []string{"x"}
	}
	w := &caches{left: s, registry: map[fanout.Incarnation]ticks.Tick{}, struck: map[fanout.Incarnation]bool{}, links: map[[2]int]*busLink{},
		rows: map[string][]ticks.Tick{}, ops: map[fanout.Op]*asking{}, saw: map[string]int{}, run: 1, tiers: map[uint64]*tier.Tier{}, names: map[fanout.Incarnation]uint64{}, invs: map[[2]uint64]int{}}
	ring := s.Ring
	if ring == 0 {
		ring = 8
	}
	w.opt = fanout.Options{Stale: 2 * unit, Young: 2 * unit, Lease: 3 * unit, Land: 3 * unit, Drift: 1, Slots: max(1, s.Slots), Ring: ring, Linger: ticks.Tick(s.Linger) * unit, NoRegistry: s.Bus, Tier: s.Tier}
	if s.Drift {
		w.opt.Drift = 10_000
	}
	if s.Slots == 0 {
		w.opt.Slots = 16
	}
	for _, key := range s.Keys {
		w.rows[w.row(key)] = []ticks.Tick{0}
	}
	for range s.Nodes {
		w.join()
	}
	for range 4 {
		w.pass()
	}
	for i := range w.nodes {
		for _, key := range s.Keys {
			w.read(i, key, false)
		}
	}
	for len(w.loads) > 0 {
		w.finish(w.loads[0])
	}
	w.pass()
	return w
}

// row returns what of the store a key's value comes from.
func (w *caches) row(key string) string {
	if w.left.Tagged {
		return "t"
	}
	return key
}

func (w *caches) join() {
	opt := w.opt
	opt.Self = fanout.Incarnation(len(w.nodes) + 1)
	w.nodes = append(w.nodes, &cacher{id: opt.Self, m: fanout.New(opt), entries: map[string]cached{}, vouched: -1 << 60, closed: map[string]int{}})
	w.step(len(w.nodes)-1, fanout.Ticked{})
	w.reach(len(w.nodes) - 1)
}

// pass lets time pass by a unit: every node that runs sends its heartbeat.
func (w *caches) pass() {
	w.now += unit
	for _, id := range slices.Sorted(maps.Keys(w.registry)) {
		if w.now > w.registry[id] {
			delete(w.registry, id)
			w.struck[id] = true
			if w.names[id] == 0 {
				w.epoch++
			}
		}
	}
	w.writes = slices.DeleteFunc(w.writes, func(s *storing) bool { return s.orphan && s.version == 0 && w.now > s.sent+w.opt.Land })
	for i := range w.nodes {
		for j := range w.nodes {
			for l := w.links[[2]int{i, j}]; l != nil && l.slow && len(l.held) > 0 && w.now-l.since[0] >= 3*unit; {
				msg := l.held[0]
				l.take(0)
				w.deliver(i, j, msg)
			}
		}
	}
	for i, n := range w.nodes {
		if n.runs() {
			w.step(i, fanout.Ticked{})
		}
	}
}

// take removes a message that is held.
func (l *busLink) take(k int) {
	l.held = slices.Delete(slices.Clone(l.held), k, k+1)
	l.since = slices.Delete(slices.Clone(l.since), k, k+1)
}

// at reads a node's clock.
func (w *caches) at(n *cacher) ticks.Tick {
	if w.left.Drift {
		return w.now + w.now/100*(ticks.Tick(n.id%3)-1)
	}
	return w.now
}

// fresh reports whether a node's runtime would serve its entry.
func (w *caches) fresh(n *cacher, e cached) bool {
	return fanout.Fresh(w.at(n), n.vouched, w.opt.Young, e.grant)
}

func (n *cacher) runs() bool { return !n.down && !n.paused && !n.ended }

func (w *caches) step(i int, in fanout.Input) {
	n := w.nodes[i]
	outs := n.m.Step(w.at(n), in, nil)
	n.m.Check()
	for _, out := range outs {
		w.perform(i, n, out)
	}
	if !w.draining {
		w.drain()
	}
}

func (w *caches) perform(i int, n *cacher, out fanout.Output) {
	switch out := out.(type) {
	case fanout.Send:
		if _, ok := out.Message.(fanout.Leave); ok {
			defer func() { n.ended = true }()
		}
		if notice, ok := out.Message.(fanout.Notice); ok && notice.Closes > 0 && w.ending > 0 {
			w.invs[[2]uint64{uint64(n.id), notice.Number}] = w.ending
			n.closed[notice.Names[0]] = max(n.closed[notice.Names[0]], w.ending)
		}
		for j := range w.nodes {
			if out.To == 0 || out.To == w.nodes[j].id {
				w.send(i, j, out.Message)
			}
		}
	case fanout.Renew:
		w.renew(i, n, out)
	case fanout.List:
		in := fanout.Listed{Seq: out.Seq, Members: slices.Sorted(maps.Keys(w.registry)), Epoch: w.epoch}
		if n.deaf {
			in = fanout.Listed{Seq: out.Seq, Status: fanout.Unknown}
		}
		w.todo = append(w.todo, func() { w.step(i, in) })
	case fanout.Deregister:
		delete(w.registry, n.id)
		w.struck[n.id], n.ended = true, true
	case fanout.Expelled:
		n.ended = true
	case fanout.Load:
		w.loads = append(w.loads, &fetching{node: i, load: out.Load, key: out.Key, got: map[string]int{}})
	case fanout.Vouch:
		n.vouched = out.Until
	case fanout.Keep:
		n.entries[out.Key] = cached{w.valueOf(i, out), out.Grant}
	case fanout.Flag:
		e := n.entries[out.Key]
		e.grant.Marked = true
		n.entries[out.Key] = e
	case fanout.Drop:
		delete(n.entries, out.Key)
	case fanout.DropAll:
		clear(n.entries)
	case fanout.Write:
		c := w.ops[out.Op]
		w.writes = append(w.writes, &storing{node: i, op: out.Op, row: c.key, sent: w.now})
	case fanout.Answer:
		w.answer(out)
	case fanout.Done:
		w.done(out)
	default:
		w.share(i, n, out)
	}
}

// noVersion is of a row that was not read.
const noVersion = -1

// valueOf returns the version that a node is asked to keep.
func (w *caches) valueOf(i int, k fanout.Keep) int {
	for _, f := range w.loads {
		if f.node == i && f.read && (k.Load > 0 && f.load == k.Load || k.Load == 0 && f.page == k.Op) {
			return f.got[k.Key]
		}
	}
	if c := w.ops[k.Op]; c != nil {
		return c.version
	}
	return noVersion
}

func (w *caches) renew(i int, n *cacher, out fanout.Renew) {
	in := fanout.Renewed{Seq: out.Seq}
	switch {
	case n.deaf:
		in.Status = fanout.Unknown
	case w.struck[n.id]:
		in.Status = fanout.Failed
	default:
		w.registry[n.id], w.names[n.id] = w.now+out.TTL, out.Server
	}
	w.todo = append(w.todo, func() { w.step(i, in) })
}

func (w *caches) send(i, j int, msg fanout.Message) {
	if l := w.links[[2]int{i, j}]; l != nil && l.holds {
		l.held, l.since = append(l.held, msg), append(l.since, w.now)
		return
	}
	w.deliver(i, j, msg)
}

func (w *caches) deliver(i, j int, msg fanout.Message) {
	do := func() {
		if w.nodes[j].runs() {
			w.step(j, fanout.Received{From: w.nodes[i].id, Message: msg})
			if notice, ok := msg.(fanout.Notice); ok && notice.Closes > 0 {
				w.nodes[j].closed[notice.Names[0]] = max(w.nodes[j].closed[notice.Names[0]], w.invs[[2]uint64{uint64(w.nodes[i].id), notice.Number}])
			}
		}
	}
	if w.todo = append(w.todo, do); !w.draining {
		w.drain()
	}
}

func (w *caches) drain() {
	for w.draining = true; len(w.todo) > 0; {
		do := w.todo[0]
		w.todo = w.todo[1:]
		do()
	}
	w.draining = false
}

// read asks a node for a key, and compares its answer with what its runtime would have served.
func (w *caches) read(i int, key string, session bool) {
	w.op++
	e, there := w.nodes[i].entries[key]
	w.ops[w.op] = &asking{node: i, key: key, session: session, hit: there && w.fresh(w.nodes[i], e), version: noVersion}
	in := fanout.Read{Op: w.op, Key: key}
	if session {
		in.Session, in.Token = true, w.token
		w.busy = true
	}
	w.step(i, in)
}

func (w *caches) write(i int, row string, session, set bool) {
	w.op++
	w.ops[w.op] = &asking{node: i, key: row, session: session, version: noVersion}
	in := fanout.Mutate{Op: w.op, Names: []string{row}}
	if set {
		in.Set = true
	}
	if session {
		in.Token, w.busy = w.token, true
	}
	w.step(i, in)
}

func (w *caches) fail(format string, a ...any) {
	if w.err == nil {
		w.err = fmt.Errorf(format, a...)
	}
}

// fetch lets the store read for a load.
func (w *caches) fetch(f *fetching) {
	f.read = true
	for _, key := range w.left.Keys {
		if f.page > 0 || key == f.key {
			f.got[key] = len(w.rows[w.row(key)]) - 1
		}
	}
}

// fetched lets what the store has read arrive.
func (w *caches) fetched(f *fetching) {
	n := w.nodes[f.node]
	var tags []string
	if w.left.Tagged {
		tags = []string{"t"}
	}
	if n.runs() {
		if f.tier {
			w.step(f.node, f.in)
		} else if f.page > 0 {
			in := fanout.PageLoaded{Op: f.page}
			for _, key := range w.left.Keys {
				in.Values = append(in.Values, fanout.Value{Key: key, Tags: tags})
			}
			w.step(f.node, in)
		} else {
			e, ok := n.entries[f.key]
			w.step(f.node, fanout.Loaded{Load: f.load, Tags: tags, Same: ok && e.version == f.got[f.key]})
		}
	}
	w.loads = slices.DeleteFunc(w.loads, func(g *fetching) bool { return g == f })
}

// land lets a write take effect.
func (w *caches) land(s *storing) {
	w.rows[s.row] = append(w.rows[s.row], w.now)
	s.version = len(w.rows[s.row]) - 1
	if c := w.ops[s.op]; c != nil {
		c.version = s.version
	}
}

func (w *caches) wrote(s *storing, status fanout.Status) {
	if n := w.nodes[s.node]; n.runs() {
		if w.ending = 0; status == fanout.OK {
			w.ending = s.version
		}
		w.step(s.node, fanout.Wrote{Op: s.op, Status: status})
		w.ending = 0
	}
}

func (w *caches) gone(s *storing) {
	w.writes = slices.DeleteFunc(w.writes, func(o *storing) bool { return o == s })
}
