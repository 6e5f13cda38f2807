package replica

import (
	"fmt"
	"maps"
	"slices"

	"github.com/freshet-cache/freshet/shard/lease"
)

// Primary stands between a pod and the store. It passes a write of a replicated key on when no
// replica serves the key any more. It passes every other write on at once. It is not safe for
// concurrent use: the runtime steps it under the pod's lock.
type Primary struct {
	groups map[lease.Gen]*group
	keys   map[string]lease.Gen // the latest generation of each key
	writes map[Call]*write
	guards map[Call][]mark // SetGuards in flight, and the writes that each of them fences when it returns
}

// group is a generation whose primary is this node.
type group struct {
	gen      lease.Gen
	key      string
	replicas []lease.GroupMember
	n        uint64            // the last write (P5)
	phase    phase             // of that write
	got      map[string]uint64 // the last invalidation that each replica has obeyed
	open     map[string]bool   // replicas that have confirmed the last Cacheable or Finish
}

type phase uint8

const (
	fresh   phase = iota // no guard has been set in this generation (P1)
	closing              // the write waits for the replicas (P2)
	passed               // the store may commit it at any moment
	silent               // the write had no answer, and no SetGuard has returned since (P4)
	settled              // the write is decided, and Finish is not sent yet
	said                 // Cacheable or Finish was sent
)

// write is a Store or Locked of the pod that has no answer yet.
type write struct {
	call   Call
	marks  []mark // one for each replicated key of the write
	passed bool
}

// mark names a write of a generation.
type mark struct {
	gen lease.Gen
	n   uint64
}

// NewPrimary returns a machine that is the primary of no key yet.
func NewPrimary() *Primary {
	return &Primary{groups: map[lease.Gen]*group{}, keys: map[string]lease.Gen{}, writes: map[Call]*write{}, guards: map[Call][]mark{}}
}

// Busy reports whether the machine has any state. If it has none, the runtime need not pass guards
// and writes to it, because it would let all of them through.
func (p *Primary) Busy() bool { return len(p.groups)+len(p.writes)+len(p.guards) > 0 }

// Step takes one input and appends the outputs to out.
func (p *Primary) Step(in Input, out []Output) []Output {
	switch in := in.(type) {
	case Acquired:
		p.groups[in.Gen] = &group{gen: in.Gen, key: in.Low, replicas: in.Group.Replicas(), got: map[string]uint64{}, open: map[string]bool{}}
		p.keys[in.Low] = in.Gen
		return out
	case Revoked:
		return p.revoked(in, out)
	case Guarding:
		p.guarding(in)
		return out
	case Guarded:
		return p.guarded(in, out)
	case Writing:
		return p.writing(in, out)
	case Written:
		p.written(in)
		return out
	case Kept:
		if g := p.groups[in.Gen]; g != nil && g.key == in.Key && g.phase == settled { // P4, P6
			return g.finish(&in.Row, out)
		}
		return out
	case Received:
		if r, ok := in.Message.(Report); ok {
			return p.reported(r, out)
		}
		return out
	case Beat:
		return p.beat(out)
	}
	panic("replica: unknown input")
}

// writing handles a write: it first sends Invalidate to the replicas of its keys.
func (p *Primary) writing(in Writing, out []Output) []Output {
	w := &write{call: in.Call}
	for _, key := range in.Keys {
		g := p.groups[p.keys[key]]
		if g == nil {
			continue
		}
		if g.phase != settled && g.phase != said { // the rules rely on a pod that guards first, and writes one at a time
			panic(fmt.Sprintf("replica: a write of %q in phase %d of generation %d", key, g.phase, g.gen))
		}
		g.n++ // P5
		g.phase = closing
		clear(g.open)
		w.marks = append(w.marks, mark{g.gen, g.n})
		for _, m := range g.replicas {
			out = append(out, Send{m, Invalidate{g.gen, g.n}})
		}
	}
	if len(w.marks) == 0 {
		return append(out, Pass{in.Call})
	}
	p.writes[in.Call] = w
	return p.pass(w, out)
}

// pass lets the store have a write if every replica has said that it dropped its entry (P2).
func (p *Primary) pass(w *write, out []Output) []Output {
	for _, m := range w.marks {
		if g := p.groups[m.gen]; !g.closed() {
			return out
		}
	}
	w.passed = true
	for _, m := range w.marks {
		p.groups[m.gen].phase = passed
	}
	return append(out, Pass{w.call})
}

// closed reports whether every replica has obeyed the last invalidation.
func (g *group) closed() bool {
	return !slices.ContainsFunc(g.replicas, func(m lease.GroupMember) bool { return g.got[m.Node] < g.n })
}

// written handles the answer to a write that was passed on.
func (p *Primary) written(in Written) {
	w := p.writes[in.Call]
	if w == nil || !w.passed { // the write has no replicated key
		return
	}
	delete(p.writes, in.Call)
	for _, m := range w.marks {
		switch g := p.groups[m.gen]; {
		case g == nil: // P5: the next owner sets a guard before anybody serves
		case in.Known:
			g.phase = settled
		default: // P4: it may still be committed
			g.phase = silent
		}
	}
}

// guarding records what a SetGuard proves when it returns: no write that was sent before it can
// commit any more.
func (p *Primary) guarding(in Guarding) {
	for _, gen := range slices.Sorted(maps.Keys(p.groups)) {
		if g := p.groups[gen]; in.Range.Contains(g.key) && (g.phase == fresh || g.phase == silent) {
			p.guards[in.Call] = append(p.guards[in.Call], mark{gen, g.n})
		}
	}
}

func (p *Primary) guarded(in Guarded, out []Output) []Output {
	marks := p.guards[in.Call]
	delete(p.guards, in.Call)
	for _, m := range marks {
		g := p.groups[m.gen]
		switch {
		case !in.OK || g == nil || g.n != m.n:
		case g.phase == fresh: // P1
			g.phase = said
			for _, r := range g.replicas {
				out = append(out, Send{r, Cacheable{g.gen}})
			}
		case g.phase == silent: // P4
			g.phase = settled
		}
	}
	return out
}

// finish lets the replicas keep entries again.
func (g *group) finish(row *Row, out []Output) []Output {
	if row != nil && row.TTL != 0 { // P6: only the node that read the row knows its TTL
		row = nil
	}
	g.phase = said
	for _, m := range g.replicas {
		out = append(out, Send{m, Finish{g.gen, g.n, row}})
	}
	return out
}

// reported handles a Report of a replica.
func (p *Primary) reported(in Report, out []Output) []Output {
	g := p.groups[in.Gen]
	if g == nil || in.N > g.n || !slices.ContainsFunc(g.replicas, func(m lease.GroupMember) bool { return m.Node == in.From }) {
		return out
	}
	g.got[in.From] = max(g.got[in.From], in.N)
	if in.N == g.n && g.phase == said {
		g.open[in.From] = g.open[in.From] || in.Open
	}
	if g.phase == closing {
		for _, call := range slices.Sorted(maps.Keys(p.writes)) {
			if w := p.writes[call]; slices.Contains(w.marks, mark{g.gen, g.n}) {
				out = p.pass(w, out)
			}
		}
	}
	return g.remind(in.From, out)
}

// beat repeats what was not confirmed (P7). It also sends Finish for a decided write of which the
// pod has kept no entry.
func (p *Primary) beat(out []Output) []Output {
	for _, gen := range slices.Sorted(maps.Keys(p.groups)) {
		g := p.groups[gen]
		if g.phase == settled {
			out = g.finish(nil, out)
			continue
		}
		for _, m := range g.replicas {
			out = g.remind(m.Node, out)
		}
	}
	return out
}

// remind repeats to one replica what it has not confirmed.
func (g *group) remind(node string, out []Output) []Output {
	to := g.replicas[slices.IndexFunc(g.replicas, func(m lease.GroupMember) bool { return m.Node == node })]
	switch {
	case g.got[node] < g.n:
		return append(out, Send{to, Invalidate{g.gen, g.n}})
	case g.phase != said || g.open[node]:
		return out
	case g.n == 0:
		return append(out, Send{to, Cacheable{g.gen}})
	}
	return append(out, Send{to, Finish{g.gen, g.n, nil}})
}

// revoked ends a generation. Writes that wait for its replicas are refused (P3); the other keys of
// such a write continue as if it had not existed.
func (p *Primary) revoked(in Revoked, out []Output) []Output {
	g := p.groups[in.Gen]
	if g == nil {
		return out
	}
	delete(p.groups, in.Gen)
	if p.keys[g.key] == in.Gen {
		delete(p.keys, g.key)
	}
	for _, call := range slices.Sorted(maps.Keys(p.writes)) {
		w := p.writes[call]
		if w.passed || !slices.Contains(w.marks, mark{g.gen, g.n}) {
			continue
		}
		delete(p.writes, call)
		for _, m := range w.marks {
			if other := p.groups[m.gen]; other != nil {
				other.phase = settled
			}
		}
		out = append(out, Refuse{call})
	}
	return out
}
