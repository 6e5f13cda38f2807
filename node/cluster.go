package node

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/freshet-cache/freshet/internal/drive"
	"github.com/freshet-cache/freshet/internal/packed"
	"github.com/freshet-cache/freshet/leader/embedded"
	"github.com/freshet-cache/freshet/leader/etcd"
	"github.com/freshet-cache/freshet/link"
	"github.com/freshet-cache/freshet/peer"
	"github.com/freshet-cache/freshet/resp"
	"github.com/freshet-cache/freshet/shard/lease"
)

// coordinate finds out who keeps the assignments, and what this cluster is called.
func (p *Process) coordinate() error {
	if leaderAddr, joins := strings.CutPrefix(p.cfg.Coordinator, joinScheme); joins {
		p.host, p.leaderAddr = unique(), func() string { return leaderAddr }
		var err error
		p.cluster, err = p.hello(leaderAddr)
		return err
	}
	if opt, ok, err := p.cfg.etcd(); ok || err != nil {
		if err != nil {
			return err
		}
		opt.Addr, opt.TTL, opt.Clock, opt.Logger = p.nodes[0].addr, p.cfg.Lease/2, p.clock, p.log
		ctx, cancel := context.WithTimeout(context.Background(), openTimeout)
		defer cancel()
		c, err := etcd.Open(ctx, opt)
		if err != nil {
			return err
		}
		p.coord, p.cluster, p.host, p.leaderAddr = c, c.Cluster(), unique(), c.Leader
		return nil
	}
	dir := ""
	if p.cfg.Store != "memory:" {
		dir = filepath.Join(p.cfg.Data, "coordinator")
	}
	c, err := embedded.Open(dir)
	if err != nil {
		return err
	}
	p.coord, p.cluster, p.host = c, c.Cluster(), c.Host()
	p.leaderAddr = func() string { return p.nodes[0].addr }
	return nil
}

// hello asks the process at addr for the name of its cluster, which may be starting
// only now.
func (p *Process) hello(addr string) (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), openTimeout)
	defer cancel()
	tls, err := p.clientTLS()
	if err != nil {
		return "", err
	}
	asks := peer.New(peer.Options{Version: frameVersion, Password: p.cfg.Password, TLS: tls,
		Message: func([]byte) {}, Request: func(context.Context, []byte) []byte { return nil }})
	defer asks.Close()
	for wait := (drive.Backoff{First: 10 * time.Millisecond, Most: time.Second}); ; {
		b, err := asks.Call(ctx, addr, peer.Control, []byte{frameVersion, frameHello})
		switch {
		case err == nil && len(b) > 1 && b[0] == answerDone:
			return string(b[1:]), nil
		case err == nil:
			return "", fmt.Errorf("--coordinator %s%s: %w", joinScheme, addr, errFrame)
		}
		if wait.Pause(ctx); ctx.Err() != nil {
			return "", fmt.Errorf("--coordinator %s%s: no freshet answers there: %w; start it first, with the embedded coordinator and the same password", joinScheme, addr, err)
		}
	}
}

// toNode carries an assigner's message over the link that the node opened.
func (p *Process) toNode(node string, msg any) {
	if m, ok := msg.(*lease.Recall); ok {
		p.watch.asksBack(m)
	}
	p.mu.Lock()
	l := p.members[node].link
	p.mu.Unlock()
	if l != nil {
		_ = l.Send(lease.Append([]byte{frameVersion, frameLease}, msg)) // messages may be lost
	}
}

// fromNode takes a message to the assigner that arrived over a link.
func (p *Process) fromNode(frame []byte, over *link.Link) {
	if len(frame) < 2 || frame[0] != frameVersion || frame[1] != frameLease || p.assigner == nil {
		return
	}
	m, err := lease.Decode(frame[2:])
	if err != nil {
		p.log.Warn("a node sent what cannot be read", "err", err)
		return
	}
	if r, ok := m.(*lease.Renew); ok && !p.admit(r, over) {
		return
	}
	p.assigner.Deliver(m)
}

// admit remembers the sender of a renewal, unless another living node has its name. A
// node of the same name at the same address is that node's successor: the address can be
// taken only when the one before has ended, however long its link seems to stand.
func (p *Process) admit(r *lease.Renew, over *link.Link) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if _, known := p.members[r.Node]; !known {
		if why := p.taken(r, over); why != "" {
			p.log.Warn(why)
			_ = over.Send(append([]byte{frameVersion, frameNo}, why...))
			return false
		}
		maps.DeleteFunc(p.members, func(other string, m applicant) bool { // the one that was silent, or came before
			if idOf(other) != idOf(r.Node) {
				return false
			}
			p.replaced[other] = m.addr
			return true
		})
		if len(p.members) >= maxMembers {
			return false
		}
		if len(p.replaced) > maxMembers {
			clear(p.replaced)
		}
	}
	p.members[r.Node] = applicant{r.Addr, over, time.Now()}
	p.watch.roster.renewed(r, over)
	p.watch.loads(r.Loads)
	return true
}

// taken says why a node cannot have the name that it uses; empty if it can.
func (p *Process) taken(r *lease.Renew, over *link.Link) string {
	if _, was := p.replaced[r.Node]; was { // it is not asked for a second time by one that has ended
		return fmt.Sprintf("a later node named %s has started at %s; it has taken the place of this one", idOf(r.Node), r.Addr)
	}
	for other, m := range p.members {
		if idOf(other) == idOf(r.Node) && m.link != over && m.addr != r.Addr && time.Since(m.seen) < p.cfg.Lease {
			return fmt.Sprintf("a node named %s is alive at %s, so the one at %s cannot be called so; give it another --node-id, or stop the other", idOf(r.Node), m.addr, r.Addr)
		}
	}
	return ""
}

// forget ends what was remembered of a link that broke.
func (p *Process) forget(broken *link.Link) {
	p.watch.roster.broken(broken)
	p.mu.Lock()
	defer p.mu.Unlock()
	maps.DeleteFunc(p.members, func(_ string, m applicant) bool { return m.link == broken })
}

// who are the addresses of the cluster's nodes, as the assigner has heard of them.
func (p *Process) who(ctx context.Context) []string {
	var out []string
	if p.leads() {
		p.mu.Lock()
		for _, m := range p.members {
			out = append(out, m.addr)
		}
		p.mu.Unlock()
	} else if b, err := p.nodes[0].ask(ctx, p.leaderAddr(), []byte{frameVersion, frameWho}); err == nil && len(b) > 1 && b[0] == answerDone {
		out = strings.Split(string(b[1:]), "\n")
	}
	for _, r := range p.nodes[0].shard.Table().Slices {
		if r.Addr != "" {
			out = append(out, r.Addr)
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// State describes the cluster now. Who does not answer within a second is shown as
// not ready.
func (p *Process) State(ctx context.Context) State {
	t := p.nodes[0].shard.Table()
	out := State{Version: Version, Cluster: p.cluster, Uptime: time.Since(p.started).Round(time.Second).String(), Nodes: []NodeState{}, Slices: []SliceState{}}
	out.Rings, out.Health = p.nodes[0].groups(), p.Health()
	count := map[string]int{}
	for _, s := range t.Slices {
		id, _, _ := strings.Cut(s.Node, "/")
		count[s.Addr]++
		out.Gen = max(out.Gen, uint64(s.Gen))
		slice := SliceState{Range: s.Range.String(), Gen: uint64(s.Gen), Node: id}
		for _, m := range s.Copies {
			copy, _, _ := strings.Cut(m.Node, "/")
			slice.Replicas = append(slice.Replicas, copy)
		}
		out.Slices = append(out.Slices, slice)
	}
	ctx, cancel := context.WithTimeout(ctx, stateTimeout)
	defer cancel()
	var mu sync.Mutex
	var wg sync.WaitGroup
	add := func(s NodeState) {
		mu.Lock()
		defer mu.Unlock()
		s.Slices = count[s.Addr]
		out.Nodes = append(out.Nodes, s)
	}
	own := map[string]bool{}
	for _, n := range p.nodes {
		own[n.addr] = true
		add(n.state())
	}
	for _, addr := range p.who(ctx) {
		if own[addr] {
			continue
		}
		wg.Go(func() {
			s := NodeState{ID: "?"}
			b, err := p.nodes[0].ask(ctx, addr, []byte{frameVersion, frameState})
			if err == nil && len(b) > 1 && b[0] == answerDone {
				_ = json.Unmarshal(b[1:], &s)
			}
			s.Addr = addr
			add(s)
		})
	}
	wg.Wait()
	out.Nodes = p.lost(out.Nodes)
	slices.SortFunc(out.Nodes, func(a, b NodeState) int { return strings.Compare(a.ID+" "+a.Addr, b.ID+" "+b.Addr) })
	return out
}

// state is how this node is.
func (n *Node) state() NodeState {
	s := NodeState{ID: n.id, Addr: n.addr, Admin: n.adminAddr, Ready: n.ready(), Draining: n.draining.Load()}
	if n.running() {
		if n.p.assigner != nil && n == n.p.nodes[0] {
			s.Problem = n.p.assigner.Trouble()
		}
		s.Conns, s.Entries, s.Hits, s.Misses = n.server.Stats().Conns, n.cache.Len(), n.m.hits.Load(), n.m.missed.Load()
	}
	return s
}

// asked answers what another process wants to know of this one.
func (n *Node) asked(ctx context.Context, kind byte) []byte {
	out := []byte{answerDone}
	switch kind {
	case frameLiving:
		if !n.p.leads() {
			return append([]byte{answerError}, "ERR no assigner is here"...)
		}
		return append(out, strings.Join(n.p.heard(), "\n")...)
	case frameHello:
		return append(out, n.p.cluster...)
	case frameMembers:
		return n.p.membersFrame()
	case frameWho:
		if !n.p.leads() {
			return append([]byte{answerError}, "ERR no assigner is here"...)
		}
		return append(out, strings.Join(n.p.who(ctx), "\n")...)
	}
	b, _ := json.Marshal(n.state())
	return append(out, b...)
}

const errNotMoved = "ERR nothing to move: the node is not known, has the slice already, or the slice is moving"

// order has the assigner do what a frame says, wherever it is.
func (n *Node) order(ctx context.Context, frame []byte, w *resp.Writer) {
	if n.p.leads() {
		if refused := n.p.obey(frame); refused != "" {
			w.Error(refused)
			return
		}
		w.SimpleString("OK")
		return
	}
	if n.p.leaderAddr() == "" {
		w.Error("TRYAGAIN nobody leads; an assigner is being elected")
		return
	}
	b, err := n.ask(ctx, n.p.leaderAddr(), frame)
	switch {
	case err != nil:
		w.Error("TRYAGAIN the assigner at " + n.p.leaderAddr() + " does not answer: " + err.Error())
	case len(b) == 1 && b[0] == answerDone:
		w.SimpleString("OK")
	case len(b) > 1 && b[0] == answerError:
		w.Error(string(b[1:]))
	default:
		w.Error("ERR " + errFrame.Error())
	}
}

// obeyed is obey for a node of another process.
func (p *Process) obeyed(frame []byte) []byte {
	if refused := p.obey(frame); refused != "" {
		return append([]byte{answerError}, refused...)
	}
	return []byte{answerDone}
}

// obey does what a frame orders, and says why not.
func (p *Process) obey(frame []byte) (refused string) {
	s := packed.Read(frame[2:])
	key := s.Text()
	switch {
	case p.assigner == nil:
		return "TRYAGAIN no assigner is here"
	case frame[1] == frameCopies:
		if n := s.Uint(); s.Bad() || n > 64 || !p.assigner.Replicate(key, int(n)) {
			return fmt.Sprintf("ERR not so many: a key has up to %d replicas (--max-replicas); or its slice is moving, try again", p.cfg.MaxReplicas)
		}
		return ""
	}
	switch id := s.Text(); {
	case s.Bad():
		return "ERR " + errFrame.Error()
	case id == "":
		if !p.assigner.Cut(key) {
			return "ERR nothing was cut: the cluster has as many slices, or their bounds have as many bytes, as the coordinator can keep; cold neighbours are joined by themselves"
		}
	case !p.move(key, id):
		return errNotMoved
	}
	return ""
}

// move begins to move the slice of key to the node called id.
func (p *Process) move(key, id string) bool {
	p.mu.Lock()
	to := ""
	for node := range p.members {
		if name, _, _ := strings.Cut(node, "/"); name == id {
			to = node
		}
	}
	p.mu.Unlock()
	p.watch.orders(key)
	return to != "" && p.assigner.Move(key, to)
}
