// Package linear is a cache that cannot be told apart from its store: every read returns the latest
// committed write, and most reads never leave memory.
//
// What may be relied on: for each key, reads, writes and updates through all nodes are
// linearizable, under delays, lost messages, crashes, pauses and hand-overs. This holds as long as
// every writer goes through freshet, the store keeps what it acknowledged, and clocks drift no more
// than the bound. What it costs: a hit takes one lookup and one clock reading; a write to a key
// whose owner died waits until that owner's lease ends.
//
// The protocol is package linear/clink, a machine without I/O. Package linear is its runtime: it
// keeps the entries, sends the requests to the store, and gives callers deadlines.
package linear

import (
	"context"
	"errors"
	"fmt"
	"hash/maphash"
	"log/slog"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"
	"unsafe"

	"github.com/maypok86/otter/v2"
	"golang.org/x/sync/singleflight"

	"github.com/freshet-cache/freshet/clock"
	"github.com/freshet-cache/freshet/internal/drive"
	"github.com/freshet-cache/freshet/linear/clink"
	"github.com/freshet-cache/freshet/shard"
	"github.com/freshet-cache/freshet/shard/lease"
	"github.com/freshet-cache/freshet/store"
	"github.com/freshet-cache/freshet/ticks"
)

// Store is what linear needs of a store. See package store for the promises.
type Store interface {
	Load(ctx context.Context, key string) (store.Row, error)
	Commit(ctx context.Context, id store.ID, muts []store.Mutation) ([]store.Stamp, error)
	SetGuard(ctx context.Context, low, high string, token store.Token) error
	Splits(ctx context.Context, low, high string) ([]string, error)
}

// Errors of writes. A read fails only if the store does.
var (
	// ErrNotOwner means that nothing was written, because this node does not own the key. Send the
	// write to the owner, or try again when the slice has an owner.
	ErrNotOwner = errors.New("linear: not the owner: nothing was written; send the write to the key's owner")
	// ErrOutcomeUnknown means that the write may have been applied, or may still be, at most once.
	// Read the key to find out; later writes to the key are ordered after this one.
	ErrOutcomeUnknown = errors.New("linear: outcome unknown: the write may or may not take effect; read the key to find out")
	// ErrBusy means that nothing was written, because too many writes wait for the key.
	ErrBusy = errors.New("linear: busy: nothing was written; too many writes wait for this key, try again later")
	// ErrClosed means that nothing was done: the cache is closed.
	ErrClosed = errors.New("linear: closed")

	errAside = errors.New("an invariant failed and this node only reads; restart it, and report what it logged")
)

// Options configure a Cache. Only Store and Codec are required.
type Options[V any] struct {
	Store Store
	Codec Codec[V]
	// MaxBytes bounds the memory of entries: keys, encoded values and the overhead of each. Default
	// 256 MiB; with a negative number the cache keeps nothing.
	MaxBytes int64
	// Timeout bounds each request to the store. The outcome of a request that takes longer is
	// unknown. Default 5 s.
	Timeout time.Duration
	// TTL is the time for which Set, SetAll, GetOrLoad and Tx.Set write keys. Default 0: for ever.
	TTL time.Duration
	// VersionsOnly keeps the versions of keys in memory and not their values. Version is answered
	// from memory; reads of values ask the store. A layered cache needs this, because its values
	// lie in a faster store (CRINK-L; WriteGuards, section 6.4).
	VersionsOnly bool
	// Queue bounds the writes that wait for one key. Default 4096.
	Queue int
	// Drift bounds how much this machine's clock may run fast or slow, in millionths. Default 200.
	Drift int64
	Clock clock.Clock
	// Peers are the other nodes of a cluster, which share the keys among themselves: the cache owns
	// the slices that Peers give it, takes their entries over, and locks keys at their owners.
	// Default: the cache owns every key, which is right only if no other process has opened the
	// store.
	Peers Peers
	// Recorder counts what happens. Default: nothing is recorded.
	Recorder Recorder
	// Logger receives what an operator should know. Default: the cache logs nothing.
	Logger *slog.Logger
}

func (o *Options[V]) check() error {
	switch {
	case o.Store == nil:
		return errors.New("linear: Options.Store is nil; give it a store, for example memory.New")
	case o.Codec == nil:
		return errors.New("linear: Options.Codec is nil; use linear.Bytes, linear.String or linear.JSON")
	case o.Timeout < 0:
		return fmt.Errorf("linear: Options.Timeout is %v; it must not be negative", o.Timeout)
	case o.TTL < 0:
		return fmt.Errorf("linear: Options.TTL is %v; it must not be negative, and 0 is for ever", o.TTL)
	}
	if o.Peers == nil {
		o.Peers = alone{}
	}
	if o.MaxBytes == 0 {
		o.MaxBytes = 256 << 20
	}
	if o.Timeout == 0 {
		o.Timeout = 5 * time.Second
	}
	if o.Drift <= 0 {
		o.Drift = 200
	}
	if o.Recorder == nil {
		o.Recorder = nobody{}
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	return nil
}

// Cache is a linearizable cache of values of type V under string keys, which are ordered by their
// bytes. All methods are safe for concurrent use. Readers share the values that the methods return:
// do not change what a value refers to.
type Cache[V any] struct {
	opt     Options[V]
	entries *otter.Cache[string, entry[V]] // reads are served from here
	kept    *otter.Cache[string, entry[V]] // the same map, except with VersionsOnly, when entries is empty
	_       [64]byte                       // keeps the fields that change off the cache line that every hit reads
	sampler sampler
	fates   fates
	missed  atomic.Uint64
	loads   singleflight.Group // of GetOrLoad, by key

	mu         sync.Mutex // guards the fields below, and every step of the machine
	pod        *clink.Pod
	validities map[lease.Gen]*validity // of leases, without expiry
	offering   map[chan struct{}]bool  // transfers of entries under way
	waiting    map[clink.Op]*waiter[V]
	crossOwner map[clink.ID]*locking[V]
	members    members
	ops        uint64
	closed     bool
	broken     bool // an invariant failed: reads go to the store, and nothing is kept
	retags     bool // a retag, which gives entries their current validity, is due

	work drive.Tasks // requests to the store under way
	pool *drive.Pool[request]
	ctx  context.Context
	stop context.CancelFunc
}

// entry is the latest state of a key, which may be served while its validity holds. It is small,
// because every hit copies it and a cache keeps millions.
type entry[V any] struct {
	value    V
	version  uint64 // the bit gone is set if the key is absent
	validity *validity
}

const gone = 1 << 63 // versions fit 63 bits

// The bytes that the map costs for an entry beyond the entry itself, and those that a TTL adds. The
// run linear-hit of freshet bench measures the first.
const (
	mapBytes   = 82
	rightBytes = 24
)

// New returns a cache.
func New[V any](opt Options[V]) (*Cache[V], error) {
	if err := opt.check(); err != nil {
		return nil, err
	}
	c := &Cache[V]{opt: opt, fates: fates{seed: maphash.MakeSeed()}, validities: map[lease.Gen]*validity{}, offering: map[chan struct{}]bool{}, waiting: map[clink.Op]*waiter[V]{}, crossOwner: map[clink.ID]*locking[V]{}}
	weigh := func(key string, e entry[V]) uint32 {
		w := len(key) + opt.Codec.Size(e.value) + int(unsafe.Sizeof(e)) + mapBytes
		if e.validity.until != 0 {
			w += rightBytes
		}
		return uint32(w)
	}
	var err error
	c.kept, err = otter.New(&otter.Options[string, entry[V]]{MaximumWeight: uint64(max(opt.MaxBytes, 1)), Weigher: weigh, OnAtomicDeletion: c.fate})
	if c.entries = c.kept; err == nil && opt.VersionsOnly {
		c.entries, err = otter.New(&otter.Options[string, entry[V]]{MaximumWeight: 1, Weigher: weigh})
	}
	if err != nil {
		return nil, fmt.Errorf("linear: the map of entries: %w", err)
	}
	c.ctx, c.stop = context.WithCancel(context.Background())
	c.pool = drive.NewPool(c.ctx, &c.work, c.performAll)
	c.pod = clink.NewPod(clink.Options{Incarnation: rand.Uint64(), Drift: opt.Drift, Queue: opt.Queue, Tags: true, Entry: c.entry})
	messenger, _ := opt.Peers.(Messenger)
	c.members = newMembers(messenger, opt.Drift)
	if _, single := opt.Peers.(alone); single {
		c.acquired(shard.NewHandle(lease.Lease{Gen: 1}, opt.Clock, 1<<63-1), 0)
	} else {
		opt.Peers.Join(part[V]{c})
	}
	return c, nil
}

// Entry is a key's state as a read found it.
type Entry[V any] struct {
	Value   V
	Exists  bool
	Version uint64        // of the row, or of its absence
	TTL     time.Duration // remaining TTL; 0 if the entry does not expire
	Hit     bool          // the entry was served from memory
	Copy    bool          // the key's owner is another node
	// Guarding says that this process owned the key but its guard was still being installed when
	// the read began. The cache did not keep what it read. See Ready.
	Guarding bool
	Joined   bool // the entry was not in memory, and this read shared another read's request to the store
}

// Get returns the value of key, and whether the key exists.
//
// A hit takes no lock, allocates nothing and reads the clock once. The read takes effect at the
// lookup of the entry. The lease held at the clock reading afterwards, so it held at the lookup,
// and the entry equalled the stored row.
func (c *Cache[V]) Get(ctx context.Context, key string) (V, bool, error) {
	if e, ok := c.entries.GetIfPresent(key); ok {
		now := c.opt.Clock.Now()
		if now&(sampleEvery-1) == 0 {
			c.sampler.note(key)
		}
		if e.validity.serves(now) || e.validity.heldBySuccessor(key, now) {
			return e.value, e.version&gone == 0, nil
		}
	}
	e, err := c.miss(ctx, key)
	return e.Value, e.Exists, err
}

// GetEntry is Get, and returns everything that the cache knows of the key.
func (c *Cache[V]) GetEntry(ctx context.Context, key string) (Entry[V], error) {
	if e, ok := c.Peek(key); ok {
		return e, nil
	}
	return c.miss(ctx, key)
}

// Peek returns the entry of key if memory can serve it now. Peek does not ask the store.
func (c *Cache[V]) Peek(key string) (Entry[V], bool) {
	e, ok := c.entries.GetIfPresent(key)
	if !ok {
		return Entry[V]{}, false
	}
	now := c.opt.Clock.Now()
	if now&(sampleEvery-1) == 0 {
		c.sampler.note(key)
	}
	if !e.validity.serves(now) && !e.validity.heldBySuccessor(key, now) {
		return Entry[V]{}, false
	}
	return e.public(now, c.opt.Drift), true
}

// Version returns the version of key's latest state, from memory if possible, and whether the key
// exists. The version is that of the row, or of its absence.
func (c *Cache[V]) Version(ctx context.Context, key string) (version uint64, exists bool, err error) {
	e, err := c.VersionEntry(ctx, key)
	return e.Version, e.Exists, err
}

// VersionEntry is Version, and says where the answer came from. The entry has no value if memory
// served it.
func (c *Cache[V]) VersionEntry(ctx context.Context, key string) (Entry[V], error) {
	if e, ok := c.kept.GetIfPresent(key); ok {
		now := c.opt.Clock.Now()
		if now&(sampleEvery-1) == 0 {
			c.sampler.note(key)
		}
		if e.validity.serves(now) || e.validity.heldBySuccessor(key, now) {
			return Entry[V]{Exists: e.version&gone == 0, Version: e.version &^ gone, Hit: true, Copy: e.validity.handle.Copy}, nil
		}
	}
	return c.miss(ctx, key)
}

// public returns the entry as readers see it.
func (e *entry[V]) public(now ticks.Tick, drift int64) Entry[V] {
	out := Entry[V]{Value: e.value, Exists: e.version&gone == 0, Version: e.version &^ gone, Hit: true, Copy: e.validity.handle.Copy}
	if until := e.validity.until; until != 0 {
		out.TTL = time.Duration(clink.Left(now, until, drift))
	}
	return out
}

// batch is how many keys Hits looks at with one reading of the clock.
const batch = 32

// Hits serves keys from memory, in order, until it comes to a key that memory cannot serve. It
// returns the number of entries that it stored in out, which must be at least as long as keys.
//
// Hits does what Peek does for each key at a lower price: after up to 32 lookups, one reading of
// the clock shows for all of them whether their leases held.
func (c *Cache[V]) Hits(keys []string, out []Entry[V]) (n int) {
	var found [batch]entry[V]
	for len(keys) > 0 {
		some := 0
		for some < min(len(keys), batch) {
			e, ok := c.entries.GetIfPresent(keys[some])
			if !ok {
				break
			}
			found[some] = e
			some++
		}
		if some == 0 {
			return n
		}
		now := c.opt.Clock.Now()
		if i := int(now & (sampleEvery - 1)); i < some {
			c.sampler.note(keys[i])
		}
		for i := range found[:some] {
			e := &found[i]
			if !e.validity.serves(now) && !e.validity.heldBySuccessor(keys[i], now) {
				return n
			}
			out[n] = e.public(now, c.opt.Drift)
			n++
		}
		if some < min(len(keys), batch) {
			return n
		}
		keys = keys[some:]
	}
	return n
}

// Set writes value to key for the time of Options.TTL. See SetTTL.
func (c *Cache[V]) Set(ctx context.Context, key string, value V) error {
	_, err := c.SetTTL(ctx, key, value, c.opt.TTL)
	return err
}

// MaxTTL is the longest TTL, a century. A longer TTL is shortened to it.
const MaxTTL = 100 * 365 * 24 * time.Hour

// SetTTL writes value to key for the time ttl, or for ever if ttl is 0, and returns the version that
// was committed. A nil error means that the write took effect once; the errors of this package say
// what else happened.
func (c *Cache[V]) SetTTL(ctx context.Context, key string, value V, ttl time.Duration) (uint64, error) {
	if ttl < 0 {
		return 0, fmt.Errorf("linear: %q was not written: its TTL of %v is negative; use 0 for ever", key, ttl)
	}
	b, err := c.opt.Codec.Append(nil, value)
	if err != nil {
		return 0, fmt.Errorf("linear: value of %q cannot be encoded, nothing was written: %w", key, err)
	}
	return c.write(ctx, clink.Mut{Key: key, Value: b, TTL: ticks.Tick(min(ttl, MaxTTL))})
}

// SetAll writes several keys, all at once or none: no reader sees one of them without the others.
// This node must own all the keys.
func (c *Cache[V]) SetAll(ctx context.Context, values map[string]V) error {
	if len(values) == 0 {
		return nil
	}
	muts := make([]clink.Mut, 0, len(values))
	for _, key := range slices.Sorted(maps.Keys(values)) {
		b, err := c.opt.Codec.Append(nil, values[key])
		if err != nil {
			return fmt.Errorf("linear: value of %q cannot be encoded, nothing was written: %w", key, err)
		}
		muts = append(muts, clink.Mut{Key: key, Value: b, TTL: ticks.Tick(min(c.opt.TTL, MaxTTL))})
	}
	_, err := c.write(ctx, muts...)
	return err
}

// Delete removes key, whether or not it exists, and returns the version of its absence.
func (c *Cache[V]) Delete(ctx context.Context, key string) (uint64, error) {
	return c.write(ctx, clink.Mut{Key: key, Delete: true})
}

// write returns the version of the first mutation.
func (c *Cache[V]) write(ctx context.Context, muts ...clink.Mut) (uint64, error) {
	for _, m := range muts {
		c.sampler.write(m.Key)
	}
	r, err := c.do(ctx, func(op clink.Op, _ *waiter[V]) clink.Input { return clink.Write{Op: op, Muts: muts} })
	if err != nil {
		return 0, err
	}
	return r.stamps[0].Version, nil
}

// Owns reports whether this node owns key now, and so would take a write to it.
func (c *Cache[V]) Owns(key string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.pod.Owns(c.opt.Clock.Now(), key)
}

// Close waits until no request to the store is under way, or until ctx ends, and then drops every
// entry. Requests that no caller waits for are not repeated, so a store that does not answer delays
// Close by Options.Timeout. Later calls fail with ErrClosed. Leave the cluster first; otherwise
// other nodes wait until the leases end.
func (c *Cache[V]) Close(ctx context.Context) error {
	c.mu.Lock()
	c.closed = true
	c.mu.Unlock()
	done := make(chan struct{})
	go func() {
		defer close(done)
		c.work.Wait()
	}()
	var err error
	select {
	case <-done:
	case <-ctx.Done():
		err = context.Cause(ctx)
	}
	c.stop()
	<-done
	c.work.Wait() // a lease that came meanwhile may have begun requests, which end at once
	c.pool.Wait()
	c.mu.Lock()
	for op, w := range c.waiting { // their requests were cancelled, so the outcome is unknown
		delete(c.waiting, op)
		w.reply <- answer[V]{err: fmt.Errorf("%w (%w)", ErrOutcomeUnknown, ErrClosed)}
	}
	c.mu.Unlock()
	c.kept.InvalidateAll()
	c.kept.StopAllGoroutines()
	c.entries.StopAllGoroutines()
	return err
}

// Len returns about how many entries are in memory.
func (c *Cache[V]) Len() int { return c.kept.EstimatedSize() }

// Bytes returns about how many bytes of memory the entries take.
func (c *Cache[V]) Bytes() int64 { return int64(c.kept.WeightedSize()) }

// leases returns how many leases the cache holds of slices that it owns, and how many of keys that
// it keeps copies of.
func (c *Cache[V]) leases() (own, copies int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.validities) - len(c.members.leases), len(c.members.leases)
}
