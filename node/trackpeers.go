package node

import (
	"context"
	"encoding/binary"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/freshet-cache/freshet/internal/packed"
	"github.com/freshet-cache/freshet/link"
	"github.com/freshet-cache/freshet/peer"
	"github.com/freshet-cache/freshet/resp"
	"github.com/freshet-cache/freshet/shard"
	"github.com/freshet-cache/freshet/shard/lease"
	"github.com/freshet-cache/freshet/track"
)

// What nodes tell each other about tracking. A client reads at node B what node A
// owns: B remembers the client, and A remembers the link over which B asked, with
// the read itself. Before A acknowledges a write, B has told its clients and said
// so. What A remembers ends with the link, and B then tells all whom it concerns.
//
// A slice's next owner knows nothing of all that. So it introduces itself to every
// node before it acknowledges a write: they tell whoever has read a key of the
// slice, and ask it to tell them of the prefixes that their clients follow.
type peering struct {
	watched map[*link.Link]bool   // links we opened, and read through
	told    map[string]*link.Link // owners that know our prefixes, by address
	seeking map[string]bool       // owners that shall, when they can be reached
	pending []*takeover
	awaited []*takeover            // that writes wait for, these included
	handles []*shard.Handle        // what this node holds
	apart   bool                   // the assigner does not know of us
	working bool                   // somebody introduces
	known   map[string]bool        // owners that have announced themselves
	lists   map[string]*sync.Mutex // one list of prefixes after the other, by address
}

func newPeering() peering {
	return peering{watched: map[*link.Link]bool{}, told: map[string]*link.Link{}, seeking: map[string]bool{},
		known: map[string]bool{}, lists: map[string]*sync.Mutex{}}
}

const (
	takeoverWait    = time.Second // for all nodes; then writes go on
	maxPrefixList   = 4096        // prefixes that one node asks others for; beyond it asks for everything
	maxPrefixBytes  = 1 << 20
	seekingInterval = 50 * time.Millisecond
	seekingTries    = 200 // of an owner that is in no table
)

// tellNodes has other nodes tell their clients. One that does not say in time that
// it has is cut off: then it knows that it may have missed something.
func (t *tracking) tellNodes(k *track.Ticket[*asker], j *job) {
	ctx, cancel := context.WithTimeout(t.n.ctx, tellWait)
	defer cancel()
	k.Wait(ctx)
	var wg sync.WaitGroup
	for l, keys := range k.Tell {
		by := cause{write: true}
		if j.from == l {
			by.conn, by.reads = j.by, j.track
		}
		frame := appendInvalid(nil, by, keys)
		wg.Go(func() {
			if b, err := l.Call(ctx, frame); err != nil || len(b) != 1 || b[0] != answerDone {
				t.n.log.Debug("a node does not tell its clients what has changed; its link is cut", "err", err)
				t.n.work.Go(l.Close)
				<-t.linkLost(l).done // which takes introduceWait at most
			}
		})
	}
	wg.Wait()
	k.Done()
}

// invalid takes what another node says has changed.
func (t *tracking) invalid(frame []byte) []byte {
	by, keys, err := decodeInvalid(frame)
	switch {
	case err != nil:
		return append([]byte{answerError}, "ERR "+err.Error()...)
	case keys == nil:
		t.forgetAll(cause{})
	default:
		t.tell(t.written(keys, by), by)
	}
	return []byte{answerDone}
}

// forgetEverywhere tells all clients of all nodes that what they keep may be old.
func (t *tracking) forgetEverywhere(by cause) {
	ctx, cancel := context.WithTimeout(t.n.ctx, tellWait)
	defer cancel()
	var wg sync.WaitGroup
	for addr, lives := range t.n.p.living(ctx, t.n) {
		wg.Go(func() { _, _ = t.n.peers.Insist(ctx, addr, appendInvalid(nil, cause{}, nil), lives) }) // it is told of each key besides
	}
	t.forgetAll(by)
	wg.Wait()
}

// call has another node do what reads keys for a client, and notes the link that
// they are read through: the other node's interest ends with it, so it must be the
// one that the request takes.
func (t *tracking) call(ctx context.Context, addr string, frame []byte, c *resp.Conn, keys [][]byte, w *resp.Writer) ([]byte, error) {
	l, err := t.n.peers.Link(ctx, addr, peer.Tracked)
	if err != nil {
		return nil, err
	}
	t.watch(l)
	for _, k := range keys {
		t.remember(c, k, l, w)
	}
	return peer.Over(ctx, l, frame)
}

// interest notes that another node's clients read a key here, before it is looked
// up.
func (t *tracking) interest(over *asker, key string) {
	if over == nil {
		return
	}
	over.asked.Store(true)
	if k := t.remote.Add(key, over, nil); k != nil {
		t.tellNodes(k, &job{})
	}
}

// watch has clients told when a link breaks through which they have read.
func (t *tracking) watch(l *link.Link) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.watched[l] {
		return
	}
	t.watched[l] = true
	t.n.work.Go(func() {
		<-l.Done()
		t.mu.Lock()
		delete(t.watched, l)
		lost := ""
		for addr, over := range t.told {
			if over == l {
				lost = addr
				delete(t.told, addr)
			}
		}
		t.mu.Unlock()
		t.tell(t.local.TakeIf(func(_ string, via any) bool { return via == l }), cause{})
		if lost != "" {
			t.flushed(t.followers(), cause{})
			t.seek(lost)
		}
	})
}

// followers are the clients that follow prefixes.
func (t *tracking) followers() []*resp.Conn { return t.local.Subscribers() }

// spread tells the owners of all slices which prefixes are followed here. It waits
// for them, if asked, but not for long: who cannot be reached hears of it later.
func (t *tracking) spread(wait bool) {
	ctx, cancel := context.WithTimeout(t.n.ctx, takeoverWait)
	for wait && len(t.n.shard.Table().Slices) == 0 && ctx.Err() == nil { // it has begun just now
		t.n.newer(ctx, t.n.shard.Table().Version)
	}
	t.mu.Lock()
	owners := maps.Clone(t.known)
	t.mu.Unlock()
	for _, r := range t.n.shard.Table().Slices {
		owners[r.Addr] = true
	}
	delete(owners, "")
	delete(owners, t.n.addr)
	var wg sync.WaitGroup
	for addr := range owners {
		wg.Add(1)
		t.n.work.Go(func() {
			defer wg.Done()
			if !t.subscribe(ctx, addr) {
				t.seek(addr)
			}
		})
	}
	if !wait {
		t.n.work.Go(func() { wg.Wait(); cancel() })
		return
	}
	wg.Wait()
	cancel()
}

// subscribe asks an owner to tell of what is followed here. Nothing is asked if
// nothing is followed and it was never told otherwise.
func (t *tracking) subscribe(ctx context.Context, addr string) bool {
	t.mu.Lock()
	one := t.lists[addr]
	if one == nil {
		if len(t.lists) > maxMembers { // of former incarnations
			clear(t.lists)
		}
		one = &sync.Mutex{}
		t.lists[addr] = one
	}
	t.mu.Unlock()
	one.Lock() // a list must not overtake a later one
	defer one.Unlock()
	prefixes := t.followed()
	t.mu.Lock()
	idle := len(prefixes) == 0 && t.told[addr] == nil
	t.mu.Unlock()
	if idle {
		return true
	}
	l, err := t.n.peers.Link(ctx, addr, peer.Tracked)
	if err != nil {
		return false
	}
	frame := binary.AppendUvarint([]byte{frameVersion, frameFollow}, uint64(len(prefixes)))
	for _, p := range prefixes {
		frame = packed.AppendBytes(frame, []byte(p))
	}
	t.mu.Lock()
	t.told[addr] = l
	t.mu.Unlock()
	t.watch(l)
	b, err := l.Call(ctx, frame)
	return err == nil && len(b) == 1 && b[0] == answerDone
}

// followed are the prefixes to ask others for: everything, if there are too many.
func (t *tracking) followed() []string {
	all := t.local.Prefixes()
	size := 0
	for _, p := range all {
		size += len(p)
	}
	if len(all) > maxPrefixList || size > maxPrefixBytes {
		return []string{""}
	}
	return all
}

// seek subscribes at an owner that could not be reached, as long as it owns
// something. What was written there meanwhile nobody was told of: when it is
// reached, clients are to forget what they keep.
func (t *tracking) seek(addr string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.seeking[addr] {
		return
	}
	t.seeking[addr] = true
	t.n.work.Go(func() {
		tick := time.NewTicker(seekingInterval)
		defer tick.Stop()
		for try := 0; t.sought(addr, try); try++ {
			select {
			case <-tick.C:
			case <-t.n.ctx.Done():
				return
			}
			ctx, cancel := context.WithTimeout(t.n.ctx, takeoverWait)
			if t.subscribe(ctx, addr) {
				t.mu.Lock()
				delete(t.seeking, addr)
				t.mu.Unlock()
				t.flushed(t.followers(), cause{})
			}
			cancel()
		}
	})
}

// sought reports whether an owner is still to be told, and ends the search if not.
// Of one that has announced itself the table may not know yet; but it must answer
// some time.
func (t *tracking) sought(addr string, try int) bool {
	owns := slices.ContainsFunc(t.n.shard.Table().Slices, func(r lease.Route) bool { return r.Addr == addr })
	t.mu.Lock()
	defer t.mu.Unlock()
	if !owns && try >= seekingTries {
		delete(t.known, addr)
	}
	if !owns && !t.known[addr] || len(t.local.Prefixes()) == 0 {
		delete(t.seeking, addr)
	}
	return t.seeking[addr]
}

// follow takes the prefixes that another node follows.
func (t *tracking) follow(frame []byte, over *asker) []byte {
	s := packed.Read(frame[2:])
	var prefixes []string
	for range s.Count() {
		prefixes = append(prefixes, s.Text())
	}
	if s.Bad() || over == nil || len(prefixes) > maxPrefixList {
		return append([]byte{answerError}, "ERR "+errFrame.Error()...)
	}
	over.asked.Store(true)
	t.remote.Subscribe(over, prefixes)
	if over.Err() != nil {
		t.remote.Forget(over)
	}
	return []byte{answerDone}
}
