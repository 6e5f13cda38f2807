// Package pebble is the embedded store. What it acknowledged survives a SIGKILL at any moment. What
// a read returned is as durable as what a write was told. Commits to different keys share their
// syncs.
//
// Guards are soft state in memory: a restart forgets them, and the store then refuses every write
// that carries one.
package pebble

import (
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/maphash"
	"log/slog"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/freshet-cache/freshet/store"
	"github.com/freshet-cache/freshet/store/tablet"
)

// Options configure a Store. The zero value works.
type Options struct {
	// NoSync lets commits return before they are durable. A crash of the machine may lose the
	// latest commits; a crash of the process does not.
	NoSync bool
	// Unguarded lets every write commit, whatever token it carries. No promise holds then: the
	// option is for measuring what guards cost.
	Unguarded bool
	// MaxKey and MaxValue bound a row, in bytes. Defaults 4 KiB and 16 MiB.
	MaxKey, MaxValue int
	// MinFree is the free space, in bytes, below which writes are refused. Writes that only delete
	// are refused below a quarter of it. Default 64 MiB.
	MinFree uint64
	// Free returns the free space of a directory, in bytes. Default: what the system reports.
	Free func(dir string) (uint64, error)
	// CacheSize bounds the memory for blocks that were read, in bytes. Default 64 MiB.
	CacheSize int64
	// TabletBytes is the size, in bytes, above which a tablet is split. Default 256 MiB.
	TabletBytes uint64
	// Grace is how long deletes and expired rows are remembered. Default 10 min.
	Grace time.Duration
	// Sweep is how often the store looks for rows older than Grace. Default 30 s.
	Sweep time.Duration
	// Logger receives what an operator should know. Default: the store logs nothing.
	Logger *slog.Logger

	fs vfs.FS // default: the file system of the machine
}

// MaxFiles is about how many file descriptors a store keeps open.
const MaxFiles = 512

func (o *Options) defaults() {
	o.MaxKey = cmp.Or(o.MaxKey, 4<<10)
	o.MaxValue = cmp.Or(o.MaxValue, 16<<20)
	o.MinFree = cmp.Or(o.MinFree, 64<<20)
	o.CacheSize = cmp.Or(o.CacheSize, 64<<20)
	o.TabletBytes = cmp.Or(o.TabletBytes, 256<<20)
	o.Grace = cmp.Or(o.Grace, 10*time.Minute)
	o.Sweep = cmp.Or(o.Sweep, 30*time.Second)
	if o.Free == nil {
		o.Free = freeSpace
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
}

// Store is an open store. It is safe for concurrent use.
type Store struct {
	opt     Options
	dir     string
	db      *pebble.DB
	tablets *tablet.Map
	seed    maphash.Seed
	stripes [stripes]sync.RWMutex // a write of a key holds its stripe until it is durable; a read holds it too
	clock   clock
	space   space
	floor   atomic.Uint64 // no removed row has a higher version
	failed  atomic.Pointer[error]
	over    chan struct{} // closed when the store has failed
	closed  atomic.Bool
	calls   sync.RWMutex // held during calls, so that Close waits for them

	mu       sync.Mutex // guards the versions
	version  store.Version
	reserved store.Version

	stop context.CancelFunc
	done sync.WaitGroup
}

const (
	stripes  = 4096
	reserve  = 1 << 21 // so many versions are reserved at a time
	metaNext = "next version"
	metaLow  = "floor"
	metaTime = "clock"
	metaTabs = "tablets"
)

func (s *Store) stripe(key string) int { return int(maphash.String(s.seed, key) % stripes) }

func (s *Store) sync() *pebble.WriteOptions {
	if s.opt.NoSync {
		return pebble.NoSync
	}
	return pebble.Sync
}

// begin admits a call, unless the store is closed or has failed. The caller releases s.calls.
func (s *Store) begin() error {
	s.calls.RLock()
	err := s.ended()
	if s.closed.Load() {
		err = store.ErrClosed
	}
	if err != nil {
		s.calls.RUnlock()
	}
	return err
}

// Load returns the row of key, which is durable.
func (s *Store) Load(_ context.Context, key string) (store.Row, error) {
	if err := s.begin(); err != nil {
		return store.Row{}, err
	}
	defer s.calls.RUnlock()
	unlock, err := s.rlock(key)
	if err != nil {
		return store.Row{}, err
	}
	defer unlock()
	r, ok, err := s.get(key)
	if err != nil {
		return store.Row{}, err
	}
	out := store.Row{Version: store.Version(s.floor.Load())}
	if ok {
		if out, err = s.seen(r); err != nil {
			return store.Row{}, err
		}
		if out.Exists {
			if out.Value = r.value; out.Value == nil {
				out.Value = []byte{}
			}
		}
	}
	out.Guard = s.tablets.Guard(key)
	return out, nil
}

// rlock locks the stripe of a key for reading. It returns an error if the store fails in the
// meantime, because a writer may be stuck in pebble and never release the stripe.
func (s *Store) rlock(key string) (unlock func(), err error) {
	mu := &s.stripes[s.stripe(key)]
	if !mu.TryRLock() {
		got := make(chan struct{})
		go func() {
			mu.RLock()
			close(got)
		}()
		select {
		case <-got:
		case <-s.over:
			go func() { // the writer may release it after all
				<-got
				mu.RUnlock()
			}()
			return nil, s.ended()
		}
	}
	if err := s.ended(); err != nil {
		mu.RUnlock()
		return nil, err
	}
	return mu.RUnlock, nil
}

// ended returns why the store has failed, or nil.
func (s *Store) ended() error {
	if err := s.failed.Load(); err != nil {
		return fmt.Errorf("%w (%w)", store.ErrClosed, *err)
	}
	return nil
}

// seen returns a row as of now. It reads the clock only if the row expires.
func (s *Store) seen(r row) (store.Row, error) {
	if !r.expires() {
		return r.seen(0), nil
	}
	now, err := s.clock.now(s)
	return r.seen(now), err
}

// get reads a row. Its value is a copy.
func (s *Store) get(key string) (r row, ok bool, err error) {
	b, closer, err := s.db.Get(rowKey(key))
	if errors.Is(err, pebble.ErrNotFound) {
		return r, false, nil
	}
	if err != nil {
		return r, false, fmt.Errorf("pebble: reading %q: %w", key, err)
	}
	r, err = decodeRow(key, b)
	r.value = slices.Clone(r.value)
	return r, err == nil, errors.Join(err, closer.Close())
}

// Commit applies muts, all or none, and returns when they are durable.
func (s *Store) Commit(ctx context.Context, id store.ID, muts []store.Mutation) ([]store.Stamp, error) {
	if len(muts) == 0 {
		return nil, nil
	}
	if err := s.begin(); err != nil {
		return nil, err
	}
	defer s.calls.RUnlock()
	if err := s.admissible(muts); err != nil {
		return nil, err
	}
	if !s.opt.Unguarded {
		leave, err := s.tablets.Admit(ctx, muts)
		if err != nil {
			return nil, err
		}
		defer leave()
	}
	unlock := s.lock(muts)
	defer unlock()
	return s.commit(id, muts)
}

// admissible refuses mutations that the store can never keep, and those for which the disk has no
// room.
func (s *Store) admissible(muts []store.Mutation) error {
	for _, m := range muts {
		switch {
		case len(m.Key) == 0 || len(m.Key) > s.opt.MaxKey:
			return fmt.Errorf("%w: a key of %d bytes; keys have 1 to %d", store.ErrTooLarge, len(m.Key), s.opt.MaxKey)
		case len(m.Value) > s.opt.MaxValue:
			return fmt.Errorf("%w: a value of %d bytes under %q; values have up to %d", store.ErrTooLarge, len(m.Value), m.Key, s.opt.MaxValue)
		}
	}
	return s.space.check(s, muts)
}

// lock locks the stripes of the keys in order, each once, so that no two commits wait for each
// other.
func (s *Store) lock(muts []store.Mutation) (unlock func()) {
	if len(muts) == 1 {
		mu := &s.stripes[s.stripe(muts[0].Key)]
		mu.Lock()
		return mu.Unlock
	}
	var all []int
	for _, m := range muts {
		all = append(all, s.stripe(m.Key))
	}
	slices.Sort(all)
	all = slices.Compact(all)
	for _, i := range all {
		s.stripes[i].Lock()
	}
	return func() {
		for _, i := range all {
			s.stripes[i].Unlock()
		}
	}
}

// commit writes muts in one batch. The caller is inside the gates and holds the stripes.
func (s *Store) commit(id store.ID, muts []store.Mutation) ([]store.Stamp, error) {
	stamps := make([]store.Stamp, len(muts))
	batch := s.db.NewBatch()
	defer batch.Close()
	for i, m := range muts {
		was := row{}
		if m.Check || m.TTL == store.KeepTTL && !m.Delete {
			old, ok, err := s.get(m.Key)
			if err != nil {
				return nil, fmt.Errorf("%w (%w)", store.ErrConflict, err)
			}
			now := store.Row{Version: store.Version(s.floor.Load())}
			if ok {
				if now, err = s.seen(old); err != nil {
					return nil, err
				}
			}
			if m.Check && now.Version != m.Expect && (ok || m.Expect != 0) {
				return nil, fmt.Errorf("%w (key %q)", store.ErrConflict, m.Key)
			}
			if now.Exists { // an expired row has no deadline to keep
				was = old
			}
		}
		stamp, err := s.put(batch, id, m, was)
		if err != nil {
			return nil, err
		}
		stamps[i] = stamp
	}
	if err := s.apply(batch); err != nil {
		return nil, err
	}
	return stamps, nil
}

// put adds one mutation to a batch.
func (s *Store) put(batch *pebble.Batch, id store.ID, m store.Mutation, was row) (store.Stamp, error) {
	v, err := s.draw()
	if err != nil {
		return store.Stamp{}, err
	}
	r, now := row{exists: !m.Delete, version: v, writer: id, written: time.Now().UnixNano()}, int64(0)
	if m.Delete || m.TTL != 0 {
		if now, err = s.clock.now(s); err != nil {
			return store.Stamp{}, err
		}
	}
	switch {
	case m.Delete:
		r.at = now
	case m.TTL > 0:
		r.at = now + int64(m.TTL)
	case m.TTL == store.KeepTTL && was.expires():
		r.at = was.at
	}
	if !m.Delete {
		r.value = m.Value
	}
	k := rowKey(m.Key)
	op := batch.SetDeferred(len(k), rowHeader+len(r.value))
	copy(op.Key, k)
	r.append(op.Value[:0])
	if err := op.Finish(); err != nil {
		return store.Stamp{}, err
	}
	stamp := store.Stamp{Version: v}
	if r.at != 0 {
		if err := batch.Set(timeKey(r.at, m.Key), nil, nil); err != nil {
			return store.Stamp{}, err
		}
		if r.exists {
			stamp.TTL = max(1, time.Duration(r.at-now))
		}
	}
	return stamp, nil
}

// draw returns the next version. The store reserves many versions at a time, durably, so that no
// version is used twice even if its commit was lost.
func (s *Store) draw() (store.Version, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.version+2 >= s.reserved {
		next := s.reserved + reserve
		if err := s.set(metaKey(metaNext), binary.BigEndian.AppendUint64(nil, uint64(next)), pebble.Sync); err != nil {
			return 0, fmt.Errorf("%w: versions cannot be reserved: %w", store.ErrFull, err)
		}
		s.reserved = next
	}
	s.version += 2
	return s.version, nil
}

// SetGuard installs token over [low, high) when every write admitted there is done.
func (s *Store) SetGuard(ctx context.Context, low, high string, token store.Token) error {
	if err := s.begin(); err != nil {
		return err
	}
	defer s.calls.RUnlock()
	return s.tablets.SetGuard(ctx, low, high, token)
}

// Splits returns the tablet boundaries strictly inside (low, high).
func (s *Store) Splits(_ context.Context, low, high string) ([]string, error) {
	return s.tablets.Splits(low, high), nil
}

// Restart removes the guards of key's tablet, as a restart of the store does.
func (s *Store) Restart(ctx context.Context, key string) error { return s.tablets.Restart(ctx, key) }

// Split adds the tablet boundary at. A restart keeps it.
func (s *Store) Split(ctx context.Context, at string) error {
	if at == "" {
		return nil
	}
	return s.relayout(s.tablets.Split(ctx, at))
}

// Merge removes the tablet boundary at. A restart keeps the change.
func (s *Store) Merge(ctx context.Context, at string) error {
	return s.relayout(s.tablets.Merge(ctx, at))
}

// relayout stores the tablet boundaries. A crash may lose the latest one, because boundaries only
// say where guards are split.
func (s *Store) relayout(changed bool, err error) error {
	if err != nil || !changed {
		return err
	}
	if err := s.begin(); err != nil {
		return err
	}
	defer s.calls.RUnlock()
	return s.set(metaKey(metaTabs), appendList(nil, s.tablets.Splits("", "")), pebble.Sync)
}

// Close waits for the calls under way and closes the store. Later calls return store.ErrClosed.
func (s *Store) Close() error {
	if s.closed.Swap(true) {
		return nil
	}
	s.stop()
	s.done.Wait()
	s.calls.Lock()
	defer s.calls.Unlock()
	if s.failed.Load() != nil { // after a failure, closing pebble could wait for ever
		return nil
	}
	return s.db.Close()
}

// firstVersion returns the version at which a new store begins.
func firstVersion() store.Version { return store.FirstVersion(time.Now(), rand.Uint64()) }
