package etcd

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"strings"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/freshet-cache/freshet/store"
)

// header is the size of the header before a row's value: the writer's id, and when it wrote, by its
// own clock.
const header = 16 + 8

func appendHeader(id store.ID, at time.Time) []byte {
	return binary.BigEndian.AppendUint64(append([]byte(nil), id[:]...), uint64(at.UnixMicro()))
}

// The kinds of records of an absence.
const (
	deleted byte = iota + 1 // the version of the absence is that of the record
	lapses                  // of a row that expires: once the row is gone, the version is the odd one after the record's
	lapsed                  // of an expired row that a sweep has seen; the record has the version
)

// absence is the record of an absence.
type absence struct {
	kind    byte
	writer  store.ID
	written time.Time
	lease   clientv3.LeaseID // the lease of the row, until it expires
	version store.Version    // if lapsed
}

func (a absence) encode() string {
	b := append([]byte{a.kind}, appendHeader(a.writer, a.written)...)
	return string(binary.BigEndian.AppendUint64(binary.BigEndian.AppendUint64(b, uint64(a.lease)), uint64(a.version)))
}

func decodeAbsence(b []byte) (a absence, ok bool) {
	if len(b) != 1+header+16 || b[0] < deleted || b[0] > lapsed {
		return a, false
	}
	a.kind = b[0]
	copy(a.writer[:], b[1:])
	a.written = time.UnixMicro(int64(binary.BigEndian.Uint64(b[17:])))
	a.lease, a.version = clientv3.LeaseID(binary.BigEndian.Uint64(b[25:])), store.Version(binary.BigEndian.Uint64(b[33:]))
	return a, true
}

// entry is what etcd holds of a key.
type entry struct {
	store.Row
	row, gone int64            // revisions of the row and of the record of its absence; zero if there is none
	lease     clientv3.LeaseID // the lease to which the row is attached
}

// ErrDamaged means that freshet has not written a record.
var ErrDamaged = errors.New("etcd: a record is damaged: who else writes under the prefix?")

// entry reads the records of a key.
func (s *Store) entry(rows, gone []*mvccpb.KeyValue, floor store.Version) (e entry, err error) {
	e.Version = floor
	if len(gone) > 0 {
		a, ok := decodeAbsence(gone[0].Value)
		if !ok {
			return e, fmt.Errorf("%w (%.99q)", ErrDamaged, gone[0].Key)
		}
		e.gone, e.Writer, e.Written = gone[0].ModRevision, a.writer, a.written
		switch a.kind {
		case deleted:
			e.Version = s.version(e.gone)
		case lapses:
			e.Version = s.version(e.gone) + 1
		case lapsed:
			e.Version = a.version
		}
	}
	if len(rows) == 0 {
		return e, nil
	}
	v := rows[0].Value
	if len(v) < header {
		return e, fmt.Errorf("%w (%.99q)", ErrDamaged, rows[0].Key)
	}
	e.row, e.lease = rows[0].ModRevision, clientv3.LeaseID(rows[0].Lease)
	e.Exists, e.Value, e.Version = true, v[header:], s.version(e.row)
	copy(e.Writer[:], v)
	e.Written = time.UnixMicro(int64(binary.BigEndian.Uint64(v[16:])))
	return e, nil
}

// snapshot is what etcd holds of some keys at one instant.
type snapshot struct {
	entries  []entry
	floor    store.Version
	floorRev int64
}

// ask reads in one transaction. It reads once more if the client had to log in again.
func (s *Store) ask(ctx context.Context, ops ...clientv3.Op) (*clientv3.TxnResponse, error) {
	r, err := s.client.Txn(ctx).Then(ops...).Commit()
	if stale(err) {
		r, err = s.client.Txn(ctx).Then(ops...).Commit()
	}
	return r, err
}

// read reads a snapshot of keys. Each key takes two operations.
func (s *Store) read(ctx context.Context, keys []string, more ...clientv3.Op) (snap snapshot, rest []*mvccpb.KeyValue, err error) {
	ops := []clientv3.Op{clientv3.OpGet(s.prefix + "floor")}
	for _, k := range keys {
		ops = append(ops, clientv3.OpGet(s.rowKey(k)), clientv3.OpGet(s.goneKey(k)))
	}
	var all [][]*mvccpb.KeyValue
	for ops = append(ops, more...); len(ops) > 0; { // beyond the limit, several instants: callers that compare revisions do not need one
		n := min(len(ops), 2*MaxBatch)
		r, err := s.ask(ctx, ops[:n]...)
		if err != nil {
			return snap, nil, err
		}
		for _, a := range r.Responses {
			all = append(all, a.GetResponseRange().Kvs)
		}
		ops = ops[n:]
	}
	if f := all[0]; len(f) > 0 {
		if len(f[0].Value) != 8 {
			return snap, nil, fmt.Errorf("%w (%.99q)", ErrDamaged, f[0].Key)
		}
		snap.floor, snap.floorRev = store.Version(binary.BigEndian.Uint64(f[0].Value)), f[0].ModRevision
	}
	for i := range keys {
		e, err := s.entry(all[1+2*i], all[2+2*i], snap.floor)
		if err != nil {
			return snap, nil, err
		}
		snap.entries = append(snap.entries, e)
	}
	for _, kvs := range all[1+2*len(keys):] {
		rest = append(rest, kvs...)
	}
	return snap, rest, nil
}

// left returns how long a lease lasts at least; zero if it has ended.
func (s *Store) left(ctx context.Context, id clientv3.LeaseID) (time.Duration, error) {
	r, err := s.client.TimeToLive(ctx, id)
	if err != nil || r.TTL < 0 {
		return 0, err
	}
	return max(time.Microsecond, time.Duration(r.TTL)*time.Second), nil
}

// Load returns the row of key.
func (s *Store) Load(ctx context.Context, key string) (store.Row, error) {
	ctx, cancel := context.WithTimeout(ctx, s.opt.Timeout)
	defer cancel()
	for {
		if s.closed.Load() {
			return store.Row{}, store.ErrClosed
		}
		snap, over, err := s.read(ctx, []string{key}, s.covering(key))
		if err != nil {
			return store.Row{}, s.failed("reading "+quote(key), err)
		}
		e := snap.entries[0]
		if len(over) > 0 {
			if g, err := s.guard(over[0]); err == nil {
				e.Guard = g.token
			}
		}
		if !e.Exists || e.lease == clientv3.NoLease {
			return e.Row, nil
		}
		if e.TTL, err = s.left(ctx, e.lease); err != nil {
			return store.Row{}, s.failed("reading the TTL of "+quote(key), err)
		}
		if e.TTL > 0 {
			return e.Row, nil
		} // the lease has ended since, or the row was written again
	}
}

// Splits returns no points: a guard may lie over any range.
func (s *Store) Splits(context.Context, string, string) ([]string, error) { return nil, nil }

// Scan returns up to limit keys that exist, from the first one at or after from. next is where to
// continue unless done.
func (s *Store) Scan(ctx context.Context, from string, limit int) (keys []string, next string, done bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, s.opt.Timeout)
	defer cancel()
	r, err := s.client.Get(ctx, s.rowKey(from), clientv3.WithRange(s.past("row")), clientv3.WithKeysOnly(), clientv3.WithLimit(int64(limit)+1))
	if err != nil {
		return nil, "", false, s.failed("scanning", err)
	}
	for i, kv := range r.Kvs {
		k := strings.TrimPrefix(string(kv.Key), s.rowKey(""))
		if i == limit {
			return keys, k, false, nil
		}
		keys = append(keys, k)
	}
	return keys, "", true, nil
}

// Count returns how many keys exist.
func (s *Store) Count(ctx context.Context) (int, error) {
	ctx, cancel := context.WithTimeout(ctx, s.opt.Timeout)
	defer cancel()
	r, err := s.client.Get(ctx, s.rowKey(""), clientv3.WithRange(s.past("row")), clientv3.WithCountOnly())
	if err != nil {
		return 0, s.failed("counting", err)
	}
	return int(r.Count), nil
}

func quote(key string) string { return fmt.Sprintf("%.64q", key) }
