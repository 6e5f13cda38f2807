package mysql

import (
	"context"
	"database/sql"
	"fmt"
	"strings"

	"github.com/freshet-cache/freshet/store"
)

const (
	lookups    = 64      // keys that one statement reads
	statements = 4 << 20 // bytes of values that one statement writes
)

// admit locks the guards over the keys, in order, and compares them.
func (s *Store) admit(ctx context.Context, conn *sql.Conn, sorted []*change) error {
	var lows []string
	for _, c := range sorted {
		low, known := s.bounds.over(c.Key)
		if !known {
			return s.seek(ctx, conn, c.Mutation, low)
		}
		if len(lows) == 0 || lows[len(lows)-1] != low {
			lows = append(lows, low)
		}
	}
	held, err := hold(ctx, conn, lows, "LOCK IN SHARE MODE")
	if err != nil {
		return err
	}
	for _, c := range sorted {
		low, _ := s.bounds.over(c.Key)
		g, ok := held[low]
		if !ok || !g.covers(c.Key) || g.token != c.Guard {
			return s.seek(ctx, conn, c.Mutation, low)
		}
	}
	return nil
}

// decide locks the rows in the order of their keys, checks the conditions, and draws versions. An
// absent row cannot be locked: write inserts it, which fails if another transaction has inserted
// it.
func decide(ctx context.Context, conn *sql.Conn, sorted []*change) error {
	var base, floor int64
	err := conn.QueryRowContext(ctx, "SELECT base, floor FROM freshet_meta WHERE one = 1 LOCK IN SHARE MODE").Scan(&base, &floor)
	if err != nil {
		return err
	}
	for part, rest := chunk(sorted); len(part) > 0; part, rest = chunk(rest) {
		args := make([]any, len(part))
		for i, c := range part {
			args[i] = []byte(c.Key)
		}
		const one = "(SELECT k, version, value IS NOT NULL, due, " + now + " FROM freshet_rows WHERE k = ? FOR UPDATE)"
		rows, err := conn.QueryContext(ctx, strings.Repeat(one+" UNION ALL ", len(part)-1)+one, args...)
		if err != nil {
			return err
		}
		if err := found(rows, part); err != nil {
			return err
		}
	}
	for _, c := range sorted {
		absent := store.Version(floor)
		switch {
		case c.Check && c.found && c.stamp.Version != c.Expect, c.Check && !c.found && c.Expect != 0 && c.Expect != absent:
			return fmt.Errorf("%w (key %s)", store.ErrConflict, quote(c.Key))
		case !c.found:
			c.stamp.Version = max(store.Version(base), absent)
		}
		c.stamp.Version = (c.stamp.Version | 1) + 1
	}
	return nil
}

// chunk cuts a list into parts of the size of one statement.
func chunk[T any](list []T) (part, rest []T) {
	n := min(len(list), lookups)
	return list[:n], list[n:]
}

// found reads the present rows of the keys, which come in any order.
func found(rows *sql.Rows, part []*change) error {
	defer rows.Close()
	by := map[string]*change{}
	for _, c := range part {
		by[c.Key] = c
	}
	for rows.Next() {
		var k []byte
		var version, at int64
		var alive bool
		var due sql.NullInt64
		if err := rows.Scan(&k, &version, &alive, &due, &at); err != nil {
			return err
		}
		c := by[string(k)]
		c.found, c.at, c.stamp.Version = true, at, store.Version(version)
		if alive && c.expired(due) {
			c.stamp.Version++
		}
		if alive && c.TTL == store.KeepTTL && !c.Delete {
			c.due = due
		}
	}
	return rows.Err()
}

// write writes all rows. It updates those that exist and are locked, and inserts the others.
func (s *Store) write(ctx context.Context, conn *sql.Conn, id store.ID, sorted []*change) error {
	for _, there := range []bool{true, false} {
		var args []any
		size := 0
		flush := func() error {
			const one = "(?, ?, ?, ?, " + now + ", COALESCE(?, " + now + " + ?))"
			if len(args) == 0 {
				return nil
			}
			q := "INSERT INTO freshet_rows (k, value, version, writer, written, due) VALUES " + strings.Repeat(one+", ", len(args)/6-1) + one
			if there {
				q += " ON DUPLICATE KEY UPDATE value = VALUES(value), version = VALUES(version), writer = VALUES(writer), written = VALUES(written), due = VALUES(due)"
			}
			_, err := conn.ExecContext(ctx, q, args...)
			args, size = nil, 0
			return err
		}
		for _, c := range sorted {
			if c.found != there {
				continue
			}
			if size += len(c.Key) + len(c.Value); size > statements || len(args) >= 6*lookups {
				if err := flush(); err != nil {
					return err
				}
			}
			left := ttl(c.Mutation)
			args = append(args, []byte(c.Key), value(c.Mutation), int64(c.stamp.Version), id[:], c.due, left)
			switch {
			case c.due.Valid:
				c.stamp.TTL = c.kept()
			case !c.Delete:
				c.stamp.TTL = micros(left.Int64)
			}
		}
		if err := flush(); err != nil {
			return err
		}
	}
	return nil
}
