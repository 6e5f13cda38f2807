package postgres

import (
	"context"
	"crypto/rand"
	"database/sql"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/freshet-cache/freshet/store"
)

// ErrEnded means that an update's function ended its transaction itself. What it did before that is
// committed, and the guards were not checked.
var ErrEnded = errors.New("postgres: the update's function ended its transaction itself, and what it did before is not guarded: leave COMMIT and ROLLBACK to Update")

// Tables gives linear.NewView the user's own tables in the database of a Store, in transactions of
// pgx. It is safe for concurrent use.
type Tables struct {
	marks
	pool *pgxpool.Pool
}

// SQLTables is Tables in transactions of database/sql, with any driver for PostgreSQL.
type SQLTables struct {
	marks
	db *sql.DB
}

// marks is what both kinds of tables need of the store: guards, and the versions of keys.
type marks struct{ s *Store }

// SetGuard installs token over [low, high). See Store.SetGuard.
func (m marks) SetGuard(ctx context.Context, low, high string, token store.Token) error {
	return m.s.SetGuard(ctx, low, high, token)
}

// Splits returns good points to cut ranges at. See Store.Splits.
func (m marks) Splits(ctx context.Context, low, high string) ([]string, error) {
	return m.s.Splits(ctx, low, high)
}

// Tables gives access to the user's tables through pool, or through the store's own connections if
// pool is nil. The pool must connect to the store's database, with a role that may use both the
// tables and the store's schema. A schema holds the guards of one View: give each View its own
// (schema=NAME in the URL).
func (s *Store) Tables(ctx context.Context, pool *pgxpool.Pool) (*Tables, error) {
	if pool == nil {
		pool = s.pool
	}
	ask := func(q string, args ...any) row { return pool.QueryRow(ctx, q, args...) }
	if pool != s.pool {
		if err := s.same(ctx, ask); err != nil {
			return nil, err
		}
	}
	s.tellGuards(ask)
	return &Tables{marks{s}, pool}, nil
}

// SQLTables gives access to the user's tables through db. See Store.Tables.
func (s *Store) SQLTables(ctx context.Context, db *sql.DB) (*SQLTables, error) {
	ask := func(q string, args ...any) row { return db.QueryRowContext(ctx, q, args...) }
	if err := s.same(ctx, ask); err != nil {
		return nil, err
	}
	s.tellGuards(ask)
	return &SQLTables{marks{s}, db}, nil
}

// row is what a query for one row returns, with pgx and database/sql.
type row interface{ Scan(dest ...any) error }

type query func(q string, args ...any) row

// same refuses connections to another database than the store's.
func (s *Store) same(ctx context.Context, theirs query) error {
	const who = "SELECT current_database() || ' since ' || pg_postmaster_start_time()::text"
	var a, b string
	err := s.pool.QueryRow(ctx, who).Scan(&a)
	if err == nil {
		err = theirs(who).Scan(&b)
	}
	switch {
	case err != nil:
		return s.failed("comparing the databases", err)
	case a != b:
		return fmt.Errorf("postgres: the tables are in another database (%s) than the guards (%s): one transaction must reach both, so open the store with the same server and database", b, a)
	}
	return nil
}

// Snapshot calls read, if it is not nil, in a read-only snapshot. It returns what the store knows
// of key as of the same snapshot.
func (t *Tables) Snapshot(ctx context.Context, key string, read func(ctx context.Context, tx pgx.Tx) error) (store.Row, error) {
	tx, err := t.pool.BeginTx(ctx, pgx.TxOptions{IsoLevel: pgx.RepeatableRead, AccessMode: pgx.ReadOnly})
	if err != nil {
		return store.Row{}, t.s.unreached(err)
	}
	defer func() { _ = tx.Rollback(context.WithoutCancel(ctx)) }()
	ask := func(q string, args ...any) row { return tx.QueryRow(ctx, q, args...) }
	r, err := t.s.look(key, ask)
	if err == nil && read != nil {
		err = t.s.watched(ask, func() error { return read(ctx, pinned{tx}) })
	}
	return r, err
}

// Snapshot is Tables.Snapshot for database/sql.
func (t *SQLTables) Snapshot(ctx context.Context, key string, read func(ctx context.Context, tx *sql.Tx) error) (store.Row, error) {
	tx, err := t.db.BeginTx(ctx, &sql.TxOptions{Isolation: sql.LevelRepeatableRead, ReadOnly: true})
	if err != nil {
		return store.Row{}, t.s.unreached(err)
	}
	defer func() { _ = tx.Rollback() }()
	ask := func(q string, args ...any) row { return tx.QueryRowContext(ctx, q, args...) }
	r, err := t.s.look(key, ask)
	if err == nil && read != nil {
		err = t.s.watched(ask, func() error { return read(ctx, tx) })
	}
	return r, err
}

// look reads what the store knows of a key without its value: writer, version and guard.
func (s *Store) look(key string, ask query) (store.Row, error) {
	var version sql.NullInt64
	var writer, guard sql.NullString
	var floor int64
	if err := ask(s.sql.look, []byte(key)).Scan(&version, &writer, &guard, &floor); err != nil {
		return store.Row{}, s.failed("reading "+quote(key), err)
	}
	r := store.Row{Version: store.Version(floor), Guard: store.Token(fromUUID(guard.String))}
	if version.Valid {
		r.Version, r.Writer = store.Version(version.Int64), store.ID(fromUUID(writer.String))
	}
	return r, nil
}

func fromUUID(text string) (b [16]byte) {
	_, _ = hex.Decode(b[:], []byte(strings.ReplaceAll(text, "-", "")))
	return b
}

// Transact calls write in a transaction, marks keys as written by id, and commits if each key's
// guard is still the one in guards. The transaction is READ COMMITTED. Options.Timeout bounds each
// of its statements, and how long it may be idle. After ErrGuardMismatch, and every other error
// that is Definite, nothing is committed.
func (t *Tables) Transact(ctx context.Context, id store.ID, keys []string, guards []store.Token, write func(ctx context.Context, tx pgx.Tx) error) error {
	tx, err := t.pool.BeginTx(ctx, pgx.TxOptions{IsoLevel: pgx.ReadCommitted, AccessMode: pgx.ReadWrite})
	if err != nil {
		return t.s.unreached(err)
	}
	defer func() { _ = tx.Rollback(context.WithoutCancel(ctx)) }()
	a := attempt{s: t.s, ask: func(q string, args ...any) row { return tx.QueryRow(ctx, q, args...) }}
	return a.run(id, keys, guards, func() error { return write(ctx, pinned{tx}) }, func() error { return tx.Commit(ctx) })
}

// Transact is Tables.Transact for database/sql.
func (t *SQLTables) Transact(ctx context.Context, id store.ID, keys []string, guards []store.Token, write func(ctx context.Context, tx *sql.Tx) error) error {
	tx, err := t.db.BeginTx(ctx, &sql.TxOptions{Isolation: sql.LevelReadCommitted})
	if err != nil {
		return t.s.unreached(err)
	}
	defer func() { _ = tx.Rollback() }()
	a := attempt{s: t.s, ask: func(q string, args ...any) row { return tx.QueryRowContext(ctx, q, args...) }}
	return a.run(id, keys, guards, func() error { return write(ctx, tx) }, tx.Commit)
}

// attempt is one transaction.
type attempt struct {
	s   *Store
	ask query
}

func (a attempt) run(id store.ID, keys []string, guards []store.Token, write, commit func() error) error {
	for _, k := range keys {
		if err := a.s.admissible([]store.Mutation{{Key: k}}); err != nil {
			return err
		}
	}
	name, limit := rand.Text(), millis(a.s.opt.Timeout)
	var none string
	if err := a.ask(`SELECT set_config('freshet.attempt', $1, true) || set_config('statement_timeout', $2, true) ||
		set_config('lock_timeout', $2, true) || set_config('idle_in_transaction_session_timeout', $2, true)`, name, limit).Scan(&none); err != nil {
		return fmt.Errorf("%w (%w)", store.ErrUnavailable, a.s.failed("beginning a transaction", err))
	}
	if err := write(); err != nil {
		return fmt.Errorf("%w: %w", store.ErrRefused, err)
	}
	var status int
	err := a.ask(a.s.sql.touch, byteas(keys), uuids(guards), pgtype.UUID{Bytes: id, Valid: true}.String(), name).Scan(&status)
	switch {
	case state(err) == "FR007", errors.Is(err, sql.ErrTxDone), errors.Is(err, pgx.ErrTxClosed):
		return fmt.Errorf("%w: %w", store.ErrRefused, ErrEnded)
	case err != nil: // no COMMIT was sent, so nothing is committed
		return fmt.Errorf("%w (%w)", store.ErrRefused, a.s.failed("checking the guards of "+quote(keys[0]), err))
	case status != 0:
		return fmt.Errorf("%w (key %s)", store.ErrGuardMismatch, quote(keys[0]))
	}
	switch err = commit(); {
	case err == nil:
		return nil
	case errors.Is(err, pgx.ErrTxCommitRollback):
		return fmt.Errorf("%w: a statement of the update had failed, and its function did not say so: %w", store.ErrRefused, err)
	}
	return a.s.failed("committing an update of "+quote(keys[0]), err)
}

// byteas returns an array in PostgreSQL's notation, which every driver can send as text.
func byteas(keys []string) string {
	var b strings.Builder
	for i, k := range keys {
		b.WriteString([]string{"{", ","}[min(i, 1)] + `"\\x` + hex.EncodeToString([]byte(k)) + `"`)
	}
	return b.String() + "}"
}

func uuids(tokens []store.Token) string {
	var all []string
	for _, t := range tokens {
		all = append(all, hex.EncodeToString(t[:]))
	}
	return "{" + strings.Join(all, ",") + "}"
}

// pinned is a transaction that the user's function cannot end: only attempt may.
type pinned struct{ pgx.Tx }

func (pinned) Commit(context.Context) error   { return ErrEnded }
func (pinned) Rollback(context.Context) error { return ErrEnded }
