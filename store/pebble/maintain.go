package pebble

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"sync"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"golang.org/x/sys/unix"

	"github.com/freshet-cache/freshet/store"
)

// clock is the store's clock. It never steps back, not even across restarts: before the clock
// passes bound, the store makes a later bound durable.
type clock struct {
	mu    sync.Mutex
	base  int64
	since time.Time
	bound int64
}

const ahead = int64(time.Second) // a crash may make the clock jump forward by this much

func (c *clock) start(bound int64) {
	c.since = time.Now()
	c.base, c.bound = max(c.since.UnixNano(), bound), bound
}

// now returns the time in Unix nanoseconds. The store needs it only for rows that expire and for
// deletes.
func (c *clock) now(s *Store) (int64, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := c.base + int64(time.Since(c.since))
	if now < c.bound {
		return now, nil
	}
	bound := now + ahead
	if err := s.set(metaKey(metaTime), binary.BigEndian.AppendUint64(nil, uint64(bound)), pebble.Sync); err != nil {
		return 0, fmt.Errorf("%w: the clock cannot be written down: %w", store.ErrFull, err)
	}
	c.bound = bound
	return now, nil
}

// space refuses writes before the disk is full, so that pebble never meets a full disk. Users make
// room by deletes, so deletes may use most of the space that is kept free.
type space struct {
	mu      sync.Mutex
	checked time.Time
	written uint64
	free    uint64
	known   bool // whether free is known
}

func (p *space) check(s *Store, muts []store.Mutation) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	least := s.opt.MinFree / 4
	for _, m := range muts {
		p.written += uint64(len(m.Key) + len(m.Value))
		if !m.Delete {
			least = s.opt.MinFree
		}
	}
	if time.Since(p.checked) >= 100*time.Millisecond || p.written >= s.opt.MinFree/8 {
		free, err := s.opt.Free(s.dir)
		p.checked, p.written, p.free, p.known = time.Now(), 0, free, err == nil
	}
	if p.known && p.free < least {
		return fmt.Errorf("%w: %d MiB are free in %s, and %d MiB are kept free; deletes are taken until %d MiB are free", store.ErrFull, p.free>>20, s.dir, s.opt.MinFree>>20, s.opt.MinFree>>22)
	}
	return nil
}

func freeSpace(dir string) (uint64, error) {
	var st unix.Statfs_t
	if err := unix.Statfs(dir, &st); err != nil {
		return 0, err
	}
	return st.Bavail * uint64(st.Bsize), nil
}

// sweep removes deletes and expired rows that are older than Options.Grace.
func (s *Store) sweep(ctx context.Context) error {
	if err := s.begin(); err != nil {
		return nil
	}
	defer s.calls.RUnlock()
	it, err := s.db.NewIter(&pebble.IterOptions{LowerBound: []byte{'t'}, UpperBound: []byte{'t' + 1}})
	if err != nil {
		return err
	}
	defer it.Close()
	for ok := it.First(); ok && ctx.Err() == nil; ok = it.Next() {
		k := bytes.Clone(it.Key())
		if len(k) < 9 {
			return fmt.Errorf("%w: the index by time has a key of %d bytes", ErrDamaged, len(k))
		}
		at := int64(binary.BigEndian.Uint64(k[1:]))
		now, err := s.clock.now(s)
		if err != nil {
			return err
		}
		if at > now-int64(s.opt.Grace) {
			break
		}
		if err := s.forget(string(k[9:]), at, k); err != nil {
			return err
		}
	}
	return it.Error()
}

// forget removes a row if it is still the one of the index entry.
func (s *Store) forget(key string, at int64, index []byte) error {
	mu := &s.stripes[s.stripe(key)]
	mu.Lock()
	defer mu.Unlock()
	r, ok, err := s.get(key)
	if err != nil {
		return err
	}
	batch := s.db.NewBatch()
	defer batch.Close()
	if err := batch.Delete(index, nil); err != nil {
		return err
	}
	if ok && r.at == at {
		floor := max(s.floor.Load(), uint64(r.version)+1)
		s.floor.Store(floor) // before the row is gone, because absence must not get an older version
		if err := batch.Delete(rowKey(key), nil); err != nil {
			return err
		}
		if err := batch.Set(metaKey(metaLow), binary.BigEndian.AppendUint64(nil, floor), nil); err != nil {
			return err
		}
	}
	return s.applyLater(batch) // after a crash the next sweep repeats this
}

// grow splits tablets that are larger than Options.TabletBytes.
func (s *Store) grow(ctx context.Context) error {
	points := append([]string{""}, s.tablets.Splits("", "")...)
	for i, low := range points {
		high := ""
		upper := []byte{'r' + 1}
		if i+1 < len(points) {
			high = points[i+1]
			upper = rowKey(high)
		}
		size, err := s.db.EstimateDiskUsage(rowKey(low), upper)
		if err != nil {
			return err
		}
		if size <= s.opt.TabletBytes {
			continue
		}
		at, err := s.middle(ctx, rowKey(low), upper)
		if err != nil || at == "" {
			return err
		}
		if err := s.Split(ctx, at); err != nil {
			return err
		}
	}
	return nil
}

// middle returns a key with about as many bytes of rows before it as behind it.
func (s *Store) middle(ctx context.Context, low, high []byte) (string, error) {
	it, err := s.db.NewIter(&pebble.IterOptions{LowerBound: low, UpperBound: high})
	if err != nil {
		return "", err
	}
	defer it.Close()
	half, total := 0, 0
	for range 2 { // the first pass finds the total, the second pass half of it
		sum := 0
		for ok := it.First(); ok && ctx.Err() == nil; ok = it.Next() {
			v, err := it.ValueAndErr()
			if err != nil {
				return "", err
			}
			if sum += len(it.Key()) + len(v); half > 0 && sum >= half {
				return string(it.Key()[1:]), nil
			}
		}
		total = sum
		half = total / 2
	}
	return "", it.Error()
}

// maxLook bounds the rows that one Scan reads.
const maxLook = 100_000

// Scan returns up to limit keys that exist, from the first one at or after from. next is where to
// continue unless done. It may return few keys, or none, before the end.
func (s *Store) Scan(ctx context.Context, from string, limit int) (keys []string, next string, done bool, err error) {
	if err := s.begin(); err != nil {
		return nil, "", false, err
	}
	defer s.calls.RUnlock()
	it, err := s.db.NewIter(&pebble.IterOptions{LowerBound: rowKey(from), UpperBound: []byte{'r' + 1}})
	if err != nil {
		return nil, "", false, err
	}
	defer it.Close()
	looked := 0
	for ok := it.First(); ok; ok = it.Next() {
		key := string(it.Key()[1:])
		if len(keys) >= limit || looked >= maxLook || ctx.Err() != nil {
			return keys, key, false, ctx.Err()
		}
		looked++
		b, err := it.ValueAndErr()
		if err != nil {
			return nil, "", false, err
		}
		r, err := decodeRow(key, b)
		if err != nil {
			return nil, "", false, err
		}
		if seen, err := s.seen(r); err != nil {
			return nil, "", false, err
		} else if seen.Exists {
			keys = append(keys, key)
		}
	}
	return keys, "", true, it.Error()
}

// Count returns how many keys exist. It reads all rows.
func (s *Store) Count(ctx context.Context) (n int, err error) {
	for from, done := "", false; !done; {
		var keys []string
		if keys, from, done, err = s.Scan(ctx, from, maxLook); err != nil {
			return 0, err
		}
		n += len(keys)
	}
	return n, nil
}
