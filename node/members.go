package node

import (
	"github.com/freshet-cache/freshet/linear"
	"github.com/freshet-cache/freshet/shard/lease"
)

// keyspace is the space of the keys of Redis clients, as the node's cache sees it.
type keyspace struct{ *Space }

// Join implements linear.Peers.
func (k keyspace) Join(m linear.Participant) {
	k.n.leased = m
	k.n.offerSpace("", m)
	k.n.join(m)
}

// Owner implements linear.Peers. It names nobody: the node asks the owner of a key before its cache
// looks for it in the store.
func (keyspace) Owner(string) string { return "" }

// Incarnation implements linear.Messenger.
func (k keyspace) Incarnation() string { return k.n.incarnation }

// Tell implements linear.Messenger.
func (k keyspace) Tell(to lease.GroupMember, message []byte) {
	k.n.peers.Tell(to.Addr, append([]byte{frameVersion, frameMember}, message...))
}

// fromMember takes such a message, and reports whether it was one.
func (n *Node) fromMember(frame []byte) bool {
	if len(frame) < 2 || frame[0] != frameVersion || frame[1] != frameMember {
		return false
	}
	if n.running() && !n.leased.Told(frame[2:]) {
		n.log.Warn("another node's message about a replicated key cannot be read", "err", errFrame)
	}
	return true
}

// roundRobin makes the route of a key that several nodes serve lead to the next of them, and
// reports whether that is a replica.
func (n *Node) roundRobin(r *lease.Route) bool {
	if len(r.Copies) == 0 {
		return false
	}
	i := n.roundRobins.Add(1) % uint64(len(r.Copies)+1)
	if i == 0 || r.Copies[i-1].Node == n.incarnation {
		return false
	}
	r.Addr = r.Copies[i-1].Addr
	return true
}
