package node

import (
	"context"
	"encoding/binary"
	"strings"
	"time"

	"github.com/freshet-cache/freshet/internal/packed"
	"github.com/freshet-cache/freshet/shard/lease"
)

// appendInvalid says which keys have changed; nil says that all may have. by is
// the connection of the receiver that changed them, if it was one of its.
func appendInvalid(b []byte, by cause, keys []string) []byte {
	flags := byte(0)
	if keys == nil {
		flags |= 1
	}
	if by.reads {
		flags |= 2
	}
	b = binary.AppendUvarint(append(b, frameVersion, frameInvalid, flags), uint64(by.conn))
	b = binary.AppendUvarint(b, uint64(len(keys)))
	for _, k := range keys {
		b = packed.AppendBytes(b, []byte(k))
	}
	return b
}

func decodeInvalid(b []byte) (by cause, keys []string, err error) {
	if len(b) < 3 || b[0] != frameVersion || b[1] != frameInvalid || b[2] > 3 {
		return cause{}, nil, errFrame
	}
	s := packed.Read(b[3:])
	by = cause{conn: int64(s.Uint()), write: true, reads: b[2]&2 != 0}
	for range s.Count() {
		keys = append(keys, s.Text())
	}
	if !s.Done() || (b[2]&1 != 0) != (keys == nil) || by.conn < 0 {
		return cause{}, nil, errFrame
	}
	return by, keys, nil
}

// appendAcquired says which slices the node at addr has taken over.
func appendAcquired(b []byte, addr string, all []*takeover) []byte {
	b = packed.AppendBytes(append(b, frameVersion, frameAcquired), []byte(addr))
	b = binary.AppendUvarint(b, uint64(len(all)))
	for _, in := range all {
		b = packed.AppendBytes(packed.AppendBytes(b, []byte(in.Low)), []byte(in.High))
	}
	return b
}

func decodeAcquired(b []byte) (addr string, all []*takeover, err error) {
	if len(b) < 3 || b[0] != frameVersion || b[1] != frameAcquired {
		return "", nil, errFrame
	}
	s := packed.Read(b[2:])
	addr = s.Text()
	for range s.Count() {
		all = append(all, &takeover{Range: lease.Range{Low: s.Text(), High: s.Text()}})
	}
	if !s.Done() {
		return "", nil, errFrame
	}
	return addr, all, nil
}

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

const insistPause = 5 * time.Millisecond
