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

// Migration says what Migrate is to do besides.
type Migration struct {
	// Grant gives a user (NAME, or NAME@HOST) what freshet serve needs, and no more.
	Grant string
	// Adopt lets the next cluster that comes use the tables, whoever used them: stop the
	// other one first.
	Adopt bool
	// Restored says that the database was restored to an earlier state: every row gets a
	// version above all that were given since. No process may run.
	Restored bool
}

// migrateTimeout bounds each statement of a migration.
const migrateTimeout = 30 * time.Second

// Migrate makes or upgrades the tables in the database that a URL names, and the
// database if it is not there. The user must be allowed to. It does nothing to tables
// that are as they should be. The server commits each step by itself: a migration that
// was broken off is finished by the next.
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
	err := conn.QueryRowContext(ctx, "SELECT GET_LOCK('freshet migrate', ?)", seconds(migrateTimeout)).Scan(&mine) // release with the connection
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
	if m.Restored { // an odd version is an absence's, and stays one
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

// quoted is a name as SQL takes it.
func quoted(name string) string { return "`" + strings.ReplaceAll(name, "`", "``") + "`" }

// sweepOn forgets deletes and expired rows now and then.
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

// sweepRows bounds the rows that one transaction forgets.
const sweepRows = 100

// sweep forgets what was deleted or has expired before the grace. Expired rows are
// replaced by tombstones first, as a read does, and forgotten when the grace has passed once more.
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

// old finds what the grace is over for, without a lock.
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

// forget deletes absences, and raises the floor to the version of the youngest, or the
// odd one after a delete: none that a write will have. While it does, nobody writes; so
// it waits for those who do a second at most, and comes another time.
func (s *Store) forget(ctx context.Context, gone map[string]int64) error {
	conn, err := s.guards.Conn(ctx)
	if err != nil {
		return err
	}
	defer func() { // its limit is not for others
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
