package node

import (
	"context"

	"github.com/freshet-cache/freshet/linear"
	"github.com/freshet-cache/freshet/shard/lease"
)

// offer passes entries on to the next owner of their slice. Whoever does not hear of
// them reads them from the store.
func (n *Node) offer(ctx context.Context, next string, after lease.Gen, batch []linear.Offer) {
	if _, err := n.peers.call(ctx, next, appendOffers(nil, after, batch)); err != nil {
		n.log.Debug("entries were not handed over", "to", next, "entries", len(batch), "err", err)
	}
}

// offered takes entries that another node offers.
func (n *Node) offered(frame []byte) []byte {
	after, batch, err := decodeOffers(frame)
	if err != nil {
		return append([]byte{answerError}, "ERR "+err.Error()...)
	}
	if n.running() {
		n.cache.Offered(after, batch)
	}
	return []byte{answerDone}
}
