package postgres

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/freshet-cache/freshet/store"
	"github.com/freshet-cache/freshet/store/storetest"
)

// What cannot keep the promises is refused, and the error says what to do.
func TestRefusals(t *testing.T) {
	url := fresh(t, Migration{})
	conn := admin(t, start(t))
	exec := func(sql string) {
		t.Helper()
		if _, err := conn.Exec(t.Context(), sql); err != nil {
			t.Fatal(err)
		}
	}
	schema := url[strings.LastIndex(url, "=")+1:]
	try := func(url, cluster string) error {
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		s, err := Open(ctx, Options{URL: url, Cluster: cluster})
		if err == nil {
			_ = s.Close()
		}
		return err
	}
	if err := try(url+"none", ""); !errors.Is(err, ErrNotMigrated) {
		t.Errorf("no schema: %v", err)
	}
	for _, step := range []struct {
		cluster string
		want    error
	}{{"one", nil}, {"one", nil}, {"", nil}, {"two", ErrOtherOwner}} {
		if err := try(url, step.cluster); !errors.Is(err, step.want) {
			t.Errorf("cluster %q: %v", step.cluster, err)
		}
	}
	if err := Migrate(t.Context(), url, Migration{Adopt: true}); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(try(url, "two"), Migrate(t.Context(), url, Migration{}), try(url, "two")); err != nil {
		t.Errorf("after the schema was adopted: %v", err)
	}
	if err := Migrate(t.Context(), url, Migration{Partitions: []string{"m"}}); err == nil {
		t.Error("rows that are there were partitioned")
	}
	if err := try(url+"&synchronous_commit=off", ""); !errors.Is(err, ErrUnsafe) {
		t.Errorf("commits that may be lost: %v", err)
	}
	exec("UPDATE " + schema + ".meta SET format = 99")
	if err := errors.Join(try(url, ""), Migrate(t.Context(), url, Migration{})); strings.Count(fmt.Sprint(err), "newer freshet") != 2 {
		t.Errorf("a newer schema: %v", err)
	}
	exec("UPDATE " + schema + ".meta SET format = 0")
	if err := try(url, ""); !errors.Is(err, ErrNotMigrated) {
		t.Errorf("an older schema: %v", err)
	}
	for bad, says := range map[string]string{
		"postgres://nobody:geheim@" + start(t).Addr() + "/postgres?sslmode=disable": "nobody",
		"postgres://admin:geheim@127.0.0.1:1/postgres?sslmode=disable":              "127.0.0.1:1",
		"postgres://admin:geheim@[::1/postgres":                                     "cannot be read",
		start(t).URL("admin", "nowhere"):                                            "nowhere",
	} {
		if err := try(bad, ""); err == nil || !strings.Contains(err.Error(), says) || strings.Contains(err.Error(), "geheim") {
			t.Errorf("%s: %v", bad, err)
		}
	}
}

// A role that has what Migrate grants, and no more, is enough.
func TestLeastPrivilege(t *testing.T) {
	conn := admin(t, start(t))
	if _, err := conn.Exec(t.Context(), "DROP ROLE IF EXISTS server; CREATE ROLE server LOGIN NOSUPERUSER"); err != nil {
		t.Fatal(err)
	}
	url := fresh(t, Migration{})
	mine := strings.Replace(url, "admin@", "server@", 1)
	if _, err := Open(t.Context(), Options{URL: mine}); err == nil || !strings.Contains(err.Error(), "permission denied") {
		t.Errorf("a role without privileges: %v", err)
	}
	for _, c := range storetest.Checks {
		url := fresh(t, Migration{Grant: "server"})
		s := open(t, Options{URL: strings.Replace(url, "admin@", "server@", 1), Cluster: "c"})
		if c.Name == "GuardsFollowTablets" || c.Name == "TheFenceHolds" {
			continue
		}
		if err := c.Check(t.Context(), s); err != nil {
			t.Errorf("%s: %v", c.Name, err)
		}
		if err := s.sweep(t.Context()); err != nil {
			t.Error(err)
		}
	}
}

func TestLimits(t *testing.T) {
	s := open(t, Options{URL: fresh(t, Migration{}), MaxValue: 1000, Timeout: time.Second})
	for _, c := range []struct {
		key, value int
		want       error
	}{{0, 1, store.ErrTooLarge}, {1, 0, nil}, {MaxKey, 1000, nil}, {MaxKey + 1, 1, store.ErrTooLarge}, {1, 1001, store.ErrTooLarge}} {
		key := make([]byte, c.key)
		for i := range key {
			key[i] = byte(i*i*7 + i>>3) // what cannot be compressed
		}
		_, err := s.Commit(t.Context(), store.ID{1}, put(string(key), strings.Repeat("v", c.value), store.Token{}))
		if !errors.Is(err, c.want) {
			t.Errorf("a key of %d and a value of %d bytes: %v", c.key, c.value, err)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := s.Commit(ctx, store.ID{1}, put("k", "v", store.Token{})); !errors.Is(err, store.ErrUnavailable) {
		t.Errorf("a write that was not sent: %v", err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Commit(t.Context(), store.ID{1}, put("k", "v", store.Token{})); !errors.Is(err, store.ErrClosed) {
		t.Errorf("a write after Close: %v", err)
	}
	if _, err := s.Load(t.Context(), "k"); !errors.Is(err, store.ErrClosed) {
		t.Errorf("a read after Close: %v", err)
	}
}

// A write that finds all connections taken waits as long as its caller does, and
// says that nothing was written.
func TestFullPool(t *testing.T) {
	s := open(t, Options{URL: fresh(t, Migration{}) + "&pool_max_conns=1"})
	conn, err := s.pool.Acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, err := s.Commit(ctx, store.ID{1}, put("k", "v", store.Token{})); !errors.Is(err, store.ErrUnavailable) {
		t.Error(err)
	}
	if err := s.SetGuard(t.Context(), "", "", token(1)); err != nil {
		t.Errorf("a guard waited for a connection behind writes: %v", err)
	}
	conn.Release()
	if _, err := s.Commit(t.Context(), store.ID{1}, put("k", "v", token(1))); err != nil {
		t.Error(err)
	}
}

func TestPartitionsAreSplitPoints(t *testing.T) {
	s := open(t, Options{URL: fresh(t, Migration{Partitions: []string{"m", "b\x00'\\", "z", "m"}})})
	for _, c := range []struct {
		low, high string
		want      []string
	}{{"", "", []string{"b\x00'\\", "m", "z"}}, {"m", "", []string{"z"}}, {"", "m", []string{"b\x00'\\"}}, {"n", "o", nil}} {
		if got, err := s.Splits(t.Context(), c.low, c.high); err != nil || !slices.Equal(got, c.want) {
			t.Errorf("inside [%q,%q): %q, %v", c.low, c.high, got, err)
		}
	}
	if err := s.SetGuard(t.Context(), "a", "zz", token(1)); err != nil { // across all of them
		t.Error(err)
	}
}

// What the server has answered with an error was not done; what it may have done is
// not called refused, whatever else is going on.
func TestErrorsAreSorted(t *testing.T) {
	s := &Store{}
	for code, definite := range map[string]bool{"FR003": true, "FR004": true, "23505": true, "54000": true, "57014": true, "55P03": true, "40P01": true, "40001": true,
		"53100": true, "53300": true, "42501": true, "22P02": true, "25006": true, "0A000": true,
		"57P01": false, "57P02": false, "08006": false, "58030": false, "XX000": false, "40003": false, "99999": false} {
		for _, closed := range []bool{false, true} {
			s.closed.Store(closed)
			if err := s.failed("writing", &pgconn.PgError{Code: code}); store.Definite(err) != definite {
				t.Errorf("%s, closed %v: %v", code, closed, err)
			}
		}
	}
	s.closed.Store(true)
	if err := s.failed("writing", errors.New("connection reset")); store.Definite(err) {
		t.Errorf("silence is called no: %v", err)
	}
}

func TestEmptyRangesAreRefused(t *testing.T) {
	s := open(t, Options{URL: fresh(t, Migration{})})
	for _, r := range [][2]string{{"m", "m"}, {"m", "a"}} {
		if err := s.SetGuard(t.Context(), r[0], r[1], token(1)); !errors.Is(err, store.ErrRefused) {
			t.Errorf("a guard over [%s,%s): %v", r[0], r[1], err)
		}
	}
	if err := s.SetGuard(t.Context(), "a", "z", token(1)); err != nil {
		t.Fatal(err)
	}
	if err := covered(t.Context(), s); err != nil {
		t.Error(err)
	}
	if _, err := s.Commit(t.Context(), store.ID{1}, put("mm", "v", token(1))); err != nil {
		t.Error(err)
	}
}

// Guards are lost while many are set and writes go on: nobody waits for a deadlock.
func TestGuardsAreLostUnderLoad(t *testing.T) {
	url := fresh(t, Migration{})
	stores := []*Store{open(t, Options{URL: url}), open(t, Options{URL: url})}
	for round := range 5 {
		if err := (forgetful{stores[0]}).Restart(t.Context(), ""); err != nil {
			t.Fatal(err)
		}
		var wg sync.WaitGroup
		for i := range 8 {
			s, low := stores[i%2], string(rune('a'+i))
			wg.Go(func() {
				if err := s.SetGuard(t.Context(), low, low+"~", token(uint64(10*round+i+1))); err != nil {
					t.Errorf("round %d: %v", round, err)
				}
			})
			wg.Go(func() {
				_, err := s.Commit(t.Context(), store.ID{1}, put(low+"k", "v", token(1)))
				if err != nil && !errors.Is(err, store.ErrGuardMismatch) {
					t.Errorf("round %d: %v", round, err)
				}
			})
		}
		wg.Wait()
		if err := covered(t.Context(), stores[0]); err != nil {
			t.Error(err)
		}
	}
}

// Of several servers the primary is meant: no other takes writes.
func TestSeveralServers(t *testing.T) {
	for url, primary := range map[string]bool{
		"postgres://a,b/app":                          true,
		"postgres://a:1,a:2/app?sslmode=disable":      true,
		"postgres://a/app":                            false, // sslmode=prefer falls back too, to the same server
		"postgres://a/app?user=x,y":                   false,
		"postgres://a,b/app?target_session_attrs=any": true,
	} {
		cfg, _, err := parse(url)
		if err != nil || (cfg.ConnConfig.ValidateConnect != nil) != primary {
			t.Errorf("%s: primary %v, %v", url, !primary, err)
		}
	}
}
