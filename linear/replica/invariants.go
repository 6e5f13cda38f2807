package replica

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/freshet-cache/freshet/shard/lease"
)

// Check panics with a description if the primary's state is impossible.
func (p *Primary) Check() {
	for _, gen := range slices.Sorted(maps.Keys(p.groups)) {
		g := p.groups[gen]
		held := 0
		for _, w := range p.writes {
			if slices.Contains(w.marks, mark{gen, g.n}) {
				held++
			}
		}
		switch busy := g.phase == closing || g.phase == passed; {
		case busy != (held == 1) || held > 1:
			panic(fmt.Sprintf("replica: generation %d of %q is in phase %d with %d writes", gen, g.key, g.phase, held))
		case g.phase == passed && !g.closed(): // P2
			panic(fmt.Sprintf("replica: write %d of generation %d was passed on before every replica dropped its entry", g.n, gen))
		case g.phase == closing && g.closed() && p.canPass(gen):
			panic(fmt.Sprintf("replica: write %d of generation %d waits for nothing", g.n, gen))
		}
		for node, n := range g.got {
			if n > g.n {
				panic(fmt.Sprintf("replica: %s obeyed write %d of generation %d, which has had %d", node, n, gen, g.n))
			}
		}
	}
}

// canPass reports whether the store may have the write that a closing generation holds back.
func (p *Primary) canPass(gen lease.Gen) bool {
	for _, w := range p.writes {
		if slices.ContainsFunc(w.marks, func(m mark) bool { return m.gen == gen }) {
			return !slices.ContainsFunc(w.marks, func(m mark) bool { return !p.groups[m.gen].closed() })
		}
	}
	return false
}

// Check panics with a description if the replica's state is impossible.
func (r *Replica) Check() {
	for _, call := range slices.Sorted(maps.Keys(r.loads)) {
		l := r.loads[call]
		if c := r.copies[l.gen]; c != nil && !c.open { // C5
			panic(fmt.Sprintf("replica: a read of %q may fill generation %d, which is closed", l.key, l.gen))
		}
		if r.shared[l.key] != l {
			panic(fmt.Sprintf("replica: two reads of %q are in flight", l.key))
		}
	}
}

// Dump returns the whole state as text, the same text for the same state. Scenarios print it, and
// the explorer recognizes states by it.
func (p *Primary) Dump() string {
	var b strings.Builder
	for _, gen := range slices.Sorted(maps.Keys(p.groups)) {
		g := p.groups[gen]
		fmt.Fprintf(&b, "generation %d of %s: write %d %s", gen, g.key, g.n, [...]string{"fresh", "closing", "passed", "silent", "settled", "said"}[g.phase])
		for _, m := range g.replicas {
			fmt.Fprintf(&b, ", %s at %d", m.Node, g.got[m.Node])
			if g.open[m.Node] {
				b.WriteString(" open")
			}
		}
		b.WriteByte('\n')
	}
	for _, c := range slices.Sorted(maps.Keys(p.writes)) {
		fmt.Fprintf(&b, "call %d %v\n", c, *p.writes[c])
	}
	for _, c := range slices.Sorted(maps.Keys(p.guards)) {
		fmt.Fprintf(&b, "guard %d %v\n", c, p.guards[c])
	}
	return b.String()
}

// Dump returns the whole state as text, the same text for the same state.
func (r *Replica) Dump() string {
	var b strings.Builder
	for _, gen := range slices.Sorted(maps.Keys(r.copies)) {
		c := r.copies[gen]
		fmt.Fprintf(&b, "copy %d of %s: invalidated by %d", gen, c.key, c.last)
		if c.open {
			b.WriteString(", open")
		}
		b.WriteByte('\n')
	}
	for _, c := range slices.Sorted(maps.Keys(r.loads)) {
		fmt.Fprintf(&b, "call %d %v\n", c, *r.loads[c])
	}
	return b.String()
}
