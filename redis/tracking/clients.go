package tracking

import (
	"cmp"
	"log/slog"
	"slices"
	"sync"

	"github.com/freshet-cache/freshet/link"
	"github.com/freshet-cache/freshet/resp"
	"github.com/freshet-cache/freshet/track"
)

// New makes the tracking of a node.
func New(n Node, opt Options) *Tracking {
	opt.Timeout = cmp.Or(opt.Timeout, defaultTimeout)
	opt.Logger = cmp.Or(opt.Logger, slog.New(slog.DiscardHandler))
	t := &Tracking{n: n, opt: opt, clients: map[*resp.Conn]bool{}, watched: map[*link.Link]bool{}, told: map[string]*link.Link{},
		seeking: map[string]bool{}, known: map[string]bool{}, lists: map[string]*sync.Mutex{}}
	t.local = track.New(track.Options[*resp.Conn]{Keys: opt.Keys, Busy: &t.busy, Alive: func(c *resp.Conn) bool {
		is := c.Tracking()
		return is.On && !is.Bcast && c.Context().Err() == nil
	}})
	t.remote = track.New(track.Options[*Asker]{Keys: opt.Keys, Busy: &t.busy})
	return t
}

// Start begins to tell of keys whose TTLs pass.
func (t *Tracking) Start() { t.work.Go(t.expire) }

// Track takes how a client's connection tracks from here on. It returns when other nodes have been
// told which prefixes are followed, or could not be reached in a second.
func (t *Tracking) Track(c *resp.Conn, is resp.Tracking) {
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
}
