package postgres

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/freshet-cache/freshet/internal/pgserver"
	"github.com/freshet-cache/freshet/linear"
	"github.com/freshet-cache/freshet/store"
	"github.com/freshet-cache/freshet/store/storetest"
)

func admin(t testing.TB, s *pgserver.Server) *pgx.Conn {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), s.URL("admin", "postgres"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close(context.Background()) })
	return conn
}

func token(n uint64) (t store.Token) { binary.BigEndian.PutUint64(t[8:], n); return t }

func put(key, value string, guard store.Token) []store.Mutation {
	return []store.Mutation{{Key: key, Value: []byte(value), Guard: guard}}
}

// The fence holds while backends are terminated under it, in the middle of writes
// and of guards.
func TestFenceOverKilledBackends(t *testing.T) {
	s := open(t, Options{URL: fresh(t, Migration{})})
	conn := admin(t, start(t))
	ctx, stop := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	kills := 0
	wg.Go(func() {
		for ctx.Err() == nil {
			tag, err := conn.Exec(ctx, `SELECT pg_terminate_backend(pid) FROM pg_stat_activity
				WHERE application_name = 'freshet' AND state = 'active' AND pid <> pg_backend_pid() ORDER BY random() LIMIT 1`)
			if err == nil {
				kills += int(tag.RowsAffected())
			}
		}
	})
	err := storetest.Fence{Rounds: 400, Faults: true}.Holds(t.Context(), s)
	stop()
	wg.Wait()
	if err != nil {
		t.Fatal(err)
	}
	if kills < 50 {
		t.Errorf("only %d backends were killed", kills)
	}
}

// writeUntilItWaits writes one value after the other to k until a commit waits: the server
// heeds a setting a moment after it has read it. It returns the value that is committed,
// and the one that waits, whose outcome comes through done.
func writeUntilItWaits(t *testing.T, ctx context.Context, s *Store, waiting func() int, done chan error) (old, value string) {
	t.Helper()
	old = "old"
	for i := 0; ; i++ {
		next := fmt.Sprint("new", i)
		go func() { _, err := s.Commit(ctx, store.ID{2}, put("k", next, store.Token{})); done <- err }()
		for over := false; !over; {
			select {
			case err := <-done:
				if err != nil {
					t.Fatal(err)
				}
				old, over = next, true
			default:
				if waiting() > 0 {
					return old, next
				}
			}
		}
	}
}

// A commit that waits for a synchronous standby is given up by its caller. Nobody may see
// it before the standby has it: a failover would lose what was read.
func TestCommitWaitsForAStandby(t *testing.T) {
	start(t) // or skip
	server, err := pgserver.Start(t.Context(), t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer server.Stop()
	url := server.URL("admin", "postgres")
	if err := Migrate(t.Context(), url, Migration{}); err != nil {
		t.Fatal(err)
	}
	s := open(t, Options{URL: url, Sweep: time.Hour})
	if _, err := s.Commit(t.Context(), store.ID{1}, put("k", "old", store.Token{})); err != nil {
		t.Fatal(err)
	}
	conn := admin(t, server)
	standby := func(name string) {
		t.Helper()
		for _, sql := range []string{"SET synchronous_commit = local", "ALTER SYSTEM SET synchronous_standby_names = '" + name + "'", "SELECT pg_reload_conf()"} {
			if _, err := conn.Exec(t.Context(), sql); err != nil {
				t.Fatal(err)
			}
		}
		for set := ""; set != name; { // until the server has read it
			if err := conn.QueryRow(t.Context(), "SELECT current_setting('synchronous_standby_names')").Scan(&set); err != nil {
				t.Fatal(err)
			}
		}
	}
	waiting := func() (n int) {
		if err := conn.QueryRow(t.Context(), "SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'SyncRep'").Scan(&n); err != nil {
			t.Fatal(err)
		}
		return n
	}
	standby("nobody")
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	done := make(chan error, 1)
	old, value := writeUntilItWaits(t, ctx, s, waiting, done)
	cancel()
	if err := <-done; err == nil || store.Definite(err) {
		t.Fatalf("the outcome of a commit that was given up is known: %v", err)
	}
	for range 300 { // a cancel request would have arrived long before the last of these
		row, err := s.Load(t.Context(), "k")
		if err != nil {
			t.Fatal(err)
		}
		if string(row.Value) != old {
			t.Fatalf("a read sees %q, which no standby has", row.Value)
		}
	}
	if waiting() != 1 {
		t.Error("the commit no longer waits")
	}
	standby("") // it has come up to date, so to say
	for row, err := s.Load(t.Context(), "k"); string(row.Value) != value; row, err = s.Load(t.Context(), "k") {
		if err != nil {
			t.Fatal(err)
		}
	}
}

// A crash of the server loses guards, never a write that was acknowledged; an
// owner goes on by itself.
func TestServerCrash(t *testing.T) {
	start(t) // or skip
	dir := t.TempDir()
	server, err := pgserver.Start(t.Context(), dir)
	if err != nil {
		t.Fatal(err)
	}
	defer server.Stop()
	url := server.URL("admin", "postgres")
	if err := Migrate(t.Context(), url, Migration{}); err != nil {
		t.Fatal(err)
	}
	s := open(t, Options{URL: url})
	cache, err := linear.New(linear.Options[string]{Store: s, Codec: linear.String(), Timeout: 2 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = cache.Close(context.Background()) }()
	acked := make([]int, 8)
	tried := make([]int, 8)
	ctx, stop := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	for w := range acked {
		wg.Go(func() {
			for i := 1; ctx.Err() == nil; i++ {
				tried[w] = i
				if cache.Set(t.Context(), fmt.Sprint("k", w), fmt.Sprint(i)) == nil {
					acked[w] = i
				}
				if v, ok, err := cache.Get(t.Context(), fmt.Sprint("k", w)); err == nil {
					n := 0
					_, _ = fmt.Sscan(v, &n)
					if n < acked[w] || n > tried[w] || !ok && acked[w] > 0 {
						t.Errorf("k%d is %q after %d was acknowledged", w, v, acked[w])
					}
				}
			}
		})
	}
	for range 3 {
		before, _ := s.Count(t.Context())
		server.Crash()
		if err := server.Resume(t.Context()); err != nil {
			t.Fatal(err)
		}
		again, cancel := context.WithTimeout(t.Context(), 30*time.Second)
		for cache.Set(again, "after", fmt.Sprint(before)) != nil && again.Err() == nil {
		}
		if again.Err() != nil {
			t.Error("no write succeeded after the crash")
		}
		cancel()
	}
	stop()
	wg.Wait()
	for w := range acked {
		r, err := s.Load(t.Context(), fmt.Sprint("k", w))
		n := 0
		_, _ = fmt.Sscan(string(r.Value), &n)
		if err != nil || n < acked[w] || acked[w] == 0 {
			t.Errorf("k%d is %q, %v: %d was acknowledged", w, r.Value, err, acked[w])
		}
	}
}

// The guards always cover all keys once, whatever ranges they were set over, and
// stand where they were set last.
func TestGuardsCoverAllKeys(t *testing.T) {
	s := open(t, Options{URL: fresh(t, Migration{})})
	r := rand.New(rand.NewPCG(7, 7))
	stands := map[string]store.Token{}
	keys := strings.Split("a b c d e f g h", " ")
	for _, k := range keys {
		stands[k] = store.Token{}
	}
	for n := range uint64(300) {
		low, high := "", ""
		if i := r.IntN(len(keys) + 1); i < len(keys) {
			low = keys[i]
		}
		if j := r.IntN(len(keys) + 1); j < len(keys) && keys[j] > low {
			high = keys[j]
		}
		if r.IntN(3) == 0 && low != "" {
			high = low + "\x00"
		}
		if err := s.SetGuard(t.Context(), low, high, token(n+1)); err != nil {
			t.Fatal(err)
		}
		for _, k := range keys {
			if k >= low && (high == "" || k < high) {
				stands[k] = token(n + 1)
			}
			if row, err := s.Load(t.Context(), k); err != nil || row.Guard != stands[k] {
				t.Fatalf("after %d: the guard over %s is %v, %v, want %v", n, k, row.Guard, err, stands[k])
			}
		}
		if err := covered(t.Context(), s); err != nil {
			t.Fatalf("after %d: %v", n, err)
		}
	}
	var wg sync.WaitGroup
	for w := range 6 { // and by several at once
		wg.Go(func() {
			r := rand.New(rand.NewPCG(8, uint64(w)))
			for n := range uint64(40) {
				i := r.IntN(len(keys) - 1)
				low, high := keys[i], keys[i+1+r.IntN(len(keys)-1-i)]
				if err := s.SetGuard(t.Context(), low, high, token(1000*uint64(w)+n)); err != nil && !errors.Is(err, store.ErrUnavailable) {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	if err := covered(t.Context(), s); err != nil {
		t.Fatalf("after several at once: %v", err)
	}
}

func covered(ctx context.Context, s *Store) error {
	var bad, all int
	err := s.pool.QueryRow(ctx, `SELECT count(*) FILTER (WHERE least <> '' OR (next IS NULL) <> (high = '') OR next <> high), count(DISTINCT stripe) FROM (SELECT stripe, low, high, lead(low) OVER w AS next, first_value(low) OVER w AS least
			FROM `+s.schema+`.guards WINDOW w AS (PARTITION BY stripe ORDER BY low)) g`).Scan(&bad, &all)
	if err != nil || bad > 0 || all != 32 {
		return fmt.Errorf("%d guards of %d stripes leave a gap or overlap, %w", bad, all, err)
	}
	return nil
}

// Nobody can hold a guard for longer than the time limit.
func TestSetGuardIsBounded(t *testing.T) {
	s := open(t, Options{URL: fresh(t, Migration{}), Timeout: 300 * time.Millisecond})
	if err := s.SetGuard(t.Context(), "", "", token(1)); err != nil {
		t.Fatal(err)
	}
	// A transaction of ours that checked its guard, and then says nothing more.
	tx, err := s.pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback(context.Background()) }()
	if _, err := tx.Exec(t.Context(), "SELECT FROM "+s.schema+".guards FOR SHARE"); err != nil {
		t.Fatal(err)
	}
	if err := s.SetGuard(t.Context(), "", "", token(2)); err != nil {
		t.Errorf("the guard was held for longer than transactions may be idle: %v", err)
	}
	// One that is not ours, and is not bounded: the wait is.
	conn := admin(t, start(t))
	if _, err := conn.Exec(t.Context(), "BEGIN"); err != nil {
		t.Fatal(err)
	}
	if _, err := conn.Exec(t.Context(), "SELECT FROM "+s.schema+".guards FOR SHARE"); err != nil {
		t.Fatal(err)
	}
	if err := s.SetGuard(t.Context(), "", "", token(3)); err == nil {
		t.Error("a guard was installed over one that somebody holds")
	}
	if _, err := conn.Exec(t.Context(), "ROLLBACK"); err != nil {
		t.Fatal(err)
	}
	if err := s.SetGuard(t.Context(), "", "", token(4)); err != nil {
		t.Error(err)
	}
}

// A row that has expired is replaced by a tombstone before anybody is told, and old deletes are
// forgotten under a floor for the versions of absence.
func TestExpiredRowsAreCollected(t *testing.T) {
	s := open(t, Options{URL: fresh(t, Migration{})})
	s.opt.Grace = time.Microsecond
	commit := func(m store.Mutation) store.Version {
		t.Helper()
		stamps, err := s.Commit(t.Context(), store.ID{1}, []store.Mutation{m})
		if err != nil {
			t.Fatal(err)
		}
		return stamps[0].Version
	}
	v := commit(store.Mutation{Key: "k", Value: []byte("v"), TTL: time.Microsecond})
	for r := (store.Row{Exists: true}); r.Exists; {
		var err error
		if r, err = s.Load(t.Context(), "k"); err != nil || !r.Exists && r.Version != v+1 {
			t.Fatal(r, err)
		}
	}
	if _, err := s.pool.Exec(t.Context(), "UPDATE "+s.schema+".rows SET expires = clock_timestamp() + interval '1 hour' WHERE value IS NOT NULL"); err != nil {
		t.Fatal(err) // as if the clock had stepped back
	}
	if r, err := s.Load(t.Context(), "k"); err != nil || r.Exists || r.Version != v+1 {
		t.Fatalf("the dead have risen: %+v, %v", r, err)
	}
	gone := commit(store.Mutation{Key: "gone", Delete: true})
	commit(store.Mutation{Key: "unread", Value: []byte("v"), TTL: time.Microsecond})
	commit(store.Mutation{Key: "stays", Value: []byte("v")})
	left := 4
	for range 100 {
		if err := s.sweep(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := s.pool.QueryRow(t.Context(), "SELECT count(*) FROM "+s.schema+".rows").Scan(&left); err != nil {
			t.Fatal(err)
		}
		if left == 1 {
			break
		}
	}
	if left != 1 {
		t.Errorf("%d rows are left of 1 that lives", left)
	}
	r, err := s.Load(t.Context(), "gone")
	if err != nil || r.Exists || r.Version <= gone {
		t.Errorf("a forgotten delete of version %d is %+v, %v", gone, r, err)
	}
	if _, err := s.Commit(t.Context(), store.ID{2}, []store.Mutation{{Key: "gone", Value: []byte("v"), Check: true, Expect: gone}}); !errors.Is(err, store.ErrConflict) {
		t.Errorf("a write on the version of a forgotten delete: %v", err)
	}
	if _, err := s.Commit(t.Context(), store.ID{3}, []store.Mutation{{Key: "gone", Value: []byte("v"), Check: true, Expect: r.Version}}); err != nil {
		t.Errorf("a write on the version of absence: %v", err)
	}
	if _, err := s.Commit(t.Context(), store.ID{4}, []store.Mutation{{Key: "unread", Value: []byte("v")}}); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Commit(t.Context(), store.ID{5}, []store.Mutation{{Key: "unread", Value: []byte("w"), Check: true, Expect: r.Version}}); !errors.Is(err, store.ErrConflict) {
		t.Errorf("a write on the version of absence, over a row: %v", err)
	}
}
