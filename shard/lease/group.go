package lease

import (
	"cmp"
	"slices"

	"github.com/freshet-cache/freshet/ticks"
)

// crew is the part of a slice that concerns replicas. Only slices of one key have any.
type crew struct {
	copies []copied
	want   int  // how many replicas the slice should have
	pinned bool // an operator has set want
}

// copied is a replica and what is known about its lease.
type copied struct {
	GroupMember
	until ticks.Tick // no lease granted to this member lasts beyond it (A1)
	rate  uint64
	heard bool // the member has reported a rate
}

// manned returns the crew that a predecessor saved.
func manned(h Held) crew {
	c := crew{want: h.Want, pinned: h.Pinned}
	for _, m := range h.Copies {
		c.copies = append(c.copies, copied{GroupMember: m})
	}
	return c
}

// members returns the replicas.
func (c crew) members() (out []GroupMember) {
	for _, m := range c.copies {
		out = append(out, m.GroupMember)
	}
	return out
}

// group returns the nodes that share the lease of s; it is empty if the owner is alone.
func (s *slice) group() Group {
	if len(s.copies) == 0 {
		return nil
	}
	return append(Group{{s.Node, s.Addr, s.Host}}, s.members()...)
}

// holds returns the end of a node's lease of s, and the generation whose entries the node may take
// over. It returns nil if the node has no lease of s.
func (s *slice) holds(node string) (*ticks.Tick, Gen) {
	if s.Node == node {
		return &s.until, s.after
	}
	for i := range s.copies {
		if c := &s.copies[i]; c.Node == node {
			return &c.until, 0
		}
	}
	return nil, 0
}

// alone reports whether no replica can hold a lease of s any more.
func (s *slice) alone(now ticks.Tick) bool {
	return !slices.ContainsFunc(s.copies, func(c copied) bool { return now < c.until }) // A6
}

// bound reports whether s must stay as it is, because it is moving or replicated.
func (s *slice) bound() bool { return s.recalled || s.want > 0 || len(s.copies) > 0 }

// report records the load that a replica reports.
func (s *slice) report(node string, rate uint64) {
	for i := range s.copies {
		if c := &s.copies[i]; c.Node == node {
			c.rate, c.heard = rate, true
		}
	}
}

// demand returns the load of all members of a slice.
func (s *slice) demand() uint64 {
	sum := s.load.Rate
	for _, c := range s.copies {
		sum += c.rate
	}
	return sum
}

// Replicate sets the number of replicas of key to n, whatever its load. With 0 the load decides
// again. The key gets a slice of its own. Replicate reports false if the slice is moving, so that
// the caller should ask again, or if there is no room for another slice (A9).
func (a *Assigner) Replicate(now ticks.Tick, key string, n int) bool {
	i := slices.IndexFunc(a.slices, func(s slice) bool { return s.Contains(key) })
	switch {
	case i < 0 || n < 0 || n > a.opt.Balance.MaxReplicas:
		return false
	case n == 0:
	case a.slices[i].Range == Point(key):
	case a.slices[i].recalled:
		return false
	default:
		p := Point(key)
		if !a.Cut(now, []string{p.Low, p.High}) { // A9
			return false
		}
		i = slices.IndexFunc(a.slices, func(s slice) bool { return s.Contains(key) })
	}
	s := &a.slices[i]
	a.rev++ // the next leader must know want, even if the group stays the same for now
	s.want, s.pinned = n, n > 0
	return true
}

// Unreplicate withdraws Replicate: the load decides again.
func (a *Assigner) Unreplicate(now ticks.Tick, key string) bool { return a.Replicate(now, key, 0) }

// replicate lets the load decide how many replicas a key should have. It recalls the leases of
// groups that have other members than they should (A7).
func (a *Assigner) replicate(now ticks.Tick) {
	for i := range a.slices {
		s := &a.slices[i]
		a.heed(s)
		if s.recalled || s.Node == "" || !a.alive(now, s.Node) {
			continue
		}
		if !slices.EqualFunc(s.members(), a.muster(now, s), func(m GroupMember, c copied) bool { return m == c.GroupMember }) {
			s.recalled, s.next = true, s.Node
		}
	}
}

// heed sets want by the load: as many members as the load needs. It takes one away only when the
// rest would have capacity to spare.
func (a *Assigner) heed(s *slice) {
	one := a.opt.Balance.OneNode
	if one == 0 || s.pinned || s.recalled || s.Range != Point(s.Low) {
		return
	}
	want := s.want
	switch rate, members := s.demand(), uint64(s.want+1); {
	case rate > one*members:
		want = min(int((rate-1)/one), a.opt.Balance.MaxReplicas)
	case s.want > 0 && rate*4 < one*(members-1)*3 && !slices.ContainsFunc(s.copies, func(c copied) bool { return !c.heard }):
		want--
	}
	if want != s.want {
		s.want = want
		a.rev++
	}
}

// muster returns the replicas that s should have. Present ones stay unless they leave, or are
// silent and their lease has ended; then come the least busy other nodes.
func (a *Assigner) muster(now ticks.Tick, s *slice) (out []copied) {
	fit := func(node string) bool { return a.alive(now, node) && a.nodes[node].groups && !a.nodes[node].leaving }
	if s.want == 0 || !fit(s.Node) {
		return nil
	}
	for _, c := range s.copies {
		if len(out) < s.want && c.Node != s.Node && !a.nodes[c.Node].leaving && (a.alive(now, c.Node) || now < c.until) {
			out = append(out, copied{GroupMember: c.GroupMember})
		}
	}
	nodes := slices.DeleteFunc(a.living(now), func(n string) bool {
		return n == s.Node || !fit(n) || slices.ContainsFunc(out, func(c copied) bool { return c.Node == n })
	})
	weight, _ := a.weights(nodes)
	slices.SortStableFunc(nodes, func(m, n string) int { return cmp.Compare(weight[m], weight[n]) })
	for _, n := range nodes[:min(len(nodes), max(0, s.want-len(out)))] {
		out = append(out, copied{GroupMember: GroupMember{n, a.nodes[n].addr, a.nodes[n].host}})
	}
	return out
}
