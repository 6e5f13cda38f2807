package clink

import (
	"cmp"
	"slices"

	"github.com/freshet-cache/freshet/shard/lease"
	"github.com/freshet-cache/freshet/ticks"
)

// piece is a part of a held slice that lies in one tablet of the store, with the guard over it.
type piece struct {
	rng    lease.Range
	gen    lease.Gen
	state  pieceState
	call   Call // in flight, in the states cutting and guarding
	try    int
	token  Token            // in force if state is guarded
	single map[string]Token // guards of single keys, which are in force instead of token

	after   lease.Gen       // the generation whose entries may be transferred (R19); 0 if none may be any more
	written map[string]bool // keys written in this period; recorded only while after is not 0
}

type pieceState uint8

const (
	cutting  pieceState = iota // the pod reads the boundaries of the store's tablets
	waiting                    // a fence for a key of the piece is in flight (R3)
	guarding                   // SetGuard is in flight
	guarded
)

// fence is a SetGuard for one key, which a write of unknown outcome waits for.
type fence struct {
	key   string
	token Token
	batch *batch
	try   int
}

// maxSingles bounds the single-key guards of a piece. When there are more, the whole piece is
// guarded anew.
const maxSingles = 256

// piece finds the piece that contains key.
func (p *Pod) piece(key string) *piece {
	i, ok := slices.BinarySearchFunc(p.pieces, key, func(pc *piece, k string) int { return cmp.Compare(pc.rng.Low, k) })
	if !ok {
		i--
	}
	if i >= 0 && p.pieces[i].rng.Contains(key) {
		return p.pieces[i]
	}
	return nil
}

// acquired takes a slice. Parts that the pod holds already keep their guards and entries (R21); the
// other parts are cut at tablet boundaries and guarded.
func (p *Pod) acquired(now ticks.Tick, in Acquired, out []Output) []Output {
	p.leases[in.Gen] = tenure{in.Range, in.Until}
	var next []*piece
	fresh := []lease.Range{in.Range}
	for _, pc := range p.pieces {
		part, ok := pc.rng.Intersect(in.Range)
		if !ok {
			next = append(next, pc)
			continue
		}
		for _, r := range []lease.Range{{Low: pc.rng.Low, High: part.Low}, {Low: part.High, High: pc.rng.High}} {
			if outside := r.Low < r.High || r.High == "" && part.High != "" && r.Low == part.High; outside {
				next = append(next, p.carve(pc, r, pc.gen))
			}
		}
		if p.holds(now, pc.gen) { // guarded or not: a write in flight needs the lease of its guard to be sent again
			p.rehome(part, pc.gen, in.Gen)
			next = append(next, p.carve(pc, part, in.Gen))
			out = append(out, Retag{part, pc.gen, in.Gen})
			fresh = subtract(fresh, part)
		}
		delete(p.calls, pc.call) // an ignored answer counts like a lost one
	}
	for _, r := range fresh {
		next = append(next, &piece{rng: r, gen: in.Gen, state: cutting, after: in.After})
	}
	slices.SortFunc(next, func(a, b *piece) int { return cmp.Compare(a.rng.Low, b.rng.Low) })
	p.pieces = next
	for _, pc := range next {
		if pc.state == cutting && pc.call == 0 {
			out = p.cut(pc, out)
		}
	}
	return p.pumpAll(now, in.Range, out)
}

// carve returns the part r of a piece. A part without a guard starts over. What may be transferred
// stays the same, because the keys are held without interruption (R21).
func (p *Pod) carve(pc *piece, r lease.Range, gen lease.Gen) *piece {
	part := &piece{rng: r, gen: gen, state: cutting, after: pc.after}
	for k := range pc.written {
		if r.Contains(k) {
			part.wrote(k)
		}
	}
	if pc.state != guarded {
		return part
	}
	part.state, part.token = guarded, pc.token
	for k, t := range pc.single {
		if r.Contains(k) {
			part.put(k, t)
		}
	}
	return part
}

func (pc *piece) put(key string, t Token) {
	if pc.single == nil {
		pc.single = map[string]Token{}
	}
	pc.single[key] = t
}

// rehome moves the requests in flight from a lease to the lease that continues it.
func (p *Pod) rehome(r lease.Range, from, to lease.Gen) {
	for name, k := range p.keys {
		if !r.Contains(name) {
			continue
		}
		for _, l := range k.loads {
			if l.gen == from {
				l.gen = to
			}
		}
		if b := k.flight; b != nil {
			for i := range b.keys {
				if b.keys[i] == name && b.gens[i] == from {
					b.gens[i] = to
				}
			}
		}
	}
}

// subtract returns ranges without part.
func subtract(ranges []lease.Range, part lease.Range) (out []lease.Range) {
	for _, r := range ranges {
		if !r.Overlaps(part) {
			out = append(out, r)
			continue
		}
		if r.Low < part.Low {
			out = append(out, lease.Range{Low: r.Low, High: part.Low})
		}
		if part.High != "" && (r.High == "" || part.High < r.High) {
			out = append(out, lease.Range{Low: part.High, High: r.High})
		}
	}
	return out
}

// revoked ends a lease and forgets its pieces. Of the work under the lease, only the wait for
// answers in flight continues (R15).
func (p *Pod) revoked(now ticks.Tick, in Revoked, out []Output) []Output {
	t, ok := p.leases[in.Gen]
	if !ok {
		return out
	}
	delete(p.leases, in.Gen)
	p.pieces = slices.DeleteFunc(p.pieces, func(pc *piece) bool {
		if pc.gen == in.Gen {
			delete(p.calls, pc.call)
		}
		return pc.gen == in.Gen
	})
	for _, name := range p.active(t.Range) {
		if k := p.keys[name]; k != nil && k.flight != nil && slices.Contains(k.flight.gens, in.Gen) {
			out = p.disown(now, k.flight, out)
		}
	}
	return p.pumpAll(now, t.Range, out)
}

// cut asks the store for the boundaries of its tablets inside a piece.
func (p *Pod) cut(pc *piece, out []Output) []Output {
	pc.state, pc.call = cutting, p.call(pc)
	return append(out, ReadSplits{pc.call, pc.rng, pc.try})
}

// splits cuts a piece at the boundaries of the store's tablets and guards the parts.
func (p *Pod) splits(now ticks.Tick, in Splits, out []Output) []Output {
	pc, ok := p.calls[in.Call].(*piece)
	delete(p.calls, in.Call)
	switch {
	case !ok:
		return out
	case !p.holds(now, pc.gen):
		return p.forsake(now, pc, out)
	case in.Status != OK:
		pc.try++
		return p.cut(pc, out)
	}
	var parts []*piece
	for _, r := range pc.rng.Cut(in.Points) {
		part := p.carve(pc, r, pc.gen)
		part.state, part.try = waiting, pc.try
		parts = append(parts, part)
	}
	i := slices.Index(p.pieces, pc)
	p.pieces = slices.Replace(p.pieces, i, i+1, parts...)
	for _, part := range parts {
		out = p.install(part, out)
	}
	return out
}

// install sends a SetGuard for a whole piece (R1), under a fresh token (R4), once no fence inside
// the piece is in flight (R3).
func (p *Pod) install(pc *piece, out []Output) []Output {
	for name := range p.fences {
		if pc.rng.Contains(name) {
			return out
		}
	}
	pc.state, pc.call, pc.token, pc.single = guarding, p.call(pc), p.name(), nil
	return append(out, SetGuard{pc.call, pc.rng, pc.token, pc.try})
}

// reguard replaces a guard that is no longer in the store.
func (p *Pod) reguard(pc *piece, out []Output) []Output {
	if pc.state != guarded {
		return out
	}
	pc.state, pc.try = waiting, 0
	return p.install(pc, out)
}

// guarded handles the answer to a SetGuard.
func (p *Pod) guarded(now ticks.Tick, in Guarded, out []Output) []Output {
	what := p.calls[in.Call]
	delete(p.calls, in.Call)
	switch what := what.(type) {
	case *fence:
		return p.fenced(now, what, in.Status, out)
	case *piece:
		return p.installed(now, what, in.Status, out)
	}
	return out
}

func (p *Pod) installed(now ticks.Tick, pc *piece, status Status, out []Output) []Output {
	switch {
	case !p.holds(now, pc.gen): // R2
		out = append(out, Event{GuardRefused})
		return p.forsake(now, pc, out)
	case status == Layout:
		pc.try++
		return p.cut(pc, append(out, Event{GuardRefused}))
	case status != OK: // it may still take effect: never use its token again (R4)
		pc.try++
		pc.state = waiting
		return p.install(pc, append(out, Event{GuardLost}))
	}
	pc.state, pc.call = guarded, 0
	out = p.transfer(now, pc, append(out, Event{GuardInstalled}))
	return p.pumpAll(now, pc.rng, out)
}

// forsake forgets a piece whose lease is over.
func (p *Pod) forsake(now ticks.Tick, pc *piece, out []Output) []Output {
	p.pieces = slices.DeleteFunc(p.pieces, func(q *piece) bool { return q == pc })
	return p.pumpAll(now, pc.rng, out)
}
