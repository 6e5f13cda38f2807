package postgres

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/freshet-cache/freshet/store/journal"
)

// older makes a schema of a former format, and returns what runs statements in it, with
// SCHEMA for its name.
func older(t *testing.T, format int) (url string, exec func(sql string, args ...any)) {
	t.Helper()
	url = fresh(t, Migration{})
	schema, conn, ctx := url[strings.LastIndex(url, "=")+1:], admin(t, start(t)), t.Context()
	exec = func(sql string, args ...any) {
		t.Helper()
		if _, err := conn.Exec(ctx, strings.ReplaceAll(sql, "SCHEMA", schema), args...); err != nil {
			t.Fatal(err)
		}
	}
	exec("drop schema SCHEMA cascade")
	err := pgx.BeginFunc(ctx, conn, func(tx pgx.Tx) error { return Migration{}.create(ctx, tx, schema) })
	if err != nil {
		t.Fatal(err)
	}
	for f := 2; f <= format; f++ {
		sql, err := script(f, "{{schema}}", "SCHEMA")
		if err != nil {
			t.Fatal(err)
		}
		exec(sql)
	}
	return url, exec
}

// A schema of format 7 is upgraded with the rows, journals, siblings, incarnations, progress
// and watched spaces that are in it.
func TestUpgradeFromFormat7(t *testing.T) {
	url, exec := older(t, 7)
	ctx := t.Context()
	exec(`INSERT INTO SCHEMA.lives (space, origin, fenced, settled, name) VALUES ('feeds', 3, false, 0, $1), ('carts', 3, false, 0, $1)`, make([]byte, 16))
	exec(`SELECT SCHEMA.persist('feeds', 1, 3, n, n, 3, '\x01', ARRAY['k'::bytea], ARRAY[convert_to('v' || n, 'UTF8')]) FROM generate_series(1, 2) n`)
	exec(`SELECT SCHEMA.let_go('feeds', 1, 3, 1, false)`)
	exec(`INSERT INTO SCHEMA.spaces (space, buried, beside) VALUES ('carts', 5, true)`)
	exec(`SELECT SCHEMA.persist_beside('carts', 2, 3, 1, 9, 3, '\x01', ARRAY['k'::bytea], ARRAY['a'::bytea], '{}', '{}', '{}')`)
	exec(`INSERT INTO SCHEMA.beside (space, key, origin, n, value, time, stamper) VALUES ('carts', 'k', 2, 7, 'b', 8, 2)`)
	exec(`SELECT SCHEMA.watch('feeds')`)
	exec(`INSERT INTO SCHEMA.dotted (space, key, value) VALUES ('feeds', 'before', 'v')`)
	exec(`SELECT SCHEMA.claim('logs', 4), SCHEMA.merge('logs', 4, 1, 20, 'mark', ARRAY['k'::bytea], ARRAY['v'::bytea], '{20}', '{1}', '{1}', '{1}')`)
	if _, err := Open(ctx, Options{URL: url}); !errors.Is(err, ErrNotMigrated) {
		t.Errorf("format 7: %v", err)
	}
	for range 2 {
		if err := Migrate(ctx, url, Migration{}); err != nil {
			t.Fatal(err)
		}
	}
	s := open(t, Options{URL: url})
	space := func(name string) *Journal {
		d, err := s.Journal(name)
		if err != nil {
			t.Fatal(err)
		}
		return d
	}
	feeds, carts, logs := space("feeds"), space("carts"), space("logs")
	rows, err := feeds.Load(ctx, "k", "before")
	if err != nil || string(rows[0].Value) != "v2" || string(rows[1].Value) != "v" || rows[1].Dot.Incarnation != 4294967295 {
		t.Errorf("rows: %+v, %v", rows, err)
	}
	entries, stable, err := feeds.Entries(ctx, 3, 0, 10)
	if err != nil || len(entries) != 1 || stable != 1 {
		t.Errorf("%d entries after %d, %v", len(entries), stable, err)
	}
	if k, err := feeds.Known(ctx); err != nil || k.Newest != 3 || !slices.Equal(k.Open, []uint32{3}) {
		t.Errorf("incarnations: %+v, %v", k, err)
	}
	if err := errors.Join(carts.KeepSiblings(ctx, true), feeds.KeepSiblings(ctx, false)); err != nil {
		t.Error(err)
	}
	if rows, err = carts.Load(ctx, "k", "none"); err != nil || len(rows[0].Siblings) != 2 || rows[1].Stamp.Time != 5 {
		t.Errorf("siblings: %+v, %v", rows, err)
	}
	if mark, err := logs.Claim(ctx, 5); err != nil || string(mark) != "mark" {
		t.Errorf("mark %q, %v", mark, err)
	}
	write := func(d *Journal, n uint64) error {
		return d.Persist(ctx, journal.Write{Dot: journal.Dot{Incarnation: 3, N: n}, Stamp: journal.Stamp{Time: 100, Incarnation: 3}, Muts: []journal.Mutation{{Key: "k", Value: []byte("new")}}})
	}
	exec(`INSERT INTO SCHEMA.causal_rows (space, key, value) VALUES ('feeds', 'after', 'v')`)
	exec(`DELETE FROM SCHEMA.causal_rows WHERE key = 'before'`)
	err = errors.Join(write(feeds, 3), write(carts, 2), feeds.Truncate(ctx, 3, 2), feeds.CollectTombstones(ctx, 50), feeds.Fence(ctx, 3))
	if external, _, e := feeds.Entries(ctx, 4294967295, 0, 10); err != nil || e != nil && !errors.Is(e, journal.ErrFenced) || len(external) != 3 {
		t.Errorf("%d external writes, %v, %v", len(external), e, err)
	}
	if err := write(feeds, 4); !errors.Is(err, journal.ErrFenced) {
		t.Errorf("a fenced incarnation writes: %v", err)
	}
}
