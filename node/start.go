package node

import (
	"context"
	"errors"
	"net/http"
	"strconv"
	"strings"

	"github.com/freshet-cache/freshet/linear"
	"github.com/freshet-cache/freshet/peer"
	"github.com/freshet-cache/freshet/redis/tracking"
	"github.com/freshet-cache/freshet/resp"
)

// listen takes the ports of the i-th node.
func listen(p *Process, i int) (*Node, error) {
	n := &Node{p: p, id: p.cfg.NodeID, begun: make(chan struct{})}
	n.ctx, n.stop = context.WithCancel(context.Background())
	if p.cfg.Nodes > 1 {
		n.id = strings.TrimRight(p.cfg.NodeID, "0123456789") + strconv.Itoa(i+1)
	}
	n.incarnation = n.id + "/" + unique()
	n.log = p.log.With("node", n.id)
	var err error
	if n.listener, err = bind("listen", at(p.cfg.Listen, i)); err != nil {
		return nil, err
	}
	if n.adminListener, err = bind("admin", at(p.cfg.Admin, i)); err != nil {
		n.listener.Close()
		return nil, err
	}
	n.addr, n.adminAddr = n.listener.Addr().String(), n.adminListener.Addr().String()
	if p.cfg.Advertise != "" {
		n.addr = at(p.cfg.Advertise, i)
	}
	return n, nil
}

// start serves. The process's assigner is running.
func (n *Node) start() error {
	ctls, err := n.p.clientTLS()
	if err != nil {
		return err
	}
	n.track = tracking.New(tracked{n}, tracking.Options{
		Keys: n.p.cfg.TrackingKeys, Addr: n.addr, Timeout: n.p.cfg.Timeout, Context: n.ctx, Clock: n.p.clock, Logger: n.log,
	})
	n.m = newMetrics(n.id, n.p.cfg.MetricsClassic, hooks{class: n.class, storeEnded: n.storeEnded})
	n.gauges()
	n.peers = peer.New(peer.Options{Version: frameVersion, Password: n.p.cfg.Password, Addr: n.addr, MaxFrame: n.p.maxFrame(), TLS: ctls, Message: n.message, Request: n.whenBegun})
	n.server = resp.NewServer(n, resp.Options{
		Commands: n.p.commands, Password: n.p.cfg.Password, TLS: n.p.tls, MaxConns: n.p.cfg.MaxConns, Spare: spareConns, Databases: n.p.cfg.Spaces.databases(),
		MaxBulk: max(n.p.cfg.MaxKey, n.p.cfg.MaxValue), Logger: n.log,
	})
	n.cache, err = linear.New(linear.Options[string]{
		Store: n.p.store, Codec: linear.String(), MaxBytes: n.p.cfg.Memory, Timeout: n.p.cfg.Timeout, Clock: n.p.clock, VersionsOnly: n.p.cfg.VersionsOnly,
		Peers: keyspace{&Space{n: n}}, Recorder: n.m, Logger: n.log,
	})
	if err != nil {
		return err
	}
	if err := n.joinPromises(); err != nil {
		return err
	}
	n.work.Go(func() {
		if err := n.server.Serve(n.listener); !errors.Is(err, resp.ErrClosed) {
			n.log.Error("the listener failed; this node takes no more connections", "err", err)
		}
	})
	close(n.begun)
	n.admin = &http.Server{Handler: n.adminHandler(), ReadHeaderTimeout: adminTimeout, IdleTimeout: adminTimeout}
	n.work.Go(func() { _ = n.admin.Serve(n.adminListener) })
	n.track.Start()
	n.shard.Hurry()
	n.started()
	return nil
}

// Leave moves everything this node owns elsewhere and goes on serving by
// forwarding. It fails if there is nowhere to go before ctx ends.
func (n *Node) Leave(ctx context.Context) error {
	n.draining.Store(true)
	done := n.leaving()
	err := n.shard.Leave(ctx)
	done(err)
	return err
}

// Stay ends Leave: the node can be given slices again. It fails if the process is
// stopping.
func (n *Node) Stay() error {
	n.p.mu.Lock()
	defer n.p.mu.Unlock()
	if n.p.stopping {
		return errStopping
	}
	n.draining.Store(false)
	n.shard.Stay()
	return nil
}

var errStopping = errors.New("ERR the process is stopping; start it again instead")

// drain finishes what clients have asked.
func (n *Node) drain(ctx context.Context) {
	if n.server != nil {
		_ = n.server.Shutdown(ctx) // links go on: the other nodes' clients need them
	}
}

// close ends everything.
func (n *Node) close(ctx context.Context) error {
	var err error
	if n.admin != nil {
		_ = n.admin.Close()
	}
	if n.server != nil {
		_ = n.server.Close()
	}
	if n.shard != nil {
		n.shard.Close()
	}
	for _, m := range n.members {
		m.Close()
	}
	if n.peers != nil {
		n.peers.Close()
	}
	n.stop() // after the links: what was written for others is told until then
	if n.cache != nil {
		err = n.cache.Close(ctx)
	}
	n.listener.Close()
	n.adminListener.Close()
	n.work.Wait()
	if n.track != nil {
		n.track.Wait()
	}
	return err
}
