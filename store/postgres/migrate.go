package postgres

import (
	"context"
	"embed"
	"encoding/hex"
	"errors"
	"fmt"
	"math/rand/v2"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/freshet-cache/freshet/store"
	"github.com/freshet-cache/freshet/store/journal"
)

// schemaFormat is the format that this freshet makes and reads.
const schemaFormat = 8

// formats has a script for each format, which upgrades from the format before; the first one makes
// the schema. Scripts of former formats are never edited, because databases that ran them exist.
//
//go:embed schema
var formats embed.FS

// script returns the script that makes a format, with its names replaced.
func script(format int, names ...string) (string, error) {
	b, err := formats.ReadFile(fmt.Sprintf("schema/format%d.sql", format))
	return strings.NewReplacer(names...).Replace(string(b)), err
}

// Migration says what else Migrate should do.
type Migration struct {
	// Partitions are the bounds between the partitions of the rows, which become split points. They
	// can be chosen only when the schema is made. Default: one table.
	Partitions []string
	// Grant gives a role what freshet serve needs, and no more.
	Grant string
	// Adopt lets the next cluster use the schema, even if another one has used it. Stop the other
	// cluster first.
	Adopt bool
	// Restored says that the database was restored to an earlier state. Versions continue above all
	// that were used since. Incarnations of causal servers that have begun are fenced, and new ones
	// get numbers above those that were used since. No process may run.
	Restored bool
}

// Migrate makes or upgrades the schema that a URL names, in one transaction. The role must be
// allowed to create the schema, or own it. Migrate changes nothing if the schema is up to date.
func Migrate(ctx context.Context, url string, m Migration) error {
	cfg, schema, err := parse(url)
	if err != nil {
		return err
	}
	conn, err := pgx.ConnectConfig(ctx, cfg.ConnConfig)
	if err != nil {
		return fmt.Errorf("postgres: %w", err)
	}
	defer func() { _ = conn.Close(context.WithoutCancel(ctx)) }()
	err = pgx.BeginFunc(ctx, conn, func(tx pgx.Tx) error { return m.run(ctx, tx, schema) })
	if err != nil {
		return fmt.Errorf("postgres: nothing was changed: %w", err)
	}
	return nil
}

func (m Migration) run(ctx context.Context, tx pgx.Tx, schema string) error {
	var there bool
	if err := tx.QueryRow(ctx, "SELECT to_regclass($1) IS NOT NULL", schema+".meta").Scan(&there); err != nil {
		return err
	}
	switch {
	case there && len(m.Partitions) > 0:
		return errors.New("the rows are there already: partitions are chosen when the schema is made")
	case !there:
		if err := m.create(ctx, tx, schema); err != nil {
			return err
		}
	}
	var format int
	if err := tx.QueryRow(ctx, "SELECT format FROM "+schema+".meta FOR UPDATE").Scan(&format); err != nil {
		return err
	}
	if format > schemaFormat {
		return ErrNewer
	}
	for format++; format <= schemaFormat; format++ {
		sql, err := script(format, "{{schema}}", schema)
		if err != nil {
			return err
		}
		if _, err := tx.Exec(ctx, sql); err != nil {
			return err
		}
	}
	if m.Adopt {
		if _, err := tx.Exec(ctx, "UPDATE "+schema+".meta SET cluster = NULL"); err != nil {
			return err
		}
	}
	if m.Restored {
		if err := restored(ctx, tx, schema); err != nil {
			return err
		}
	}
	if m.Grant == "" {
		return nil
	}
	role := pgx.Identifier{m.Grant}.Sanitize()
	for _, what := range []string{"USAGE ON SCHEMA %s", "SELECT, INSERT, UPDATE, DELETE ON %s.rows, %[1]s.guards, %[1]s.incarnations, %[1]s.causal_spaces, %[1]s.causal_journal, %[1]s.causal_rows, %[1]s.causal_siblings, %[1]s.causal_watched, %[1]s.causal_progress", "SELECT, UPDATE ON %s.meta",
		"USAGE ON SEQUENCE %s.version", "EXECUTE ON ALL FUNCTIONS IN SCHEMA %s"} {
		if _, err := tx.Exec(ctx, "GRANT "+fmt.Sprintf(what, schema)+" TO "+role); err != nil {
			return err
		}
	}
	return nil
}

// restored skips the versions and incarnations that the lost history may have used. Incarnations of
// asynchronous spaces are not fenced, because their logs are still needed.
func restored(ctx context.Context, tx pgx.Tx, schema string) error {
	for _, sql := range []string{
		fmt.Sprintf(`SELECT setval('{{schema}}.version', greatest(%d, (SELECT last_value FROM {{schema}}.version)))`, store.NextVersion(time.Now(), rand.Uint64())),
		`UPDATE {{schema}}.incarnations SET fenced = true WHERE incarnation <> 4294967295 AND space NOT IN (SELECT space FROM {{schema}}.causal_progress WHERE term > 0)`,
		fmt.Sprintf(`INSERT INTO {{schema}}.incarnations (space, incarnation, fenced, stable)
			SELECT space, least(max(incarnation) + %d, 4294967294), true, 0 FROM {{schema}}.incarnations WHERE incarnation <> 4294967295 GROUP BY space ON CONFLICT DO NOTHING`, journal.Skip),
	} {
		if _, err := tx.Exec(ctx, strings.ReplaceAll(sql, "{{schema}}", schema)); err != nil {
			return err
		}
	}
	return nil
}

func (m Migration) create(ctx context.Context, tx pgx.Tx, schema string) error {
	by := ""
	if len(m.Partitions) > 0 {
		by = "PARTITION BY RANGE (key)"
	}
	first := store.FirstVersion(time.Now(), rand.Uint64())
	sql, err := script(1, "{{schema}}", schema, "{{first}}", fmt.Sprint(first), "{{partition}}", by)
	if err != nil {
		return err
	}
	if _, err := tx.Exec(ctx, sql); err != nil {
		return err
	}
	if len(m.Partitions) == 0 {
		return nil
	}
	low := "MINVALUE"
	points := slices.Compact(slices.Sorted(slices.Values(m.Partitions)))
	for i, p := range append(points, "") {
		high := "MAXVALUE"
		if p != "" {
			high = `'\x` + hex.EncodeToString([]byte(p)) + `'`
		}
		if low == high {
			continue
		}
		sql := fmt.Sprintf("CREATE TABLE %[1]s.rows_%[2]d PARTITION OF %[1]s.rows FOR VALUES FROM (%[3]s) TO (%[4]s)", schema, i, low, high)
		if _, err := tx.Exec(ctx, sql); err != nil {
			return err
		}
		low = high
	}
	return nil
}

var bound = regexp.MustCompile(`^FOR VALUES FROM \('\\x([0-9a-f]*)'\)`)

// lower returns where a partition begins, from the text of pg_get_expr; empty if it has no lower
// bound.
func lower(expr string) string {
	if m := bound.FindStringSubmatch(expr); m != nil {
		b, _ := hex.DecodeString(m[1])
		return string(b)
	}
	return ""
}

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
const sweepRows = 1000

// sweep removes rows that were deleted or have expired longer than the grace ago. One process at a
// time does so: the one that holds the row of meta.
func (s *Store) sweep(ctx context.Context) error {
	grace := s.opt.Grace.Microseconds()
	for more := true; more; {
		err := pgx.BeginFunc(ctx, s.pool, func(tx pgx.Tx) error {
			more = false
			var floor int64
			err := tx.QueryRow(ctx, "SELECT floor FROM "+s.schema+".meta FOR UPDATE SKIP LOCKED").Scan(&floor)
			if errors.Is(err, pgx.ErrNoRows) {
				return nil
			}
			if err != nil {
				return err
			}
			var collected, forgotten int
			if err := tx.QueryRow(ctx, s.sql.sweepExpired, grace, sweepRows).Scan(&collected); err != nil {
				return err
			}
			err = tx.QueryRow(ctx, s.sql.sweepGone, grace, sweepRows).Scan(&forgotten)
			more = max(collected, forgotten) == sweepRows
			return err
		})
		if err != nil {
			return err
		}
	}
	return nil
}
