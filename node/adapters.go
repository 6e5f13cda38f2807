package node

import (
	"cmp"
	"context"
	"errors"
	"path/filepath"
	"strings"

	"github.com/freshet-cache/freshet/leader/embedded"
	"github.com/freshet-cache/freshet/leader/etcd"
	"github.com/freshet-cache/freshet/node/promise"
	"github.com/freshet-cache/freshet/resp"
)

// openPromises opens the spaces of every promise.
func (p *Process) openPromises() error {
	for _, one := range promises {
		s, err := one.Open(promise.Process{
			Place: p.cfg.place(), Rows: p.store, NoSync: p.cfg.NoSync, Lease: p.cfg.Lease, Timeout: p.cfg.Timeout, MaxValue: p.cfg.MaxValue,
			Keys: p.cfg.CausalKeys, Memory: p.cfg.causalMemory(), Secret: cmp.Or(p.cfg.TokenKey, p.cfg.Password), Cluster: p.cluster, Clock: p.clock, Log: p.log, Coordinate: p.seat,
		}, p.cfg.Spaces.of(one.Name()))
		if err != nil {
			return err
		}
		for _, sp := range p.cfg.Spaces.of(one.Name()) {
			if sp.DB != 0 {
				p.databases[sp.DB] = len(p.promised)
			}
		}
		p.promised = append(p.promised, s)
	}
	return nil
}

// closePromises closes what openPromises has opened.
func (p *Process) closePromises() (err error) {
	for _, one := range p.promised {
		err = errors.Join(err, one.Close())
	}
	return err
}

// seat opens the coordinator of a group, beside that of the assigner.
func (p *Process) seat(group string) (promise.Seat, error) {
	seat := promise.Seat{Host: p.host, Self: p.nodes[0].addr, Leader: p.leaderAddr}
	if strings.HasPrefix(p.cfg.Coordinator, joinScheme) {
		return seat, nil
	}
	if opt, ok, err := p.cfg.etcd(); ok || err != nil {
		if err != nil {
			return seat, err
		}
		if opt.Prefix == "" {
			opt.Prefix = "freshet/"
		}
		opt.Prefix += group + "/"
		opt.Addr, opt.TTL, opt.Clock, opt.Logger = p.nodes[0].addr, p.cfg.Lease/2, p.clock, p.log
		ctx, cancel := context.WithTimeout(context.Background(), openTimeout)
		defer cancel()
		c, err := etcd.Open(ctx, opt)
		if err != nil {
			return seat, err
		}
		seat.Coordinator, seat.Close, seat.Leader = c, c.Close, c.Leader
		return seat, nil
	}
	dir := ""
	if p.cfg.Store != "memory:" {
		dir = filepath.Join(p.cfg.Data, "coordinator-"+strings.ReplaceAll(group, "/", "-"))
	}
	c, err := embedded.Open(dir)
	if err != nil {
		return seat, err
	}
	seat.Coordinator, seat.Close, seat.Host = c, c.Close, c.Host()
	return seat, nil
}

// joinPromises makes this node's part of every promise.
func (n *Node) joinPromises() error {
	for _, one := range n.p.promised {
		m, err := one.Join(promise.Node{
			Addr: n.addr, Peers: n.peers, Services: &n.services, Log: n.log,
			Metrics: promise.Metrics{Registerer: n.m.f, Reads: n.m.spaceReads, Histogram: n.histogram, Store: n.storeEnded},
		})
		if err != nil {
			return err
		}
		n.members = append(n.members, m)
	}
	return nil
}

// leaveGroups has the others go on without this node.
func (n *Node) leaveGroups(ctx context.Context) {
	for _, m := range n.members {
		m.Leave(ctx)
	}
}

// groups are those of this node's spaces.
func (n *Node) groups() (out []promise.Group) {
	for _, m := range n.members {
		out = append(out, m.Groups()...)
	}
	return out
}

// ofPromise runs a command of a promise, and reports whether it was one.
func (n *Node) ofPromise(ctx context.Context, name string, args [][]byte, w *resp.Writer) bool {
	i, ok := promiseOf[name]
	if ok {
		n.members[i].Run(ctx, name, args, w)
	}
	return ok
}
