package baseline

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// Chrono serves a cached row only if the row was read after every time at which a write of its key
// may have been committed. A service knows a bound of that time for each key (WriteGuards, sections
// 4.2, 9.1 and 10.1.1; Dropbox, 2023). It follows the paper line by line:
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
// So no read is stale, and a write keeps reads of its key from the cache for the time Ahead. A row
// that was read while the bound lies in the future could not be served, so it is not cached.
type Chrono struct {
	Rows    Rows
	Service Service
	// Ahead is how far ahead of now a write puts the bound.
	Ahead time.Duration
	// Now returns about the time of the clock of the store. If it is wrong, writes fail as late or
	// caching pauses for longer; reads stay correct.
	Now func() int64
}

// Dating is a cached row with the time of its read.
type Dating struct {
	Row
	At int64
}

// Service is the service of Chrono that all instances share: a cache and the bounds.
type Service interface {
	// Look returns the cached row, if there is one, and the bound of each key.
	Look(ctx context.Context, keys []string) (cached []Dating, bounds []int64, err error)
	// Raise sets the bound of key if the new one is greater. It returns the current bound
	// otherwise.
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
