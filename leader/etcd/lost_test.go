package etcd

import (
	"bytes"
	"context"
	"errors"
	"path/filepath"
	"testing"
	"time"

	"github.com/freshet-cache/freshet/internal/etcdserver"
	"github.com/freshet-cache/freshet/leader"
)

// own starts an etcd of the test's own, and opens coordinators of one cluster.
func own(t *testing.T, addrs ...string) (*etcdserver.Cluster, []*Coordinator) {
	t.Helper()
	servers(t) // or skip
	e, err := etcdserver.Start(t.Context(), t.TempDir(), 1)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(e.Stop)
	var out []*Coordinator
	for _, addr := range addrs {
		c, err := Open(t.Context(), Options{Endpoints: e.Endpoints(), Addr: addr, TTL: 2 * time.Second})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = c.Close() })
		out = append(out, c)
	}
	return e, out
}

// refuses demands that a coordinator does not lead, for the reason that data was lost.
func refuses(t *testing.T, c *Coordinator) {
	t.Helper()
	for {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		_, err := c.Lead(ctx)
		cancel()
		switch {
		case errors.Is(err, ErrLostData):
			return
		case err == nil:
			t.Fatal("it leads from an etcd that has lost its data")
		case t.Context().Err() != nil || errors.Is(err, context.DeadlineExceeded) && ctx.Err() != nil:
			t.Fatalf("it does not say that data was lost: %v", err)
		} // etcd is being reached again
	}
}

// An etcd that has lost its data has no leader and no state. A process of the old cluster
// must not take that for a new one: leases are out of which the state knew.
func TestEtcdLosesItsData(t *testing.T) {
	e, c := own(t, "a", "b")
	l := lead(t, c[0])
	if err := c[0].Save(t.Context(), l.Term, []byte("leases")); err != nil {
		t.Fatal(err)
	}
	if err := e.Lose(t.Context()); err != nil {
		t.Fatal(err)
	}
	refuses(t, c[1])
	if err := c[0].Save(t.Context(), l.Term, []byte("more")); err == nil {
		t.Error("a save is said to be stored in an etcd that knows nothing of the leader")
	}
	refuses(t, c[0])

	d, err := Open(t.Context(), Options{Endpoints: e.Endpoints(), Addr: "d", TTL: 2 * time.Second}) // a new cluster
	if err != nil {
		t.Fatal(err)
	}
	if d.Cluster() == c[0].Cluster() {
		t.Fatal("the name of the lost cluster was drawn again")
	}
	if l := lead(t, d); l.State != nil {
		t.Fatalf("a new cluster begins with %q", l.State)
	}
	refuses(t, c[1]) // while somebody leads there
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
	refuses(t, c[1]) // and when nobody does
}

// An etcd that was restored from a backup knows an older state. A process that has seen a
// newer one must not lead from it.
func TestEtcdIsRestored(t *testing.T) {
	e, c := own(t, "a", "b")
	l := lead(t, c[0])
	if err := c[0].Save(t.Context(), l.Term, []byte("old")); err != nil {
		t.Fatal(err)
	}
	backup := filepath.Join(t.TempDir(), "backup")
	if err := e.Save(t.Context(), backup); err != nil {
		t.Fatal(err)
	}
	l = lead(t, c[0])
	for range 5 {
		if err := c[0].Save(t.Context(), l.Term, []byte("new")); err != nil {
			t.Fatal(err)
		}
	}
	if err := e.Restore(t.Context(), backup); err != nil {
		t.Fatal(err)
	}
	refuses(t, c[0])
}

// A key that somebody has removed is a loss too.
func TestStateIsMissing(t *testing.T) {
	_, c := own(t, "a")
	if _, err := c[0].client.Delete(t.Context(), c[0].stateKey()); err != nil {
		t.Fatal(err)
	}
	refuses(t, c[0])
	if _, err := Open(t.Context(), Options{Endpoints: c[0].opt.Endpoints, Addr: "b"}); err != nil {
		t.Errorf("opening alone refuses: %v", err) // who stands for election does
	}
	if _, err := c[0].client.Delete(t.Context(), c[0].clusterKey()); err != nil {
		t.Fatal(err)
	}
	refuses(t, c[0])
}

func TestStateIsTooLarge(t *testing.T) {
	_, c := own(t, "a")
	l := lead(t, c[0])
	for _, size := range []int{8 << 20, 1600 << 10} { // beyond what the client sends, and what the server takes
		if err := c[0].Save(t.Context(), l.Term, bytes.Repeat([]byte("s"), size)); !errors.Is(err, leader.ErrStateTooLarge) {
			t.Errorf("a state of %d bytes: %v", size, err)
		}
	}
	if err := c[0].Save(t.Context(), l.Term, bytes.Repeat([]byte("s"), 1<<20)); err != nil {
		t.Errorf("a state of 1 MiB is refused: %v", err)
	}
}
