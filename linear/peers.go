package linear

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/freshet-cache/freshet/internal/packed"
	"github.com/freshet-cache/freshet/linear/clink"
	"github.com/freshet-cache/freshet/linear/crossowner"
	"github.com/freshet-cache/freshet/shard"
	"github.com/freshet-cache/freshet/shard/lease"
)

// Peers are the nodes of a cluster, this process included, as a Cache or a View sees them. A
// node.Space implements Peers, and so does the node itself for the keys of Redis clients.
type Peers interface {
	// Join receives this node's part of the space: it takes the slices that this node may own, and
	// answers the requests of the other nodes. The cache calls Join once.
	Join(m Participant)
	// Owner returns the name of the node that owns key, as far as this node knows; the name is
	// empty if the key has no owner. All nodes use the same names. Self returns this node's name. A
	// read that is not served from memory asks the owner before it asks the store. If the caller
	// has asked the owner itself, Owner may return the empty name for every key.
	Owner(key string) string
	Self() string
	// Call sends a request to the same space at the node called owner, whose Participant answers
	// it. ErrUnreached means that the request was not sent.
	Call(ctx context.Context, owner string, request []byte) ([]byte, error)
}

// Messenger is a Peers whose nodes keep copies of hot keys (linear/replica).
type Messenger interface {
	Peers
	// Incarnation returns the name of this node as the leases have it.
	Incarnation() string
	// Tell carries a message to the cache of another node that has a copy of the same key, whose
	// Participant is Told. Tell is called under a lock, so it must not block; it may lose the
	// message.
	Tell(to lease.GroupMember, message []byte)
}

// Participant is this node's part of a space, as the cache gives it to Peers.
type Participant interface {
	// The leases of this node, and those under which it keeps copies.
	shard.Sharer
	// Serve answers a request of another node.
	Serve(ctx context.Context, request []byte) []byte
	// Told takes a message of another node's cache, see Messenger. Messages may come late, twice, or
	// in another order. Told reports whether it could decode the message.
	Told(message []byte) bool
	// Loads returns the load of each slice since the last call, for the assigner. It includes slices
	// without any operation, because otherwise the assigner would assume their former load.
	Loads() []lease.Load
	// MayCopy reports whether this node may keep a copy of key, which another node owns.
	MayCopy(key string) bool
	// Leases counts the slices that this node owns, and the keys of which it may keep copies.
	Leases() (own, copies int)
	// Offers waits until every transfer of entries to their next owner has ended, or until ctx ends.
	Offers(ctx context.Context) error
}

// part is a Cache as its Peers see it.
type part[V any] struct{ c *Cache[V] }

func (p part[V]) Acquired(h *shard.Handle, after lease.Gen) { p.c.acquired(h, after) }
func (p part[V]) Extended(h *shard.Handle)                  { p.c.extended(h) }
func (p part[V]) Revoked(h *shard.Handle)                   { p.c.revoked(h) }
func (p part[V]) Shared(h *shard.Handle)                    { p.c.sharedWith(h) }
func (p part[V]) Unshared(h *shard.Handle)                  { p.c.unshared(h) }
func (p part[V]) HandedOver(h *shard.Handle, over lease.Range, under lease.Gen, next string) {
	p.c.handedOver(h, over, under, next)
}
func (p part[V]) Serve(ctx context.Context, request []byte) []byte { return p.c.serve(ctx, request) }
func (p part[V]) Told(message []byte) bool                         { return p.c.told(message) }
func (p part[V]) Loads() []lease.Load                              { return p.c.sliceLoads() }
func (p part[V]) MayCopy(key string) bool                          { return p.c.mayCopy(key) }
func (p part[V]) Leases() (own, copies int)                        { return p.c.leases() }
func (p part[V]) Offers(ctx context.Context) error                 { return p.c.offersDone(ctx) }

// alone implements Peers for a node that has no peers.
type alone struct{}

func (alone) Join(Participant)    {}
func (alone) Owner(string) string { return "" }
func (alone) Self() string        { return "" }
func (alone) Call(context.Context, string, []byte) ([]byte, error) {
	return nil, ErrUnreached
}

// The kinds of requests and answers between the nodes of a space. Each begins with its kind.
const (
	askRead   byte = 'r' // a key follows: return its value
	askLock   byte = 'l' // an id and keys follow: lock the keys
	askSettle byte = 's' // an id and a crossowner.Status follow: the transaction ended so
	askOffer  byte = 'o' // entries follow, of a slice that moves to this node

	sayYes      byte = 'y' // the result follows
	sayNotOwner byte = 'n'
	sayBusy     byte = 'b'
	sayError    byte = 'e' // a text follows
)

var errRequest = errors.New("linear: a request of another node cannot be read; run one version of freshet on all nodes")

// serve answers a request of another node.
func (c *Cache[V]) serve(ctx context.Context, request []byte) []byte {
	f := read(request)
	switch f.Byte() {
	case askRead:
		if key := f.Text(); f.Done() {
			return c.serveRead(ctx, key)
		}
	case askLock:
		id, keys := f.id(), f.strings()
		if f.Done() && len(keys) > 0 && id != (clink.ID{}) {
			ctx, cancel := context.WithTimeout(ctx, c.opt.Timeout) // the coordinator waits no longer
			defer cancel()
			guards, err := c.lock(ctx, id, keys)
			if err != nil {
				return refusal(err)
			}
			out := []byte{sayYes}
			for _, g := range guards {
				out = append(out, g[:]...)
			}
			return out
		}
	case askSettle:
		id, status := f.id(), f.Byte()
		if f.Done() && status <= byte(crossowner.StatusUnknown) {
			return []byte{sayYes, byte(c.settle(ctx, id, crossowner.Status(status)))}
		}
	case askOffer:
		if after, batch, ok := f.offers(); ok {
			c.offered(after, batch)
			return []byte{sayYes}
		}
	}
	return refusal(errRequest)
}

// serveRead answers only for keys that this node owns, because other nodes ask nobody else.
func (c *Cache[V]) serveRead(ctx context.Context, key string) []byte {
	if _, hit := c.Peek(key); !hit && !c.Owns(key) {
		return []byte{sayNotOwner}
	}
	e, err := c.GetEntry(ctx, key)
	if err != nil {
		return refusal(err)
	}
	flag, value := byte(0), []byte(nil)
	if e.Exists {
		if value, err = c.opt.Codec.Append(nil, e.Value); err != nil {
			return refusal(err)
		}
		flag = 1
	}
	return append(binary.AppendUvarint([]byte{sayYes, flag}, e.Version), value...)
}

func refusal(err error) []byte {
	switch {
	case errors.Is(err, ErrNotOwner):
		return []byte{sayNotOwner}
	case errors.Is(err, ErrBusy):
		return []byte{sayBusy}
	}
	return append([]byte{sayError}, err.Error()...)
}

// call sends a request to a peer and returns what follows sayYes in the answer.
func (c *Cache[V]) call(ctx context.Context, owner string, request []byte) ([]byte, error) {
	b, err := c.opt.Peers.Call(ctx, owner, request)
	switch {
	case err != nil:
		return nil, err
	case len(b) == 0:
		return nil, errRequest
	case b[0] == sayYes:
		return b[1:], nil
	case b[0] == sayNotOwner:
		return nil, ErrNotOwner
	case b[0] == sayBusy:
		return nil, ErrBusy
	}
	return nil, fmt.Errorf("linear: the node at %s: %s", owner, b[1:])
}

// fetch reads a key at its owner. It reports false if this node is the owner, or if the owner does
// not answer.
func (c *Cache[V]) fetch(ctx context.Context, key string) (e Entry[V], ok bool) {
	owner := c.opt.Peers.Owner(key)
	if owner == "" || owner == c.opt.Peers.Self() {
		return e, false
	}
	ctx, cancel := context.WithTimeout(ctx, c.opt.Timeout/4) // leave time to ask the store if the owner does not answer
	defer cancel()
	b, err := c.call(ctx, owner, packed.AppendString([]byte{askRead}, key))
	if err != nil {
		return e, false
	}
	f := read(b)
	flag := f.Byte()
	row := clink.Row{Exists: flag == 1, Version: f.Uint(), Value: f.Rest()}
	if f.Bad() || flag > 1 {
		return e, false
	}
	e, err = c.decode(row)
	return e, err == nil
}

func (c *Cache[V]) askToLock(ctx context.Context, owner string, id clink.ID, keys []string) ([]clink.Token, error) {
	req := append([]byte{askLock}, id[:]...)
	req = binary.AppendUvarint(req, uint64(len(keys)))
	for _, k := range keys {
		req = packed.AppendString(req, k)
	}
	b, err := c.call(ctx, owner, req)
	if err != nil {
		return nil, err
	}
	if len(b) != len(keys)*len(clink.Token{}) {
		return nil, errRequest
	}
	guards := make([]clink.Token, len(keys))
	for i := range guards {
		b = b[copy(guards[i][:], b):]
	}
	return guards, nil
}

func (c *Cache[V]) askToSettle(ctx context.Context, owner string, id clink.ID, status crossowner.Status) crossowner.Outcome {
	b, err := c.call(ctx, owner, append(append([]byte{askSettle}, id[:]...), byte(status)))
	if err != nil || len(b) != 1 || b[0] > byte(crossowner.Unknown) {
		return crossowner.Unknown
	}
	return crossowner.Outcome(b[0])
}

// offerPeers transfers entries to the next owner of their slice.
func (c *Cache[V]) offerPeers(ctx context.Context, next string, after lease.Gen, batch []moved) {
	if _, err := c.call(ctx, next, appendOffers(nil, after, batch)); err != nil {
		c.opt.Logger.Debug("entries were not handed over", "to", next, "entries", len(batch), "err", err)
	}
}

func appendOffers(b []byte, after lease.Gen, batch []moved) []byte {
	b = binary.AppendUvarint(append(b, askOffer), uint64(after))
	b = binary.AppendUvarint(b, uint64(len(batch)))
	for _, o := range batch {
		flag := byte(0)
		if o.Exists {
			flag |= 1
		}
		if o.Bare {
			flag |= 2
		}
		b = binary.AppendUvarint(append(b, flag), o.Version)
		b = packed.AppendBytes(packed.AppendString(b, o.Key), o.Value)
	}
	return b
}

// fields reads a message of another node.
type fields struct{ packed.Reader }

func read(b []byte) fields { return fields{packed.Read(b)} }

func (f *fields) id() (id clink.ID) {
	copy(id[:], f.Take(len(id)))
	return id
}

// strings reads a list of strings, which must be sorted and different.
func (f *fields) strings() (out []string) {
	for range f.Count() {
		s := f.Text()
		if len(out) > 0 && s <= out[len(out)-1] {
			f.Fail()
		}
		out = append(out, s)
	}
	return out
}

func (f *fields) offers() (after lease.Gen, batch []moved, ok bool) {
	after = lease.Gen(f.Uint())
	for range f.Count() {
		flag := f.Byte()
		o := moved{Exists: flag&1 != 0, Bare: flag&2 != 0, Version: f.Uint(), Key: f.Text(), Value: f.Bytes()}
		if flag > 3 {
			f.Fail()
		}
		batch = append(batch, o)
	}
	return after, batch, f.Done()
}
