package clink

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// Check panics with a description if the pod's state is impossible.
func (p *Pod) Check() {
	for i, pc := range p.pieces {
		if i > 0 && p.pieces[i-1].rng.Overlaps(pc.rng) {
			panic(fmt.Sprintf("clink: pieces %v and %v overlap", p.pieces[i-1].rng, pc.rng))
		}
		if _, ok := p.leases[pc.gen]; !ok {
			panic(fmt.Sprintf("clink: piece %v belongs to lease %d, which is over", pc.rng, pc.gen))
		}
		if (pc.state == cutting || pc.state == guarding) && p.calls[pc.call] != any(pc) {
			panic(fmt.Sprintf("clink: piece %v in state %d waits for nothing", pc.rng, pc.state))
		}
		for name := range p.fences {
			if pc.state == guarding && pc.rng.Contains(name) { // R3
				panic(fmt.Sprintf("clink: two SetGuards are in flight for %q", name))
			}
		}
	}
	for name, k := range p.keys {
		if b := k.flight; b != nil && !slices.Contains(b.keys, name) {
			panic(fmt.Sprintf("clink: %q is held by a batch for %q", name, b.keys))
		}
		if b, pc := k.flight, p.piece(name); b != nil && pc != nil && pc.gen != b.gens[b.at(name)] && p.holds(p.now, b.gens[b.at(name)]) {
			panic(fmt.Sprintf("clink: %q is written under lease %d and guarded under lease %d", name, b.gens[b.at(name)], pc.gen))
		}
		if k.flight == nil && len(k.queue) > 0 && p.canDepart(k.queue[0]) {
			panic(fmt.Sprintf("clink: operation %d stands at the head of its queues and waits for nothing", k.queue[0].id))
		}
		for _, o := range k.queue {
			if o.batch != nil || p.ops[o.id] != o {
				panic(fmt.Sprintf("clink: operation %d waits at %q though it was sent or answered", o.id, name))
			}
		}
	}
}

// canDepart reports whether an operation that waits could be sent now.
func (p *Pod) canDepart(o *op) bool {
	for _, n := range o.keys {
		k := p.keys[n]
		if pc, _ := p.guard(p.now, n); pc == nil || k.flight != nil || k.queue[0] != o {
			return false
		}
	}
	return true
}

// Idle reports whether nothing is in flight and no caller waits.
func (p *Pod) Idle() bool { return len(p.ops) == 0 && len(p.keys) == 0 && len(p.calls) == 0 }

// Dump returns the whole state as text, the same text for the same state. Scenarios print it, and
// the explorer recognizes states by it.
func (p *Pod) Dump() string {
	var b strings.Builder
	for _, g := range slices.Sorted(maps.Keys(p.leases)) {
		fmt.Fprintf(&b, "lease %d %v until %d\n", g, p.leases[g].Range, p.leases[g].Until)
	}
	for _, pc := range p.pieces {
		fmt.Fprintf(&b, "piece %v of %d %s", pc.rng, pc.gen, [...]string{"cutting", "waiting", "guarding", "guarded"}[pc.state])
		if pc.state >= guarding {
			fmt.Fprintf(&b, " %v", pc.token)
		}
		for _, name := range slices.Sorted(maps.Keys(pc.single)) {
			fmt.Fprintf(&b, " %s:%v", name, pc.single[name])
		}
		if pc.after != 0 {
			fmt.Fprintf(&b, " after %d but for %v", pc.after, slices.Sorted(maps.Keys(pc.written)))
		}
		b.WriteByte('\n')
	}
	for _, name := range slices.Sorted(maps.Keys(p.keys)) {
		k := p.keys[name]
		fmt.Fprintf(&b, "key %s:", name)
		for _, l := range k.loads {
			fmt.Fprintf(&b, " load under %d overlap=%v for %d+%d", l.gen, l.overlap, len(l.waiting), len(l.late))
			if l.batch != nil {
				fmt.Fprintf(&b, " of %v", ID(l.batch.id))
			}
		}
		if f := k.flight; f != nil {
			fmt.Fprintf(&b, " flight %v %s %v pending=%d", f.id, f.state, f.ids(), f.pending)
		}
		for _, o := range k.queue {
			fmt.Fprintf(&b, " queued %d", o.id)
		}
		b.WriteByte('\n')
	}
	for _, c := range slices.Sorted(maps.Keys(p.calls)) {
		switch what := p.calls[c].(type) {
		case *piece:
			fmt.Fprintf(&b, "call %d for %v\n", c, what.rng)
		case *fence:
			fmt.Fprintf(&b, "call %d to fence %s with %v\n", c, what.key, what.token)
		case *load:
			fmt.Fprintf(&b, "call %d to load %s\n", c, what.key)
		case *batch:
			fmt.Fprintf(&b, "call %d to store %v\n", c, what.id)
		}
	}
	return b.String()
}

func (s batchState) String() string {
	return [...]string{"gathering", "evaluating", "ready", "sent", "fencing", "resolving"}[s]
}

func (b *batch) ids() (out []Op) {
	for _, o := range b.ops {
		out = append(out, o.id)
	}
	return out
}

// String shows the incarnation and the number that a token was made of.
func (t Token) String() string { return show(t) }

// String shows the incarnation and the number that an id was made of.
func (id ID) String() string { return show(id) }

func show(b [16]byte) string {
	if b == [16]byte{} {
		return "-"
	}
	return fmt.Sprintf("%x.%d", trim(b[:8]), uint64(b[12])<<24|uint64(b[13])<<16|uint64(b[14])<<8|uint64(b[15]))
}

func trim(b []byte) []byte {
	for len(b) > 1 && b[0] == 0 {
		b = b[1:]
	}
	return b
}
