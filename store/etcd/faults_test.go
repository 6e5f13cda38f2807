package etcd

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/freshet-cache/freshet/internal/etcdserver"
	"github.com/freshet-cache/freshet/store"
	"github.com/freshet-cache/freshet/store/storetest"
)

// between lets a test stand between the client and etcd.
func between(f func(ctx context.Context, method string, req any, send func() error) error) func(*clientv3.Config) {
	return func(c *clientv3.Config) {
		c.DialOptions = append(c.DialOptions, grpc.WithChainUnaryInterceptor(
			func(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
				return f(ctx, method, req, func() error { return invoke(ctx, method, req, reply, cc, opts...) })
			}))
	}
}

// A transaction that etcd has carried out, though it answers that it gave up, is not
// sent again: the comparison would fail, and look like a no.
func TestNothingIsSentTwice(t *testing.T) {
	var sent atomic.Int64
	var lose atomic.Bool
	s := open(t, Options{URL: fresh(t), configure: between(func(_ context.Context, method string, req any, send func() error) error {
		err := send()
		if txn, ok := req.(*etcdserverpb.TxnRequest); ok && len(txn.Compare) > 0 && lose.Load() && method == "/etcdserverpb.KV/Txn" {
			sent.Add(1)
			return status.Error(codes.DeadlineExceeded, "context deadline exceeded")
		}
		return err
	})})
	checked := put("k", "v", store.Token{})
	checked[0].Check = true
	for i, do := range []func() error{
		func() error { _, err := s.Commit(t.Context(), store.ID{1}, checked); return err },
		func() error { _, err := s.Commit(t.Context(), store.ID{2}, put("l", "v", store.Token{})); return err },
		func() error { return s.SetGuard(t.Context(), "a", "b", token(1)) },
	} {
		sent.Store(0)
		lose.Store(true)
		err := do()
		lose.Store(false)
		if err == nil || store.Definite(err) || sent.Load() != 1 {
			t.Errorf("%d: sent %d times, %v", i, sent.Load(), err)
		}
	}
	for i, k := range []string{"k", "l"} {
		if r, err := s.Load(t.Context(), k); err != nil || r.Writer != (store.ID{byte(i + 1)}) {
			t.Errorf("%s is %+v, %v", k, r, err)
		}
	}
	if r, err := s.Load(t.Context(), "a"); err != nil || r.Guard != token(1) {
		t.Errorf("the guard that was not answered: %+v, %v", r, err)
	}
}

// The fence holds while members are killed under it; without a quorum every wait ends,
// and with it again the store goes on.
func TestMembersDie(t *testing.T) {
	start(t) // or skip
	c, err := etcdserver.Start(t.Context(), t.TempDir(), 3)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Stop()
	s := open(t, Options{URL: of(c, "x"), Timeout: 2 * time.Second})
	ctx, stop := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	wg.Go(func() {
		for i := 0; ctx.Err() == nil && i < 3; i++ {
			c.Kill(i % 3)
			before, _ := s.Load(t.Context(), "a")
			for r := before; ctx.Err() == nil && r.Version == before.Version; { // it goes on without
				r, _ = s.Load(t.Context(), "a")
			}
			if err := c.Resume(i % 3); err != nil {
				t.Error(err)
			}
		}
	})
	err = storetest.Fence{Rounds: 200, Faults: true}.Holds(t.Context(), s)
	stop()
	wg.Wait()
	if err != nil {
		t.Fatal(err)
	}
	again := func() error {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		err := s.SetGuard(ctx, "", "", store.Token{})
		for err != nil && ctx.Err() == nil {
			err = s.SetGuard(ctx, "", "", store.Token{})
		}
		return err
	}
	if err := again(); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Commit(t.Context(), store.ID{1}, put("k", "v", store.Token{})); err != nil {
		t.Fatal(err)
	}
	c.Kill(0)
	c.Kill(1)
	if _, err := s.Commit(t.Context(), store.ID{2}, put("k", "w", store.Token{})); err == nil || store.Definite(err) {
		t.Errorf("a write without a quorum: %v", err)
	}
	if _, err := s.Load(t.Context(), "k"); err == nil {
		t.Error("a read without a quorum")
	}
	if err := s.SetGuard(t.Context(), "", "", token(1)); !errors.Is(err, store.ErrUnavailable) {
		t.Errorf("a guard without a quorum, whose reading fails: %v", err)
	}
	bounded, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	if _, err := Open(bounded, Options{URL: of(c, "x"), Timeout: 500 * time.Millisecond}); err == nil || !strings.Contains(err.Error(), "quorum") || bounded.Err() != nil {
		t.Errorf("opened without a quorum: %v", err)
	}
	if err := errors.Join(c.Resume(0), c.Resume(1), again()); err != nil {
		t.Fatal(err)
	}
	if r, err := s.Load(t.Context(), "k"); err != nil || !r.Exists {
		t.Errorf("after all: %+v, %v", r, err)
	}
}

// A lease that ends before its row is written costs an attempt, and the space alarm
// refuses writes; both on an etcd of their own.
func TestRefusedByEtcd(t *testing.T) {
	start(t) // or skip
	c, err := etcdserver.Start(t.Context(), t.TempDir(), 1)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Stop()
	admin, err := clientv3.New(clientv3.Config{Endpoints: c.Endpoints()})
	if err != nil {
		t.Fatal(err)
	}
	defer admin.Close()
	var end atomic.Bool
	s := open(t, Options{URL: of(c, "x"), configure: between(func(ctx context.Context, method string, req any, send func() error) error {
		if txn, ok := req.(*etcdserverpb.TxnRequest); ok && len(txn.Compare) > 0 && end.Swap(false) {
			for _, op := range txn.Success {
				if p := op.GetRequestPut(); p.GetLease() != 0 {
					if _, err := admin.Revoke(ctx, clientv3.LeaseID(p.Lease)); err != nil {
						t.Error(err)
					}
				}
			}
		}
		return send()
	})})
	end.Store(true)
	m := put("k", "v", store.Token{})
	m[0].TTL = time.Hour
	if stamps, err := s.Commit(t.Context(), store.ID{1}, m); err != nil || stamps[0].TTL != time.Hour || end.Load() {
		t.Errorf("a write whose lease had ended: %+v, %v", stamps, err)
	}
	members, err := admin.MemberList(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	_, err = etcdserverpb.NewMaintenanceClient(admin.ActiveConnection()).Alarm(t.Context(), &etcdserverpb.AlarmRequest{
		Action: etcdserverpb.AlarmRequest_ACTIVATE, MemberID: members.Members[0].ID, Alarm: etcdserverpb.AlarmType_NOSPACE})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Commit(t.Context(), store.ID{2}, put("k", "w", store.Token{})); !errors.Is(err, store.ErrFull) {
		t.Errorf("a write without space: %v", err)
	}
	if r, err := s.Load(t.Context(), "k"); err != nil || r.Writer != (store.ID{1}) {
		t.Errorf("a read without space: %+v, %v", r, err)
	}
}

// The guards always cover all keys once, whatever ranges they were set over, and
// stand where they were set last.
func TestGuardsCoverAllKeys(t *testing.T) {
	s := open(t, Options{URL: fresh(t)})
	r := rand.New(rand.NewPCG(7, 7))
	stands := map[string]store.Token{}
	keys := strings.Split("a b c d e f g h", " ")
	for n := range uint64(300) {
		low, high := "", ""
		if i := r.IntN(len(keys) + 1); i < len(keys) {
			low = keys[i]
		}
		if j := r.IntN(len(keys) + 1); j < len(keys) && keys[j] > low {
			high = keys[j]
		}
		if r.IntN(3) == 0 && low != "" {
			high = low + "\x00"
		}
		if err := s.SetGuard(t.Context(), low, high, token(n+1)); err != nil {
			t.Fatal(err)
		}
		for _, k := range keys {
			if k >= low && (high == "" || k < high) {
				stands[k] = token(n + 1)
			}
			if row, err := s.Load(t.Context(), k); err != nil || row.Guard != stands[k] {
				t.Fatalf("after %d: the guard over %s is %v, %v, want %v", n, k, row.Guard, err, stands[k])
			}
		}
		k := keys[r.IntN(len(keys))]
		if _, err := s.Commit(t.Context(), store.ID{1}, put(k, "v", stands[k])); err != nil {
			t.Fatalf("after %d: a write under the guard over %s: %v", n, k, err)
		}
		if err := covered(t.Context(), s); err != nil {
			t.Fatalf("after %d: %v", n, err)
		}
	}
	var wg sync.WaitGroup
	for w := range 6 { // and by several at once
		wg.Go(func() {
			r := rand.New(rand.NewPCG(8, uint64(w)))
			for n := range uint64(40) {
				i := r.IntN(len(keys))
				low, high := keys[i], ""
				if j := i + 1 + r.IntN(len(keys)-i); j < len(keys) {
					high = keys[j]
				}
				if err := s.SetGuard(t.Context(), low, high, token(1000*uint64(w)+n)); err != nil && !errors.Is(err, store.ErrUnavailable) {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	if err := covered(t.Context(), s); err != nil {
		t.Fatalf("after several at once: %v", err)
	}
}

// A guard that comes between the reading of a SetGuard and its writing is seen: the
// one that came last covers its range, the other over the rest of its own.
func TestGuardsThatComeBetween(t *testing.T) {
	for _, inner := range [][2]string{{"b", "d"}, {"", "b"}, {"aa", "ab"}, {"b", ""}, {"", ""}, {"0", "aa"}, {"c", "d"}, {"a", "c"}} {
		url := fresh(t)
		other := open(t, Options{URL: url})
		for i, low := range []string{"a", "aaa", "b", "bb", "c", "d"} {
			if err := other.SetGuard(t.Context(), low, "", token(uint64(i+10))); err != nil {
				t.Fatal(err)
			}
		}
		var armed atomic.Bool
		s := open(t, Options{URL: url, configure: between(func(ctx context.Context, method string, req any, send func() error) error {
			if txn, ok := req.(*etcdserverpb.TxnRequest); ok && len(txn.Compare) > 0 && armed.Swap(false) {
				if err := other.SetGuard(ctx, inner[0], inner[1], token(1)); err != nil {
					t.Error(err)
				}
			}
			return send()
		})})
		armed.Store(true)
		if err := s.SetGuard(t.Context(), "a", "c", token(2)); err != nil {
			t.Error(err)
		}
		if err := covered(t.Context(), s); err != nil || armed.Load() {
			t.Errorf("with [%s,%s) between: %v", inner[0], inner[1], err)
		}
		for _, k := range []string{"0", "1", "a", "aa", "aaa", "b", "bb", "c", "cc", "d", "z"} {
			r, err := s.Load(t.Context(), k)
			in := func(low, high string) bool { return low <= k && (high == "" || k < high) }
			if err != nil || in("a", "c") != (r.Guard == token(2)) || !in("a", "c") && in(inner[0], inner[1]) != (r.Guard == token(1)) {
				t.Errorf("with [%s,%s) between: over %s stands %v, %v", inner[0], inner[1], k, r.Guard, err)
			}
		}
	}
}

func covered(ctx context.Context, s *Store) error {
	r, err := s.client.Get(ctx, s.guardKey(""), clientv3.WithRange(s.past("guard")))
	if err != nil {
		return err
	}
	end := ""
	for i, kv := range r.Kvs {
		g, err := s.guard(kv)
		if err != nil || g.low != end || i > 0 && end == "" {
			return fmt.Errorf("a guard begins at %q where the last ended at %q, %w", g.low, end, err)
		}
		end = g.high
	}
	if len(r.Kvs) == 0 || end != "" {
		return fmt.Errorf("%d guards end at %q", len(r.Kvs), end)
	}
	return nil
}

// A user who may write under the prefix, and nowhere else, is enough.
func TestLogIn(t *testing.T) {
	start(t) // or skip
	c, err := etcdserver.Start(t.Context(), t.TempDir(), 1)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Stop()
	admin, err := clientv3.New(clientv3.Config{Endpoints: c.Endpoints()})
	if err != nil {
		t.Fatal(err)
	}
	defer admin.Close()
	do := func(_ any, err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	ctx := t.Context()
	do(admin.UserAdd(ctx, "root", "root"))
	do(admin.UserGrantRole(ctx, "root", "root"))
	do(admin.RoleAdd(ctx, "freshet"))
	do(admin.RoleGrantPermission(ctx, "freshet", "x/store/", clientv3.GetPrefixRangeEnd("x/store/"), clientv3.PermissionType(clientv3.PermReadWrite)))
	do(admin.UserAdd(ctx, "server", "p@ss/w"))
	do(admin.UserGrantRole(ctx, "server", "freshet"))
	do(admin.AuthEnable(ctx))
	url := func(user, prefix string) string {
		return strings.Replace(of(c, prefix), "etcd://", "etcd://"+user+"@", 1)
	}
	for bad, says := range map[string]string{url("server:wrong", "x"): "authentication failed", url("server:p%40ss%2Fw", "y"): "permission denied", of(c, "x"): "user name is empty"} {
		s, err := Open(ctx, Options{URL: bad, Timeout: 10 * time.Second})
		if err == nil {
			_ = s.Close()
		}
		if err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: %v", bad, err)
		}
	}
	s := open(t, Options{URL: url("server:p%40ss%2Fw", "x"), Cluster: "c"})
	for _, c := range storetest.Checks {
		if c.Name == "RowsComeBack" || c.Name == "LivesEnd" {
			if err := c.Check(ctx, s); err != nil {
				t.Errorf("%s: %v", c.Name, err)
			}
		}
	}
	if err := s.SetGuard(ctx, "a", "b", token(1)); err != nil {
		t.Error(err)
	}
	if err := s.sweep(ctx, time.Now()); err != nil {
		t.Error(err)
	}
}
