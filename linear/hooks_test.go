package linear

import (
	"context"

	"github.com/freshet-cache/freshet/shard/lease"
)

// hooks are Peers whose test gives the cache its leases, and takes what it offers.
type hooks struct {
	join  func(Participant)
	offer func(ctx context.Context, next string, after lease.Gen, batch []moved)
}

// Join implements Peers.
func (h hooks) Join(p Participant) {
	if h.join != nil {
		h.join(p)
	}
}

// Owner implements Peers.
func (hooks) Owner(string) string { return "" }

// Self implements Peers.
func (hooks) Self() string { return "" }

// Call implements Peers.
func (h hooks) Call(ctx context.Context, next string, request []byte) ([]byte, error) {
	f := read(request)
	if f.Byte() != askOffer || h.offer == nil {
		return nil, ErrUnreached
	}
	after, batch, ok := f.offers()
	if !ok {
		return nil, errRequest
	}
	for i := range batch {
		if !batch[i].Exists {
			batch[i].Value = nil
		}
	}
	h.offer(ctx, next, after, batch)
	return []byte{sayYes}, nil
}

// telling are hooks of a node that shares keys with others.
type telling struct {
	hooks
	node string
	tell func(to lease.GroupMember, message []byte)
}

// Incarnation implements Messenger.
func (t telling) Incarnation() string { return t.node }

// Tell implements Messenger.
func (t telling) Tell(to lease.GroupMember, message []byte) {
	if t.tell != nil {
		t.tell(to, message)
	}
}
