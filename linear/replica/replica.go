package replica

import (
	"maps"
	"slices"

	"github.com/freshet-cache/freshet/shard/lease"
	"github.com/freshet-cache/freshet/ticks"
)

// Options configure a Replica.
type Options struct {
	// Node is the incarnation's name, as the leases have it.
	Node string
	// Drift bounds how much the node's clock may run fast or slow, in millionths. Default 200.
	Drift int64
}

// Replica keeps entries of keys that another node owns. It is not safe for concurrent use: the
// runtime steps it under one lock. The runtime reports the end of a lease before it acknowledges
// the recall.
type Replica struct {
	opt    Options
	copies map[lease.Gen]*copied
	loads  map[Call]*load
	shared map[string]*load // the read of each key that later readers may share
	drawn  uint64
}

// copied is a generation of which this node is a replica (C1).
type copied struct {
	key     string
	primary lease.GroupMember
	last    uint64 // the last invalidation
	open    bool   // entries may be kept
}

// load is a read of the store in flight.
type load struct {
	key     string
	gen     lease.Gen // the generation that it may fill; 0 if none (C5)
	sent    ticks.Tick
	waiting []Op // callers that came before it was sent
	late    []Op // callers that came after it was sent
}

// NewReplica returns a machine that is a replica of no key yet.
func NewReplica(opt Options) *Replica {
	if opt.Drift <= 0 {
		opt.Drift = 200
	}
	return &Replica{opt: opt, copies: map[lease.Gen]*copied{}, loads: map[Call]*load{}, shared: map[string]*load{}}
}

// Serves reports whether an entry may be served at now (C6). leased is the end of the lease of its
// generation, which has not been revoked. until is when the entry expires; 0 means never.
func Serves(now, leased, until ticks.Tick) bool {
	return now < leased && (until == 0 || now < until)
}

// Step takes one input and appends the outputs to out.
func (r *Replica) Step(now ticks.Tick, in Input, out []Output) []Output {
	switch in := in.(type) {
	case Acquired:
		c := &copied{key: in.Low, primary: in.Group[0]}
		r.copies[in.Gen] = c
		return append(out, r.report(in.Gen, c)) // the primary's first messages may have come too early
	case Revoked:
		if c := r.copies[in.Gen]; c != nil {
			delete(r.copies, in.Gen)
			out = append(out, Drop{c.key}) // C6
		}
		return out
	case Received:
		return r.received(in.Message, out)
	case Read:
		if l := r.shared[in.Key]; l != nil {
			l.late = append(l.late, in.Op)
			return out
		}
		return r.ask(now, in.Key, []Op{in.Op}, out)
	case Loaded:
		return r.loaded(now, in, out)
	}
	panic("replica: unknown input")
}

func (r *Replica) report(gen lease.Gen, c *copied) Send {
	return Send{c.primary, Report{gen, r.opt.Node, c.last, c.open}}
}

// received handles a message of a primary.
func (r *Replica) received(in Message, out []Output) []Output {
	switch in := in.(type) {
	case Cacheable:
		c := r.copies[in.Gen]
		switch {
		case c == nil: // C1
			return out
		case c.last == 0: // C2: otherwise a write has begun since the primary sent it
			c.open = true
		}
		return append(out, r.report(in.Gen, c))
	case Invalidate:
		c := r.copies[in.Gen]
		switch {
		case c == nil: // C1: an older message could open the copy later
			return out
		case in.N > c.last: // C3
			c.last, c.open = in.N, false
			for _, call := range slices.Sorted(maps.Keys(r.loads)) {
				if l := r.loads[call]; l.gen == in.Gen {
					l.gen = 0
				}
			}
			out = append(out, Drop{c.key})
		}
		return append(out, r.report(in.Gen, c))
	case Finish:
		c := r.copies[in.Gen]
		if c == nil || c.last != in.N { // C1, C4
			return out
		}
		if c.open = true; in.Row != nil {
			out = append(out, Keep{Key: c.key, Row: *in.Row, Gen: in.Gen})
		}
		return append(out, r.report(in.Gen, c))
	}
	return out
}

// ask sends one read for all callers in who.
func (r *Replica) ask(now ticks.Tick, key string, who []Op, out []Output) []Output {
	r.drawn++
	l := &load{key: key, sent: now, waiting: who}
	for _, gen := range slices.Sorted(maps.Keys(r.copies)) { // the latest generation counts, if several are left
		if c := r.copies[gen]; c.key == key {
			if l.gen = 0; c.open { // C5
				l.gen = gen
			}
		}
	}
	r.loads[Call(r.drawn)], r.shared[key] = l, l
	return append(out, Load{Call(r.drawn), key})
}

// loaded handles the answer to a read.
func (r *Replica) loaded(now ticks.Tick, in Loaded, out []Output) []Output {
	l := r.loads[in.Call]
	if l == nil {
		return out
	}
	delete(r.loads, in.Call)
	delete(r.shared, l.key)
	until := r.expiry(l.sent, in.Row.TTL)
	fill := false
	switch {
	case !in.OK:
	case l.gen == 0 || r.copies[l.gen] == nil: // C5
	case until != 0 && now >= until: // C7
	default:
		fill = true
		out = append(out, Keep{l.key, in.Row, l.gen, until})
	}
	who := l.waiting
	if fill || !in.OK { // C8
		who, l.late = append(who, l.late...), nil
	}
	for _, op := range who {
		out = append(out, Reply{op, in.Row, until, in.OK})
	}
	if len(l.late) > 0 {
		return r.ask(now, l.key, l.late, out)
	}
	return out
}

// expiry returns when a row must no longer be served, if its read was sent at sent (C7).
func (r *Replica) expiry(sent, ttl ticks.Tick) ticks.Tick {
	if ttl <= 0 {
		return 0
	}
	ttl = min(ttl, 1<<62) // about 146 years: a longer TTL would overflow the clock
	return max(1, sent+ttl-(ttl/1e6+1)*ticks.Tick(2*r.opt.Drift))
}
