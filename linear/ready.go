package linear

import (
	"context"
	"fmt"
	"slices"
	"time"
)

// Standing says what this process can do for reads of a key.
type Standing uint8

// The standings of a key.
const (
	// Kept: this process owns the key and its guard is installed. What a read finds is
	// kept, and the next read is served from memory.
	Kept Standing = iota
	// Guarding: this process owns the key, and its guard is being installed. A write
	// without the guard may still arrive, so reads ask the store, and nothing is kept.
	Guarding
	// Elsewhere: another process owns the key. Reads ask that process.
	Elsewhere
	// Nobody: no process owns the key at the moment. Reads ask the store, and nothing is
	// kept.
	Nobody
	// Aside: an invariant has failed in this process. Reads ask the store, and nothing is
	// kept until the process is restarted.
	Aside
)

// String describes the standing in words.
func (s Standing) String() string {
	return [...]string{"kept here", "its guard is being installed", "owned elsewhere", "owned by nobody at the moment", "an invariant has failed, and nothing is kept"}[s]
}

// Standing says what this process can do for reads of key now.
func (c *Cache[V]) Standing(key string) Standing {
	c.mu.Lock()
	now := c.opt.Clock.Now()
	owns, guarded, broken := c.pod.Owns(now, key), c.pod.Guarded(now, key), c.broken
	c.mu.Unlock()
	switch {
	case broken:
		return Aside
	case guarded:
		return Kept
	case owns:
		return Guarding
	}
	if o := c.opt.Peers.Owner(key); o != "" && o != c.opt.Peers.Self() {
		return Elsewhere
	}
	return Nobody
}

// guarding reports whether this process owns key while the guard is still being installed.
func (c *Cache[V]) guarding(key string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := c.opt.Clock.Now()
	return c.pod.Owns(now, key) && !c.pod.Guarded(now, key)
}

const readyPause = time.Millisecond

// Ready waits until reads of keys are served from memory, at this node or at their owners. It waits
// until the guards of the keys that this process owns are installed, and until every other key has
// an owner. The first read of each key still asks the store. An error names a key, and says why its
// reads are not served from memory.
func (c *Cache[V]) Ready(ctx context.Context, keys ...string) error {
	keys = slices.Clone(keys)
	pause := time.NewTimer(readyPause)
	defer pause.Stop()
	for {
		var why Standing
		keys = slices.DeleteFunc(keys, func(k string) bool {
			s := c.Standing(k)
			if s == Kept || s == Elsewhere {
				return true
			}
			why = s // the reason of the last key that stays in the list
			return false
		})
		switch {
		case len(keys) == 0:
			return nil
		case why == Aside:
			return fmt.Errorf("linear: the key %.64q is not served from memory: %v", keys[len(keys)-1], why)
		}
		pause.Reset(readyPause)
		select {
		case <-pause.C:
		case <-ctx.Done():
			return fmt.Errorf("linear: the key %.64q is not served from memory: %v (%w)", keys[len(keys)-1], why, context.Cause(ctx))
		}
	}
}

// Standing says what this process can do for reads of key now. See Cache.Standing.
func (v *View[V, T]) Standing(key string) Standing { return v.cache.Standing(key) }

// Ready waits until reads of keys are served from memory. An error says why they are not. See
// Cache.Ready.
func (v *View[V, T]) Ready(ctx context.Context, keys ...string) error {
	return v.cache.Ready(ctx, keys...)
}

// Invalidate drops the values of keys at every process. Call it after rows were changed without
// Update, by a migration or by hand. A read that begins after Invalidate has returned sees what was
// committed before the call. Invalidate is an Update that changes nothing, and has its errors.
func (v *View[V, T]) Invalidate(ctx context.Context, keys ...string) error {
	return v.Update(ctx, keys, func(context.Context, T) error { return nil })
}
