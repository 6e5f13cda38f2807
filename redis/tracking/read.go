package tracking

import (
	"context"
	"time"
	"unsafe"

	"github.com/freshet-cache/freshet/link"
	"github.com/freshet-cache/freshet/peer"
	"github.com/freshet-cache/freshet/resp"
	"github.com/freshet-cache/freshet/track"
)

// Reading notes that a client reads keys, before they are looked up, if the client wants it. It
// reports whether the client is to be notified of changes to these keys.
func (t *Tracking) Reading(c *resp.Conn, keys [][]byte, w *resp.Writer) bool {
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

// remember notes that a client reads a key, before it is looked up. via is the
// link it is read through, if it is known and there is one.
func (t *Tracking) remember(c *resp.Conn, key []byte, via *link.Link, w *resp.Writer) {
	var gone *track.Ticket[*resp.Conn]
	if via != nil {
		gone = t.local.Add(view(key), c, via)
	} else {
		gone = t.local.Add(view(key), c, nil)
	}
	if gone != nil { // a client that waits for another connection lets others through to its own
		w.MayBlock()
		t.tell(gone, cause{conn: c.ID()})
	}
}

// view looks at bytes as a string for as long as they do not change: for look-ups.
func view(b []byte) string { return unsafe.String(unsafe.SliceData(b), len(b)) }

// Read takes the TTL of a key that was found, 0 if it has none: when it is over, the key is invalid
// without anybody writing.
func (t *Tracking) Read(key []byte, ttl time.Duration) { t.local.Ends(view(key), t.end(ttl)) }

// ReadOver is Read for a key that a client of another node has read, whose interest was noted over
// a link. It is Read itself if over is nil.
func (t *Tracking) ReadOver(over *Asker, key string, ttl time.Duration) {
	if over == nil {
		t.local.Ends(key, t.end(ttl))
		return
	}
	t.remote.Ends(key, t.end(ttl))
}

// end is when a TTL is over that begins now, 0 if it never is.
func (t *Tracking) end(ttl time.Duration) int64 {
	if ttl <= 0 {
		return 0
	}
	return int64(t.opt.Clock.Now()) + int64(ttl)
}

// Disown makes a client forget a key that it is about to read, because no node would notify it of a write.
func (t *Tracking) Disown(c *resp.Conn, key []byte) {
	if c.Invalidate([]string{string(key)}, true) {
		t.pushes.Add(1)
	}
}

// Call has another node do what reads keys for a client, and notes the link that they are read
// through: the other node's interest ends with it, so it must be the one that the request takes. Its
// errors are those of peer.Over.
func (t *Tracking) Call(ctx context.Context, addr string, frame []byte, c *resp.Conn, keys [][]byte, w *resp.Writer) ([]byte, error) {
	l, err := t.n.Link(ctx, addr)
	if err != nil {
		return nil, err
	}
	t.watch(l)
	for _, k := range keys {
		t.remember(c, k, l, w)
	}
	return peer.Over(ctx, l, frame)
}
