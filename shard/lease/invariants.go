package lease

import "fmt"

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
