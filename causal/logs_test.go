package causal

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/freshet-cache/freshet/causal/mesh"
	"github.com/freshet-cache/freshet/causal/wire"
	"github.com/freshet-cache/freshet/internal/testkit"
	"github.com/freshet-cache/freshet/store/journal"
	"github.com/freshet-cache/freshet/store/memory"
)

// orphaned is a realm whose only process was killed with a write that nothing but its log has.
func orphaned(t *testing.T) (r *realm, s *Session[string]) {
	r = newRealm(t, leaseLength, true)
	r.db.lose("merge", 1<<30)
	s = r.spaces[r.join(t)].Begin()
	writes(t, s, "x", "1")
	r.end(0, false)
	r.db.lose("merge", 0)
	return r, s
}

// A log of a departed incarnation that cannot be read is kept, and the operator is told; when it can be read again nothing
// of it is missing.
func TestADamagedLogIsKept(t *testing.T) {
	emptyPools()
	synctest.Test(t, func(t *testing.T) {
		r, s := orphaned(t)
		left, _, err := r.log.Journal.Entries(t.Context(), 1, 0, 10)
		if err != nil || len(left) != 1 {
			t.Fatalf("the log has %d entries, %v", len(left), err)
		}
		r.log.mend(1, []byte("damaged"))
		next := r.join(t)
		testkit.Eventually(t, func() bool { return r.said.has("the log of a former incarnation cannot be read") })
		time.Sleep(20 * time.Second)
		if v := r.throne.stored(t); len(v.Departed) != 1 {
			t.Errorf("an incarnation whose log cannot be read is retired: %+v", v)
		}
		if _, _, err := roam(t, s, r.spaces[next]).Get(t.Context(), "x"); !errors.Is(err, ErrBehind) {
			t.Errorf("what only that log has is read: %v", err)
		}
		r.log.mend(1, left[0].Body)
		reads(t, roam(t, s, r.spaces[next]), "x", "1")
		testkit.Eventually(t, func() bool { return len(r.throne.stored(t).Departed) == 0 && r.row(t, "x") == "1" })
		r.peace(t)
	})
	emptyPools()
}

// A log that comes back after its incarnation was given up is not taken for anything, nor removed: an operator may want to look
// at what was lost. Logs of which nothing is left are removed.
func TestTheLogOfALifeThatWasGivenUp(t *testing.T) {
	emptyPools()
	synctest.Test(t, func(t *testing.T) {
		r, _ := orphaned(t)
		found := r.log
		if err := found.Journal.Begin(t.Context(), 0, journal.NewName()); err != nil { // an incarnation that left nothing
			t.Fatal(err)
		}
		r.log = newShaky() // another disk
		r.with = func(o *Options) { o.Store, o.Log, o.Logger = r.db, r.log, r.said.logger() }
		r.join(t)
		writes(t, r.spaces[1].Begin(), "y", "1")
		time.Sleep(20 * time.Second)
		if v := r.throne.stored(t); len(v.Departed) != 1 {
			t.Fatalf("an incarnation whose log nobody has found is retired: %+v", v)
		}
		if err := GiveUp(t.Context(), r.db, 1); err != nil {
			t.Fatal(err)
		}
		testkit.Eventually(t, func() bool { return len(r.throne.stored(t).Departed) == 0 })
		r.log = found
		r.with = func(o *Options) { o.Store, o.Log, o.Logger = r.db, found, r.said.logger() }
		r.join(t)
		testkit.Eventually(t, func() bool { return r.said.has("is not asked for any more, and is not empty") })
		testkit.Eventually(t, func() bool {
			incarnations, err := found.Journal.Incarnations(t.Context())
			return err == nil && len(incarnations) == 2 && incarnations[0] == 1 // the given up one, and the one that has begun
		})
		if left, _, err := found.Journal.Entries(t.Context(), 1, 0, 1); err != nil || len(left) != 1 {
			t.Errorf("what was lost is removed: %d entries, %v", len(left), err)
		}
		if v, ok, err := r.spaces[2].Begin().Get(t.Context(), "x"); ok && err == nil {
			t.Errorf("what was given up is %q", v)
		}
		r.peace(t)
	})
	emptyPools()
}

// An incarnation from before the space was asynchronous has its writes in the store's journal. As long as that is not empty the
// incarnation is not retired, and the operator is told what to do.
func TestAJournalFromBeforeTheLogs(t *testing.T) {
	emptyPools()
	synctest.Test(t, func(t *testing.T) {
		r := newRealm(t, leaseLength, true)
		err := errors.Join(r.db.Begin(t.Context(), 1, journal.NewName()), r.db.Persist(t.Context(), journal.Write{Dot: journal.Dot{Incarnation: 1, N: 1}, Stamp: journal.Stamp{Time: 1, Incarnation: 1},
			Muts: []journal.Mutation{{Key: "x", Value: []byte("1")}}, Body: []byte{1}}), r.db.Journal.Fence(t.Context(), 1))
		if err != nil {
			t.Fatal(err)
		}
		at := r.join(t)
		writes(t, r.spaces[at].Begin(), "y", "1")
		testkit.Eventually(t, func() bool { return r.said.has("let the servers run without a log until it is empty") })
		if v := r.throne.stored(t); len(v.Departed) != 1 || v.Departed[0] != 1 {
			t.Fatalf("lost are %+v", v)
		}
		if err := r.db.Journal.TruncateFenced(t.Context(), 1, 1); err != nil {
			t.Fatal(err)
		}
		testkit.Eventually(t, func() bool { return len(r.throne.stored(t).Departed) == 0 })
		r.peace(t)
	})
	emptyPools()
}

// Who leaves while the store takes nothing leaves all the same, and the operator is told that the log is needed.
func TestLeavingWithWritesInTheLog(t *testing.T) {
	emptyPools()
	synctest.Test(t, func(t *testing.T) {
		r := newRealm(t, time.Hour, true)
		r.db.lose("merge", 1<<30)
		time.Sleep(leadSlack)
		s := r.spaces[r.join(t)].Begin()
		writes(t, s, "x", "1")
		server, err := r.rings[0].Server()
		if err != nil || server.Owes() != 1 {
			t.Fatalf("%v", err)
		}
		r.end(0, true)
		if v := r.throne.stored(t); len(v.Ring) != 0 || !r.said.has("leaves with writes that are only in its log") {
			t.Errorf("it is in %+v, and the operator is told %s", v, &r.said.text)
		}
		if err := server.Drain(t.Context()); !errors.Is(err, ErrExpelled) && !errors.Is(err, ErrClosed) {
			t.Errorf("a server whose incarnation is over drains: %v", err)
		}
		r.db.lose("merge", 0)
		next := r.join(t)
		reads(t, roam(t, s, r.spaces[next]), "x", "1")
		testkit.Eventually(t, func() bool { return r.row(t, "x") == "1" })
		if r.end(next, true); len(r.throne.stored(t).Ring) != 0 {
			t.Error("it does not leave")
		}
	})
	emptyPools()
}

// A batch has of every key what the write with the largest stamp leaves there, in whichever order they come.
func TestABatchHasTheLastOfEveryKey(t *testing.T) {
	db := newShaky()
	operator := &said{}
	c := gather(t, 1, memory.Options{}, func(o *ServerOptions) {
		o.Store, o.Log, o.Round, o.Logger = db, memory.NewJournal(memory.Options{}), time.Hour, operator.logger()
		if err := errors.Join(db.Begin(t.Context(), o.Incarnation, journal.NewName()), o.Log.Begin(t.Context(), o.Incarnation, journal.NewName())); err != nil {
			t.Fatal(err)
		}
	})
	ctx, s := t.Context(), c.servers[0]
	if _, err := db.Claim(ctx, 9); err != nil {
		t.Fatal(err)
	}
	at := func(n uint64, muts ...mesh.Mut) *mesh.Write {
		return &mesh.Write{Dot: mesh.Dot{Incarnation: 1, N: n}, Stamp: mesh.Stamp{Time: n, Incarnation: 1}, Muts: muts}
	}
	set := func(key, value string) mesh.Mut { return mesh.Mut{Key: key, Value: []byte(value)} }
	batch := mesh.Flush{Call: 7, Term: 9, Number: 1, Writes: []*mesh.Write{at(3, set("a", "3"), set("b", "3")), at(2, set("a", "2"), set("c", "2")), at(4, mesh.Mut{Key: "c", Delete: true}), at(1, set("c", "1"))}}
	db.lose("merge", 1)
	for _, want := range []mesh.Flushed{{Call: 7, Status: mesh.StatusUnknown}, {Call: 7, Status: mesh.OK}} {
		if in, err := s.flush(ctx, batch); in != want || (err == nil) != (want.Status == mesh.OK) || !operator.has("it is tried again") {
			t.Errorf("%+v, %v", in, err)
		}
	}
	rows, err := db.Load(ctx, "a", "b", "c")
	if err != nil || string(rows[0].Value) != "3" || string(rows[1].Value) != "3" || rows[2].Exists || rows[2].Stamp.Time != 4 {
		t.Errorf("%+v, %v", rows, err)
	}
	batch.Term = 8
	if in, err := s.flush(ctx, batch); in != (mesh.Flushed{Call: 7, Status: mesh.Fenced}) || !errors.Is(err, journal.ErrFenced) {
		t.Errorf("a batch of an older view: %+v, %v", in, err)
	}
	if in, err := s.claim(ctx, mesh.Claim{Call: 8, Term: 3}); err == nil || in.(mesh.Claimed).Status != mesh.Fenced {
		t.Errorf("a claim of an older view: %+v, %v", in, err)
	}
}

// A server that has no state yet owes nothing, has settled nothing, and says that it joins. What the store says was merged
// must be readable.
func TestBeforeAServerHasJoined(t *testing.T) {
	d, db := &disks{}, memory.NewJournal(memory.Options{})
	opt := ServerOptions{Store: db, Incarnation: 1, View: View{Number: 1, Ring: []RingServer{{Incarnation: 2}, {Incarnation: 1}}, Newest: 2}, Joins: true,
		Dial: func(context.Context, RingServer, func([]byte)) (Conn, error) {
			return nil, errors.New("nobody is there")
		}, Settings: Settings{Log: d.log(t, t.TempDir())}}
	s, err := NewServer(opt)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close(context.Background())
	if s.Joined() || s.Owes() != 0 || s.Truncated() != 0 || !s.Asynchronous() {
		t.Errorf("%v, %d, %d, %v", s.Joined(), s.Owes(), s.Truncated(), s.Asynchronous())
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if err := s.Drain(ended); err != nil && !errors.Is(err, context.Canceled) && !errors.Is(err, journal.ErrFenced) {
		t.Errorf("%v", err)
	}
	opt.Joins, opt.Mark = false, []byte("damaged")
	if _, err := NewServer(opt); !errors.Is(err, wire.ErrFormat) || !strings.Contains(err.Error(), "merged into the store") {
		t.Errorf("a mark that cannot be read: %v", err)
	}
}

// Nodes of one process share a log. A server that has not heard yet of the view in which another incarnation began does not take
// that incarnation's log for one that nobody asks for.
func TestLogsOfLivesToComeStay(t *testing.T) {
	log := memory.NewJournal(memory.Options{})
	c := gather(t, 1, memory.Options{}, func(o *ServerOptions) {
		o.Log = log
		for incarnation := range uint32(6) { // 2 and 3 are retired, 5 and 6 are to come
			if err := log.Begin(t.Context(), incarnation+1, journal.NewName()); err != nil {
				t.Fatal(err)
			}
		}
		o.View.Newest, o.View.Departed = 4, []uint32{4}
	})
	s := c.servers[0]
	testkit.Eventually(t, func() bool { s.mu.Lock(); defer s.mu.Unlock(); return s.seeking.view == s.view.Number })
	incarnations, err := log.Incarnations(t.Context())
	if err != nil || !slices.Contains(incarnations, 5) || !slices.Contains(incarnations, 6) || !slices.Contains(incarnations, 1) || slices.Contains(incarnations, 2) || slices.Contains(incarnations, 3) {
		t.Errorf("there are logs of %v, %v", incarnations, err)
	}
	select { // the newest of those that are over, whose log was found
	case incarnation := <-c.retired:
		if incarnation != 4 {
			t.Errorf("incarnation %d is retired", incarnation)
		}
	case <-time.After(20 * time.Second):
		t.Error("an incarnation whose log was found is never retired")
	}
}
