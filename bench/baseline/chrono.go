package baseline

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// Chrono serves a cached row only if it was read after every time at which a write of
// its key may have been committed, which a service knows for each key (WriteGuards,
// sections 4.2, 9.1 and 10.1.1; Dropbox, 2023). It follows the paper line by line:
//
//   - "a client first proposes a new maximum commit timestamp bound for the key to
//     Chrono. If the proposed bound is greater than the current bound, Chrono accepts
//     it": Set, with now + Ahead, which the paper has at 5 s.
//   - "The storage system processes the write only if it can assign the write a commit
//     timestamp less than the provided bound": Dated.SetBefore.
//   - "The cache stores values read from storage together with their corresponding read
//     timestamps": Dated.LoadAt, and Service.Keep.
//   - "clients read both the cached value and the latest timestamp bound for the key
//     from Chrono in parallel. If the cached value's read timestamp is greater than the
//     latest bound [...] the cached value is guaranteed to reflect all writes that
//     completed before the read began": Get. The service answers both in one round
//     trip, which is a little less than two in parallel cost.
//
// So no read is stale, and a write of a key keeps its reads from the cache for Ahead.
// What was read while the bound lies ahead could not be served, and is not kept.
type Chrono struct {
	Rows    Rows
	Service Service
	// Ahead is how far ahead of now a write puts the bound.
	Ahead time.Duration
	// Now is the time by the store's clock, or nearly: if it is wrong, writes are late
	// or caching pauses for longer, and nothing else.
	Now func() int64
}

// Dating is a cached row with the time it was read at.
type Dating struct {
	Row
	At int64
}

// Service is Chrono's: a cache and the bounds, which everybody shares.
type Service interface {
	// Look returns, for each key, what is cached, if anything is, and the bound.
	Look(ctx context.Context, keys []string) (cached []Dating, bounds []int64, err error)
	// Raise makes bound the bound of key if it is greater than what there is, and
	// otherwise returns that.
	Raise(ctx context.Context, key string, bound int64) (accepted bool, standing int64, err error)
	Keep(ctx context.Context, keys []string, rows []Dating) error
	Close() error
}

// Get implements System.
func (s *Chrono) Get(ctx context.Context, keys []string, out []Reading) error {
	cached, bounds, err := s.Service.Look(ctx, keys)
	if err != nil {
		return err
	}
	var later, never []string // what may be kept, and what may not
	var at [2][]int
	now := s.Now()
	for i := range keys {
		switch c := &cached[i]; {
		case c.At > bounds[i]:
			out[i] = Reading{c.Value, c.Version, true}
		case bounds[i] < now:
			later, at[0] = append(later, keys[i]), append(at[0], i)
		default:
			never, at[1] = append(never, keys[i]), append(at[1], i)
		}
	}
	if len(never) > 0 {
		rows, err := s.Rows.Load(ctx, never, nil)
		if err != nil {
			return err
		}
		for i, r := range rows {
			out[at[1][i]] = Reading{Value: r.Value, Version: r.Version}
		}
	}
	if len(later) == 0 {
		return nil
	}
	rows, read, err := s.Rows.LoadAt(ctx, later)
	if err != nil {
		return err
	}
	kept := make([]Dating, len(rows))
	for i, r := range rows {
		out[at[0][i]] = Reading{Value: r.Value, Version: r.Version}
		kept[i] = Dating{r, read}
	}
	return s.Service.Keep(ctx, later, kept)
}

// tries bounds how often a write proposes another bound.
const tries = 20

// Set implements System.
func (s *Chrono) Set(ctx context.Context, key, value string) (uint64, error) {
	bound := s.Now() + int64(s.Ahead)
	for range tries {
		ok, standing, err := s.Service.Raise(ctx, key, bound)
		if err != nil {
			return 0, err
		}
		if !ok {
			bound = max(s.Now()+int64(s.Ahead), standing+1)
			continue
		}
		version, err := s.Rows.SetBefore(ctx, key, value, bound)
		if !errors.Is(err, ErrLate) {
			return version, err
		}
		bound = max(s.Now()+int64(s.Ahead), bound+1)
	}
	return 0, fmt.Errorf("baseline: no bound for %q was accepted in %d attempts: %w", key, tries, ErrLate)
}

// Close implements System.
func (s *Chrono) Close() error { return s.Service.Close() }
