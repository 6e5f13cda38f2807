package linear

import (
	"context"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/freshet-cache/freshet/shard"
	"github.com/freshet-cache/freshet/shard/lease"
	"github.com/freshet-cache/freshet/store/memory"
)

// cutting is a cache whose slice is cut and joined; its entries c and x expire, b and y do not.
type cutting struct {
	*Cache[string]
	t   *testing.T
	gen lease.Gen
}

var cutKeys = []string{"b", "c", "x", "y"}

func cutExpires(key string) bool { return key == "c" || key == "x" }

func (c *cutting) grant(low, high string) *shard.Handle {
	c.gen++
	h := shard.NewHandle(lease.Lease{Gen: c.gen, Range: lease.Range{Low: low, High: high}}, c.opt.Clock, 1<<62)
	c.acquired(h, 0)
	return h
}

func (c *cutting) give(h *shard.Handle) {
	h.Revoke()
	c.revoked(h)
}

// served wants every entry in memory.
func (c *cutting) served(when string) {
	c.t.Helper()
	for _, k := range cutKeys {
		if v, ok, err := c.Get(c.t.Context(), k); v != "of "+k || !ok || err != nil {
			c.t.Errorf("%s, %s is %q, %v, %v", when, k, v, ok, err)
		}
		if e, ok := c.Peek(k); !ok || e.Value != "of "+k || (e.TTL != 0) != cutExpires(k) {
			c.t.Errorf("%s, %s is %+v, %v", when, k, e, ok)
		}
	}
	if err := c.Ready(c.t.Context(), cutKeys...); err != nil {
		c.t.Error(err)
	}
}

// under wants entries to stand under these leases themselves.
func (c *cutting) under(when string, want ...*shard.Handle) {
	c.t.Helper()
	synctest.Wait()
	for i, k := range cutKeys {
		if e, _ := c.kept.GetIfPresent(k); e.validity.handle != want[i] {
			c.t.Errorf("%s, %s is kept under lease %d, want %d", when, k, e.validity.handle.Gen, want[i].Gen)
		}
	}
}

// A slice that is cut, joined and cut again keeps its entries in memory all the while: they
// move to the lease that goes on within a second, so that no line of leases grows however often
// that happens. What expires still expires, and a cache that is closed meanwhile does nothing.
func TestEntriesMoveToTheLeaseThatGoesOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := &counter{}
		cache, err := New(Options[string]{Store: memory.New(memory.Options{}), Codec: String(), Recorder: n, Peers: hooks{}})
		if err != nil {
			t.Fatal(err)
		}
		c := &cutting{Cache: cache, t: t}
		whole := c.grant("a", "z")
		synctest.Wait()
		for _, k := range cutKeys {
			ttl := time.Duration(0)
			if cutExpires(k) {
				ttl = 30 * time.Second
			}
			if _, err := c.SetTTL(t.Context(), k, "of "+k, ttl); err != nil {
				t.Fatal(err)
			}
		}
		loads := n.loads.Load()
		for range 3 {
			low, high := c.grant("a", "m"), c.grant("m", "z")
			c.give(whole)
			c.served("after a cut")
			time.Sleep(retagDelay - time.Millisecond)
			c.served("before entries move")
			time.Sleep(2 * time.Millisecond)
			c.under("after a cut", low, low, high, high)
			c.served("when entries have moved")
			whole = c.grant("a", "z")
			c.give(low)
			c.give(high)
			c.served("after a join")
			time.Sleep(2 * retagDelay)
			c.under("after a join", slices.Repeat([]*shard.Handle{whole}, len(cutKeys))...)
			c.served("long after a join")
		}
		if n.loads.Load() != loads {
			t.Error("the store was asked for what is in memory")
		}
		time.Sleep(30 * time.Second)
		for _, k := range cutKeys {
			if _, ok := c.Peek(k); ok == cutExpires(k) {
				t.Errorf("after its TTL, %s is in memory: %v", k, ok)
			}
		}
		c.grant("a", "m")
		c.grant("m", "z")
		c.give(whole)
		if err := c.Close(context.Background()); err != nil {
			t.Error(err)
		}
		time.Sleep(2 * retagDelay)
	})
}
