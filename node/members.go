package node

import (
	"github.com/freshet-cache/freshet/linear"
	"github.com/freshet-cache/freshet/shard"
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

// join asks for leases, in the cache's name.
func (n *Node) join(w shard.Watcher) {
	n.shard = shard.StartNode(shard.NodeOptions{
		NodeOptions: lease.NodeOptions{Node: n.incarnation, Addr: n.addr, Host: n.p.host, Drift: 200, Groups: true},
		Clock:       n.p.clock, Beat: min(n.p.cfg.Lease/5, defaultBeat), Watch: watcher{w, n.m, n.track},
		Send: func(m any) {
			if leaderAddr := n.p.leaderAddr(); leaderAddr != "" { // else nobody leads, and the next beat asks again
				n.peers.Send(leaderAddr, lease.Append([]byte{frameVersion, frameLease}, m), n.again)
			}
		},
		Loads: n.loads,
	})
}

// again asks for leases at once, for the link to the assigner stands again, or is
// broken. Before the node has begun there is nobody to ask: start does.
func (n *Node) again(stands bool) {
	if n.running() {
		if !stands {
			n.track.Away()
		}
		n.shard.Hurry()
	}
}

func (n *Node) loads() []lease.Load {
	if !n.running() { // the first beat comes while the cache is being made
		return nil
	}
	return n.spaceLoads(n.leased.Loads())
}
