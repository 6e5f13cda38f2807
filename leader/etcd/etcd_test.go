package etcd

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/freshet-cache/freshet/internal/etcdserver"
	"github.com/freshet-cache/freshet/internal/testkit"
	"github.com/freshet-cache/freshet/leader"
)

func TestMain(m *testing.M) {
	code := m.Run()
	if server != nil {
		server.Stop()
	}
	_ = os.RemoveAll(dir)
	os.Exit(code)
}

var (
	server   *etcdserver.Cluster
	dir      string
	prefixes atomic.Int64
)

// servers are three members, which the tests share.
func servers(t *testing.T) *etcdserver.Cluster {
	t.Helper()
	if etcdserver.Bin() == "" {
		if os.Getenv("FRESHET_TEST_REQUIRE") != "" {
			t.Fatal("no etcd, and FRESHET_TEST_REQUIRE is set")
		}
		t.Skip("no etcd: install etcd-server, or name the program in FRESHET_TEST_ETCD")
	}
	if server == nil {
		var err error
		if dir, err = os.MkdirTemp("", "freshet-etcd"); err == nil {
			server, err = etcdserver.Start(t.Context(), dir, 3)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	return server
}

// cluster opens coordinators of one cluster by their addresses.
func cluster(t *testing.T, addrs ...string) (out []*Coordinator) {
	t.Helper()
	prefix := fmt.Sprintf("test%d/", prefixes.Add(1))
	for _, addr := range addrs {
		c, err := Open(t.Context(), Options{Endpoints: servers(t).Endpoints(), Prefix: prefix, Addr: addr})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = c.Close() })
		out = append(out, c)
	}
	return out
}

func lead(t *testing.T, c *Coordinator) leader.Leadership {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	l, err := c.Lead(ctx)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// One leads at a time; what it saved survives it, and whoever is deposed can save
// nothing more.
func TestOneLeadsAtATime(t *testing.T) {
	all := cluster(t, "a:1", "b:1")
	a, b := all[0], all[1]
	if a.Cluster() == "" || a.Cluster() != b.Cluster() || cluster(t, "c:1")[0].Cluster() == a.Cluster() {
		t.Error("a cluster's name is not its own")
	}
	first := lead(t, a)
	if first.State != nil || first.Gone != nil || a.opt.Clock.Now() >= first.Until() {
		t.Errorf("%+v", first)
	}
	testkit.Eventually(t, func() bool { return a.Leader() == "a:1" && b.Leader() == "a:1" })
	next := make(chan leader.Leadership, 1)
	go func() {
		if l, err := b.Lead(t.Context()); err == nil {
			next <- l
		}
	}()
	for i := range 3 {
		if err := a.Save(t.Context(), first.Term, fmt.Append(nil, "state ", i)); err != nil {
			t.Fatal(err)
		}
	}
	if err := b.Save(t.Context(), first.Term, []byte("b's")); !errors.Is(err, leader.ErrDeposed) {
		t.Errorf("who does not lead has saved: %v", err)
	}
	select {
	case l := <-next:
		t.Fatalf("two lead: %+v", l)
	default:
	}
	a.abdicate()
	second := <-next
	if string(second.State) != "state 2" || second.Term <= first.Term {
		t.Errorf("%+v after term %d", second, first.Term)
	}
	if a.opt.Clock.Now() < first.Until() {
		t.Error("the first still leads")
	}
	if err := a.Save(t.Context(), first.Term, []byte("late")); !errors.Is(err, leader.ErrDeposed) {
		t.Errorf("the deposed has saved: %v", err)
	}
	testkit.Eventually(t, func() bool { return a.Leader() == "b:1" })
	if err := b.Close(); err != nil {
		t.Fatal(err)
	}
	if third := lead(t, a); string(third.State) != "state 2" || third.Term <= second.Term {
		t.Errorf("%+v after term %d", third, second.Term)
	}
}

// A leader that is silent is followed by another, after its leadership has ended by
// its own clock.
func TestSilentLeader(t *testing.T) {
	all := cluster(t, "a:1", "b:1")
	a, b := all[0], all[1]
	first := lead(t, a)
	a.mu.Lock()
	a.reign.end() // it renews no more
	a.mu.Unlock()
	second := lead(t, b)
	if now := a.opt.Clock.Now(); now < first.Until() {
		t.Errorf("the second leads at %d, the first until %d", now, first.Until())
	}
	if second.Term <= first.Term {
		t.Error(first.Term, second.Term)
	}
}

// A save that was delayed changes nothing.
func TestLateSave(t *testing.T) {
	a := cluster(t, "a:1")[0]
	l := lead(t, a)
	save := func(state string) {
		t.Helper()
		if err := a.Save(t.Context(), l.Term, []byte(state)); err != nil {
			t.Fatal(err)
		}
	}
	save("one")
	a.mu.Lock()
	before := a.saved
	a.mu.Unlock()
	save("two")
	a.mu.Lock()
	now := a.saved
	a.saved = before // an attempt from before, sent again
	a.mu.Unlock()
	if err := a.Save(t.Context(), l.Term, []byte("one")); err == nil || errors.Is(err, leader.ErrDeposed) {
		t.Errorf("a late save: %v", err)
	}
	a.mu.Lock()
	if a.saved != now {
		t.Errorf("the revision is %d, not %d", a.saved, now)
	}
	a.saved = before
	a.mu.Unlock()
	save("two") // the same again: its answer was lost
	r, err := a.client.Get(t.Context(), a.stateKey())
	if err != nil || string(r.Kvs[0].Value) != "two" {
		t.Error(r, err)
	}
	save("three")
}

// With one of three members gone everything goes on; without a quorum leadership
// ends by the clock, and comes back.
func TestMembersAreLost(t *testing.T) {
	s := servers(t)
	a := cluster(t, "a:1")[0]
	l := lead(t, a)
	s.Kill(0)
	testkit.Eventually(t, func() bool { return a.Save(t.Context(), l.Term, []byte("with two")) == nil })
	s.Kill(1)
	if err := a.Save(t.Context(), l.Term, []byte("with one")); err == nil || errors.Is(err, leader.ErrDeposed) {
		t.Errorf("a save without a quorum: %v", err)
	}
	testkit.Eventually(t, func() bool { return a.opt.Clock.Now() >= l.Until() })
	for i := range 2 {
		if err := s.Resume(i); err != nil {
			t.Fatal(err)
		}
	}
	var again leader.Leadership
	testkit.Eventually(t, func() bool {
		var err error
		again, err = a.Lead(t.Context())
		return err == nil
	})
	if got := string(again.State); again.Term <= l.Term || got != "with two" && got != "with one" {
		t.Errorf("%+v", again)
	}
}

func TestNobodyAnswers(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	_, err := Open(ctx, Options{Endpoints: []string{"127.0.0.1:1"}, Password: "geheim", User: "me"})
	if err == nil || !strings.Contains(err.Error(), "127.0.0.1:1") || strings.Contains(err.Error(), "geheim") {
		t.Error(err)
	}
}
