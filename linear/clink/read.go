package clink

import (
	"slices"

	"github.com/freshet-cache/freshet/shard/lease"
	"github.com/freshet-cache/freshet/ticks"
)

// load is a read of the store in flight.
type load struct {
	key     string
	gen     lease.Gen // the lease whose guard was in force when it was sent; 0 if none
	token   Token     // that guard
	overlap bool      // a write to the key was in flight at the same time (R6)
	sent    ticks.Tick
	try     int
	waiting []*op  // callers that came before it was sent
	late    []*op  // callers that came after it was sent
	batch   *batch // the batch that needs the row; nil for a caller's read
	index   int    // the place of key in the batch
}

// reads begins a caller's read, or lets it share the read in flight.
func (p *Pod) reads(now ticks.Tick, in Read, out []Output) []Output {
	if e, ok := p.entry(in.Key); ok && Serves(now, p.leases[e.Gen].Until, e.Until) { // R9
		return append(out, Reply{Op: in.Op, Outcome: Done, Row: e.Row, Until: e.Until})
	}
	o := &op{id: in.Op}
	p.ops[in.Op] = o
	if l := p.at(in.Key).read; l != nil {
		o.read = l
		l.late = append(l.late, o)
		return append(out, Event{Joined})
	}
	return p.ask(now, in.Key, []*op{o}, out)
}

// ask sends one read for all callers in who.
func (p *Pod) ask(now ticks.Tick, name string, who []*op, out []Output) []Output {
	l := &load{key: name, waiting: who}
	for _, o := range who {
		o.read = l
	}
	p.at(name).read = l
	return p.load(now, l, out)
}

// load registers a read and sends it.
func (p *Pod) load(now ticks.Tick, l *load, out []Output) []Output {
	k := p.at(l.key)
	l.gen, l.token, l.sent = 0, Token{}, now
	if pc, token := p.guard(now, l.key); pc != nil {
		l.gen, l.token = pc.gen, token
	}
	l.overlap = k.flight != nil && k.flight != l.batch && k.flight.exposed()
	k.loads = append(k.loads, l)
	c := p.call(l)
	return append(out, Load{c, l.key, l.try, l.bare()})
}

// bare reports whether the pod needs only the writer of the row (R20).
func (l *load) bare() bool { return l.batch != nil && l.batch.locked }

// loaded handles the answer to a read.
func (p *Pod) loaded(now ticks.Tick, in Loaded, out []Output) []Output {
	l, ok := p.calls[in.Call].(*load)
	if !ok {
		return out
	}
	delete(p.calls, in.Call)
	k := p.at(l.key)
	k.loads = slices.DeleteFunc(k.loads, func(m *load) bool { return m == l })
	until := p.expiry(l.sent, in.Row.TTL)
	fill := false
	if in.Status == OK && !l.bare() {
		fill, out = p.fill(now, l, in.Row, until, out)
	}
	if in.Status == OK {
		out = p.tagged(now, l, in.Row.Guard, out)
	}
	if l.batch != nil {
		if in.Status != OK {
			l.try++
		}
		return p.gathered(now, l, in, until, out)
	}
	k.read = nil
	answer := Reply{Outcome: Done, Row: in.Row, Until: until}
	if in.Status != OK {
		answer = Reply{Outcome: Failed}
	}
	who := l.waiting
	if fill || in.Status != OK {
		who, l.late = append(who, l.late...), nil // R11
	}
	for _, o := range who {
		answer.Op = o.id
		out = p.reply(answer, out)
	}
	if len(l.late) > 0 {
		return p.ask(now, l.key, l.late, out)
	}
	p.rest(l.key)
	return out
}

// fill keeps the row that a read found if it is certainly the latest state.
func (p *Pod) fill(now ticks.Tick, l *load, row Row, until ticks.Tick, out []Output) (bool, []Output) {
	switch {
	case l.gen == 0: // R5: a former owner's write may still commit
		return false, append(out, Event{FillRefusedNoGuard})
	case l.overlap: // R6: a write of this pod may have committed in between
		return false, append(out, Event{FillRefusedOverlap})
	case !p.holds(now, l.gen): // R7: the next owner may have written already
		return false, append(out, Event{FillRefusedLease})
	case until != 0 && now >= until: // R10: the row expired while the answer was in flight
		return false, append(out, Event{FillRefusedExpired})
	}
	return true, p.keep(Keep{l.key, row, l.gen, until}, out)
}

// tagged compares the guard that a read found with the one that the pod counts on. If they differ,
// every write would fail, so tagged replaces the guard before a write is sent.
func (p *Pod) tagged(now ticks.Tick, l *load, stands Token, out []Output) []Output {
	pc, token := p.guard(now, l.key)
	if !p.opt.Tags || pc == nil || l.token != token || stands == token {
		return out
	}
	return p.reguard(pc, out)
}
