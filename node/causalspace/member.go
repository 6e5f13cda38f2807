package causalspace

import (
	"context"
	"errors"
	"slices"

	"github.com/freshet-cache/freshet/causal"
	"github.com/freshet-cache/freshet/member"
	"github.com/freshet-cache/freshet/node/promise"
	"github.com/freshet-cache/freshet/peer"
)

// space is a causal space in this process: what its nodes share.
type space struct {
	promise.Space
	merge  func(a, b []byte) []byte // nil: the larger stamp wins
	store  causal.RingStore
	seat   promise.Seat
	leader *member.Leader // nil if the leader is in another process
	log    causal.Log     // nil unless the space is asynchronous
}

// ring is the name of the space between nodes. It says whether nodes acknowledge from their logs, for
// all must agree on that.
func (s *space) ring() string {
	if s.log != nil {
		return "ring " + s.Name + " async"
	}
	return "ring " + s.Name
}

// node is the part of one node: its place in the ring of every space.
type node struct {
	promise.Node
	p   promise.Process
	all []*part
}

// part is a node's part of a space.
type part struct {
	is    *space
	ring  *causal.Ring
	space *causal.Space[[]byte]
	keyed bool // the key of its tokens was given
}

var errElecting = errors.New("the leader of the ring is being elected")

// answer answers what a node asks the leader of the ring, if that is here.
func (s *space) answer(request []byte) ([]byte, error) {
	if s.leader == nil {
		return nil, errors.New("no leader of this ring is here; start all processes with the same --space flags")
	}
	b := s.leader.Answer(request)
	if b == nil {
		return nil, errElecting
	}
	return b, nil
}

// askLeader asks the leader of the ring of a space.
func (n *node) askLeader(ctx context.Context, s *space, request []byte) ([]byte, error) {
	addr := s.seat.Leader()
	switch {
	case addr == "":
		return nil, errElecting
	case s.leader != nil && addr == s.seat.Self:
		return s.answer(request)
	}
	return n.Peers.Ask(ctx, addr, peer.Control, s.ring(), request)
}

// Space returns a space that a Member of this package has joined, for use in Go. It sets Name, Key and
// MaxValue of opt as the space's commands have them. ok is false if the Member has no such space.
func Space[V any](m promise.Member, name string, opt causal.SpaceOptions[V]) (s *causal.Space[V], ok bool, err error) {
	n, ours := m.(*node)
	if !ours {
		return nil, false, nil
	}
	c := n.find(name)
	if c == nil {
		return nil, false, nil
	}
	s, err = spaceOf(n, c, opt)
	return s, true, err
}

// spaceOf makes a space whose tokens are good for all others of its name.
func spaceOf[V any](n *node, c *part, opt causal.SpaceOptions[V]) (*causal.Space[V], error) {
	opt.Name, opt.Key, opt.MaxValue = n.p.Cluster+"/"+c.is.Name, []byte(n.p.Secret), n.p.MaxValue
	return causal.NewSpace(c.ring, opt)
}

// find returns the node's part of the space of this name, or nil.
func (n *node) find(name string) *part {
	i := slices.IndexFunc(n.all, func(c *part) bool { return c.is.Name == name })
	if i < 0 {
		return nil
	}
	return n.all[i]
}

// Leave implements promise.Member.
func (n *node) Leave(ctx context.Context) {
	for _, c := range n.all {
		if len(c.ring.View().Ring) < 2 {
			continue
		}
		if err := c.ring.Leave(ctx); err != nil {
			n.Log.Warn("this node could not leave a ring; the others go on without it when its lease is over", "space", c.is.Name, "err", err)
		}
	}
}

// Close implements promise.Member.
func (n *node) Close() {
	for _, c := range n.all {
		c.ring.Close()
	}
}

// Groups implements promise.Member.
func (n *node) Groups() (out []promise.Group) {
	for _, c := range n.all {
		v := c.ring.View()
		r := promise.Group{Space: c.is.Name, View: v.Number, Departed: len(v.Departed), Ring: []string{}, Incarnations: v.Departed}
		for _, m := range v.Ring {
			r.Ring = append(r.Ring, m.Addr)
		}
		server, err := c.ring.Server()
		if r.Joined = err == nil && server.Joined(); r.Joined {
			r.Owes = server.Owes()
		}
		out = append(out, r)
	}
	return out
}
