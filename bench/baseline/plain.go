package baseline

import (
	"context"
	"fmt"
	"time"

	"github.com/maypok86/otter/v2"
)

// Storage always reads from the store.
type Storage struct{ Rows Rows }

// Get implements System.
func (s Storage) Get(ctx context.Context, keys []string, out []Reading) error {
	rows, err := s.Rows.Load(ctx, keys, nil)
	for i, r := range rows {
		out[i] = Reading{Value: r.Value, Version: r.Version}
	}
	return err
}

// Set implements System.
func (s Storage) Set(ctx context.Context, key, value string) (uint64, error) {
	return s.Rows.Set(ctx, key, value)
}

// Close implements System.
func (Storage) Close() error { return nil }

// newMap returns a map bounded by bytes. linear uses the same map, so the maps make no difference.
func newMap(bytes int64, ttl time.Duration) (*otter.Cache[string, Row], error) {
	opt := otter.Options[string, Row]{MaximumWeight: uint64(bytes), Weigher: func(k string, r Row) uint32 { return uint32(len(k) + len(r.Value)) }}
	if ttl > 0 {
		opt.ExpiryCalculator = otter.ExpiryWriting[string, Row](ttl)
	}
	m, err := otter.New(&opt)
	if err != nil {
		return nil, fmt.Errorf("baseline: the map of rows: %w", err)
	}
	return m, nil
}

// Version keeps rows in memory and asks the store for the version of the row at every read. If the
// versions agree, it serves its own bytes (WriteGuards, section 9.1). The read takes effect in the
// store, so it is never stale. If the row has changed, the store answers with the new bytes at
// once, which saves the second round trip that the paper has.
type Version struct {
	rows Rows
	kept *otter.Cache[string, Row]
}

// NewVersion returns an instance with this much memory.
func NewVersion(rows Rows, bytes int64) (*Version, error) {
	kept, err := newMap(bytes, 0)
	return &Version{rows, kept}, err
}

// Get implements System.
func (s *Version) Get(ctx context.Context, keys []string, out []Reading) error {
	known, mine := make([]uint64, len(keys)), make([]Row, len(keys))
	for i, k := range keys {
		mine[i], _ = s.kept.GetIfPresent(k)
		known[i] = mine[i].Version
	}
	rows, err := s.rows.Load(ctx, keys, known)
	for i, r := range rows {
		if r.Version == mine[i].Version {
			out[i] = Reading{mine[i].Value, r.Version, true}
			continue
		}
		out[i] = Reading{Value: r.Value, Version: r.Version}
		s.kept.Set(keys[i], r)
	}
	return err
}

// Set implements System.
func (s *Version) Set(ctx context.Context, key, value string) (uint64, error) {
	version, err := s.rows.Set(ctx, key, value)
	if err == nil { // a cached row is compared with the store before it is served
		s.kept.Set(key, Row{value, version})
	}
	return version, err
}

// Close implements System.
func (s *Version) Close() error {
	s.kept.StopAllGoroutines()
	return nil
}

// TTL keeps rows in memory for a time and serves them meanwhile, even if they change in the store:
// the most common cache. An instance sees its own writes, unless a read of the row was under way,
// and writes of other instances when the time has passed.
type TTL struct {
	rows Rows
	kept *otter.Cache[string, Row]
}

// NewTTL returns an instance with this much memory and this TTL.
func NewTTL(rows Rows, bytes int64, ttl time.Duration) (*TTL, error) {
	kept, err := newMap(bytes, ttl)
	return &TTL{rows: rows, kept: kept}, err
}

// Get implements System.
func (s *TTL) Get(ctx context.Context, keys []string, out []Reading) error {
	return throughMap(ctx, s.rows, keys, out, func(key string) (Row, bool) { return s.kept.GetIfPresent(key) },
		func(key string, r Row) { s.kept.Set(key, r) })
}

// throughMap serves the rows that find returns, loads the others with one statement, and caches
// them.
func throughMap(ctx context.Context, rows Rows, keys []string, out []Reading, find func(string) (Row, bool), keep func(string, Row)) error {
	var missing []string
	var at []int
	for i, k := range keys {
		if r, ok := find(k); ok {
			out[i] = Reading{r.Value, r.Version, true}
			continue
		}
		missing, at = append(missing, k), append(at, i)
	}
	if len(missing) == 0 {
		return nil
	}
	loaded, err := rows.Load(ctx, missing, nil)
	for i, r := range loaded {
		out[at[i]] = Reading{Value: r.Value, Version: r.Version}
		keep(missing[i], r)
	}
	return err
}

// Set implements System.
func (s *TTL) Set(ctx context.Context, key, value string) (uint64, error) {
	version, err := s.rows.Set(ctx, key, value)
	if err == nil {
		s.kept.Set(key, Row{value, version})
	}
	return version, err
}

// Close implements System.
func (s *TTL) Close() error {
	s.kept.StopAllGoroutines()
	return nil
}
