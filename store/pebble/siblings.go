package pebble

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"

	"github.com/cockroachdb/pebble/v2"

	"github.com/freshet-cache/freshet/store/journal"
)

func (d *Journal) siblingKey(key string) []byte { return append(d.key('s'), key...) }

// KeepSiblings says whether the space keeps siblings. Call it before the first use of the space. It
// returns journal.ErrSiblings if the space was begun with the other setting.
func (d *Journal) KeepSiblings(_ context.Context, concurrent bool) error {
	if err := d.s.begin(); err != nil {
		return err
	}
	defer d.s.calls.RUnlock()
	d.mu.Lock()
	defer d.mu.Unlock()
	was, err := d.read(d.key('k'))
	if err != nil {
		return err
	}
	if was == nil { // a space from before this setting keeps no siblings
		was = []byte{0}
		if used, err := d.used(); err != nil {
			return err
		} else if concurrent && !used {
			was[0] = 1
		}
		if err := d.s.set(d.key('k'), was, pebble.Sync); err != nil {
			return err
		}
	}
	if (was[0] == 1) != concurrent {
		return journal.ErrSiblings
	}
	d.siblings.Store(concurrent)
	return nil
}

// used reports whether an incarnation has begun.
func (d *Journal) used() (bool, error) { return d.any(d.key('o'), d.key('o'+1)) }

// A row with siblings is encoded as a list of versions, each after its length.
func appendVersions(b []byte, versions []journal.Version) []byte {
	for _, v := range versions {
		one := appendJournalRow(nil, journal.Row{Exists: v.Exists, Value: v.Value, Stamp: v.Stamp, Dot: v.Dot})
		b = append(binary.AppendUvarint(b, uint64(len(one))), one...)
	}
	return b
}

func decodeVersions(b []byte) (out []journal.Version, err error) {
	for len(b) > 0 {
		n, used := binary.Uvarint(b)
		if used <= 0 || n > uint64(len(b)-used) {
			return nil, fmt.Errorf("%w: a row of several versions cannot be read", ErrDamaged)
		}
		r, err := decodeJournalRow(b[used : used+int(n)])
		if err != nil {
			return nil, err
		}
		out = append(out, journal.Version{Exists: r.Exists, Value: r.Value, Stamp: r.Stamp, Dot: r.Dot})
		b = b[used+int(n):]
	}
	return out, nil
}

// siblingsOf returns the row of a key in a space that keeps siblings.
func (d *Journal) siblingsOf(key string) (r journal.Row, err error) {
	r.Stamp.Time = d.collected.Load()
	b, err := d.read(d.siblingKey(key))
	if err == nil {
		r.Siblings, err = decodeVersions(b)
	}
	if err != nil {
		err = fmt.Errorf("%w (key %q)", err, key)
	}
	return r, err
}

// join adds a mutation to a batch, beside those versions of the key that it does not supersede.
func (d *Journal) join(batch *pebble.Batch, w journal.Write, m journal.Mutation) error {
	r, err := d.siblingsOf(m.Key)
	if err != nil {
		return err
	}
	if m.Delete {
		if err := batch.Set(d.graveKey(w.Stamp.Time, m.Key), nil, nil); err != nil {
			return err
		}
	}
	stay := slices.DeleteFunc(r.Siblings, func(v journal.Version) bool { return w.Supersedes(&m, v) })
	return batch.Set(d.siblingKey(m.Key), appendVersions(nil, append(stay, w.Version(&m))), nil)
}

// collectSiblings removes old deletions from the versions of a key.
func (d *Journal) collectSiblings(key string, before uint64, grave []byte) error {
	r, err := d.siblingsOf(key)
	if err != nil {
		return err
	}
	batch := d.s.db.NewBatch()
	defer batch.Close()
	stay := slices.DeleteFunc(r.Siblings, func(v journal.Version) bool { return !v.Exists && v.Stamp.Time < before })
	if len(stay) > 0 {
		err = batch.Set(d.siblingKey(key), appendVersions(nil, stay), nil)
	} else {
		err = batch.Delete(d.siblingKey(key), nil)
	}
	if err = errors.Join(err, batch.Delete(grave, nil)); err != nil {
		return err
	}
	return d.s.applyLater(batch)
}
