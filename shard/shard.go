// Package shard tells a process which keys it owns, so certainly that the process may answer for
// them without asking anybody: while a [Handle] is valid, no other node holds a valid one for any
// of its keys. The check costs one clock reading and one atomic load; it takes no lock and no
// network.
//
// Package shard runs the machines of shard/lease: a [Node] holds leases and renews them, an
// [Assigner] grants them. The caller carries their messages.
package shard

import (
	"sync/atomic"

	"github.com/freshet-cache/freshet/clock"
	"github.com/freshet-cache/freshet/shard/lease"
	"github.com/freshet-cache/freshet/ticks"
)

// Handle is the right to a range of keys, from when it was acquired until it is no longer Valid. It
// never becomes valid again. It is safe for concurrent use.
type Handle struct {
	lease.Lease
	// Group has the nodes that share the lease, the owner of the range first; it is empty if the
	// node is alone.
	Group lease.Group
	// Copy says that another node of the Group owns the range. This node may only serve what it has
	// agreed on with the owner.
	Copy bool
	// Lapsed says, once the handle has ended, that it was not renewed in time. Otherwise it was
	// recalled or replaced, or its node was closed.
	Lapsed bool
	clock  clock.Clock
	until  atomic.Int64
}

// NewHandle returns a handle that is valid until the tick until. A Node makes its own handles;
// other code needs NewHandle only to replace a Node.
func NewHandle(l lease.Lease, clock clock.Clock, until ticks.Tick) *Handle {
	h := &Handle{Lease: l, clock: clock}
	h.until.Store(int64(until))
	return h
}

// Valid reports whether the node still owns the range. It has then owned it without interruption
// since it acquired the handle.
func (h *Handle) Valid() bool { return h.clock.Now() < h.Until() }

// Until returns when the handle ends unless it is renewed; 0 if it was revoked. A caller that has
// read the clock already compares with Until instead of calling Valid.
func (h *Handle) Until() ticks.Tick { return ticks.Tick(h.until.Load()) }

// Revoke ends the handle. Valid returns false once Revoke has returned.
func (h *Handle) Revoke() { h.until.Store(0) }

func (h *Handle) extend(until ticks.Tick) {
	for old := h.until.Load(); old != 0 && old < int64(until); old = h.until.Load() {
		if h.until.CompareAndSwap(old, int64(until)) {
			return
		}
	}
}

// Watcher learns of the handles of a node. The node makes one call at a time, and acknowledges a
// recall only after Revoked has returned, so the methods must not block.
type Watcher interface {
	// Acquired passes a new handle. after is the generation whose owner gave the range up for this
	// handle; 0 if there is none.
	Acquired(h *Handle, after lease.Gen)
	Extended(h *Handle)
	Revoked(h *Handle) // the handle is no longer valid when Revoked is called
	// HandedOver follows Revoked if the handle was valid until then. The part over goes to the node
	// at the address next, as the successor of the generation under.
	HandedOver(h *Handle, over lease.Range, under lease.Gen, next string)
}

// Sharer is a Watcher that also keeps copies of keys that other nodes own. A Watcher that is not a
// Sharer never receives a handle that is a Copy.
type Sharer interface {
	Watcher
	// Shared passes a new handle that is a Copy. Unshared says that it is no longer valid. No call
	// says that it was extended.
	Shared(h *Handle)
	Unshared(h *Handle)
}
