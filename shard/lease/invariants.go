package lease

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// Check panics with a description if the assigner's state is impossible.
func (a *Assigner) Check() {
	if a.term == 0 || len(a.slices) == 0 {
		return
	}
	low, seen := "", map[Gen]bool{}
	for i, s := range a.slices {
		last := i == len(a.slices)-1
		switch {
		case s.Low != low:
			panic(fmt.Sprintf("lease: slice %v does not begin at %q, where the one before it ends", s.Range, low))
		case last != (s.High == "") || !last && s.High <= s.Low:
			panic(fmt.Sprintf("lease: slice %v is empty or ends in the middle", s.Range))
		case seen[s.Gen] || s.Gen > a.gen:
			panic(fmt.Sprintf("lease: generation %d of %v is used twice or was never drawn", s.Gen, s.Range))
		case s.rev > a.rev || a.saved > a.rev:
			panic(fmt.Sprintf("lease: revision %d of %v is from the future", s.rev, s.Range))
		case s.Range != Point(s.Low) && (s.want > 0 || len(s.copies) > 0):
			panic(fmt.Sprintf("lease: %v has replicas though it is more than one key", s.Range))
		}
		for j, c := range s.copies {
			if c.Node == s.Node || slices.ContainsFunc(s.copies[:j], func(d copied) bool { return d.Node == c.Node }) {
				panic(fmt.Sprintf("lease: %s is twice in the group of generation %d", c.Node, s.Gen))
			}
		}
		low, seen[s.Gen] = s.High, true
	}
}

// Check panics with a description if the node's state is impossible.
func (n *Node) Check() {
	for g, h := range n.held {
		if f := n.floorOf(h.Range); g <= f {
			panic(fmt.Sprintf("lease: %s holds generation %d of %v though it gave up %d", n.opt.Node, g, h.Range, f))
		}
	}
	for i := 1; i < len(n.floor); i++ {
		if n.floor[i-1].Range.Overlaps(n.floor[i].Range) {
			panic(fmt.Sprintf("lease: floors %v and %v overlap", n.floor[i-1].Range, n.floor[i].Range))
		}
	}
	if len(n.sent) > maxSent+1 {
		panic(fmt.Sprintf("lease: %d renewals are remembered", len(n.sent)))
	}
}

// Dump returns the whole state as text, the same text for the same state. The explorer recognizes
// states by it.
func (n *Node) Dump() string {
	var b strings.Builder
	fmt.Fprintf(&b, "node %s seq %d leaving %v done %v table %d", n.opt.Node, n.seq, n.leaving, n.done, n.table.Version)
	for _, s := range slices.Sorted(maps.Keys(n.sent)) {
		fmt.Fprintf(&b, " sent %d@%d", s, n.sent[s])
	}
	for _, g := range slices.Sorted(maps.Keys(n.held)) {
		fmt.Fprintf(&b, " holds %d %v until %d", g, n.held[g].Range, n.held[g].Until)
	}
	for _, g := range slices.Sorted(maps.Keys(n.gave)) {
		fmt.Fprintf(&b, " gave %d at %d", g, n.gave[g])
	}
	return fmt.Sprint(b.String(), n.floor, "\n")
}

// Dump returns the whole state as text, the same text for the same state.
func (a *Assigner) Dump() string {
	var b strings.Builder
	fmt.Fprintf(&b, "assigner term %d until %d gen %d longest %d table %d rev %d saving %d saved %d budget %v", a.term, a.led, a.gen, a.longest, a.table, a.rev, a.saving, a.saved, a.budget)
	for _, name := range slices.Sorted(maps.Keys(a.nodes)) {
		fmt.Fprintf(&b, " %s:%v", name, a.nodes[name])
	}
	return fmt.Sprint(b.String(), a.slices, "\n")
}
