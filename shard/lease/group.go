package lease

import (
	"cmp"
	"slices"
)

// crew is what a slice has beside its owner. Only slices of one key have any.
type crew struct {
	copies []copied
	want   int  // replicas it is to have
	pinned bool // an operator said so
}

// copied is a replica and what is known about its lease.
type copied struct {
	GroupMember
	until Tick // as a slice's, for this member (A1)
	rate  uint64
	heard bool // it has reported a rate
}

// manned is the crew as a predecessor saved it.
func manned(h Held) crew {
	c := crew{want: h.Want, pinned: h.Pinned}
	for _, m := range h.Copies {
		c.copies = append(c.copies, copied{GroupMember: m})
	}
	return c
}

// members are the replicas by name.
func (c crew) members() (out []GroupMember) {
	for _, m := range c.copies {
		out = append(out, m.GroupMember)
	}
	return out
}

// group is who shares the lease of s; empty if nobody does.
func (s *slice) group() Group {
	if len(s.copies) == 0 {
		return nil
	}
	return append(Group{{s.Node, s.Addr, s.Host}}, s.members()...)
}

// holds finds the book of a node's lease of s, nil if it has none, and whose entries
// it may take over.
func (s *slice) holds(node string) (*Tick, Gen) {
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
func (s *slice) alone(now Tick) bool {
	return !slices.ContainsFunc(s.copies, func(c copied) bool { return now < c.until }) // A6
}

// bound reports whether s must stay as it is: it is on the move, or replicated.
func (s *slice) bound() bool { return s.recalled || s.want > 0 || len(s.copies) > 0 }

// report takes a replica's load.
func (s *slice) report(node string, rate uint64) {
	for i := range s.copies {
		if c := &s.copies[i]; c.Node == node {
			c.rate, c.heard = rate, true
		}
	}
}

// demand is what all members of a slice were asked.
func (s *slice) demand() uint64 {
	sum := s.load.Rate
	for _, c := range s.copies {
		sum += c.rate
	}
	return sum
}

// Replicate asks for n replicas of key beside its primary, 0 for none, whatever its
// load. The key gets a slice of its own. False means that its slice is on the move, so
// ask again, or that there is no room for another slice (A9).
func (a *Assigner) Replicate(now Tick, key string, n int) bool {
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
	a.rev++ // who follows must know, also if the group is none other yet
	s.want, s.pinned = n, n > 0
	return true
}

// Unreplicate takes an operator's word back: the load decides again.
func (a *Assigner) Unreplicate(now Tick, key string) bool { return a.Replicate(now, key, 0) }

// replicate lets the load say how many replicas a key is to have, and asks back the
// leases of groups that are not what they should be (A7).
func (a *Assigner) replicate(now Tick) {
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

// heed follows the load: as many members as carry it, and one fewer only when the
// rest would have room to spare.
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

// muster are the replicas that s should have: those it has, unless they leave, or are
// silent and their lease is over; then the least busy others.
func (a *Assigner) muster(now Tick, s *slice) (out []copied) {
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
