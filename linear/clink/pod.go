package clink

import (
	"encoding/binary"
	"maps"
	"slices"

	"github.com/freshet-cache/freshet/shard/lease"
	"github.com/freshet-cache/freshet/ticks"
)

// Options configure a Pod.
type Options struct {
	// Incarnation is unique to this incarnation of the node for ever. The pod makes tokens and
	// write ids from it and a counter.
	Incarnation uint64
	// Drift bounds how much the node's clock may run fast or slow, in millionths. Default 200.
	Drift int64
	// Queue bounds the writes that wait for one key. Default 4096.
	Queue int
	// Tags says that the store's reads return the guard that covers the key.
	Tags bool
	// Entry returns the entry that the last Keep of a key stored, unless a Drop followed. It may
	// have forgotten the entry. It must not change anything.
	Entry func(key string) (Keep, bool)
}

// Pod is the node's side of CLINK for one space. It is not safe for concurrent use: the runtime
// steps it under one lock. The runtime reports the end of a lease before it acknowledges the
// recall.
type Pod struct {
	opt    Options
	drawn  uint64
	leases map[lease.Gen]tenure
	pieces []*piece // sorted by their ranges, which do not overlap
	keys   map[string]*key
	calls  map[Call]any      // the *piece, *fence, *load or *batch that each request in flight is for
	fences map[string]*fence // in flight, by key (R3)
	ops    map[Op]*op
	kept   map[string]Keep // entries of this step, which the runtime has not stored yet
	now    ticks.Tick      // the time of the last step, for Check
	offers offers
}

// tenure is a lease as the pod knows it.
type tenure struct {
	Range lease.Range
	Until ticks.Tick
}

// key is the work in progress at one key. Keys without work are not in the map.
type key struct {
	read   *load   // the one of loads that later readers may share
	loads  []*load // every read in flight, which a write must mark (R8)
	queue  []*op   // writes that wait, in the order in which they came
	flight *batch  // the writes that left the queue (R12)
}

// op is one caller's operation.
type op struct {
	id     Op
	read   *load    // set for a read
	keys   []string // of a write or update
	muts   []Mut    // of a write, in the order of keys
	blind  bool     // a write, which does not need the former value
	locked ID       // of a Lock: the id of the caller's own transaction
	batch  *batch   // set once it left the queue
}

// NewPod returns a pod that owns nothing.
func NewPod(opt Options) *Pod {
	if opt.Drift <= 0 {
		opt.Drift = 200
	}
	if opt.Queue <= 0 {
		opt.Queue = 4096
	}
	if opt.Entry == nil {
		opt.Entry = func(string) (Keep, bool) { return Keep{}, false }
	}
	return &Pod{
		opt: opt, leases: map[lease.Gen]tenure{}, keys: map[string]*key{},
		calls: map[Call]any{}, ops: map[Op]*op{}, fences: map[string]*fence{}, kept: map[string]Keep{},
	}
}

// Serves reports whether an entry may be served at now (R9). leased is the end of its lease, which
// has not been revoked. until is when the entry expires; 0 means never.
func Serves(now, leased, until ticks.Tick) bool {
	return now < leased && (until == 0 || now < until)
}

// Step takes one input and appends the outputs to out.
func (p *Pod) Step(now ticks.Tick, in Input, out []Output) []Output {
	clear(p.kept)
	p.now = now
	switch in := in.(type) {
	case Acquired:
		return p.acquired(now, in, out)
	case Extended:
		if t, ok := p.leases[in.Gen]; ok && in.Until > t.Until {
			t.Until = in.Until
			p.leases[in.Gen] = t
		}
		return out
	case Revoked:
		return p.revoked(now, in, out)
	case Splits:
		return p.splits(now, in, out)
	case Guarded:
		return p.guarded(now, in, out)
	case Read:
		return p.reads(now, in, out)
	case Loaded:
		return p.loaded(now, in, out)
	case Write:
		o := &op{id: in.Op, muts: in.Muts, blind: true}
		for _, m := range in.Muts {
			o.keys = append(o.keys, m.Key)
		}
		return p.queued(now, o, out)
	case Update:
		return p.queued(now, &op{id: in.Op, keys: in.Keys}, out)
	case Lock:
		o := &op{id: in.Op, keys: in.Keys, locked: in.ID}
		for _, k := range in.Keys {
			o.muts = append(o.muts, Mut{Key: k})
		}
		return p.queued(now, o, out)
	case Evaluated:
		return p.evaluated(now, in, out)
	case Stored:
		return p.stored(now, in, out)
	case Offered:
		return p.offered(now, in, out)
	case Abandoned:
		return p.abandoned(now, in, out)
	}
	panic("clink: unknown input")
}

// Owns reports whether the pod would take a write to key at now.
func (p *Pod) Owns(now ticks.Tick, key string) bool { return p.owner(now, key) != nil }

// Guarded reports whether a read of key may fill memory (R5).
func (p *Pod) Guarded(now ticks.Tick, key string) bool {
	pc, _ := p.guard(now, key)
	return pc != nil
}

// holds reports whether a lease is in force. It then was so without interruption since it was
// acquired.
func (p *Pod) holds(now ticks.Tick, gen lease.Gen) bool {
	t, ok := p.leases[gen]
	return ok && now < t.Until
}

// owner returns the piece of a held slice that contains key, guarded or not; nil if the pod does
// not own key.
func (p *Pod) owner(now ticks.Tick, key string) *piece {
	if pc := p.piece(key); pc != nil && p.holds(now, pc.gen) {
		return pc
	}
	return nil
}

// guard returns the piece that contains key and the token in force there. It returns nil if no
// guard counts now.
func (p *Pod) guard(now ticks.Tick, key string) (*piece, Token) {
	pc := p.owner(now, key)
	if pc == nil || pc.state != guarded {
		return nil, Token{}
	}
	if t, ok := pc.single[key]; ok {
		return pc, t
	}
	return pc, pc.token
}

// at returns the state of a key, and makes it if the key had none.
func (p *Pod) at(name string) *key {
	k, ok := p.keys[name]
	if !ok {
		k = &key{}
		p.keys[name] = k
	}
	return k
}

// rest forgets a key that has no work left.
func (p *Pod) rest(name string) {
	if k := p.keys[name]; k != nil && len(k.loads) == 0 && len(k.queue) == 0 && k.flight == nil {
		delete(p.keys, name)
	}
}

// active returns the keys of r that have work, in order.
func (p *Pod) active(r lease.Range) (out []string) {
	for _, name := range slices.Sorted(maps.Keys(p.keys)) {
		if r.Contains(name) {
			out = append(out, name)
		}
	}
	return out
}

// keep stores an entry. Later work in the same step can see it.
func (p *Pod) keep(k Keep, out []Output) []Output {
	p.kept[k.Key] = k
	return append(out, k)
}

// entry returns the entry of key, if the pod or the runtime remembers it.
func (p *Pod) entry(key string) (Keep, bool) {
	if k, ok := p.kept[key]; ok {
		return k, true
	}
	return p.opt.Entry(key)
}

// draw returns the next number of this incarnation.
func (p *Pod) draw() uint64 {
	p.drawn++
	return p.drawn
}

func (p *Pod) call(what any) Call {
	c := Call(p.draw())
	p.calls[c] = what
	return c
}

// name makes 16 bytes that no other call, of any node, ever makes (R4).
func (p *Pod) name() (b [16]byte) {
	binary.BigEndian.PutUint64(b[:8], p.opt.Incarnation)
	binary.BigEndian.PutUint64(b[8:], p.draw())
	return b
}

// expiry returns when a row must no longer be served, if its read was sent at sent (R10).
func (p *Pod) expiry(sent, ttl ticks.Tick) ticks.Tick {
	if ttl <= 0 {
		return 0
	}
	ttl = min(ttl, 1<<62) // about 146 years: a longer TTL would overflow the clock
	return max(1, sent+ttl-(ttl/1e6+1)*ticks.Tick(2*p.opt.Drift))
}

// Left returns the remaining TTL of a row whose entry may be served before until. It is a little
// more than until-now, because until was shortened by the drift bound.
func Left(now, until ticks.Tick, drift int64) ticks.Tick {
	left := max(1, until-now)
	return left + (left/1e6)*ticks.Tick(2*drift)
}

// reply answers a caller and forgets the operation.
func (p *Pod) reply(r Reply, out []Output) []Output {
	delete(p.ops, r.Op)
	return append(out, r)
}
