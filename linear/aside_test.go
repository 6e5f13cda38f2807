package linear

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/freshet-cache/freshet/linear/clink"
	"github.com/freshet-cache/freshet/linear/replica"
	"github.com/freshet-cache/freshet/shard"
	"github.com/freshet-cache/freshet/shard/lease"
	"github.com/freshet-cache/freshet/store"
	"github.com/freshet-cache/freshet/store/memory"
)

// fails has an invariant fail, as an input does that no machine knows.
func (c *Cache[V]) fails() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.step(nil, nil)
}

// After an invariant has failed, nothing that was kept is served, nothing is kept again,
// every lease is given up, no write begins, and reads of all kinds come from the store. It is
// recorded once, whatever arrives afterwards.
func TestAsideNothingIsServedFromMemory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := &counter{}
		st := memory.New(memory.Options{})
		offers := 0
		c := open(t, Options[string]{Store: st, Codec: String(), Recorder: n, Peers: telling{hooks: hooks{offer: func(context.Context, string, lease.Gen, []moved) { offers++ }}}})
		h := shard.NewHandle(lease.Lease{Gen: 1}, c.opt.Clock, 1<<62)
		c.acquired(h, 0)
		synctest.Wait()
		if err := c.Set(t.Context(), "k", "v"); err != nil {
			t.Fatal(err)
		}
		c.fails()
		if h.Valid() {
			t.Error("the lease is held")
		}
		if c.Len() != 0 {
			t.Errorf("%d entries are kept", c.Len())
		}
		c.acquired(shard.NewHandle(lease.Lease{Gen: 2}, c.opt.Clock, 1<<62), 0)
		c.extended(h)
		c.offered(1, []moved{{Key: "k", Value: []byte("offered"), Exists: true, Version: 1 << 40}})
		c.sharedWith(shared(c, 3, "k"))
		c.told(appendMessage(nil, replica.Cacheable{Gen: 3}))
		c.handedOver(h, lease.Range{}, 2, "n2")
		c.fails()
		synctest.Wait()
		for range 2 {
			if v, ok, err := c.Get(t.Context(), "k"); v != "v" || !ok || err != nil {
				t.Errorf("Get: %q, %v, %v", v, ok, err)
			}
			if e, err := c.GetEntry(t.Context(), "k"); e.Value != "v" || e.Hit || e.Copy || err != nil {
				t.Errorf("GetEntry: %+v, %v", e, err)
			}
			if e, err := c.VersionEntry(t.Context(), "k"); !e.Exists || e.Version == 0 || e.Hit || err != nil {
				t.Errorf("VersionEntry: %+v, %v", e, err)
			}
		}
		if _, ok := c.Peek("k"); ok || c.Hits([]string{"k"}, make([]Entry[string], 1)) != 0 {
			t.Error("an entry is served from memory")
		}
		_, deleting := c.Delete(t.Context(), "k")
		_, updating := c.Update(t.Context(), []string{"k"}, func(tx *Tx[string]) error { return tx.Set("k", "w") })
		_, lending := c.lock(t.Context(), clink.ID{1}, []string{"k"})
		for what, err := range map[string]error{"Set": c.Set(t.Context(), "k", "w"), "SetAll": c.SetAll(t.Context(), map[string]string{"k": "w"}),
			"Delete": deleting, "Update": updating, "a lock": lending} {
			if err == nil || errors.Is(err, ErrOutcomeUnknown) || !strings.Contains(err.Error(), "nothing was written") || !strings.Contains(err.Error(), "restart") {
				t.Errorf("%s: %v", what, err)
			}
		}
		if got := n.aside.Load(); got != 1 || offers != 0 || c.Standing("k") != Aside {
			t.Errorf("it stepped aside %d times, offered %d times, and stands %v", got, offers, c.Standing("k"))
		}
	})
}

// A store that fails when an invariant has failed is the reader's error: there is nothing
// to fall back on.
func TestAsideTheStoreFails(t *testing.T) {
	fails := errors.New("no connection")
	c := open(t, Options[string]{Codec: String(), Store: memory.New(memory.Options{Before: func(_ context.Context, c memory.Call) error {
		if c.Op == memory.OpLoad {
			return fails
		}
		return nil
	}})})
	for _, aside := range []bool{false, true} {
		if aside {
			c.fails()
		}
		if e, err := c.GetEntry(t.Context(), "k"); !errors.Is(err, fails) {
			t.Errorf("aside %v: %+v, %v", aside, e, err)
		}
		if v, exists, err := c.Version(t.Context(), "k"); !errors.Is(err, fails) {
			t.Errorf("aside %v: version %d, %v, %v", aside, v, exists, err)
		}
	}
}

// A caller who waits when an invariant fails is not left waiting, and is told that its write
// may have been applied; the store's answer, when it comes, is nobody's.
func TestAsideNobodyWaitsForEver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		st := &holding{Store: memory.New(memory.Options{}), held: make(chan struct{}, 2), release: make(chan struct{})}
		c := open(t, Options[string]{Store: st, Codec: String(), Timeout: time.Hour})
		synctest.Wait()
		errs := make(chan error, 2)
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute) // with a deadline, others carry the requests out
		defer cancel()
		go func() { errs <- c.Set(ctx, "a", "v") }()
		synctest.Wait()
		go func() { _, err := c.lock(ctx, clink.ID{1}, []string{"a"}); errs <- err }() // behind the write
		synctest.Wait()
		c.fails()
		for range 2 {
			if err := <-errs; !errors.Is(err, ErrOutcomeUnknown) || errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("a caller is told %v", err)
			}
		}
		close(st.release)
		synctest.Wait()
		if v, ok, err := c.Get(t.Context(), "a"); v != "v" || !ok || err != nil {
			t.Errorf("%q, %v, %v", v, ok, err)
		}
	})
}

// shared is a lease of key that another node owns, and of which this one keeps copies.
func shared[V any](c *Cache[V], gen lease.Gen, key string) *shard.Handle {
	h := shard.NewHandle(lease.Lease{Gen: gen, Range: lease.Range{Low: key, High: key + "\x00"}}, c.opt.Clock, 1<<62)
	h.Copy, h.Group = true, lease.Group{{Node: "n1", Addr: "n1"}, {Node: "n2", Addr: "n2"}}
	return h
}

// A node that keeps copies of a key says to its reader why a copy could not be read, and
// reads it at the next attempt. What it then keeps is served from memory, as a copy, until
// the lease is over.
func TestACopyThatCannotBeRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var fails error
		loads := 0
		st := memory.New(memory.Options{Before: func(_ context.Context, c memory.Call) error {
			if c.Op == memory.OpLoad {
				loads++
				return fails
			}
			return nil
		}})
		if _, err := st.Commit(t.Context(), store.ID{1}, []store.Mutation{{Key: "k", Value: []byte("v")}}); err != nil {
			t.Fatal(err)
		}
		var said []replica.Message
		c := open(t, Options[string]{Store: st, Codec: String(), Peers: telling{node: "n2", tell: func(to lease.GroupMember, message []byte) {
			m, ok := decodeMessage(message)
			if said = append(said, m); !ok || to.Node != "n1" {
				t.Errorf("%q to %v", message, to)
			}
		}}})
		h := shared(c, 7, "k")
		c.sharedWith(h)
		if own, copies := c.leases(); own != 0 || copies != 1 || !c.mayCopy("k") || c.mayCopy("other") || c.Owns("k") {
			t.Errorf("%d leases, %d copies", own, copies)
		}
		if e, err := c.GetEntry(t.Context(), "k"); err != nil || e.Value != "v" || c.Len() != 0 {
			t.Errorf("before the primary has spoken: %+v, %v", e, err)
		}
		c.told(appendMessage(nil, replica.Cacheable{Gen: 7}))
		fails = errors.New("no connection")
		if e, err := c.GetEntry(t.Context(), "k"); !errors.Is(err, fails) || e.Exists {
			t.Errorf("%+v, %v", e, err)
		}
		fails, loads = nil, 0
		for i := range 3 {
			if e, err := c.GetEntry(t.Context(), "k"); err != nil || e.Value != "v" || e.Hit != (i > 0) || e.Hit && !e.Copy {
				t.Errorf("read %d: %+v, %v", i, e, err)
			}
		}
		if e, err := c.VersionEntry(t.Context(), "k"); err != nil || !e.Hit || !e.Copy {
			t.Errorf("its version: %+v, %v", e, err)
		}
		if loads != 1 {
			t.Errorf("%d loads", loads)
		}
		if len(said) != 2 || said[1] != (replica.Report{Gen: 7, From: "n2", Open: true}) {
			t.Errorf("it reports %+v", said)
		}
		h.Revoke()
		c.unshared(h)
		if own, copies := c.leases(); own != 0 || copies != 0 || c.Len() != 0 || c.mayCopy("k") {
			t.Errorf("%d leases, %d copies, %d entries when nothing is shared", own, copies, c.Len())
		}
		if e, err := c.GetEntry(t.Context(), "k"); err != nil || e.Hit || e.Copy {
			t.Errorf("%+v, %v", e, err)
		}
	})
}

// Readers of a copy who come while another reads the store are answered too, by a read that
// began after they came if what was found may not be kept. A closed cache answers none.
func TestLateReadersOfACopy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		st := &holding{Store: memory.New(memory.Options{}), held: make(chan struct{}, 9), release: make(chan struct{})}
		n := &counter{}
		c, err := New(Options[string]{Store: st, Codec: String(), Recorder: n, Peers: telling{node: "n2"}, Timeout: time.Hour})
		if err != nil {
			t.Fatal(err)
		}
		c.sharedWith(shared(c, 7, "k")) // whose primary has not spoken
		answered := make(chan error, 3)
		for range 3 {
			go func() {
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				defer cancel()
				_, _, err := c.Get(ctx, "k")
				answered <- err
			}()
			synctest.Wait()
		}
		close(st.release)
		for range 3 {
			if err := <-answered; err != nil {
				t.Error(err)
			}
		}
		if got := n.loads.Load(); got != 2 {
			t.Errorf("%d loads", got)
		}
		if err := c.Close(t.Context()); err != nil {
			t.Error(err)
		}
		if e, err := c.GetEntry(t.Context(), "k"); !errors.Is(err, ErrClosed) {
			t.Errorf("%+v, %v", e, err)
		}
		for range 2 {
			if !c.told(appendMessage(nil, replica.Cacheable{Gen: 7})) {
				t.Error("a closed cache cannot read")
			}
		}
	})
}

// A reader of a copy that gives up is told why; the read goes on for the next one, and
// what expires is kept for as long as it lives.
func TestAReaderOfACopyGivesUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		st := &holding{Store: memory.New(memory.Options{}), held: make(chan struct{}, 2), release: make(chan struct{})}
		row := []store.Mutation{{Key: "k", Value: []byte("v"), TTL: time.Hour}}
		if _, err := st.Store.Commit(t.Context(), store.ID{1}, row); err != nil {
			t.Fatal(err)
		}
		c := open(t, Options[string]{Store: st, Codec: String(), Peers: telling{node: "n2"}, Timeout: time.Hour})
		c.sharedWith(shared(c, 7, "k"))
		c.told(appendMessage(nil, replica.Cacheable{Gen: 7}))
		impatient := errors.New("impatient")
		ctx, cancel := context.WithTimeoutCause(t.Context(), time.Second, impatient)
		defer cancel()
		if e, err := c.GetEntry(ctx, "k"); !errors.Is(err, impatient) || e.Exists {
			t.Errorf("%+v, %v", e, err)
		}
		if _, callers := c.underWay(); callers != 0 {
			t.Errorf("%d callers wait", callers)
		}
		close(st.release)
		synctest.Wait()
		e, ok := c.Peek("k")
		if !ok || e.Value != "v" || !e.Copy || e.TTL <= 0 || e.TTL > time.Hour {
			t.Errorf("%+v, %v", e, ok)
		}
		time.Sleep(time.Hour)
		if e, ok := c.Peek("k"); ok {
			t.Errorf("its TTL is over: %+v", e)
		}
	})
}

// A reader of a copy who waits when an invariant fails reads the store, and the answer to its
// first request, when that comes, is nobody's.
func TestAsideAReaderOfACopy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		first := make(chan struct{})
		loads := 0
		st := memory.New(memory.Options{Before: func(_ context.Context, c memory.Call) error {
			if c.Op == memory.OpLoad {
				if loads++; loads == 1 {
					<-first
				}
			}
			return nil
		}})
		if _, err := st.Commit(t.Context(), store.ID{1}, []store.Mutation{{Key: "k", Value: []byte("v")}}); err != nil {
			t.Fatal(err)
		}
		c := open(t, Options[string]{Store: st, Codec: String(), Peers: telling{node: "n2"}, Timeout: time.Hour})
		c.sharedWith(shared(c, 7, "k"))
		c.told(appendMessage(nil, replica.Cacheable{Gen: 7}))
		got := make(chan error, 1)
		go func() {
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			v, ok, err := c.Get(ctx, "k")
			if v != "v" || !ok {
				t.Errorf("%q, %v", v, ok)
			}
			got <- err
		}()
		synctest.Wait()
		c.fails()
		if err := <-got; err != nil {
			t.Errorf("a read ends with %v", err)
		}
		close(first)
		synctest.Wait()
		_, callers := c.underWay()
		if e, ok := c.Peek("k"); callers != 0 || ok {
			t.Errorf("%d callers wait; from memory it serves %+v, %v", callers, e, ok)
		}
	})
}
