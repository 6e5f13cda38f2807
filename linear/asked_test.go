package linear

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/freshet-cache/freshet/linear/clink"
	"github.com/freshet-cache/freshet/linear/crossowner"
	"github.com/freshet-cache/freshet/shard"
	"github.com/freshet-cache/freshet/shard/lease"
	"github.com/freshet-cache/freshet/store"
	"github.com/freshet-cache/freshet/store/memory"
	"github.com/freshet-cache/freshet/ticks"
)

// stubborn is a store that answers no call of the kinds in fails.
type stubborn struct {
	Store
	mu    sync.Mutex
	fails map[StoreCall]error
	asked map[StoreCall]int
}

func newStubborn() *stubborn {
	return &stubborn{Store: memory.New(memory.Options{}), fails: map[StoreCall]error{}, asked: map[StoreCall]int{}}
}

func (s *stubborn) call(kind StoreCall) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.asked[kind]++
	return s.fails[kind]
}

// fail has calls of a kind fail from here on, and returns how many there were since the last time.
func (s *stubborn) fail(kind StoreCall, err error) (asked int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	asked = s.asked[kind]
	s.fails[kind], s.asked[kind] = err, 0
	return asked
}

func (s *stubborn) Load(ctx context.Context, key string) (store.Row, error) {
	if err := s.call(CallLoad); err != nil {
		return store.Row{}, err
	}
	return s.Store.Load(ctx, key)
}

func (s *stubborn) Commit(ctx context.Context, id store.ID, muts []store.Mutation) ([]store.Stamp, error) {
	if err := s.call(CallCommit); err != nil {
		return nil, err
	}
	return s.Store.Commit(ctx, id, muts)
}

func (s *stubborn) SetGuard(ctx context.Context, low, high string, token store.Token) error {
	if err := s.call(CallSetGuard); err != nil {
		return err
	}
	return s.Store.SetGuard(ctx, low, high, token)
}

func (s *stubborn) Splits(ctx context.Context, low, high string) ([]string, error) {
	if err := s.call(CallSplits); err != nil {
		return nil, err
	}
	return s.Store.Splits(ctx, low, high)
}

// calls counts what is recorded of the store, by kind and whether it failed.
type calls struct {
	nobody
	mu sync.Mutex
	of map[string]int
}

func (c *calls) StoreCall(kind StoreCall, took time.Duration, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	name := [...]string{"load", "commit", "guard", "splits"}[kind]
	if err != nil {
		name += " failed"
	}
	c.of[name]++
	if took < 0 {
		c.of["took no time"]++
	}
}

func (c *calls) so() map[string]int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return maps.Clone(c.of)
}

// Whatever the store does not answer is asked again without end, once a second after a while,
// and every request is recorded with its error: that is what metrics of the store show.
func TestAStoreThatDoesNotAnswer(t *testing.T) {
	for kind, name := range map[StoreCall]string{CallSplits: "splits", CallSetGuard: "guard", CallLoad: "load"} {
		synctest.Test(t, func(t *testing.T) {
			st, rec := newStubborn(), &calls{of: map[string]int{}}
			silence := errors.New("no answer")
			if kind == CallLoad { // asked again to find out about a commit
				st.fail(CallCommit, silence)
			}
			st.fail(kind, silence)
			c := open(t, Options[string]{Store: st, Codec: String(), Recorder: rec, Timeout: time.Second})
			written := make(chan error, 1)
			go func() { written <- c.Set(t.Context(), "k", "v") }()
			time.Sleep(time.Minute)
			synctest.Wait()
			st.fail(CallCommit, nil)
			asked := st.fail(kind, nil)
			if of := rec.so(); asked < 60 || asked > 75 || of[name+" failed"] != asked {
				t.Errorf("%s: %d attempts in a minute, and these are recorded: %v", name, asked, of)
			}
			time.Sleep(2 * time.Second)
			if !ended(t, written) {
				t.Fatalf("%s: when the store answers, the write does not end", name)
			}
			for _, n := range []string{"load", "commit", "guard", "splits"} {
				if want, of := kind == CallLoad || n != "load", rec.so(); (of[n] > 0) != want || of["took no time"] > 0 {
					t.Errorf("%s: %v is recorded", name, of)
				}
			}
		})
	}
}

// What a View does in its database is recorded as commits and loads are.
func TestAViewIsRecorded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tb, rec := newTables(), &calls{of: map[string]int{}}
		v := tb.view(t, Options[string]{Recorder: rec})
		err := errors.Join(v.Update(t.Context(), []string{"a"}, appends([]string{"a"}, "1")), v.Ready(t.Context(), "a"))
		_, _, failed := v.Get(t.Context(), "a")
		if of := rec.so(); of["commit"] != 1 || of["load"] != 1 || errors.Join(err, failed) != nil {
			t.Errorf("%v, %v, %v", of, err, failed)
		}
		if err := v.Update(t.Context(), []string{"a"}, func(context.Context, *textTx) error { return errors.New("no") }); err == nil || rec.so()["commit failed"] != 1 {
			t.Errorf("%v, %v", rec.so(), err)
		}
	})
}

// A lease that is extended lets writes in, and entries be kept, for as long as it says; one
// that is recalled is counted no more.
func TestAnExtendedLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := &counter{}
		c := open(t, Options[string]{Store: memory.New(memory.Options{}), Codec: String(), Recorder: n, Peers: hooks{}})
		l, now := lease.Lease{Gen: 1}, c.opt.Clock.Now()
		h := shard.NewHandle(l, c.opt.Clock, now+ticks.Tick(time.Minute))
		c.acquired(h, 0)
		synctest.Wait()
		c.extended(shard.NewHandle(l, c.opt.Clock, now+ticks.Tick(time.Hour)))
		time.Sleep(time.Minute)
		if err := c.Set(t.Context(), "k", "v"); err != nil || !c.Owns("k") || c.Standing("k") != Kept {
			t.Errorf("under a lease that was extended: %v, %v", err, c.Standing("k"))
		}
		time.Sleep(time.Hour)
		if err := c.Set(t.Context(), "k", "v"); !errors.Is(err, ErrNotOwner) || c.Owns("k") || c.Standing("k") != Nobody {
			t.Errorf("when it is over: %v, %v", err, c.Standing("k"))
		}
		if own, _ := c.leases(); own != 1 {
			t.Errorf("%d leases", own)
		}
		h.Revoke()
		c.revoked(h)
		if own, copies := c.leases(); own != 0 || copies != 0 || len(c.sliceLoads()) != 0 {
			t.Errorf("%d leases, %d copies when it was recalled", own, copies)
		}
	})
}

// Readers who ask for one key at the same time share a request to the store, and know it.
func TestReadersShareARequest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		st := &holding{Store: memory.New(memory.Options{}), held: make(chan struct{}, 9), release: make(chan struct{})}
		n := &counter{}
		c := open(t, Options[string]{Store: st, Codec: String(), Recorder: n})
		synctest.Wait()
		joined := make(chan bool, 3)
		for range 3 {
			go func() {
				e, err := c.GetEntry(t.Context(), "k")
				if err != nil || e.Hit {
					t.Errorf("%+v, %v", e, err)
				}
				joined <- e.Joined
			}()
			synctest.Wait()
		}
		close(st.release)
		shared := 0
		for range 3 {
			if <-joined {
				shared++
			}
		}
		if shared != 2 || n.loads.Load() > 2 || n.events[clink.Joined].Load() != 2 {
			t.Errorf("%d of 3 readers joined, with %d loads", shared, n.loads.Load())
		}
		if e, err := c.GetEntry(t.Context(), "other"); err != nil || e.Joined {
			t.Errorf("%+v, %v", e, err)
		}
	})
}

// A cache of versions answers Version from memory, and Get and updates from the store; values
// take no memory.
func TestVersionsOnly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := &counter{}
		c := open(t, Options[string]{Store: memory.New(memory.Options{}), Codec: String(), VersionsOnly: true, Recorder: n})
		synctest.Wait()
		value := strings.Repeat("v", 1<<20)
		written, err := c.SetTTL(t.Context(), "k", value, 0)
		if err != nil {
			t.Fatal(err)
		}
		gone, err := c.Delete(t.Context(), "gone")
		if err != nil {
			t.Fatal(err)
		}
		for range 3 {
			if v, exists, err := c.Version(t.Context(), "k"); v != written || !exists || err != nil {
				t.Errorf("version %d, %v, %v", v, exists, err)
			}
			if v, exists, err := c.Version(t.Context(), "gone"); v != gone || exists || err != nil {
				t.Errorf("version %d, %v, %v", v, exists, err)
			}
		}
		c.kept.CleanUp()
		if n.loads.Load() != 0 || c.Bytes() > 1<<10 || c.Len() != 2 {
			t.Errorf("%d loads; %d entries in %d bytes", n.loads.Load(), c.Len(), c.Bytes())
		}
		for range 2 {
			if v, ok, err := c.Get(t.Context(), "k"); v != value || !ok || err != nil {
				t.Errorf("%d bytes, %v, %v", len(v), ok, err)
			}
		}
		if _, ok := c.Peek("k"); ok || n.loads.Load() != 2 {
			t.Errorf("a value is in memory, after %d loads", n.loads.Load())
		}
		if _, err := c.Update(t.Context(), []string{"k"}, func(tx *Tx[string]) error {
			if e, err := tx.Get("k"); e.Value != value || err != nil {
				t.Errorf("an update sees %d bytes, %v", len(e.Value), err)
			}
			return nil
		}); err != nil {
			t.Error(err)
		}
		plain := open(t, Options[string]{Store: memory.New(memory.Options{}), Codec: String()})
		size := func(ttl time.Duration) int64 {
			before := plain.Bytes()
			if _, err := plain.SetTTL(t.Context(), fmt.Sprint(ttl), "v", ttl); err != nil {
				t.Fatal(err)
			}
			plain.kept.CleanUp()
			return plain.Bytes() - before - int64(len(fmt.Sprint(ttl)))
		}
		if lasts, expires := size(0), size(time.Hour); expires-lasts != rightBytes {
			t.Errorf("an entry takes %d bytes, and one that expires %d", lasts, expires)
		}
	})
}

// Hits stops at the first key that is not there, or may not be served, wherever that lies.
func TestHitsStopsAnywhere(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := open(t, Options[string]{Store: memory.New(memory.Options{}), Codec: String(), Peers: hooks{}})
		now := c.opt.Clock.Now()
		holds := newValidity(shard.NewHandle(lease.Lease{Gen: 1}, c.opt.Clock, now+ticks.Tick(time.Hour)))
		over := newValidity(shard.NewHandle(lease.Lease{Gen: 2}, c.opt.Clock, now))
		for _, length := range []int{0, 1, 31, 32, 33, 63, 64, 65, 96} {
			keys := make([]string, length)
			for i := range keys {
				keys[i] = fmt.Sprintf("%02d", i)
			}
			for _, missing := range []bool{true, false} {
				for at := range length + 1 {
					for i, k := range keys {
						c.kept.Set(k, entry[string]{value: k, version: 2, validity: holds})
						if i == at && missing {
							c.kept.Invalidate(k)
						} else if i == at {
							c.kept.Set(k, entry[string]{value: k, version: 2, validity: over})
						}
					}
					out := make([]Entry[string], length)
					if n := c.Hits(keys, out); n != at {
						t.Fatalf("of %d keys %d are served, and number %d cannot be (missing: %v)", length, n, at, missing)
					}
					for i := range at {
						if out[i].Value != keys[i] || !out[i].Hit {
							t.Fatalf("key %d is %+v", i, out[i])
						}
					}
				}
			}
		}
	})
}

// Ready waits for nobody's keys and the caller's, not for those owned elsewhere, and leaves
// the caller's list alone.
func TestReadyOfManyKeys(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newTown()
		st := memory.New(memory.Options{})
		c := open(t, Options[string]{Store: st, Codec: String(), Peers: citizen{w, "n1"}})
		other := open(t, Options[string]{Store: st, Codec: String(), Peers: citizen{w, "n2"}})
		w.deal("a", "n1")
		w.deal("b", "n2")
		synctest.Wait()
		if err := other.Set(t.Context(), "b", "v"); err != nil {
			t.Fatal(err)
		}
		keys := []string{"b", "a", "c", "b2"}
		ctx, cancel := context.WithTimeoutCause(t.Context(), time.Minute, errors.New("impatient"))
		defer cancel()
		if err := c.Ready(ctx, keys...); err == nil || !strings.Contains(err.Error(), `"c"`) || !strings.Contains(err.Error(), "nobody") || !strings.Contains(err.Error(), "impatient") {
			t.Error(err)
		}
		if !slices.Equal(keys, []string{"b", "a", "c", "b2"}) {
			t.Errorf("the caller's keys are %q now", keys)
		}
		time.AfterFunc(time.Minute, func() { w.deal("c", "n1") })
		if err := c.Ready(t.Context(), keys...); err != nil || c.Standing("c") != Kept || c.Standing("b") != Elsewhere {
			t.Error(err)
		}
		// What another node has in memory is read there, and not from the store.
		if e, err := c.GetEntry(t.Context(), "b"); err != nil || e.Value != "v" || e.Hit {
			t.Errorf("%+v, %v", e, err)
		}
	})
}

// A miss for which a reason is known keeps it, also while a guard is being installed.
func TestALeaseThatReturns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		st, rec := newStubborn(), &causes{}
		c := open(t, Options[string]{Store: st, Codec: String(), Recorder: rec, Peers: hooks{}})
		c.acquired(shard.NewHandle(lease.Lease{Gen: 1}, c.opt.Clock, c.opt.Clock.Now()+ticks.Tick(time.Minute)), 0)
		synctest.Wait()
		if err := c.Set(t.Context(), "k", "v"); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		st.fail(CallSetGuard, errors.New("no answer"))
		c.acquired(shard.NewHandle(lease.Lease{Gen: 2}, c.opt.Clock, 1<<62), 0)
		synctest.Wait()
		if e, err := c.GetEntry(t.Context(), "k"); err != nil || !e.Guarding || rec.of != [MissCauses]int{Invalid: 1} {
			t.Errorf("%+v, %v, %v", e, err, rec.of)
		}
		st.fail(CallSetGuard, nil)
		time.Sleep(time.Minute)
	})
}

// What an owner answers to a request for a cross-owner write decides what its coordinator does: a refusal that
// is sure is all, and whatever may have locked is told how it ended.
func TestRefusalsOfALender(t *testing.T) {
	for name, r := range map[string]struct {
		reply []byte
		err   error
		want  error
		says  string
		sure  bool
	}{
		"not the owner": {reply: []byte{sayNotOwner}, want: ErrNotOwner, sure: true},
		"busy":          {reply: []byte{sayBusy}, want: ErrBusy, sure: true},
		"unreached":     {err: ErrUnreached, want: ErrUnreached, sure: true},
		"a text":        {reply: []byte("ewhy not"), says: "there: why not"},
		"nothing":       {reply: []byte{}, want: errRequest},
		"no answer":     {err: context.DeadlineExceeded, want: context.DeadlineExceeded},
	} {
		synctest.Test(t, func(t *testing.T) {
			tb := newTables()
			peers := &owner{other: other{reply: r.reply, err: r.err}}
			v := tb.view(t, Options[string]{Peers: peers, Timeout: time.Millisecond})
			err := v.Update(t.Context(), []string{"k"}, appends([]string{"k"}, "x"))
			if err == nil || r.want != nil && !errors.Is(err, r.want) || !strings.Contains(err.Error(), r.says) || len(tb.rows) != 0 {
				t.Errorf("%s: %v", name, err)
			}
			synctest.Wait()
			peers.mu.Lock()
			defer peers.mu.Unlock()
			if locks, told := peers.kinds[askLock], peers.kinds[askSettle]; locks == 0 || (told == 0) != r.sure {
				t.Errorf("%s: %d locks are asked for, %d ends are told", name, locks, told)
			}
		})
	}
	for reply, want := range map[string]crossowner.Outcome{"y\x00": crossowner.Done, "y\x01": crossowner.Failed, "y\x02": crossowner.Again, "y\x03": crossowner.Unknown, "y\x04": crossowner.Unknown} {
		peers := &other{reply: []byte(reply)}
		c := open(t, Options[string]{Store: memory.New(memory.Options{}), Codec: String(), Peers: peers})
		if got := c.askToSettle(t.Context(), "there", clink.ID{1}, crossowner.StatusUnknown); got != want {
			t.Errorf("%q is taken for %d", reply, got)
		}
		if string(peers.asked) != string(settleRequest(1, crossowner.StatusUnknown)) {
			t.Errorf("the end is told as %q", peers.asked)
		}
		peers.err = errors.New("no answer")
		if got := c.askToSettle(t.Context(), "there", clink.ID{1}, crossowner.StatusUnknown); got != crossowner.Unknown {
			t.Errorf("%q with an error is taken for %d", reply, got)
		}
	}
}

// owner answers every request alike, and counts them by kind.
type owner struct {
	other
	mu    sync.Mutex
	kinds map[byte]int
}

func (l *owner) Call(_ context.Context, _ string, request []byte) ([]byte, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.kinds == nil {
		l.kinds = map[byte]int{}
	}
	l.kinds[request[0]]++
	return l.reply, l.err
}

// What is left out of the options has the documented default, and only then.
func TestDefaults(t *testing.T) {
	opt := Options[string]{Store: memory.New(memory.Options{}), Codec: String()}
	for given, want := range map[int64]int64{-1: 200, 0: 200, 1: 1, 500: 500} {
		o := opt
		o.Drift = given
		if err := o.check(); err != nil || o.Drift != want || o.MaxBytes != 256<<20 || o.Timeout != 5*time.Second || o.Recorder == nil || o.Logger == nil {
			t.Errorf("%v: %+v", err, o)
		}
	}
	if opt.MaxBytes, opt.Timeout = -1, 1; opt.check() != nil || opt.MaxBytes != -1 || opt.Timeout != 1 {
		t.Errorf("%+v", opt)
	}
	if _, err := NewView[string, *textTx](nil, newTables().text, Options[string]{Codec: String()}); err == nil {
		t.Error("a view of no tables")
	}
}

// An update sees each key once and as it is, in whatever order it names them, and is over when
// it returns: its function is not called afterwards.
func TestUpdatesOfSeveralKeys(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		st := &holding{Store: memory.New(memory.Options{}), held: make(chan struct{}, 9), release: make(chan struct{})}
		c := open(t, Options[string]{Store: st, Codec: String(), Timeout: time.Hour})
		synctest.Wait()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		over := false
		_, err := c.Update(ctx, []string{"a"}, func(*Tx[string]) error {
			if over {
				t.Error("the function of an update is called when that is over")
			}
			return nil
		})
		if over = true; !errors.Is(err, context.DeadlineExceeded) {
			t.Error(err)
		}
		close(st.release)
		synctest.Wait()
		if err := c.SetAll(t.Context(), map[string]string{"a": "1", "b": "2", "c": "3"}); err != nil {
			t.Fatal(err)
		}
		versions, err := c.Update(t.Context(), []string{"c", "a", "b", "a"}, func(tx *Tx[string]) error {
			for k, want := range map[string]string{"a": "1", "b": "2", "c": "3"} {
				if e, err := tx.Get(k); e.Value != want || err != nil {
					t.Errorf("%s is %+v, %v", k, e, err)
				}
			}
			return errors.Join(tx.Set("c", "4"), tx.Set("b", "5"))
		})
		if err != nil || len(versions) != 2 {
			t.Errorf("%v, %v", versions, err)
		}
		for k, v := range versions {
			if e, err := c.GetEntry(t.Context(), k); err != nil || e.Version != v || e.Value == "" {
				t.Errorf("%s is %+v, %v; its version is to be %d", k, e, err, v)
			}
		}
	})
}
