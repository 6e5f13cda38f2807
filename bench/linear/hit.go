package linear

import (
	"context"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/maypok86/otter/v2"

	"github.com/freshet-cache/freshet/bench/kit"
	"github.com/freshet-cache/freshet/linear"
	"github.com/freshet-cache/freshet/linear/clink"
	"github.com/freshet-cache/freshet/store"
	"github.com/freshet-cache/freshet/store/memory"
)

// The systems of linear-hit: one Get at a time; Hits of 32 keys; the bare map that linear uses;
// this map with one reading of the clock after each look-up, as every check of a lease needs; and
// that reading alone.
var hitSystems = []string{"freshet", "freshet-batch", "otter", "otter+clock", "clock"}

// hotSet is what a round of linear-hit reads.
type hotSet struct {
	keys int
	// full means that the memory is nearly full. From half of its bound on, the map maintains the
	// order of use.
	full bool
}

func (h hotSet) String() string {
	if h.full {
		return fmt.Sprintf("%d keys, memory full", h.keys)
	}
	return fmt.Sprintf("%d keys", h.keys)
}

// bound returns the bound of a map for this hot set, if each entry has the given weight.
func (h hotSet) bound(each int) int64 {
	if h.full {
		return int64(h.keys) * int64(each) * 10 / 9
	}
	return 4 << 30
}

// hitSizes are the sizes of a run of linear-hit.
type hitSizes struct {
	hot             []hotSet
	entries         int // for the memory overhead
	rounds, verdict int // operations for the checker
	allocs          int // operations whose allocations are counted
	round           time.Duration
}

func hitSizesOf(o kit.Options) hitSizes {
	switch {
	case o.Preset == "tiny":
		return hitSizes{[]hotSet{{100, false}, {300, true}}, 2000, 2, 400, 10_000, time.Millisecond}
	case o.Preset == "paper":
		return hitSizes{[]hotSet{{10_000, false}, {10_000, true}, {1_000_000, false}}, 1_000_000, 15, 200_000, 1_000_000, 500 * time.Millisecond}
	}
	return hitSizes{[]hotSet{{10_000, false}, {10_000, true}, {1_000_000, false}}, 1_000_000, 4, 50_000, 500_000, 120 * time.Millisecond}
}

const (
	hitValueBytes = 100
	keyAndValue   = len("object:000000000") + hitValueBytes
	hitOverhead   = 114     // the overhead that linear counts for an entry
	hitChunk      = 1 << 13 // operations between two readings of the clock
)

// hits has the systems over one hot set.
type hits struct {
	keys   []string // equal to the keys of the entries, at other addresses
	order  []uint32 // the order of keys, in whole chunks
	cache  *linear.Cache[string]
	bare   *otter.Cache[string, string]
	base   time.Time
	misses misses
}

func hitKey(i int) string { return fmt.Sprintf("object:%09d", i) }

func hitValue(i int) string {
	return fmt.Sprintf("%-*d", hitValueBytes, i)
}

// misses counts reads that the cache could not serve from memory.
type misses struct{ atomic.Int64 }

// Miss counts one.
func (m *misses) Miss(linear.MissCause) { m.Add(1) }

func (*misses) Event(clink.EventKind)                            {}
func (*misses) StoreCall(linear.StoreCall, time.Duration, error) {}
func (*misses) SteppedAside()                                    {}

// newHits fills a cache over a store in memory, and a bare map, with a hot set.
func newHits(ctx context.Context, set hotSet, seed uint64) (*hits, error) {
	h, n := &hits{base: time.Now()}, set.keys
	st := memory.New(memory.Options{})
	var muts []store.Mutation
	for i := range n {
		h.keys = append(h.keys, hitKey(i))
		muts = append(muts, store.Mutation{Key: h.keys[i], Value: []byte(hitValue(i))})
		if len(muts) == 1000 || i == n-1 {
			if _, err := st.Commit(ctx, store.ID{byte(i), byte(i >> 8), byte(i >> 16), 1}, muts); err != nil {
				return nil, err
			}
			muts = muts[:0]
		}
	}
	h.order = kit.Uniform(kit.Stream(seed, uint64(n)), max(hitChunk, min(4*n, 1<<20)/hitChunk*hitChunk), n)
	var err error
	h.cache, err = linear.New(linear.Options[string]{Store: st, Codec: linear.String(), MaxBytes: set.bound(keyAndValue + hitOverhead), Recorder: &h.misses})
	if err != nil {
		return nil, err
	}
	// The bare map has the same bound. A bounded map does the bookkeeping that a cache needs; an
	// unbounded map is no cache.
	weigh := func(k, v string) uint32 { return uint32(len(k) + len(v)) }
	if h.bare, err = otter.New(&otter.Options[string, string]{MaximumWeight: uint64(set.bound(keyAndValue)), Weigher: weigh}); err != nil {
		return nil, err
	}
	for i, k := range copies(h.keys) {
		h.bare.Set(k, hitValue(i))
	}
	return h, h.warm(ctx, copies(h.keys))
}

// copies returns equal strings at other addresses. Go compares strings that share their bytes
// without reading them, and the key of a request never shares them.
func copies(keys []string) []string {
	out := make([]string, len(keys))
	for i, k := range keys {
		out[i] = strings.Clone(k)
	}
	return out
}

// warm reads every key until all keys are served from memory.
func (h *hits) warm(ctx context.Context, keys []string) error {
	for range 100 {
		cold := 0
		for _, k := range keys {
			if _, ok := h.cache.Peek(k); ok {
				continue
			}
			cold++
			if _, _, err := h.cache.Get(ctx, k); err != nil {
				return err
			}
		}
		if cold == 0 {
			return nil
		}
	}
	return fmt.Errorf("of %d keys some are still not in memory after 100 reads of each", len(keys))
}

// chunk runs one chunk of operations of a system. It returns how many of them were no hits.
func (h *hits) chunk(ctx context.Context, system string, order []uint32) (bad int) {
	switch system {
	case "freshet":
		for _, i := range order {
			if _, ok, err := h.cache.Get(ctx, h.keys[i]); !ok || err != nil {
				bad++
			}
		}
	case "freshet-batch":
		var keys [32]string
		var out [32]linear.Entry[string]
		for part := range slices.Chunk(order, len(keys)) {
			for at, i := range part {
				keys[at] = h.keys[i]
			}
			bad += len(part) - h.cache.Hits(keys[:len(part)], out[:])
		}
	case "otter":
		for _, i := range order {
			if _, ok := h.bare.GetIfPresent(h.keys[i]); !ok {
				bad++
			}
		}
	case "otter+clock":
		for _, i := range order {
			if _, ok := h.bare.GetIfPresent(h.keys[i]); !ok || time.Since(h.base) == 0 {
				bad++
			}
		}
	case "clock":
		for range order {
			if time.Since(h.base) == 0 {
				bad++
			}
		}
	}
	return bad
}

// round runs a system in several goroutines. It returns the nanoseconds of an operation in one of
// them, and its processor time. The latter is more if the system works in the background, and less
// if other processes ran.
func (h *hits) round(ctx context.Context, system string, goroutines int, d time.Duration) (wall, cpu float64, err error) {
	var ops, bad, spent atomic.Int64
	before := h.misses.Load()
	var wg sync.WaitGroup
	start := make(chan struct{})
	for g := range goroutines {
		wg.Go(func() {
			<-start
			began, n, wrong := time.Now(), 0, 0
			for at := g * (len(h.order) / hitChunk / goroutines) * hitChunk; time.Since(began) < d; n += hitChunk {
				at %= len(h.order)
				wrong += h.chunk(ctx, system, h.order[at:at+hitChunk])
				at += hitChunk
			}
			spent.Add(int64(time.Since(began)))
			ops.Add(int64(n))
			bad.Add(int64(wrong))
		})
	}
	busy := kit.OwnCPU()
	close(start)
	wg.Wait()
	busy = kit.OwnCPU() - busy
	if n := bad.Load() + h.misses.Load() - before; n > 0 {
		return 0, 0, fmt.Errorf("%s: %d of %d operations were no hits", system, n, ops.Load())
	}
	return float64(spent.Load()) / float64(ops.Load()), float64(busy) / float64(ops.Load()), nil
}

// allocs returns the allocations per operation, over about ops operations.
func (h *hits) allocs(ctx context.Context, system string, ops int) float64 {
	var before, after runtime.MemStats
	n := 0
	runtime.GC()
	runtime.ReadMemStats(&before)
	for ; n < ops; n += hitChunk {
		at := n % len(h.order)
		h.chunk(ctx, system, h.order[at:at+hitChunk])
	}
	runtime.ReadMemStats(&after)
	return float64(after.Mallocs-before.Mallocs) / float64(n)
}

// wrong counts the keys whose value in either system differs from the one that was written.
func (h *hits) wrong(ctx context.Context) (freshet, bare int) {
	for i, k := range h.keys {
		want := hitValue(i)
		if v, _, err := h.cache.Get(ctx, k); err != nil || v != want {
			freshet++
		}
		if v, _ := h.bare.GetIfPresent(k); v != want {
			bare++
		}
	}
	return freshet, bare
}

func (h *hits) close(ctx context.Context) error {
	h.bare.StopAllGoroutines()
	return h.cache.Close(ctx)
}
