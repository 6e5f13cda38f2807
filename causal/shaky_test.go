package causal

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/freshet-cache/freshet/causal/mesh"
	"github.com/freshet-cache/freshet/internal/testkit"
	"github.com/freshet-cache/freshet/member"
	"github.com/freshet-cache/freshet/store/journal"
	"github.com/freshet-cache/freshet/store/memory"
)

// shaky is a store, or a log, some of whose answers are lost: of every second one the request had no effect either.
type shaky struct {
	*memory.Journal
	mu     sync.Mutex
	left   map[string]int    // answers yet to be lost, by request
	mended map[uint64][]byte // what the journal has in place of what it had
}

func newShaky() *shaky {
	return &shaky{Journal: memory.NewJournal(memory.Options{}), left: map[string]int{}, mended: map[uint64][]byte{}}
}

// lose has the next n answers to a request be lost.
func (s *shaky) lose(request string, n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.left[request] = n
}

func (s *shaky) owes(request string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.left[request]
}

func (s *shaky) mend(n uint64, body []byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mended[n] = body
}

func (s *shaky) unmend(n uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.mended, n)
}

func (s *shaky) call(request string, do func() error) error {
	s.mu.Lock()
	n := s.left[request]
	if n > 0 {
		s.left[request]--
	}
	s.mu.Unlock()
	lost := fmt.Errorf("the answer to %s was lost", request)
	if n > 0 && n%2 == 0 {
		return lost
	}
	if err := do(); n == 0 || err != nil {
		return err
	}
	return lost
}

// who is an incarnation as requests name it.
func who(o uint32) string {
	if o == journal.External {
		return " external"
	}
	return ""
}

func (s *shaky) KeepSiblings(ctx context.Context, concurrent bool) error {
	return s.call("keep siblings", func() error { return s.Journal.KeepSiblings(ctx, concurrent) })
}

func (s *shaky) Begin(ctx context.Context, o uint32, name journal.Name) error {
	return s.call("begin", func() error { return s.Journal.Begin(ctx, o, name) })
}

func (s *shaky) Known(ctx context.Context) (k journal.Known, err error) {
	err = s.call("known", func() (e error) { k, e = s.Journal.Known(ctx); return e })
	return k, err
}

func (s *shaky) Largest(ctx context.Context) (n uint64, err error) {
	err = s.call("largest", func() (e error) { n, e = s.Journal.Largest(ctx); return e })
	return n, err
}

func (s *shaky) Entries(ctx context.Context, o uint32, after uint64, limit int) (page []journal.Entry, truncated uint64, err error) {
	err = s.call("entries"+who(o), func() (e error) { page, truncated, e = s.Journal.Entries(ctx, o, after, limit); return e })
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := range page {
		if body, ok := s.mended[page[i].N]; ok {
			page[i].Body = body
		}
	}
	return page, truncated, err
}

func (s *shaky) Load(ctx context.Context, keys ...string) (rows []journal.Row, err error) {
	err = s.call("load", func() (e error) { rows, e = s.Journal.Load(ctx, keys...); return e })
	return rows, err
}

func (s *shaky) Fetch(ctx context.Context, dots []journal.Dot) (bodies [][]byte, err error) {
	err = s.call("fetch", func() (e error) { bodies, e = s.Journal.Fetch(ctx, dots); return e })
	s.mu.Lock()
	defer s.mu.Unlock()
	for i, d := range dots {
		if body, ok := s.mended[d.N]; ok && i < len(bodies) {
			bodies[i] = body
		}
	}
	return bodies, err
}

func (s *shaky) Fence(ctx context.Context, o uint32) error {
	return s.call("fence", func() error { return s.Journal.Fence(ctx, o) })
}

func (s *shaky) Fenced(ctx context.Context, all ...uint32) (over []uint32, err error) {
	err = s.call("fenced", func() (e error) { over, e = s.Journal.Fenced(ctx, all...); return e })
	return over, err
}

func (s *shaky) Truncate(ctx context.Context, o uint32, upto uint64) error {
	return s.call("truncate"+who(o), func() error { return s.Journal.Truncate(ctx, o, upto) })
}

func (s *shaky) TruncateFenced(ctx context.Context, o uint32, upto uint64) error {
	return s.call("truncate fenced"+who(o), func() error {
		if o == journal.External { // stores that watch a space take writes of this incarnation though no incarnation of it ever serves
			return s.Journal.Truncate(ctx, o, upto)
		}
		return s.Journal.TruncateFenced(ctx, o, upto)
	})
}

func (s *shaky) CollectTombstones(ctx context.Context, before uint64) error {
	return s.call("collect", func() error { return s.Journal.CollectTombstones(ctx, before) })
}

func (s *shaky) Claim(ctx context.Context, term uint64) (mark []byte, err error) {
	err = s.call("claim", func() (e error) { mark, e = s.Journal.Claim(ctx, term); return e })
	return mark, err
}

func (s *shaky) Merge(ctx context.Context, f journal.Flush) error {
	return s.call("merge", func() error { return s.Journal.Merge(ctx, f) })
}

func (s *shaky) Incarnations(ctx context.Context) (all []uint32, err error) {
	err = s.call("incarnations", func() (e error) { all, e = s.Journal.Incarnations(ctx); return e })
	return all, err
}

func (s *shaky) Remove(ctx context.Context, o uint32) error {
	return s.call("remove", func() error { return s.Journal.Remove(ctx, o) })
}

// said is a log of what an operator is told.
type said struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (s *said) Write(b []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.text.Write(b)
}

func (s *said) logger() *slog.Logger { return slog.New(slog.NewTextHandler(s, nil)) }

// has reports whether the operator was told.
func (s *said) has(what string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return strings.Contains(s.text.String(), what)
}

// realm is a kingdom over a store, and a log of all its processes, some of whose answers are lost.
type realm struct {
	*kingdom
	db, log *shaky
	said    said
}

// newRealm is one whose space is asynchronous or not.
func newRealm(t *testing.T, silence time.Duration, async bool) *realm {
	r := &realm{db: newShaky(), log: newShaky()}
	r.kingdom = newKingdom(t, &luck{r: rand.New(rand.NewPCG(1, 1))}, silence, memory.Options{})
	r.store = r.db.Journal
	r.with = func(o *Options) {
		o.Store, o.Logger = r.db, r.said.logger()
		if async {
			o.Log = r.log
		}
	}
	return r
}

// tolerable reports whether an error is one of those that pass when a ring has begun and recovered.
func tolerable(t *testing.T, err error) {
	t.Helper()
	if err != nil && !errors.Is(err, ErrJoining) && !errors.Is(err, ErrBehind) && !errors.Is(err, ErrExpelled) && !errors.Is(err, ErrClosed) {
		t.Fatal(err)
	}
}

// reads waits until a session reads a value of a key.
func reads(t *testing.T, s *Session[string], key, want string) {
	t.Helper()
	testkit.Eventually(t, func() bool {
		v, _, err := s.Get(t.Context(), key)
		tolerable(t, err)
		return err == nil && v == want
	})
}

// writes waits until a session can write.
func writes(t *testing.T, s *Session[string], key, value string) {
	t.Helper()
	testkit.Eventually(t, func() bool {
		err := s.Set(t.Context(), key, value)
		tolerable(t, err)
		return err == nil
	})
}

// A ring whose only server was killed begins anew, whichever answers of the store, or of the log, are lost meanwhile: what
// was acknowledged is there, what is written is there, and the incarnation that is over is recovered and forgotten.
func TestARingBeginsWhateverIsNotAnswered(t *testing.T) {
	rows := []string{"known", "keep siblings", "begin", "claim", "largest", "entries external"}
	for _, c := range []struct {
		async    bool
		db, logs []string
	}{{false, append(rows, "fence", "entries", "truncate fenced", "truncate"), nil}, {true, append(rows, "fenced", "fence", "entries", "merge"), []string{"begin", "incarnations", "fence", "entries", "remove", "truncate"}}} {
		for i, what := range append(c.db, c.logs...) {
			for lost := 1; lost <= 2; lost++ {
				if lost == 1 && testing.Short() { // two answers are lost: one behind a request without effect, one behind one with it
					continue
				}
				emptyPools()
				synctest.Test(t, func(t *testing.T) {
					r := newRealm(t, leaseLength, c.async)
					r.db.lose("merge", 1<<30)
					s := r.spaces[r.join(t)].Begin()
					writes(t, s, "w", "older")
					testkit.Eventually(t, func() bool { // the journal has truncated it
						_, settled, err := r.db.Journal.Entries(t.Context(), 1, 0, 1)
						return err == nil && (c.async || settled == 1)
					})
					writes(t, s, "x", "old")
					r.end(0, false)
					r.db.lose("merge", 0)
					at := r.db
					if i >= len(c.db) {
						at = r.log
					}
					at.lose(what, lost)
					next := r.join(t)
					reads(t, roam(t, s, r.spaces[next]), "x", "old")
					writes(t, r.spaces[next].Begin(), "y", "new")
					testkit.Eventually(t, func() bool { return len(r.throne.stored(t).Departed) == 0 && at.owes(what) == 0 })
					testkit.Eventually(t, func() bool { return r.row(t, "x") == "old" && r.row(t, "y") == "new" })
					r.peace(t)
					if t.Failed() {
						t.Logf("async: %v; %s, and %d answers are lost", c.async, what, lost)
					}
				})
			}
		}
	}
	emptyPools()
}

// An incarnation that was given a place and cannot begin gives it back: nobody waits for it, though the silent are never left out.
func TestWhoCannotBeginLeaves(t *testing.T) {
	emptyPools()
	synctest.Test(t, func(t *testing.T) {
		r := newRealm(t, time.Hour, false)
		r.db.lose("begin", 3)
		time.Sleep(leadSlack) // until then a leader leaves nobody out
		at := r.join(t)
		writes(t, r.spaces[at].Begin(), "x", "1")
		if v := r.throne.stored(t); len(v.Ring) != 1 || v.Newest != 4 {
			t.Errorf("after three incarnations that could not begin: %+v", v)
		}
		if !r.said.has("no place in the ring") || !r.said.has("the answer to begin was lost") {
			t.Errorf("the operator is told %s", &r.said.text)
		}
		r.peace(t)
	})
	emptyPools()
}

// A space whose writes are in logs is not opened without one: what only a log has would not be found.
func TestAnAsynchronousSpaceStaysSo(t *testing.T) {
	emptyPools()
	synctest.Test(t, func(t *testing.T) {
		r := newRealm(t, leaseLength, true)
		s := r.spaces[r.join(t)].Begin()
		writes(t, s, "x", "1")
		if !r.rings[0].Asynchronous() {
			t.Error("a ring with a log is not asynchronous")
		}
		r.end(0, false)
		r.with = func(o *Options) { o.Store, o.Logger = r.db, r.said.logger() }
		without := r.join(t)
		testkit.Eventually(t, func() bool { return r.said.has("give Options.Log") })
		if _, _, err := roam(t, s, r.spaces[without]).Get(t.Context(), "x"); !errors.Is(err, ErrJoining) {
			t.Errorf("it answers: %v", err)
		}
		if r.rings[without].Asynchronous() {
			t.Error("a ring without a log is asynchronous")
		}
		r.end(without, false)
	})
	emptyPools()
}

// A server tells its ring that an incarnation is retired in the middle of a step: the ring never waits for a step of the server
// while the server waits for it.
func TestARingAndItsServerDoNotWaitForEachOther(t *testing.T) {
	var faulty atomic.Bool
	k := member.StartLeader(seat{newThrone(&luck{r: rand.New(rand.NewPCG(1, 1))}, &faulty), 0}, member.LeaderOptions{})
	r, err := Join(Options{Store: memory.NewJournal(memory.Options{}), Addr: "a", Beat: time.Millisecond, Ask: func(_ context.Context, request []byte) ([]byte, error) {
		if answer := k.Answer(request); answer != nil {
			return answer, nil
		}
		return nil, errors.New("nobody leads")
	}})
	if err != nil {
		t.Fatal(err)
	}
	var s *Server
	testkit.Eventually(t, func() bool { s, err = r.Server(); return err == nil })
	told := make(chan struct{})
	go func() {
		defer close(told)
		s.mu.Lock()
		defer s.mu.Unlock()
		beats := time.NewTicker(time.Millisecond)
		defer beats.Stop()
		for range 30 { // the ring asks in each of them
			s.step(mesh.Beat{})
			s.opt.Retired(9)
			<-beats.C
		}
	}()
	select {
	case <-told:
	case <-time.After(20 * time.Second):
		t.Fatal("a server in the middle of a step waits for its ring, which waits for the server")
	}
	r.Close()
	k.Close()
}
