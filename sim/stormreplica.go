package sim

import (
	"fmt"

	"github.com/freshet-cache/freshet/linear/clink"
	"github.com/freshet-cache/freshet/linear/replica"
	"github.com/freshet-cache/freshet/shard/lease"
)

// member is what a node has to do with replicated keys: as their primary, and as one
// of their replicas.
type member struct {
	primary *replica.Primary
	waits   map[replica.Call]clink.Output // what the pod asked for and the primary holds back

	replica *replica.Replica
	leases  map[lease.Gen]handle
	copies  map[string]replica.Keep
}

func newMember(name string, drift int64) member {
	return member{
		primary: replica.NewPrimary(), waits: map[replica.Call]clink.Output{},
		replica: replica.NewReplica(replica.Options{Node: name, Drift: drift}), leases: map[lease.Gen]handle{}, copies: map[string]replica.Keep{},
	}
}

// acquire begins a lease: a primary's machine knows before its pod does.
func (n *stormNode) acquire(out lease.Acquire) {
	n.s.log("%s acquires %v generation %d, group of %d", n.name, out.Range, out.Gen, len(out.Group))
	h, in := handle{out.Range, out.Until}, replica.Acquired{Lease: out.Lease, Group: out.Group}
	n.s.granted = true
	if !out.Group.Primary(n.name) {
		n.member.leases[out.Gen] = h
		n.stepReplica(in)
		return
	}
	if len(out.Group) > 0 {
		n.s.sometimes("a node becomes primary")
		n.stepPrimary(in)
	}
	n.handles[out.Gen] = h
	n.stepInside(clink.Acquired{Lease: out.Lease, Until: out.Until, After: out.After})
}

// extend lets a lease last longer.
func (n *stormNode) extend(out lease.Extend) {
	n.s.granted = true
	if h, ok := n.member.leases[out.Gen]; ok {
		h.until = max(h.until, out.Until)
		n.member.leases[out.Gen] = h
		return
	}
	h := n.handles[out.Gen]
	h.until = max(h.until, out.Until)
	n.handles[out.Gen] = h
	n.stepInside(clink.Extended{Gen: out.Gen, Until: out.Until})
}

// revoke ends a lease: the pod knows before the primary's machine does.
func (n *stormNode) revoke(out lease.Revoke) {
	n.s.log("%s revokes generation %d", n.name, out.Gen)
	if h, ok := n.member.leases[out.Gen]; ok {
		if n.now() >= h.until {
			n.s.sometimes("a replica's lease lapses")
		}
		delete(n.member.leases, out.Gen)
		n.stepReplica(replica.Revoked{Gen: out.Gen})
		return
	}
	held := n.now() < n.handles[out.Gen].until
	if !held {
		n.s.sometimes("a lease lapses")
	} else {
		n.s.sometimes("a lease is recalled")
	}
	delete(n.handles, out.Gen)
	n.stepInside(clink.Revoked{Gen: out.Gen})
	n.stepPrimary(replica.Revoked{Gen: out.Gen})
	if held && out.Next != "" {
		n.handOver(out)
	}
}

// beforeStep tells the primary's machine what the pod is about to hear of.
func (n *stormNode) beforeStep(in clink.Input) {
	switch in := in.(type) {
	case clink.Guarded:
		n.stepPrimary(replica.Guarded{Call: replica.Call(in.Call), OK: in.Status == clink.OK})
	case clink.Stored:
		n.stepPrimary(replica.Written{Call: replica.Call(in.Call), Known: in.Status != clink.StatusUnknown})
	}
}

// hold asks the primary's machine before what the pod wants is carried out.
func (n *stormNode) hold(call clink.Call, out clink.Output, keys []string) {
	c := replica.Call(call)
	n.member.waits[c] = out
	n.stepPrimary(replica.Writing{Call: c, Keys: keys})
	if _, waits := n.member.waits[c]; waits {
		n.s.sometimes("a write waits for replicas")
	}
}

// kept tells the primary's machine of an entry.
func (n *stormNode) kept(k clink.Keep) {
	row := replica.Row{Exists: k.Row.Exists, Value: k.Row.Value, Version: k.Row.Version}
	if k.Until != 0 {
		row.TTL = 1
	}
	n.stepPrimary(replica.Kept{Gen: k.Gen, Key: k.Key, Row: row})
}

// stepPrimary steps the primary's machine in the middle of something that holds the
// lock.
func (n *stormNode) stepPrimary(in replica.Input) {
	outs := n.member.primary.Step(in, nil)
	n.member.primary.Check()
	for _, out := range outs {
		switch out := out.(type) {
		case replica.Send:
			n.tellMember(out)
		case replica.Pass:
			held := n.member.waits[out.Call]
			delete(n.member.waits, out.Call)
			if l, ok := held.(clink.Locked); ok {
				n.keysLocked(l)
			} else {
				n.s.request(n, held)
			}
		case replica.Refuse:
			n.s.sometimes("a write is refused, for its group is over")
			delete(n.member.waits, out.Call)
			n.stepInside(clink.Stored{Call: clink.Call(out.Call), Status: clink.Mismatch})
		}
	}
}

// stepReplica steps the replica's machine in the middle of something that holds the
// lock.
func (n *stormNode) stepReplica(in replica.Input) {
	outs := n.member.replica.Step(n.now(), in, nil)
	n.member.replica.Check()
	for _, out := range outs {
		switch out := out.(type) {
		case replica.Send:
			n.tellMember(out)
		case replica.Load:
			n.loadCopy(out)
		case replica.Keep:
			n.s.sometimes("a replica keeps an entry")
			n.member.copies[out.Key] = out
		case replica.Drop:
			delete(n.member.copies, out.Key)
		case replica.Reply:
			if _, waits := n.calls[clink.Op(out.Op)]; waits {
				n.s.answered(n, copiedReply(out))
			}
		}
	}
}

func copiedReply(out replica.Reply) clink.Reply {
	r := clink.Reply{Op: clink.Op(out.Op), Row: clink.Row{Exists: out.Row.Exists, Value: out.Row.Value}}
	if !out.OK {
		r.Outcome = clink.Failed
	}
	return r
}

// tellMember carries a message to another incarnation of another node, or not, or twice, or
// before what was sent earlier.
func (n *stormNode) tellMember(m replica.Send) {
	s := n.s
	r := s.rng("members from " + n.name)
	for _, to := range s.nodes {
		if to.name != m.To.Node {
			continue
		}
		if chance(r, s.plan.Config.Loss) || s.loses(n, to) {
			s.sometimes("a message between members is lost")
			continue
		}
		if f, ok := m.Message.(replica.Finish); ok && f.Row != nil {
			s.sometimes("a value comes with finish")
		}
		for range copies(r) {
			to.later(spread(r, s.plan.Config.Delay), func() { to.hearMember(m.Message) })
		}
	}
}

func (n *stormNode) hearMember(m replica.Message) {
	n.locked(func() {
		if _, ok := m.(replica.Report); ok {
			n.stepPrimary(replica.Received{Message: m})
		} else {
			n.stepReplica(replica.Received{Message: m})
		}
		n.carry(nil)
	})
}

// remind lets the primary's machine say again what was not confirmed.
func (n *stormNode) remind() {
	n.awake(func() {
		n.locked(func() {
			n.stepPrimary(replica.Beat{})
			n.carry(nil)
		})
		n.later(n.s.plan.Config.Timeout, n.remind)
	})
}

// copied looks a key up among what the node keeps as a replica.
func (n *stormNode) copied(key string) (replica.Keep, bool) {
	e, ok := n.member.copies[key]
	return e, ok && replica.Serves(n.now(), n.member.leases[e.Gen].until, e.Until)
}

// copies reports whether a node is a replica of a key.
func (n *stormNode) replicates(key string) bool {
	for _, h := range n.member.leases {
		if h.Range.Contains(key) && n.now() < h.until {
			return true
		}
	}
	return false
}

// loadCopy reads the store for a replica.
func (n *stormNode) loadCopy(out replica.Load) {
	s, answered := n.s, false
	r := s.rng("copies of " + n.name)
	tell := func(in replica.Loaded) {
		if !answered {
			answered = true
			n.locked(func() {
				n.stepReplica(in)
				n.carry(nil)
			})
		}
	}
	n.later(s.plan.Config.Timeout, func() { tell(replica.Loaded{Call: out.Call}) })
	if s.now < n.muted && chance(r, 50) {
		return
	}
	s.after(spread(r, s.plan.Config.Delay), func() {
		row := s.store.Load(s.clock(), out.Key)
		n.later(spread(r, s.plan.Config.Delay), func() {
			tell(replica.Loaded{Call: out.Call, OK: true, Row: replica.Row{Exists: row.Exists, Value: row.Value, Version: row.Version, TTL: row.TTL}})
		})
	})
}

// checkCopies looks at what replicas would serve.
func (s *storm) checkCopies() {
	for _, n := range s.nodes {
		for k := range n.member.copies {
			if e, ok := n.copied(k); ok {
				s.fail(s.judge.Hit(n.index, k, string(e.Row.Value), e.Row.Exists))
			}
		}
	}
}

// checkGroups looks at who holds what beside replicas: all members of a group have the same
// generation, and one of them is the primary.
func (s *storm) checkGroups() {
	for i, n := range s.nodes {
		now := n.now()
		for g, h := range n.member.leases {
			for j, m := range s.nodes {
				if now < h.until && (j > i && m.collides(g, h, m.member.leases) || m.collides(g, h, m.handles)) {
					s.fail(fmt.Errorf("%s is a replica of %v under generation %d while %s holds it under another", n.name, h.Range, g, m.name))
				}
			}
		}
	}
}

// collides reports whether a node holds part of h under another generation than g.
func (n *stormNode) collides(g lease.Gen, h handle, held map[lease.Gen]handle) bool {
	for o, other := range held {
		if o != g && n.now() < other.until && other.Range.Overlaps(h.Range) {
			return true
		}
	}
	return false
}
