package mysql

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	mariadb "github.com/go-sql-driver/mysql"

	"github.com/freshet-cache/freshet/store"
)

// maxTries bounds how often a write is tried again that the server has undone. It lost a deadlock,
// or its guard was being cut when it looked.
const maxTries = 10

// errAgain is the error of an attempt that was undone and may be repeated.
var errAgain = errors.New("mysql: the attempt was undone")

// Commit applies muts, all or none, and returns when they are durable. It sends a statement that
// writes on one connection, where database/sql repeats nothing. See the errors of package store.
func (s *Store) Commit(ctx context.Context, id store.ID, muts []store.Mutation) ([]store.Stamp, error) {
	if len(muts) == 0 {
		return nil, nil
	}
	if err := s.admissible(muts); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, 2*s.opt.Timeout)
	defer cancel()
	conn, err := s.db.Conn(ctx)
	if err != nil { // nothing was sent
		return nil, s.unreached(err)
	}
	defer conn.Close()
	write := s.put
	if m := &muts[0]; len(muts) > 1 || m.Check || m.TTL == store.KeepTTL {
		write = s.commit
	}
	for range maxTries {
		stamps, err := write(ctx, conn, id, muts)
		if !errors.Is(err, errAgain) {
			return stamps, err
		}
	}
	return nil, fmt.Errorf("%w: %d attempts to write %s were undone: deadlocks, or guards that change all the time", store.ErrUnavailable, maxTries, quote(muts[0].Key))
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

// ttl returns the time from the write until the row expires, in microseconds; NULL if never. A
// delete has 0: the absence begins at once.
func ttl(m *store.Mutation) sql.NullInt64 {
	switch {
	case m.Delete:
		return sql.NullInt64{Valid: true}
	case m.TTL > 0:
		return sql.NullInt64{Int64: max(1, m.TTL.Microseconds()), Valid: true}
	}
	return sql.NullInt64{}
}

// putSQL writes one key, without its former value, if the guard that begins at low covers the key
// with that token. It returns the version as a generated key. It draws the version when the row is
// locked, and from the floor only while no absence can be removed.
const putSQL = `INSERT INTO freshet_rows (k, value, version, writer, written, due)
	SELECT ?, ?, LAST_INSERT_ID((GREATEST(m.base, m.floor) | 1) + 1), ?, ` + now + `, ` + now + ` + ?
	FROM freshet_guards g JOIN freshet_meta m
	WHERE g.low = ? AND (g.high = '' OR g.high > ?) AND g.token = ? AND m.one = 1 LOCK IN SHARE MODE
	ON DUPLICATE KEY UPDATE version = LAST_INSERT_ID((freshet_rows.version | 1) + 1), value = VALUES(value),
		writer = VALUES(writer), written = ` + now + `, due = ` + now + ` + ?`

// put writes one key in one statement.
func (s *Store) put(ctx context.Context, conn *sql.Conn, id store.ID, muts []store.Mutation) ([]store.Stamp, error) {
	m := &muts[0]
	key, left := []byte(m.Key), ttl(m)
	low, known := s.bounds.over(m.Key)
	if !known {
		return nil, s.seek(ctx, conn, m, low)
	}
	done, err := conn.ExecContext(ctx, putSQL, key, value(m), id[:], left, []byte(low), key, m.Guard[:], left)
	if err != nil {
		return nil, s.failed("writing "+quote(m.Key), err)
	}
	n, err1 := done.RowsAffected()
	version, err2 := done.LastInsertId()
	if err := errors.Join(err1, err2); err != nil { // this driver never returns an error here
		return nil, s.failed("writing "+quote(m.Key), err)
	}
	if n == 0 {
		return nil, s.seek(ctx, conn, m, low)
	}
	stamp := store.Stamp{Version: store.Version(version)}
	if !m.Delete {
		stamp.TTL = micros(left.Int64)
	}
	return []store.Stamp{stamp}, nil
}

// seek looks for the guard over a key, after no guard that begins at low had its token. Either the
// guard really has another token, which is ErrGuardMismatch, or the guard has moved, and the
// attempt may be repeated.
func (s *Store) seek(ctx context.Context, conn *sql.Conn, m *store.Mutation, low string) error {
	g, err := s.bounds.find(ctx, conn, m.Key)
	switch {
	case err != nil:
		return s.unsent(s.failed("looking for the guard over "+quote(m.Key), err))
	case g.low == low && g.token != m.Guard:
		return fmt.Errorf("%w (key %s)", store.ErrGuardMismatch, quote(m.Key))
	}
	return errAgain
}

// transact runs do in a transaction and commits it. Until COMMIT was sent every error is definite:
// the server undoes what is not committed, at the latest when it misses the client.
func (s *Store) transact(ctx context.Context, conn *sql.Conn, what string, do func() error) error {
	_, err := conn.ExecContext(ctx, "START TRANSACTION")
	if err == nil {
		if err = do(); err == nil {
			err = context.Cause(ctx)
		}
	}
	if err != nil {
		s.undo(ctx, conn)
		return s.unsent(s.failed(what, err))
	}
	if _, err := conn.ExecContext(ctx, "COMMIT"); err != nil {
		s.undo(ctx, conn)
		return fmt.Errorf("mysql: %s: the commit was not answered: %w", what, err)
	}
	return nil
}

// undo rolls a transaction back, or drops the connection if that fails.
func (s *Store) undo(ctx context.Context, conn *sql.Conn) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), s.opt.Timeout)
	defer cancel()
	if _, err := conn.ExecContext(ctx, "ROLLBACK"); err != nil {
		_ = conn.Raw(func(any) error { return driver.ErrBadConn })
	}
}

// commit writes several keys, or one key on a condition.
func (s *Store) commit(ctx context.Context, conn *sql.Conn, id store.ID, muts []store.Mutation) (stamps []store.Stamp, err error) {
	sorted := make([]*change, len(muts))
	for i := range muts {
		sorted[i] = &change{Mutation: &muts[i]}
	}
	slices.SortFunc(sorted, func(a, b *change) int { return strings.Compare(a.Key, b.Key) }) // avoids deadlocks
	for i := range sorted[1:] {
		if sorted[i].Key == sorted[i+1].Key {
			return nil, fmt.Errorf("%w: a batch that writes %s twice", store.ErrRefused, quote(sorted[i].Key))
		}
	}
	err = s.transact(ctx, conn, "writing "+quote(muts[0].Key), func() error {
		if err := s.admit(ctx, conn, sorted); err != nil {
			return err
		}
		if err := decide(ctx, conn, sorted); err != nil {
			return err
		}
		return s.write(ctx, conn, id, sorted)
	})
	if err != nil {
		return nil, err
	}
	stamps = make([]store.Stamp, len(muts))
	for _, c := range sorted {
		i := slices.IndexFunc(muts, func(m store.Mutation) bool { return m.Key == c.Key })
		stamps[i] = c.stamp
	}
	return stamps, nil
}

// unreached returns the error of a call that was not sent.
func (s *Store) unreached(err error) error {
	if s.closed.Load() {
		return store.ErrClosed
	}
	return fmt.Errorf("%w: no connection: %w", store.ErrUnavailable, err)
}

// unsent returns the error of a call that has sent nothing that lasts.
func (s *Store) unsent(err error) error {
	if store.Definite(err) || errors.Is(err, errAgain) {
		return err
	}
	return fmt.Errorf("%w (%w)", store.ErrUnavailable, err)
}

// The server's numbers of errors.
const (
	noSuchTable = 1146
	duplicate   = 1062
	deadlock    = 1213
)

// number returns the server's number of an error; 0 if the error is not the server's.
func number(err error) int {
	var answer *mariadb.MySQLError
	if errors.As(err, &answer) {
		return int(answer.Number)
	}
	return 0
}

// failed sorts errors. The server undoes a statement that it answers with an error, unless it was
// shutting down just then. Silence proves nothing.
func (s *Store) failed(what string, err error) error {
	if store.Definite(err) || errors.Is(err, errAgain) {
		return err
	}
	err = fmt.Errorf("mysql: %s: %w", what, err)
	sorted := func(as error) error { return fmt.Errorf("%w (%w)", as, err) }
	switch number(err) {
	case 0:
		switch {
		case errors.Is(err, driver.ErrBadConn): // the driver returns it only for what it has not sent
			return sorted(store.ErrUnavailable)
		case errors.Is(err, mariadb.ErrPktTooLarge):
			return sorted(store.ErrTooLarge)
		case errors.Is(err, ErrReadOnly):
			return sorted(store.ErrRefused)
		}
	case deadlock, duplicate: // the transaction is undone, or will be; another write has inserted the key
		return sorted(errAgain)
	case 1205, 1317, 1969, 3024: // a lock timeout, an operator, time limits
		return sorted(store.ErrUnavailable)
	case 1040, 1203, 1226: // no connection left
		return sorted(store.ErrUnavailable)
	case 1021, 1037, 1038, 1041, 1114: // disk, memory, the table space
		return sorted(store.ErrFull)
	case 1118, 1153, 1406: // the row, the packet, a column
		return sorted(store.ErrTooLarge)
	case 1044, 1045, 1049, 1054, 1064, 1142, 1143, noSuchTable, 1227, 1264, 1290, 1292, 1366, 1665, 1792, 1836: // not allowed, or wrong
		return sorted(store.ErrRefused)
	}
	return err // the connection, the system: the call may have taken effect
}

// change is a mutation that is being committed.
type change struct {
	*store.Mutation
	found bool          // the key has a row, existing or absent
	due   sql.NullInt64 // the deadline that it keeps
	at    int64         // the server's time when the row was locked
	stamp store.Stamp
}

// expired reports whether a deadline has passed.
func (c *change) expired(due sql.NullInt64) bool { return due.Valid && due.Int64 <= c.at }

// kept returns the remaining TTL under a deadline that was kept; never 0, which means no end.
func (c *change) kept() time.Duration { return max(time.Microsecond, micros(c.due.Int64-c.at)) }
