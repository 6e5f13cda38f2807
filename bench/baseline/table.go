package baseline

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// Table is Rows over a table in PostgreSQL without guards or anything else of freshet.
type Table struct {
	pool *pgxpool.Pool
	name string
	sql  struct{ one, many, dated, put, before string }
	// Queries counts the statements.
	Queries atomic.Int64
}

// NewTable creates the table name, which must not exist, and fills it with rows of version 1.
func NewTable(ctx context.Context, pool *pgxpool.Pool, name string, keys []string, value func(i int) string) (*Table, error) {
	t := &Table{pool: pool, name: pgx.Identifier{name}.Sanitize()}
	t.sql.one = "SELECT version, CASE WHEN version <> $2 THEN value END FROM " + t.name + " WHERE key = $1"
	t.sql.many = "SELECT t.version, CASE WHEN t.version <> k.known THEN t.value END FROM unnest($1::text[], $2::bigint[]) WITH ORDINALITY k(key, known, at) JOIN " + t.name + " t USING (key) ORDER BY k.at"
	// A write locks its row before it reads the clock, and holds the lock until it is committed. A
	// transaction that locks the row after a time t has therefore waited for every write whose time
	// is below t, and no later write gets such a time.
	t.sql.dated = "SELECT t.key, t.version, t.value, (extract(epoch FROM statement_timestamp()) * 1000000)::bigint FROM " + t.name + " t WHERE t.key = ANY ($1) ORDER BY t.key FOR SHARE"
	t.sql.put = "UPDATE " + t.name + " SET value = $2, version = version + 1 WHERE key = $1 RETURNING version"
	t.sql.before = "WITH row AS MATERIALIZED (SELECT key FROM " + t.name + " WHERE key = $1 FOR UPDATE) UPDATE " + t.name +
		" t SET value = $2, version = version + 1 FROM row WHERE t.key = row.key AND (extract(epoch FROM clock_timestamp()) * 1000000)::bigint < $3 RETURNING version"
	if _, err := pool.Exec(ctx, "CREATE TABLE "+t.name+" (key text PRIMARY KEY, value bytea NOT NULL, version bigint NOT NULL DEFAULT 1) WITH (fillfactor = 80)"); err != nil {
		return nil, fmt.Errorf("baseline: making a table: %w", err)
	}
	_, err := pool.CopyFrom(ctx, pgx.Identifier{name}, []string{"key", "value"},
		pgx.CopyFromSlice(len(keys), func(i int) ([]any, error) { return []any{keys[i], []byte(value(i))}, nil }))
	if err == nil {
		_, err = pool.Exec(ctx, "ANALYZE "+t.name)
	}
	if err != nil {
		return nil, fmt.Errorf("baseline: filling a table: %w", err)
	}
	return t, nil
}

// Name returns the name of the table for statements.
func (t *Table) Name() string { return t.name }

// Load implements Rows.
func (t *Table) Load(ctx context.Context, keys []string, known []uint64) ([]Row, error) {
	t.Queries.Add(1)
	if known == nil {
		known = make([]uint64, len(keys))
	}
	if len(keys) == 1 {
		var r Row
		var value []byte
		err := t.pool.QueryRow(ctx, t.sql.one, keys[0], int64(known[0])).Scan(&r.Version, &value)
		r.Value = string(value)
		return []Row{r}, found(err)
	}
	rows, err := t.pool.Query(ctx, t.sql.many, keys, known)
	if err != nil {
		return nil, found(err)
	}
	out, err := pgx.CollectRows(rows, func(c pgx.CollectableRow) (r Row, err error) {
		var value []byte
		err = c.Scan(&r.Version, &value)
		r.Value = string(value)
		return r, err
	})
	if err == nil && len(out) < len(keys) {
		err = errAbsent
	}
	return out, found(err)
}

func found(err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, pgx.ErrNoRows):
		return errAbsent
	}
	return fmt.Errorf("baseline: PostgreSQL: %w", err)
}

// LoadAt implements Dated. It waits for writes of keys that are under way.
func (t *Table) LoadAt(ctx context.Context, keys []string) ([]Row, int64, error) {
	t.Queries.Add(1)
	rows, err := t.pool.Query(ctx, t.sql.dated, keys)
	if err != nil {
		return nil, 0, found(err)
	}
	byKey, at := map[string]Row{}, int64(0)
	_, err = pgx.CollectRows(rows, func(c pgx.CollectableRow) (struct{}, error) {
		var key string
		var r Row
		var value []byte
		err := c.Scan(&key, &r.Version, &value, &at)
		r.Value = string(value)
		byKey[key] = r
		return struct{}{}, err
	})
	out := make([]Row, len(keys))
	for i, k := range keys {
		r, ok := byKey[k]
		if err == nil && !ok {
			err = errAbsent
		}
		out[i] = r
	}
	return out, at * 1000, found(err)
}

// Set implements Rows.
func (t *Table) Set(ctx context.Context, key, value string) (version uint64, err error) {
	t.Queries.Add(1)
	err = t.pool.QueryRow(ctx, t.sql.put, key, []byte(value)).Scan(&version)
	return version, found(err)
}

// SetBefore implements Dated.
func (t *Table) SetBefore(ctx context.Context, key, value string, bound int64) (version uint64, err error) {
	t.Queries.Add(1)
	err = t.pool.QueryRow(ctx, t.sql.before, key, []byte(value), bound/1000).Scan(&version)
	if errors.Is(err, pgx.ErrNoRows) {
		return 0, ErrLate
	}
	return version, found(err)
}
