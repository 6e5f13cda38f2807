// Package etcd coordinates a cluster through etcd. One of the processes that stand for election
// leads at a time. The state that it saved survives it, and every process knows its address.
//
// The leader holds a key with an etcd lease. The term is the revision at which the key was created.
// A save is a transaction that compares this revision and the revision of the last saved state, so
// a delayed save changes nothing. The leader counts its leadership from the moment when it sent the
// renewal of the lease, and subtracts the bound of the drift, so its leadership ends before etcd
// elects another leader. A member of etcd that led and was paused may still end a lease that was
// renewed elsewhere (issue 15247 of etcd; newer versions make it rarer). Therefore a new leader
// waits, in addition to the leases that it finds, for as long as its predecessor could believe that
// it leads.
//
// An etcd that lost its data, or was restored from a backup, must not elect a second leader while
// leases of the first one are valid. Every election and every save compare the name of the cluster.
// Only [Open] draws a name, and it stores an empty state with it. A missing state, another name, or
// a revision below an earlier one prevents leadership ([ErrLostData]).
package etcd

import (
	"context"
	"crypto/rand"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/freshet-cache/freshet/clock"
	"github.com/freshet-cache/freshet/internal/drive"
	"github.com/freshet-cache/freshet/leader"
	"github.com/freshet-cache/freshet/ticks"
)

// ErrLostData means that etcd no longer holds what this process has seen there: no process may lead
// from the stored state.
var ErrLostData = errors.New("etcd: data was lost: stop all freshet processes of the cluster, run freshet migrate --adopt, and start them again; until then no slice changes hands")

// Options configure a Coordinator. Endpoints and Addr are required.
type Options struct {
	// Endpoints are the addresses HOST:PORT of the members of etcd.
	Endpoints []string
	// Prefix of every key. Default "freshet/". Clusters that share an etcd need
	// different ones.
	Prefix string
	// Addr is the address of the assigner of this process, for other processes, while it leads.
	Addr string
	// TTL is how long a leader may be silent before another one is elected, in whole seconds.
	// Default 5 s; at least 2 s, the shortest lease of etcd.
	TTL time.Duration
	// Drift bounds how much this machine's clock may run fast or slow, in
	// millionths. Default 200.
	Drift int64
	Clock clock.Clock
	// User, Password and TLS are for the connection to etcd. Default: none.
	User, Password string
	TLS            *tls.Config
	// Logger receives what an operator should know. Default: discard.
	Logger *slog.Logger
}

func (o *Options) defaults() {
	if o.Prefix == "" {
		o.Prefix = "freshet/"
	}
	if o.TTL == 0 {
		o.TTL = 5 * time.Second
	}
	o.TTL = max(2*time.Second, o.TTL).Truncate(time.Second)
	if o.Drift <= 0 {
		o.Drift = 200
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
}

// Coordinator implements leader.Coordinator. It is safe for concurrent use.
type Coordinator struct {
	opt     Options
	client  *clientv3.Client
	cluster string
	leader  atomic.Pointer[string]
	ctx     context.Context
	stop    context.CancelFunc
	work    sync.WaitGroup

	mu    sync.Mutex
	reign *reign // the current leadership of this process; nil if it does not lead
	saved int64  // the last known revision of the state
	seen  int64  // the highest revision in an answer of etcd
}

// reign is one leadership of this process.
type reign struct {
	term  int64
	lease clientv3.LeaseID
	until atomic.Int64
	end   context.CancelFunc
}

// renew extends a leadership, unless it was given up meanwhile.
func (g *reign) renew(until ticks.Tick) {
	for old := g.until.Load(); old != 0 && old < int64(until); old = g.until.Load() {
		if g.until.CompareAndSwap(old, int64(until)) {
			return
		}
	}
}

// Open connects to etcd and waits for its first answer.
func Open(ctx context.Context, opt Options) (*Coordinator, error) {
	opt.defaults()
	client, err := clientv3.New(clientv3.Config{Endpoints: opt.Endpoints, Username: opt.User, Password: opt.Password, TLS: opt.TLS,
		DialTimeout: opt.TTL, DialKeepAliveTime: opt.TTL, DialKeepAliveTimeout: opt.TTL, Logger: zap.NewNop()})
	if err != nil {
		return nil, fmt.Errorf("etcd: no connection to %v: %w", opt.Endpoints, err)
	}
	c := &Coordinator{opt: opt, client: client}
	c.ctx, c.stop = context.WithCancel(context.Background())
	c.leader.Store(new(string))
	if err := c.name(ctx); err != nil {
		c.stop()
		return nil, errors.Join(err, client.Close())
	}
	c.work.Go(c.follow)
	return c, nil
}

// name reads the name of the cluster, or draws one for a new cluster.
func (c *Coordinator) name(ctx context.Context) error {
	key, name := c.clusterKey(), rand.Text()
	r, err := c.client.Txn(ctx).If(clientv3.Compare(clientv3.CreateRevision(key), "=", 0), clientv3.Compare(clientv3.CreateRevision(c.stateKey()), "=", 0)).
		Then(clientv3.OpPut(key, name), clientv3.OpPut(c.stateKey(), "")).Else(clientv3.OpGet(key)).Commit()
	if err != nil {
		return fmt.Errorf("etcd: %v does not answer; is it running, and does it have a quorum?: %w", c.opt.Endpoints, err)
	}
	if c.seen = r.Header.Revision; r.Succeeded {
		c.cluster = name
		return nil
	}
	found := r.Responses[0].GetResponseRange().Kvs
	if len(found) == 0 {
		return fmt.Errorf("%w (%s has a state and no name of a cluster)", ErrLostData, c.opt.Prefix)
	}
	c.cluster = string(found[0].Value)
	return nil
}

// know notes a revision from an answer of etcd. It fails if the revision is lower than an earlier
// one, which means that etcd was restored from a backup.
func (c *Coordinator) know(revision int64) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if revision < c.seen {
		return fmt.Errorf("%w (it answers with revision %d after %d, so it was restored from a backup, or is another etcd)", ErrLostData, revision, c.seen)
	}
	c.seen = revision
	return nil
}

// Cluster returns the name of the cluster, which was drawn when the prefix was first used.
func (c *Coordinator) Cluster() string { return c.cluster }

// Leader returns the last known address of the leader's assigner; empty if no process leads.
func (c *Coordinator) Leader() string { return *c.leader.Load() }

func (c *Coordinator) leaderKey() string  { return c.opt.Prefix + "leader" }
func (c *Coordinator) stateKey() string   { return c.opt.Prefix + "state" }
func (c *Coordinator) clusterKey() string { return c.opt.Prefix + "cluster" }

// ours is the condition that etcd holds the cluster of this process.
func (c *Coordinator) ours() clientv3.Cmp {
	return clientv3.Compare(clientv3.Value(c.clusterKey()), "=", c.cluster)
}

// follow keeps Leader up to date.
func (c *Coordinator) follow() {
	for c.ctx.Err() == nil {
		ctx, cancel := context.WithTimeout(c.ctx, c.opt.TTL)
		r, err := c.client.Txn(ctx).If(c.ours()).Then(clientv3.OpGet(c.leaderKey())).Commit()
		cancel()
		if err != nil {
			c.wait()
			continue
		}
		addr := "" // also if the leader belongs to another cluster
		if r.Succeeded {
			if found := r.Responses[0].GetResponseRange().Kvs; len(found) > 0 {
				addr = string(found[0].Value)
			}
		}
		c.leader.Store(&addr)
		watch, end := context.WithCancel(clientv3.WithRequireLeader(c.ctx))
		for w := range c.client.Watch(watch, c.leaderKey(), clientv3.WithRev(r.Header.Revision+1)) {
			for _, e := range w.Events {
				addr := ""
				if e.Type == mvccpb.PUT {
					addr = string(e.Kv.Value)
				}
				c.leader.Store(&addr)
			}
			if w.Err() != nil {
				break
			}
		}
		end()
		c.wait()
	}
}

// wait is a pause between attempts.
func (c *Coordinator) wait() {
	drive.Pause(c.ctx, c.opt.TTL/20)
}

// Lead implements leader.Coordinator: it stands for election, and waits while another process
// leads.
func (c *Coordinator) Lead(ctx context.Context) (leader.Leadership, error) {
	c.abdicate()
	for ctx.Err() == nil {
		l, other, err := c.stand(ctx)
		switch {
		case err != nil:
			return leader.Leadership{}, fmt.Errorf("etcd: standing for election: %w", err)
		case other == 0:
			return l, nil
		}
		if err := c.outlive(ctx, other); err != nil {
			return leader.Leadership{}, fmt.Errorf("etcd: watching the leader: %w", err)
		}
	}
	return leader.Leadership{}, context.Cause(ctx)
}

// stand tries to become the leader. If another process leads, other is the revision of the answer
// that says so.
func (c *Coordinator) stand(ctx context.Context) (l leader.Leadership, other int64, err error) {
	ctx, cancel := context.WithTimeout(ctx, c.opt.TTL)
	defer cancel()
	sent := c.opt.Clock.Now()
	grant, err := c.client.Grant(ctx, int64(c.opt.TTL/time.Second))
	if err != nil {
		return l, 0, err
	}
	r, err := c.client.Txn(ctx).If(c.ours(), clientv3.Compare(clientv3.CreateRevision(c.leaderKey()), "=", 0)).
		Then(clientv3.OpPut(c.leaderKey(), c.opt.Addr, clientv3.WithLease(grant.ID))).Else(clientv3.OpGet(c.clusterKey())).Commit()
	if err == nil {
		err = c.know(r.Header.Revision)
	}
	if err == nil && !r.Succeeded {
		err = c.named(r.Responses[0].GetResponseRange().Kvs)
	}
	if err != nil || !r.Succeeded {
		c.drop(grant.ID) // if the answer was lost, the key ends with the lease
		if err != nil {
			return l, 0, err
		}
		return l, r.Header.Revision, nil
	}
	state, err := c.client.Get(ctx, c.stateKey()) // from here on, no earlier leader can save
	if err == nil && len(state.Kvs) == 0 {
		err = fmt.Errorf("%w (the state under %s is missing)", ErrLostData, c.stateKey())
	}
	if err != nil {
		c.drop(grant.ID)
		return l, 0, err
	}
	on, end := context.WithCancel(c.ctx)
	g := &reign{term: r.Header.Revision, lease: grant.ID, end: end}
	g.until.Store(int64(sent + ticks.Shorten(ticks.Tick(c.opt.TTL), c.opt.Drift)))
	c.mu.Lock()
	c.reign, c.saved = g, 0
	l = leader.Leadership{Term: uint64(g.term), Slack: ticks.Tick(c.opt.TTL), Until: func() ticks.Tick { return ticks.Tick(g.until.Load()) }}
	c.saved = state.Kvs[0].ModRevision
	if len(state.Kvs[0].Value) > 0 { // an empty state belongs to a new cluster
		l.State = state.Kvs[0].Value
	}
	c.mu.Unlock()
	c.work.Go(func() { c.hold(on, g) })
	return l, 0, nil
}

// named checks the name of the cluster that etcd holds.
func (c *Coordinator) named(found []*mvccpb.KeyValue) error {
	switch {
	case len(found) == 0:
		return fmt.Errorf("%w (the cluster %s is not known there)", ErrLostData, c.cluster)
	case string(found[0].Value) != c.cluster:
		return fmt.Errorf("%w (it holds the cluster %s, and this process is part of %s)", ErrLostData, found[0].Value, c.cluster)
	}
	return nil
}

// drop ends a lease of etcd and its key. If that fails, the lease ends by itself.
func (c *Coordinator) drop(id clientv3.LeaseID) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	_, _ = c.client.Revoke(ctx, id)
}

// hold renews a leadership until it is lost or given up.
func (c *Coordinator) hold(ctx context.Context, g *reign) {
	every := time.NewTicker(c.opt.TTL / 4)
	defer every.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-every.C:
		}
		sent := c.opt.Clock.Now()
		try, cancel := context.WithTimeout(ctx, c.opt.TTL/2)
		_, err := c.client.KeepAliveOnce(try, g.lease)
		cancel()
		switch {
		case err == nil:
			g.renew(sent + ticks.Shorten(ticks.Tick(c.opt.TTL), c.opt.Drift))
		case errors.Is(err, rpctypes.ErrLeaseNotFound):
			g.until.Store(0)
			return
		case ctx.Err() == nil:
			c.opt.Logger.Warn("etcd does not renew the leadership; it ends unless it does soon", "err", err)
		}
	}
}

// outlive waits until the process that led at revision no longer leads.
func (c *Coordinator) outlive(ctx context.Context, revision int64) error {
	ctx, end := context.WithCancel(clientv3.WithRequireLeader(ctx))
	defer end()
	for w := range c.client.Watch(ctx, c.leaderKey(), clientv3.WithRev(revision+1)) {
		for _, e := range w.Events {
			if e.Type == mvccpb.DELETE {
				return nil
			}
		}
		if w.Err() != nil {
			return w.Err()
		}
	}
	return context.Cause(ctx)
}

// abdicate ends the current leadership, if there is one.
func (c *Coordinator) abdicate() {
	c.mu.Lock()
	g := c.reign
	c.reign = nil
	c.mu.Unlock()
	if g != nil {
		g.until.Store(0)
		g.end()
		c.drop(g.lease)
	}
}

// Save implements leader.Coordinator. After an error other than ErrDeposed it is unknown whether
// the state was stored; save it again.
func (c *Coordinator) Save(ctx context.Context, term uint64, state []byte) error {
	c.mu.Lock()
	g, saved := c.reign, c.saved
	c.mu.Unlock()
	if g == nil || uint64(g.term) != term {
		return leader.ErrDeposed
	}
	ctx, cancel := context.WithTimeout(ctx, c.opt.TTL)
	defer cancel()
	r, err := c.client.Txn(ctx).If(c.ours(), clientv3.Compare(clientv3.CreateRevision(c.leaderKey()), "=", g.term),
		clientv3.Compare(clientv3.ModRevision(c.stateKey()), "=", saved)).
		Then(clientv3.OpPut(c.stateKey(), string(state))).
		Else(clientv3.OpGet(c.leaderKey()), clientv3.OpGet(c.stateKey())).Commit()
	switch {
	case errors.Is(err, rpctypes.ErrRequestTooLarge), err != nil && strings.Contains(err.Error(), "larger than max"): // the error text of gRPC
		return fmt.Errorf("%w: %d bytes (%w)", leader.ErrStateTooLarge, len(state), err)
	case err != nil:
		return fmt.Errorf("etcd: saving: %w", err)
	}
	if err := c.know(r.Header.Revision); err != nil {
		return err
	}
	next := r.Header.Revision
	if !r.Succeeded {
		holder, found := r.Responses[0].GetResponseRange().Kvs, r.Responses[1].GetResponseRange().Kvs
		if len(holder) == 0 || holder[0].CreateRevision != g.term {
			return leader.ErrDeposed
		}
		next = 0
		if len(found) > 0 {
			next = found[0].ModRevision
		}
		if len(found) == 0 || string(found[0].Value) != string(state) { // an earlier attempt, whose answer was lost, stored an older state
			err = errors.New("etcd: saving: an earlier attempt arrived late")
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.reign == g {
		c.saved = next
	}
	return err
}

// Close gives up the leadership, if there is one, so that another process can lead at once, and
// disconnects.
func (c *Coordinator) Close() error {
	c.abdicate()
	c.stop()
	c.work.Wait()
	return c.client.Close()
}
