package linear

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/freshet-cache/freshet/shard"
	"github.com/freshet-cache/freshet/store"
	"github.com/freshet-cache/freshet/store/memory"
)

// The deadline that an update leaves behind follows from its last word: KeepTTL keeps what an
// earlier write of the same update said, else what the row has; a delete leaves nothing to keep.
func TestDeadlinesInUpdates(t *testing.T) {
	type step struct {
		ttl    time.Duration
		delete bool
	}
	for name, c := range map[string]struct {
		before time.Duration // the row's; negative: there is no row
		steps  []step
		want   time.Duration
	}{
		"kept":                       {time.Hour, []step{{ttl: KeepTTL}}, time.Hour},
		"kept where there is none":   {0, []step{{ttl: KeepTTL}}, 0},
		"kept of no row":             {-1, []step{{ttl: KeepTTL}}, 0},
		"new":                        {time.Hour, []step{{ttl: 2 * time.Hour}}, 2 * time.Hour},
		"taken away":                 {time.Hour, []step{{}}, 0},
		"kept of the update":         {time.Hour, []step{{ttl: 2 * time.Hour}, {ttl: KeepTTL}}, 2 * time.Hour},
		"kept, and kept again":       {time.Hour, []step{{ttl: KeepTTL}, {ttl: KeepTTL}}, time.Hour},
		"taken away, and that kept":  {time.Hour, []step{{}, {ttl: KeepTTL}}, 0},
		"deleted, and that kept":     {time.Hour, []step{{delete: true}, {ttl: KeepTTL}}, 0},
		"deleted, and set":           {time.Hour, []step{{delete: true}, {ttl: time.Minute}}, time.Minute},
		"kept, and deleted, and set": {time.Hour, []step{{ttl: KeepTTL}, {delete: true}, {ttl: KeepTTL}}, 0},
		"beyond a century":           {time.Hour, []step{{ttl: 1<<63 - 1}}, MaxTTL},
	} {
		synctest.Test(t, func(t *testing.T) {
			c, steps, want, before := open(t, Options[string]{Store: memory.New(memory.Options{}), Codec: String()}), c.steps, c.want, c.before
			near := func(got time.Duration) bool { return got <= want && want-got <= want/1000 && (got == 0) == (want == 0) }
			if before >= 0 {
				if _, err := c.SetTTL(t.Context(), "k", "v", before); err != nil {
					t.Fatal(err)
				}
			}
			versions, err := c.Update(t.Context(), []string{"k", "other"}, func(tx *Tx[string]) error {
				for _, s := range steps {
					if s.delete {
						if err := tx.Delete("k"); err != nil {
							return err
						}
						continue
					}
					if err := tx.SetTTL("k", "w", s.ttl); err != nil {
						return err
					}
				}
				if e, err := tx.Get("k"); err != nil || e.Value != "w" || !near(e.TTL) {
					t.Errorf("%s: the update sees %+v, %v; want %v", name, e, err, want)
				}
				return nil
			})
			e, _ := c.GetEntry(t.Context(), "k")
			if err != nil || e.Value != "w" || !near(e.TTL) || len(versions) != 1 || versions["k"] != e.Version {
				t.Errorf("%s: %+v with versions %v, %v; want %v", name, e, versions, err, want)
			}
			row, err := c.opt.Store.Load(t.Context(), "k")
			if err != nil || !near(row.TTL) {
				t.Errorf("%s: the store has %+v, %v", name, row, err)
			}
		})
	}
}

// What cannot be written is said before anything is written, by every kind of write.
func TestWritesThatCannotBe(t *testing.T) {
	commits := 0
	c := open(t, Options[string]{Codec: odd{String()}, Store: memory.New(memory.Options{Before: func(_ context.Context, c memory.Call) error {
		if c.Op == memory.OpCommit {
			commits++
		}
		return nil
	}})})
	none := func(version uint64, err error) error {
		if version != 0 {
			t.Errorf("version %d of what was not written", version)
		}
		return err
	}
	update := func(do func(tx *Tx[string]) error) func() error {
		return func() error {
			_, err := c.Update(t.Context(), []string{"k", "l"}, func(tx *Tx[string]) error { return errors.Join(tx.Set("l", "v"), do(tx)) })
			return err
		}
	}
	for name, w := range map[string]struct {
		do   func() error
		want string
	}{
		"a negative TTL":              {func() error { return none(c.SetTTL(t.Context(), "k", "v", -1)) }, "negative"},
		"a value":                     {func() error { return none(c.SetTTL(t.Context(), "k", "odd", 0)) }, "cannot be encoded"},
		"one of several values":       {func() error { return c.SetAll(t.Context(), map[string]string{"k": "v", "l": "odd"}) }, "cannot be encoded"},
		"a negative TTL in an update": {update(func(tx *Tx[string]) error { return tx.SetTTL("k", "v", -2) }), "negative"},
		"a value in an update":        {update(func(tx *Tx[string]) error { return tx.Set("k", "odd") }), "cannot be encoded"},
		"another key in an update":    {update(func(tx *Tx[string]) error { return tx.Set("m", "v") }), "does not name"},
		"a delete of another key":     {update(func(tx *Tx[string]) error { return tx.Delete("m") }), "does not name"},
		"a read of another key":       {update(func(tx *Tx[string]) error { _, err := tx.Get("m"); return err }), "does not name"},
		"an update of nothing":        {func() error { _, err := c.Update(t.Context(), nil, nil); return err }, "names no key"},
	} {
		if err := w.do(); err == nil || !strings.Contains(err.Error(), w.want) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if err := c.SetAll(t.Context(), nil); err != nil || commits != 0 || c.Len() > 2 {
		t.Errorf("%v; %d commits", err, commits)
	}
	if err := c.SetAll(t.Context(), map[string]string{"k": "1", "l": "2"}); err != nil || commits != 1 {
		t.Errorf("%v; two keys take %d commits", err, commits)
	}
	k, _ := c.GetEntry(t.Context(), "k")
	l, _ := c.GetEntry(t.Context(), "l")
	if k.Value != "1" || l.Value != "2" || k.Version == 0 || k.Version == l.Version {
		t.Errorf("%+v, %+v", k, l)
	}
	if v, err := c.SetTTL(t.Context(), "k", "v", 1<<63-1); err != nil || v <= k.Version {
		t.Errorf("%d, %v", v, err)
	}
	if e, err := c.GetEntry(t.Context(), "k"); err != nil || e.TTL > MaxTTL || e.TTL < MaxTTL-MaxTTL/100 {
		t.Errorf("%+v, %v", e, err)
	}
}

// A key of nobody is waited for as long as a transaction may take, and ten attempts at least;
// then the update says how often it was tried and why it failed. An owner that comes in that
// time is found, and a caller who gives up is told that nothing was written.
func TestUpdatesWaitForAnOwner(t *testing.T) {
	const comes = 900 * time.Millisecond
	for name, c := range map[string]struct {
		timeout, patience time.Duration
		deal, close       bool
		want              error
		says              string
	}{
		"nobody, and little time": {timeout: time.Millisecond, want: ErrNotOwner, says: "nothing was written, after 10 attempts"},
		"nobody":                  {timeout: time.Minute, want: ErrNotOwner, says: "nothing was written, after 69 attempts"},
		"an owner in time":        {timeout: time.Millisecond, deal: true},
		"an owner late":           {timeout: time.Minute, deal: true},
		"a caller gives up":       {timeout: time.Minute, patience: comes / 2, want: context.DeadlineExceeded, says: "nothing was written"},
		"the view is closed":      {timeout: time.Minute, close: true, want: ErrClosed},
	} {
		synctest.Test(t, func(t *testing.T) {
			tb, w := newTables(), newTown()
			v := tb.view(t, Options[string]{Peers: citizen{w, "n1"}, Timeout: c.timeout})
			ctx := t.Context()
			if c.patience > 0 {
				var cancel context.CancelFunc
				ctx, cancel = context.WithTimeout(ctx, c.patience)
				defer cancel()
			}
			time.AfterFunc(comes, func() {
				if c.deal {
					w.deal("k", "n1")
				}
				if c.close {
					_ = v.Close(context.Background())
				}
			})
			err := v.Update(ctx, []string{"k"}, appends([]string{"k"}, "x"))
			if !errors.Is(err, c.want) || err != nil && !strings.Contains(err.Error(), c.says) {
				t.Errorf("%s: %v", name, err)
			}
			if done := tb.rows["k"] == "x"; done != (err == nil) || errors.Is(err, ErrOutcomeUnknown) {
				t.Errorf("%s: it is done: %v, and says %v", name, done, err)
			}
		})
	}
}

// What the database refuses is the caller's error, at once; what it does not answer is unknown
// if the owner that knows cannot be asked, and settled if it can.
func TestWhatADatabaseSays(t *testing.T) {
	for name, c := range map[string]struct {
		deaf, done bool // the owner of the keys cannot be asked; the commit took effect
		want       error
	}{
		"done, and it is found out":         {done: true},
		"not done, and it is found out":     {},
		"done, and nobody can be asked":     {deaf: true, done: true, want: ErrOutcomeUnknown},
		"not done, and nobody can be asked": {deaf: true, want: ErrOutcomeUnknown},
	} {
		synctest.Test(t, func(t *testing.T) {
			tb, w := newTables(), newTown()
			one := tb.view(t, Options[string]{Peers: citizen{w, "n1"}, Timeout: time.Second})
			two := tb.view(t, Options[string]{Peers: citizen{w, "n2"}, Timeout: time.Second})
			w.deal("k", "n2")
			synctest.Wait()
			var deaf atomic.Bool
			tb.late = func() {
				if c.deaf && !deaf.Swap(true) {
					w.mu.Lock()
					w.deaf["n2"] = true
					w.mu.Unlock()
				}
			}
			tb.lose.Store(1)
			if c.done {
				tb.lose.Store(2)
			}
			err := one.Update(t.Context(), []string{"k"}, appends([]string{"k"}, "1"))
			if !errors.Is(err, c.want) || (c.want == nil) != (err == nil) || c.want != nil && !strings.Contains(err.Error(), "connection is gone") {
				t.Errorf("%s: %v", name, err)
			}
			was := tb.rows["k"]
			if want := map[bool]string{true: "1"}[c.done || !c.deaf]; was != want {
				t.Errorf("%s: %q is there, want %q", name, was, want)
			}
			tb.lose.Store(0)
			if err := two.Update(t.Context(), []string{"k"}, appends([]string{"k"}, "2")); err != nil { // behind the fence
				t.Errorf("%s: its owner cannot go on: %v", name, err)
			}
			if tb.rows["k"] != was+"2" {
				t.Errorf("%s: %q is there after %q", name, tb.rows["k"], was)
			}
			time.Sleep(time.Minute)
			for _, v := range []*View[string, *textTx]{one, two} {
				if locks, _ := v.cache.underWay(); locks != 0 {
					t.Errorf("%s: %d locks are remembered", name, locks)
				}
			}
		})
	}
	synctest.Test(t, func(t *testing.T) {
		full := &refusingTables{newTables(), store.ErrFull, 0}
		v, err := NewView(full, full.text, Options[string]{Codec: String(), Timeout: time.Second})
		if err != nil {
			t.Fatal(err)
		}
		defer v.Close(context.Background())
		if err := v.Update(t.Context(), []string{"k"}, appends(nil, "")); !errors.Is(err, store.ErrFull) || full.asked != 1 {
			t.Errorf("a database that is full: %v, after %d attempts", err, full.asked)
		}
		if e, err := v.cache.Delete(t.Context(), "k"); !errors.Is(err, store.ErrRefused) || e != 0 {
			t.Errorf("a view was written past its updates: %v", err)
		}
	})
}

// refusingTables refuse every transaction.
type refusingTables struct {
	*tables
	err   error
	asked int
}

func (r *refusingTables) Transact(context.Context, store.ID, []string, []store.Token, func(context.Context, *textTx) error) error {
	r.asked++
	return r.err
}

// A store that does not answer is asked again, at first at once and later once a second.
func TestGuardsAreAskedForAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var asked atomic.Int64
		var answers atomic.Bool
		st := memory.New(memory.Options{Before: func(_ context.Context, c memory.Call) error {
			if c.Op != memory.OpSetGuard || answers.Load() {
				return nil
			}
			asked.Add(1)
			return errors.New("no answer")
		}})
		c := open(t, Options[string]{Store: st, Codec: String()})
		synctest.Wait()
		if n := asked.Load(); n != 1 {
			t.Errorf("%d attempts at once", n)
		}
		time.Sleep(time.Minute)
		if n := asked.Load(); n < 65 || n > 75 {
			t.Errorf("%d attempts in a minute", n)
		}
		if v, _, err := c.Get(t.Context(), "k"); v != "" || err != nil || c.Standing("k") != Guarding {
			t.Errorf("%q, %v, %v", v, err, c.Standing("k"))
		}
		answers.Store(true)
		time.Sleep(time.Second)
		synctest.Wait()
		if c.Standing("k") != Kept {
			t.Errorf("when the store answers: %v", c.Standing("k"))
		}
	})
}

// What is closed says so, keeps nothing, and leaves nobody waiting. Requests under way may end;
// when they take too long for who closes it, they are given up, and their callers are told.
func TestCloseLeavesNobodyWaiting(t *testing.T) {
	for name, patience := range map[string]time.Duration{"patient": time.Hour, "impatient": time.Second} {
		synctest.Test(t, func(t *testing.T) {
			st := memory.New(memory.Options{Before: func(ctx context.Context, c memory.Call) error {
				if c.Key != "slow" || c.Op != memory.OpCommit {
					return nil
				}
				select {
				case <-time.After(time.Minute):
					return nil
				case <-ctx.Done():
					return ctx.Err()
				}
			}})
			n := &counter{}
			c, err := New(Options[string]{Store: st, Codec: String(), Timeout: time.Hour, Recorder: n})
			if err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
			if err := c.Set(t.Context(), "k", "v"); err != nil {
				t.Fatal(err)
			}
			written := make(chan error, 2)
			go func() { written <- c.Set(t.Context(), "slow", "1") }()
			synctest.Wait()
			go func() { written <- c.Set(t.Context(), "slow", "2") }()
			synctest.Wait()
			ctx, cancel := context.WithTimeout(t.Context(), patience)
			defer cancel()
			v := &View[string, *textTx]{cache: c} // whose Close is that of its cache
			closing := v.Close(ctx)
			if (closing == nil) != (patience > time.Minute) || closing != nil && !errors.Is(closing, context.DeadlineExceeded) {
				t.Errorf("%s: Close: %v", name, closing)
			}
			done := 0
			for range 2 {
				switch err := <-written; {
				case err == nil:
					done++
				case !errors.Is(err, ErrOutcomeUnknown) || !errors.Is(err, ErrClosed):
					t.Errorf("%s: a caller is told %v", name, err)
				}
			}
			if closing != nil && done != 0 || closing == nil && done == 0 {
				t.Errorf("%s: %d writes were done", name, done)
			}
			if _, ok := c.Peek("k"); ok || c.Len() != 0 || len(c.waiting) != 0 {
				t.Errorf("%s: something is kept, or somebody waits", name)
			}
			h := shard.NewHandle(c.validities[1].handle.Lease, c.opt.Clock, 1<<62)
			h.Gen = 2
			c.acquired(h, 1)
			c.offered(1, []moved{{Key: "k", Value: []byte("v"), Exists: true, Version: 2}})
			synctest.Wait()
			if c.Len() != 0 {
				t.Errorf("%s: it keeps what it is offered", name)
			}
			_, lending := c.lock(t.Context(), [16]byte{1}, []string{"k"})
			for what, err := range map[string]error{"Set": c.Set(t.Context(), "k", "w"), "SetAll": c.SetAll(t.Context(), map[string]string{"k": "w"}), "a lock": lending} {
				if !errors.Is(err, ErrClosed) {
					t.Errorf("%s: %s: %v", name, what, err)
				}
			}
		})
	}
}

// A store that does not answer does not keep a cache from being closed: a guard that nobody waits
// for is not asked for again.
func TestCloseWithASilentStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		st := memory.New(memory.Options{Before: func(ctx context.Context, _ memory.Call) error {
			<-ctx.Done()
			return ctx.Err()
		}})
		c, err := New(Options[string]{Store: st, Codec: String(), Timeout: time.Second})
		if err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		if err := c.Close(ctx); err != nil {
			t.Errorf("after an hour: %v", err)
		}
	})
}
