package postgres

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgtype"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/freshet-cache/freshet/store"
)

// maxTries bounds how often a write looks for its guard again, because the guard was being cut when
// it looked.
const maxTries = 10

// Commit applies muts, all or none, and returns when they are durable. See the errors of package
// store.
func (s *Store) Commit(ctx context.Context, id store.ID, muts []store.Mutation) ([]store.Stamp, error) {
	if len(muts) == 0 {
		return nil, nil
	}
	if err := s.admissible(muts); err != nil {
		return nil, err
	}
	conn, err := s.pool.Acquire(ctx)
	if err != nil { // nothing was sent
		return nil, s.unreached(err)
	}
	defer conn.Release()
	write := s.put
	if m := &muts[0]; len(muts) > 1 || m.Check || m.TTL == store.KeepTTL {
		write = s.commit
	}
	for range maxTries {
		stamps, guarded, err := write(ctx, conn, id, muts)
		switch {
		case err != nil:
			return nil, s.failed("writing "+quote(muts[0].Key), err)
		case stamps != nil:
			return stamps, nil
		case guarded:
			return nil, fmt.Errorf("%w (key %s)", store.ErrGuardMismatch, quote(muts[0].Key))
		}
		// No guard covered the key: the server has crashed since the guards were made, or a guard
		// was being cut. Nothing was written.
		if _, err := conn.Exec(ctx, "SELECT "+s.schema+".cover()"); err != nil {
			return nil, fmt.Errorf("%w (%w)", store.ErrUnavailable, s.failed("covering the keys", err))
		}
	}
	return nil, fmt.Errorf("%w (key %s)", store.ErrGuardMismatch, quote(muts[0].Key))
}

// admissible refuses mutations that the store can never keep.
func (s *Store) admissible(muts []store.Mutation) error {
	for i := range muts {
		switch m := &muts[i]; {
		case len(m.Key) == 0 || len(m.Key) > s.opt.MaxKey:
			return fmt.Errorf("%w: a key of %d bytes; keys have 1 to %d", store.ErrTooLarge, len(m.Key), s.opt.MaxKey)
		case len(m.Value) > s.opt.MaxValue:
			return fmt.Errorf("%w: a value of %d bytes under %s; values have up to %d", store.ErrTooLarge, len(m.Value), quote(m.Key), s.opt.MaxValue)
		}
	}
	return nil
}

func value(m *store.Mutation) []byte {
	switch {
	case m.Delete:
		return nil
	case m.Value == nil:
		return []byte{}
	}
	return m.Value
}

// micros returns a TTL in microseconds; never 0, which means no end.
func micros(ttl time.Duration) int64 { return max(1, ttl.Microseconds()) }

// put writes one key in one statement, without its former value. Without stamps nothing was
// written; guarded says whether a guard covered the key.
func (s *Store) put(ctx context.Context, conn *pgxpool.Conn, id store.ID, muts []store.Mutation) (_ []store.Stamp, guarded bool, err error) {
	m := &muts[0]
	var ttl, version, left pgtype.Int8
	if m.TTL > 0 && !m.Delete {
		ttl = pgtype.Int8{Int64: micros(m.TTL), Valid: true}
	}
	var guards int
	err = conn.QueryRow(ctx, s.sql.put, []byte(m.Key), value(m), uuid(id), uuid(m.Guard), ttl).Scan(&guards, &version, &left)
	if err != nil || !version.Valid {
		return nil, guards > 0, err
	}
	return []store.Stamp{stamp(version.Int64, left.Int64, m)}, true, nil
}

// stamp returns the stamp that m left. The server reads its clock twice, so the TTL may come back a
// microsecond too long.
func stamp(version, left int64, m *store.Mutation) store.Stamp {
	s := store.Stamp{Version: store.Version(version), TTL: time.Duration(left) * time.Microsecond}
	if m.TTL > 0 {
		s.TTL = min(s.TTL, max(m.TTL, time.Microsecond))
	}
	return s
}

// commit writes several keys, or one key on a condition.
func (s *Store) commit(ctx context.Context, conn *pgxpool.Conn, id store.ID, muts []store.Mutation) (_ []store.Stamp, guarded bool, err error) {
	order := make([]int, len(muts))
	for i := range order {
		order[i] = i
	}
	slices.SortFunc(order, func(a, b int) int { return cmp.Compare(muts[a].Key, muts[b].Key) })
	keys, values, tokens := make([][]byte, len(muts)), make([][]byte, len(muts)), make([]pgtype.UUID, len(muts))
	lives, checks, expects := make([]int64, len(muts)), make([]bool, len(muts)), make([]int64, len(muts))
	for i, at := range order {
		m := &muts[at]
		keys[i], values[i], tokens[i] = []byte(m.Key), value(m), uuid(m.Guard)
		switch {
		case m.TTL == store.KeepTTL:
			lives[i] = -1
		case m.TTL > 0:
			lives[i] = micros(m.TTL)
		}
		checks[i], expects[i] = m.Check, int64(m.Expect)
	}
	var status int
	var versions, left []int64
	err = conn.QueryRow(ctx, s.sql.commit, keys, values, tokens, lives, checks, expects, uuid(id)).Scan(&status, &versions, &left)
	if err != nil || status != 0 {
		return nil, status == 1, err
	}
	stamps := make([]store.Stamp, len(muts))
	for i, at := range order {
		stamps[at] = stamp(versions[i], left[i], &muts[at])
	}
	return stamps, true, nil
}

// SetGuard installs token over [low, high) when every write that has checked a guard there is done.
func (s *Store) SetGuard(ctx context.Context, low, high string, token store.Token) error {
	if s.closed.Load() {
		return store.ErrClosed
	}
	for range maxTries {
		done := false
		err := s.guards.QueryRow(ctx, s.sql.guard, []byte(low), []byte(high), uuid(token)).Scan(&done)
		if err == nil && !done { // the server has crashed since the guards were made
			_, err = s.guards.Exec(ctx, "SELECT "+s.schema+".cover()")
		}
		switch {
		case err != nil:
			return s.failed("guarding "+quote(low), err)
		case done:
			return nil
		}
	}
	return fmt.Errorf("%w: guards are lost as fast as they are made", store.ErrUnavailable)
}

// unreached returns the error of a call that was not sent.
func (s *Store) unreached(err error) error {
	if s.closed.Load() {
		return store.ErrClosed
	}
	return fmt.Errorf("%w: no connection: %w", store.ErrUnavailable, err)
}

// state returns the SQLSTATE of an error of PostgreSQL, from any driver; empty if it has none.
func state(err error) string {
	var coded interface{ SQLState() string }
	if errors.As(err, &coded) {
		return coded.SQLState()
	}
	return ""
}

// failed sorts the errors of PostgreSQL. The server has not done what it answers with an error,
// unless it was shutting down just then. Silence proves nothing.
func (s *Store) failed(what string, err error) error {
	err = fmt.Errorf("postgres: %s: %w", what, err)
	var connect *pgconn.ConnectError
	if errors.As(err, &connect) {
		return fmt.Errorf("%w (%w)", store.ErrUnavailable, err)
	}
	code := state(err)
	switch code {
	case "":
		return err
	case "FR003", "23505": // freshet's own code; another write has inserted the key
		return fmt.Errorf("%w (%w)", store.ErrConflict, err)
	case "54000":
		return fmt.Errorf("%w (%w)", store.ErrTooLarge, err)
	case "40003": // statement completion unknown
		return err
	case "57014", "55P03", "40P01", "40001", "53300": // a time limit, locks, a deadlock, no connection left
		return fmt.Errorf("%w (%w)", store.ErrUnavailable, err)
	}
	switch code[:2] {
	case "53": // disk, memory
		return fmt.Errorf("%w (%w)", store.ErrFull, err)
	case "FR", "0A", "21", "22", "23", "25", "26", "28", "2B", "3D", "3F", "42", "44", "P0": // the request was wrong, or not allowed
		return fmt.Errorf("%w (%w)", store.ErrRefused, err)
	}
	return err // the connection, an operator, the system: the call may have taken effect
}
