package node

import (
	"github.com/freshet-cache/freshet/redis/tracking"
	"github.com/freshet-cache/freshet/shard"
	"github.com/freshet-cache/freshet/shard/lease"
)

// watcher counts leases on their way to the cache.
type watcher struct {
	shard.Watcher
	m *metrics
	t *tracking.Tracking
}

// Acquired implements shard.Watcher.
func (w watcher) Acquired(h *shard.Handle, after lease.Gen) {
	w.m.leases[0].Inc()
	w.t.Acquired(h) // first: no write may be acknowledged before
	w.Watcher.Acquired(h, after)
}

// Extended implements shard.Watcher.
func (w watcher) Extended(h *shard.Handle) {
	w.m.leases[1].Inc()
	w.Watcher.Extended(h)
}

// Revoked implements shard.Watcher.
func (w watcher) Revoked(h *shard.Handle) {
	w.Watcher.Revoked(h)
	w.m.leases[ending(h)].Inc()
}

// Shared implements shard.Sharer.
func (w watcher) Shared(h *shard.Handle) {
	w.m.leases[0].Inc()
	if s, ok := w.Watcher.(shard.Sharer); ok {
		s.Shared(h)
	}
}

// Unshared implements shard.Sharer.
func (w watcher) Unshared(h *shard.Handle) {
	if s, ok := w.Watcher.(shard.Sharer); ok {
		s.Unshared(h)
	}
	w.m.leases[ending(h)].Inc()
}

// ending is which counter of leases counts a handle that has ended.
func ending(h *shard.Handle) int {
	if h.Lapsed {
		return 3
	}
	return 2
}
