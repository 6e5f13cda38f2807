package mysql

import (
	"context"
	"database/sql/driver"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	mariadb "github.com/go-sql-driver/mysql"

	"github.com/freshet-cache/freshet/internal/mariadbserver"
	"github.com/freshet-cache/freshet/store"
	"github.com/freshet-cache/freshet/store/storetest"
)

func try(t *testing.T, url, cluster string) error {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	s, err := Open(ctx, Options{URL: url, Cluster: cluster})
	if err == nil {
		_ = s.Close()
	}
	return err
}

// What cannot keep the promises is refused, and the error says what to do.
func TestRefusals(t *testing.T) {
	url := fresh(t, Migration{})
	db := admin(t, url)
	exec(t, db, "CREATE DATABASE IF NOT EXISTS empty")
	if err := try(t, start(t).URL("admin", "empty"), ""); !errors.Is(err, ErrNotMigrated) {
		t.Errorf("no tables: %v", err)
	}
	for _, step := range []struct {
		cluster string
		want    error
	}{{"one", nil}, {"one", nil}, {"", nil}, {"two", ErrOtherOwner}} {
		if err := try(t, url, step.cluster); !errors.Is(err, step.want) {
			t.Errorf("cluster %q: %v", step.cluster, err)
		}
	}
	if err := Migrate(t.Context(), url, Migration{Adopt: true}); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(try(t, url, "two"), Migrate(t.Context(), url, Migration{}), try(t, url, "two")); err != nil {
		t.Errorf("after the tables were adopted: %v", err)
	}
	exec(t, db, "UPDATE freshet_meta SET format = 99")
	if err := errors.Join(try(t, url, ""), Migrate(t.Context(), url, Migration{})); strings.Count(fmt.Sprint(err), "newer freshet") != 2 {
		t.Errorf("newer tables: %v", err)
	}
	exec(t, db, "UPDATE freshet_meta SET format = 0")
	if err := try(t, url, ""); !errors.Is(err, ErrNotMigrated) {
		t.Errorf("older tables: %v", err)
	}
	exec(t, db, "UPDATE freshet_meta SET format = 1")
	exec(t, db, "ALTER TABLE freshet_meta ENGINE = Aria")
	if err := try(t, url, ""); !errors.Is(err, ErrUnsafe) || !strings.Contains(err.Error(), "InnoDB") {
		t.Errorf("a table without row locks: %v", err)
	}
	addr := start(t).Addr()
	for bad, says := range map[string]string{
		"mysql://nobody:geheim@" + addr + "/app":              "nobody",
		"mysql://admin:geheim@127.0.0.1:1/app":                "127.0.0.1:1",
		"mysql://admin:ge/heim@" + addr + "/app":              "cannot be read",
		"mysql://admin:geheim@" + addr:                        "cannot be read",
		"mysql://admin@" + addr + "/nowhere":                  "nowhere",
		"mysql://admin@" + addr + "/d1?tls=perhaps":           "perhaps",
		"mysql://admin@" + addr + "/d1?charset=latin1":        "charset",
		"mysql://admin@" + addr + "/d1?pool_max_conns=0":      "positive",
		"mysql://admin@" + addr + "/d1?tls-ca=/no/such/file":  "/no/such/file",
		"mysql://admin@" + addr + "/d1?tls=true&tls-ca=x.pem": "x.pem",
		"mysql://admin@" + addr + "/d1?tls=true":              "TLS",
	} {
		if err := try(t, bad, ""); err == nil || !strings.Contains(err.Error(), says) || strings.Contains(err.Error(), "geheim") || strings.Contains(err.Error(), "heim@") {
			t.Errorf("%s: %v", bad, err)
		}
	}
}

// A server whose settings break promises is refused: one of its own, for they are the
// server's.
func TestUnsafeServers(t *testing.T) {
	start(t) // or skip
	server, err := mariadbserver.Start(t.Context(), t.TempDir(), "max-allowed-packet=1M")
	if err != nil {
		t.Fatal(err)
	}
	defer server.Stop()
	url := server.URL("admin", "app")
	if err := Migrate(t.Context(), url, Migration{}); err != nil {
		t.Fatal(err)
	}
	db := admin(t, url)
	exec(t, db, "SET GLOBAL innodb_flush_log_at_trx_commit = 2")
	if err := try(t, url, ""); !errors.Is(err, ErrUnsafe) {
		t.Errorf("commits that may be lost: %v", err)
	}
	exec(t, db, "SET GLOBAL innodb_flush_log_at_trx_commit = 1")
	s := open(t, Options{URL: url})
	if _, err := s.Commit(t.Context(), store.ID{1}, put("k", strings.Repeat("v", 1<<20), store.Token{})); !errors.Is(err, store.ErrTooLarge) {
		t.Errorf("a value that the server's packets do not hold: %v", err)
	}
	for _, n := range []int{s.opt.MaxValue, s.opt.MaxValue / 2} { // zero bytes take two when they are written out
		if _, err := s.Commit(t.Context(), store.ID{1}, put("k", strings.Repeat("\x00\xff", n/2), store.Token{})); err != nil {
			t.Errorf("a value of %d bytes: %v", n, err)
		}
		m := put("k", strings.Repeat("\x00\xff", n/2), store.Token{})
		if _, err := s.Commit(t.Context(), store.ID{1}, append(m, put("l", strings.Repeat("\x00\xff", n/2), store.Token{})...)); err != nil {
			t.Errorf("two values of %d bytes: %v", n, err)
		}
		if r, err := s.Load(t.Context(), "l"); err != nil || string(r.Value) != strings.Repeat("\x00\xff", n/2) {
			t.Errorf("a value of %d bytes came back as %d, %v", n, len(r.Value), err)
		}
	}
	exec(t, db, "SET GLOBAL read_only = 1")
	if err := try(t, url, ""); !errors.Is(err, ErrReadOnly) {
		t.Errorf("a replica: %v", err)
	}
	kill(t, url)
	if _, err := s.Load(t.Context(), "k"); !errors.Is(err, ErrReadOnly) {
		t.Errorf("a read of a primary that was demoted: %v", err)
	}
}

// Servers that cannot be had here are told apart by what they say of themselves.
func TestServersAreJudged(t *testing.T) {
	for _, c := range []struct {
		set  string
		want error
	}{
		{"version=10.11.19-MariaDB-0+deb12u1", nil}, {"version=11.8.2-MariaDB", nil}, {"version=10.6.0-MariaDB", nil},
		{"version=10.5.9-MariaDB", ErrServerTooOld}, {"version=8.0.36", nil}, {"version=8.4.0", nil}, {"version=9.1.0 log_bin=ON binlog_format=ROW sync_binlog=1", nil},
		{"version=5.7.44", ErrServerTooOld}, {"version=unknown", ErrServerTooOld}, {"version=8.0.11-TiDB-v7.5.0", ErrUnsafe},
		{"version=8.0.36 log_bin=ON binlog_format=STATEMENT", ErrUnsafe}, {"version=8.0.36 log_bin=OFF binlog_format=STATEMENT", nil},
		{"version=8.0.36 innodb_flush_log_at_trx_commit=0", ErrUnsafe},
		{"version=10.11.19-MariaDB wsrep_on=ON", ErrUnsafe}, {"version=10.11.19-MariaDB wsrep_on=OFF", nil},
		{"version=8.0.36 group_replication_group_name=g group_replication_single_primary_mode=OFF", ErrUnsafe},
		{"version=8.0.36 group_replication_group_name=g group_replication_single_primary_mode=ON", nil},
	} {
		set := variables{"innodb_flush_log_at_trx_commit": "1"}
		for _, word := range strings.Fields(c.set) {
			name, v, _ := strings.Cut(word, "=")
			set[name] = v
		}
		if err := judge(set, slog.New(slog.DiscardHandler)); !errors.Is(err, c.want) {
			t.Errorf("%s: %v", c.set, err)
		}
	}
}

// A user that has what Migrate grants, and no more, is enough.
func TestLeastPrivilege(t *testing.T) {
	url := fresh(t, Migration{})
	db := admin(t, url)
	exec(t, db, "DROP USER IF EXISTS server")
	exec(t, db, "CREATE USER server IDENTIFIED BY 'p@ss/w'")
	mine := func(url string) string { return strings.Replace(url, "admin@", "server:p%40ss%2Fw@", 1) }
	if err := try(t, mine(url), ""); err == nil || !strings.Contains(err.Error(), "denied") {
		t.Errorf("a user without privileges: %v", err)
	}
	if err := Migrate(t.Context(), mine(url), Migration{Grant: "other"}); err == nil {
		t.Error("a user without privileges has migrated")
	}
	if err := Migrate(t.Context(), url, Migration{Grant: "nobody_like_that"}); err == nil {
		t.Error("a grant has made a user, without a password")
	}
	for _, c := range storetest.Checks {
		url := fresh(t, Migration{Grant: "server"})
		s := open(t, Options{URL: mine(url), Cluster: "c"})
		if c.Name == "GuardsFollowTablets" || c.Name == "TheFenceHolds" {
			continue
		}
		if err := c.Check(t.Context(), s); err != nil {
			t.Errorf("%s: %v", c.Name, err)
		}
		s.opt.Grace = time.Microsecond
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
		key := strings.Repeat("\xff'\\\x00", c.key)[:c.key]
		_, err := s.Commit(t.Context(), store.ID{1}, put(key, strings.Repeat("v", c.value), store.Token{}))
		if !errors.Is(err, c.want) {
			t.Errorf("a key of %d and a value of %d bytes: %v", c.key, c.value, err)
		}
	}
	key := strings.Repeat("\xff'\\\x00", MaxKey)[:MaxKey]
	if err := s.SetGuard(t.Context(), key, key+"\x00", token(1)); err != nil {
		t.Errorf("a guard over the longest key: %v", err)
	}
	if _, err := s.Commit(t.Context(), store.ID{1}, put(key, "v", token(1))); err != nil {
		t.Errorf("a write of the longest key: %v", err)
	}
	if err := s.SetGuard(t.Context(), strings.Repeat("v", maxBound+1), "", token(1)); !errors.Is(err, store.ErrTooLarge) {
		t.Errorf("a guard with a bound that is too long: %v", err)
	}
	for _, r := range [][2]string{{"m", "m"}, {"m", "a"}} {
		if err := s.SetGuard(t.Context(), r[0], r[1], token(1)); !errors.Is(err, store.ErrRefused) {
			t.Errorf("a guard over [%s,%s): %v", r[0], r[1], err)
		}
	}
	twice := append(put("k", "v", store.Token{}), put("k", "w", store.Token{})...)
	if _, err := s.Commit(t.Context(), store.ID{1}, twice); !errors.Is(err, store.ErrRefused) {
		t.Errorf("a batch that writes a key twice: %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := s.Commit(ctx, store.ID{1}, put("k", "v", store.Token{})); !errors.Is(err, store.ErrUnavailable) {
		t.Errorf("a write that was not sent: %v", err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	_, err1 := s.Commit(t.Context(), store.ID{1}, put("k", "v", store.Token{}))
	_, err2 := s.Load(t.Context(), "k")
	err3 := s.SetGuard(t.Context(), "", "", token(1))
	for _, err := range []error{err1, err2, err3} {
		if !errors.Is(err, store.ErrClosed) {
			t.Errorf("after Close: %v", err)
		}
	}
}

// A batch may have more keys than one statement asks for.
func TestLargeBatches(t *testing.T) {
	s := open(t, Options{URL: fresh(t, Migration{})})
	for round := range 2 {
		var muts []store.Mutation
		for i := range 300 {
			muts = append(muts, put(fmt.Sprintf("k%03d", (i*7)%300), strings.Repeat("v", 20_000), store.Token{})...)
		}
		stamps, err := s.Commit(t.Context(), store.ID{1}, muts)
		if err != nil {
			t.Fatal(err)
		}
		for i, m := range muts {
			if r, err := s.Load(t.Context(), m.Key); err != nil || r.Version != stamps[i].Version {
				t.Fatalf("round %d: %s is %d, %v, stamped %d", round, m.Key, r.Version, err, stamps[i].Version)
			}
		}
	}
}

// A write that finds all connections taken waits as long as its caller does, and
// says that nothing was written.
func TestFullPool(t *testing.T) {
	s := open(t, Options{URL: fresh(t, Migration{}) + "?pool_max_conns=1"})
	conn, err := s.db.Conn(t.Context())
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
	if err := conn.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Commit(t.Context(), store.ID{1}, put("k", "v", token(1))); err != nil {
		t.Error(err)
	}
}

// What the server has answered with an error was not done; what it may have done is
// not called refused, whatever else is going on.
func TestErrorsAreSorted(t *testing.T) {
	s := &Store{}
	for _, closed := range []bool{false, true} {
		s.closed.Store(closed)
		for n, definite := range map[uint16]bool{1205: true, 1317: true, 1969: true, 3024: true, 1040: true, 1114: true, 1153: true, 1406: true, 1045: true, 1142: true,
			1146: true, 1290: true, 1665: true, 1927: false, 1053: false, 1180: false, 1598: false, 1030: false, 9999: false} {
			if err := s.failed("writing", &mariadb.MySQLError{Number: n}); store.Definite(err) != definite {
				t.Errorf("%d, closed %v: %v", n, closed, err)
			}
		}
		for err, definite := range map[error]bool{driver.ErrBadConn: true, mariadb.ErrPktTooLarge: true, ErrReadOnly: true,
			mariadb.ErrInvalidConn: false, context.DeadlineExceeded: false, errors.New("connection reset"): false} {
			if got := s.failed("writing", err); store.Definite(got) != definite {
				t.Errorf("%v, closed %v: %v", err, closed, got)
			}
		}
	}
	for _, n := range []uint16{1213, 1062} { // undone, and made again
		if err := s.failed("writing", &mariadb.MySQLError{Number: n}); !errors.Is(err, errAgain) || store.Definite(err) {
			t.Errorf("%d: %v", n, err)
		}
	}
}

// A row that has expired is replaced by a tombstone before anybody is told, and old deletes are
// forgotten under a floor for the versions of absence.
func TestExpiredRowsAreCollected(t *testing.T) {
	url := fresh(t, Migration{})
	s := open(t, Options{URL: url})
	db := admin(t, url)
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
	exec(t, db, "UPDATE freshet_rows SET due = "+now+" + 3600000000 WHERE value IS NOT NULL") // as if the clock had stepped back
	if r, err := s.Load(t.Context(), "k"); err != nil || r.Exists || r.Version != v+1 {
		t.Fatalf("the dead have risen: %+v, %v", r, err)
	}
	if w := commit(store.Mutation{Key: "k", Value: []byte("v")}); w <= v+1 || w%2 != 0 {
		t.Errorf("version %d was written over the absence %d", w, v+1)
	}
	gone := commit(store.Mutation{Key: "gone", Delete: true})
	commit(store.Mutation{Key: "unread", Value: []byte("v"), TTL: time.Microsecond})
	left := 4
	for range 100 {
		if err := s.sweep(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := db.QueryRowContext(t.Context(), "SELECT COUNT(*) FROM freshet_rows").Scan(&left); err != nil {
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
	stamps, err := s.Commit(t.Context(), store.ID{3}, []store.Mutation{{Key: "gone", Value: []byte("v"), Check: true, Expect: r.Version}})
	if err != nil || stamps[0].Version <= r.Version {
		t.Errorf("a write on the version of absence: %+v, %v", stamps, err)
	}
	if w := commit(store.Mutation{Key: "unread", Value: []byte("v")}); w <= r.Version {
		t.Errorf("version %d follows a forgotten one, under the floor %d", w, r.Version)
	}
	if _, err := s.Commit(t.Context(), store.ID{5}, []store.Mutation{{Key: "unread", Value: []byte("w"), Check: true, Expect: r.Version}}); !errors.Is(err, store.ErrConflict) {
		t.Errorf("a write on the version of absence, over a row: %v", err)
	}
}

// After a restore every row, and every absence, has a version that was never given: also none that the history which is
// gone has given since.
func TestRestored(t *testing.T) {
	url, ctx := fresh(t, Migration{}), t.Context()
	s := open(t, Options{URL: url})
	if err := s.SetGuard(ctx, "", "", store.Token{}); err != nil {
		t.Fatal(err)
	}
	write := func(s *Store, id byte, m store.Mutation) store.Version {
		t.Helper()
		stamps, err := s.Commit(ctx, store.ID{id}, []store.Mutation{m})
		if err != nil {
			t.Fatal(err)
		}
		return stamps[0].Version
	}
	write(s, 1, store.Mutation{Key: "k", Value: []byte("v")})
	gone := max(write(s, 2, store.Mutation{Key: "d", Delete: true}), write(s, 3, store.Mutation{Key: "k", Value: []byte("w")}))
	if err := errors.Join(s.Close(), Migrate(ctx, url, Migration{Restored: true})); err != nil {
		t.Fatal(err)
	}
	s = open(t, Options{URL: url})
	for _, key := range []string{"k", "d", "never"} {
		row, err := s.Load(ctx, key)
		if err != nil || row.Exists != (key == "k") || row.Version <= gone || row.Exists && string(row.Value) != "w" {
			t.Errorf("%s is %+v, and %d was given before: %v", key, row, gone, err)
		}
	}
	if v := write(s, 4, store.Mutation{Key: "k", Value: []byte("x")}); v <= gone || v&1 != 0 {
		t.Errorf("a write got version %d after %d", v, gone)
	}
}
