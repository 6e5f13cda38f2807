package clink

import (
	"slices"

	"github.com/freshet-cache/freshet/shard/lease"
	"github.com/freshet-cache/freshet/ticks"
)

// gather reads the rows that an update decides from, under guards in force. It takes entries that
// may be served, and reads the other rows from the store (R17).
func (p *Pod) gather(now ticks.Tick, b *batch, out []Output) []Output {
	b.state, b.muts = ready, nil
	for _, name := range b.keys {
		if pc, _ := p.guard(now, name); pc == nil {
			return out
		}
	}
	b.state = gathering
	b.rows, b.until = make([]Row, len(b.keys)), make([]ticks.Tick, len(b.keys))
	var missing []int
	for i, name := range b.keys {
		e, ok := p.entry(name)
		if !ok || b.fresh || !Serves(now, p.leases[e.Gen].Until, e.Until) {
			missing = append(missing, i)
			continue
		}
		b.rows[i], b.until[i] = e.Row, e.Until
		if e.Until != 0 {
			b.rows[i].TTL = Left(now, e.Until, p.opt.Drift)
		}
	}
	if b.pending = len(missing); b.pending == 0 {
		return p.decide(b, out)
	}
	for _, i := range missing {
		out = p.load(now, &load{key: b.keys[i], batch: b, index: i}, out)
	}
	return out
}

// decide asks the caller for its decision.
func (p *Pod) decide(b *batch, out []Output) []Output {
	b.state = evaluating
	return append(out, Evaluate{b.ops[0].id, slices.Clone(b.rows)})
}

// gathered handles a row that a batch waited for.
func (p *Pod) gathered(now ticks.Tick, l *load, in Loaded, until ticks.Tick, out []Output) []Output {
	b := l.batch
	switch {
	case b.state == resolving:
		return p.resolved(now, l, in, out)
	case b.state != gathering: // the batch has ended
		p.rest(l.key)
		return out
	case !p.holdsAll(now, b):
		return p.disown(now, b, out)
	case in.Status != OK:
		return p.load(now, l, out)
	}
	b.rows[l.index], b.until[l.index] = in.Row, until
	if b.pending--; b.pending > 0 {
		return out
	}
	b.fresh = slices.ContainsFunc(b.until, func(u ticks.Tick) bool { return u != 0 && now >= u })
	if b.fresh { // one row expired while another was read
		return p.gather(now, b, out)
	}
	return p.decide(b, out)
}

// evaluated handles a caller's decision.
func (p *Pod) evaluated(now ticks.Tick, in Evaluated, out []Output) []Output {
	o := p.ops[in.Op]
	if o == nil || o.batch == nil || o.batch.state != evaluating {
		return out
	}
	b := o.batch
	switch {
	case !p.holdsAll(now, b):
		return p.disown(now, b, out)
	case len(in.Muts) == 0:
		return p.finish(now, b, Reply{Outcome: Done}, out)
	}
	b.muts = slices.Clone(in.Muts)
	for i := range b.muts {
		m := &b.muts[i]
		row := b.rows[b.at(m.Key)]
		m.Check, m.Expect = row.TTL != 0, row.Version // R17: the row may expire before the commit
	}
	return p.send(now, b, out)
}

// resume continues a batch that waited for a guard.
func (p *Pod) resume(now ticks.Tick, b *batch, out []Output) []Output {
	switch {
	case b.state == ready && b.muts == nil:
		return p.gather(now, b, out)
	case b.state == ready:
		return p.send(now, b, out)
	case b.state == fencing:
		return p.fence(now, b, out)
	}
	return out
}

// unresolved begins to find out the outcome of a batch that got no answer.
func (p *Pod) unresolved(now ticks.Tick, b *batch, out []Output) []Output {
	b.state, b.tries = fencing, 0
	b.found, b.fenced = make([]Row, len(b.keys)), make([]bool, len(b.keys))
	return p.fence(now, b, out)
}

// fence sends the single-key guards that a batch still needs (R13), under fresh tokens (R4), unless
// a guard over the range is in flight (R3). When all of them are installed, it reads the rows. If a
// lease was lost meanwhile, nothing can be proven, but the remaining keys are safe to write again.
func (p *Pod) fence(now ticks.Tick, b *batch, out []Output) []Output {
	out = p.release(now, b, out)
	left := false
	for i, name := range b.keys {
		if b.fenced[i] || !p.holds(now, b.gens[i]) {
			continue
		}
		left = true
		if pc, _ := p.guard(now, name); pc != nil && p.fences[name] == nil {
			out = p.sendFence(&fence{key: name, batch: b, try: b.tries}, out)
		}
	}
	switch {
	case left:
		return out
	case !p.holdsAll(now, b): // R15
		return p.finish(now, b, Reply{Outcome: Unknown}, append(out, Event{OutcomeLeftUnknown}))
	}
	b.state, b.pending = resolving, len(b.keys)
	for i, name := range b.keys {
		out = p.load(now, &load{key: name, batch: b, index: i}, out)
	}
	return out
}

func (p *Pod) sendFence(f *fence, out []Output) []Output {
	f.token = p.name()
	p.fences[f.key] = f
	return append(out, SetGuard{p.call(f), lease.Point(f.key), f.token, f.try})
}

// fenced handles the answer to a fence.
func (p *Pod) fenced(now ticks.Tick, f *fence, status Status, out []Output) []Output {
	delete(p.fences, f.key)
	b, pc := f.batch, p.owner(now, f.key)
	k := p.keys[f.key]
	if pc != nil && pc.state == waiting { // the guard of the piece waited for this fence
		out = p.install(pc, out)
	}
	i := b.at(f.key)
	switch {
	case k == nil || k.flight != b: // the batch has ended; R3 keeps others from waiting for this fence
		return out
	case !p.holds(now, b.gens[i]): // R2
		return p.fence(now, b, out)
	case status != OK: // it may still take effect: never use its token again (R4)
		b.tries++
		return p.fence(now, b, append(out, Event{GuardLost}))
	}
	if pc.state == guarded {
		pc.put(f.key, f.token)
	}
	if len(pc.single) > maxSingles {
		out = p.reguard(pc, out)
	}
	b.fenced[i] = true
	return p.fence(now, b, out)
}

// resolved handles a row that was read behind the fence.
func (p *Pod) resolved(now ticks.Tick, l *load, in Loaded, out []Output) []Output {
	b := l.batch
	switch {
	case in.Status == OK:
		b.found[l.index] = in.Row
		if b.pending--; b.pending > 0 {
			return out
		}
	case p.holdsAll(now, b):
		return p.load(now, l, out)
	default:
		return p.finish(now, b, Reply{Outcome: Unknown}, append(out, Event{OutcomeLeftUnknown}))
	}
	switch proof := b.proof(now); {
	case proof == OK:
		return p.finish(now, b, Reply{Outcome: Done, Stamps: b.stamps()}, append(out, Event{OutcomeProvenDone}))
	case proof == StatusUnknown || !p.holdsAll(now, b): // R14, R15, R18
		return p.finish(now, b, Reply{Outcome: Unknown}, append(out, Event{OutcomeLeftUnknown}))
	}
	b.fresh = false
	return p.again(now, b, append(out, Event{OutcomeProvenFailed}))
}

// proof returns what the rows behind the fence say about the batch, which was written whole or not
// at all. OK proves success; StatusUnknown says that the rows cannot tell; Refused proves failure
// if the lease holds.
func (b *batch) proof(now ticks.Tick) Status {
	for _, row := range b.found {
		if row.Writer == b.id { // R14
			return OK
		}
	}
	for _, m := range b.muts {
		i := b.at(m.Key)
		row, age := b.found[i], now-b.first
		switch {
		case row.Exists: // a committed batch would have left its own row, or none
		case m.Delete && b.blind: // the key is absent, and it does not matter who deleted it
			return OK
		case m.Delete && row.Writer == (ID{}) && b.rows[i].Exists && b.rows[i].TTL == 0: // only this batch can have removed it
			return OK
		case m.Delete && row.Writer == (ID{}) && b.rows[i].Exists:
			return StatusUnknown
		case m.Delete || m.TTL == 0:
		case m.TTL == KeepTTL || age+age>>10 >= m.TTL: // R18
			return StatusUnknown
		}
	}
	return Refused
}

// stamps returns the stamps of the batch's writes from the rows behind the fence.
func (b *batch) stamps() (out []Stamp) {
	for _, m := range b.muts {
		row := b.found[b.at(m.Key)]
		out = append(out, Stamp{row.Version, row.TTL})
	}
	return out
}
