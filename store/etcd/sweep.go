package etcd

import (
	"context"
	"encoding/binary"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
)

// drop ends leases without a row, in the background. If there are too many, drop leaves some out,
// and they end by themselves.
func (s *Store) drop(ids ...clientv3.LeaseID) {
	for _, id := range ids {
		select {
		case s.drops <- id:
		default:
		}
	}
}

func (s *Store) dropLeases() {
	for {
		select {
		case <-s.ctx.Done():
			return
		case id := <-s.drops:
			ctx, cancel := context.WithTimeout(s.ctx, s.opt.Timeout)
			_, _ = s.client.Revoke(ctx, id)
			cancel()
		}
	}
}

// mark is the revision that etcd had reached at a time of this process. etcd stores no times. A
// record with a revision up to rev is therefore at least as old as at.
type mark struct {
	at  time.Time
	rev int64
}

// sweepOn removes the records of old deletes and expired rows at every Options.Sweep.
func (s *Store) sweepOn() {
	t := time.NewTicker(s.opt.Sweep)
	defer t.Stop()
	for {
		select {
		case <-s.ctx.Done():
			return
		case now := <-t.C:
			if err := s.sweep(s.ctx, now); err != nil && s.ctx.Err() == nil {
				s.opt.Logger.Warn("old deletes could not be forgotten; they take space until they are", "err", err)
			}
		}
	}
}

// sweepRows bounds the records that one transaction removes.
const sweepRows = 32

// sweep removes the absences whose records are older than the grace. The record of an expired row
// is as old as the row, so sweep first writes it again, as the record of an absence.
func (s *Store) sweep(ctx context.Context, now time.Time) error {
	one, cancel := context.WithTimeout(ctx, s.opt.Timeout)
	r, err := s.client.Get(one, s.prefix+"meta", clientv3.WithKeysOnly())
	cancel()
	if err != nil {
		return err
	}
	s.marks = append(s.marks, mark{now, r.Header.Revision})
	old := int64(0)
	for len(s.marks) > 0 && now.Sub(s.marks[0].at) >= s.opt.Grace {
		old = s.marks[0].rev
		s.marks = s.marks[1:]
	}
	for from := s.goneKey(""); old > 0 && from != ""; {
		if from, err = s.forget(ctx, from, old); err != nil {
			return err
		}
	}
	return nil
}

// forget removes some records, and returns where to continue. It leaves a record that changes
// meanwhile to the next sweep. The floor becomes the version of the youngest absence that was
// removed, or the odd one after a delete, which no write ever has.
func (s *Store) forget(ctx context.Context, from string, old int64) (next string, err error) {
	ctx, cancel := context.WithTimeout(ctx, s.opt.Timeout)
	defer cancel()
	r, err := s.client.Get(ctx, from, clientv3.WithRange(s.past("gone")), clientv3.WithLimit(sweepRows), clientv3.WithMaxModRev(old))
	if err != nil || len(r.Kvs) == 0 {
		return "", err
	}
	next = string(r.Kvs[len(r.Kvs)-1].Key) + "\x00"
	var keys []string
	for _, kv := range r.Kvs {
		keys = append(keys, string(kv.Key[len(s.goneKey("")):]))
	}
	snap, _, err := s.read(ctx, keys)
	if err != nil {
		return "", err
	}
	floorKey, floor := s.prefix+"floor", snap.floor
	compare := []clientv3.Cmp{clientv3.Compare(clientv3.ModRevision(floorKey), "=", snap.floorRev)}
	var ops []clientv3.Op
	for i, e := range snap.entries {
		a, ok := decodeAbsence(r.Kvs[i].Value)
		if !ok || e.row != 0 || e.gone != r.Kvs[i].ModRevision {
			continue
		}
		compare = append(compare, clientv3.Compare(clientv3.ModRevision(string(r.Kvs[i].Key)), "=", e.gone),
			clientv3.Compare(clientv3.CreateRevision(s.rowKey(keys[i])), "=", 0))
		if a.kind == lapses {
			a.kind, a.lease, a.version = lapsed, clientv3.NoLease, e.Version
			ops = append(ops, clientv3.OpPut(string(r.Kvs[i].Key), a.encode()))
			continue
		}
		floor = max(floor, e.Version|1)
		ops = append(ops, clientv3.OpDelete(string(r.Kvs[i].Key)))
	}
	if floor != snap.floor {
		ops = append(ops, clientv3.OpPut(floorKey, string(binary.BigEndian.AppendUint64(nil, uint64(floor)))))
	}
	if len(ops) > 0 {
		_, err = s.client.Txn(ctx).If(compare...).Then(ops...).Commit()
	}
	return next, err
}
