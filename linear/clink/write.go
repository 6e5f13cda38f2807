package clink

import (
	"slices"

	"github.com/freshet-cache/freshet/shard/lease"
	"github.com/freshet-cache/freshet/ticks"
)

// batch is the work that left the queues of its keys: one update, one cross-owner write, one blind
// write to several keys, or blind writes to one key that are sent as one.
type batch struct {
	id     ID
	state  batchState
	ops    []*op // callers that still wait
	keys   []string
	gens   []lease.Gen // the lease of each key since the first attempt
	muts   []Mut
	last   *op // the operation that muts are from
	blind  bool
	locked bool // R20

	call   Call
	sentAt ticks.Tick // the latest attempt
	first  ticks.Tick // the first attempt

	rows    []Row        // the rows that an update decides from, in the order of keys
	until   []ticks.Tick // when they expire
	found   []Row        // the rows read behind the fence, in the order of keys
	fenced  []bool       // which keys are fenced, in the order of keys
	tries   int          // fences that had no answer
	pending int          // loads without an answer
	fresh   bool         // entries are out of date: read from the store
}

type batchState uint8

const (
	gathering  batchState = iota // reading the rows of an update
	evaluating                   // the caller decides
	ready                        // waits for a guard before it is sent, or sent again
	sent
	fencing   // the outcome is unknown; guards are being installed
	resolving // fenced; the rows are being read
)

// at returns the place of one of the batch's keys.
func (b *batch) at(key string) int {
	i, _ := slices.BinarySearch(b.keys, key)
	return i
}

// exposed reports whether the store may commit the batch at any moment.
func (b *batch) exposed() bool { return b.state >= sent }

// queued puts a write, an update or a lock into the queues of its keys.
func (p *Pod) queued(now ticks.Tick, o *op, out []Output) []Output {
	for _, name := range o.keys {
		switch k := p.keys[name]; {
		case p.owner(now, name) == nil:
			return append(out, Reply{Op: o.id, Outcome: NotOwner})
		case k != nil && len(k.queue) >= p.opt.Queue:
			return append(out, Reply{Op: o.id, Outcome: Busy})
		}
	}
	p.ops[o.id] = o
	for _, name := range o.keys {
		k := p.at(name)
		k.queue = append(k.queue, o)
	}
	return p.pump(now, o.keys[0], out)
}

// pumpAll continues whatever can continue at the keys of r.
func (p *Pod) pumpAll(now ticks.Tick, r lease.Range, out []Output) []Output {
	for _, name := range p.active(r) {
		if k := p.keys[name]; k != nil && k.flight != nil {
			out = p.resume(now, k.flight, out)
		}
		out = p.pump(now, name, out)
	}
	return out
}

// pump sends the operation at the head of a key's queue, if it may be sent.
func (p *Pod) pump(now ticks.Tick, name string, out []Output) []Output {
	for {
		k := p.keys[name]
		if k == nil || k.flight != nil || len(k.queue) == 0 {
			p.rest(name)
			return out
		}
		o := k.queue[0]
		if slices.ContainsFunc(o.keys, func(n string) bool { return p.owner(now, n) == nil }) {
			if out = p.unqueue(now, o, NotOwner, out); o.keys[0] != name { // unqueue does not pump the first key
				out = p.pump(now, o.keys[0], out)
			}
			continue
		}
		for _, n := range o.keys { // R12: at all keys at once
			if m := p.keys[n]; m.flight != nil || m.queue[0] != o {
				return out
			}
			if pc, _ := p.guard(now, n); pc == nil { // R1
				return out
			}
		}
		out = p.depart(now, o, out)
	}
}

// unqueue answers an operation that was never sent. It pumps every key but the first.
func (p *Pod) unqueue(now ticks.Tick, o *op, why Outcome, out []Output) []Output {
	for _, name := range o.keys {
		k := p.keys[name]
		k.queue = slices.DeleteFunc(k.queue, func(q *op) bool { return q == o })
	}
	out = p.reply(Reply{Op: o.id, Outcome: why}, out)
	for _, name := range o.keys[1:] {
		out = p.pump(now, name, out)
	}
	return out
}

// depart makes a batch of the operation at the head of a queue. An update, or a write to several
// keys, is a batch alone. Consecutive blind writes to one key become one batch, of which only the
// last is sent: all of them take effect, in order, at its commit.
func (p *Pod) depart(now ticks.Tick, o *op, out []Output) []Output {
	b := &batch{keys: o.keys, blind: o.blind, ops: []*op{o}, id: p.name()}
	if o.blind {
		q := p.keys[o.keys[0]].queue
		for len(o.keys) == 1 && len(b.ops) < len(q) && q[len(b.ops)].blind && len(q[len(b.ops)].keys) == 1 {
			b.ops = append(b.ops, q[len(b.ops)])
			out = append(out, Event{Combined})
		}
		b.take()
	}
	if b.locked = o.locked != (ID{}); b.locked {
		b.id, b.muts = o.locked, slices.Clone(o.muts)
	}
	for _, name := range b.keys {
		k := p.keys[name]
		k.flight, k.queue = b, k.queue[len(b.ops):]
		b.gens = append(b.gens, p.piece(name).gen)
	}
	for _, o := range b.ops {
		o.batch = b
	}
	if b.blind || b.locked {
		return p.send(now, b, out)
	}
	return p.gather(now, b, out)
}

// take makes the last of a batch's blind writes the one to send.
func (b *batch) take() {
	b.last = b.ops[len(b.ops)-1]
	b.muts = slices.Clone(b.last.muts)
}

// send sends the batch under the guards in force, or leaves it ready if a guard is missing.
func (p *Pod) send(now ticks.Tick, b *batch, out []Output) []Output {
	b.state = ready
	if !p.holdsAll(now, b) {
		return p.disown(now, b, out)
	}
	var guards []Token
	for i := range b.muts {
		pc, token := p.guard(now, b.muts[i].Key)
		if pc == nil {
			return out
		}
		b.muts[i].Guard, guards = token, append(guards, token)
	}
	for _, m := range b.muts { // R8
		out = append(out, Drop{m.Key})
		delete(p.kept, m.Key)
		p.piece(m.Key).wrote(m.Key)
		for _, l := range p.keys[m.Key].loads {
			l.overlap = true
		}
	}
	if b.sentAt = now; b.first == 0 {
		b.first = now
	}
	b.state, b.call = sent, p.call(b)
	if b.locked {
		return append(out, Locked{b.call, b.ops[0].id, guards})
	}
	return append(out, Store{b.call, b.id, slices.Clone(b.muts)})
}

func (p *Pod) holdsAll(now ticks.Tick, b *batch) bool {
	return !slices.ContainsFunc(b.gens, func(g lease.Gen) bool { return !p.holds(now, g) })
}

// stored handles the answer to a Store.
func (p *Pod) stored(now ticks.Tick, in Stored, out []Output) []Output {
	b, ok := p.calls[in.Call].(*batch)
	if !ok { // the batch has ended without this answer
		return out
	}
	delete(p.calls, in.Call)
	switch in.Status {
	case OK:
		return p.committed(now, b, in.Stamps, out)
	case Mismatch:
		return p.mismatched(now, b, append(out, Event{Mismatched}))
	case Conflict: // the row expired, or something else than freshet wrote it: decide anew
		b.fresh = true
		return p.again(now, b, append(out, Event{Conflicted}))
	case Refused, Layout:
		return p.finish(now, b, Reply{Outcome: Rejected}, out)
	}
	return p.unresolved(now, b, append(out, Event{OutcomeUnknown}))
}

// committed keeps what was written and answers the callers.
func (p *Pod) committed(now ticks.Tick, b *batch, stamps []Stamp, out []Output) []Output {
	for i, m := range b.muts {
		gen := b.gens[b.at(m.Key)]
		switch {
		case !p.holds(now, gen): // R7
			continue
		case b.locked: // R20: only the store knows the row
			continue
		}
		row := Row{Exists: !m.Delete, Version: stamps[i].Version, Writer: b.id, TTL: stamps[i].TTL, Guard: m.Guard}
		if !m.Delete {
			row.Value = m.Value
		}
		out = p.keep(Keep{m.Key, row, gen, p.expiry(b.sentAt, row.TTL)}, out)
	}
	return p.finish(now, b, Reply{Outcome: Done, Stamps: stamps}, out)
}

// mismatched installs a new guard where the store no longer has the pod's token, and sends the
// batch again.
func (p *Pod) mismatched(now ticks.Tick, b *batch, out []Output) []Output {
	for _, m := range b.muts {
		if pc, token := p.guard(now, m.Key); pc != nil && token == m.Guard {
			out = p.reguard(pc, out)
		}
	}
	return p.again(now, b, out)
}

// again repeats a batch whose last attempt has certainly failed.
func (p *Pod) again(now ticks.Tick, b *batch, out []Output) []Output {
	b.state = ready
	switch {
	case len(b.ops) == 0: // R16
		return p.finish(now, b, Reply{}, out)
	case b.locked: // R20: the caller's transaction has only the guards it was given
		return p.finish(now, b, Reply{Outcome: Lapsed}, out)
	case !p.holdsAll(now, b): // R15
		return p.disown(now, b, out)
	case b.blind:
		b.take()
		return p.send(now, b, out)
	}
	return p.gather(now, b, out)
}

// finish answers every caller that still waits and lets the keys continue. A write that was
// overwritten at once took effect just before the stored version. It gets the odd version below
// that one, so that nobody takes the stored version for its own.
func (p *Pod) finish(now ticks.Tick, b *batch, r Reply, out []Output) []Output {
	for _, o := range b.ops {
		own := r
		own.Op = o.id
		if b.last != nil && o != b.last && len(r.Stamps) == 1 {
			own.Stamps = []Stamp{{Version: r.Stamps[0].Version - 1}}
		}
		out = p.reply(own, out)
	}
	b.state = ready // an answer that is still in flight has nothing to decide
	return p.detach(now, b, out)
}

// detach lets the keys of a batch continue without it.
func (p *Pod) detach(now ticks.Tick, b *batch, out []Output) []Output {
	for _, name := range b.keys {
		if k := p.keys[name]; k != nil && k.flight == b {
			k.flight = nil
		}
	}
	for _, name := range b.keys {
		out = p.pump(now, name, out)
	}
	return out
}

// disown ends a batch that lost a lease, as far as it can be ended (R15).
func (p *Pod) disown(now ticks.Tick, b *batch, out []Output) []Output {
	switch b.state {
	case sent: // the answer in flight may still be a yes
		return p.release(now, b, out)
	case fencing:
		return p.fence(now, b, out)
	case resolving: // the answer may still prove success; the batch cannot commit later
		return p.detach(now, b, out)
	}
	return p.finish(now, b, Reply{Outcome: NotOwner}, out)
}

// release lets those keys of a batch continue whose lease is over. At the other keys the batch may
// still commit, so nothing may overtake it (R12).
func (p *Pod) release(now ticks.Tick, b *batch, out []Output) []Output {
	for i, name := range b.keys {
		if k := p.keys[name]; k != nil && k.flight == b && !p.holds(now, b.gens[i]) {
			k.flight = nil
			out = p.pump(now, name, out)
		}
	}
	return out
}

// abandoned answers a caller whose deadline has passed. A batch that may have been sent continues
// without it (R16).
func (p *Pod) abandoned(now ticks.Tick, in Abandoned, out []Output) []Output {
	o := p.ops[in.Op]
	gone := func(q *op) bool { return q == o }
	switch {
	case o == nil:
		return out
	case o.read != nil:
		o.read.waiting = slices.DeleteFunc(o.read.waiting, gone)
		o.read.late = slices.DeleteFunc(o.read.late, gone)
		return p.reply(Reply{Op: o.id, Outcome: NotSent}, out)
	case o.batch == nil:
		out = p.unqueue(now, o, NotSent, out)
		return p.pump(now, o.keys[0], out)
	}
	b := o.batch
	b.ops = slices.DeleteFunc(b.ops, gone)
	if b.exposed() {
		return p.reply(Reply{Op: o.id, Outcome: Unknown}, append(out, Event{OutcomeLeftUnknown}))
	}
	out = p.reply(Reply{Op: o.id, Outcome: NotSent}, out)
	if len(b.ops) == 0 {
		return p.finish(now, b, Reply{}, out)
	}
	b.take() // only blind writes share a batch
	return out
}
