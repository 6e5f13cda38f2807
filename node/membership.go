package node

import (
	"context"
	"encoding/json"
	"slices"
	"strings"
	"time"
)

// living are the addresses of the other nodes: true for those that the assigner has
// heard of lately, false for others that own something as far as n knows.
func (p *Process) living(ctx context.Context, n *Node) map[string]bool {
	out := map[string]bool{}
	for _, r := range n.shard.Table().Slices {
		out[r.Addr] = false
	}
	heard := p.heard()
	if leaderAddr := p.leaderAddr(); !p.leads() && leaderAddr != "" {
		if b, err := n.peers.Insist(ctx, leaderAddr, []byte{frameVersion, frameLiving}, true); err == nil && len(b) > 1 && b[0] == answerDone {
			heard = strings.Split(string(b[1:]), "\n")
		}
	}
	for _, addr := range heard {
		out[addr] = true
	}
	delete(out, "")
	delete(out, n.addr)
	return out
}

// heard are the nodes that have asked for leases within the length of one: who has
// not stands still, and is not waited for.
func (p *Process) heard() (out []string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, m := range p.members {
		if time.Since(m.seen) < p.cfg.Lease {
			out = append(out, m.addr)
		}
	}
	return out
}

// beat is how often nodes renew their leases.
func (p *Process) beat() time.Duration { return min(p.cfg.Lease/5, defaultBeat) }

// askMembers asks the process with the assigner how the members are.
func (p *Process) askMembers(ctx context.Context, leaderAddr string) (m Membership, ok bool) {
	ctx, cancel := context.WithTimeout(ctx, membersTimeout)
	defer cancel()
	b, err := p.nodes[0].ask(ctx, leaderAddr, []byte{frameVersion, frameMembers})
	if err != nil || len(b) < 2 || b[0] != answerDone || json.Unmarshal(b[1:], &m) != nil {
		return Membership{}, false
	}
	return m, true
}

// membersFrame answers that question.
func (p *Process) membersFrame() []byte {
	m := p.watch.membership.Load()
	if !p.leads() || m == nil {
		return append([]byte{answerError}, "ERR no assigner is here"...)
	}
	b, _ := json.Marshal(m)
	return append([]byte{answerDone}, b...)
}

// absent is the membership as a process knows it that does not reach the leader at
// addr, which has been so since then: the others are as they were.
func (p *Process) absent(old Membership, addr string, since time.Time) Membership {
	out := Membership{Members: slices.Clone(old.Members)}
	t := p.nodes[0].shard.Table()
	lost := map[string]bool{}
	for i := range out.Members {
		m := &out.Members[i]
		m.Slices = 0
		for _, s := range t.Slices {
			if s.Node == m.Incarnation {
				m.Slices++
			}
		}
		if m.Addr == addr && !m.Lost {
			m.Lost, m.Since = true, since
			if _, onEtcd, _ := p.cfg.etcd(); onEtcd { // another leader is elected, and waits for a lease
				m.Writable = since.Add(p.cfg.Lease * 3 / 2)
			}
		}
		if m.Lost {
			lost[m.Incarnation] = true
		}
	}
	for _, s := range t.Slices {
		if s.Node == "" || lost[s.Node] {
			out.Unwritable++
		}
	}
	out.Members = slices.DeleteFunc(out.Members, func(m ClusterMember) bool { return m.Addr == addr && m.Lost && m.Slices == 0 }) // it handed over first
	for _, m := range out.Members {
		if m.Lost && m.Writable.After(out.Writable) {
			out.Writable = m.Writable
		}
	}
	return out
}
