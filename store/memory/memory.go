// Package memory is a store in memory, which keeps its promises as long as the process runs. Hooks
// let a test break calls: they delay a call, lose its answer, or let it take effect late.
package memory

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/freshet-cache/freshet/store"
	"github.com/freshet-cache/freshet/store/tablet"
)

// Op is a kind of call.
type Op string

// The calls that a hook sees.
const (
	OpLoad     Op = "load"
	OpCommit   Op = "commit"
	OpSetGuard Op = "set guard"
)

// Call describes a call to a hook.
type Call struct {
	Op  Op
	Key string // the key of the first mutation, or the low end of a guard
}

// Options configure a Store. The zero value works.
type Options struct {
	// Before runs before a call takes effect. Blocking in it delays the call. An error ends the
	// call without effect, but the caller cannot know that.
	Before func(ctx context.Context, c Call) error
	// After runs when a call has taken effect. An error loses the answer of the call.
	After func(ctx context.Context, c Call) error
	// Clock is the store's clock, which must not step back. Default time.Now.
	Clock func() time.Time
}

// Store is a store in memory. It is safe for concurrent use.
type Store struct {
	opt     Options
	tablets *tablet.Map

	mu      sync.Mutex
	rows    map[string]row
	sorted  []string // the keys of rows in order; nil if a key was added or removed since
	version store.Version
	floor   store.Version // the version of absence for keys without a row
	sweepAt int           // the number of rows at which the next sweep runs
	closed  bool
}

// grace is how long the store keeps a deleted or expired row. Its write id is the proof while a
// write of the key has an unknown outcome.
const grace = 10 * time.Minute

// row is the latest write of a key. A deleted key keeps a tombstone.
type row struct {
	value   []byte
	exists  bool
	version store.Version
	writer  store.ID
	written time.Time
	expires time.Time // zero: never
}

// New returns an empty store.
func New(opt Options) *Store {
	hook := func(context.Context, Call) error { return nil }
	if opt.Before == nil {
		opt.Before = hook
	}
	if opt.After == nil {
		opt.After = hook
	}
	if opt.Clock == nil {
		opt.Clock = time.Now
	}
	return &Store{opt: opt, tablets: tablet.New(nil), rows: map[string]row{}, version: store.FirstVersion(time.Now(), rand.Uint64())}
}

// Load returns the row of key.
func (s *Store) Load(ctx context.Context, key string) (store.Row, error) {
	c := Call{OpLoad, key}
	if err := s.opt.Before(ctx, c); err != nil {
		return store.Row{}, err
	}
	token := s.tablets.Guard(key)
	s.mu.Lock()
	r, err := s.load(key), s.alive()
	s.mu.Unlock()
	if err != nil {
		return store.Row{}, err
	}
	r.Guard = token
	return r, s.opt.After(ctx, c)
}

func (s *Store) alive() error {
	if s.closed {
		return store.ErrClosed
	}
	return nil
}

func (s *Store) load(key string) store.Row { return s.at(key, s.opt.Clock()) }

func (s *Store) at(key string, now time.Time) store.Row {
	r, ok := s.rows[key]
	if !ok {
		return store.Row{Version: s.floor}
	}
	out := store.Row{Exists: r.exists, Value: r.value, Version: r.version, Writer: r.writer, Written: r.written}
	if !r.expires.IsZero() {
		if out.TTL = r.expires.Sub(now); out.TTL <= 0 {
			out = store.Row{Version: r.version + 1, Writer: r.writer, Written: r.expires}
		}
	}
	return out
}

// Commit applies muts, all or none. See the errors of package store.
func (s *Store) Commit(ctx context.Context, id store.ID, muts []store.Mutation) ([]store.Stamp, error) {
	if len(muts) == 0 {
		return nil, nil
	}
	c := Call{OpCommit, muts[0].Key}
	if err := s.opt.Before(ctx, c); err != nil {
		return nil, err
	}
	leave, err := s.tablets.Admit(context.WithoutCancel(ctx), muts)
	if err != nil {
		return nil, err
	}
	stamps, err := s.apply(id, muts)
	leave()
	if err != nil {
		return nil, err
	}
	return stamps, s.opt.After(ctx, c)
}

func (s *Store) apply(id store.ID, muts []store.Mutation) ([]store.Stamp, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.alive(); err != nil {
		return nil, err
	}
	now := s.opt.Clock() // one instant, so that a commit overwrites the row that its condition has checked
	for _, m := range muts {
		_, ok := s.rows[m.Key]
		if m.Check && s.at(m.Key, now).Version != m.Expect && (ok || m.Expect != 0) {
			return nil, fmt.Errorf("%w (key %q)", store.ErrConflict, m.Key)
		}
	}
	stamps := make([]store.Stamp, len(muts))
	for i, m := range muts {
		s.version += 2
		r := row{exists: !m.Delete, version: s.version, writer: id, written: now}
		if !m.Delete {
			r.value = slices.Clone(m.Value)
			switch {
			case m.TTL > 0:
				r.expires = now.Add(m.TTL)
			case m.TTL == store.KeepTTL && s.at(m.Key, now).Exists: // an expired row has no deadline
				r.expires = s.rows[m.Key].expires
			}
		}
		if _, ok := s.rows[m.Key]; !ok {
			s.sorted = nil
		}
		s.rows[m.Key] = r
		stamps[i].Version = r.version
		if !r.expires.IsZero() {
			stamps[i].TTL = r.expires.Sub(now)
		}
	}
	if len(s.rows) >= s.sweepAt {
		s.sweep()
	}
	return stamps, nil
}

// sweep removes rows that were deleted or have expired long ago. It runs when the number of rows
// has doubled, so that each write pays a constant share of it.
func (s *Store) sweep() {
	old := s.opt.Clock().Add(-grace)
	for k, r := range s.rows {
		dead := !r.exists && r.written.Before(old) || !r.expires.IsZero() && r.expires.Before(old)
		if !dead {
			continue
		}
		s.floor = max(s.floor, r.version+1) // the version of absence after expiry, which is odd and belongs to no write
		delete(s.rows, k)
		s.sorted = nil
	}
	s.sweepAt = max(1024, 2*len(s.rows))
}

// SetGuard installs token over [low, high).
func (s *Store) SetGuard(ctx context.Context, low, high string, token store.Token) error {
	c := Call{OpSetGuard, low}
	if err := s.opt.Before(ctx, c); err != nil {
		return err
	}
	if err := s.tablets.SetGuard(ctx, low, high, token); err != nil {
		return err
	}
	return s.opt.After(ctx, c)
}

// Splits returns the tablet boundaries strictly inside (low, high).
func (s *Store) Splits(_ context.Context, low, high string) ([]string, error) {
	return s.tablets.Splits(low, high), nil
}

// Scan returns up to limit keys that exist, from the first one at or after from. next is where to
// continue unless done.
func (s *Store) Scan(_ context.Context, from string, limit int) (keys []string, next string, done bool, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.sorted == nil {
		s.sorted = slices.Sorted(maps.Keys(s.rows))
	}
	at, _ := slices.BinarySearch(s.sorted, from)
	for _, k := range s.sorted[at:] {
		if len(keys) >= limit {
			return keys, k, false, s.alive()
		}
		if s.load(k).Exists {
			keys = append(keys, k)
		}
	}
	return keys, "", true, s.alive()
}

// Count returns how many keys exist.
func (s *Store) Count(context.Context) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := 0
	for k := range s.rows {
		if s.load(k).Exists {
			n++
		}
	}
	return n, s.alive()
}

// Split adds the tablet boundary at.
func (s *Store) Split(ctx context.Context, at string) error {
	_, err := s.tablets.Split(ctx, at)
	return err
}

// Merge removes the tablet boundary at.
func (s *Store) Merge(ctx context.Context, at string) error {
	_, err := s.tablets.Merge(ctx, at)
	return err
}

// Restart removes the guards of key's tablet.
func (s *Store) Restart(ctx context.Context, key string) error { return s.tablets.Restart(ctx, key) }

// Close drops every row. Later calls return store.ErrClosed.
func (s *Store) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed, s.rows, s.sorted = true, nil, nil
	return nil
}
