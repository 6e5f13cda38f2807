package pebble

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"time"

	"github.com/cockroachdb/pebble/v2"

	"github.com/freshet-cache/freshet/store"
	"github.com/freshet-cache/freshet/store/journal"
)

// Restored prepares the store in dir for use after it was restored to an earlier state. Versions
// continue above all that were used since. Incarnations of causal servers that have begun are
// fenced, and new ones get numbers above those that were used since. Incarnations of asynchronous
// spaces are not fenced, because their logs are still needed. No process may have the store open.
func Restored(ctx context.Context, dir string) (err error) {
	if _, err := os.Stat(filepath.Join(dir, markerFile)); err != nil {
		return fmt.Errorf("pebble: no store is in %s: %w", dir, err)
	}
	s, err := Open(dir, Options{})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	spaces, err := s.spaces(ctx)
	if err != nil {
		return err
	}
	for _, name := range spaces {
		if err := s.skip(ctx, name); err != nil {
			return fmt.Errorf("the space %s: %w", name, err)
		}
	}
	s.mu.Lock()
	s.version = max(s.version, store.NextVersion(time.Now(), rand.Uint64()))
	s.reserved = s.version // the next draw reserves versions
	s.mu.Unlock()
	_, err = s.draw()
	return err
}

// skip fences the incarnations of a space, and skips numbers that may have been used.
func (s *Store) skip(ctx context.Context, space string) error {
	d, err := s.Journal(space)
	if err != nil {
		return err
	}
	known, err := d.Known(ctx)
	if err != nil || known.Newest == 0 {
		return err
	}
	for _, o := range known.Open {
		if known.Term > 0 { // asynchronous
			break
		}
		if err := d.Fence(ctx, o); err != nil {
			return err
		}
	}
	return d.Fence(ctx, uint32(min(uint64(known.Newest)+journal.Skip, math.MaxUint32-1)))
}

// spaces returns the names of the causal spaces in the store.
func (s *Store) spaces(ctx context.Context) (names []string, err error) {
	it, err := s.db.NewIter(&pebble.IterOptions{LowerBound: []byte{'c'}, UpperBound: []byte{'c' + 1}})
	if err != nil {
		return nil, err
	}
	for ok := it.First(); ok && ctx.Err() == nil; {
		k := it.Key()
		if len(k) < 2 || len(k) < 2+int(k[1]) {
			return nil, errors.Join(fmt.Errorf("%w: a causal space without a name", ErrDamaged), it.Close())
		}
		name := string(k[2 : 2+int(k[1])])
		names = append(names, name)
		past := append(append([]byte{'c', byte(len(name))}, name...), 0xff) // above every kind of key, which are letters
		ok = it.SeekGE(past)
	}
	return names, errors.Join(it.Error(), it.Close(), context.Cause(ctx))
}
