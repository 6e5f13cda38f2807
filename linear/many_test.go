package linear

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/freshet-cache/freshet/store"
	"github.com/freshet-cache/freshet/store/memory"
)

// A key that does not exist is made by one caller while the others wait for it; the value is in the
// store with the time of Options.TTL, and the next reads come from memory or are made anew when
// the time has passed.
func TestGetOrLoad(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		st := memory.New(memory.Options{})
		c, err := New(Options[string]{Store: st, Codec: String(), TTL: time.Hour})
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = c.Close(context.Background()) }()
		ctx := t.Context()
		var loads atomic.Int64
		load := func(ctx context.Context, key string) (string, error) {
			time.Sleep(time.Second)
			return fmt.Sprint(key, " ", loads.Add(1)), ctx.Err()
		}
		got := make(chan string, 10)
		for range 10 {
			go func() {
				v, err := c.GetOrLoad(ctx, "k", load)
				got <- fmt.Sprint(v, " ", err)
			}()
		}
		for range 10 {
			if v := <-got; v != "k 1 <nil>" {
				t.Errorf("a caller has %q", v)
			}
		}
		if e, err := c.GetEntry(ctx, "k"); !e.Exists || e.TTL <= 59*time.Minute || e.TTL > time.Hour || err != nil {
			t.Errorf("it was written as %+v, %v", e, err)
		}
		if v, err := c.GetOrLoad(ctx, "k", nil); v != "k 1" || err != nil {
			t.Errorf("what exists: %q, %v", v, err)
		}
		time.Sleep(time.Hour + time.Second)
		if v, err := c.GetOrLoad(ctx, "k", load); v != "k 2" || err != nil {
			t.Errorf("when its time has passed: %q, %v", v, err)
		}
	})
}

// A load is not the last word: what was written meanwhile stays. A load that fails, panics or takes too
// long is its callers' error, and writes nothing; a caller who gives up does not end it.
func TestGetOrLoadThatIsOvertakenOrFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, err := New(Options[string]{Store: memory.New(memory.Options{}), Codec: String(), Timeout: time.Minute})
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = c.Close(context.Background()) }()
		ctx := t.Context()
		if v, err := c.GetOrLoad(ctx, "overtaken", func(ctx context.Context, key string) (string, error) {
			return "loaded", c.Set(ctx, key, "written")
		}); v != "written" || err != nil {
			t.Errorf("a load that was overtaken: %q, %v", v, err)
		}
		mine := errors.New("mine")
		if _, err := c.GetOrLoad(ctx, "k", func(context.Context, string) (string, error) { return "v", mine }); !errors.Is(err, mine) {
			t.Errorf("a load that fails: %v", err)
		}
		if _, err := c.GetOrLoad(ctx, "k", func(context.Context, string) (string, error) { panic("no") }); err == nil || !strings.Contains(err.Error(), "panicked, nothing was written: no") {
			t.Errorf("a load that panics: %v", err)
		}
		if _, err := c.GetOrLoad(ctx, "k", func(ctx context.Context, _ string) (string, error) { <-ctx.Done(); return "", ctx.Err() }); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("a load that takes too long: %v", err)
		}
		if _, ok, err := c.Get(ctx, "k"); ok || err != nil {
			t.Errorf("something was written: %v", err)
		}
		hurried, cancel := context.WithTimeout(ctx, time.Second)
		defer cancel()
		if _, err := c.GetOrLoad(hurried, "slow", func(ctx context.Context, _ string) (string, error) {
			time.Sleep(10 * time.Second)
			return "v", ctx.Err()
		}); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("a caller in a hurry: %v", err)
		}
		time.Sleep(time.Minute)
		if v, ok, err := c.Get(ctx, "slow"); v != "v" || !ok || err != nil {
			t.Errorf("the load that its caller gave up on: %q, %v, %v", v, ok, err)
		}
	})
}

// GetMany returns what exists, asks for what is not in memory at the same time and for no key
// twice, and names the key that cannot be read.
func TestGetMany(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var loads atomic.Int64
		refuse := ""
		st := memory.New(memory.Options{Before: func(_ context.Context, c memory.Call) error {
			if c.Op != memory.OpLoad {
				return nil
			}
			loads.Add(1)
			time.Sleep(time.Second)
			if c.Key == refuse {
				return store.ErrUnavailable
			}
			return nil
		}})
		c, err := New(Options[string]{Store: st, Codec: String()})
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = c.Close(context.Background()) }()
		ctx := t.Context()
		want, keys := map[string]string{}, []string{"none"}
		for i := range 20 {
			k := fmt.Sprint("k", i)
			if err := c.Set(ctx, k, k); err != nil {
				t.Fatal(err)
			}
			want[k], keys = k, append(keys, k, k)
		}
		c.kept.InvalidateAll()
		before := c.Stats()
		begun := time.Now()
		got, err := c.GetMany(ctx, keys...)
		if err != nil || !maps.Equal(got, want) {
			t.Errorf("%v, %v", got, err)
		}
		if took := time.Since(begun); took != time.Second || loads.Load() != 21 { // virtual time
			t.Errorf("%d loads, one after the other in %v", loads.Load(), took)
		}
		if got, err = c.GetMany(ctx, keys...); err != nil || !maps.Equal(got, want) || loads.Load() != 21 {
			t.Errorf("from memory: %v, %v, %d loads", got, err, loads.Load())
		}
		c.kept.CleanUp() // weights are added up now and then
		if s := c.Stats(); s.Misses-before.Misses != 21 || s.Entries != 21 || s.Bytes <= 0 || s.Evictions != 0 {
			t.Errorf("%+v", s)
		}
		refuse = "bad"
		if got, err := c.GetMany(ctx, "k1", "bad"); got != nil || !errors.Is(err, store.ErrUnavailable) || !strings.Contains(err.Error(), `"bad"`) {
			t.Errorf("%v, %v", got, err)
		}
		if got, err := c.GetMany(ctx); len(got) != 0 || err != nil {
			t.Errorf("of no keys: %v, %v", got, err)
		}
	})
}

// Options.TTL is for what is written without a time of its own.
func TestDefaultTTL(t *testing.T) {
	if _, err := New(Options[string]{Store: memory.New(memory.Options{}), Codec: String(), TTL: -1}); err == nil {
		t.Error("a negative one was taken")
	}
	synctest.Test(t, func(t *testing.T) {
		c, err := New(Options[string]{Store: memory.New(memory.Options{}), Codec: String(), TTL: time.Minute})
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = c.Close(context.Background()) }()
		ctx := t.Context()
		_, updated := c.Update(ctx, []string{"tx"}, func(tx *Tx[string]) error { return tx.Set("tx", "v") })
		_, kept := c.SetTTL(ctx, "for ever", "v", 0)
		if err := errors.Join(c.Set(ctx, "put", "v"), c.SetAll(ctx, map[string]string{"all": "v"}), updated, kept); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute + time.Second)
		got, err := c.GetMany(ctx, "put", "all", "tx", "for ever")
		if err != nil || len(got) != 1 || got["for ever"] != "v" {
			t.Errorf("after a minute there are %v, %v", got, err)
		}
	})
}
