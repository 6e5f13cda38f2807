package mesh

import "slices"

// Options configures a Server.
type Options struct {
	// Incarnation is this incarnation of the server.
	Incarnation Incarnation
	// View is the ring in which the server begins.
	View View
	// Floor is the largest stamp that the store held when this incarnation began, if the server
	// begins without a Copy.
	Floor Stamp
	// Truncated is the set of writes of former incarnations that the journal has truncated,
	// according to the store, if the server begins a ring. In an asynchronous space it is the set
	// that was merged.
	Truncated Frontier
	// Copy is the state with which a server begins that joins behind another; otherwise nil.
	Copy *Snapshot
	// Window bounds the number of writes of this incarnation that are not known to be durable, and
	// with them every log of the ring (M16). Default 4096.
	Window int
	// WindowBytes bounds the memory that those writes take. The write that reaches the bound may
	// exceed it. Default 64 MiB.
	WindowBytes int
	// Versions is how many values of a key are kept for transactions. Default 1.
	Versions int
	// Keys bounds the number of keys in memory, and Bytes the memory that they take. Keys for which
	// operations wait, and values that only memory has, may exceed the bounds. Defaults 1 << 20
	// and 1 GiB.
	Keys, Bytes int
	// Waits bounds the operations that wait for rows. Default 4096.
	Waits int
	// MaxAhead bounds, in microseconds, how far the times that a session brings may exceed the
	// clock and the times that this server has seen. Default an hour.
	MaxAhead uint64
	// Concurrent keeps siblings: a write of a key replaces only the writes that its author had seen
	// (S1). Default: the write with the larger stamp wins.
	Concurrent bool
	// Async acknowledges a write when this server's log has it, and merges it into the store later
	// (A1 to A10). Sessions then carry whole writes, never names (A9). Default: the store has the
	// write before it is acknowledged.
	Async bool
	// Batch bounds the number of writes that one Flush merges, if Async. Default 256.
	Batch int
}

// Server is one cache server. It is not safe for concurrent use.
type Server struct {
	opt      Options
	view     *View       // never modified: snapshots refer to it
	next     Incarnation // the successor
	back     Incarnation // the predecessor
	up       bool        // the successor has resynced, so messages reach it
	expelled bool        // this incarnation is fenced
	drawn    Call
	waiting  int    // operations that wait for rows
	number   uint64 // of the last own write
	time     uint64 // the largest that was seen

	visible  set             // F: writes that are visible here
	received set             // R: writes that were received and forwarded
	stable   Frontier        // G: writes that every server has received, as far as is known
	durable  Frontier        // stable writes in the rows, as far as is known; equals stable unless asynchronous
	hidden   map[Dot]*Write  // I: received and not visible
	log      []*Write        // received and not known to be durable, in the order of forwarding
	pending  map[Call]*put   // own writes that the store has not confirmed
	loads    map[Call]*load  // in flight
	cache    map[string]*key // C, and the keys for which operations wait
	floor    Stamp
	dial     []*key // the keys of cache, for eviction
	hand     int
	bytes    int            // that the keys of cache take
	owing    map[uint64]int // bytes of each own write that is not known to be durable
	owed     int            // the sum of owing

	polling   bool          // a Poll is under way
	salvaging bool          // a Recover was sent in this view
	salvaged  []Incarnation // incarnations whose journals are on the ring
	circling  int           // beats since the stability round began that has not come back; 0 if there is none
	missing   []Dot         // memory for integrate
	misnamed  bool          // a name arrived of a write that this server has not received
	dead      uint64        // the largest time of a tombstone that was shown
	collected uint64        // tombstones with a smaller time were given up

	elder    []Incarnation // incarnations that had departed and were not retired when the ring began (V6)
	draining drain         // of an asynchronous space
}

// New returns a server that has received nothing.
func New(opt Options) *Server {
	for _, d := range []struct {
		v    *int
		dflt int
	}{{&opt.Window, 4096}, {&opt.WindowBytes, 64 << 20}, {&opt.Keys, 1 << 20}, {&opt.Bytes, 1 << 30}, {&opt.Waits, 4096}, {&opt.Batch, 256}} {
		if *d.v <= 0 {
			*d.v = d.dflt
		}
	}
	if opt.MaxAhead == 0 {
		opt.MaxAhead = 3600e6
	}
	s := &Server{
		opt: opt, hidden: map[Dot]*Write{}, pending: map[Call]*put{}, loads: map[Call]*load{}, cache: map[string]*key{},
		floor: opt.Floor, time: opt.Floor.Time, owing: map[uint64]int{},
	}
	s.enter(opt.View)
	settled := s.trim(opt.Truncated)
	s.visible.Frontier, s.received.Frontier, s.stable, s.durable = settled.Clone(), settled.Clone(), settled, settled
	s.elder = opt.View.Departed
	if opt.Copy != nil {
		s.adopt(opt.Copy)
	}
	return s
}

// enter takes the server's place in a view.
func (s *Server) enter(v View) {
	i := slices.Index(v.Ring, s.opt.Incarnation)
	if i < 0 {
		panic("mesh: a server is not in its view")
	}
	n := len(v.Ring)
	s.view, s.up, s.circling = &v, false, 0
	s.salvaging, s.salvaged, s.polling = false, nil, false
	s.draining.enter()
	s.next, s.back = v.Ring[(i+1)%n], v.Ring[(i+n-1)%n]
}

// Step takes one input and appends the outputs that the runtime must carry out, in order. now is
// the wall clock in microseconds, and affects only the times of stamps.
func (s *Server) Step(now uint64, in Input, out []Output) []Output {
	switch in := in.(type) {
	case Read:
		return s.read(in, out)
	case ReadMany:
		return s.readMany(in, out)
	case Look:
		return s.look(in, out)
	case Put:
		return s.put(now, in, out)
	case Recall:
		return s.recall(now, in, out)
	case Loaded:
		return s.loaded(in, out)
	case Fetched:
		return s.fetched(in, out)
	case Persisted:
		return s.persisted(in, out)
	case Viewed:
		return s.viewed(in.View, out)
	case Asked:
		return s.asked(in, out)
	case Recovered:
		return s.recovered(in, out)
	case Polled:
		return s.polled(in, out)
	case Claimed:
		return s.claimed(in, out)
	case Flushed:
		return s.flushed(in, out)
	case Returned:
		return s.returned(in, out)
	case Opened:
		if in.View != s.view.Number || s.expelled { // V1
			return append(out, Event{StaleMessage})
		}
		return append(out, Send{s.back, Resync{s.view.Number, s.received.share()}})
	case Broken:
		s.up = false
		return out
	case Received:
		switch m := in.Message.(type) {
		case Chain:
			return s.chain(m, in.Message, out)
		case Named:
			return s.named(m, in.Message, out)
		case StabilityRound:
			return s.stabilityRound(m, out)
		case Resync:
			return s.resynced(m, out)
		}
	case Evicted:
		if k := s.cache[in.Key]; k != nil && k.complete && k.pins == 0 && !s.kept(k) {
			s.evict(k)
		}
		return out
	case Beat:
		return s.beat(out)
	}
	panic("mesh: unknown input")
}

func (s *Server) call() Call {
	s.drawn++
	return s.drawn
}

// answer fills in what every reply has.
func (s *Server) answer(r Reply, out []Output) []Output {
	r.Visible, r.View = s.visible.share(), s.view
	return append(out, r)
}

// lastTime exceeds every time that a write may have. Stores and tokens take no larger time.
const lastTime = 1 << 62

// plausible says whether servers can have made what a session brings (M20).
func (s *Server) plausible(now, time uint64, carried []*Write) Outcome {
	for _, c := range carried {
		if time = max(time, c.Stamp.Time); c.Dot.Incarnation == s.opt.Incarnation && c.Dot.N > s.number {
			return Forged
		}
	}
	seen := max(s.time, now)
	if time > seen && time-seen > s.opt.MaxAhead || max(time, seen) >= lastTime-1 {
		return ClockAhead
	}
	return Done
}

// above returns how far n exceeds other, or 0 if it does not.
func above(n, other uint64) uint64 { return max(n, other) - other }

// refuse tells a caller why its operation has no result.
func (s *Server) refuse(op Op, why Outcome, out []Output) []Output {
	switch why {
	case Busy:
		out = append(out, Event{Throttled})
	case Behind:
		out = append(out, Event{FellBehind})
	}
	return append(out, Reply{Op: op, Outcome: why})
}
