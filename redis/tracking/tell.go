package tracking

import (
	"context"
	"slices"
	"sync"

	"github.com/freshet-cache/freshet/resp"
	"github.com/freshet-cache/freshet/track"
)

// tell tells this node's clients, and returns when they have been told or cut off.
func (t *Tracking) tell(k *track.Ticket[*resp.Conn], by cause) {
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

func (t *Tracking) invalidate(c *resp.Conn, keys []string, own, bcast bool) {
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
func (t *Tracking) flushed(clients []*resp.Conn, by cause) {
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

// all are the clients that track.
func (t *Tracking) all() (out []*resp.Conn) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for c := range t.clients {
		out = append(out, c)
	}
	return out
}

// forgetAll tells every client of this node that all it keeps may be old.
func (t *Tracking) forgetAll(by cause) {
	k := t.local.TakeIf(func(string, any) bool { return true })
	t.flushed(t.all(), by)
	if k != nil {
		k.Done()
	}
}

// followers are the clients that follow prefixes.
func (t *Tracking) followers() []*resp.Conn { return t.local.Subscribers() }

// written takes keys that were written.
func (t *Tracking) written(keys []string, by cause) *track.Ticket[*resp.Conn] {
	if by.reads {
		return t.local.TakeBut(t.n.Conn(by.conn), keys...)
	}
	return t.local.Take(keys...)
}
