package node

import (
	"bytes"
	"context"
	"errors"

	"github.com/freshet-cache/freshet/linear"
	"github.com/freshet-cache/freshet/link"
	"github.com/freshet-cache/freshet/peer"
	"github.com/freshet-cache/freshet/redis/tracking"
	"github.com/freshet-cache/freshet/resp"
	"github.com/freshet-cache/freshet/shard/lease"
)

// tracked is the node as client tracking needs it.
type tracked struct{ n *Node }

func (t tracked) Table() *lease.Table { return t.n.shard.Table() }

func (t tracked) Newer(ctx context.Context, version uint64) bool { return t.n.newer(ctx, version) }

func (t tracked) Living(ctx context.Context) map[string]bool { return t.n.p.living(ctx, t.n) }

func (t tracked) Conn(id int64) *resp.Conn { return t.n.server.Conn(id) }

func (t tracked) Draining() bool { return t.n.draining.Load() }

func (t tracked) Closed() bool { return t.n.peers.Closed() }

func (t tracked) Link(ctx context.Context, addr string) (*link.Link, error) {
	return t.n.peers.Link(ctx, addr, peer.Tracked)
}

func (t tracked) Tell(ctx context.Context, over *link.Link, message []byte) error {
	return served(over.Call(ctx, append([]byte{frameVersion}, message...)))
}

func (t tracked) Insist(ctx context.Context, addr string, message []byte, lives bool) error {
	return served(t.n.peers.Insist(ctx, addr, append([]byte{frameVersion}, message...), lives))
}

// served is why a message was not served, if it was not.
func served(answer []byte, err error) error {
	if err == nil && !bytes.Equal(answer, []byte{answerDone}) {
		return errFrame
	}
	return err
}

// errDecided ends an update that was only to wait its turn.
var errDecided = errors.New("node: decided")

// Decided implements tracking.Node: an update is decided only when no earlier write of its keys can take
// effect any more.
func (t tracked) Decided(ctx context.Context, keys []string) error {
	_, err := t.n.cache.Update(ctx, keys, func(*linear.Tx[string]) error { return errDecided })
	switch {
	case errors.Is(err, errDecided):
		return nil
	case errors.Is(err, linear.ErrNotOwner), errors.Is(err, linear.ErrClosed):
		return tracking.ErrNotOurs
	}
	return err
}

// Track implements resp.Tracker.
func (n *Node) Track(c *resp.Conn, is resp.Tracking) string {
	n.track.Track(c, is)
	return ""
}

// Closed implements resp.Handler.
func (n *Node) Closed(c *resp.Conn) {
	if c.Tracks() {
		n.track.Track(c, resp.Tracking{})
	}
}
