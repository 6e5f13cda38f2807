package node

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/freshet-cache/freshet/internal/testkit"
	"github.com/freshet-cache/freshet/store"
)

// brokenStore cannot be asked for more than some pages of its keys.
type brokenStore struct {
	Store
	pages int
}

func (s *brokenStore) Scan(ctx context.Context, from string, limit int) ([]string, string, bool, error) {
	if s.pages--; s.pages < 0 {
		return nil, "", false, fmt.Errorf("%w: at db.internal", store.ErrUnavailable)
	}
	keys, next, _, err := s.Store.Scan(ctx, from, min(limit, 1))
	return keys, next, false, err
}

func (s *brokenStore) Count(context.Context) (int, error) { return 0, store.ErrUnavailable }

func (s *brokenStore) Load(context.Context, string) (store.Row, error) {
	return store.Row{}, store.ErrUnavailable
}

// What needs the store says that it does not answer, and says nothing of where the store is.
func TestCommandsWithoutTheStore(t *testing.T) {
	out := &logged{}
	p := start(t, func(c *Config) { c.LogOutput = out })
	n, c := p.nodes[0], dial(t, p.nodes[0].addr)
	c.answers("OK", "MSET", "a", "1", "b", "2", "c", "3")
	broken := &brokenStore{Store: p.store}
	p.store = broken
	defer func() { p.store = broken.Store }()
	for _, cmd := range []string{"SCAN 0", "KEYS *", "DBSIZE", "RANDOMKEY", "FR.EXPLAIN a", "FLUSHALL", "FLUSHDB SYNC"} {
		want := "TRYAGAIN " + store.ErrUnavailable.Error()
		if r := c.do(strings.Fields(cmd)...); r.Kind != '-' || r.Text != want {
			t.Errorf("%s is answered with %v, want %s", cmd, r, want)
		}
	}
	c.answers("[0 []]", "SCAN", "0", "TYPE", "list") // nothing has that type, and the store is not asked
	broken.pages = 1
	c.answers("TRYAGAIN", "KEYS", "*")
	broken.pages = 2
	c.answers("PARTIAL 2 keys were removed, and the rest was not: TRYAGAIN "+store.ErrUnavailable.Error(), "FLUSHALL")
	c.answers("(nil)", "GET", "b")
	c.answers("3", "GET", "c")
	c.answers("OK", "FLUSHALL", "ASYNC")
	testkit.True(t, "FLUSHALL ASYNC ends", func() bool { running, _, _ := n.flushing.state(); return !running })
	if info := c.do("INFO").Text; !strings.Contains(info, "flush_last:TRYAGAIN "+store.ErrUnavailable.Error()+"\r\n") {
		t.Errorf("INFO says %s", info)
	}
	if got := out.text(); !strings.Contains(got, "FLUSHALL ASYNC has ended before every key was removed") || strings.Contains(got, "has removed every key") {
		t.Errorf("the log says %q", got)
	}
	n.flushing.mu.Lock()
	n.flushing.running = true
	n.flushing.mu.Unlock()
	c.answers("TRYAGAIN a FLUSHALL ASYNC is under way", "FLUSHALL", "ASYNC")
	n.flushing.mu.Lock()
	n.flushing.running = false
	n.flushing.mu.Unlock()
	if err := p.probe(t.Context()); !errors.Is(err, store.ErrUnavailable) {
		t.Errorf("the store answers a probe: %v", err)
	}
}

// A transaction that Redis would not begin, or that has not all of its keys at one node, changes nothing. WATCH has a
// bound.
func TestTransactionsThatAreRefused(t *testing.T) {
	p, mine, theirs := twoNodes(t, func(c *Config) { c.MaxKey = 10 })
	c := dial(t, p.nodes[0].addr)
	longest := mine[1] + strings.Repeat("0", 10-len(mine[1]))
	for want, cmds := range map[string][]string{
		"CROSSSLOT": {"SET " + mine[0] + " v", "SET " + theirs[0] + " v"}, "[OK OK]": {"SET " + mine[1] + " v", "SET " + longest + " v"},
		"EXECABORT Transaction discarded because of: ERR a key of 11 bytes: keys have 1 to 10": {"SET " + mine[0] + " v", "SET " + longest + "0 v"},
	} {
		c.answers("OK", "MULTI")
		for _, cmd := range cmds {
			c.answers("QUEUED", strings.Fields(cmd)...)
		}
		c.answers(want, "EXEC")
	}
	c.answers("[(nil) (nil) v v]", "MGET", mine[0], theirs[0], mine[1], longest)
	watch := []string{"WATCH"}
	for i := range maxWatched - 1 {
		watch = append(watch, fmt.Sprint("w", i))
	}
	c.answers("OK", watch...)
	c.answers("ERR too many watched keys; UNWATCH, and watch up to 1024", "WATCH", mine[0], mine[1])
	c.answers("OK", "WATCH", mine[0])
	c.answers("ERR too many watched keys", "WATCH", mine[1])
	c.answers("OK", "UNWATCH")
	c.answers("OK", "WATCH", mine[1])
	dial(t, p.nodes[1].addr).answers("OK", "SET", mine[0], "w") // it is not watched any more
	c.answers("OK", "MULTI")
	c.answers("QUEUED", "GET", mine[0])
	c.answers("[w]", "EXEC")
	c.answers("OK", "WATCH", theirs[0], theirs[1])
	c.answers("OK", "SET", theirs[1], "w")
	c.answers("OK", "MULTI")
	c.answers("QUEUED", "SET", theirs[0], "w")
	c.answers("(nil)", "EXEC")
	c.answers("(nil)", "GET", theirs[0])
}

// FR.SETV with a deadline that has passed removes the key, and one to come is kept; both tell the version that they leave.
func TestVersionsOfWhatExpires(t *testing.T) {
	p, mine, theirs := twoNodes(t, nil)
	c := dial(t, p.nodes[0].addr)
	for _, key := range []string{mine[0], theirs[0]} {
		first := c.do("FR.SETV", key, "v", "EX", "1000").Text
		c.answers("["+first+" 1]", "FR.VERSION", key)
		if ttl := c.do("TTL", key).Text; ttl != "1000" && ttl != "999" {
			t.Errorf("%s lives for %s s", key, ttl)
		}
		gone := c.do("FR.SETV", key, "v", "PXAT", "1").Text
		if gone <= first && len(gone) <= len(first) {
			t.Errorf("version %s follows %s", gone, first)
		}
		c.answers("["+gone+" 0]", "FR.VERSION", key)
		c.answers("(nil)", "GET", key)
		if again := c.do("FR.SETV", key, "v"); again.Kind != '$' || again.Text == gone {
			t.Errorf("version %s follows %s", again.Text, gone)
		}
		c.answers("-1", "TTL", key)
	}
}
