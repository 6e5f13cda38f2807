package node

import (
	"context"
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
