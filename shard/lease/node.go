package lease

import (
	"cmp"
	"maps"
	"slices"

	"github.com/freshet-cache/freshet/ticks"
)

// NodeOptions describe one incarnation of a node.
type NodeOptions struct {
	Node string // unique for ever: no two incarnations share it
	Addr string
	Host string
	// Drift bounds how much the node's clock may run fast or slow against real
	// time, in millionths. Default 0.
	Drift int64
	// Groups says that the runtime of this node can share a lease with other nodes. Default no: the
	// node never gets such a lease.
	Groups bool
}

// Node is the node's side of the leases: a machine without I/O. It is not safe for concurrent use.
type Node struct {
	opt     NodeOptions
	seq     uint64
	sent    map[uint64]ticks.Tick // when the last renewals were sent, for N1
	held    map[Gen]term
	floor   []floor // the highest generation given up, by range (N3)
	gave    map[Gen]uint64
	leaving bool
	done    bool
	table   Table
}

// term is a lease as the node holds it.
type term struct {
	Range Range
	Until ticks.Tick
}

// floor says that the node accepts no generation up to Gen for keys of Range (N3).
type floor struct {
	Range Range
	Gen   Gen
}

const (
	maxSent   = 64   // an answer to an older renewal comes too late to count
	maxFloors = 4096 // beyond it neighbours share the higher floor; the assigner then makes new generations
)

// NodeOutput is one of SendRenew, SendGave, Acquire, Extend, Revoke, Routes.
type NodeOutput interface{ nodeOutput() }

// SendRenew sends the message to the assigner. It may be lost.
type SendRenew struct{ Renew }

// SendGave sends the message to the assigner. It may be lost. Every Revoke before it must have
// taken effect (N4).
type SendGave struct{ Gave }

// Acquire makes a new handle. The node owns Range until Until, alone if Group is empty. Otherwise
// only the first of the group owns it; the others may read.
type Acquire struct {
	Lease
	Until ticks.Tick
	After Gen // the generation whose owner gave the range up and may offer its entries; 0 if none
	Group Group
}

// Extend moves the end of a handle. The ownership was not interrupted.
type Extend struct {
	Gen   Gen
	Until ticks.Tick
}

// Revoke ends a handle at once and for good. If it was recalled for another node, Range is the part
// that goes to Next, as the successor of generation Under.
type Revoke struct {
	Gen   Gen
	Range Range
	Under Gen
	Next  string
}

// Routes passes on a newer routing table.
type Routes struct{ Table Table }

func (SendRenew) nodeOutput() {}
func (SendGave) nodeOutput()  {}
func (Acquire) nodeOutput()   {}
func (Extend) nodeOutput()    {}
func (Revoke) nodeOutput()    {}
func (Routes) nodeOutput()    {}

// NewNode returns an incarnation that holds nothing.
func NewNode(opt NodeOptions) *Node {
	return &Node{opt: opt, sent: map[uint64]ticks.Tick{}, held: map[Gen]term{}, gave: map[Gen]uint64{}}
}

// Beat gives up leases that have lapsed, and asks for a renewal, which carries loads.
func (n *Node) Beat(now ticks.Tick, loads []Load, out []NodeOutput) []NodeOutput {
	for _, g := range slices.Sorted(maps.Keys(n.held)) {
		if h, ok := n.held[g]; ok && now >= h.Until { // N6
			out = n.giveUp(Lease{h.Range, g}, out)
		}
	}
	n.seq++
	n.sent[n.seq] = now
	delete(n.sent, n.seq-maxSent)
	for g, at := range n.gave {
		if at == 0 {
			n.gave[g] = n.seq
		}
	}
	return append(out, SendRenew{Renew{
		Node: n.opt.Node, Addr: n.opt.Addr, Host: n.opt.Host, Seq: n.seq,
		Gave: slices.Sorted(maps.Keys(n.gave)), Leaving: n.leaving, Done: n.done, Table: n.table.Version, Loads: loads, Groups: n.opt.Groups,
	}})
}

// Granted handles the answer to a renewal.
func (n *Node) Granted(now ticks.Tick, in Grant, out []NodeOutput) []NodeOutput {
	sent, ok := n.sent[in.Seq]
	if in.Node != n.opt.Node || !ok || n.done { // N5, N9
		return out
	}
	for g, at := range n.gave { // the assigner has received these
		if at != 0 && at <= in.Seq {
			delete(n.gave, g)
		}
	}
	until := sent + ticks.Shorten(in.Length, n.opt.Drift) // N1, N2
	had := len(n.held)
	for i, l := range in.Leases {
		h, held := n.held[l.Gen]
		switch {
		case l.Gen <= n.floorOf(l.Range): // N3: report it, or the assigner would grant it for ever
			if _, told := n.gave[l.Gen]; !told {
				n.gave[l.Gen] = 0
			}
		case now >= until: // the answer took longer than the lease lasts
		case !n.opt.Groups && len(group(in, i)) > 0: // N7: the runtime would take it for a lease of this node alone
			out = n.giveUp(l, out)
			n.gave[l.Gen] = 0
		case held && now >= h.Until: // N6
			out = n.giveUp(Lease{h.Range, l.Gen}, out)
		case held && until > h.Until:
			n.held[l.Gen] = term{l.Range, until}
			out = append(out, Extend{l.Gen, until})
		case !held:
			n.held[l.Gen] = term{l.Range, until}
			a := Acquire{Lease: l, Until: until, Group: group(in, i)}
			if i < len(in.After) {
				a.After = in.After[i]
			}
			out = append(out, a)
		}
	}
	if len(n.held) > had {
		out = n.shed(now, out)
	}
	if in.Table != nil && in.Table.Version > n.table.Version {
		n.table = *in.Table
		out = append(out, Routes{n.table})
	}
	return out
}

// shed ends leases whose keys are all held under newer ones (N8).
func (n *Node) shed(now ticks.Tick, out []NodeOutput) []NodeOutput {
	gens := slices.Sorted(maps.Keys(n.held))
	for i, g := range gens {
		old := n.held[g].Range
		rest := []Range{old}
		for _, newer := range gens[i+1:] {
			if h := n.held[newer]; now < h.Until && h.Range.Overlaps(old) {
				rest = without(rest, h.Range)
			}
		}
		if len(rest) == 0 {
			delete(n.held, g)
			n.raise(Lease{old, g})
			out = append(out, Revoke{Gen: g})
		}
	}
	return out
}

// group returns the nodes that share the i-th lease of a grant.
func group(in Grant, i int) Group {
	if i < len(in.Groups) {
		return in.Groups[i]
	}
	return nil
}

// Recalled gives leases up and acknowledges the recall. It does so even for leases that the node
// does not know: from then on it never accepts them.
func (n *Node) Recalled(_ ticks.Tick, in Recall, out []NodeOutput) []NodeOutput {
	if in.Node != n.opt.Node { // N5
		return out
	}
	g := Gave{Node: n.opt.Node}
	for i, l := range in.Leases {
		from := len(out)
		out = n.giveUp(l, out) // N4
		for j := range out[from:] {
			if r, ok := out[from+j].(Revoke); ok && i < len(in.Next) {
				r.Range, r.Under, r.Next = l.Range, l.Gen, in.Next[i]
				out[from+j] = r
			}
		}
		g.Gens = append(g.Gens, l.Gen)
	}
	return append(out, SendGave{g})
}

// Leave makes every later renewal ask the assigner to move the node's slices away.
func (n *Node) Leave() { n.leaving = true }

// Release gives up every lease at once and for good (N9). The next renewal says so. Every Revoke
// must have taken effect before that renewal is sent (N4).
func (n *Node) Release(out []NodeOutput) []NodeOutput {
	n.leaving, n.done = true, true
	for _, g := range slices.Sorted(maps.Keys(n.held)) {
		if h, ok := n.held[g]; ok {
			out = n.giveUp(Lease{h.Range, g}, out)
		}
	}
	return out
}

// Stay cancels Leave: later renewals ask for slices again. Slices that are moving continue to move.
func (n *Node) Stay() { n.leaving = false }

// Holds reports whether the node holds any lease, lapsed or not.
func (n *Node) Holds() bool { return len(n.held) > 0 }

// giveUp revokes every handle that covers a key of l and is not newer.
func (n *Node) giveUp(l Lease, out []NodeOutput) []NodeOutput {
	for _, g := range slices.Sorted(maps.Keys(n.held)) {
		if g <= l.Gen && n.held[g].Range.Overlaps(l.Range) {
			out = append(out, Revoke{Gen: g})
			delete(n.held, g)
			n.gave[g] = 0
		}
	}
	n.raise(l)
	return out
}

// floorOf returns the highest generation given up for any key of r.
func (n *Node) floorOf(r Range) (g Gen) {
	from, _ := slices.BinarySearchFunc(n.floor, r, func(f floor, r Range) int {
		if f.Range.High != "" && f.Range.High <= r.Low {
			return -1
		}
		return 1
	})
	for _, f := range n.floor[from:] {
		if !f.Range.Overlaps(r) {
			break
		}
		g = max(g, f.Gen)
	}
	return g
}

// raise raises the floor of l.Range to at least l.Gen.
func (n *Node) raise(l Lease) {
	var next []floor
	rest := []Range{l.Range} // the parts of l.Range that no floor covers yet
	for _, f := range n.floor {
		in, ok := f.Range.Intersect(l.Range)
		if !ok {
			next = append(next, f)
			continue
		}
		for _, part := range minus(f.Range, in) {
			next = append(next, floor{part, f.Gen})
		}
		next = append(next, floor{in, max(f.Gen, l.Gen)})
		rest = without(rest, in)
	}
	for _, r := range rest {
		next = append(next, floor{r, l.Gen})
	}
	slices.SortFunc(next, func(a, b floor) int { return cmp.Compare(a.Range.Low, b.Range.Low) })
	n.floor = n.join(next)
}

// join joins neighbouring floors of one generation. Beyond maxFloors it also joins any two
// neighbours of which the node holds nothing: a floor that is too high costs a new generation, but
// no promise.
func (n *Node) join(in []floor) []floor {
	force := len(in) > maxFloors
	out := in[:0]
	for i, f := range in {
		last := len(out) - 1
		if last >= 0 && out[last].Range.High == f.Range.Low &&
			(out[last].Gen == f.Gen || force && i%2 == 1 && !n.holdsIn(out[last].Range) && !n.holdsIn(f.Range)) {
			out[last].Range.High = f.Range.High
			out[last].Gen = max(out[last].Gen, f.Gen)
			continue
		}
		out = append(out, f)
	}
	return out
}

// holdsIn reports whether a lease is held for some key of r.
func (n *Node) holdsIn(r Range) bool {
	for _, h := range n.held {
		if h.Range.Overlaps(r) {
			return true
		}
	}
	return false
}

// without returns ranges without s.
func without(ranges []Range, s Range) (out []Range) {
	for _, r := range ranges {
		if cut, ok := r.Intersect(s); ok {
			out = append(out, minus(r, cut)...)
		} else {
			out = append(out, r)
		}
	}
	return out
}

// minus returns r without s, which is a part of r.
func minus(r, s Range) (out []Range) {
	if r.Low < s.Low {
		out = append(out, Range{r.Low, s.Low})
	}
	if s.High != "" && (r.High == "" || s.High < r.High) {
		out = append(out, Range{s.High, r.High})
	}
	return out
}
