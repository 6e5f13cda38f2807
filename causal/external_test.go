package causal

import (
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/freshet-cache/freshet/causal/mesh"
	"github.com/freshet-cache/freshet/causal/wire"
	"github.com/freshet-cache/freshet/internal/testkit"
	"github.com/freshet-cache/freshet/store/journal"
	"github.com/freshet-cache/freshet/store/memory"
)

// writeExternally writes a key past the caches, in a space that the store watches.
func writeExternally(t *testing.T, db *memory.Journal, n uint64, key, value string) {
	t.Helper()
	at := uint64(time.Now().UnixMicro())
	w := &mesh.Write{Dot: mesh.Dot{Incarnation: mesh.External, N: n}, Stamp: mesh.Stamp{Time: at, Incarnation: mesh.External}, Muts: []mesh.Mut{{Key: key, Value: []byte(value)}}}
	err := db.Persist(t.Context(), journal.Write{Dot: journal.Dot{Incarnation: journal.External, N: n}, Stamp: journal.Stamp{Time: at, Incarnation: journal.External},
		Muts: []journal.Mutation{{Key: key, Value: []byte(value)}}, Body: wire.AppendWrite(nil, w)})
	if err != nil {
		t.Fatal(err)
	}
}

// polled counts the requests for external writes in a while.
func polled(k *kinds, while time.Duration) int {
	was := k.of(CallPoll)
	time.Sleep(while)
	return k.of(CallPoll) - was
}

// What is written externally to a space that is watched is heard of at every server that has the key in memory,
// in the order it was written in. A store that does not watch the space is seldom asked, and one that does is asked often.
func TestExternalWrites(t *testing.T) {
	emptyPools()
	synctest.Test(t, func(t *testing.T) {
		db, k, operator := newShaky(), &kinds{}, &said{}
		c := gather(t, 2, memory.Options{}, func(o *ServerOptions) {
			o.Store, o.Round, o.Recorder, o.Logger = db, 20*time.Millisecond, k, operator.logger()
			if err := db.Begin(t.Context(), o.Incarnation, journal.NewName()); err != nil {
				t.Fatal(err)
			}
		})
		ctx := t.Context()
		for _, sp := range c.spaces {
			writes(t, sp.Begin(), "k", "within")
		}
		if n := polled(k, 20*time.Second); n > 11 {
			t.Errorf("a store that does not watch was asked %d times in 20 seconds", n)
		}
		if err := db.Begin(ctx, journal.External, journal.NewName()); err != nil {
			t.Fatal(err)
		}
		db.lose("entries external", 5)
		for n := range uint64(3) {
			writeExternally(t, db.Journal, n+1, "k", fmt.Sprint("past ", n+1))
			for _, sp := range c.spaces {
				reads(t, sp.Begin(), "k", fmt.Sprint("past ", n+1))
			}
		}
		testkit.Eventually(t, func() bool { return db.owes("entries external") == 0 })
		reads(t, c.spaces[0].Begin(), "k", "past 3")
		time.Sleep(2 * pollRare)
		if n := polled(k, 10*time.Second); n < 80 {
			t.Errorf("a store that watches was asked %d times in 10 seconds", n)
		}
		db.mend(4, []byte("damaged"))
		writeExternally(t, db.Journal, 4, "k", "past 4")
		writeExternally(t, db.Journal, 5, "k", "past 5")
		testkit.Eventually(t, func() bool {
			return operator.has("an external write cannot be read; later external writes wait") && operator.has("number=4")
		})
		time.Sleep(10 * time.Second)
		if v, _, err := c.spaces[1].Begin().Get(ctx, "k"); v != "past 3" || err != nil {
			t.Errorf("behind what cannot be read %q is heard of, %v", v, err)
		}
		w := &mesh.Write{Dot: mesh.Dot{Incarnation: mesh.External, N: 4}, Stamp: mesh.Stamp{Time: 1, Incarnation: mesh.External}, Muts: []mesh.Mut{{Key: "k", Value: []byte("past 4")}}}
		db.mend(4, wire.AppendWrite(nil, w))
		for _, sp := range c.spaces {
			reads(t, sp.Begin(), "k", "past 5")
		}
		testkit.Eventually(t, func() bool { // what every server has heard of the journal need not keep
			left, _, err := db.Entries(ctx, journal.External, 0, 10)
			return err == nil && len(left) == 0
		})
	})
	emptyPools()
}

// A ring that begins anew takes what the journal of a watched space has truncated for heard of everywhere, and hears of the
// rest.
func TestARingBeginsOverAWatchedSpace(t *testing.T) {
	for _, async := range []bool{false, true} {
		emptyPools()
		synctest.Test(t, func(t *testing.T) {
			r := newRealm(t, leaseLength, async)
			if err := r.db.Begin(t.Context(), journal.External, journal.NewName()); err != nil {
				t.Fatal(err)
			}
			s := r.spaces[r.join(t)].Begin()
			writes(t, s, "x", "within")
			for n := range uint64(3) {
				writeExternally(t, r.db.Journal, n+1, "k", fmt.Sprint("past ", n+1))
				reads(t, r.spaces[0].Begin(), "k", fmt.Sprint("past ", n+1))
			}
			testkit.Eventually(t, func() bool {
				_, settled, err := r.db.Journal.Entries(t.Context(), journal.External, 0, 1)
				return err == nil && settled == 3
			})
			reads(t, s, "k", "past 3")
			r.end(0, false)
			writeExternally(t, r.db.Journal, 4, "k", "past 4")
			next := r.join(t)
			reads(t, roam(t, s, r.spaces[next]), "k", "past 4")
			writes(t, r.spaces[next].Begin(), "k", "within again")
			writeExternally(t, r.db.Journal, 5, "other", "past 5")
			reads(t, r.spaces[next].Begin(), "other", "past 5")
			testkit.Eventually(t, func() bool { return len(r.throne.stored(t).Departed) == 0 })
			r.peace(t)
		})
	}
	emptyPools()
}

// A journal of a departed incarnation that cannot be read is not passed over: the incarnation is not retired until it can be, and
// then nothing of it is missing.
func TestADamagedJournalIsNotPassedOver(t *testing.T) {
	emptyPools()
	synctest.Test(t, func(t *testing.T) {
		r := newRealm(t, leaseLength, false)
		var at []int
		for range 3 { // one after the other, so that the last is incarnation 3
			i := r.join(t)
			testkit.Eventually(t, func() bool { s, err := r.rings[i].Server(); return err == nil && s.Joined() })
			at = append(at, i)
		}
		s := r.spaces[at[2]].Begin()
		writes(t, s, "x", "1")
		testkit.Eventually(t, func() bool { _, n, _ := r.db.Journal.Entries(t.Context(), 3, 0, 1); return n == 1 })
		for _, road := range r.roads { // what is written now is nowhere else
			road.Break()
		}
		if err := s.Set(t.Context(), "x", "2"); err != nil {
			t.Fatal(err)
		}
		r.end(at[2], false)
		left, _, err := r.db.Journal.Entries(t.Context(), 3, 1, 1)
		if err != nil || len(left) != 1 {
			t.Fatalf("the journal has %d entries, %v", len(left), err)
		}
		r.db.mend(2, []byte("damaged"))
		next := roam(t, s, r.spaces[at[0]])
		for range 10 {
			time.Sleep(leaseLength)
			if err := next.Set(t.Context(), "y", "1"); !errors.Is(err, ErrBehind) && len(next.m.Bare) > 0 {
				t.Fatalf("a session goes on without what it has seen: %v", err)
			}
		}
		if v := r.throne.stored(t); len(v.Departed) != 1 {
			t.Errorf("an incarnation whose journal cannot be read is retired: %+v", v)
		}
		r.db.mend(2, left[0].Body)
		testkit.Eventually(t, func() bool { return len(r.throne.stored(t).Departed) == 0 })
		reads(t, r.spaces[at[1]].Begin(), "x", "2")
		r.peace(t)
	})
	emptyPools()
}
