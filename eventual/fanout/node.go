package fanout

import (
	"cmp"
	"maps"
	"math"
	"slices"

	"github.com/freshet-cache/freshet/eventual/fanout/names"
	"github.com/freshet-cache/freshet/feed"
	"github.com/freshet-cache/freshet/ticks"
)

// never is before every tick; NeverYoung is the Started of a value whose age is not known.
const (
	never      ticks.Tick = math.MinInt64 / 4
	NeverYoung            = never
)

// Options configures a Node. All nodes have the same, except for Self.
type Options struct {
	Self Incarnation
	// Stale is S: how old a node's knowledge of the others may be while it vouches. Default 1.5 s.
	Stale ticks.Tick
	// Young is t: how long after the start of its load an entry is served unconditionally. Default Stale.
	Young ticks.Tick
	// Lease is L: how long an incarnation may write after its last renewal. Default 10 s.
	Lease ticks.Tick
	// Land is W: how long a write may take to land once it was sent. Default 30 s.
	Land ticks.Tick
	// Linger is how long the names that a dead incarnation was writing stay marked: set it if the
	// store has no limit that makes Land certain (L5). Default 0.
	Linger ticks.Tick
	// Drift bounds how much any clock may run fast or slow, in millionths. Default 200.
	Drift int64
	// NoRegistry makes nodes find and strike out each other by heartbeats alone (L3).
	NoRegistry bool
	// Tier makes nodes share a tier between memory and the store. It needs a registry.
	Tier bool
	// Ring is how many notices are kept for resending. Default feed.DefaultRing.
	Ring int
	// Mutations bounds the mutations under way at a node. Default 1024.
	Mutations int
	// Slots is how many counts of invalidations there are (R2). Default 4096.
	Slots int
}

func (o *Options) defaults() {
	o.Stale = cmp.Or(o.Stale, 1500e6)
	o.Young = cmp.Or(o.Young, o.Stale)
	o.Lease = cmp.Or(o.Lease, 10e9)
	o.Land = cmp.Or(o.Land, 30e9)
	o.Drift = cmp.Or(o.Drift, 200)
	o.Ring = cmp.Or(o.Ring, feed.DefaultRing)
	o.Mutations = cmp.Or(o.Mutations, 1024)
	o.Slots = cmp.Or(o.Slots, 4096)
	o.Tier = o.Tier && !o.NoRegistry // T5: the registry has who named no server
}

const (
	beats   = 64 // heartbeats whose ticks are remembered
	mostSay = 64 // notices that answer one Missing
)

// Node is one incarnation's part of the protocol. It is not safe for concurrent use.
type Node struct {
	opt   Options
	order uint64 // grows with every start and end of a load, and every heartbeat heard
	outs  []Output
	now   ticks.Tick

	// Speaking.
	feed      *feed.Sender[Notice]
	beat      uint64
	sent      map[uint64]heard // own heartbeats, when they were sent
	mutations map[Op]*mutation
	own       map[uint64][]string // names of own mutations under way, by the number of the Dirty

	// The registry and the others.
	seq      uint64
	asked    map[uint64]request
	renewed  ticks.Tick // the latest renewal that was granted was sent then
	listed   uint64     // the order of the latest List whose answer was taken
	surveyed bool       // a List that was sent after a renewal was granted has been answered
	ready    bool       // everybody knows of this incarnation: it may write (P4)
	ended    feed.Ended[Incarnation]
	state    state
	peers    map[Incarnation]*peer
	cover    ticks.Tick // of self: the newest own heartbeat that came back (Q2)
	vouched  ticks.Tick
	orphans  []orphan

	share share

	// Serving and filling.
	entries  map[string]*entry
	carriers names.Index    // keys of the entries that depend on a name (R7)
	marked   map[string]int // marks of a name, of all incarnations
	counts   *names.Counts  // of invalidations (R2)
	load     LoadID
	loads    map[LoadID]*load
	pages    map[Op]*load
	joinable map[string]LoadID
}

type state uint8

const (
	running state = iota
	leaving
	over
)

// request is a question to the registry.
type request struct {
	at    ticks.Tick
	order uint64
	renew bool
}

// orphan is a mark of an incarnation that was struck out (L5).
type orphan struct {
	names []string
	until ticks.Tick
}

// New returns an incarnation that knows nothing yet.
func New(opt Options) *Node {
	opt.defaults()
	return &Node{
		opt: opt, feed: feed.NewSender[Notice](opt.Ring), counts: names.NewCounts(opt.Slots),
		sent: map[uint64]heard{}, mutations: map[Op]*mutation{}, own: map[uint64][]string{},
		asked: map[uint64]request{}, renewed: never,
		peers: map[Incarnation]*peer{}, share: share{former: map[uint64]bool{}, since: never}, cover: never, vouched: never,
		entries: map[string]*entry{}, carriers: names.Index{}, marked: map[string]int{},
		loads: map[LoadID]*load{}, pages: map[Op]*load{}, joinable: map[string]LoadID{},
	}
}

// Bound returns how old an answer from memory may be, by any clock.
func (o Options) Bound() ticks.Tick {
	o.defaults()
	return ticks.Lengthen(max(o.Stale, o.Young), o.Drift)
}

// Step takes what has happened, and appends what is to be done.
func (m *Node) Step(now ticks.Tick, in Input, out []Output) []Output {
	m.now, m.outs = now, out
	switch in := in.(type) {
	case Ticked:
		m.ticked()
	case Received:
		m.received(in)
	case Renewed:
		m.renewal(in)
	case Listed:
		m.survey(in)
	case Read:
		m.read(in)
	case Loaded:
		m.loaded(in)
	case PageBegan:
		m.pages[in.Op] = &load{count: m.counts.Now(), started: m.now, began: m.tick()} // R6
	case PageLoaded:
		m.pageLoaded(in)
	case Evicted:
		if m.entries[in.Key] != nil {
			m.remove(in.Key)
		}
	case Mutate:
		m.mutate(in)
	case Discovered:
		m.discovered(in)
	case Wrote:
		m.wrote(in)
	case Reached:
		m.reached(in)
	case TierMarked:
		m.tierMarked(in)
	case Fetched:
		m.fetched(in)
	case Closing:
		m.state = max(m.state, leaving)
		m.leave()
	}
	m.vouch()
	out, m.outs = m.outs, nil
	return out
}

func (m *Node) put(out Output) { m.outs = append(m.outs, out) }

func (m *Node) tick() uint64 {
	m.order++
	return m.order
}

// ticked sends a heartbeat, asks the registry, and does what is due.
func (m *Node) ticked() {
	if m.state == over {
		return
	}
	for len(m.orphans) > 0 && m.now > m.orphans[0].until { // L5
		m.unmark(m.orphans[0].names)
		m.invalidate(m.orphans[0].names)
		m.orphans = m.orphans[1:]
	}
	for _, op := range slices.Sorted(maps.Keys(m.mutations)) {
		if u := m.mutations[op]; u.unknown && m.now > u.until {
			m.end(op, u)
		}
	}
	if m.leave(); m.state == over {
		return
	}
	if m.opt.NoRegistry {
		m.say()
		m.silence()
		return
	}
	m.ask(true, func(seq uint64) Output { return Renew{seq, m.opt.TTL(), m.share.named} })
	if m.renewed != never { // P4: who hears of this incarnation finds it registered
		m.say()
		m.ask(false, func(seq uint64) Output { return List{seq} })
	}
	m.resume()
	m.name()
}

// say sends a heartbeat (P2).
func (m *Node) say() {
	m.beat++
	m.sent[m.beat] = heard{m.beat, m.now, m.tick()}
	delete(m.sent, m.beat-beats)
	h := Heartbeat{Beat: m.beat, Last: m.feed.Last(), Marks: uint64(len(m.own)), Server: m.share.named, Hello: !m.ready}
	for _, id := range slices.Sorted(maps.Keys(m.peers)) {
		h.Echoes = append(h.Echoes, Echo{Of: id, Beat: m.peers[id].beat})
	}
	m.put(Send{0, h})
}

// Fresh reports whether an entry may be served from memory: it is young, or the node vouches for it
// and nothing of it is being written (R1). It is the whole check of a hit.
func Fresh(now, vouched, young ticks.Tick, g Grant) bool {
	return now-g.Started <= young || now <= vouched && !g.Marked
}

// vouch finds until when the node is in step with every registered incarnation and itself (Q3).
func (m *Node) vouch() {
	until := never
	if m.state != over && m.surveyed { // L6
		until = m.cover + m.opt.Stale
		for _, p := range m.peers {
			until = min(until, p.cover+m.opt.Stale)
		}
		if !m.opt.NoRegistry {
			until = min(until, m.registered()) // Q5
		}
	}
	if until != m.vouched {
		m.vouched = until
		m.put(Vouch{until})
	}
}
