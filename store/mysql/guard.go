package mysql

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/freshet-cache/freshet/store"
)

// guard is a row of freshet_guards.
type guard struct {
	low, high string // an empty high means no upper end
	token     store.Token
}

func (g guard) covers(key string) bool { return g.low <= key && (g.high == "" || key < g.high) }

// bounds remembers where guards begin. A wrong entry costs only a statement, because every write
// locks the row of the guard and compares it.
type bounds struct {
	mu   sync.Mutex
	lows []string // sorted
}

// over returns where the guard over a key begins, as far as this process knows.
func (b *bounds) over(key string) (low string, known bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	i, exact := slices.BinarySearch(b.lows, key)
	switch {
	case exact:
		return key, true
	case i == 0:
		return "", false
	}
	return b.lows[i-1], true
}

// learn records that a guard begins at low, and that no other begins below high.
func (b *bounds) learn(low, high string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	i, _ := slices.BinarySearch(b.lows, low)
	j := len(b.lows)
	if high != "" {
		j, _ = slices.BinarySearch(b.lows, high)
	}
	b.lows = slices.Replace(b.lows, i, max(i, j), low)
}

// find reads the guard over a key, without a lock, and remembers where it begins.
func (b *bounds) find(ctx context.Context, conn *sql.Conn, key string) (g guard, err error) {
	var low, high, token []byte
	err = conn.QueryRowContext(ctx, "SELECT low, high, token FROM freshet_guards WHERE low <= ? ORDER BY low DESC LIMIT 1", []byte(key)).Scan(&low, &high, &token)
	g = guard{string(low), string(high), wide(token)}
	switch {
	case errors.Is(err, sql.ErrNoRows), err == nil && !g.covers(key):
		return g, fmt.Errorf("%w: no guard is over %s; somebody has changed freshet_guards: empty it, and run freshet migrate", store.ErrRefused, quote(key))
	case err == nil:
		b.learn(g.low, g.high)
	}
	return g, err
}

// hold locks guards in order, each by its primary key, and returns those that exist as they are
// under the lock. Any other way to find them would lock neighbours too.
func hold(ctx context.Context, conn *sql.Conn, lows []string, how string) (map[string]guard, error) {
	held := map[string]guard{}
	for part, rest := chunk(lows); len(part) > 0; part, rest = chunk(rest) {
		one := "(SELECT low, high, token FROM freshet_guards WHERE low = ? " + how + ")"
		args := make([]any, len(part))
		for i, low := range part {
			args[i] = []byte(low)
		}
		rows, err := conn.QueryContext(ctx, strings.Repeat(one+" UNION ALL ", len(part)-1)+one, args...)
		if err != nil {
			return nil, err
		}
		defer rows.Close()
		for rows.Next() {
			var low, high, token []byte
			if err := rows.Scan(&low, &high, &token); err != nil {
				return nil, err
			}
			held[string(low)] = guard{string(low), string(high), wide(token)}
		}
		if err := rows.Err(); err != nil {
			return nil, err
		}
	}
	return held, nil
}

// SetGuard installs token over [low, high) when every write that has checked a guard there is done.
func (s *Store) SetGuard(ctx context.Context, low, high string, token store.Token) error {
	switch {
	case s.closed.Load():
		return store.ErrClosed
	case high != "" && high <= low:
		return fmt.Errorf("%w: a guard over the empty range from %s to %s", store.ErrRefused, quote(low), quote(high))
	case max(len(low), len(high)) > maxBound:
		return fmt.Errorf("%w: a guard's bound of %d bytes; bounds have up to %d", store.ErrTooLarge, max(len(low), len(high)), maxBound)
	}
	ctx, cancel := context.WithTimeout(ctx, 4*s.opt.Timeout)
	defer cancel()
	conn, err := s.guards.Conn(ctx)
	if err != nil {
		return s.unreached(err)
	}
	defer conn.Close()
	for ctx.Err() == nil { // another SetGuard has changed the guards in between
		err := s.transact(ctx, conn, "guarding "+quote(low), func() error { return install(ctx, conn, low, high, token) })
		if err == nil {
			s.bounds.learn(low, high)
		}
		if !errors.Is(err, errAgain) {
			return err
		}
	}
	return fmt.Errorf("%w: other guards over %s come all the time: %w", store.ErrUnavailable, quote(low), context.Cause(ctx))
}

// install locks every guard that overlaps the range, and then changes them. It also updates a guard
// that it cuts, and never only inserts beside it, because an insert does not wait for locks.
func install(ctx context.Context, conn *sql.Conn, low, high string, token store.Token) error {
	mine, err := overlapping(ctx, conn, low, high)
	if err != nil {
		return err
	}
	first, last := mine[0], mine[len(mine)-1]
	exec := func(q string, args ...any) {
		for i, a := range args {
			if t, ok := a.(string); ok {
				args[i] = []byte(t)
			}
		}
		if err == nil {
			_, err = conn.ExecContext(ctx, q, args...)
		}
	}
	const change, insert = "UPDATE freshet_guards SET high = ?, token = ? WHERE low = ?", "INSERT INTO freshet_guards (high, token, low) VALUES (?, ?, ?)"
	for _, g := range mine[1:] {
		exec("DELETE FROM freshet_guards WHERE low = ?", g.low)
	}
	if first.low < low {
		exec(change, low, first.token[:], first.low)
		exec(insert, high, token[:], low)
	} else {
		exec(change, high, token[:], low)
	}
	if high != "" && last.high != high { // the keys behind the range keep their token
		exec(insert, last.high, last.token[:], high)
	}
	return err
}

// overlapping locks the guards that overlap a range, and returns them in order.
func overlapping(ctx context.Context, conn *sql.Conn, low, high string) ([]guard, error) {
	rows, err := conn.QueryContext(ctx, `SELECT low FROM freshet_guards WHERE (? = '' OR low < ?)
		AND low >= (SELECT MAX(low) FROM freshet_guards WHERE low <= ?) ORDER BY low`, []byte(high), []byte(high), []byte(low))
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	var lows []string
	for rows.Next() {
		var l []byte
		if err := rows.Scan(&l); err != nil {
			return nil, err
		}
		lows = append(lows, string(l))
	}
	if err := rows.Err(); err != nil {
		return nil, err
	}
	if len(lows) == 0 {
		return nil, fmt.Errorf("%w: freshet_guards is empty; run freshet migrate", store.ErrRefused)
	}
	held, err := hold(ctx, conn, lows, "FOR UPDATE")
	if err != nil {
		return nil, err
	}
	// Other transactions may have changed the guards before the locks were granted. So check that
	// the guards follow one another without a gap, and cover the range.
	var mine []guard
	for i, l := range lows {
		g, ok := held[l]
		if !ok || i > 0 && mine[i-1].high != l {
			return nil, errAgain
		}
		mine = append(mine, g)
	}
	last := mine[len(mine)-1]
	if !mine[0].covers(low) || last.high != "" && (high == "" || last.high < high) {
		return nil, errAgain
	}
	return mine, nil
}
