// Package memory is a store that keeps its promises as long as the process
// runs, and breaks the ones a test asks it to: hooks delay calls, lose their
// answers and let them take effect late.
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

// The calls a hook sees.
const (
	OpLoad     Op = "load"
	OpCommit   Op = "commit"
	OpSetGuard Op = "set guard"
)

// Call is what a hook is told.
type Call struct {
	Op  Op
	Key string // of the first mutation; the low end of a guard
}

// Options configure a Store. The zero value works.
type Options struct {
	// Before runs before a call takes effect: blocking in it delays the call, an
	// error ends it without effect, which the caller cannot know.
	Before func(ctx context.Context, c Call) error
	// After runs when a call has taken effect: an error loses its answer.
	After func(ctx context.Context, c Call) error
	// Clock is the store's clock. Default time.Now. It must not step back.
	Clock func() time.Time
}

// Store is a store in memory. It is safe for concurrent use.
type Store struct {
	opt     Options
	tablets *tablet.Map

	mu      sync.Mutex
	rows    map[string]row
	sorted  []string // the keys of rows in order, or nil if one came or went
	version store.Version
	floor   store.Version // of the absence of keys that have no row
	sweepAt int           // how many rows call for a sweep
	closed  bool
}

// grace is how long a deleted or expired row is kept: while a write of its key may
// be in doubt, its write id is the proof.
const grace = 10 * time.Minute

// row is a key's latest write; a deleted one stays as a tombstone.
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

// Commit applies muts, all or none.
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
	now := s.opt.Clock() // one instant: what a condition has found is what is written over
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
			case m.TTL == store.KeepTTL && s.at(m.Key, now).Exists: // what has expired has no deadline
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

// sweep forgets what has long been deleted or expired. It is done when the rows
// have doubled, so that a write pays for a constant share of it.
func (s *Store) sweep() {
	old := s.opt.Clock().Add(-grace)
	for k, r := range s.rows {
		dead := !r.exists && r.written.Before(old) || !r.expires.IsZero() && r.expires.Before(old)
		if !dead {
			continue
		}
		s.floor = max(s.floor, r.version+1) // that of the absence after expiry; no write has an odd one
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

// Splits are the tablet boundaries strictly inside (low, high).
func (s *Store) Splits(_ context.Context, low, high string) ([]string, error) {
	return s.tablets.Splits(low, high), nil
}

// Scan returns up to limit keys that exist, from the first one at or after from;
// next is where to go on, unless done.
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

// Split makes at a tablet boundary.
func (s *Store) Split(ctx context.Context, at string) error {
	_, err := s.tablets.Split(ctx, at)
	return err
}

// Merge removes the tablet boundary at.
func (s *Store) Merge(ctx context.Context, at string) error {
	_, err := s.tablets.Merge(ctx, at)
	return err
}

// Restart makes the tablet of key lose its guards.
func (s *Store) Restart(ctx context.Context, key string) error { return s.tablets.Restart(ctx, key) }

// Close ends the store and forgets everything.
func (s *Store) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed, s.rows, s.sorted = true, nil, nil
	return nil
}
