package mysql

import (
	"context"
	"database/sql"
	_ "embed"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"strings"
	"time"

	"github.com/freshet-cache/freshet/store"
)

// schemaFormat is the format that this freshet makes and reads.
const schemaFormat = 1

//go:embed schema.sql
var schemaSQL string

// Migration says what else Migrate should do.
type Migration struct {
	// Grant gives a user (NAME, or NAME@HOST) what freshet serve needs, and no more.
	Grant string
	// Adopt lets the next cluster use the tables, even if another one has used them. Stop the other
	// cluster first.
	Adopt bool
	// Restored says that the database was restored to an earlier state. Every row gets a version
	// above all that were used since. No process may run.
	Restored bool
}

// migrateTimeout bounds each statement of a migration.
const migrateTimeout = 30 * time.Second

// Migrate makes or upgrades the tables in the database that a URL names, and makes the database if
// it does not exist. The user must be allowed to. Migrate changes nothing if the tables are up to
// date. The server commits each step by itself; after an interrupted migration, run Migrate again.
func Migrate(ctx context.Context, url string, m Migration) error {
	cfg, _, err := parse(url, migrateTimeout, slog.New(slog.DiscardHandler))
	if err != nil {
		return err
	}
	database := cfg.DBName
	cfg.DBName = ""
	db, err := pool(cfg, 1, migrateTimeout, migrateTimeout)
	if err != nil {
		return err
	}
	defer db.Close()
	conn, err := db.Conn(ctx)
	if err != nil {
		return fmt.Errorf("mysql: nothing was changed: %w", err)
	}
	defer conn.Close()
	if err := m.run(ctx, conn, database); err != nil {
		return fmt.Errorf("mysql: %w", err)
	}
	return nil
}

func (m Migration) run(ctx context.Context, conn *sql.Conn, database string) error {
	var mine int
	err := conn.QueryRowContext(ctx, "SELECT GET_LOCK('freshet migrate', ?)", seconds(migrateTimeout)).Scan(&mine) // until the connection ends
	if err != nil || mine != 1 {
		return errors.Join(errors.New("nothing was changed: another migration is under way"), err)
	}
	name := quoted(database)
	var steps []string
	if err := conn.QueryRowContext(ctx, "SELECT COUNT(*) FROM information_schema.SCHEMATA WHERE SCHEMA_NAME = ?", database).Scan(&mine); err != nil {
		return err
	}
	if mine == 0 {
		steps = append(steps, "CREATE DATABASE IF NOT EXISTS "+name)
	}
	steps = append(steps, "USE "+name)
	if err := execAll(ctx, conn, steps); err != nil {
		return err
	}
	var format int
	err = conn.QueryRowContext(ctx, "SELECT format FROM freshet_meta WHERE one = 1").Scan(&format)
	switch {
	case number(err) == noSuchTable, errors.Is(err, sql.ErrNoRows):
	case err != nil:
		return err
	case format > schemaFormat:
		return ErrNewer
	}
	first := store.FirstVersion(time.Now(), rand.Uint64())
	steps = strings.Split(strings.ReplaceAll(schemaSQL, "{{base}}", fmt.Sprint(first)), ";\n")
	if m.Adopt {
		steps = append(steps, "UPDATE freshet_meta SET cluster = NULL")
	}
	if m.Restored { // the odd version of an absence stays odd
		first := store.NextVersion(time.Now(), rand.Uint64())
		steps = append(steps, fmt.Sprintf("UPDATE freshet_rows SET version = %d + (version & 1)", first),
			fmt.Sprintf("UPDATE freshet_meta SET floor = %d + 1, base = %[1]d", first))
	}
	if m.Grant != "" {
		user, host, _ := strings.Cut(m.Grant, "@")
		if host == "" {
			host = "%"
		}
		for table, what := range map[string]string{"rows": "SELECT, INSERT, UPDATE, DELETE", "guards": "SELECT, INSERT, UPDATE, DELETE", "meta": "SELECT, UPDATE"} {
			steps = append(steps, fmt.Sprintf("GRANT %s ON %s.freshet_%s TO %s@%s", what, name, table, quoted(user), quoted(host)))
		}
	}
	return execAll(ctx, conn, steps)
}

func execAll(ctx context.Context, conn *sql.Conn, steps []string) error {
	for _, q := range steps {
		if _, err := conn.ExecContext(ctx, q); err != nil {
			return err
		}
	}
	return nil
}

// quoted returns a name as SQL takes it.
func quoted(name string) string { return "`" + strings.ReplaceAll(name, "`", "``") + "`" }

// sweepOn removes old deletes and expired rows at every Options.Sweep.
func (s *Store) sweepOn(ctx context.Context) {
	defer close(s.done)
	t := time.NewTicker(s.opt.Sweep)
	defer t.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-t.C:
		}
		if err := s.sweep(ctx); err != nil && ctx.Err() == nil {
			s.opt.Logger.Warn("old deletes could not be forgotten; they take space until they are", "err", err)
		}
	}
}

// sweepRows bounds the rows that one transaction removes.
const sweepRows = 100

// sweep removes rows that were deleted or have expired longer than the grace ago. It first replaces
// expired rows by tombstones, as a read does, and removes them when the grace has passed once more.
func (s *Store) sweep(ctx context.Context) error {
	for {
		gone, expired, err := s.old(ctx)
		if err != nil {
			return err
		}
		for key, version := range expired {
			if _, err := s.collect(ctx, key, version); err != nil {
				return err
			}
		}
		if len(gone) > 0 {
			if err := s.forget(ctx, gone); err != nil {
				return err
			}
		}
		if len(gone)+len(expired) < sweepRows {
			return nil
		}
	}
}

// old returns the rows whose grace has passed, without a lock.
func (s *Store) old(ctx context.Context) (gone, expired map[string]int64, err error) {
	rows, err := s.guards.QueryContext(ctx, "SELECT k, version, value IS NULL FROM freshet_rows WHERE due < "+now+" - ? ORDER BY due LIMIT ?",
		s.opt.Grace.Microseconds(), sweepRows)
	if err != nil {
		return nil, nil, err
	}
	defer rows.Close()
	gone, expired = map[string]int64{}, map[string]int64{}
	for rows.Next() {
		var k []byte
		var version int64
		var absent bool
		if err := rows.Scan(&k, &version, &absent); err != nil {
			return nil, nil, err
		}
		if absent {
			gone[string(k)] = version
		} else {
			expired[string(k)] = version
		}
	}
	return gone, expired, rows.Err()
}

// forget removes absences. It raises the floor to the version of the youngest one, or to the odd
// one after a delete, which no write ever has. No write proceeds meanwhile, so forget waits for
// other transactions at most a second, and leaves the rest to the next sweep.
func (s *Store) forget(ctx context.Context, gone map[string]int64) error {
	conn, err := s.guards.Conn(ctx)
	if err != nil {
		return err
	}
	defer func() { // other users of the connection need the longer limit
		_, _ = conn.ExecContext(context.WithoutCancel(ctx), "SET SESSION innodb_lock_wait_timeout = ?", seconds(4*s.opt.Timeout))
		_ = conn.Close()
	}()
	if _, err := conn.ExecContext(ctx, "SET SESSION innodb_lock_wait_timeout = 1"); err != nil {
		return err
	}
	return s.transact(ctx, conn, "forgetting deletes", func() error {
		var floor int64
		if err := conn.QueryRowContext(ctx, "SELECT floor FROM freshet_meta WHERE one = 1 FOR UPDATE").Scan(&floor); err != nil {
			return err
		}
		for key, version := range gone {
			done, err := conn.ExecContext(ctx, "DELETE FROM freshet_rows WHERE k = ? AND version = ? AND value IS NULL", []byte(key), version)
			if err != nil {
				return err
			}
			if n, err := done.RowsAffected(); err == nil && n == 1 {
				floor = max(floor, version|1)
			}
		}
		_, err := conn.ExecContext(ctx, "UPDATE freshet_meta SET floor = ? WHERE one = 1", floor)
		return err
	})
}
