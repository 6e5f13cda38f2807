// Package shard says which keys this process owns, so surely that it may answer
// for them without asking anybody: while a [Handle] is valid, nobody else holds
// one for any of its keys. The check costs one clock reading and one atomic
// load; it takes no lock and no network.
//
// It runs the machines of shard/lease: a [Node] holds leases and renews them, an
// [Assigner] grants them. How their messages travel is up to the caller.
package shard

import (
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/freshet-cache/freshet/shard/lease"
)

// Clock reads a monotonic clock. The zero Clock stands still while a machine is
// suspended, as Linux's CLOCK_MONOTONIC does: after a suspend longer than a lease
// it may believe in leases that are over. Boot counts the time asleep too, at the
// price of a system call for every reading.
type Clock struct{ Boot bool }

// start lies long before the process, so that no reading is 0 or less, in the
// virtual time of a test either.
var start = time.Now().Add(-50 * 365 * 24 * time.Hour)

// Now is the reading, in nanoseconds.
func (c Clock) Now() lease.Tick {
	if c.Boot {
		return boot()
	}
	return lease.Tick(time.Since(start)) // the monotonic reading alone: cheaper than time.Now
}

func boot() lease.Tick {
	var ts unix.Timespec
	if unix.ClockGettime(unix.CLOCK_BOOTTIME, &ts) != nil {
		return lease.Tick(time.Since(start))
	}
	return lease.Tick(ts.Nano())
}

// Handle is the right to a range of keys, from when it was acquired until it is
// no longer Valid; it never becomes valid again. It is safe for concurrent use.
type Handle struct {
	lease.Lease
	// Group is who shares the lease, the range's owner first; empty if nobody does.
	Group lease.Group
	// Copy says that another node of the Group owns the range, and this one may only
	// serve what it has agreed on with it.
	Copy bool
	// Lapsed says, once the handle has ended, that it had not been renewed in time;
	// else it was recalled, replaced, or its node was closed.
	Lapsed bool
	clock  Clock
	until  atomic.Int64
}

// NewHandle returns a handle that is valid until the tick until. Nodes make
// handles; others need this only to stand in for a node.
func NewHandle(l lease.Lease, clock Clock, until lease.Tick) *Handle {
	h := &Handle{Lease: l, clock: clock}
	h.until.Store(int64(until))
	return h
}

// Valid reports whether the range is still owned, without interruption since the
// handle was acquired.
func (h *Handle) Valid() bool { return h.clock.Now() < h.Until() }

// Until is when the handle ends unless it is renewed; 0 if it was revoked. A
// caller that has read the clock already compares with it instead of calling Valid.
func (h *Handle) Until() lease.Tick { return lease.Tick(h.until.Load()) }

// Revoke ends the handle. From its return on, Valid is false.
func (h *Handle) Revoke() { h.until.Store(0) }

func (h *Handle) extend(until lease.Tick) {
	for old := h.until.Load(); old != 0 && old < int64(until); old = h.until.Load() {
		if h.until.CompareAndSwap(old, int64(until)) {
			return
		}
	}
}

// Watcher is told of the handles of a node. The calls come one at a time, and
// what is revoked is acknowledged only after Revoked has returned, so they must
// not block.
type Watcher interface {
	// Acquired tells of a new handle. After is the generation whose owner gave the
	// range up for it, 0 if nobody did.
	Acquired(h *Handle, after lease.Gen)
	Extended(h *Handle)
	Revoked(h *Handle) // no longer valid when this is called
	// HandedOver tells, after Revoked, that the part over of a handle that was valid
	// until then goes to the node at the address next, as the successor of the
	// generation under.
	HandedOver(h *Handle, over lease.Range, under lease.Gen, next string)
}

// Sharer is a Watcher that also keeps what other nodes own. One that is not is never
// told of a handle that is a Copy.
type Sharer interface {
	Watcher
	// Shared tells of a new handle that is a Copy, Unshared that it is no longer valid.
	// That it lasts longer is not told.
	Shared(h *Handle)
	Unshared(h *Handle)
}
