package postgres

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/freshet-cache/freshet/store"
)

// crowd is writers of many keys, each over a connection of its own, which can be held up
// when they have checked their guards.
type crowd struct {
	t           *testing.T
	s           *Store
	hold, watch *pgx.Conn // what a transaction sees of the activity stands still: another one looks
}

const writers = 40 // more than there are stripes

func crowded(t *testing.T) *crowd {
	server := start(t)
	s := open(t, Options{URL: fresh(t, Migration{}) + "&pool_max_conns=48", Sweep: time.Hour})
	c := &crowd{t, s, admin(t, server), admin(t, server)}
	for i := range writers {
		if err := c.write(i, 0); err != nil {
			t.Fatal(err)
		}
	}
	return c
}

func (c *crowd) exec(sql string) {
	c.t.Helper()
	if _, err := c.hold.Exec(c.t.Context(), strings.ReplaceAll(sql, "{{schema}}", c.s.schema)); err != nil {
		c.t.Fatal(err)
	}
}

// await returns when so many statements wait for locks; meanwhile none of done may end.
func (c *crowd) await(n int, what string, done chan error) {
	c.t.Helper()
	for waiting := 0; waiting < n; {
		if err := c.watch.QueryRow(c.t.Context(), "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'").Scan(&waiting); err != nil {
			c.t.Fatal(err)
		}
		select {
		case err := <-done:
			c.t.Fatalf("%s did not wait: %v", what, err)
		default:
		}
	}
}

func crowdKey(i int) string { return fmt.Sprintf("k%02d", i) }

// write writes the i-th key, in one of three ways.
func (c *crowd) write(i int, under uint64) error {
	m := put(crowdKey(i), fmt.Sprint(under), token(under))
	if i%3 == 0 {
		m[0].TTL = store.KeepTTL
	}
	if i%5 == 0 && i > 0 {
		m = append(m, put(crowdKey(i)+"x", "v", token(under))...)
	}
	_, err := c.s.Commit(c.t.Context(), store.ID{byte(i)}, m)
	return err
}

// guard installs a guard while every writer is under way under the one that old says.
func (c *crowd) guard(what, low, high string, next uint64, old func(i int) uint64) {
	c.t.Helper()
	c.exec("BEGIN")
	c.exec("SELECT FROM {{schema}}.rows FOR UPDATE") // writes get as far as their rows
	done, installed := make(chan error, writers), make(chan error, 1)
	for i := range writers {
		go func() { done <- c.write(i, old(i)) }()
	}
	c.await(writers, what+": a write", done)
	go func() { installed <- c.s.SetGuard(c.t.Context(), low, high, token(next)) }()
	c.await(writers+1, what+", while writes under older guards are under way,", installed)
	c.exec("ROLLBACK")
	for range writers {
		if err := <-done; err != nil {
			c.t.Errorf("%s: a write that had checked its guard: %v", what, err)
		}
	}
	if err := <-installed; err != nil {
		c.t.Fatalf("%s: %v", what, err)
	}
	for i := range writers {
		over := crowdKey(i) >= low && (high == "" || crowdKey(i) < high)
		if err := c.write(i, old(i)); over != errors.Is(err, store.ErrGuardMismatch) || !over && err != nil {
			c.t.Errorf("%s: a late write of %s under %d: %v", what, crowdKey(i), old(i), err)
		}
		if err := c.write(i, next); over != (err == nil) {
			c.t.Errorf("%s: a write of %s under it: %v", what, crowdKey(i), err)
		}
	}
	if err := covered(c.t.Context(), c.s); err != nil {
		c.t.Errorf("%s: %v", what, err)
	}
}

// A guard is installed only when every write that has checked an older one is done: over
// more connections than there are stripes, whichever way a write goes, also when the new
// guard joins several older ones, or cuts one.
func TestFenceWaitsForEveryConnection(t *testing.T) {
	c := crowded(t)
	for i, r := range [][2]string{{"", "k10"}, {"k10", "k25"}, {"k25", ""}} {
		if err := c.s.SetGuard(t.Context(), r[0], r[1], token(uint64(i+1))); err != nil {
			t.Fatal(err)
		}
	}
	in := func(i int) bool { return i >= 10 && i < 25 }
	c.guard("a guard over several", "", "", 4, func(i int) uint64 {
		switch {
		case i < 10:
			return 1
		case in(i):
			return 2
		}
		return 3
	})
	c.guard("a guard that cuts one", "k10", "k25", 5, func(int) uint64 { return 4 })
	c.guard("a guard that overlaps others", "k05", "k20", 6, func(i int) uint64 {
		if in(i) {
			return 5
		}
		return 4
	})
}
