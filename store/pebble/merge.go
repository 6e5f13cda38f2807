package pebble

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"sync"

	"github.com/cockroachdb/pebble/v2"

	"github.com/freshet-cache/freshet/store"
	"github.com/freshet-cache/freshet/store/journal"
)

// merged says which term merges into the rows of an asynchronous space, and what was merged last.
type merged struct {
	term, number uint64
	largest      uint64 // the largest time of a stamp that was merged
	mark         []byte
}

const mergedHeader = 1 + 3*8

func (m merged) append(b []byte) []byte {
	b = binary.BigEndian.AppendUint64(append(b, journalRowEncoding), m.term)
	b = binary.BigEndian.AppendUint64(binary.BigEndian.AppendUint64(b, m.number), m.largest)
	return append(b, m.mark...)
}

func (d *Journal) merged() (m merged, err error) {
	b, err := d.read(d.key('m'))
	switch {
	case b == nil || err != nil:
		return m, err
	case len(b) < mergedHeader || b[0] != journalRowEncoding:
		return m, fmt.Errorf("%w: what was merged into the rows cannot be read", ErrDamaged)
	}
	m.term, m.number, m.largest = binary.BigEndian.Uint64(b[1:]), binary.BigEndian.Uint64(b[9:]), binary.BigEndian.Uint64(b[17:])
	m.mark = b[mergedHeader:]
	return m, nil
}

// Claim refuses every later Merge of a smaller term, and returns the mark of the last Merge. It
// returns journal.ErrFenced if a larger term has claimed.
func (d *Journal) Claim(_ context.Context, term uint64) (mark []byte, err error) {
	if err := d.s.begin(); err != nil {
		return nil, err
	}
	defer d.s.calls.RUnlock()
	d.merging.Lock()
	defer d.merging.Unlock()
	m, err := d.merged()
	switch {
	case err != nil:
		return nil, err
	case term < m.term:
		return nil, journal.ErrFenced
	case term == m.term:
		return m.mark, nil
	}
	m.term, m.number = term, 0
	batch := d.s.db.NewBatch()
	defer batch.Close()
	if err := batch.Set(d.key('m'), m.append(nil), nil); err != nil {
		return nil, err
	}
	return m.mark, d.s.apply(batch)
}

// Merge stores those rows of f that win by their stamps, and returns when they are durable. It
// returns journal.ErrFenced if another term has claimed.
func (d *Journal) Merge(_ context.Context, f journal.Flush) error {
	if err := d.s.begin(); err != nil {
		return err
	}
	defer d.s.calls.RUnlock()
	d.merging.Lock()
	defer d.merging.Unlock()
	m, err := d.merged()
	switch {
	case err != nil:
		return err
	case f.Term != m.term:
		return journal.ErrFenced
	case f.Number <= m.number:
		return nil
	}
	keys := make([]string, len(f.Rows))
	for i, k := range f.Rows {
		keys[i] = k.Key
		m.largest = max(m.largest, k.Row.Stamp.Time)
	}
	m.number, m.mark = f.Number, f.Mark
	defer d.lock(keys, (*sync.RWMutex).Lock, (*sync.RWMutex).Unlock)()
	batch := d.s.db.NewBatch()
	defer batch.Close()
	if err := batch.Set(d.key('m'), m.append(nil), nil); err != nil {
		return err
	}
	for _, k := range f.Rows {
		w := journal.Write{Dot: k.Row.Dot, Stamp: k.Row.Stamp}
		if err := d.merge(batch, w, journal.Mutation{Key: k.Key, Value: k.Row.Value, Delete: !k.Row.Exists}); err != nil {
			return err
		}
	}
	return d.s.apply(batch)
}

// Fits returns why mutations cannot be persisted or merged, or nil if they can.
func (d *Journal) Fits(muts []journal.Mutation) error {
	if len(muts) == 0 {
		return nil
	}
	plain := make([]store.Mutation, len(muts), len(muts)+1)
	for i, m := range muts {
		plain[i] = store.Mutation{Key: m.Key, Value: m.Value}
	}
	return d.s.admissible(plain)
}

// Fenced returns those of the given incarnations that are fenced.
func (d *Journal) Fenced(_ context.Context, incarnations ...uint32) (out []uint32, err error) {
	if err := d.s.begin(); err != nil {
		return nil, err
	}
	defer d.s.calls.RUnlock()
	for _, o := range incarnations {
		l, err := d.incarnation(o)
		if err != nil {
			return nil, err
		}
		l.mu.RLock()
		if l.fenced {
			out = append(out, o)
		}
		l.mu.RUnlock()
	}
	return out, nil
}

// Incarnations returns the incarnations that have begun and were not removed.
func (d *Journal) Incarnations(ctx context.Context) (out []uint32, err error) {
	if err := d.s.begin(); err != nil {
		return nil, err
	}
	defer d.s.calls.RUnlock()
	it, err := d.s.db.NewIter(&pebble.IterOptions{LowerBound: d.key('o'), UpperBound: d.key('o' + 1)})
	if err != nil {
		return nil, err
	}
	for ok := it.First(); ok && ctx.Err() == nil; ok = it.Next() {
		k := it.Key()
		out = append(out, binary.BigEndian.Uint32(k[len(k)-4:]))
	}
	return out, errors.Join(it.Error(), it.Close(), context.Cause(ctx))
}

// Remove removes an incarnation and its journal, durably.
func (d *Journal) Remove(_ context.Context, o uint32) error {
	if err := d.s.begin(); err != nil {
		return err
	}
	defer d.s.calls.RUnlock()
	l, err := d.incarnation(o)
	if err != nil {
		return err
	}
	l.mu.Lock() // no Persist of it is under way, and none begins
	defer l.mu.Unlock()
	batch := d.s.db.NewBatch()
	defer batch.Close()
	err = errors.Join(batch.Delete(d.incarnationKey(o), nil), batch.DeleteRange(d.entryKey(o, 0), d.entryKey(o+1, 0), nil))
	if err == nil {
		err = d.s.apply(batch)
	}
	if err == nil {
		l.begun, l.fenced = false, false
		l.truncated, l.largest, l.name = 0, 0, journal.Name{}
	}
	return err
}
