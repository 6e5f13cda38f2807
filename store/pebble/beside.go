package pebble

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"

	"github.com/cockroachdb/pebble/v2"

	"github.com/freshet-cache/freshet/store/dotted"
)

func (d *Dotted) besideKey(key string) []byte { return append(d.key('s'), key...) }

// Keep says whether the space keeps concurrent writes, before it is used.
func (d *Dotted) Keep(_ context.Context, concurrent bool) error {
	if err := d.s.begin(); err != nil {
		return err
	}
	defer d.s.life.RUnlock()
	d.mu.Lock()
	defer d.mu.Unlock()
	was, err := d.read(d.key('k'))
	if err != nil {
		return err
	}
	if was == nil { // before there was a choice, nothing was kept
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
		return dotted.ErrKept
	}
	d.beside.Store(concurrent)
	return nil
}

// used reports whether an origin has begun.
func (d *Dotted) used() (bool, error) { return d.any(d.key('o'), d.key('o'+1)) }

// A row of several versions is each of them behind its length.
func appendVersions(b []byte, versions []dotted.Version) []byte {
	for _, v := range versions {
		one := appendDotted(nil, dotted.Row{Exists: v.Exists, Value: v.Value, Stamp: v.Stamp, Dot: v.Dot})
		b = append(binary.AppendUvarint(b, uint64(len(one))), one...)
	}
	return b
}

func decodeVersions(b []byte) (out []dotted.Version, err error) {
	for len(b) > 0 {
		n, used := binary.Uvarint(b)
		if used <= 0 || n > uint64(len(b)-used) {
			return nil, fmt.Errorf("%w: a row of several versions cannot be read", ErrDamaged)
		}
		r, err := decodeDotted(b[used : used+int(n)])
		if err != nil {
			return nil, err
		}
		out = append(out, dotted.Version{Exists: r.Exists, Value: r.Value, Stamp: r.Stamp, Dot: r.Dot})
		b = b[used+int(n):]
	}
	return out, nil
}

// among is the row of a key where concurrent writes are kept.
func (d *Dotted) among(key string) (r dotted.Row, err error) {
	r.Stamp.Time = d.buried.Load()
	b, err := d.read(d.besideKey(key))
	if err == nil {
		r.Among, err = decodeVersions(b)
	}
	if err != nil {
		err = fmt.Errorf("%w (key %q)", err, key)
	}
	return r, err
}

// join puts what a write leaves beside the versions of a key into a batch.
func (d *Dotted) join(batch *pebble.Batch, w dotted.Write, m dotted.Mutation) error {
	r, err := d.among(m.Key)
	if err != nil {
		return err
	}
	if m.Delete {
		if err := batch.Set(d.graveKey(w.Stamp.Time, m.Key), nil, nil); err != nil {
			return err
		}
	}
	stay := slices.DeleteFunc(r.Among, func(v dotted.Version) bool { return w.Replaced(&m, v) })
	return batch.Set(d.besideKey(m.Key), appendVersions(nil, append(stay, w.Version(&m))), nil)
}

// buryBeside removes the deletions that are beside the versions of a key.
func (d *Dotted) buryBeside(key string, before uint64, grave []byte) error {
	r, err := d.among(key)
	if err != nil {
		return err
	}
	batch := d.s.db.NewBatch()
	defer batch.Close()
	stay := slices.DeleteFunc(r.Among, func(v dotted.Version) bool { return !v.Exists && v.Stamp.Time < before })
	if len(stay) > 0 {
		err = batch.Set(d.besideKey(key), appendVersions(nil, stay), nil)
	} else {
		err = batch.Delete(d.besideKey(key), nil)
	}
	if err = errors.Join(err, batch.Delete(grave, nil)); err != nil {
		return err
	}
	return d.s.applyLater(batch)
}
