package node

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/freshet-cache/freshet/linear"
	"github.com/freshet-cache/freshet/peer"
	"github.com/freshet-cache/freshet/shard/lease"
)

// Space opens the space of this name; a name can be opened once. Give it to
// linear.NewView, and close the view after the process was stopped.
func (p *Process) Space(name string) (*Space, error) {
	n := p.nodes[0]
	n.spaces.mu.Lock()
	defer n.spaces.mu.Unlock()
	switch {
	case len(p.nodes) > 1:
		return nil, errors.New("node: a space is for a process of one node: leave --nodes at 1")
	case name == "" || len(name) > 255:
		return nil, fmt.Errorf("node: a space has a name of 1 to 255 bytes, not %d", len(name))
	case n.spaces.all[name] != nil:
		return nil, fmt.Errorf("node: the space %s is open already", name)
	}
	s := &Space{n: n, name: name}
	if n.spaces.all == nil {
		n.spaces.all = map[string]*Space{}
	}
	n.spaces.all[name] = s
	return s, nil
}

// Join implements linear.Peers.
func (s *Space) Join(m linear.Participant) {
	s.n.spaces.mu.Lock()
	s.participant = m
	s.n.spaces.mu.Unlock()
	s.n.offerSpace(s.name, m)
	s.n.shard.Watch(m)
}

// Self implements linear.Peers.
func (s *Space) Self() string { return s.n.addr }

// Owner implements linear.Peers.
func (s *Space) Owner(key string) string {
	r, _ := s.n.shard.Table().Find(key)
	return r.Addr
}

// Call implements linear.Peers.
func (s *Space) Call(ctx context.Context, owner string, request []byte) ([]byte, error) {
	b, err := s.n.peers.Ask(ctx, owner, peer.Writes, spaceService(s.name), request)
	if errors.Is(err, peer.ErrUnreached) || errors.Is(err, peer.ErrRefused) {
		return nil, fmt.Errorf("%w (%s: %w)", linear.ErrUnreached, owner, err)
	}
	return b, err
}

// spaceService is the name of the service that answers for a space.
func spaceService(name string) string { return "space " + name }

// offerSpace has a participant answer for a space; it bounds how long that takes.
func (n *Node) offerSpace(name string, m linear.Participant) {
	n.services.Offer(spaceService(name), func(ctx context.Context, request []byte) ([]byte, error) { return m.Serve(ctx, request), nil })
}

// spaceLoads adds what was asked of spaces to the loads of the node's own keys.
func (n *Node) spaceLoads(loads []lease.Load) []lease.Load {
	n.spaces.mu.Lock()
	defer n.spaces.mu.Unlock()
	for _, name := range slices.Sorted(maps.Keys(n.spaces.all)) {
		m := n.spaces.all[name].participant
		if m == nil {
			continue
		}
		for _, l := range m.Loads() {
			i := slices.IndexFunc(loads, func(have lease.Load) bool { return have.Gen == l.Gen })
			if i < 0 {
				loads = append(loads, l)
				continue
			}
			have := &loads[i]
			have.Rate += l.Rate
			have.Sample = thin(append(have.Sample, l.Sample...))
			have.Hot = append(have.Hot, l.Hot...)
			slices.SortFunc(have.Hot, func(a, b lease.HotKey) int { return cmp.Compare(b.Rate, a.Rate) })
			have.Hot = have.Hot[:min(len(have.Hot), mostHot)]
		}
	}
	return loads
}

const (
	mostSamples = 64 // of a slice, in one report
	mostHot     = 4
)

// thin keeps at most mostSamples of keys, evenly.
func thin(keys []string) (out []string) {
	k := min(len(keys), mostSamples)
	for i := range k {
		out = append(out, keys[i*len(keys)/k])
	}
	return out
}
