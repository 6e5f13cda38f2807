package pebble

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"sync"

	"github.com/cockroachdb/pebble/v2"

	"github.com/freshet-cache/freshet/store/journal"
)

// incarnationState is what the store knows of an incarnation. A Persist holds mu for reading.
type incarnationState struct {
	mu        sync.RWMutex
	begun     bool
	fenced    bool
	truncated uint64
	largest   uint64       // the largest time among the truncated entries
	name      journal.Name // zero if the incarnation never began, or began before incarnations had names
}

// incarnation returns the state of an incarnation, which it reads from the database the first time.
func (d *Journal) incarnation(o uint32) (*incarnationState, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if l := d.incarnations[o]; l != nil {
		return l, nil
	}
	b, err := d.read(d.incarnationKey(o))
	l := &incarnationState{}
	if b != nil && err == nil {
		l, err = decodeIncarnation(o, b)
	}
	if err != nil {
		return nil, err
	}
	d.incarnations[o] = l
	return l, nil
}

func decodeIncarnation(o uint32, b []byte) (*incarnationState, error) {
	if len(b) != incarnationBytes && len(b) != incarnationBytes+len(journal.Name{}) || b[0] != journalRowEncoding || b[1] > 1 {
		return nil, fmt.Errorf("%w: what is known of incarnation %d cannot be read", ErrDamaged, o)
	}
	l := &incarnationState{begun: true, fenced: b[1] == 1, truncated: binary.BigEndian.Uint64(b[2:]), largest: binary.BigEndian.Uint64(b[10:])}
	copy(l.name[:], b[incarnationBytes:])
	return l, nil
}

func (l *incarnationState) append(b []byte) []byte {
	flag := byte(0)
	if l.fenced {
		flag = 1
	}
	b = binary.BigEndian.AppendUint64(binary.BigEndian.AppendUint64(append(b, journalRowEncoding, flag), l.truncated), l.largest)
	return append(b, l.name[:]...)
}

// change changes the state of an incarnation while no Persist of it is under way. If durable is
// false, a crash may undo the change.
func (d *Journal) change(o uint32, durable bool, do func(l *incarnationState, batch *pebble.Batch) error) error {
	if err := d.s.begin(); err != nil {
		return err
	}
	defer d.s.calls.RUnlock()
	l, err := d.incarnation(o)
	if err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	was := incarnationState{begun: l.begun, fenced: l.fenced, truncated: l.truncated, largest: l.largest, name: l.name}
	batch := d.s.db.NewBatch()
	defer batch.Close()
	if err = do(l, batch); err == nil {
		err = batch.Set(d.incarnationKey(o), l.append(nil), nil)
	}
	switch {
	case err != nil:
	case durable:
		err = d.s.apply(batch)
	default:
		err = d.s.applyLater(batch)
	}
	if err != nil {
		l.begun, l.fenced, l.truncated, l.largest, l.name = was.begun, was.fenced, was.truncated, was.largest, was.name
	}
	return err
}

// Begin makes an incarnation, which may then persist. It returns journal.ErrBegun if the number
// belongs to another incarnation, or was fenced.
func (d *Journal) Begin(_ context.Context, o uint32, name journal.Name) error {
	return d.change(o, true, func(l *incarnationState, _ *pebble.Batch) error {
		if l.begun && (l.fenced || l.name != name) {
			return journal.ErrBegun
		}
		l.begun, l.name = true, name
		return nil
	})
}

// Known returns what the store knows of the incarnations of the space.
func (d *Journal) Known(ctx context.Context) (k journal.Known, err error) {
	all, err := d.Incarnations(ctx)
	if err != nil {
		return k, err
	}
	if err := d.s.begin(); err != nil {
		return k, err
	}
	defer d.s.calls.RUnlock()
	m, err := d.merged()
	if err != nil {
		return k, err
	}
	k.Term = m.term
	for _, o := range all {
		if o == journal.External {
			continue
		}
		l, err := d.incarnation(o)
		if err != nil {
			return k, err
		}
		l.mu.RLock()
		open := !l.fenced
		l.mu.RUnlock()
		if !open {
			if open, err = d.any(d.entryKey(o, 0), append(d.entryKey(o, math.MaxUint64), 0)); err != nil {
				return k, err
			}
		}
		if k.Newest = max(k.Newest, o); open {
			k.Open = append(k.Open, o)
		}
	}
	return k, nil
}

// any reports whether the database has a key in a range.
func (d *Journal) any(low, high []byte) (bool, error) {
	it, err := d.s.db.NewIter(&pebble.IterOptions{LowerBound: low, UpperBound: high})
	if err != nil {
		return false, err
	}
	found := it.First()
	return found, errors.Join(it.Error(), it.Close())
}

// Fence ends an incarnation, even one that has not begun: none of its writes takes effect any more.
func (d *Journal) Fence(_ context.Context, o uint32) error {
	return d.change(o, true, func(l *incarnationState, _ *pebble.Batch) error {
		l.begun, l.fenced = true, true
		return nil
	})
}
