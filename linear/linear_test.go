package linear

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/freshet-cache/freshet/clock"
	"github.com/freshet-cache/freshet/linear/clink"
	"github.com/freshet-cache/freshet/shard"
	"github.com/freshet-cache/freshet/shard/lease"
	"github.com/freshet-cache/freshet/store"
	"github.com/freshet-cache/freshet/store/memory"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func open[V any](t testing.TB, opt Options[V]) *Cache[V] {
	t.Helper()
	c, err := New(opt)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Close(context.Background()); err != nil {
			t.Error(err)
		}
	})
	return c
}

// counter counts what the store is asked.
type counter struct {
	nobody
	loads, commits, guards, aside atomic.Int64
	events                        [clink.EventKinds]atomic.Int64
}

func (c *counter) StoreCall(kind StoreCall, _ time.Duration, _ error) {
	switch kind {
	case CallLoad:
		c.loads.Add(1)
	case CallCommit:
		c.commits.Add(1)
	case CallSetGuard:
		c.guards.Add(1)
	}
}
func (c *counter) Event(e clink.EventKind) { c.events[e].Add(1) }
func (c *counter) SteppedAside()           { c.aside.Add(1) }

func TestReadsComeFromMemory(t *testing.T) {
	n := &counter{}
	st := memory.New(memory.Options{})
	c := open(t, Options[string]{Store: st, Codec: String(), Recorder: n})
	ctx := context.Background()
	if _, ok, err := c.Get(ctx, "k"); ok || err != nil {
		t.Fatal("an empty store has a value", err)
	}
	if err := c.Set(ctx, "k", "v"); err != nil {
		t.Fatal(err)
	}
	n.loads.Store(0)
	for range 10 {
		if v, ok, err := c.Get(ctx, "k"); v != "v" || !ok || err != nil {
			t.Fatal(v, ok, err)
		}
		if _, ok, err := c.Get(ctx, "absent"); ok || err != nil {
			t.Fatal("a value from nowhere", err)
		}
	}
	if got := n.loads.Load(); got != 1 { // absence is a state too, and is cached
		t.Fatalf("%d loads for 20 reads, want 1", got)
	}
	e, err := c.GetEntry(ctx, "k")
	if err != nil || !e.Hit || e.Version == 0 || e.TTL != 0 {
		t.Fatalf("%+v, %v", e, err)
	}
	gone, err := c.Delete(ctx, "k")
	if err != nil || gone <= e.Version {
		t.Fatalf("deleting made version %d after %d, %v", gone, e.Version, err)
	}
	if e, err := c.GetEntry(ctx, "k"); e.Exists || e.Version != gone || err != nil {
		t.Fatalf("%+v, %v", e, err)
	}
}

func TestOptionsAreChecked(t *testing.T) {
	st := memory.New(memory.Options{})
	for name, opt := range map[string]Options[string]{
		"no store":         {Codec: String()},
		"no codec":         {Store: st},
		"negative timeout": {Store: st, Codec: String(), Timeout: -1},
	} {
		if _, err := New(opt); err == nil || !strings.HasPrefix(err.Error(), "linear: ") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

type price struct {
	Cents int
	Codes []string
}

func TestCodecs(t *testing.T) {
	ctx := context.Background()
	st := memory.New(memory.Options{})
	c := open(t, Options[price]{Store: st, Codec: JSON[price]()})
	if err := c.Set(ctx, "p", price{250, []string{"a"}}); err != nil {
		t.Fatal(err)
	}
	if v, ok, err := c.Get(ctx, "p"); !ok || v.Cents != 250 || v.Codes[0] != "a" || err != nil {
		t.Fatal(v, ok, err)
	}
	broken := open(t, Options[func()]{Store: memory.New(memory.Options{}), Codec: JSON[func()]()})
	if err := broken.Set(ctx, "p", func() {}); err == nil || !strings.Contains(err.Error(), "cannot be encoded") {
		t.Fatal(err)
	}
}

// A value that cannot be decoded is the reader's error, and nobody else's.
func TestUndecodable(t *testing.T) {
	ctx := context.Background()
	st := memory.New(memory.Options{})
	raw := open(t, Options[string]{Store: st, Codec: String()})
	if err := raw.Set(ctx, "k", "{not json"); err != nil {
		t.Fatal(err)
	}
	c := open(t, Options[price]{Store: st, Codec: JSON[price]()})
	for range 2 {
		if _, _, err := c.Get(ctx, "k"); err == nil || !strings.Contains(err.Error(), "cannot be decoded") {
			t.Fatal(err)
		}
	}
	if err := c.Set(ctx, "k", price{1, nil}); err != nil {
		t.Fatal(err)
	}
	if v, _, err := c.Get(ctx, "k"); v.Cents != 1 || err != nil {
		t.Fatal(v, err)
	}
}

func TestUpdates(t *testing.T) {
	ctx := context.Background()
	c := open(t, Options[int]{Store: memory.New(memory.Options{}), Codec: JSON[int]()})
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range 50 {
				_, err := c.Update(ctx, []string{"n", "twice"}, func(tx *Tx[int]) error {
					e, err := tx.Get("n")
					if err != nil {
						return err
					}
					return errors.Join(tx.Set("n", e.Value+1), tx.Set("twice", 2*e.Value+2))
				})
				if err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	n, _, _ := c.Get(ctx, "n")
	twice, _, _ := c.Get(ctx, "twice")
	if n != 400 || twice != 800 {
		t.Fatalf("400 updates made %d and %d", n, twice)
	}
	for name, decide := range map[string]func(tx *Tx[int]) error{
		"its error":      func(*Tx[int]) error { return errors.New("no") },
		"a panic":        func(*Tx[int]) error { panic("no") },
		"another's key":  func(tx *Tx[int]) error { return tx.Set("stranger", 1) },
		"written before": func(tx *Tx[int]) error { return errors.Join(tx.Set("n", 0), errors.New("no")) },
	} {
		if _, err := c.Update(ctx, []string{"n"}, decide); err == nil {
			t.Errorf("%s did not end the update", name)
		}
	}
	if n, _, _ := c.Get(ctx, "n"); n != 400 {
		t.Fatalf("a failed update wrote: %d", n)
	}
	if v, err := c.Update(ctx, []string{"n"}, func(*Tx[int]) error { return nil }); len(v) != 0 || err != nil {
		t.Fatal(v, err)
	}
}

func TestTxSeesItsOwnWrites(t *testing.T) {
	ctx := context.Background()
	c := open(t, Options[string]{Store: memory.New(memory.Options{}), Codec: String()})
	if _, err := c.SetTTL(ctx, "k", "v", time.Hour); err != nil {
		t.Fatal(err)
	}
	_, err := c.Update(ctx, []string{"k"}, func(tx *Tx[string]) error {
		if err := tx.SetTTL("k", "w", KeepTTL); err != nil {
			return err
		}
		if e, _ := tx.Get("k"); e.Value != "w" || e.TTL == 0 {
			t.Errorf("%+v", e)
		}
		if err := tx.Delete("k"); err != nil {
			return err
		}
		if e, _ := tx.Get("k"); e.Exists || e.TTL != 0 {
			t.Errorf("%+v", e)
		}
		return tx.SetTTL("k", "x", KeepTTL) // nothing is left to keep
	})
	if e, _ := c.GetEntry(ctx, "k"); err != nil || e.Value != "x" || e.TTL != 0 {
		t.Fatalf("%+v, %v", e, err)
	}
}

// The store's answer to the first commit is lost; what it did is found out.
func TestUnknownOutcomesAreResolved(t *testing.T) {
	for _, done := range []bool{true, false} {
		t.Run(fmt.Sprintf("done=%v", done), func(t *testing.T) {
			var once atomic.Bool
			lose := func(_ context.Context, c memory.Call) error {
				if c.Op == memory.OpCommit && once.CompareAndSwap(false, true) {
					return errors.New("the line went dead")
				}
				return nil
			}
			opt := memory.Options{Before: lose}
			if done {
				opt = memory.Options{After: lose}
			}
			n := &counter{}
			c := open(t, Options[string]{Store: memory.New(opt), Codec: String(), Recorder: n})
			if err := c.Set(context.Background(), "k", "v"); err != nil {
				t.Fatal(err)
			}
			if v, _, _ := c.Get(context.Background(), "k"); v != "v" {
				t.Fatal(v)
			}
			commits := map[bool]int64{true: 1, false: 2}[done]
			if n.events[clink.OutcomeUnknown].Load() != 1 || n.commits.Load() != commits {
				t.Fatalf("%d unknown, %d commits", n.events[clink.OutcomeUnknown].Load(), n.commits.Load())
			}
		})
	}
}

func TestDeadlines(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		stuck := make(chan struct{})
		var hold atomic.Bool
		st := memory.New(memory.Options{Before: func(_ context.Context, c memory.Call) error {
			if hold.Load() && c.Op != memory.OpSetGuard {
				<-stuck
			}
			return nil
		}})
		c, err := New(Options[string]{Store: st, Codec: String(), Timeout: time.Hour})
		if err != nil {
			t.Fatal(err)
		}
		if err := c.Set(t.Context(), "k", "v"); err != nil {
			t.Fatal(err)
		}
		hold.Store(true)
		late := func() context.Context {
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			t.Cleanup(cancel)
			return ctx
		}
		if err := c.Set(late(), "k", "w"); !errors.Is(err, ErrOutcomeUnknown) || !errors.Is(err, context.DeadlineExceeded) {
			t.Fatalf("sent and not answered: %v", err)
		}
		if err := c.Set(late(), "k", "x"); errors.Is(err, ErrOutcomeUnknown) || !errors.Is(err, context.DeadlineExceeded) {
			t.Fatalf("never sent: %v", err)
		}
		if _, _, err := c.Get(late(), "k"); !errors.Is(err, context.DeadlineExceeded) {
			t.Fatalf("read: %v", err)
		}
		close(stuck)
		synctest.Wait()
		if v, _, err := c.Get(t.Context(), "k"); v != "w" || err != nil { // it was committed after all
			t.Fatal(v, err)
		}
		if err := c.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
	})
}

func TestExpiry(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, err := New(Options[string]{Store: memory.New(memory.Options{}), Codec: String()})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := c.SetTTL(t.Context(), "k", "v", time.Minute); err != nil {
			t.Fatal(err)
		}
		time.Sleep(59 * time.Second)
		if e, _ := c.GetEntry(t.Context(), "k"); e.Value != "v" || !e.Hit || e.TTL > time.Second {
			t.Fatalf("%+v", e)
		}
		time.Sleep(2 * time.Second)
		e, _ := c.GetEntry(t.Context(), "k")
		if e.Exists || e.Hit {
			t.Fatalf("%+v", e)
		}
		if err := c.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
	})
}

func TestClose(t *testing.T) {
	ctx := context.Background()
	c, err := New(Options[string]{Store: memory.New(memory.Options{}), Codec: String()})
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Set(ctx, "k", "v"); err != nil {
		t.Fatal(err)
	}
	if err := c.Close(ctx); err != nil {
		t.Fatal(err)
	}
	if err := c.Set(ctx, "k", "w"); !errors.Is(err, ErrClosed) {
		t.Fatal(err)
	}
	if _, _, err := c.Get(ctx, "k"); !errors.Is(err, ErrClosed) {
		t.Fatal(err)
	}
}

// An invariant that fails makes the cache step aside: it serves nothing from
// memory and goes on reading.
func TestStepsAside(t *testing.T) {
	ctx := context.Background()
	n := &counter{}
	c := open(t, Options[string]{Store: memory.New(memory.Options{}), Codec: String(), Recorder: n})
	if err := c.Set(ctx, "k", "v"); err != nil {
		t.Fatal(err)
	}
	c.mu.Lock()
	c.step(nil, nil) // no such input
	c.mu.Unlock()
	e, err := c.GetEntry(ctx, "k")
	if err != nil || e.Value != "v" || e.Hit || n.aside.Load() != 1 {
		t.Fatalf("%+v, %v, aside %d", e, err, n.aside.Load())
	}
	if err := c.Set(ctx, "k", "w"); err == nil || !strings.Contains(err.Error(), "nothing was written") {
		t.Fatal(err)
	}
}

// A read that waits when an invariant fails is answered from the store; a write
// that waits may have been applied.
func TestStepsAsideUnderWay(t *testing.T) {
	ctx := context.Background()
	st := &holding{Store: memory.New(memory.Options{}), held: make(chan struct{}, 2), release: make(chan struct{})}
	c := open(t, Options[string]{Store: st, Codec: String()})
	errs := make(chan error, 2)
	go func() { _, _, err := c.Get(ctx, "a"); errs <- err }()
	<-st.held
	go func() { errs <- c.Set(ctx, "b", "v") }()
	<-st.held
	c.mu.Lock()
	c.step(nil, nil) // no such input
	c.mu.Unlock()
	close(st.release)
	var unknown int
	for range 2 {
		switch err := <-errs; {
		case errors.Is(err, ErrOutcomeUnknown):
			unknown++
		case err != nil:
			t.Error(err)
		}
	}
	if unknown != 1 {
		t.Errorf("%d outcomes unknown, of a read and a write", unknown)
	}
}

// holding keeps every load and every commit waiting until it is told.
type holding struct {
	Store
	held, release chan struct{}
}

func (h *holding) wait() {
	select {
	case h.held <- struct{}{}:
	default:
	}
	<-h.release
}

func (h *holding) Load(ctx context.Context, key string) (store.Row, error) {
	h.wait()
	return h.Store.Load(ctx, key)
}

func (h *holding) Commit(ctx context.Context, id store.ID, muts []store.Mutation) ([]store.Stamp, error) {
	h.wait()
	return h.Store.Commit(ctx, id, muts)
}

// The sample is drawn from operations, not from keys: where half the load falls
// on one key, so does half the sample.
func TestSpreadSamplesOperations(t *testing.T) {
	h := shard.NewHandle(lease.Lease{Gen: 7}, clock.Clock{}, 1<<62)
	var keys []string
	for i := range 1000 {
		keys = append(keys, "hot", fmt.Sprint("cold", i))
	}
	l := spread([]*shard.Handle{h}, keys, 2)[0]
	hot := 0
	for _, k := range l.Sample {
		if k == "hot" {
			hot++
		}
	}
	if len(l.Sample) != 64 || hot < 24 || hot > 40 || l.Rate != 4000 || l.Hot[0] != (lease.HotKey{Key: "hot", Rate: 2000}) {
		t.Errorf("%d of %d samples hot, rate %d, hottest %v", hot, len(l.Sample), l.Rate, l.Hot[0])
	}
}

// A hit equals what the machine would have answered.
func TestHitsEqualTheMachine(t *testing.T) {
	ctx := context.Background()
	c := open(t, Options[string]{Store: memory.New(memory.Options{}), Codec: String()})
	for i := range 300 {
		k := fmt.Sprint("k", rand.IntN(20))
		switch i % 3 {
		case 0:
			if _, err := c.SetTTL(ctx, k, fmt.Sprint(i), time.Duration(rand.IntN(2))*time.Hour); err != nil {
				t.Fatal(err)
			}
		case 1:
			if _, err := c.Delete(ctx, k); err != nil {
				t.Fatal(err)
			}
		}
		hit, ok := c.Peek(k)
		if !ok {
			continue
		}
		c.mu.Lock()
		outs := c.pod.Step(c.opt.Clock.Now(), clink.Read{Op: 1 << 60, Key: k}, nil)
		c.mu.Unlock()
		r, one := outs[0].(clink.Reply)
		if !one || len(outs) != 1 || string(r.Row.Value) != hit.Value || r.Row.Exists != hit.Exists || r.Row.Version != hit.Version || (r.Until == 0) != (hit.TTL == 0) {
			t.Fatalf("the machine answers %+v, the hit %+v", outs, hit)
		}
	}
}

func TestDefiniteErrorsOfTheStore(t *testing.T) {
	fail := func(err error) Store { return failing{memory.New(memory.Options{}), err} }
	for _, want := range []error{store.ErrFull, store.ErrTooLarge} {
		c := open(t, Options[string]{Store: fail(fmt.Errorf("disk: %w", want)), Codec: String()})
		if err := c.Set(context.Background(), "k", "v"); !errors.Is(err, want) || errors.Is(err, ErrOutcomeUnknown) {
			t.Errorf("%v became %v", want, err)
		}
	}
}

// failing refuses every commit.
type failing struct {
	*memory.Store
	err error
}

func (f failing) Commit(context.Context, store.ID, []store.Mutation) ([]store.Stamp, error) {
	return nil, f.err
}

func BenchmarkHit(b *testing.B) {
	ctx := context.Background()
	c := open(b, Options[[]byte]{Store: memory.New(memory.Options{}), Codec: Bytes()})
	if err := c.Set(ctx, "key", []byte("value")); err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for b.Loop() {
		if _, ok, _ := c.Get(ctx, "key"); !ok {
			b.Fatal("no hit")
		}
	}
}
