package layered

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/rueidis"
	"go.uber.org/goleak"

	"github.com/freshet-cache/freshet/linear"
	"github.com/freshet-cache/freshet/store"
	"github.com/freshet-cache/freshet/store/memory"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// liar is a value cache that keeps every item it was ever given, and answers with any of
// them, or with none, or late, or with something else altogether.
type liar struct {
	mu    sync.Mutex
	items map[string][][]byte
	rng   *rand.Rand
	lies  int // percent
}

func (l *liar) Get(ctx context.Context, key string) ([]byte, bool, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	all, n := l.items[key], l.rng.IntN(100)
	switch {
	case len(all) == 0 || n < l.lies/4:
		return nil, false, nil
	case n < l.lies/3:
		return []byte("what a stranger left"), true, nil
	case n < l.lies/2:
		return nil, false, errors.New("the value cache is gone")
	case n < l.lies:
		return all[l.rng.IntN(len(all))], true, nil
	}
	return all[len(all)-1], true, nil
}

func (l *liar) Set(_ context.Context, key string, item []byte, _ time.Duration) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.rng.IntN(100) < l.lies/4 {
		return errors.New("the value cache is gone")
	}
	l.items[key] = append(l.items[key], item)
	return nil
}

// counted counts how often the source of truth is read.
type counted struct {
	*memory.Store
	loads atomic.Int64
}

func (c *counted) Load(ctx context.Context, key string) (store.Row, error) {
	c.loads.Add(1)
	return c.Store.Load(ctx, key)
}

func versions(t testing.TB) (*linear.Cache[string], *counted) {
	t.Helper()
	s := &counted{Store: memory.New(memory.Options{})}
	c, err := linear.New(linear.Options[string]{Store: s, Codec: linear.String(), VersionsOnly: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close(context.Background()) })
	return c, s
}

func client(t testing.TB, v Versions, values Values) *Client {
	t.Helper()
	c, err := New(Options{Versions: v, Values: values})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close(context.Background()) })
	return c
}

// Whatever the value cache does, a read returns the latest write that was acknowledged
// before it began, or a later one, and never goes back.
func TestNothingRestsOnTheValueCache(t *testing.T) {
	cache, _ := versions(t)
	l := &liar{items: map[string][][]byte{}, rng: rand.New(rand.NewPCG(1, 2)), lies: 60}
	c := client(t, Local(cache), l)
	ctx := t.Context()
	var wg sync.WaitGroup
	for k := range 3 {
		key := fmt.Sprint("k", k)
		var acked atomic.Int64
		wg.Go(func() {
			for i := 1; i <= 400; i++ {
				if err := c.Set(ctx, key, strconv.Itoa(i)); err != nil {
					t.Error(err)
				}
				acked.Store(int64(i))
			}
		})
		for range 2 {
			wg.Go(func() {
				for last := int64(0); acked.Load() < 400; {
					before := acked.Load()
					v, _, err := c.Get(ctx, key)
					n, _ := strconv.ParseInt(v, 10, 64)
					if err != nil || n < before || n < last {
						t.Errorf("%s is %q, though %d was acknowledged and %d was read before: %v", key, v, before, last, err)
						return
					}
					last = n
				}
			})
		}
	}
	wg.Wait()
	for k := range 3 { // at rest, the same must come from the value cache now and then
		for range 50 {
			if v, ok, err := c.Get(ctx, fmt.Sprint("k", k)); v != "400" || !ok || err != nil {
				t.Fatalf("%q %v %v", v, ok, err)
			}
		}
	}
	if s := c.Stats(); s.Hits == 0 || s.Older == 0 || s.Missing == 0 || s.Dropped == 0 {
		t.Errorf("%+v: something never happened", s)
	}
}

// odd is a version service whose writes are all overwritten in the same instant.
type odd struct{ Versions }

func (odd) SetTTL(context.Context, string, string, time.Duration) (uint64, error) { return 3, nil }
func (odd) Delete(context.Context, string) (uint64, error)                        { return 3, nil }

// What was overwritten in the same instant is not told: its version has no reader.
func TestOverwritten(t *testing.T) {
	cache, _ := versions(t)
	l := &liar{items: map[string][][]byte{}, rng: rand.New(rand.NewPCG(1, 2))}
	c := client(t, odd{Local(cache)}, l)
	if err := errors.Join(c.Set(t.Context(), "k", "v"), c.Delete(t.Context(), "k"), c.Close(t.Context())); err != nil {
		t.Fatal(err)
	}
	if len(l.items) > 0 {
		t.Errorf("the value cache was told %q", l.items)
	}
}

// silent has no version to tell.
type silent struct{ Versions }

func (silent) Version(context.Context, string) (uint64, bool, error) {
	return 0, false, errors.New("the version service is gone")
}

func TestWithoutVersions(t *testing.T) {
	cache, s := versions(t)
	l := &liar{items: map[string][][]byte{}, rng: rand.New(rand.NewPCG(1, 2))}
	c := client(t, silent{Local(cache)}, l)
	ctx := t.Context()
	if err := c.Set(ctx, "k", "new"); err != nil {
		t.Fatal(err)
	}
	if err := c.Close(ctx); err != nil { // what it has sent has arrived
		t.Fatal(err)
	}
	l.items["k"] = [][]byte{Append(nil, Item{Version: 2, Exists: true, Value: "old"})}
	before := s.loads.Load()
	if v, ok, err := c.Get(ctx, "k"); v != "new" || !ok || err != nil || s.loads.Load() == before {
		t.Errorf("without the version service: %q %v %v", v, ok, err)
	}
	if v, ok, err := c.Unchecked(ctx, "k"); !ok || err != nil || v != "old" && v != "new" {
		t.Errorf("unchecked: %q %v %v", v, ok, err)
	}
	for _, opt := range []Options{{}, {Versions: Local(cache)}, {Versions: Local(cache), Values: l, Patience: -1}} {
		if _, err := New(opt); err == nil {
			t.Errorf("%+v was taken", opt)
		}
	}
}

// A layered cache over a real Redis: values come from there, the source of truth is asked
// once for each, and an older item never takes the place of a newer one.
func TestRedis(t *testing.T) {
	addr := os.Getenv("FRESHET_TEST_REDIS")
	if addr == "" {
		if os.Getenv("FRESHET_TEST_REQUIRE") != "" {
			t.Fatal("FRESHET_TEST_REDIS is not set, and FRESHET_TEST_REQUIRE is")
		}
		t.Skip("no Redis: run scripts/with-servers, or set FRESHET_TEST_REDIS")
	}
	rc, err := rueidis.NewClient(rueidis.ClientOption{InitAddress: []string{addr}, DisableCache: true})
	if err != nil {
		t.Fatal(err)
	}
	defer rc.Close()
	cache, s := versions(t)
	prefix := fmt.Sprintf("layered-%d:", time.Now().UnixNano())
	c := client(t, Local(cache), Redis(rc, prefix))
	ctx := t.Context()
	want := func(key, value string, exists bool) {
		t.Helper()
		if v, ok, err := c.Get(ctx, key); v != value || ok != exists || err != nil {
			t.Fatalf("%s is %q %v %v", key, v, ok, err)
		}
	}
	want("k", "", false)
	if err := c.SetTTL(ctx, "k", "one\x00\xff", time.Hour); err != nil {
		t.Fatal(err)
	}
	raw := func() string {
		b, _ := rc.Do(ctx, rc.B().Get().Key(prefix+"k").Build()).ToString()
		return b
	}
	for raw() == "" { // until it has arrived; what was dropped is sent again by a read
		want("k", "one\x00\xff", true)
	}
	before := s.loads.Load()
	for range 100 {
		want("k", "one\x00\xff", true)
	}
	if n := s.loads.Load() - before; n != 0 {
		t.Errorf("%d reads asked the source of truth", n)
	}
	old := raw()
	if err := c.Set(ctx, "k", "two"); err != nil {
		t.Fatal(err)
	}
	for raw() == old {
		want("k", "two", true)
	}
	for _, item := range []string{old, string(Append(nil, Item{Version: 1, Exists: true, Value: "x"}))} {
		if err := Redis(rc, prefix).Set(ctx, "k", []byte(item), time.Hour); err != nil {
			t.Fatal(err)
		}
	}
	hits := c.Stats().Hits
	if want("k", "two", true); c.Stats().Hits != hits+1 {
		t.Error("an older item took the place of a newer one")
	}
	strangers(t, c, rc, prefix, old)
	if err := c.Delete(ctx, "k"); err != nil {
		t.Fatal(err)
	}
	want("k", "", false)
	if v, ok, err := c.Unchecked(ctx, "nobody"); v != "" || ok || err != nil {
		t.Errorf("unchecked, nothing: %q %v %v", v, ok, err)
	}
}

// strangers write something else where values are kept, or resurrect what was there: reads
// of k, which is two, do not notice.
func strangers(t *testing.T, c *Client, rc rueidis.Client, prefix, old string) {
	ctx := t.Context()
	for _, junk := range []string{old, "junk", "\xf5fr"} {
		if err := rc.Do(ctx, rc.B().Set().Key(prefix+"k").Value(junk).Build()).Error(); err != nil {
			t.Fatal(err)
		}
		if v, ok, err := c.Get(ctx, "k"); v != "two" || !ok || err != nil {
			t.Fatalf("beside %q: %q %v %v", junk, v, ok, err)
		}
	}
	if err := rc.Do(ctx, rc.B().Lpush().Key(prefix+"list").Element("x").Build()).Error(); err != nil {
		t.Fatal(err)
	}
	if v, ok, err := c.Get(ctx, "list"); v != "" || ok || err != nil {
		t.Fatalf("a list: %q %v %v", v, ok, err)
	}
}

func FuzzParse(f *testing.F) {
	f.Add(Append(nil, Item{Version: 7, Exists: true, Value: "v"}))
	f.Add(Append(nil, Item{Version: 7}))
	f.Fuzz(func(t *testing.T, b []byte) {
		if i, err := Parse(b); err == nil && string(Append(nil, i)) != string(b) {
			t.Fatalf("%q is %+v", b, i)
		}
	})
}
