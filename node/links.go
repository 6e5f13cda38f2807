package node

import (
	"bufio"
	"context"
	"fmt"
	"maps"
	"net"
	"slices"
	"strconv"
	"sync"

	"github.com/freshet-cache/freshet/link"
	"github.com/freshet-cache/freshet/peer"
	"github.com/freshet-cache/freshet/redis/tracking"
	"github.com/freshet-cache/freshet/resp"
	"github.com/freshet-cache/freshet/shard/lease"
)

// link lets another node have a connection as a link.
func (n *Node) link(c *resp.Conn, args [][]byte, w *resp.Writer) {
	if string(args[1]) != strconv.Itoa(frameVersion) {
		w.Error("ERR this node speaks link version " + strconv.Itoa(frameVersion) + "; run one version of freshet on all nodes")
		return
	}
	if len(args) == 4 {
		n.stream(c, string(args[3]), w)
		return
	}
	from := ""
	if len(args) > 2 {
		from = string(args[2])
	}
	w.SimpleString("OK")
	c.Hijack(func(nc net.Conn, r *bufio.Reader) {
		var l *link.Link
		defer func() { n.linked(l, false) }()
		over := &tracking.Asker{Addr: from}
		made := make(chan struct{})
		l = link.New(nc, r, link.Options{MaxFrame: n.p.maxFrame(), Request: func(ctx context.Context, f []byte) []byte {
			<-made
			return n.serve(ctx, f, over)
		}, Message: func(f []byte) {
			<-made
			if !n.fromMember(f) {
				n.p.fromNode(f, l)
			}
		}})
		over.Link = l
		going := n.linked(l, true)
		close(made)
		if going { // it came while this node was about to go
			ctx, cancel := context.WithTimeout(n.ctx, partTimeout)
			l.Drain(ctx)
			cancel()
		}
		<-l.Done()
		n.track.LinkLost(over)
		l.Wait()
		n.p.forget(l)
	})
}

// stream lets another node have a connection for a stream.
func (n *Node) stream(c *resp.Conn, name string, w *resp.Writer) {
	accept := n.services.Accept(name, n.p.maxFrame())
	if accept == nil {
		w.Error(fmt.Sprintf("ERR %.110q is not open at this node; start all processes with the same --space flags", name))
		return
	}
	w.SimpleString("OK")
	c.Hijack(accept)
}

// linked notes that another node has opened a link, or that it is over. It reports whether
// this node is about to go.
func (n *Node) linked(l *link.Link, stands bool) (going bool) {
	n.linksMu.Lock()
	defer n.linksMu.Unlock()
	if !stands {
		delete(n.links, l)
		return n.parting
	}
	if n.links == nil {
		n.links = map[*link.Link]bool{}
	}
	n.links[l] = true
	return n.parting
}

// drainLinks tells every other node that this one goes, and waits until each has the
// answers to what it asked.
func (n *Node) drainLinks(ctx context.Context) {
	n.linksMu.Lock()
	n.parting = true
	all := slices.Collect(maps.Keys(n.links))
	n.linksMu.Unlock()
	var wg sync.WaitGroup
	wg.Go(func() { peer.Drain(ctx, all) })
	if n.peers != nil {
		wg.Go(func() { n.peers.Drain(ctx) })
	}
	wg.Wait()
}

// whenBegun answers what is asked over a link that this node has opened, which it may
// have done before it was complete.
func (n *Node) whenBegun(ctx context.Context, frame []byte) []byte {
	select {
	case <-n.begun:
		return n.serve(ctx, frame, nil)
	case <-ctx.Done(): // the link is broken
		return nil
	}
}

// message takes a message that came over a link which this node has opened.
func (n *Node) message(frame []byte) {
	if !n.fromMember(frame) {
		n.fromAssigner(frame)
	}
}

// fromAssigner takes a message that came back over the link to the assigner.
func (n *Node) fromAssigner(frame []byte) {
	if len(frame) > 2 && frame[0] == frameVersion && frame[1] == frameNo {
		n.p.fail(string(frame[2:]))
		return
	}
	if len(frame) < 2 || frame[0] != frameVersion || frame[1] != frameLease || !n.running() {
		return // a message may be lost; the next beat asks again
	}
	m, err := lease.Decode(frame[2:])
	if err != nil {
		n.log.Warn("the assigner sent what cannot be read", "err", err)
		return
	}
	n.shard.Deliver(m)
	n.track.Back()
}
