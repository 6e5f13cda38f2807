package etcd

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/freshet-cache/freshet/store"
)

// What cannot keep the promises is refused, and the error says what to do.
func TestRefusals(t *testing.T) {
	url := fresh(t)
	try := func(url, cluster string) error {
		s, err := Open(t.Context(), Options{URL: url, Cluster: cluster, Timeout: time.Second})
		if err == nil {
			_ = s.Close()
		}
		return err
	}
	for _, step := range []struct {
		cluster string
		want    error
	}{{"one", nil}, {"one", nil}, {"", nil}, {"two", ErrOtherOwner}} {
		if err := try(url, step.cluster); !errors.Is(err, step.want) {
			t.Errorf("cluster %q: %v", step.cluster, err)
		}
	}
	if err := Migrate(t.Context(), Options{URL: url}, false); err != nil {
		t.Error(err)
	}
	if err := try(url, "two"); !errors.Is(err, ErrOtherOwner) {
		t.Errorf("after a migration that adopts nothing: %v", err)
	}
	if err := errors.Join(Migrate(t.Context(), Options{URL: url}, true), try(url, "two")); err != nil {
		t.Errorf("after the prefix was adopted: %v", err)
	}
	s := open(t, Options{URL: url})
	for damage, want := range map[string]string{"\x63": "newer freshet", "\x01": "not freshet's", "": "not freshet's"} {
		if _, err := s.client.Put(t.Context(), s.prefix+"meta", damage); err != nil {
			t.Fatal(err)
		}
		if err := try(url, ""); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("meta is %q: %v", damage, err)
		}
	}
	if _, err := s.client.Delete(t.Context(), s.guardKey("")); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Commit(t.Context(), store.ID{1}, put("k", "v", store.Token{})); !errors.Is(err, store.ErrRefused) {
		t.Errorf("a write where the guards were deleted: %v", err)
	}
	if err := s.SetGuard(t.Context(), "", "", token(1)); !errors.Is(err, store.ErrRefused) {
		t.Errorf("a guard where the guards were deleted: %v", err)
	}
	for bad, says := range map[string]string{
		"etcd://me:geheim@127.0.0.1:1/x": "127.0.0.1:1",
		"etcd://me:ge%zzheim@h:1/x":      "cannot be read",
		"etcd://me:geheim@h/x":           "cannot be read",
		"etcd://":                        "cannot be read",
		"http://h:1":                     "cannot be read",
	} {
		if err := try(bad, ""); err == nil || !strings.Contains(err.Error(), says) || strings.Contains(err.Error(), "heim") {
			t.Errorf("%s: %v", bad, err)
		}
	}
	cfg, prefix, err := parse("etcds://me:p%40s%2F@a:1,b:2/some/where/", nil)
	if err != nil || cfg.Username != "me" || cfg.Password != "p@s/" || len(cfg.Endpoints) != 2 || cfg.TLS == nil || prefix != "some/where/store/" {
		t.Errorf("a whole URL: %+v, %s, %v", cfg, prefix, err)
	}
}

func TestLimits(t *testing.T) {
	s := open(t, Options{URL: fresh(t)})
	for _, c := range []struct {
		key, value int
		want       error
	}{{0, 1, store.ErrTooLarge}, {1, 0, nil}, {MaxKey, MaxValue, nil}, {MaxKey + 1, 1, store.ErrTooLarge}, {1, MaxValue + 1, store.ErrTooLarge}} {
		_, err := s.Commit(t.Context(), store.ID{1}, put(strings.Repeat("\xff", c.key), strings.Repeat("v", c.value), store.Token{}))
		if !errors.Is(err, c.want) {
			t.Errorf("a key of %d and a value of %d bytes: %v", c.key, c.value, err)
		}
	}
	if err := s.SetGuard(t.Context(), strings.Repeat("\xff", MaxKey), strings.Repeat("\xff", MaxKey)+"\x00", token(1)); err != nil {
		t.Errorf("a guard over the longest key: %v", err)
	}
	var muts []store.Mutation
	for i := range MaxBatch {
		muts = append(muts, put(fmt.Sprint("k", i), strings.Repeat("v", 10_000), store.Token{})...)
	}
	if _, err := s.Commit(t.Context(), store.ID{1}, muts); err != nil {
		t.Errorf("the largest batch: %v", err)
	}
	if _, err := s.Commit(t.Context(), store.ID{1}, append(muts, put("one more", "v", store.Token{})...)); !errors.Is(err, store.ErrTooLarge) {
		t.Errorf("a larger batch: %v", err)
	}
	large := append(put("a", strings.Repeat("v", MaxValue), store.Token{}), put("b", strings.Repeat("v", MaxValue), store.Token{})...)
	if _, err := s.Commit(t.Context(), store.ID{1}, large); !errors.Is(err, store.ErrTooLarge) {
		t.Errorf("a batch of too many bytes: %v", err)
	}
	if _, err := s.Commit(t.Context(), store.ID{1}, append(put("k", "v", store.Token{}), put("k", "w", store.Token{})...)); !errors.Is(err, store.ErrRefused) {
		t.Errorf("a batch that writes a key twice: %v", err)
	}
	for _, r := range [][2]string{{"m", "m"}, {"m", "a"}} {
		if err := s.SetGuard(t.Context(), r[0], r[1], token(1)); !errors.Is(err, store.ErrRefused) {
			t.Errorf("a guard over [%s,%s): %v", r[0], r[1], err)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := s.Commit(ctx, store.ID{1}, put("k", "v", store.Token{})); !errors.Is(err, store.ErrUnavailable) {
		t.Errorf("a write that was not sent: %v", err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	_, err1 := s.Commit(t.Context(), store.ID{1}, put("k", "v", store.Token{}))
	_, err2 := s.Load(t.Context(), "k")
	err3 := s.SetGuard(t.Context(), "", "", token(1))
	for _, err := range []error{err1, err2, err3} {
		if !errors.Is(err, store.ErrClosed) {
			t.Errorf("after Close: %v", err)
		}
	}
}

// What etcd has answered with an error was not done, unless it gave up waiting.
func TestErrorsAreSorted(t *testing.T) {
	s := &Store{}
	for err, definite := range map[error]bool{rpctypes.ErrNoSpace: true, rpctypes.ErrRequestTooLarge: true, rpctypes.ErrTooManyOps: true,
		rpctypes.ErrPermissionDenied: true, rpctypes.ErrAuthFailed: true, rpctypes.ErrTooManyRequests: true,
		rpctypes.ErrTimeout: false, rpctypes.ErrLeaderChanged: false, rpctypes.ErrStopped: false, rpctypes.ErrTimeoutDueToLeaderFail: false,
		rpctypes.ErrUnhealthy: false, rpctypes.ErrCorrupt: false, context.DeadlineExceeded: false, errors.New("transport is closing"): false} {
		if got := s.failed("writing", err); store.Definite(got) != definite {
			t.Errorf("%v", got)
		}
		if got := s.unsent("reading", err); !store.Definite(got) {
			t.Errorf("before anything was sent: %v", got)
		}
	}
}

// etcd deletes what has expired, and says so with the version of its absence; old
// deletes are forgotten under a floor.
func TestAbsencesAreForgotten(t *testing.T) {
	s := open(t, Options{URL: fresh(t)})
	commit := func(m store.Mutation) store.Version {
		t.Helper()
		stamps, err := s.Commit(t.Context(), store.ID{1}, []store.Mutation{m})
		if err != nil {
			t.Fatal(err)
		}
		return stamps[0].Version
	}
	load := func(key string) store.Row {
		t.Helper()
		r, err := s.Load(t.Context(), key)
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	gone := commit(store.Mutation{Key: "gone", Delete: true})
	brief := commit(store.Mutation{Key: "brief", Value: []byte("v"), TTL: time.Millisecond})
	commit(store.Mutation{Key: "stays", Value: []byte("v"), TTL: time.Hour})
	for load("brief").Exists { // until its lease ends
	}
	if r := load("brief"); r.Version != brief+1 || r.Writer != (store.ID{1}) {
		t.Errorf("after its TTL a row of version %d is %+v", brief, r)
	}
	sweep := func(hours int) {
		t.Helper()
		if err := s.sweep(t.Context(), time.Now().Add(time.Duration(hours)*time.Hour)); err != nil {
			t.Fatal(err)
		}
	}
	sweep(0)
	late := commit(store.Mutation{Key: "late", Delete: true})
	if sweep(1); load("gone").Version <= gone || load("late").Version != late || load("brief").Version != brief+1 {
		t.Errorf("forgotten too early, or not at all: %+v, %+v, %+v", load("gone"), load("late"), load("brief"))
	}
	sweep(2)
	sweep(3)
	r := load("brief")
	if r.Version <= late || r.Version%2 != 1 || r.Writer != (store.ID{}) || load("gone").Version != r.Version {
		t.Errorf("after the grace: %+v, %+v", r, load("gone"))
	}
	if r := load("stays"); !r.Exists || r.TTL <= 0 {
		t.Errorf("what lives was forgotten: %+v", r)
	}
	records, err := s.client.Get(t.Context(), s.goneKey(""), clientv3.WithRange(s.past("gone")), clientv3.WithCountOnly())
	if err != nil || records.Count != 1 {
		t.Errorf("%d records are left of 1, %v", records.Count, err)
	}
	if _, err := s.Commit(t.Context(), store.ID{2}, []store.Mutation{{Key: "gone", Value: []byte("v"), Check: true, Expect: gone}}); !errors.Is(err, store.ErrConflict) {
		t.Errorf("a write on the version of a forgotten delete: %v", err)
	}
	if w := commit(store.Mutation{Key: "gone", Value: []byte("v"), Check: true, Expect: r.Version}); w <= r.Version {
		t.Errorf("version %d follows the floor %d", w, r.Version)
	}
}

// Leases end when their rows leave them, and not before.
func TestLeasesAreGivenBack(t *testing.T) {
	s := open(t, Options{URL: fresh(t)})
	before, err := s.client.Leases(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	m := store.Mutation{Key: "k", Value: []byte("v"), TTL: time.Hour}
	for i := range 20 {
		switch m.TTL = time.Hour; i % 4 {
		case 1:
			m.TTL = store.KeepTTL
		case 3:
			m.TTL = 0
		}
		if _, err := s.Commit(t.Context(), store.ID{1}, []store.Mutation{m}); err != nil {
			t.Fatal(err)
		}
		if r, err := s.Load(t.Context(), "k"); err != nil || !r.Exists || (r.TTL > 0) != (i%4 != 3) {
			t.Fatalf("after write %d: %+v, %v", i, r, err)
		}
	}
	bad := store.Mutation{Key: "k", Value: []byte("v"), TTL: time.Hour, Guard: token(9)}
	if _, err := s.Commit(t.Context(), store.ID{1}, []store.Mutation{bad}); !errors.Is(err, store.ErrGuardMismatch) {
		t.Error(err)
	}
	for end := time.Now().Add(30 * time.Second); ; {
		after, err := s.client.Leases(t.Context())
		if err == nil && len(after.Leases) <= len(before.Leases) {
			break
		}
		if time.Now().After(end) {
			t.Fatalf("%d leases became %d, %v", len(before.Leases), len(after.Leases), err)
		}
	}
}
