package etcd

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/freshet-cache/freshet/store"
)

// maxTries bounds how often a write is tried whose comparison failed. A failed comparison writes
// nothing.
const maxTries = 10

// errAgain is the error of an attempt that etcd has refused and that may be repeated.
var errAgain = errors.New("etcd: what was compared has changed")

// Commit applies muts, all or none, and returns when a majority has them on disk. See the errors of
// package store.
func (s *Store) Commit(ctx context.Context, id store.ID, muts []store.Mutation) ([]store.Stamp, error) {
	if len(muts) == 0 {
		return nil, nil
	}
	if err := s.admissible(muts); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, s.opt.Timeout)
	defer cancel()
	err := errAgain
	for range maxTries {
		if s.closed.Load() {
			return nil, store.ErrClosed
		}
		var stamps []store.Stamp
		stamps, err = s.try(ctx, id, muts)
		if !errors.Is(err, errAgain) {
			return stamps, err
		}
	}
	return nil, fmt.Errorf("%w: %d attempts to write %s: %w", store.ErrUnavailable, maxTries, quote(muts[0].Key), err)
}

// admissible refuses mutations that the store can never keep.
func (s *Store) admissible(muts []store.Mutation) error {
	if len(muts) > MaxBatch {
		return fmt.Errorf("%w: a batch of %d keys; etcd takes %d at once", store.ErrTooLarge, len(muts), MaxBatch)
	}
	size, seen := 0, map[string]bool{}
	for i := range muts {
		m := &muts[i]
		switch {
		case len(m.Key) == 0 || len(m.Key) > s.opt.MaxKey:
			return fmt.Errorf("%w: a key of %d bytes; keys have 1 to %d", store.ErrTooLarge, len(m.Key), s.opt.MaxKey)
		case len(m.Value) > s.opt.MaxValue:
			return fmt.Errorf("%w: a value of %d bytes under %s; values have up to %d", store.ErrTooLarge, len(m.Value), quote(m.Key), s.opt.MaxValue)
		case seen[m.Key]:
			return fmt.Errorf("%w: a batch that writes %s twice", store.ErrRefused, quote(m.Key))
		}
		seen[m.Key] = true
		size += 4*(len(m.Key)+len(s.prefix)) + len(m.Value) + 256
	}
	if size > maxRequest && len(muts) > 1 {
		return fmt.Errorf("%w: a batch of %d bytes; etcd takes %d at once: write fewer keys together", store.ErrTooLarge, size, maxRequest)
	}
	return nil
}

// attempt collects one transaction.
type attempt struct {
	compare []clientv3.Cmp
	ops     []clientv3.Op
	stamps  []store.Stamp
	fresh   []clientv3.LeaseID       // leases made for this attempt
	kept    map[int]clientv3.LeaseID // leases that rows keep, by the index of their mutations
}

// try makes one attempt.
func (s *Store) try(ctx context.Context, id store.ID, muts []store.Mutation) ([]store.Stamp, error) {
	a := &attempt{stamps: make([]store.Stamp, len(muts)), kept: map[int]clientv3.LeaseID{}}
	what := "writing " + quote(muts[0].Key)
	err := s.compareGuards(ctx, a, muts)
	if err == nil {
		err = s.compareRows(ctx, a, muts)
	}
	for i := range muts {
		if err == nil {
			err = s.change(ctx, a, id, &muts[i], i)
		}
	}
	if err == nil {
		err = context.Cause(ctx)
	}
	if err != nil {
		s.drop(a.fresh...)
		return nil, s.unsent(what, err)
	}
	r, err := s.client.Txn(ctx).If(a.compare...).Then(a.ops...).Commit()
	switch {
	case errors.Is(err, rpctypes.ErrLeaseNotFound), stale(err): // the lease of the row or the log-in has expired: nothing was written
		s.drop(a.fresh...)
		return nil, fmt.Errorf("%w: %w", errAgain, err)
	case err != nil:
		err = s.failed(what, err)
		if store.Definite(err) {
			s.drop(a.fresh...)
		}
		return nil, err
	case !r.Succeeded:
		s.drop(a.fresh...)
		s.guards.forget(muts)
		return nil, errAgain
	}
	for i := range muts {
		s.free(r.Responses[2*i+1], a.kept[i])
	}
	for i := range a.stamps {
		a.stamps[i].Version = s.version(r.Header.Revision)
	}
	return a.stamps, nil
}

// free ends the lease in the former record of an absence, if the row no longer uses it.
func (s *Store) free(r *etcdserverpb.ResponseOp, kept clientv3.LeaseID) {
	was := r.GetResponseDeleteRange().GetPrevKvs()
	if kv := r.GetResponsePut().GetPrevKv(); kv != nil {
		was = append(was, kv)
	}
	for _, kv := range was {
		if old, ok := decodeAbsence(kv.Value); ok && old.lease != clientv3.NoLease && old.lease != kept {
			s.drop(old.lease)
		}
	}
}

// forget forgets the guards over the keys, so that they are read again.
func (gs *guards) forget(muts []store.Mutation) {
	gs.mu.Lock()
	defer gs.mu.Unlock()
	gs.all = slices.DeleteFunc(gs.all, func(g guard) bool {
		return slices.ContainsFunc(muts, func(m store.Mutation) bool { return g.covers(m.Key) })
	})
}

// compareGuards makes the transaction compare the guards over the keys. A remembered guard with
// another token may be old; a guard that was just read refuses the write.
func (s *Store) compareGuards(ctx context.Context, a *attempt, muts []store.Mutation) error {
	seen := map[string]bool{}
	for i := range muts {
		m := &muts[i]
		g, known := s.guards.over(m.Key)
		if !known || g.token != m.Guard {
			var err error
			if g, err = s.find(ctx, m.Key); err != nil {
				return err
			}
		}
		if g.token != m.Guard {
			return fmt.Errorf("%w (key %s)", store.ErrGuardMismatch, quote(m.Key))
		}
		if !seen[g.low] {
			a.compare = append(a.compare, clientv3.Compare(clientv3.ModRevision(s.guardKey(g.low)), "=", g.rev))
		}
		seen[g.low] = true
	}
	return nil
}

// compareRows reads the rows whose current state matters, checks the conditions, and makes the
// transaction compare that the rows are unchanged.
func (s *Store) compareRows(ctx context.Context, a *attempt, muts []store.Mutation) error {
	var keys []string
	for i := range muts {
		if m := &muts[i]; m.Check || m.TTL == store.KeepTTL && !m.Delete {
			keys = append(keys, m.Key)
		}
	}
	if len(keys) == 0 {
		return nil
	}
	snap, _, err := s.read(ctx, keys)
	if err != nil {
		return err
	}
	for i := range muts {
		m := &muts[i]
		at := slices.Index(keys, m.Key)
		if at < 0 {
			continue
		}
		e := snap.entries[at]
		unknown := e.row == 0 && e.gone == 0
		if m.Check && e.Version != m.Expect && (!unknown || m.Expect != 0) {
			return fmt.Errorf("%w (key %s)", store.ErrConflict, quote(m.Key))
		}
		a.compare = append(a.compare, clientv3.Compare(clientv3.ModRevision(s.rowKey(m.Key)), "=", e.row),
			clientv3.Compare(clientv3.ModRevision(s.goneKey(m.Key)), "=", e.gone))
		if m.TTL == store.KeepTTL && e.lease != clientv3.NoLease {
			if a.stamps[i].TTL, err = s.left(ctx, e.lease); err != nil {
				return err
			}
			if a.stamps[i].TTL == 0 {
				return errAgain
			}
			a.kept[i] = e.lease
		}
	}
	if len(a.compare) > 2*MaxBatch {
		return fmt.Errorf("%w: a batch of %d keys on conditions; write fewer together", store.ErrTooLarge, len(keys))
	}
	return nil
}

// change adds the operations of a mutation: first on the row, then on the record of its absence. A
// read that finds a row expired takes the absence from that record.
func (s *Store) change(ctx context.Context, a *attempt, id store.ID, m *store.Mutation, i int) error {
	row, gone, at := s.rowKey(m.Key), s.goneKey(m.Key), time.Now()
	value := string(appendHeader(id, at)) + string(m.Value)
	record := absence{kind: lapses, writer: id, written: at, lease: a.kept[i]}
	put := clientv3.OpPut(row, value)
	switch {
	case m.Delete:
		record.kind, put = deleted, clientv3.OpDelete(row)
	case m.TTL > 0:
		grant, err := s.client.Grant(ctx, int64((m.TTL+time.Second-1)/time.Second))
		if err != nil {
			return err
		}
		a.fresh = append(a.fresh, grant.ID)
		record.lease, a.stamps[i].TTL = grant.ID, m.TTL
		put = clientv3.OpPut(row, value, clientv3.WithLease(grant.ID))
	case record.lease != clientv3.NoLease: // compareRows makes the transaction check that the row exists
		put = clientv3.OpPut(row, value, clientv3.WithIgnoreLease())
	default:
		a.ops = append(a.ops, put, clientv3.OpDelete(gone, clientv3.WithPrevKV()))
		return nil
	}
	a.ops = append(a.ops, put, clientv3.OpPut(gone, record.encode(), clientv3.WithPrevKV()))
	return nil
}

// failed sorts errors. etcd has not done what it answers with one of these errors. Other errors,
// and silence, prove nothing: etcd may still carry out a request that it gave up waiting for.
func (s *Store) failed(what string, err error) error {
	if store.Definite(err) || errors.Is(err, errAgain) {
		return err
	}
	err = fmt.Errorf("etcd: %s: %w", what, err)
	for as, answers := range map[error][]error{
		store.ErrFull:     {rpctypes.ErrNoSpace},
		store.ErrTooLarge: {rpctypes.ErrRequestTooLarge, rpctypes.ErrTooManyOps},
		store.ErrRefused: {rpctypes.ErrPermissionDenied, rpctypes.ErrUserEmpty, rpctypes.ErrAuthFailed, rpctypes.ErrDuplicateKey,
			rpctypes.ErrLeaseTTLTooLarge, rpctypes.ErrEmptyKey, ErrDamaged},
		store.ErrUnavailable: {rpctypes.ErrTooManyRequests, rpctypes.ErrInvalidAuthToken, rpctypes.ErrAuthOldRevision},
	} {
		for _, a := range answers {
			if errors.Is(err, a) {
				return fmt.Errorf("%w (%w)", as, err)
			}
		}
	}
	return err
}

// unsent returns the error of a call that has sent nothing that lasts.
func (s *Store) unsent(what string, err error) error {
	if err = s.failed(what, err); store.Definite(err) || errors.Is(err, errAgain) {
		return err
	}
	return fmt.Errorf("%w (%w)", store.ErrUnavailable, err)
}

// stale reports whether a log-in has expired. The client has then made a new one.
func stale(err error) bool {
	return errors.Is(err, rpctypes.ErrInvalidAuthToken) || errors.Is(err, rpctypes.ErrAuthOldRevision)
}
