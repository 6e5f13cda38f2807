package node

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/freshet-cache/freshet/internal/drive"
	"github.com/freshet-cache/freshet/linear"
	"github.com/freshet-cache/freshet/link"
	"github.com/freshet-cache/freshet/redis"
	"github.com/freshet-cache/freshet/resp"
	"github.com/freshet-cache/freshet/track"
)

// tracking tells clients that keep what they read when it changes: every push is
// with the operating system before the write that caused it is acknowledged. Who
// reads is remembered before the value is looked up; who writes tells after the
// commit. So a read either sees the write, or is told of it.
type tracking struct {
	n      *Node
	busy   atomic.Int64 // what there is to tell, or to wait for: 0 nearly always
	local  *track.Table[*resp.Conn]
	remote *track.Table[*asker] // other nodes, by the links they opened

	pushes, undecided atomic.Uint64

	mu      sync.Mutex
	clients map[*resp.Conn]bool
	peering
}

const (
	tellWait    = 2 * time.Second // for one node to tell its clients; longer than a push may take
	endsBeat    = 50 * time.Millisecond
	togetherMax = 16   // keys that are pushed one by one, as Redis does
	chunk       = 1000 // keys in one push
	settleMax   = 256  // writes of unknown outcome that are followed up at once
	settleTries = 64
)

func newTracking(n *Node) *tracking {
	t := &tracking{n: n, clients: map[*resp.Conn]bool{}, peering: newPeering()}
	t.local = track.New(track.Options[*resp.Conn]{Keys: n.p.cfg.TrackingKeys, Busy: &t.busy, Alive: func(c *resp.Conn) bool {
		is := c.Tracking()
		return is.On && !is.Bcast && c.Context().Err() == nil
	}})
	t.remote = track.New(track.Options[*asker]{Keys: n.p.cfg.TrackingKeys, Busy: &t.busy})
	return t
}

// Track implements resp.Tracker.
func (n *Node) Track(c *resp.Conn, is resp.Tracking) string {
	t := n.track
	t.mu.Lock()
	if is.On {
		t.clients[c] = true
	} else {
		delete(t.clients, c)
	}
	before := t.local.Prefixes()
	t.local.Subscribe(c, is.Prefixes)
	if len(t.clients) == 0 {
		t.local.Clear()
	}
	after := t.local.Prefixes()
	t.mu.Unlock()
	if !slices.Equal(before, after) {
		t.spread(is.On)
	}
	return ""
}

// Closed implements resp.Handler.
func (n *Node) Closed(c *resp.Conn) {
	if c.Tracks() {
		n.Track(c, resp.Tracking{})
	}
}

// remember notes that a client reads a key, before it is looked up. via is the
// link it is read through, if it is known and there is one.
func (t *tracking) remember(c *resp.Conn, key []byte, via *link.Link, w *resp.Writer) {
	var gone *track.Ticket[*resp.Conn]
	if via != nil {
		gone = t.local.Add(view(key), c, via)
	} else {
		gone = t.local.Add(view(key), c, nil)
	}
	if gone != nil { // whoever waits for another connection lets others through to its own
		w.MayBlock()
		t.tell(gone, cause{conn: c.ID()})
	}
}

// reading is remember for all keys of a command, if the client wants it; and tells
// that it reads. It reports whether the client is to be told of these keys.
func (t *tracking) reading(c *resp.Conn, keys [][]byte, w *resp.Writer) bool {
	c.Reads()
	if !c.Remembers() {
		return false
	}
	for _, k := range keys {
		if len(k) > 0 { // others are refused
			t.remember(c, k, nil, w)
		}
	}
	return true
}

// transaction is reading for the commands of a transaction that only read.
func (t *tracking) transaction(c *resp.Conn, j *job, w *resp.Writer) {
	if keys := t.n.readsOf(j); len(keys) > 0 {
		j.track = t.reading(c, keys, w)
	}
}

// readsOf are the keys of a job's commands that only read.
func (n *Node) readsOf(j *job) (out [][]byte) {
	for _, args := range j.cmds {
		name := redis.Lower(args[0])
		run, writing := redis.Lookup(name)
		if cmd := n.p.table[name]; run != nil && !writing && cmd != nil {
			out = append(out, cmd.Keys(args)...)
		}
	}
	return out
}

// read takes what was found: when the TTL of the key is over, it is invalid
// without anybody writing.
func (t *tracking) read(key []byte, e linear.Entry[string]) {
	at := int64(0)
	if e.TTL > 0 {
		at = int64(t.n.p.clock.Now()) + int64(e.TTL)
	}
	t.local.Ends(view(key), at)
}

// disown makes a client forget what it is about to read: nobody would tell it of a
// write.
func (t *tracking) disown(c *resp.Conn, key []byte) {
	if c.Invalidate([]string{string(key)}, true) {
		t.pushes.Add(1)
	}
}

// cause is who has written.
type cause struct {
	conn  int64 // the client's connection, 0 if nobody's; it is told behind its reply
	write bool  // it was a write, of which a client with NOLOOP is not told
	reads bool  // together with reads, and the client is remembered for these
}

// tell tells this node's clients, and returns when they have been told or cut off.
func (t *tracking) tell(k *track.Ticket[*resp.Conn], by cause) {
	if k == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), tellWait)
	defer cancel()
	k.Wait(ctx)
	var wg sync.WaitGroup
	for c, keys := range k.Tell {
		is, own := c.Tracking(), c.ID() == by.conn
		switch {
		case !is.On || own && by.write && is.NoLoop:
		case own || len(k.Tell) == 1:
			t.invalidate(c, keys, own, is.Bcast)
		default: // a slow one must not take the others' time
			wg.Go(func() { t.invalidate(c, keys, own, is.Bcast) })
		}
	}
	wg.Wait()
	k.Done()
}

func (t *tracking) invalidate(c *resp.Conn, keys []string, own, bcast bool) {
	size := chunk
	if len(keys) <= togetherMax && !bcast {
		size = 1
	}
	for some := range slices.Chunk(keys, size) {
		if c.Invalidate(some, own) {
			t.pushes.Add(1)
		}
	}
}

// flushed tells clients that all they keep may be old.
func (t *tracking) flushed(clients []*resp.Conn, by cause) {
	var wg sync.WaitGroup
	for _, c := range clients {
		push := func() {
			if c.Invalidate(nil, c.ID() == by.conn) {
				t.pushes.Add(1)
			}
		}
		if c.ID() == by.conn {
			push()
			continue
		}
		wg.Go(push)
	}
	wg.Wait()
}

// counts are what the metrics show.
type counts struct {
	clients, keys, peerKeys, prefixes int
	evicted                           uint64
}

func (t *tracking) counts() counts {
	t.mu.Lock()
	n := counts{clients: len(t.clients)}
	t.mu.Unlock()
	var more uint64
	n.keys, n.prefixes, n.evicted = t.local.Counts()
	n.peerKeys, _, more = t.remote.Counts()
	n.evicted += more
	return n
}

// all are the clients that track.
func (t *tracking) all() (out []*resp.Conn) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for c := range t.clients {
		out = append(out, c)
	}
	return out
}

// forgetAll tells every client of this node that all it keeps may be old.
func (t *tracking) forgetAll(by cause) {
	k := t.local.TakeIf(func(string, any) bool { return true })
	t.flushed(t.all(), by)
	if k != nil {
		k.Done()
	}
}

// changed tells everybody of keys that were written by a job, before it is
// acknowledged.
func (t *tracking) changed(keys []string, j *job) {
	if t.busy.Load() == 0 || len(keys) == 0 {
		return
	}
	t.awaitTakeovers(keys)
	by, over := cause{write: true}, j.from
	if j.from == nil {
		by.conn, by.reads = j.by, j.track
	}
	if !j.track {
		over = nil
	}
	here, there := t.written(keys, by), t.remote.TakeBut(over, keys...)
	var wg sync.WaitGroup
	if there != nil {
		wg.Go(func() { t.tellNodes(there, j) })
	}
	t.tell(here, by)
	wg.Wait()
}

// written takes keys that were written.
func (t *tracking) written(keys []string, by cause) *track.Ticket[*resp.Conn] {
	if by.reads {
		return t.local.TakeBut(t.n.server.Conn(by.conn), keys...)
	}
	return t.local.Take(keys...)
}

// errDecided ends an update that was only to wait its turn.
var errDecided = errors.New("node: settled")

// doubtful tells everybody of keys whose write may have happened, or may yet: and
// tells again when that is decided, for who reads meanwhile may see the old value.
func (t *tracking) doubtful(keys []string, j *job) {
	t.changed(keys, j)
	if t.undecided.Add(1) > settleMax {
		t.undecided.Add(^uint64(0))
		t.forgetEverywhere(cause{})
		return
	}
	t.n.work.Go(func() {
		defer t.undecided.Add(^uint64(0))
		if !t.settle(keys) {
			t.forgetEverywhere(cause{})
		}
	})
}

// settle waits until no earlier write of the keys can take effect any more: an
// update is decided only then. If they have another owner, that is none of ours:
// it introduces itself.
func (t *tracking) settle(keys []string) bool {
	for range settleTries {
		ctx, cancel := context.WithTimeout(t.n.ctx, t.n.p.cfg.Timeout)
		_, err := t.n.cache.Update(ctx, keys, func(*linear.Tx[string]) error { return errDecided })
		cancel()
		switch {
		case errors.Is(err, errDecided):
			t.changed(keys, &job{})
			return true
		case errors.Is(err, linear.ErrNotOwner), errors.Is(err, linear.ErrClosed), t.n.ctx.Err() != nil:
			return true
		}
		drive.Pause(t.n.ctx, endsBeat)
	}
	return false
}

// expire tells of keys whose TTLs have passed, until the node closes.
func (t *tracking) expire() {
	tick := time.NewTicker(endsBeat)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-t.n.ctx.Done():
			return
		}
		for more := true; more; {
			var k *track.Ticket[*resp.Conn]
			k, more = t.local.TakeEnded(int64(t.n.p.clock.Now()))
			t.tell(k, cause{})
		}
	}
}
