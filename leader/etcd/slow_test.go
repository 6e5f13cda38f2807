package etcd

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/freshet-cache/freshet/ticks"
)

// slow is an etcd in virtual time, where nobody else leads: a lease counts there from when
// the request has arrived, and the answer takes its time.
type slow struct {
	clientv3.KV
	clientv3.Lease
	mu          sync.Mutex
	there, back time.Duration
	fail        error // of renewals
	over        time.Time
	revoked     int
	anyway      bool // an answer arrives though nobody waits for it any more, as one that comes just then does
}

// set changes what etcd does from here on.
func (s *slow) set(f func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f()
}

// given is how many leases were given back.
func (s *slow) given() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.revoked
}

func (s *slow) travel(ctx context.Context, effect func()) error {
	s.mu.Lock()
	there, back, anyway := s.there, s.back, s.anyway
	s.mu.Unlock()
	for i, d := range []time.Duration{there, back} {
		select {
		case <-time.After(d):
		case <-ctx.Done():
			if !anyway {
				return ctx.Err()
			}
		}
		if i == 0 {
			s.set(effect)
		}
	}
	return nil
}

func (s *slow) Grant(ctx context.Context, ttl int64) (*clientv3.LeaseGrantResponse, error) {
	err := s.travel(ctx, func() { s.over = time.Now().Add(time.Duration(ttl) * time.Second) })
	return &clientv3.LeaseGrantResponse{ID: 5, TTL: ttl}, err
}

func (s *slow) KeepAliveOnce(ctx context.Context, _ clientv3.LeaseID) (*clientv3.LeaseKeepAliveResponse, error) {
	err := s.travel(ctx, func() {
		if s.fail == nil {
			s.over = time.Now().Add(ttl)
		}
	})
	s.mu.Lock()
	defer s.mu.Unlock()
	return &clientv3.LeaseKeepAliveResponse{}, errors.Join(s.fail, err)
}

func (s *slow) Revoke(context.Context, clientv3.LeaseID) (*clientv3.LeaseRevokeResponse, error) {
	s.set(func() { s.revoked++ })
	return &clientv3.LeaseRevokeResponse{}, nil
}

func (s *slow) Get(ctx context.Context, _ string, _ ...clientv3.OpOption) (*clientv3.GetResponse, error) {
	return &clientv3.GetResponse{Kvs: []*mvccpb.KeyValue{{ModRevision: 3, Value: []byte("state")}}}, s.travel(ctx, func() {})
}

func (s *slow) Txn(ctx context.Context) clientv3.Txn { return &elects{s, ctx} }

// elects is a transaction that succeeds.
type elects struct {
	s   *slow
	ctx context.Context
}

func (e *elects) If(...clientv3.Cmp) clientv3.Txn  { return e }
func (e *elects) Then(...clientv3.Op) clientv3.Txn { return e }
func (e *elects) Else(...clientv3.Op) clientv3.Txn { return e }
func (e *elects) Commit() (*clientv3.TxnResponse, error) {
	return &clientv3.TxnResponse{Header: &etcdserverpb.ResponseHeader{Revision: 7}, Succeeded: true}, e.s.travel(e.ctx, func() {})
}

const ttl = 10 * time.Second

// over runs a coordinator over a slow etcd.
func over(t *testing.T, s *slow, f func(t *testing.T, c *Coordinator)) {
	synctest.Test(t, func(t *testing.T) {
		opt := Options{Addr: "a", TTL: ttl, Drift: 1000, Logger: slog.New(slog.DiscardHandler)}
		opt.defaults()
		c := &Coordinator{opt: opt, client: clientv3.NewCtxClient(context.Background())}
		c.client.KV, c.client.Lease = s, s
		c.ctx, c.stop = context.WithCancel(context.Background())
		f(t, c)
		c.abdicate()
		c.stop()
		c.work.Wait()
	})
}

// A leadership counts from when its lease was asked for, and each renewal from when that
// was sent, less the drift: however slow the way there or back is, it ends before etcd's.
func TestLeadershipCountsFromTheRequest(t *testing.T) {
	for _, c := range []struct{ there, back time.Duration }{{0, 0}, {3 * time.Second, 0}, {0, 3 * time.Second}, {time.Second, time.Second}} {
		s := &slow{there: c.there, back: c.back}
		over(t, s, func(t *testing.T, c *Coordinator) {
			length := ticks.Shorten(ticks.Tick(ttl), 1000)
			if length >= ticks.Tick(ttl) {
				t.Fatal("the drift shortens nothing")
			}
			sent := c.opt.Clock.Now()
			l, other, err := c.stand(t.Context())
			if err != nil || other != 0 || l.Term != 7 || string(l.State) != "state" || l.Slack != ticks.Tick(ttl) {
				t.Fatalf("%+v, %d, %v", l, other, err)
			}
			check := func(what string) {
				t.Helper()
				if l.Until() != sent+length {
					t.Errorf("there in %v, back in %v: %s, it ends %v after the request, want %v", s.there, s.back, what, time.Duration(l.Until()-sent), time.Duration(length))
				}
				s.mu.Lock()
				defer s.mu.Unlock()
				if left := time.Duration(l.Until() - c.opt.Clock.Now()); !time.Now().Add(left).Before(s.over) {
					t.Errorf("there in %v, back in %v: %s, it outlives etcd's by %v", s.there, s.back, what, time.Until(s.over)-left)
				}
			}
			check("elected")
			way := s.there + s.back
			time.Sleep(ttl / 4) // the first renewal is sent
			sent = c.opt.Clock.Now()
			time.Sleep(way + 1)
			synctest.Wait()
			check("renewed")
		})
	}
}

// A renewal that fails, or has no answer in time, leaves the end as it was; a lease that
// etcd does not know ends the leadership; and what was given up is not renewed by an answer
// that was on its way.
func TestLeadershipsEnd(t *testing.T) {
	for name, c := range map[string]struct {
		fail error
		back time.Duration
		want func(first ticks.Tick) ticks.Tick
	}{
		"no quorum":  {errors.New("no leader"), 0, func(first ticks.Tick) ticks.Tick { return first }},
		"no answer":  {nil, ttl, func(first ticks.Tick) ticks.Tick { return first }},
		"not found":  {rpctypes.ErrLeaseNotFound, 0, func(ticks.Tick) ticks.Tick { return 0 }},
		"it is well": {nil, 0, func(first ticks.Tick) ticks.Tick { return first + ticks.Tick(ttl/4) }},
	} {
		s := &slow{}
		over(t, s, func(t *testing.T, co *Coordinator) {
			l, _, err := co.stand(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			first := l.Until()
			s.set(func() { s.fail, s.back = c.fail, c.back })
			time.Sleep(ttl/4 + 1)
			synctest.Wait()
			if got := l.Until(); got != c.want(first) {
				t.Errorf("%s: it ends at %d, first it was %d", name, got, first)
			}
		})
	}
	s := &slow{}
	over(t, s, func(t *testing.T, c *Coordinator) {
		l, _, err := c.stand(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		s.set(func() { s.back, s.anyway = time.Second, true })
		time.Sleep(ttl/4 + 1) // a renewal is on its way
		synctest.Wait()
		c.abdicate()
		time.Sleep(2 * time.Second)
		if l.Until() != 0 || s.given() != 1 {
			t.Errorf("it was given up, and lasts until %d; its lease was revoked %d times", l.Until(), s.given())
		}
	})
}

// Whoever is not told in time that it was elected does not lead, and gives the lease back.
func TestElectionsThatTakeTooLong(t *testing.T) {
	s := &slow{back: 4 * time.Second} // three requests in ten seconds
	over(t, s, func(t *testing.T, c *Coordinator) {
		if l, _, err := c.stand(t.Context()); !errors.Is(err, context.DeadlineExceeded) || s.given() != 1 || c.reign != nil {
			t.Errorf("%+v, %v, given back %d times", l, err, s.given())
		}
	})
}
