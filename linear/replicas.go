package linear

import (
	"context"
	"time"

	"github.com/freshet-cache/freshet/linear/clink"
	"github.com/freshet-cache/freshet/linear/replica"
	"github.com/freshet-cache/freshet/shard"
	"github.com/freshet-cache/freshet/shard/lease"
	"github.com/freshet-cache/freshet/ticks"
)

// members is the part of a cache that shares keys with other nodes, as their primary or as one of
// their replicas.
type members struct {
	peers   Messenger // nil: keys are not replicated
	primary *replica.Primary
	held    map[replica.Call]clink.Output // outputs of the pod that the primary holds back
	beating bool

	replica *replica.Replica
	leases  map[lease.Gen]*shard.Handle // also in Cache.validities
}

func newMembers(peers Messenger, drift int64) members {
	node := ""
	if peers != nil {
		node = peers.Incarnation()
	}
	return members{
		peers: peers, primary: replica.NewPrimary(), held: map[replica.Call]clink.Output{},
		replica: replica.NewReplica(replica.Options{Node: node, Drift: drift}), leases: map[lease.Gen]*shard.Handle{},
	}
}

// memberBeat is how long the primary waits before it repeats what a replica has not confirmed.
const memberBeat = 100 * time.Millisecond

// notifyPrimary passes a lease with replicas to the primary's machine, before the pod learns of it.
func (c *Cache[V]) notifyPrimary(h *shard.Handle) {
	if c.members.peers == nil || len(h.Group) == 0 {
		return
	}
	c.stepPrimary(replica.Acquired{Lease: h.Lease, Group: h.Group}, nil)
	c.beat()
}

// beat makes the primary's machine repeat what was not confirmed, as long as this node is a
// primary.
func (c *Cache[V]) beat() {
	if c.members.beating || c.closed || !c.members.primary.Busy() {
		return
	}
	c.members.beating = true
	time.AfterFunc(memberBeat, func() {
		c.mu.Lock()
		if c.members.beating = false; c.closed {
			c.mu.Unlock()
			return
		}
		asked := c.stepPrimary(replica.Beat{}, nil)
		c.beat()
		c.mu.Unlock()
		c.spawn(asked)
	})
}

// beforeStep passes an input to the primary's machine before the pod receives it.
func (c *Cache[V]) beforeStep(in clink.Input, asked []request) []request {
	if !c.members.primary.Busy() {
		return asked
	}
	switch in := in.(type) {
	case clink.Guarded:
		return c.stepPrimary(replica.Guarded{Call: replica.Call(in.Call), OK: in.Status == clink.OK}, asked)
	case clink.Stored:
		return c.stepPrimary(replica.Written{Call: replica.Call(in.Call), Known: in.Status != clink.StatusUnknown}, asked)
	}
	return asked
}

// gate passes on an output of the pod. A write has to wait until the primary's machine agrees (P2).
func (c *Cache[V]) gate(out clink.Output, asked []request) []request {
	busy := c.members.primary.Busy()
	switch out := out.(type) {
	case clink.Locked:
		if w := c.waiting[out.Op]; busy && w != nil {
			return c.hold(out.Call, out, w.lock.keys, asked)
		}
		c.locked(out)
		return asked
	case clink.Store:
		if busy {
			keys := make([]string, len(out.Muts))
			for i, m := range out.Muts {
				keys[i] = m.Key
			}
			return c.hold(out.Call, out, keys, asked)
		}
	case clink.SetGuard:
		if busy {
			asked = c.stepPrimary(replica.Guarding{Call: replica.Call(out.Call), Range: out.Range}, asked)
		}
	}
	return append(asked, out)
}

func (c *Cache[V]) hold(call clink.Call, out clink.Output, keys []string, asked []request) []request {
	c.members.held[replica.Call(call)] = out
	return c.stepPrimary(replica.Writing{Call: replica.Call(call), Keys: keys}, asked)
}

// afterKeep tells the primary's machine about an entry that the pod keeps.
func (c *Cache[V]) afterKeep(k clink.Keep, asked []request) []request {
	if !c.members.primary.Busy() {
		return asked
	}
	row := replica.Row{Exists: k.Row.Exists, Value: k.Row.Value, Version: k.Row.Version}
	if k.Until != 0 {
		row.TTL = 1
	}
	return c.stepPrimary(replica.Kept{Gen: k.Gen, Key: k.Key, Row: row}, asked)
}

// stepPrimary steps the primary's machine. The caller holds the lock.
func (c *Cache[V]) stepPrimary(in replica.Input, asked []request) []request {
	for _, out := range c.members.primary.Step(in, nil) {
		switch out := out.(type) {
		case replica.Send:
			c.members.peers.Tell(out.To, appendMessage(nil, out.Message))
		case replica.Pass:
			held := c.members.held[out.Call]
			delete(c.members.held, out.Call)
			if l, ok := held.(clink.Locked); ok {
				c.locked(l)
			} else {
				asked = append(asked, held)
			}
		case replica.Refuse:
			delete(c.members.held, out.Call)
			asked = append(asked, c.step(clink.Stored{Call: clink.Call(out.Call), Status: clink.Mismatch}, nil)...)
		}
	}
	if checkAlways {
		c.members.primary.Check()
	}
	return asked
}

// stepReplica steps the replica's machine. The caller holds the lock. It also steps when the cache
// has stepped aside, because the primary waits for its messages; the entries are not served then.
// err is the cause if this step answers a caller with a failure.
func (c *Cache[V]) stepReplica(in replica.Input, err error) (asked []request) {
	for _, out := range c.members.replica.Step(c.opt.Clock.Now(), in, nil) {
		switch out := out.(type) {
		case replica.Send:
			c.members.peers.Tell(out.To, appendMessage(nil, out.Message))
		case replica.Load:
			asked = append(asked, out)
		case replica.Keep:
			c.keep(clink.Keep{Key: out.Key, Row: copiedRow(out.Row), Gen: out.Gen, Until: out.Until})
		case replica.Drop:
			c.kept.Invalidate(out.Key)
		case replica.Reply:
			r := clink.Reply{Op: clink.Op(out.Op), Row: copiedRow(out.Row)}
			if !out.OK {
				r.Outcome = clink.Failed
			}
			c.answer(r, err)
		}
	}
	if checkAlways {
		c.members.replica.Check()
	}
	return asked
}

func copiedRow(r replica.Row) clink.Row {
	return clink.Row{Exists: r.Exists, Value: r.Value, Version: r.Version, TTL: r.TTL}
}

// sharedWith takes a lease under which this node keeps copies.
func (c *Cache[V]) sharedWith(h *shard.Handle) {
	if c.members.peers == nil {
		return
	}
	c.mu.Lock()
	c.validities[h.Gen] = newValidity(h)
	c.members.leases[h.Gen] = h
	asked := c.stepReplica(replica.Acquired{Lease: h.Lease, Group: h.Group}, nil)
	c.mu.Unlock()
	c.spawn(asked)
}

// unshared ends such a lease: when it returns, no entry of the lease is in force.
func (c *Cache[V]) unshared(h *shard.Handle) {
	if c.members.peers == nil {
		return
	}
	c.mu.Lock()
	delete(c.validities, h.Gen)
	delete(c.members.leases, h.Gen)
	asked := c.stepReplica(replica.Revoked{Gen: h.Gen}, nil)
	c.mu.Unlock()
	c.spawn(asked)
}

// told takes a message of another node's cache. Messages may come late, twice, or in another order.
// told reports whether it could decode the message.
func (c *Cache[V]) told(message []byte) bool {
	m, ok := decodeMessage(message)
	if !ok {
		return false
	}
	if c.members.peers == nil {
		return true
	}
	c.mu.Lock()
	var asked []request
	if c.closed {
		c.mu.Unlock()
		return true
	}
	if _, report := m.(replica.Report); report {
		asked = c.stepPrimary(replica.Received{Message: m}, nil)
	} else {
		asked = c.stepReplica(replica.Received{Message: m}, nil)
	}
	c.mu.Unlock()
	c.spawn(asked)
	return true
}

// mayCopy reports whether this node may keep a copy of key, which another node owns.
func (c *Cache[V]) mayCopy(key string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.shares(key)
}

func (c *Cache[V]) shares(key string) bool {
	for _, h := range c.members.leases {
		if h.Contains(key) && h.Valid() {
			return true
		}
	}
	return false
}

// copied reads a key that another node owns and of which this node keeps a copy. ok is false if it
// keeps none.
func (c *Cache[V]) copied(ctx context.Context, key string) (e Entry[V], ok bool, err error) {
	c.mu.Lock()
	if c.closed || c.broken || len(c.members.leases) == 0 || !c.shares(key) {
		c.mu.Unlock()
		return e, false, nil
	}
	w := &waiter[V]{reply: make(chan answer[V], 1)}
	c.ops++
	op := clink.Op(c.ops)
	c.waiting[op] = w
	asked := c.stepReplica(replica.Read{Op: replica.Op(op), Key: key}, nil)
	c.mu.Unlock()
	c.carry(ctx, asked)
	select {
	case a := <-w.reply:
		return a.entry, true, a.err
	case <-ctx.Done():
	}
	c.mu.Lock()
	delete(c.waiting, op)
	c.mu.Unlock()
	select {
	case a := <-w.reply: // the answer came just then
		return a.entry, true, a.err
	default:
		return e, true, context.Cause(ctx)
	}
}

// loadCopy reads the store for a replica.
func (c *Cache[V]) loadCopy(r replica.Load) []request {
	ctx, cancel := context.WithTimeout(c.ctx, c.opt.Timeout)
	defer cancel()
	began := time.Now()
	row, err := c.opt.Store.Load(ctx, r.Key)
	c.opt.Recorder.StoreCall(CallLoad, time.Since(began), err)
	c.mu.Lock()
	defer c.mu.Unlock()
	in := replica.Loaded{Call: r.Call, OK: err == nil}
	if err == nil {
		in.Row = replica.Row{Exists: row.Exists, Value: row.Value, Version: uint64(row.Version), TTL: ticks.Tick(row.TTL)}
	}
	return c.stepReplica(in, err)
}
