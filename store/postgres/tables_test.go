package postgres

import (
	"cmp"
	"context"
	"database/sql"
	"encoding/hex"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	_ "github.com/jackc/pgx/v5/stdlib"

	"github.com/freshet-cache/freshet/linear"
	"github.com/freshet-cache/freshet/store"
	"github.com/freshet-cache/freshet/store/storetest"
)

// way is one of the ways to the user's tables.
type way[T any] struct {
	linear.Tables[T]
	s     *Store
	exec  func(ctx context.Context, tx T, q string, args ...any) error
	query func(ctx context.Context, tx T, q string, args ...any) row
}

func byPgx(t testing.TB, opt Options) way[pgx.Tx] {
	t.Helper()
	s := open(t, opt)
	tables, err := s.Tables(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	return way[pgx.Tx]{tables, s,
		func(ctx context.Context, tx pgx.Tx, q string, args ...any) error {
			_, err := tx.Exec(ctx, q, args...)
			return err
		},
		func(ctx context.Context, tx pgx.Tx, q string, args ...any) row { return tx.QueryRow(ctx, q, args...) }}
}

func bySQL(t testing.TB, opt Options) way[*sql.Tx] {
	t.Helper()
	s := open(t, opt)
	tables, err := s.SQLTables(t.Context(), database(t, start(t).URL("admin", "postgres")))
	if err != nil {
		t.Fatal(err)
	}
	return way[*sql.Tx]{tables, s,
		func(ctx context.Context, tx *sql.Tx, q string, args ...any) error {
			_, err := tx.ExecContext(ctx, q, args...)
			return err
		},
		func(ctx context.Context, tx *sql.Tx, q string, args ...any) row {
			return tx.QueryRowContext(ctx, q, args...)
		}}
}

func database(t testing.TB, url string) *sql.DB {
	t.Helper()
	db, err := sql.Open("pgx", url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	return db
}

func TestTablesPgx(t *testing.T) { testTables(t, byPgx(t, Options{URL: fresh(t, Migration{})})) }
func TestTablesSQL(t *testing.T) { testTables(t, bySQL(t, Options{URL: fresh(t, Migration{})})) }

type order struct {
	Owner string
	Lines int
}

// shop is a view of orders and their lines, as an application would have it.
type shop[T any] struct {
	way[T]
	t     *testing.T
	view  *linear.View[order, T]
	loads int
}

func openShop[T any](t *testing.T, w way[T]) *shop[T] {
	s := &shop[T]{way: w, t: t}
	if err := s.run(`CREATE TABLE $s.orders (id int PRIMARY KEY, owner text NOT NULL); CREATE TABLE $s.lines (order_id int NOT NULL, what text NOT NULL)`); err != nil {
		t.Fatal(err)
	}
	s.look()
	return s
}

// openShopAgain opens another view of the same tables.
func openShopAgain[T any](t *testing.T, w way[T]) *shop[T] {
	s := &shop[T]{way: w, t: t}
	s.look()
	return s
}

func (s *shop[T]) look() {
	t := s.t
	var err error
	s.view, err = linear.NewView(s.Tables, s.load, linear.Options[order]{Codec: linear.JSON[order](), Timeout: 2 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.view.Close(context.Background()) })
}

// run is what somebody does who knows nothing of freshet.
func (s *shop[T]) run(q string) error {
	_, err := admin(s.t, start(s.t)).Exec(s.t.Context(), strings.ReplaceAll(q, "$s", s.s.schema))
	return err
}

func (s *shop[T]) load(ctx context.Context, tx T, key string) (o order, ok bool, err error) {
	s.loads++
	id := strings.TrimPrefix(key, "order:")
	if err := s.query(ctx, tx, "SELECT coalesce(max(owner), '') FROM "+s.s.schema+".orders WHERE id = $1::int", id).Scan(&o.Owner); err != nil {
		return o, false, err
	}
	err = s.query(ctx, tx, "SELECT count(*) FROM "+s.s.schema+".lines WHERE order_id = $1::int", id).Scan(&o.Lines)
	return o, o.Owner != "", err
}

// add has an owner for an order, and more lines in it.
func (s *shop[T]) add(id int, owner string, lines ...string) func(context.Context, T) error {
	return func(ctx context.Context, tx T) error {
		err := s.exec(ctx, tx, "INSERT INTO "+s.s.schema+".orders VALUES ($1, $2) ON CONFLICT (id) DO UPDATE SET owner = EXCLUDED.owner", id, owner)
		for _, l := range lines {
			err = errors.Join(err, s.exec(ctx, tx, "INSERT INTO "+s.s.schema+".lines VALUES ($1, $2)", id, l))
		}
		return err
	}
}

func (s *shop[T]) update(write func(context.Context, T) error, keys ...string) error {
	return s.view.Update(s.t.Context(), keys, write)
}

func (s *shop[T]) want(key string, o order) {
	s.t.Helper()
	for range 2 { // the second from memory
		if got, ok, err := s.view.Get(s.t.Context(), key); err != nil || got != o || ok != (o != order{}) {
			s.t.Fatalf("%s is %+v %v %v, not %+v", key, got, ok, err, o)
		}
	}
}

func testTables[T any](t *testing.T, w way[T]) {
	s := openShop(t, w)
	s.want("order:1", order{})
	if err := s.update(s.add(1, "ann", "tea", "milk"), "order:1"); err != nil {
		t.Fatal(err)
	}
	s.want("order:1", order{"ann", 2})
	before := s.loads
	s.want("order:1", order{"ann", 2})
	if s.loads != before {
		t.Errorf("%d queries were made for what is in memory", s.loads-before)
	}
	s.strictly()
	if err := s.update(s.add(2, "bob"), "order:1"); !errors.Is(err, store.ErrRefused) || !strings.Contains(err.Error(), "order:2") {
		t.Errorf("an update that does not name its key: %v", err)
	}
	if err := s.update(s.add(2, "bob", "jam"), "order:2", "order:1"); err != nil {
		t.Fatal(err)
	}
	s.want("order:2", order{"bob", 1})
	s.want("order:1", order{"ann", 2})
	s.wrongly()
	if err := s.update(s.add(1, "cat"), "order:1"); err != nil {
		t.Fatalf("after all that: %v", err)
	}
	s.want("order:1", order{"cat", 2})
}

// strictly turns strict mode on, in which who names no key, or another, changes nothing.
func (s *shop[T]) strictly() {
	for _, table := range []string{"orders', 'order:{id}", "lines', 'order:{order_id}"} {
		if err := s.run("SELECT $s.guard_table('$s." + table + "')"); err != nil {
			s.t.Fatal(err)
		}
	}
	for q, says := range map[string]string{
		"INSERT INTO $s.lines VALUES (1, 'jam')":            "lines belongs to the key 'order:1'",
		"UPDATE $s.lines SET what = 'x' WHERE what = 'tea'": "lines belongs to the key 'order:1'",
		"DELETE FROM $s.orders":                             "orders belongs to the key 'order:1'",
		"TRUNCATE $s.lines":                                 "TRUNCATE names no keys",
		"SELECT $s.guard_table('$s.lines', 'order:{none}')": "names no column",
		"SELECT $s.guard_table('$s.lines', 'order')":        "names no column",
		"SELECT $s.touch('{a}', '{00000000000000000000000000000000}', '00000000000000000000000000000000', 'x')": "ended its transaction",
	} {
		if err := s.run(q); err == nil || !strings.Contains(err.Error(), says) {
			s.t.Errorf("%s: %v", q, err)
		}
	}
}

// wrongly does what an update's function should not.
func (s *shop[T]) wrongly() {
	does := func(q string) func(context.Context, T) error {
		return func(ctx context.Context, tx T) error { return s.exec(ctx, tx, q) }
	}
	silent := func(ctx context.Context, tx T) error { _ = s.exec(ctx, tx, "SELECT 1/0"); return nil }
	if err := s.update(silent, "order:1"); !errors.Is(err, store.ErrRefused) {
		s.t.Errorf("a failed statement that nobody spoke of: %v", err)
	}
	if err := s.update(does("COMMIT"), "order:1"); !errors.Is(err, ErrEnded) {
		s.t.Errorf("a function that commits: %v", err)
	}
	if err := s.update(does("SELECT pg_sleep(60)"), "order:1"); err == nil || errors.Is(err, linear.ErrOutcomeUnknown) {
		s.t.Errorf("a function that takes too long: %v", err)
	}
	if err := s.update(s.add(3, "x"), strings.Repeat("k", MaxKey+1)); !errors.Is(err, store.ErrTooLarge) {
		s.t.Errorf("a key that is too long: %v", err)
	}
}

func TestTablesElsewhere(t *testing.T) {
	s := open(t, Options{URL: fresh(t, Migration{})})
	if _, err := admin(t, start(t)).Exec(t.Context(), "CREATE DATABASE elsewhere"); err != nil {
		t.Fatal(err)
	}
	url := start(t).URL("admin", "elsewhere")
	if _, err := s.SQLTables(t.Context(), database(t, url)); err == nil || !strings.Contains(err.Error(), "another database") {
		t.Errorf("tables in another database: %v", err)
	}
	pool, err := pgxpool.New(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	defer pool.Close()
	if _, err := s.Tables(t.Context(), pool); err == nil || !strings.Contains(err.Error(), "another database") {
		t.Errorf("tables in another database: %v", err)
	}
	tables, err := s.SQLTables(t.Context(), database(t, start(t).URL("admin", "postgres")))
	if err != nil {
		t.Fatal(err)
	}
	tx, err := tables.db.Begin()
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback() }()
	err = tables.Transact(t.Context(), store.ID{1}, []string{"k"}, []store.Token{{}}, func(_ context.Context, tx *sql.Tx) error { return tx.Commit() })
	if !errors.Is(err, ErrEnded) || !store.Definite(err) {
		t.Errorf("a function that commits: %v", err)
	}
}

// marked is a store whose writes are transactions on a table of the user's.
type marked[T any] struct {
	*Store
	w way[T]
}

func (m marked[T]) Load(ctx context.Context, key string) (store.Row, error) {
	var who sql.NullString
	row, err := m.w.Snapshot(ctx, key, func(ctx context.Context, tx T) error {
		return m.w.query(ctx, tx, "SELECT max(who) FROM "+m.schema+".mine WHERE key = $1", key).Scan(&who)
	})
	row.Exists, row.Writer = who.Valid, store.ID(fromUUID(who.String))
	return row, err
}

func (m marked[T]) Commit(ctx context.Context, id store.ID, muts []store.Mutation) ([]store.Stamp, error) {
	slices.SortFunc(muts, func(a, b store.Mutation) int { return cmp.Compare(a.Key, b.Key) })
	var keys []string
	var guards []store.Token
	for _, mut := range muts {
		keys, guards = append(keys, mut.Key), append(guards, mut.Guard)
	}
	err := m.w.Transact(ctx, id, keys, guards, func(ctx context.Context, tx T) error {
		for _, k := range keys {
			if err := m.w.exec(ctx, tx, "INSERT INTO "+m.schema+".mine VALUES ($1, $2) ON CONFLICT (key) DO UPDATE SET who = EXCLUDED.who", k, hex.EncodeToString(id[:])); err != nil {
				return err
			}
		}
		return nil
	})
	return make([]store.Stamp, len(muts)), err
}

func fence[T any](t *testing.T, w way[T]) {
	if _, err := admin(t, start(t)).Exec(t.Context(), "CREATE TABLE "+w.s.schema+".mine (key text PRIMARY KEY, who text NOT NULL)"); err != nil {
		t.Fatal(err)
	}
	if err := (storetest.Fence{Rounds: 300}).Holds(t.Context(), marked[T]{w.s, w}); err != nil {
		t.Error(err)
	}
}

// The fence holds for transactions of the user's too.
func TestFenceOverTransactions(t *testing.T) {
	fence(t, byPgx(t, Options{URL: fresh(t, Migration{})}))
	fence(t, bySQL(t, Options{URL: fresh(t, Migration{})}))
}

// A schema of format 1 is upgraded, with what is in it.
func TestUpgrade(t *testing.T) {
	url, exec := older(t, 1)
	exec(`SELECT SCHEMA.cover()`)
	exec(`INSERT INTO SCHEMA.rows (key, value, version, writer, written) VALUES ('k', 'v', nextval('SCHEMA.version'), gen_random_uuid(), now())`)
	if _, err := Open(t.Context(), Options{URL: url}); !errors.Is(err, ErrNotMigrated) {
		t.Errorf("an old schema: %v", err)
	}
	for range 2 {
		if err := Migrate(t.Context(), url, Migration{}); err != nil {
			t.Fatal(err)
		}
	}
	r, err := open(t, Options{URL: url}).Load(t.Context(), "k")
	if err != nil || string(r.Value) != "v" {
		t.Errorf("after the upgrade: %+v %v", r, err)
	}
	if err := byPgx(t, Options{URL: url}).Transact(t.Context(), store.ID{2}, []string{"k2"}, []store.Token{{}}, func(context.Context, pgx.Tx) error { return nil }); err != nil {
		t.Error(err)
	}
}

// What a load reads is of one instant, its version too.
func TestSnapshotsAreNotTorn(t *testing.T) {
	testSnapshots(t, byPgx(t, Options{URL: fresh(t, Migration{})}))
	testSnapshots(t, bySQL(t, Options{URL: fresh(t, Migration{})}))
}

func testSnapshots[T any](t *testing.T, w way[T]) {
	ctx := t.Context()
	if _, err := admin(t, start(t)).Exec(ctx, "CREATE TABLE "+w.s.schema+".n (i int); INSERT INTO "+w.s.schema+".n VALUES (1)"); err != nil {
		t.Fatal(err)
	}
	write := func(id byte) {
		err := w.Transact(ctx, store.ID{id}, []string{"k"}, []store.Token{{}}, func(ctx context.Context, tx T) error {
			return w.exec(ctx, tx, "UPDATE "+w.s.schema+".n SET i = i + 1")
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := w.SetGuard(ctx, "", "", store.Token{}); err != nil {
		t.Fatal(err)
	}
	write(1)
	var a, b int
	row, err := w.Snapshot(ctx, "k", func(ctx context.Context, tx T) error {
		err := w.query(ctx, tx, "SELECT i FROM "+w.s.schema+".n").Scan(&a)
		write(2)
		return errors.Join(err, w.query(ctx, tx, "SELECT i FROM "+w.s.schema+".n").Scan(&b))
	})
	if err != nil || a != 2 || b != 2 || row.Writer != (store.ID{1}) {
		t.Errorf("one snapshot saw %d and %d, written by %v: %v", a, b, row.Writer, err)
	}
}
