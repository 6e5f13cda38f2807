package postgres

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/freshet-cache/freshet/causal/wire"
	"github.com/freshet-cache/freshet/store"
	"github.com/freshet-cache/freshet/store/journal"
	"github.com/freshet-cache/freshet/store/storetest"
)

// closing closes its store with itself.
type closing struct {
	*Journal
	s *Store
}

func (c closing) Close() error { return c.s.Close() }

func openJournal(t *testing.T, url string) closing {
	t.Helper()
	s := open(t, Options{URL: url})
	d, err := s.Journal("feeds")
	if err != nil {
		t.Fatal(err)
	}
	return closing{d, s}
}

func TestJournal(t *testing.T) {
	storetest.RunJournal(t, func(t *testing.T) storetest.Journal { return openJournal(t, fresh(t, Migration{})) })
}

// The fence holds also for connections that are killed while they persist, and while
// the server says nothing of what became of their last statement.
func TestFenceOverKilledConnections(t *testing.T) {
	url, ctx := fresh(t, Migration{}), t.Context()
	c, other := openJournal(t, url), openJournal(t, url)
	if err := c.Begin(ctx, 1, journal.Name{byte(1)}); err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	var mu sync.Mutex
	acked, lost := 0, 0
	for i := range 8 {
		wg.Go(func() {
			for n := uint64(i) + 1; ; {
				err := c.Persist(ctx, journal.Write{Dot: journal.Dot{Incarnation: 1, N: n}, Stamp: journal.Stamp{Time: n, Incarnation: 1},
					Muts: []journal.Mutation{{Key: fmt.Sprint("k", i), Value: []byte("v")}, {Key: "shared", Value: []byte(fmt.Sprint(n))}}, Body: []byte{1}})
				mu.Lock()
				switch {
				case err == nil:
					acked, n = acked+1, n+8
				case errors.Is(err, journal.ErrFenced):
					mu.Unlock()
					return
				default:
					lost++
				}
				mu.Unlock()
			}
		})
	}
	for range 20 {
		if _, err := other.s.pool.Exec(ctx, "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE query LIKE '%persist%' AND pid <> pg_backend_pid()"); err != nil {
			t.Fatal(err)
		}
	}
	if err := other.Fence(ctx, 1); err != nil {
		t.Fatal(err)
	}
	seen, _, err := other.Entries(ctx, 1, 0, 1<<20)
	if err != nil {
		t.Fatal(err)
	}
	wg.Wait()
	later, _, err := other.Entries(ctx, 1, 0, 1<<20)
	if err != nil || len(later) != len(seen) || acked > len(seen) {
		t.Errorf("%d entries when the fence stood, %d later, %d acknowledged, %v", len(seen), len(later), acked, err)
	}
	t.Logf("%d acknowledged, %d without an answer, %d in the journal", acked, lost, len(later))
}

// What a server cannot take is refused, with the reason.
func TestJournalRefusals(t *testing.T) {
	url, ctx := fresh(t, Migration{}), t.Context()
	c := openJournal(t, url)
	if err := c.Begin(ctx, 1, journal.Name{byte(1)}); err != nil {
		t.Fatal(err)
	}
	long := journal.Write{Dot: journal.Dot{Incarnation: 1, N: 1}, Muts: []journal.Mutation{{Key: string(make([]byte, MaxKey+1)), Value: []byte("v")}}}
	if err := c.Persist(ctx, long); !errors.Is(err, store.ErrTooLarge) {
		t.Errorf("a key that is too long: %v", err)
	}
	for _, name := range []string{"", "a\x00b"} {
		if _, err := c.s.Journal(name); err == nil {
			t.Errorf("a space is called %q", name)
		}
	}
	other, err := c.s.Journal("feed")
	if err != nil {
		t.Fatal(err)
	}
	if err := other.Persist(ctx, journal.Write{Dot: journal.Dot{Incarnation: 1, N: 1}}); !errors.Is(err, journal.ErrFenced) {
		t.Errorf("an incarnation of another space persists: %v", err)
	}
	_ = c.Close()
	if _, err := c.Load(ctx, "k"); !errors.Is(err, store.ErrClosed) {
		t.Errorf("a closed store answers %v", err)
	}
	if err := c.Persist(ctx, journal.Write{Dot: journal.Dot{Incarnation: 1, N: 1}}); !errors.Is(err, store.ErrClosed) {
		t.Errorf("a closed store persists: %v", err)
	}
}

// A fence waits for a write of the incarnation that has begun: it is there when the fence stands,
// or never.
func TestFenceWaitsForWrites(t *testing.T) {
	url, ctx := fresh(t, Migration{}), t.Context()
	c := openJournal(t, url)
	write := func(n uint64) error {
		return c.Persist(ctx, journal.Write{Dot: journal.Dot{Incarnation: 1, N: n}, Stamp: journal.Stamp{Time: n, Incarnation: 1}, Muts: []journal.Mutation{{Key: "k", Value: []byte("v")}}})
	}
	if err := errors.Join(c.Begin(ctx, 1, journal.Name{byte(1)}), write(1)); err != nil {
		t.Fatal(err)
	}
	tx, err := c.s.pool.Begin(ctx)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback(context.Background()) }() // or closing waits for it
	if _, err := tx.Exec(ctx, "SELECT FROM "+c.s.schema+".causal_rows FOR UPDATE"); err != nil {
		t.Fatal(err)
	}
	written, fenced := make(chan error, 1), make(chan error, 1)
	waits := func(n int) {
		for seen := 0; seen < n; {
			if err := c.s.pool.QueryRow(ctx, "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND query LIKE '%'||$1||'%'", c.s.schema).Scan(&seen); err != nil {
				t.Fatal(err)
			}
			select {
			case err := <-fenced:
				t.Fatalf("the fence stands while a write is under way (%v)", err)
			default:
			}
		}
	}
	go func() { written <- write(2) }()
	waits(1)
	go func() { fenced <- c.Fence(ctx, 1) }()
	waits(2)
	if err := tx.Rollback(ctx); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(<-fenced, <-written); err != nil {
		t.Fatal(err)
	}
	if entries, _, err := c.Entries(ctx, 1, 0, 9); err != nil || len(entries) != 2 {
		t.Errorf("%v, %v", entries, err)
	}
}

// externals write past a Journal.
type externals struct {
	*Journal
	t    *testing.T
	conn *pgx.Conn
}

const upsert = `INSERT INTO SCHEMA.causal_rows (space, key, value) VALUES ('feeds', $1, $2) ON CONFLICT (space, key) DO UPDATE SET value = EXCLUDED.value`

func watched(t *testing.T) *externals {
	return &externals{openJournal(t, fresh(t, Migration{})).Journal, t, admin(t, start(t))}
}

func (o *externals) try(sql string, args ...any) error {
	_, err := o.conn.Exec(o.t.Context(), strings.ReplaceAll(sql, "SCHEMA", o.s.schema), args...)
	return err
}

func (o *externals) exec(sql string, args ...any) {
	o.t.Helper()
	if err := o.try(sql, args...); err != nil {
		o.t.Fatal(err)
	}
}

func (o *externals) row(key string) journal.Row {
	o.t.Helper()
	rows, err := o.Load(o.t.Context(), key)
	if err != nil {
		o.t.Fatal(err)
	}
	return rows[0]
}

// A schema of format 6 is upgraded with its incarnations, which have no names: nobody begins them again, and they go on.
func TestNames(t *testing.T) {
	url, exec := older(t, 6)
	ctx := t.Context()
	write := func(d closing, o uint32, n uint64) error {
		return d.Persist(ctx, journal.Write{Dot: journal.Dot{Incarnation: o, N: n}, Stamp: journal.Stamp{Time: n, Incarnation: o}, Muts: []journal.Mutation{{Key: fmt.Sprint("k", o), Value: []byte("v")}}})
	}
	exec(`INSERT INTO SCHEMA.lives (space, origin, fenced, settled) VALUES ('feeds', 3, false, 0)`)
	exec(`SELECT SCHEMA.persist('feeds', 1, 3, n, n, 3, '\x01', ARRAY['k3'::bytea], ARRAY['v'::bytea]) FROM generate_series(1, 2) n`)
	exec(`SELECT SCHEMA.let_go('feeds', 1, 3, 1, false), SCHEMA.fence('feeds', 1, 2)`)
	if err := Migrate(ctx, url, Migration{}); err != nil {
		t.Fatal(err)
	}
	d := openJournal(t, url)
	if k, err := d.Known(ctx); err != nil || k.Newest != 3 || !slices.Equal(k.Open, []uint32{3}) {
		t.Errorf("%+v, %v", k, err)
	}
	for o, name := range map[uint32]journal.Name{3: {3}, 2: {}} {
		if err := d.Begin(ctx, o, name); !errors.Is(err, journal.ErrBegun) {
			t.Errorf("incarnation %d begins again: %v", o, err)
		}
	}
	rows, e := d.Load(ctx, "k3")
	_, stable, f := d.Entries(ctx, 3, 0, 10)
	if err := errors.Join(e, f, write(d, 3, 3), d.Begin(ctx, 4, journal.Name{4}), write(d, 4, 1), d.Fence(ctx, 3)); err != nil || stable != 1 || string(rows[0].Value) != "v" {
		t.Errorf("%+v, stable up to %d, %v", rows, stable, err)
	}
}

// What is written externally to the rows of a watched space has a dot and an entry in
// the journal, in the order of the commits and without a gap, whatever is rolled back.
func TestExternalWrites(t *testing.T) {
	o, ctx := watched(t), t.Context()
	d, exec, row := o.Journal, o.exec, o.row
	if _, _, err := d.Entries(ctx, 4294967295, 0, 10); !errors.Is(err, journal.ErrFenced) {
		t.Errorf("a space that is not watched has a journal of others: %v", err)
	}
	exec(`INSERT INTO SCHEMA.causal_rows (space, key, value, time) VALUES ('feeds', 'before', 'v', 7)`)
	if r := row("before"); r.Dot != (journal.Dot{}) || r.Stamp.Time != 7 {
		t.Errorf("before: %+v", r)
	}
	exec(`SELECT SCHEMA.watch_space('feeds')`)
	if err := errors.Join(d.Begin(ctx, 1, journal.Name{byte(1)}), d.Persist(ctx, journal.Write{Dot: journal.Dot{Incarnation: 1, N: 1}, Stamp: journal.Stamp{Time: 1 << 60, Incarnation: 1}, Muts: []journal.Mutation{{Key: "ahead", Value: []byte("c")}}})); err != nil {
		t.Fatal(err)
	}
	exec(upsert, "k", "1")
	exec(upsert, "k", "2")
	exec(`INSERT INTO SCHEMA.causal_rows (space, key, value) VALUES ('feeds', 'k', 'no') ON CONFLICT DO NOTHING`)
	exec("BEGIN")
	exec(upsert, "k", "undone")
	exec("ROLLBACK")
	exec(`UPDATE SCHEMA.causal_rows SET value = 'more' WHERE space = 'feeds' AND key IN ('ahead', 'before')`)
	exec(`DELETE FROM SCHEMA.causal_rows WHERE key = 'k'`)
	last := journal.Stamp{}
	entries, truncated, err := d.Entries(ctx, 4294967295, 0, 10)
	if err != nil || truncated != 0 || len(entries) != 5 {
		t.Fatalf("%d entries, %d settled, %v", len(entries), truncated, err)
	}
	for i, e := range entries {
		w, err := wire.DecodeWrite(e.Body)
		stamp := journal.Stamp{}
		if err == nil {
			stamp = journal.Stamp{Time: w.Stamp.Time, Incarnation: uint32(w.Stamp.Incarnation)}
		}
		if err != nil || e.N != uint64(i+1) || w.Dot.N != e.N || !last.Less(stamp) {
			t.Errorf("entry %d is %v: %v", e.N, w, err)
		}
		last = stamp
	}
	r := row("ahead")
	if string(r.Value) != "more" || r.Dot.Incarnation != 4294967295 || r.Stamp.Time <= 1<<60 {
		t.Errorf("a row of a cache that others overwrite: %+v", r)
	}
}

func TestExternalDeletes(t *testing.T) {
	o, ctx := watched(t), t.Context()
	d, exec, row := o.Journal, o.exec, o.row
	exec(`SELECT SCHEMA.watch_space('feeds')`)
	exec(upsert, "k", "1")
	exec(`DELETE FROM SCHEMA.causal_rows WHERE key = 'k'`)
	if err := o.try(`TRUNCATE SCHEMA.causal_rows`); err == nil || !strings.Contains(err.Error(), "FR006") {
		t.Errorf("TRUNCATE: %v", err)
	}
	gone := row("k")
	if gone.Exists || gone.Dot != (journal.Dot{Incarnation: 4294967295, N: 2}) {
		t.Errorf("a row that others delete: %+v", gone)
	}
	if err := d.CollectTombstones(ctx, 1<<62); err != nil || row("k").Dot != gone.Dot { // nobody may have heard of it
		t.Errorf("collected: %+v %v", row("k"), err)
	}
	if err := errors.Join(d.TruncateFenced(ctx, 4294967295, 2), d.CollectTombstones(ctx, 1<<62)); err != nil || row("k").Dot != (journal.Dot{}) {
		t.Errorf("not collected: %+v %v", row("k"), err)
	}
	exec(`SELECT SCHEMA.unwatch_space('feeds'), SCHEMA.watch_space('feeds')`)
	exec(upsert, "k", "3")
	if r := row("k"); r.Dot.N != 3 || r.Stamp.Time <= 1<<62 {
		t.Errorf("watched again: %+v", r)
	}
	if err := func() error {
		other, err := d.s.Journal("carts")
		return errors.Join(err, other.KeepSiblings(ctx, true))
	}(); err != nil {
		t.Fatal(err)
	}
	if err := o.try(`SELECT SCHEMA.watch_space('carts')`); err == nil || !strings.Contains(err.Error(), "merges") {
		t.Errorf("a space that merges is watched: %v", err)
	}
}
