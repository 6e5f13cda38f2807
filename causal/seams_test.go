package causal

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/freshet-cache/freshet/causal/mesh"
	"github.com/freshet-cache/freshet/causal/wire"
	"github.com/freshet-cache/freshet/internal/testkit"
	"github.com/freshet-cache/freshet/leader"
	"github.com/freshet-cache/freshet/member"
	"github.com/freshet-cache/freshet/member/view"
	"github.com/freshet-cache/freshet/store/journal"
	"github.com/freshet-cache/freshet/store/memory"
	"github.com/freshet-cache/freshet/ticks"
)

// witness is a store that remembers what was asked of it about incarnations, in order.
type witness struct {
	*memory.Journal
	mu   sync.Mutex
	said []string
}

func (w *witness) say(format string, a ...any) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.said = append(w.said, fmt.Sprintf(format, a...))
}

// before reports whether one was said, and before another, if that was.
func (w *witness) before(one, other string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	i, j := slices.Index(w.said, one), slices.Index(w.said, other)
	return i >= 0 && (j < 0 || i < j)
}

func (w *witness) Fence(ctx context.Context, o uint32) error {
	w.say("fence %d", o)
	return w.Journal.Fence(ctx, o)
}

func (w *witness) Entries(ctx context.Context, o uint32, after uint64, n int) ([]journal.Entry, uint64, error) {
	w.say("journal %d", o)
	return w.Journal.Entries(ctx, o, after, n)
}

// A journal is read when its incarnation is over: its lease has ended, and the store takes nothing of it any more. All of it
// is read, however long it is.
func TestRecoveryWaits(t *testing.T) {
	const writes = 2*journalPage + 7
	db, over := &witness{Journal: memory.NewJournal(memory.Options{})}, make(chan struct{})
	for o := range uint32(2) {
		if err := db.Begin(t.Context(), o+1, journal.NewName()); err != nil {
			t.Fatal(err)
		}
	}
	for i := range uint64(writes) {
		w := &mesh.Write{Dot: mesh.Dot{Incarnation: 2, N: i + 1}, Stamp: mesh.Stamp{Time: i + 1, Incarnation: 2}, Muts: []mesh.Mut{{Key: fmt.Sprint("k", i), Value: []byte("v")}}}
		err := db.Persist(t.Context(), journal.Write{Dot: journal.Dot{Incarnation: 2, N: i + 1}, Stamp: journal.Stamp{Time: i + 1, Incarnation: 2},
			Muts: []journal.Mutation{{Key: w.Muts[0].Key, Value: w.Muts[0].Value}}, Body: wire.AppendWrite(nil, w)})
		if err != nil {
			t.Fatal(err)
		}
	}
	asked := make(chan uint32, 100)
	retired := make(chan uint32, 100)
	s, err := NewServer(ServerOptions{
		Store: db, Incarnation: 1, View: View{Number: 2, Ring: []RingServer{{Incarnation: 1}}, Departed: []uint32{2}, Newest: 2},
		Ended: func(ctx context.Context, incarnation uint32) error {
			asked <- incarnation
			select {
			case <-over:
				db.say("ended %d", incarnation)
				return nil
			case <-ctx.Done():
				return ctx.Err()
			}
		},
		Retired: func(incarnation uint32) {
			select {
			case retired <- incarnation:
			default:
			}
		}, Settings: Settings{Round: time.Millisecond},
	})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close(context.Background())
	select {
	case incarnation := <-asked:
		if incarnation != 2 {
			t.Fatalf("it asks whether incarnation %d has ended", incarnation)
		}
	case <-retired:
		t.Fatalf("an incarnation is recovered, and nobody asked whether it has ended: %v", db.said)
	}
	if db.before("fence 2", "ended 2") || db.before("journal 2", "ended 2") {
		t.Fatalf("an incarnation that may serve yet is recovered: %v", db.said)
	}
	close(over)
	if incarnation := <-retired; incarnation != 2 {
		t.Errorf("incarnation %d is retired", incarnation)
	}
	if !db.before("ended 2", "fence 2") || !db.before("fence 2", "journal 2") {
		t.Errorf("its journal is read before nothing is added to it: %v", db.said)
	}
	s.mu.Lock()
	received := s.machine.Received().Upto(2)
	s.mu.Unlock()
	if received != writes {
		t.Errorf("%d of %d writes were recovered", received, writes)
	}
}

// A ring begins anew when all its servers are gone: the first takes nothing for stable that may yet be added to, and what
// is written there beats every row.
func TestRingBeginsAnew(t *testing.T) {
	emptyPools()
	synctest.Test(t, func(t *testing.T) {
		k := newKingdom(t, &luck{r: rand.New(rand.NewPCG(1, 1))}, leaseLength, memory.Options{})
		db := &witness{Journal: k.store}
		k.with = func(o *Options) { o.Store = db }
		ctx, first := t.Context(), k.join(t)
		s := k.spaces[first].Begin()
		testkit.Eventually(t, func() bool { return s.Set(ctx, "x", "old") == nil })
		k.end(first, false)
		ahead := uint64(time.Now().Add(30 * time.Minute).UnixMicro()) // somebody's clock
		err := errors.Join(db.Begin(ctx, 2, journal.NewName()), db.Persist(ctx, journal.Write{
			Dot: journal.Dot{Incarnation: 2, N: 1}, Stamp: journal.Stamp{Time: ahead, Incarnation: 2}, Muts: []journal.Mutation{{Key: "y", Value: []byte("old")}},
		}), db.Truncate(ctx, 2, 1), db.Journal.Fence(ctx, 2))
		if err != nil {
			t.Fatal(err)
		}
		next := k.join(t)
		testkit.Eventually(t, func() bool { return k.spaces[next].Begin().Set(ctx, "y", "new") == nil })
		if v := k.row(t, "y"); v != "new" {
			t.Errorf("what was written last is %q in the store", v)
		}
		if !db.before("fence 1", "journal 1") {
			t.Errorf("incarnation 1 may yet write when its journal is read: %v", db.said)
		}
		if v, _, err := roam(t, s, k.spaces[next]).Get(ctx, "x"); err != nil || v != "old" {
			t.Errorf("x is %q, %v", v, err)
		}
		k.peace(t)
	})
	emptyPools()
}

// Who hears nothing of the leader takes no writes when its lease is over, and has a place again when it hears of it.
func TestNoWritesWithoutALease(t *testing.T) {
	emptyPools()
	synctest.Test(t, func(t *testing.T) {
		k := newKingdom(t, &luck{r: rand.New(rand.NewPCG(1, 1))}, leaseLength, memory.Options{})
		ctx, s := t.Context(), k.spaces[k.join(t)].Begin()
		testkit.Eventually(t, func() bool { return s.Set(ctx, "x", "1") == nil })
		k.setMute(0, true)
		if err := s.Set(ctx, "x", "2"); err != nil {
			t.Errorf("a write with a lease: %v", err)
		}
		time.Sleep(leaseLength)
		if err := s.Set(ctx, "x", "3"); !errors.Is(err, ErrExpelled) {
			t.Errorf("a write without a lease: %v", err)
		}
		if v, _, err := s.Get(ctx, "x"); err != nil || v != "2" {
			t.Errorf("a read past the servers: %q, %v", v, err)
		}
		k.setMute(0, false)
		testkit.Eventually(t, func() bool { return s.Set(ctx, "x", "4") == nil })
		k.peace(t)
	})
	emptyPools()
}

// An incarnation that was given a number and never began is over for the store, so that its ring does not wait for its log. One
// that began is not.
func TestUnborn(t *testing.T) {
	db, server, _ := alone(t, memory.Options{})
	ctx := t.Context()
	for range 2 {
		if err := errors.Join(server.unborn(ctx, 9), server.unborn(ctx, 1)); err != nil {
			t.Fatal(err)
		}
	}
	over, err := db.Fenced(ctx, 1, 9)
	if err != nil || !slices.Equal(over, []uint32{9}) {
		t.Errorf("over are %v, %v", over, err)
	}
	if err := db.Begin(ctx, 9, journal.NewName()); !errors.Is(err, journal.ErrBegun) {
		t.Errorf("incarnation 9 begins after all: %v", err)
	}
}

// An incarnation that never began is ended though the store does not answer at first.
func TestUnbornIsTriedAgain(t *testing.T) {
	var failed atomic.Bool
	db, server, _ := alone(t, memory.Options{Before: func(_ context.Context, c memory.Call) error {
		if c.Op == memory.OpTruncate && !failed.Swap(true) { // the fence
			return errors.New("no answer")
		}
		return nil
	}})
	for try := 0; server.unborn(t.Context(), 9) != nil; try++ {
		if try > 10 {
			t.Fatal("it is never ended")
		}
	}
	if over, err := db.Fenced(t.Context(), 9); err != nil || len(over) != 1 {
		t.Errorf("over are %v, %v", over, err)
	}
}

// useless is a coordinator that is of no use.
type useless struct{ asked atomic.Int64 }

func (u *useless) Lead(context.Context) (leader.Leadership, error) {
	u.asked.Add(1)
	return leader.Leadership{}, errors.New("nobody leads")
}

func (u *useless) Save(context.Context, uint64, []byte) error { return leader.ErrDeposed }

// A leader whose coordinator fails rests before it asks again.
func TestLeaderRests(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		u := &useless{}
		k := member.StartLeader(u, member.LeaderOptions{Options: view.Options{Length: ticks.Tick(20 * time.Second)}})
		time.Sleep(10*time.Second + time.Millisecond)
		if n := u.asked.Load(); n < 9 || n > 12 {
			t.Errorf("the coordinator was asked %d times in ten beats", n)
		}
		if k.Answer([]byte("noise")) != nil {
			t.Error("noise is answered")
		}
		k.Close()
	})
}

// kinds counts requests to the store by kind.
type kinds struct {
	nobody
	mu sync.Mutex
	n  map[StoreCall]int
}

func (k *kinds) StoreCall(kind StoreCall, _ time.Duration, _ error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.n == nil {
		k.n = map[StoreCall]int{}
	}
	k.n[kind]++
}

func (k *kinds) of(kind StoreCall) int {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.n[kind]
}

// Requests are counted for what they are, and what the store was told to collect it is told once.
func TestKindsOfRequests(t *testing.T) {
	for _, async := range []bool{false, true} {
		k := &kinds{}
		change := func(o *ServerOptions) { o.Recorder = k }
		if async {
			change = (&disks{}).onDisk(t, change)
		}
		c := gather(t, 1, memory.Options{}, change)
		s := c.spaces[0].Begin()
		for _, err := range []error{s.Set(t.Context(), "k", "v"), s.Delete(t.Context(), "k")} {
			if err != nil {
				t.Fatal(err)
			}
		}
		if _, _, err := c.spaces[0].Begin().Get(t.Context(), "never"); err != nil {
			t.Fatal(err)
		}
		testkit.Eventually(t, func() bool { return k.of(CallCollect) > 0 && k.of(CallTruncate) > 0 })
		testkit.Eventually(t, func() bool { return k.of(CallPoll) > 0 })
		if log, persist := k.of(CallLog), k.of(CallPersist); (log > 0) != async || (persist > 0) == async || k.of(CallLoad) == 0 || (k.of(CallMerge) > 0) != async || (k.of(CallClaim) > 0) != async {
			t.Errorf("async %v: %v", async, k.n)
		}
		collected, server := k.of(CallCollect), c.servers[0]
		for range 5 * settleBeats {
			server.truncate()
			testkit.Eventually(t, func() bool { server.mu.Lock(); defer server.mu.Unlock(); return !server.settle.busy })
		}
		if n := k.of(CallCollect); n > collected+1 {
			t.Errorf("async %v: the store was told to collect %d times, and then %d", async, collected, n)
		}
	}
}

// A transaction whose snapshot is gone is begun again, so often; one that fails for another reason is not.
func TestTransactTriesAgain(t *testing.T) {
	_, _, space := alone(t, memory.Options{})
	broken := errors.New("the workflow is broken")
	for _, c := range []struct {
		fails, want int
		with, told  error
	}{{0, 1, ErrStale, nil}, {3, 4, ErrStale, nil}, {1, 1, broken, broken}, {1 << 20, maxTries, ErrStale, ErrStale}} {
		tries := 0
		_, err := space.Transact(t.Context(), func(tx *Tx[string]) error {
			if tries++; tries <= c.fails {
				return c.with
			}
			return tx.Set("k", "v")
		})
		if tries != c.want || !errors.Is(err, c.told) {
			t.Errorf("%+v: %d tries, %v", c, tries, err)
		}
	}
}
