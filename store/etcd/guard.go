package etcd

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/freshet-cache/freshet/store"
)

// guard is the record of a guard. Its key has the low bound; its value has the token, then the high
// bound. The guards cover all keys and do not overlap.
type guard struct {
	low, high string // an empty high means no upper end
	token     store.Token
	rev       int64 // etcd's revision of the record, which never has other content
}

func (g guard) covers(key string) bool { return g.low <= key && (g.high == "" || key < g.high) }
func (g guard) encode() string         { return string(g.token[:]) + g.high }

func (s *Store) guard(kv *mvccpb.KeyValue) (g guard, err error) {
	if len(kv.Value) < 16 {
		return g, fmt.Errorf("%w (%.99q)", ErrDamaged, kv.Key)
	}
	g = guard{low: strings.TrimPrefix(string(kv.Key), s.guardKey("")), high: string(kv.Value[16:]), rev: kv.ModRevision}
	copy(g.token[:], kv.Value)
	return g, nil
}

// covering returns the operation that reads the guard over a key.
func (s *Store) covering(key string) clientv3.Op {
	return s.lastBefore(s.guardKey(key) + "\x00")
}

// lastBefore returns the operation that reads the last guard that begins before end.
func (s *Store) lastBefore(end string) clientv3.Op {
	return clientv3.OpGet(s.guardKey(""), clientv3.WithRange(end), clientv3.WithSort(clientv3.SortByKey, clientv3.SortDescend), clientv3.WithLimit(1))
}

// guards remembers guards that this process has seen. An old entry costs only a request, because
// every transaction compares the revisions of its guards.
type guards struct {
	mu  sync.Mutex
	all []guard // by low bounds
}

// over returns the guard over a key, as far as this process knows.
func (gs *guards) over(key string) (g guard, known bool) {
	gs.mu.Lock()
	defer gs.mu.Unlock()
	i, exact := gs.at(key)
	if !exact {
		i--
	}
	if i < 0 || !gs.all[i].covers(key) {
		return g, false
	}
	return gs.all[i], true
}

func (gs *guards) at(low string) (int, bool) {
	return slices.BinarySearchFunc(gs.all, low, func(g guard, low string) int { return strings.Compare(g.low, low) })
}

// learn records a guard, and forgets those that begin inside it.
func (gs *guards) learn(g guard) {
	gs.mu.Lock()
	defer gs.mu.Unlock()
	i, _ := gs.at(g.low)
	j := len(gs.all)
	if g.high != "" {
		j, _ = gs.at(g.high)
	}
	gs.all = slices.Replace(gs.all, i, max(i, j), g)
}

// find reads the guard over a key, and remembers it.
func (s *Store) find(ctx context.Context, key string) (g guard, err error) {
	r, err := s.ask(ctx, s.covering(key))
	if err != nil {
		return g, err
	}
	kvs := r.Responses[0].GetResponseRange().Kvs
	if len(kvs) == 1 {
		g, err = s.guard(kvs[0])
	}
	if err == nil && (len(kvs) == 0 || !g.covers(key)) {
		return g, fmt.Errorf("%w: no guard is over %s; somebody has deleted what is under %s", store.ErrRefused, quote(key), s.guardKey(""))
	}
	if err == nil {
		s.guards.learn(g)
	}
	return g, err
}

// SetGuard installs token over [low, high). A read after it sees every write that was carried out
// before it. No write that compares an older guard is carried out after it.
func (s *Store) SetGuard(ctx context.Context, low, high string, token store.Token) error {
	switch {
	case s.closed.Load():
		return store.ErrClosed
	case high != "" && high <= low:
		return fmt.Errorf("%w: a guard over the empty range from %s to %s", store.ErrRefused, quote(low), quote(high))
	case max(len(low), len(high)) > MaxKey+1:
		return fmt.Errorf("%w: a guard's bound of %d bytes; bounds have up to %d", store.ErrTooLarge, max(len(low), len(high)), MaxKey+1)
	}
	ctx, cancel := context.WithTimeout(ctx, s.opt.Timeout)
	defer cancel()
	for ctx.Err() == nil { // another SetGuard has changed the guards in between
		done, err := s.install(ctx, guard{low: low, high: high, token: token})
		if err != nil {
			return s.failed("guarding "+quote(low), err)
		}
		if done {
			return nil
		}
	}
	return fmt.Errorf("%w: other guards over %s come all the time: %w", store.ErrUnavailable, quote(low), context.Cause(ctx))
}

// install reads the guards at both ends of the range, and replaces all in between, if none has
// changed since. The same transaction changes the guards that it cuts.
func (s *Store) install(ctx context.Context, g guard) (done bool, err error) {
	end := s.past("guard")
	if g.high != "" {
		end = s.guardKey(g.high)
	}
	r, err := s.ask(ctx, s.covering(g.low), s.lastBefore(end))
	if err != nil {
		return false, s.unsent("reading guards", err)
	}
	var edges [2]guard
	for i := range edges {
		kvs := r.Responses[i].GetResponseRange().Kvs
		if len(kvs) == 0 {
			return false, fmt.Errorf("%w: there are no guards; somebody has deleted what is under %s", store.ErrRefused, s.guardKey(""))
		}
		if edges[i], err = s.guard(kvs[0]); err != nil {
			return false, s.unsent("reading guards", err)
		}
	}
	first, last := edges[0], edges[1]
	// No guard in the range may be younger than the reading: a guard that was added, or that has
	// replaced another one, would be. If a guard that begins before the first one has replaced it,
	// the first one's record is gone, and its revision differs.
	unchanged := []clientv3.Cmp{clientv3.Compare(clientv3.ModRevision(s.guardKey(first.low)), "=", first.rev),
		clientv3.Compare(clientv3.ModRevision(s.guardKey(first.low)), "<", r.Header.Revision+1).WithRange(end)}
	ops := []clientv3.Op{clientv3.OpPut(s.guardKey(g.low), g.encode()), clientv3.OpDelete(s.guardKey(g.low)+"\x00", clientv3.WithRange(end))}
	if first.low < g.low {
		ops = append(ops, clientv3.OpPut(s.guardKey(first.low), guard{high: g.low, token: first.token}.encode()))
	}
	if g.high != "" && last.high != g.high { // the keys behind the range keep their token
		ops = append(ops, clientv3.OpPut(s.guardKey(g.high), guard{high: last.high, token: last.token}.encode()))
	}
	w, err := s.client.Txn(ctx).If(unchanged...).Then(ops...).Commit()
	if err != nil || !w.Succeeded {
		return false, err
	}
	g.rev = w.Header.Revision
	s.guards.learn(g)
	return true, nil
}
