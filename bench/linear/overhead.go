package linear

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"time"
	"unsafe"

	"github.com/maypok86/otter/v2"

	"github.com/freshet-cache/freshet/bench/kit"
	"github.com/freshet-cache/freshet/check"
	"github.com/freshet-cache/freshet/linear"
	"github.com/freshet-cache/freshet/store"
	"github.com/freshet-cache/freshet/store/memory"
)

// fixed is a store of values that exist already, so that the memory of the cache can be measured
// without them. It takes no writes.
type fixed struct {
	mu     sync.Mutex
	guard  store.Token
	values []string
}

func (f *fixed) Load(_ context.Context, key string) (store.Row, error) {
	_, number, _ := strings.Cut(key, ":")
	i, err := strconv.Atoi(number)
	f.mu.Lock()
	defer f.mu.Unlock()
	return store.Row{Exists: true, Value: unsafe.Slice(unsafe.StringData(f.values[i]), hitValueBytes), Version: 2, Guard: f.guard}, err
}

func (f *fixed) Commit(context.Context, store.ID, []store.Mutation) ([]store.Stamp, error) {
	return nil, errors.ErrUnsupported
}

func (f *fixed) SetGuard(_ context.Context, _, _ string, token store.Token) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.guard = token
	return nil
}

func (f *fixed) Splits(context.Context, string, string) ([]string, error) { return nil, nil }

func heap() float64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.GC() // free what finalizers of the first collection held
	runtime.ReadMemStats(&m)
	return float64(m.HeapAlloc)
}

// overhead returns the bytes of an entry beyond its key and value, in the linear cache and in the
// bare map.
func overhead(ctx context.Context, n int) (freshet, bare float64, err error) {
	keys, values := make([]string, n), make([]string, n)
	for i := range n {
		keys[i], values[i] = hitKey(i), hitValue(i)
	}
	before := heap()
	m, err := otter.New(&otter.Options[string, string]{MaximumSize: 2 * n})
	if err != nil {
		return 0, 0, err
	}
	for i, k := range keys {
		m.Set(k, values[i])
	}
	m.CleanUp()
	bare = (heap() - before) / float64(n)
	m.StopAllGoroutines()
	runtime.KeepAlive(m)
	m = nil

	before = heap()
	c, err := linear.New(linear.Options[string]{Store: &fixed{values: values}, Codec: linear.String(), MaxBytes: 4 << 30})
	if err != nil {
		return 0, 0, err
	}
	if err := (&hits{cache: c}).warm(ctx, keys); err != nil {
		return 0, 0, err
	}
	freshet = (heap() - before) / float64(n)
	if c.Len() != n {
		return 0, 0, fmt.Errorf("the cache keeps %d of %d entries", c.Len(), n)
	}
	err = c.Close(ctx)
	runtime.KeepAlive(keys)
	return freshet, bare, err
}

// hitVerdict reads and writes a few keys of a cache from several goroutines and checks the answers.
// It returns how many there were and how many were wrong.
func hitVerdict(ctx context.Context, ops int, seed uint64) (checked, wrong int, err error) {
	c, err := linear.New(linear.Options[string]{Store: memory.New(memory.Options{}), Codec: linear.String()})
	if err != nil {
		return 0, 0, err
	}
	defer func() { err = errors.Join(err, c.Close(ctx)) }()
	const clients, keys = 4, 20
	began, all := time.Now(), make([][]check.Op, clients)
	var wg sync.WaitGroup
	for id := range clients {
		r := kit.Stream(seed, uint64(1000+id))
		wg.Go(func() {
			for i := range ops / clients {
				o := check.Op{Client: id, Kind: check.Read, Key: hitKey(r.IntN(keys)), Start: int64(time.Since(began)), Outcome: check.OK}
				var err error
				if r.IntN(20) == 0 {
					o.Kind, o.Value = check.Write, fmt.Sprintf("%d.%d", id, i)
					err = c.Set(ctx, o.Key, o.Value)
				} else {
					o.Value, o.Found, err = c.Get(ctx, o.Key)
				}
				if o.End = int64(time.Since(began)); err != nil {
					o.Outcome = check.Unknown
				}
				all[id] = append(all[id], o)
			}
		})
	}
	wg.Wait()
	return kit.Judged(all...)
}
