// Package mysql is a store in a server of the MySQL family: an unmodified MariaDB, 10.6 or later,
// or MySQL, 8.0 or later, and a user without privileges beyond three tables of one database. The
// tests run with MariaDB. The package uses only what MySQL's manual promises, but it is not tested
// with MySQL.
//
// Rows are durable when Commit has returned, as far as the server keeps what it acknowledged.
// Guards are rows of InnoDB, and survive a crash.
//
// The fence uses row locks. A write locks the guard over its key in share mode, by primary key. It
// compares range and token of the guard that it has locked, and holds the lock until its commit.
// SetGuard locks the guards that it changes exclusively, and so waits for every write that has
// checked them. A blind write of one key is one statement, and a transaction of its own. The
// process remembers where the guard of a key begins. If that has changed, the statement writes
// nothing, and the process looks for the guard.
//
// The first read that sees an expired row replaces it by a tombstone before it answers. A server
// clock that steps back therefore cannot revive the row. A clock that jumps forward ends TTLs early
// by as much, as nodes see it.
package mysql

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync/atomic"
	"time"

	"github.com/freshet-cache/freshet/store"
)

// MaxKey is the longest key, in bytes. An index of InnoDB takes 3072, and bounds of guards can be
// longer than keys.
const MaxKey = 3000

// maxBound is the longest bound of a guard, in bytes.
const maxBound = 3040

// Options configure a Store. URL is required.
type Options struct {
	// URL is mysql://USER:PASSWORD@HOST:PORT/DATABASE. After a question mark it may have tls=true,
	// tls=skip-verify or tls-ca=FILE, and pool_max_conns=N (default 32). Write special characters
	// of the password as %XX.
	URL string
	// Cluster names the cluster that uses the tables from now on. Open fails if another cluster
	// uses them. Default: Open does not check.
	Cluster string
	// MaxKey and MaxValue bound keys and values, in bytes. Default 3000, which is also the most,
	// and 16 MiB, or what the server's max_allowed_packet leaves.
	MaxKey, MaxValue int
	// Timeout bounds every statement, in the server too, where it is rounded up to seconds. MariaDB
	// bounds the whole statement, MySQL its waits for locks. Default 5 s.
	Timeout time.Duration
	// Grace is how long deletes and expired rows are remembered. No request may be in flight for so
	// long. Default 10 min, at least four times Timeout.
	Grace time.Duration
	// Sweep is how often the store looks for rows older than Grace. Default 1 min.
	Sweep time.Duration
	// Logger receives what an operator should know. Default: the store logs nothing.
	Logger *slog.Logger
}

// Why Open refuses a server or a database. Nothing in it was changed.
var (
	ErrNotMigrated  = errors.New("mysql: the tables are not there, or older than this freshet: run freshet migrate --store URL")
	ErrNewer        = errors.New("mysql: the tables were made by a newer freshet; run that version, or a newer one")
	ErrOtherOwner   = errors.New("mysql: another cluster uses the database: two would not know of each other's caches; give this one a database of its own, or stop the other and run freshet migrate --adopt")
	ErrUnsafe       = errors.New("mysql: the server's settings would break promises")
	ErrReadOnly     = errors.New("mysql: the server is read-only, as a replica is; connect to the primary")
	ErrServerTooOld = errors.New("mysql: the server is not MariaDB 10.6, or MySQL 8.0, or later")
)

// Store is a store in MariaDB or MySQL. It is safe for concurrent use, also by many processes.
type Store struct {
	opt    Options
	db     *sql.DB // reads and writes
	guards *sql.DB // separate, so that a guard never waits for a connection behind writes
	bounds bounds
	closed atomic.Bool
	stop   context.CancelFunc
	done   chan struct{}
}

func (o *Options) defaults() {
	if o.MaxKey <= 0 || o.MaxKey > MaxKey {
		o.MaxKey = MaxKey
	}
	if o.MaxValue <= 0 {
		o.MaxValue = 16 << 20
	}
	if o.Timeout <= 0 {
		o.Timeout = 5 * time.Second
	}
	if o.Grace <= 0 {
		o.Grace = 10 * time.Minute
	}
	o.Grace = max(o.Grace, 4*o.Timeout)
	if o.Sweep <= 0 {
		o.Sweep = time.Minute
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
}

// Open connects to a database whose tables Migrate has made. The errors above say why it refuses
// one.
func Open(ctx context.Context, opt Options) (*Store, error) {
	opt.defaults()
	cfg, conns, err := parse(opt.URL, opt.Timeout, opt.Logger)
	if err != nil {
		return nil, err
	}
	s := &Store{opt: opt, done: make(chan struct{})}
	if s.db, err = pool(cfg, conns, opt.Timeout, opt.Timeout); err != nil {
		return nil, err
	}
	if s.guards, err = pool(cfg, 4, opt.Timeout, 4*opt.Timeout); err == nil { // a guard outwaits every write
		err = s.check(ctx)
	}
	if err != nil {
		return nil, errors.Join(err, s.disconnect())
	}
	background, stop := context.WithCancel(context.Background())
	s.stop = stop
	go s.sweepOn(background)
	return s, nil
}

// check refuses a database that cannot keep the promises, and claims the tables.
func (s *Store) check(ctx context.Context) error {
	set, err := settings(ctx, s.db)
	switch {
	case errors.Is(err, ErrReadOnly):
		return err
	case err != nil:
		return fmt.Errorf("mysql: %w", err)
	}
	if err := judge(set, s.opt.Logger); err != nil {
		return err
	}
	if most := set.number("max_allowed_packet") - 64<<10; most < s.opt.MaxValue {
		s.opt.Logger.Info("the server takes shorter values than --max-value; raise its max_allowed_packet for more", "longest", most)
		s.opt.MaxValue = most
	}
	var format int
	var cluster *string
	err = s.db.QueryRowContext(ctx, "SELECT format, cluster FROM freshet_meta WHERE one = 1").Scan(&format, &cluster)
	switch {
	case number(err) == noSuchTable || errors.Is(err, sql.ErrNoRows):
		return ErrNotMigrated
	case err != nil:
		return fmt.Errorf("mysql: %w", err)
	case format < schemaFormat:
		return ErrNotMigrated
	case format > schemaFormat:
		return ErrNewer
	}
	var foreign int
	err = s.db.QueryRowContext(ctx, "SELECT COUNT(*) FROM information_schema.TABLES WHERE TABLE_SCHEMA = DATABASE() AND TABLE_NAME LIKE 'freshet\\_%' AND ENGINE <> 'InnoDB'").Scan(&foreign)
	switch {
	case err != nil:
		return fmt.Errorf("mysql: %w", err)
	case foreign > 0:
		return fmt.Errorf("%w: freshet's tables are not InnoDB's, and have no row locks; ALTER TABLE ... ENGINE = InnoDB", ErrUnsafe)
	case s.opt.Cluster == "" || cluster != nil && *cluster == s.opt.Cluster:
		return nil
	}
	done, err := s.db.ExecContext(ctx, "UPDATE freshet_meta SET cluster = ? WHERE one = 1 AND (cluster IS NULL OR cluster = ?)", []byte(s.opt.Cluster), []byte(s.opt.Cluster))
	if err != nil {
		return fmt.Errorf("mysql: %w", err)
	}
	if n, err := done.RowsAffected(); err != nil || n == 0 {
		return errors.Join(ErrOtherOwner, err)
	}
	return nil
}

// Close waits for the calls under way and closes the store. Later calls fail.
func (s *Store) Close() error {
	if s.closed.Swap(true) {
		return nil
	}
	s.stop()
	<-s.done
	return s.disconnect()
}

func (s *Store) disconnect() error {
	var errs []error
	for _, db := range []*sql.DB{s.guards, s.db} {
		if db != nil {
			errs = append(errs, db.Close())
		}
	}
	return errors.Join(errs...)
}

const (
	// began is when the statement began, next to its snapshot. A later time must not judge what an
	// earlier snapshot has read.
	began = "TIMESTAMPDIFF(MICROSECOND, '1970-01-01', NOW(6))"
	// now is when the server evaluates the expression, which may be long after began, behind locks.
	now = "TIMESTAMPDIFF(MICROSECOND, '1970-01-01', SYSDATE(6))"

	loadSQL = `SELECT r.value, r.version, r.writer, r.written, r.due, ` + began + `, m.floor,
		(SELECT g.token FROM freshet_guards g WHERE g.low <= ? ORDER BY g.low DESC LIMIT 1)
		FROM freshet_meta m LEFT JOIN freshet_rows r ON r.k = ? WHERE m.one = 1`
	collectSQL = `UPDATE freshet_rows SET value = NULL, version = version + 1, written = ` + now + `, due = ` + now + `
		WHERE k = ? AND version = ? AND value IS NOT NULL AND due <= ` + began
	aliveSQL = ` value IS NOT NULL AND (due IS NULL OR due > ` + began + `)`
	scanSQL  = `SELECT k FROM freshet_rows WHERE k >= ? AND` + aliveSQL + ` ORDER BY k LIMIT ?`
	countSQL = `SELECT COUNT(*) FROM freshet_rows WHERE` + aliveSQL
)

// Load returns the row of key.
func (s *Store) Load(ctx context.Context, key string) (store.Row, error) {
	ctx, cancel := context.WithTimeout(ctx, 2*s.opt.Timeout)
	defer cancel()
	for {
		if s.closed.Load() {
			return store.Row{}, store.ErrClosed
		}
		var value, writer, guard []byte
		var version, written, due sql.NullInt64
		var at, floor int64
		err := s.db.QueryRowContext(ctx, loadSQL, []byte(key), []byte(key)).Scan(&value, &version, &writer, &written, &due, &at, &floor, &guard)
		if err != nil {
			return store.Row{}, s.failed("reading "+quote(key), err)
		}
		row := store.Row{Exists: value != nil, Value: value, Version: store.Version(floor), Guard: store.Token(wide(guard))}
		if !version.Valid {
			return row, nil
		}
		row.Version, row.Writer, row.Written = store.Version(version.Int64), store.ID(wide(writer)), time.UnixMicro(written.Int64)
		if !row.Exists || !due.Valid {
			return row, nil
		}
		if row.TTL = micros(due.Int64 - at); row.TTL > 0 {
			return row, nil
		}
		collected, err := s.collect(ctx, key, version.Int64)
		if err != nil {
			return store.Row{}, s.failed("replacing by a tombstone "+quote(key), err)
		}
		if collected {
			return store.Row{Version: row.Version + 1, Writer: row.Writer, Written: time.UnixMicro(due.Int64), Guard: row.Guard}, nil
		} // another process has written or collected the row
	}
}

// collect replaces the row of a version by a tombstone, if it has expired. It may be repeated.
func (s *Store) collect(ctx context.Context, key string, version int64) (bool, error) {
	done, err := s.db.ExecContext(ctx, collectSQL, []byte(key), version)
	if err != nil {
		return false, err
	}
	n, err := done.RowsAffected()
	return n == 1, err
}

func micros(n int64) time.Duration { return time.Duration(n) * time.Microsecond }

// wide returns a column of 16 bytes; zero if it is NULL.
func wide(b []byte) (out [16]byte) {
	copy(out[:], b)
	return out
}

// Splits returns no points: a guard may lie over any range.
func (s *Store) Splits(context.Context, string, string) ([]string, error) { return nil, nil }

// Scan returns up to limit keys that exist, from the first one at or after from. next is where to
// continue unless done.
func (s *Store) Scan(ctx context.Context, from string, limit int) (keys []string, next string, done bool, err error) {
	rows, err := s.db.QueryContext(ctx, scanSQL, []byte(from), limit+1)
	if err != nil {
		return nil, "", false, s.failed("scanning", err)
	}
	defer rows.Close()
	for rows.Next() {
		var k []byte
		if err := rows.Scan(&k); err != nil {
			return nil, "", false, s.failed("scanning", err)
		}
		if len(keys) == limit {
			return keys, string(k), false, nil
		}
		keys = append(keys, string(k))
	}
	if err := rows.Err(); err != nil {
		return nil, "", false, s.failed("scanning", err)
	}
	return keys, "", true, nil
}

// Count returns how many keys exist. It reads all rows.
func (s *Store) Count(ctx context.Context) (n int, err error) {
	if err := s.db.QueryRowContext(ctx, countSQL).Scan(&n); err != nil {
		return 0, s.failed("counting", err)
	}
	return n, nil
}

func quote(key string) string { return strings.TrimSpace(fmt.Sprintf("%.64q", key)) }
