package postgres

import (
	"cmp"
	"context"
	"encoding/binary"
	"fmt"
	"hash/fnv"
	"slices"
	"strings"
	"sync/atomic"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/freshet-cache/freshet/store"
	"github.com/freshet-cache/freshet/store/journal"
)

// Journal has the causal rows of one space in a schema, with the promises of package journal. It is
// safe for concurrent use, also by many processes. Closing the Store closes it.
//
// One statement writes a row and its entry in the journal. The fence uses an advisory lock for each
// incarnation. Persist holds it shared, from before it checks that the incarnation may write until
// its commit. Fence and Truncate hold it exclusively.
type Journal struct {
	s        *Store
	space    string
	sql      journalStatements
	siblings atomic.Bool // the space keeps siblings
}

type journalStatements struct {
	load, persist, fetch, journal, begin, known, largest, fence, truncate, raise, collect, keepSiblings, kept, siblings, join, sweep, claim, merge, fenced string
}

// Journal returns the space with this name. Its first row creates it.
func (s *Store) Journal(space string) (*Journal, error) {
	if space == "" || len(space) > 255 || strings.ContainsRune(space, 0) {
		return nil, fmt.Errorf("postgres: a space has a name of 1 to 255 bytes without zeros, not %q", space)
	}
	fill := func(text string) string { return strings.ReplaceAll(text, "{{schema}}", s.schema) }
	return &Journal{s: s, space: space, sql: journalStatements{
		load: fill(`SELECT r.key IS NOT NULL, r.value, coalesce(r.time, (SELECT collected FROM {{schema}}.causal_spaces WHERE space = $1), 0), coalesce(r.stamper, 0), coalesce(r.incarnation, 0), coalesce(r.n, 0)
			FROM unnest($2::bytea[]) WITH ORDINALITY k(key, i) LEFT JOIN {{schema}}.causal_rows r ON r.space = $1 AND r.key = k.key ORDER BY k.i`),
		persist: fill(`SELECT {{schema}}.causal_persist($1, $2, $3, $4, $5, $6, $7, $8, $9)`),
		fetch: fill(`SELECT j.body FROM unnest($2::bigint[], $3::bigint[]) WITH ORDINALITY d(incarnation, n, i)
			JOIN {{schema}}.causal_journal j ON j.space = $1 AND j.incarnation = d.incarnation AND j.n = d.n ORDER BY d.i`),
		journal: fill(`SELECT l.stable, j.n, j.body FROM {{schema}}.incarnations l LEFT JOIN LATERAL
			(SELECT n, body FROM {{schema}}.causal_journal WHERE space = $1 AND incarnation = $2 AND n > $3 ORDER BY n LIMIT $4) j ON true
			WHERE l.space = $1 AND l.incarnation = $2 ORDER BY j.n`),
		begin: fill(`INSERT INTO {{schema}}.incarnations AS l (space, incarnation, fenced, stable, name) VALUES ($1, $2, false, 0, $3)
			ON CONFLICT (space, incarnation) DO UPDATE SET name = EXCLUDED.name WHERE l.name = EXCLUDED.name AND NOT l.fenced`),
		known: fill(`SELECT coalesce(max(l.incarnation), 0), coalesce((SELECT term FROM {{schema}}.causal_progress WHERE space = $1), 0),
			coalesce(array_agg(l.incarnation ORDER BY l.incarnation) FILTER (WHERE NOT l.fenced OR EXISTS (SELECT FROM {{schema}}.causal_journal j WHERE j.space = $1 AND j.incarnation = l.incarnation)), '{}')
			FROM {{schema}}.incarnations l WHERE l.space = $1 AND l.incarnation <> 4294967295`),
		largest: fill(`SELECT greatest(0, (SELECT max(time) FROM {{schema}}.incarnations WHERE space = $1), (SELECT max(time) FROM {{schema}}.causal_journal WHERE space = $1),
			(SELECT time FROM {{schema}}.causal_progress WHERE space = $1))`),
		fence:    fill(`SELECT {{schema}}.causal_fence($1, $2, $3)`),
		truncate: fill(`SELECT {{schema}}.causal_truncate($1, $2, $3, $4, $5)`),
		raise:    fill(`INSERT INTO {{schema}}.causal_spaces (space, collected) VALUES ($1, $2) ON CONFLICT (space) DO UPDATE SET collected = greatest(causal_spaces.collected, EXCLUDED.collected)`),
		collect: fill(`WITH old AS (DELETE FROM {{schema}}.causal_rows WHERE space = $1 AND key IN
			(SELECT key FROM {{schema}}.causal_rows WHERE space = $1 AND value IS NULL AND time < $2
				AND (incarnation <> 4294967295 OR n <= (SELECT stable FROM {{schema}}.incarnations WHERE space = $1 AND incarnation = 4294967295)) LIMIT $3 FOR UPDATE SKIP LOCKED)
			RETURNING key) SELECT count(*) FROM old`),
		keepSiblings: fill(`INSERT INTO {{schema}}.causal_spaces (space, collected, merges) SELECT $1, 0, $2 WHERE NOT EXISTS (SELECT FROM {{schema}}.incarnations WHERE space = $1) ON CONFLICT DO NOTHING`),
		kept:         fill(`SELECT coalesce((SELECT merges FROM {{schema}}.causal_spaces WHERE space = $1), false)`),
		siblings: fill(`SELECT k.i, coalesce((SELECT collected FROM {{schema}}.causal_spaces WHERE space = $1), 0), r.key IS NOT NULL, r.value, coalesce(r.time, 0), coalesce(r.stamper, 0), coalesce(r.incarnation, 0), coalesce(r.n, 0)
			FROM unnest($2::bytea[]) WITH ORDINALITY k(key, i) LEFT JOIN {{schema}}.causal_siblings r ON r.space = $1 AND r.key = k.key`),
		join: fill(`SELECT {{schema}}.causal_persist_siblings($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12)`),
		sweep: fill(`WITH old AS (DELETE FROM {{schema}}.causal_siblings WHERE space = $1 AND (key, incarnation, n) IN
			(SELECT key, incarnation, n FROM {{schema}}.causal_siblings WHERE space = $1 AND value IS NULL AND time < $2 LIMIT $3 FOR UPDATE SKIP LOCKED)
			RETURNING key) SELECT count(*) FROM old`),
		claim:  fill(`SELECT {{schema}}.causal_claim($1, $2)`),
		merge:  fill(`SELECT {{schema}}.causal_apply($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11)`),
		fenced: fill(`SELECT incarnation FROM {{schema}}.incarnations WHERE space = $1 AND incarnation = ANY($2) AND fenced`),
	}}, nil
}

// lock returns the number of an incarnation's advisory lock. If two incarnations have the same
// number, they only wait for each other.
func (d *Journal) lock(incarnation uint32) int64 {
	h := fnv.New64a()
	_, _ = h.Write(binary.BigEndian.AppendUint32([]byte("freshet "+d.s.schema+" "+d.space+" "), incarnation))
	return int64(h.Sum64())
}

// Load returns the rows of keys, all as of one instant.
func (d *Journal) Load(ctx context.Context, keys ...string) ([]journal.Row, error) {
	if d.s.closed.Load() {
		return nil, store.ErrClosed
	}
	if d.siblings.Load() {
		return d.siblingsOf(ctx, keys)
	}
	names := make([][]byte, len(keys))
	for i, k := range keys {
		names[i] = []byte(k)
	}
	found, err := d.s.pool.Query(ctx, d.sql.load, d.space, names)
	if err != nil {
		return nil, d.s.failed("reading causal rows", err)
	}
	rows, err := pgx.CollectRows(found, func(r pgx.CollectableRow) (row journal.Row, err error) {
		var there bool
		var time, stamper, incarnation, n int64
		err = r.Scan(&there, &row.Value, &time, &stamper, &incarnation, &n)
		row.Exists = there && row.Value != nil
		row.Stamp = journal.Stamp{Time: uint64(time), Incarnation: uint32(stamper)}
		row.Dot = journal.Dot{Incarnation: uint32(incarnation), N: uint64(n)}
		return row, err
	})
	if err != nil {
		return nil, d.s.failed("reading causal rows", err)
	}
	return rows, nil
}

// Begin makes an incarnation, which may then persist. It returns journal.ErrBegun if the number
// belongs to another incarnation, or was fenced.
func (d *Journal) Begin(ctx context.Context, incarnation uint32, name journal.Name) error {
	done, err := d.s.pool.Exec(ctx, d.sql.begin, d.space, int64(incarnation), name[:])
	switch {
	case err != nil:
		return d.s.failed("beginning an incarnation", err)
	case done.RowsAffected() == 0:
		return journal.ErrBegun
	}
	return nil
}

// Known returns what the store knows of the incarnations of the space.
func (d *Journal) Known(ctx context.Context) (k journal.Known, err error) {
	var newest, term int64
	var open []int64
	if err := d.s.pool.QueryRow(ctx, d.sql.known, d.space).Scan(&newest, &term, &open); err != nil {
		return k, d.s.failed("asking which incarnations began", err)
	}
	k.Newest, k.Term = uint32(newest), uint64(term)
	for _, o := range open {
		k.Open = append(k.Open, uint32(o))
	}
	return k, nil
}

// Persist commits a write. It returns journal.ErrFenced if the incarnation is fenced or never
// began.
func (d *Journal) Persist(ctx context.Context, w journal.Write) error {
	muts := slices.Clone(w.Muts)
	slices.SortFunc(muts, func(a, b journal.Mutation) int { return cmp.Compare(a.Key, b.Key) })
	keys, values := make([][]byte, len(muts)), make([][]byte, len(muts))
	for i := range muts {
		m := store.Mutation{Key: muts[i].Key, Value: muts[i].Value, Delete: muts[i].Delete}
		if err := d.s.admissible([]store.Mutation{m}); err != nil {
			return err
		}
		keys[i], values[i] = []byte(m.Key), value(&m)
	}
	body := w.Body
	if body == nil {
		body = []byte{}
	}
	conn, err := d.s.pool.Acquire(ctx)
	if err != nil { // nothing was sent
		return d.s.unreached(err)
	}
	defer conn.Release()
	var status int
	sql, args := d.sql.persist, []any{d.space, d.lock(w.Dot.Incarnation), int64(w.Dot.Incarnation), int64(w.Dot.N),
		int64(w.Stamp.Time), int64(w.Stamp.Incarnation), body, keys, values}
	if d.siblings.Load() {
		sql, args = d.sql.join, append(args, supersedes(muts)...)
	}
	err = conn.QueryRow(ctx, sql, args...).Scan(&status)
	switch {
	case err != nil:
		return d.s.failed("persisting a causal write", err)
	case status != 0:
		return journal.ErrFenced
	}
	return nil
}

// Fetch returns the journal's entries of the dots, in the order of dots. It leaves out those that
// the journal does not have.
func (d *Journal) Fetch(ctx context.Context, dots []journal.Dot) ([][]byte, error) {
	incarnations, numbers := make([]int64, len(dots)), make([]int64, len(dots))
	for i, dot := range dots {
		incarnations[i], numbers[i] = int64(dot.Incarnation), int64(dot.N)
	}
	found, err := d.s.pool.Query(ctx, d.sql.fetch, d.space, incarnations, numbers)
	if err != nil {
		return nil, d.s.failed("reading the journal", err)
	}
	bodies, err := pgx.CollectRows(found, pgx.RowTo[[]byte])
	if err != nil {
		return nil, d.s.failed("reading the journal", err)
	}
	return bodies, nil
}

// Entries returns up to limit entries of an incarnation with numbers above after, in order.
// truncated is the number up to which the journal of the incarnation was truncated. Entries returns
// journal.ErrFenced if the incarnation never began.
func (d *Journal) Entries(ctx context.Context, incarnation uint32, after uint64, limit int) (entries []journal.Entry, truncated uint64, err error) {
	found, err := d.s.pool.Query(ctx, d.sql.journal, d.space, int64(incarnation), int64(after), limit)
	if err != nil {
		return nil, 0, d.s.failed("reading the journal", err)
	}
	defer found.Close()
	begun := false
	for found.Next() {
		var upto int64
		var n pgtype.Int8
		var body []byte
		if err := found.Scan(&upto, &n, &body); err != nil {
			return nil, 0, d.s.failed("reading the journal", err)
		}
		begun, truncated = true, uint64(upto)
		if n.Valid {
			entries = append(entries, journal.Entry{N: uint64(n.Int64), Body: body})
		}
	}
	switch err := found.Err(); {
	case err != nil:
		return nil, 0, d.s.failed("reading the journal", err)
	case !begun:
		return nil, 0, journal.ErrFenced
	}
	return entries, truncated, nil
}

// Truncate lets the journal drop an incarnation's writes up to a number. It returns
// journal.ErrFenced if the incarnation is fenced.
func (d *Journal) Truncate(ctx context.Context, incarnation uint32, upto uint64) error {
	return d.truncate(ctx, incarnation, upto, false)
}

// TruncateFenced is Truncate for an incarnation that is fenced.
func (d *Journal) TruncateFenced(ctx context.Context, incarnation uint32, upto uint64) error {
	return d.truncate(ctx, incarnation, upto, true)
}

func (d *Journal) truncate(ctx context.Context, incarnation uint32, upto uint64, fenced bool) error {
	var begun bool
	err := d.s.guards.QueryRow(ctx, d.sql.truncate, d.space, d.lock(incarnation), int64(incarnation), int64(upto), fenced).Scan(&begun)
	switch {
	case err != nil:
		return d.s.failed("truncating the journal", err)
	case !begun:
		return journal.ErrFenced
	}
	return nil
}

// CollectTombstones removes the tombstones whose stamps have a smaller time. It leaves a row that
// another transaction is writing to the next call. It keeps the tombstone of an external write
// until the journal of external writes is truncated up to it.
func (d *Journal) CollectTombstones(ctx context.Context, before uint64) error {
	if _, err := d.s.pool.Exec(ctx, d.sql.raise, d.space, int64(before)); err != nil {
		return d.s.failed("forgetting deleted keys", err)
	}
	sql := d.sql.collect
	if d.siblings.Load() {
		sql = d.sql.sweep
	}
	for collected := sweepRows; collected == sweepRows; {
		err := d.s.pool.QueryRow(ctx, sql, d.space, int64(before), sweepRows).Scan(&collected)
		if err != nil {
			return d.s.failed("forgetting deleted keys", err)
		}
	}
	return nil
}

// Fence ends an incarnation, even one that has not begun: none of its writes takes effect any more.
// It waits for the incarnation's writes that are under way, for as long as they may take.
func (d *Journal) Fence(ctx context.Context, incarnation uint32) error {
	if _, err := d.s.guards.Exec(ctx, d.sql.fence, d.space, d.lock(incarnation), int64(incarnation)); err != nil {
		return d.s.failed("fencing an incarnation", err)
	}
	return nil
}

// Largest returns the largest time of a stamp that was ever persisted. It reads all entries of the
// journal.
func (d *Journal) Largest(ctx context.Context) (uint64, error) {
	var time int64
	if err := d.s.pool.QueryRow(ctx, d.sql.largest, d.space).Scan(&time); err != nil {
		return 0, d.s.failed("looking for the largest time", err)
	}
	return uint64(time), nil
}
