package baseline

import (
	"context"
	"fmt"
	"time"

	"github.com/redis/rueidis"
)

// Aside is client-side caching through rueidis over a database: a common choice of applications for
// which a TTL is not enough. The database is the source of truth. A read asks the cache of the
// client, which redis-server invalidates (CLIENT TRACKING in RESP3), then redis-server, then the
// database, and writes the row that it found to redis-server with a TTL. A write commits in the
// database and then deletes the key in redis-server.
//
// Reads can be stale in two ways, both of which are common practice. First, a read that has loaded
// a row may store it in redis-server after a later write has deleted the key; the stale row lasts
// until its TTL ends. Second, other instances receive the invalidation some time after the write
// was acknowledged.
type Aside struct {
	rows   Rows
	client rueidis.Client
	prefix string
	ttl    time.Duration
}

// NewAside returns an instance with this much memory, with the redis-server at addr. Rows have this
// TTL there, and all names begin with prefix.
func NewAside(rows Rows, addr, prefix string, bytes int, ttl time.Duration) (*Aside, error) {
	c, err := rueidis.NewClient(rueidis.ClientOption{InitAddress: []string{addr}, ForceSingleClient: true, CacheSizeEachConn: bytes})
	if err != nil {
		return nil, fmt.Errorf("baseline: redis-server: %w", err)
	}
	return &Aside{rows, c, prefix, ttl}, nil
}

// Get implements System. A hit is a read that needs nothing from the database.
func (s *Aside) Get(ctx context.Context, keys []string, out []Reading) error {
	asks := make([]rueidis.CacheableTTL, len(keys))
	for i, k := range keys {
		asks[i] = rueidis.CT(s.client.B().Get().Key(s.prefix+k).Cache(), s.ttl)
	}
	found := make(map[string]Row, len(keys))
	for i, r := range s.client.DoMultiCache(ctx, asks...) {
		switch text, err := r.ToString(); {
		case err == nil:
			found[keys[i]] = unpack(text)
		case !rueidis.IsRedisNil(err):
			return fmt.Errorf("baseline: redis-server: %w", err)
		}
	}
	var sets rueidis.Commands
	err := throughMap(ctx, s.rows, keys, out, func(key string) (Row, bool) { r, ok := found[key]; return r, ok }, func(key string, r Row) {
		sets = append(sets, s.client.B().Set().Key(s.prefix+key).Value(pack(r)).Px(s.ttl).Build())
	})
	for _, r := range s.client.DoMulti(ctx, sets...) {
		if err := r.Error(); err != nil {
			return fmt.Errorf("baseline: redis-server: %w", err)
		}
	}
	return err
}

// Set implements System.
func (s *Aside) Set(ctx context.Context, key, value string) (uint64, error) {
	version, err := s.rows.Set(ctx, key, value)
	if err != nil {
		return 0, err
	}
	if err := s.client.Do(ctx, s.client.B().Del().Key(s.prefix+key).Build()).Error(); err != nil {
		return 0, fmt.Errorf("baseline: redis-server: %w", err)
	}
	return version, nil
}

// Close implements System.
func (s *Aside) Close() error {
	s.client.Close()
	return nil
}
