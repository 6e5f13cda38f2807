package causal

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/freshet-cache/freshet/codec"
	"github.com/freshet-cache/freshet/internal/testkit"
	"github.com/freshet-cache/freshet/member"
	"github.com/freshet-cache/freshet/member/view"
	"github.com/freshet-cache/freshet/store/memory"
)

// led is a ring of one process, whose leader is asked through ask.
func led(t *testing.T, store RingStore, ask func(answer []byte) []byte) *Ring {
	t.Helper()
	leader := member.StartLeader(seat{newThrone(&luck{r: rand.New(rand.NewPCG(1, 1))}, &atomic.Bool{}), 0}, member.LeaderOptions{})
	r, err := Join(Options{Store: store, Addr: "a", Ask: func(_ context.Context, request []byte) ([]byte, error) {
		if answer := leader.Answer(request); answer != nil {
			return ask(answer), nil
		}
		return nil, errors.New("nobody leads")
	}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { r.Close(); leader.Close() })
	return r
}

// A ring asks its leader five times a second unless it is told otherwise, and more often only while
// it has no place.
func TestARingAsksFiveTimesASecond(t *testing.T) {
	emptyPools()
	synctest.Test(t, func(t *testing.T) {
		var asked atomic.Int64
		r := led(t, memory.NewJournal(memory.Options{}), func(b []byte) []byte { asked.Add(1); return b })
		if err := r.Ready(t.Context()); err != nil {
			t.Fatal(err)
		}
		before := asked.Load()
		time.Sleep(10 * time.Second)
		if n := asked.Load() - before; n < 45 || n > 55 {
			t.Errorf("the leader was asked %d times in ten seconds", n)
		}
	})
	emptyPools()
}

// A ring is ready when it has the key of its tokens. Until then it has no key, not an empty one.
func TestARingIsReadyWithItsKey(t *testing.T) {
	emptyPools()
	synctest.Test(t, func(t *testing.T) {
		var keyed atomic.Bool
		r := led(t, memory.NewJournal(memory.Options{}), func(b []byte) []byte {
			if g, err := view.DecodeGrant(b); err == nil && !keyed.Load() {
				g.View.Key = nil
				return view.AppendGrant(nil, g)
			}
			return b
		})
		testkit.Eventually(t, func() bool { s, err := r.Server(); return err == nil && s.Joined() })
		if _, err := r.TokenKey(); !errors.Is(err, ErrJoining) {
			t.Errorf("before the key has come: %v", err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := r.Ready(ctx); !errors.Is(err, ErrJoining) || !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("a ring without a key is ready: %v", err)
		}
	})
	emptyPools()
}

// unfenced is a store that refuses to fence for a while.
type unfenced struct {
	*memory.Journal
	refuses atomic.Bool
	refused atomic.Int64
}

func (u *unfenced) Fence(ctx context.Context, o uint32) error {
	if u.refuses.Load() {
		u.refused.Add(1)
		return errors.New("the store does not fence")
	}
	return u.Journal.Fence(ctx, o)
}

// A ring that begins anew serves nobody before the store has fenced every incarnation that departed:
// a late write of one could still be committed.
func TestARingServesNobodyBeforeItsFences(t *testing.T) {
	emptyPools()
	synctest.Test(t, func(t *testing.T) {
		k := newKingdom(t, &luck{r: rand.New(rand.NewPCG(1, 1))}, leaseLength, memory.Options{})
		db := &unfenced{Journal: k.store}
		k.with = func(o *Options) { o.Store = db }
		first := k.join(t)
		s := k.spaces[first].Begin()
		testkit.Eventually(t, func() bool { return s.Set(t.Context(), "x", "old") == nil })
		k.end(first, false)
		testkit.Eventually(t, func() bool { return len(k.throne.stored(t).Ring) == 0 }) // it has been silent for too long
		db.refuses.Store(true)
		next := k.join(t)
		served := false
		testkit.Eventually(t, func() bool {
			_, err := k.rings[next].Server()
			served = served || err == nil
			return db.refused.Load() >= 5
		})
		if served {
			t.Error("the ring serves, and an incarnation that departed is not fenced")
		}
		db.refuses.Store(false)
		testkit.Eventually(t, func() bool {
			v, _, err := roam(t, s, k.spaces[next]).Get(t.Context(), "x")
			return err == nil && v == "old"
		})
		k.peace(t)
	})
	emptyPools()
}

// A ring works over a store that cannot merge what logs have.
func TestARingOverAStoreThatCannotMerge(t *testing.T) {
	emptyPools()
	synctest.Test(t, func(t *testing.T) {
		r := led(t, struct{ RingStore }{memory.NewJournal(memory.Options{})}, func(b []byte) []byte { return b })
		if err := r.Ready(t.Context()); err != nil {
			t.Fatal(err)
		}
	})
	emptyPools()
}

// The row of a deleted key is removed from the store when every server has received the deletion.
func TestTombstonesAreCollected(t *testing.T) {
	emptyPools()
	synctest.Test(t, func(t *testing.T) {
		c := gather(t, 2, memory.Options{}, nil)
		s := c.spaces[0].Begin()
		if err := errors.Join(s.Set(t.Context(), "k", "v"), s.Set(t.Context(), "stays", "v"), s.Delete(t.Context(), "k")); err != nil {
			t.Fatal(err)
		}
		testkit.Eventually(t, func() bool {
			rows, err := c.store.Load(t.Context(), "k", "stays")
			return err == nil && rows[0].Dot.N == 0 && rows[1].Dot.N == 2
		})
	})
	emptyPools()
}

// A value that cannot be decoded is an error, and does not count as there; nor does one of a server
// that has ended.
func TestAReadThatFailsFindsNothing(t *testing.T) {
	_, server, space := alone(t, memory.Options{})
	numbers, err := NewSpace(server, SpaceOptions[int]{Codec: codec.JSON[int](), Name: "test", Key: []byte("secret")})
	if err != nil {
		t.Fatal(err)
	}
	ctx := t.Context()
	if err := space.Begin().Set(ctx, "k", "no number"); err != nil {
		t.Fatal(err)
	}
	if _, ok, err := numbers.Begin().Get(ctx, "k"); ok || err == nil {
		t.Errorf("a value that cannot be decoded is there: %v, %v", ok, err)
	}
	if _, ok, err := space.Begin().Get(ctx, ""); ok || err == nil {
		t.Errorf("a key that cannot be is there: %v, %v", ok, err)
	}
	ended, cancel := context.WithCancel(ctx)
	cancel()
	_ = server.Close(ctx)
	if _, ok, err := space.Begin().Get(ended, "other"); ok || err == nil {
		t.Errorf("a server that has ended answers: %v, %v", ok, err)
	}
}
