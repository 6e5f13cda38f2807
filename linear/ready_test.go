package linear

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/freshet-cache/freshet/store"
)

// slowGuards is tables whose guards are installed when the test says so.
type slowGuards struct {
	*tables
	install chan struct{}
}

func (s slowGuards) SetGuard(ctx context.Context, low, high string, token store.Token) error {
	<-s.install
	return s.tables.SetGuard(ctx, low, high, token)
}

// While the guard of a key is being installed, reads are answered, are not kept, and say
// why; Ready waits for it, and says why if it cannot.
func TestReady(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tb := slowGuards{newTables(), make(chan struct{})}
		tb.rows["a"] = "1"
		rec := &causes{}
		v, err := NewView(tb, tb.text, Options[string]{Codec: String(), Recorder: rec})
		if err != nil {
			t.Fatal(err)
		}
		defer v.Close(context.Background())
		synctest.Wait()
		for range 3 {
			if e, err := v.GetEntry(t.Context(), "a"); err != nil || e.Value != "1" || e.Hit || !e.Guarding {
				t.Fatalf("%+v, %v", e, err)
			}
		}
		if s := v.Standing("a"); s != Guarding || tb.loads.Load() != 3 || rec.of[Unguarded] != 3 {
			t.Errorf("%v, %d loads, %v", s, tb.loads.Load(), rec.of)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := v.Ready(ctx, "a", "b"); !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "guard is being installed") {
			t.Error(err)
		}
		time.AfterFunc(time.Minute, func() { close(tb.install) })
		if err := v.Ready(t.Context(), "a", "b"); err != nil {
			t.Error(err)
		}
		if e, err := v.GetEntry(t.Context(), "a"); err != nil || e.Hit || e.Guarding {
			t.Errorf("%+v, %v", e, err)
		}
		if e, err := v.GetEntry(t.Context(), "a"); err != nil || !e.Hit || v.Standing("a") != Kept {
			t.Errorf("%+v, %v", e, err)
		}
		v.cache.mu.Lock()
		v.cache.stepAside("a test")
		v.cache.mu.Unlock()
		if err := v.Ready(t.Context(), "a"); err == nil || v.Standing("a") != Aside {
			t.Error("a cache that keeps nothing is ready", err)
		}
	})
}

// causes counts misses by cause.
type causes struct {
	nobody
	of [MissCauses]int
}

func (c *causes) Miss(why MissCause) { c.of[why]++ }

// What was changed past the view is shown after Invalidate.
func TestInvalidate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tb := newTables()
		tb.rows["a"], tb.rows["b"] = "1", "1"
		v := tb.view(t, Options[string]{})
		if err := v.Ready(t.Context(), "a", "b"); err != nil {
			t.Fatal(err)
		}
		get := func(key, want string) {
			t.Helper()
			if got, _, err := v.Get(t.Context(), key); got != want || err != nil {
				t.Errorf("%s is %q, %v; want %q", key, got, err, want)
			}
		}
		get("a", "1")
		get("b", "1")
		tb.mu.Lock()
		tb.rows["a"], tb.rows["b"] = "2", "2" // a forgotten Update
		tb.mu.Unlock()
		get("a", "1") // which is why there is strict mode
		if err := v.Invalidate(t.Context(), "a"); err != nil {
			t.Fatal(err)
		}
		get("a", "2")
		get("b", "1")
		if err := v.Invalidate(t.Context()); err == nil {
			t.Error("nothing was invalidated, and that was no error")
		}
	})
}
