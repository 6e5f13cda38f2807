package node

import (
	"context"

	"github.com/freshet-cache/freshet/linear"
	"github.com/freshet-cache/freshet/link"
	"github.com/freshet-cache/freshet/shard/lease"
)

// offer passes entries on to the next owner of their slice.
func (n *Node) offer(ctx context.Context, next string, after lease.Gen, batch []linear.Offer) {
	if l, err := n.peers.to(ctx, next); err == nil {
		_ = l.Send(appendOffers(nil, after, batch))
	}
}

// message takes a frame that asks for no answer, over a link that another node
// opened: entries for this node, or word for the assigner.
func (n *Node) message(frame []byte, over *link.Link) {
	if len(frame) < 2 || frame[1] != frameOffer {
		n.p.fromNode(frame, over)
		return
	}
	after, batch, err := decodeOffers(frame)
	if err != nil || !n.running() {
		return
	}
	n.cache.Offered(after, batch)
}
