// Package postgres is a store in PostgreSQL: an unmodified server, version 13 or later, and a role
// without privileges beyond the tables of one schema.
//
// Rows are durable when Commit has returned, as far as the server keeps what it acknowledged.
// Guards are rows of an unlogged table, which a crash of the server empties: exactly the soft state
// that package store describes.
//
// The fence uses row locks. A write locks a guard FOR SHARE, in the statement that writes or before
// it in the same transaction. It compares the token of the row version that it has locked, and
// holds the lock until its commit. SetGuard locks the guards that it changes FOR UPDATE, and so
// waits for every write that has checked them. Guards are striped: the writes of a connection lock
// one of 32 rows, so that writers do not contend.
//
// The first read that sees an expired row replaces it by a tombstone before it answers. A server
// clock that steps back therefore cannot revive the row. A clock that jumps forward ends TTLs early
// by as much, as nodes see it.
package postgres

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgtype"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/freshet-cache/freshet/store"
)

// MaxKey is the longest key, in bytes, that an index of PostgreSQL takes.
const MaxKey = 2600

// Options configure a Store. The zero value works, for a server at the defaults of libpq.
type Options struct {
	// URL is a URL of libpq: postgres://user:password@host:port/database?sslmode=... It may also
	// have schema=NAME (default freshet) and pool_max_conns=N (default 32).
	URL string
	// Cluster names the cluster that uses the schema from now on. Open fails if another cluster
	// uses it. Default: Open does not check.
	Cluster string
	// MaxKey and MaxValue bound keys and values, in bytes. Default 2600, which is also the most,
	// and 16 MiB.
	MaxKey, MaxValue int
	// Timeout bounds every statement, in the server too, so that no write holds a guard for longer.
	// The exception is a commit that waits for a synchronous standby, which no limit of the server
	// ends. Default 5 s.
	Timeout time.Duration
	// Unguarded lets every blind write of one key commit, whatever token it carries. No promise
	// holds then: the option is for measuring what guards cost.
	Unguarded bool
	// Grace is how long deletes and expired rows are remembered. No request may be in flight for so
	// long. Default 10 min, at least four times Timeout.
	Grace time.Duration
	// Sweep is how often the store looks for rows older than Grace. Default 1 min.
	Sweep time.Duration
	// Logger receives what an operator should know. Default: the store logs nothing.
	Logger *slog.Logger
}

// Why Open refuses a database. Nothing in it was changed.
var (
	ErrNotMigrated = errors.New("postgres: the schema is not there, or older than this freshet: run freshet migrate --store URL")
	ErrNewer       = errors.New("postgres: the schema was made by a newer freshet; run that version, or a newer one")
	ErrOtherOwner  = errors.New("postgres: another cluster uses the schema: two would not know of each other's caches; give this one a schema of its own (schema=NAME in the URL), or stop the other and run freshet migrate --adopt")
	ErrUnsafe      = errors.New("postgres: synchronous_commit is off: acknowledged writes could be lost; ALTER ROLE ... SET synchronous_commit = on")
	ErrStandby     = errors.New("postgres: the server is a standby; connect to the primary (target_session_attrs=primary in the URL)")
)

// Store is a store in PostgreSQL. It is safe for concurrent use, also by many processes.
type Store struct {
	opt    Options
	schema string        // quoted
	pool   *pgxpool.Pool // reads and writes
	guards *pgxpool.Pool // separate, so that a guard never waits for a connection behind writes
	sql    statements
	closed atomic.Bool

	unguarded openTables
	stop      context.CancelFunc
	done      chan struct{}
}

type statements struct{ load, look, touch, put, commit, guard, collect, scan, count, splits, sweepExpired, sweepGone string }

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

// parse returns the configuration of a URL, and the schema, quoted.
func parse(url string) (*pgxpool.Config, string, error) {
	cfg, err := pgxpool.ParseConfig(url)
	if err != nil { // pgx leaves passwords out of the error
		return nil, "", fmt.Errorf("postgres: the URL cannot be read: %w", err)
	}
	p := cfg.ConnConfig.RuntimeParams
	schema := p["schema"]
	if strings.ContainsAny(schema, "'\\%\x00") {
		return nil, "", fmt.Errorf("postgres: schema=%q: a quote, backslash or percent sign cannot be in its name", schema)
	}
	if delete(p, "schema"); schema == "" {
		schema = "freshet"
	}
	if !strings.Contains(url, "pool_max_conns") {
		cfg.MaxConns = 32
	}
	p["default_transaction_isolation"] = "read committed" // the fence needs it
	// The server must notice a vanished client, or its locks would stay.
	p["tcp_keepalives_idle"], p["tcp_keepalives_interval"], p["tcp_keepalives_count"] = "3", "2", "3"
	several := func(f *pgconn.FallbackConfig) bool {
		return f.Host != cfg.ConnConfig.Host || f.Port != cfg.ConnConfig.Port
	}
	if cfg.ConnConfig.ValidateConnect == nil && slices.ContainsFunc(cfg.ConnConfig.Fallbacks, several) {
		cfg.ConnConfig.ValidateConnect = pgconn.ValidateConnectTargetSessionAttrsPrimary // of several servers, one takes writes
	}
	if p["application_name"] == "" {
		p["application_name"] = "freshet"
	}
	return cfg, pgx.Identifier{schema}.Sanitize(), nil
}

// Open connects to a database whose schema Migrate has made. The errors above say why it refuses
// one.
func Open(ctx context.Context, opt Options) (*Store, error) {
	opt.defaults()
	cfg, schema, err := parse(opt.URL)
	if err != nil {
		return nil, err
	}
	s := &Store{opt: opt, schema: schema, sql: prepare(schema), done: make(chan struct{})}
	if opt.Unguarded {
		s.sql.put = unguarded(s.sql.put)
	}
	limit := func(c *pgxpool.Config, statement, lock time.Duration) {
		c.ConnConfig.RuntimeParams["statement_timeout"] = millis(statement)
		c.ConnConfig.RuntimeParams["lock_timeout"] = millis(lock)
		c.ConnConfig.RuntimeParams["idle_in_transaction_session_timeout"] = millis(statement)
	}
	limit(cfg, opt.Timeout, opt.Timeout)
	abandon(cfg)
	apart := cfg.Copy()
	limit(apart, 2*opt.Timeout, 2*opt.Timeout) // a guard outwaits every write
	apart.MaxConns, apart.MinConns = 4, 0
	if s.pool, err = pgxpool.NewWithConfig(ctx, cfg); err != nil {
		return nil, fmt.Errorf("postgres: %w", err)
	}
	if s.guards, err = pgxpool.NewWithConfig(ctx, apart); err != nil {
		s.pool.Close()
		return nil, fmt.Errorf("postgres: %w", err)
	}
	if err := s.check(ctx); err != nil {
		s.pool.Close()
		s.guards.Close()
		return nil, err
	}
	background, stop := context.WithCancel(context.Background())
	s.stop = stop
	go s.sweepOn(background)
	return s, nil
}

// abandon keeps pgx from sending cancel requests: it leaves a connection whose deadline has passed
// alone. A cancel request would end the wait for a synchronous standby. The server would then show
// a commit that no standby has and that a failover would lose.
//
// Statements end by the limits of the server. A backend that waits for a standby continues to wait,
// with its row invisible and its guard locked.
func abandon(cfg *pgxpool.Config) {
	cfg.BeforeConnect = func(_ context.Context, c *pgx.ConnConfig) error {
		var connected atomic.Bool
		dial, after := c.DialFunc, c.AfterConnect
		c.DialFunc = func(ctx context.Context, network, addr string) (net.Conn, error) {
			if connected.Load() { // pgx dials again only to cancel
				return nil, errNoCancel
			}
			return dial(ctx, network, addr)
		}
		c.AfterConnect = func(ctx context.Context, pc *pgconn.PgConn) error {
			connected.Store(true)
			if after != nil {
				return after(ctx, pc)
			}
			return nil
		}
		return nil
	}
}

var errNoCancel = errors.New("postgres: statements are not cancelled; the connection is abandoned")

func millis(d time.Duration) string { return fmt.Sprint(max(1, d.Milliseconds())) }

// check refuses a database that cannot keep the promises, and claims the schema.
func (s *Store) check(ctx context.Context) error {
	var sync string
	var standby, there bool
	err := s.pool.QueryRow(ctx, "SELECT current_setting('synchronous_commit'), pg_is_in_recovery(), to_regclass($1) IS NOT NULL",
		s.schema+".meta").Scan(&sync, &standby, &there)
	switch {
	case err != nil:
		return fmt.Errorf("postgres: %w", err)
	case standby:
		return ErrStandby
	case sync == "off":
		return ErrUnsafe
	case !there:
		return ErrNotMigrated
	}
	var format int
	var cluster *string
	err = s.pool.QueryRow(ctx, "SELECT format, cluster FROM "+s.schema+".meta").Scan(&format, &cluster)
	switch {
	case err != nil:
		return fmt.Errorf("postgres: %w", err)
	case format < schemaFormat:
		return ErrNotMigrated
	case format > schemaFormat:
		return ErrNewer
	case s.opt.Cluster == "" || cluster != nil && *cluster == s.opt.Cluster:
		return nil
	}
	done, err := s.pool.Exec(ctx, "UPDATE "+s.schema+".meta SET cluster = $1 WHERE cluster IS NULL OR cluster = $1", s.opt.Cluster)
	switch {
	case err != nil:
		return fmt.Errorf("postgres: %w", err)
	case done.RowsAffected() == 0:
		return ErrOtherOwner
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
	s.guards.Close()
	s.pool.Close()
	return nil
}

// covering finds the guard of a key; every key lies in one guard.
const covering = " low <= %[1]s AND (high = '' OR high > %[1]s) ORDER BY low DESC LIMIT 1"

// prepare returns the statements for a schema.
func prepare(schema string) statements {
	guard := func(stripe, key string) string {
		return "SELECT token FROM " + schema + ".guards WHERE stripe = " + stripe + " AND" + fmt.Sprintf(covering, key)
	}
	fill := strings.NewReplacer("{{schema}}", schema, "{{own}}", guard("pg_backend_pid() % 32", "$1"), "{{any}}", guard("0", "$1")).Replace
	return statements{
		// The statement's start is next to its snapshot. A later time must not judge what an
		// earlier snapshot has read.
		load: fill(`SELECT r.value, r.version, r.writer, r.written, r.expires, statement_timestamp(), ({{any}}), m.floor
			FROM {{schema}}.meta m LEFT JOIN {{schema}}.rows r ON r.key = $1`),
		look: fill(`SELECT r.version, r.writer::text, ({{any}})::text, m.floor
			FROM {{schema}}.meta m LEFT JOIN {{schema}}.rows r ON r.key = $1`),
		touch: fill(`SELECT {{schema}}.touch($1::text::bytea[], $2::text::uuid[], $3::text::uuid, $4::text)`),
		put: fill(`WITH g AS MATERIALIZED ({{own}} FOR SHARE), w AS (
			INSERT INTO {{schema}}.rows AS r (key, value, version, writer, written, expires)
			SELECT $1, $2, nextval('{{schema}}.version'), $3, clock_timestamp(), clock_timestamp() + $5::bigint * interval '1 microsecond'
			FROM g WHERE g.token = $4
			ON CONFLICT (key) DO UPDATE SET value = EXCLUDED.value, version = nextval('{{schema}}.version'), writer = EXCLUDED.writer,
				written = clock_timestamp(), expires = clock_timestamp() + $5::bigint * interval '1 microsecond'
			RETURNING r.version, r.expires - r.written AS ttl)
			SELECT (SELECT count(*) FROM g), w.version, CASE WHEN w.ttl IS NOT NULL THEN greatest(1, (extract(epoch FROM w.ttl) * 1000000)::bigint) END FROM (SELECT) one LEFT JOIN w ON true`),
		commit: fill(`SELECT status, versions, lives FROM {{schema}}.commit($1, $2, $3, $4, $5, $6, $7)`),
		guard:  fill(`SELECT {{schema}}.set_guard($1, $2, $3)`),
		collect: fill(`UPDATE {{schema}}.rows SET value = NULL, version = version + 1, written = clock_timestamp(), expires = NULL
			WHERE key = $1 AND version = $2 AND expires <= statement_timestamp()`),
		scan: fill(`SELECT key FROM {{schema}}.rows WHERE key >= $1 AND value IS NOT NULL
			AND (expires IS NULL OR expires > statement_timestamp()) ORDER BY key LIMIT $2`),
		count: fill(`SELECT count(*) FROM {{schema}}.rows WHERE value IS NOT NULL AND (expires IS NULL OR expires > statement_timestamp())`),
		splits: fill(`SELECT pg_get_expr(c.relpartbound, c.oid) FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid
			WHERE i.inhparent = '{{schema}}.rows'::regclass`),
		// A sweep first replaces expired rows by tombstones, as a read does, and removes them when
		// the grace has passed once more. The floor becomes the version of a removed absence, or
		// the odd one after a delete, which no write ever has.
		sweepExpired: fill(`WITH old AS (UPDATE {{schema}}.rows SET value = NULL, version = version + 1, written = clock_timestamp(), expires = NULL WHERE key IN
			(SELECT key FROM {{schema}}.rows WHERE expires < clock_timestamp() - $1::bigint * interval '1 microsecond' LIMIT $2 FOR UPDATE SKIP LOCKED)
			RETURNING key) SELECT count(*) FROM old`),
		sweepGone: fill(`WITH old AS (DELETE FROM {{schema}}.rows WHERE key IN
			(SELECT key FROM {{schema}}.rows WHERE value IS NULL AND written < clock_timestamp() - $1::bigint * interval '1 microsecond' LIMIT $2 FOR UPDATE SKIP LOCKED)
			RETURNING version), raised AS (UPDATE {{schema}}.meta SET floor = greatest(floor, (SELECT max(version | 1) FROM old)))
			SELECT count(*) FROM old`),
	}
}

// unguarded returns the statement that writes one key without its guard.
func unguarded(put string) string {
	i, j := strings.Index(put, "(SELECT token"), strings.Index(put, ", w AS")
	return put[:i] + "(SELECT $4::uuid AS token)" + put[j:]
}

func uuid(b [16]byte) pgtype.UUID { return pgtype.UUID{Bytes: b, Valid: true} }

// Load returns the row of key.
func (s *Store) Load(ctx context.Context, key string) (store.Row, error) {
	for {
		if s.closed.Load() {
			return store.Row{}, store.ErrClosed
		}
		var value []byte
		var version pgtype.Int8
		var writer, guard pgtype.UUID
		var written, expires pgtype.Timestamptz
		var now time.Time
		var floor int64
		err := s.pool.QueryRow(ctx, s.sql.load, []byte(key)).Scan(&value, &version, &writer, &written, &expires, &now, &guard, &floor)
		if err != nil {
			return store.Row{}, s.failed("reading "+quote(key), err)
		}
		row := store.Row{Exists: value != nil, Value: value, Version: store.Version(floor), Guard: guard.Bytes}
		if !version.Valid {
			return row, nil
		}
		row.Version, row.Writer, row.Written = store.Version(version.Int64), writer.Bytes, written.Time
		if !expires.Valid {
			return row, nil
		}
		if row.TTL = expires.Time.Sub(now); row.TTL > 0 {
			return row, nil
		}
		done, err := s.pool.Exec(ctx, s.sql.collect, []byte(key), version.Int64)
		if err != nil {
			return store.Row{}, s.failed("replacing by a tombstone "+quote(key), err)
		}
		if done.RowsAffected() == 1 {
			return store.Row{Version: row.Version + 1, Writer: row.Writer, Written: expires.Time, Guard: row.Guard}, nil
		} // another process has written or collected the row
	}
}

// Splits returns the bounds of the table's partitions strictly inside (low, high). A guard may lie
// across them; they are only good points to cut at.
func (s *Store) Splits(ctx context.Context, low, high string) ([]string, error) {
	rows, err := s.pool.Query(ctx, s.sql.splits)
	if err != nil {
		return nil, s.failed("reading the partitions", err)
	}
	bounds, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		return nil, s.failed("reading the partitions", err)
	}
	var points []string
	for _, b := range bounds {
		if p := lower(b); p > low && (high == "" || p < high) {
			points = append(points, p)
		}
	}
	slices.Sort(points)
	return slices.Compact(points), nil
}

// Scan returns up to limit keys that exist, from the first one at or after from. next is where to
// continue unless done.
func (s *Store) Scan(ctx context.Context, from string, limit int) (keys []string, next string, done bool, err error) {
	rows, err := s.pool.Query(ctx, s.sql.scan, []byte(from), limit+1)
	if err != nil {
		return nil, "", false, s.failed("scanning", err)
	}
	all, err := pgx.CollectRows(rows, pgx.RowTo[[]byte])
	if err != nil {
		return nil, "", false, s.failed("scanning", err)
	}
	for i, k := range all {
		if i == limit {
			return keys, string(k), false, nil
		}
		keys = append(keys, string(k))
	}
	return keys, "", true, nil
}

// Count returns how many keys exist. It reads all rows.
func (s *Store) Count(ctx context.Context) (n int, err error) {
	if err := s.pool.QueryRow(ctx, s.sql.count).Scan(&n); err != nil {
		return 0, s.failed("counting", err)
	}
	return n, nil
}

func quote(key string) string { return fmt.Sprintf("%.64q", key) }
