package pebble

import (
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/cockroachdb/pebble/v2"

	"github.com/freshet-cache/freshet/store/journal"
)

// Journal has the causal rows of one space in a Store, with the promises of package journal. It is
// safe for concurrent use. Closing the Store closes it.
type Journal struct {
	s       *Store
	prefix  []byte
	stripes [stripes]sync.RWMutex // a write of a key holds its stripe until it is durable; a read holds it too

	merging sync.Mutex // one merge at a time, so that the marks are in order

	mu           sync.Mutex // guards incarnations
	incarnations map[uint32]*incarnationState
	collected    atomic.Uint64
	siblings     atomic.Bool // the space keeps siblings
}

// Journal returns the space with this name. Its first row creates it.
func (s *Store) Journal(space string) (*Journal, error) {
	if space == "" || len(space) > 255 {
		return nil, fmt.Errorf("pebble: a space has a name of 1 to 255 bytes, not %d", len(space))
	}
	d := &Journal{s: s, prefix: append([]byte{'c', byte(len(space))}, space...), incarnations: map[uint32]*incarnationState{}}
	b, err := d.read(d.key('b'))
	if b != nil && err == nil && len(b) != 8 {
		err = fmt.Errorf("%w: what space %s has collected cannot be read", ErrDamaged, space)
	}
	if b != nil && err == nil {
		d.collected.Store(binary.BigEndian.Uint64(b))
	}
	return d, err
}

// The keys of a space, by kind: rows, or versions of rows; tombstones by time; the journal;
// incarnations; the time of the latest CollectTombstones; whether siblings are kept; and the
// progress of merging.
func (d *Journal) key(kind byte) []byte {
	return append(slices.Clip(d.prefix), kind)
}

func (d *Journal) rowKey(key string) []byte { return append(d.key('r'), key...) }

func (d *Journal) graveKey(time uint64, key string) []byte {
	return append(binary.BigEndian.AppendUint64(d.key('g'), time), key...)
}

func (d *Journal) entryKey(o uint32, n uint64) []byte {
	return binary.BigEndian.AppendUint64(binary.BigEndian.AppendUint32(d.key('j'), o), n)
}

func (d *Journal) incarnationKey(o uint32) []byte {
	return binary.BigEndian.AppendUint32(d.key('o'), o)
}

// The encoding of a row: a version byte, whether it exists, its stamp, its dot, its value.
//
// The encoding of an incarnation: a version byte, whether it is fenced, the number up to which it
// is truncated, the largest time among the truncated entries, and its name. Older versions of
// freshet did not write the name.
//
// The encoding of a journal entry: its time, then its body.
const (
	journalRowEncoding = 1
	journalRowHeader   = 1 + 1 + 8 + 4 + 4 + 8
	incarnationBytes   = 1 + 1 + 8 + 8 // without its name
)

func appendJournalRow(b []byte, r journal.Row) []byte {
	flag := byte(0)
	if r.Exists {
		flag = 1
	}
	b = binary.BigEndian.AppendUint64(append(b, journalRowEncoding, flag), r.Stamp.Time)
	b = binary.BigEndian.AppendUint32(binary.BigEndian.AppendUint32(b, r.Stamp.Incarnation), r.Dot.Incarnation)
	return append(binary.BigEndian.AppendUint64(b, r.Dot.N), r.Value...)
}

// decodeJournalRow decodes a row. Its value is a copy.
func decodeJournalRow(b []byte) (r journal.Row, err error) {
	if len(b) < journalRowHeader || b[0] != journalRowEncoding || b[1] > 1 || b[1] == 0 && len(b) > journalRowHeader {
		return r, errors.New("pebble: the row is damaged or of a newer version of freshet; restore it, or overwrite the key")
	}
	r.Exists, r.Stamp.Time = b[1] == 1, binary.BigEndian.Uint64(b[2:])
	r.Stamp.Incarnation, r.Dot.Incarnation, r.Dot.N = binary.BigEndian.Uint32(b[10:]), binary.BigEndian.Uint32(b[14:]), binary.BigEndian.Uint64(b[18:])
	if r.Exists {
		r.Value = append([]byte{}, b[journalRowHeader:]...)
	}
	return r, nil
}

// read returns the value of a database key, or nil if the key does not exist.
func (d *Journal) read(key []byte) ([]byte, error) {
	b, closer, err := d.s.db.Get(key)
	if errors.Is(err, pebble.ErrNotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("pebble: reading: %w", err)
	}
	b = append([]byte{}, b...)
	return b, closer.Close()
}

var errEntry = fmt.Errorf("%w: an entry of a journal cannot be read", ErrDamaged)

// entry returns an entry of the journal, with a nil body if it does not exist.
func (d *Journal) entry(key []byte) (time uint64, body []byte, err error) {
	b, err := d.read(key)
	switch {
	case b == nil || err != nil:
		return 0, nil, err
	case len(b) < 8:
		return 0, nil, errEntry
	}
	return binary.BigEndian.Uint64(b), b[8:], nil
}

func (d *Journal) row(key string) (journal.Row, error) {
	b, err := d.read(d.rowKey(key))
	if b == nil || err != nil {
		return journal.Row{Stamp: journal.Stamp{Time: d.collected.Load()}}, err
	}
	r, err := decodeJournalRow(b)
	if err != nil {
		err = fmt.Errorf("%w (key %q)", err, key)
	}
	return r, err
}

// lock calls take for the stripes of keys in order, each once. It returns the function that calls
// leave for them.
func (d *Journal) lock(keys []string, take, leave func(*sync.RWMutex)) func() {
	at := make([]int, len(keys))
	for i, k := range keys {
		at[i] = d.s.stripe(k)
	}
	slices.Sort(at)
	at = slices.Compact(at)
	for _, i := range at {
		take(&d.stripes[i])
	}
	return func() {
		for _, i := range at {
			leave(&d.stripes[i])
		}
	}
}

// Load returns the rows of keys, all as of one instant. They are durable.
func (d *Journal) Load(_ context.Context, keys ...string) ([]journal.Row, error) {
	if err := d.s.begin(); err != nil {
		return nil, err
	}
	defer d.s.calls.RUnlock()
	defer d.lock(keys, (*sync.RWMutex).RLock, (*sync.RWMutex).RUnlock)()
	rows := make([]journal.Row, len(keys))
	look := d.row
	if d.siblings.Load() {
		look = d.siblingsOf
	}
	for i, k := range keys {
		var err error
		if rows[i], err = look(k); err != nil {
			return nil, err
		}
	}
	return rows, nil
}

// Truncate lets the journal drop an incarnation's writes up to a number. A crash may undo it; the
// server then truncates again, or the incarnation has ended. It returns journal.ErrFenced if the
// incarnation is fenced.
func (d *Journal) Truncate(_ context.Context, o uint32, upto uint64) error {
	return d.truncate(o, upto, false)
}

// TruncateFenced is Truncate for an incarnation that is fenced.
func (d *Journal) TruncateFenced(_ context.Context, o uint32, upto uint64) error {
	return d.truncate(o, upto, true)
}

func (d *Journal) truncate(o uint32, upto uint64, fenced bool) error {
	return d.change(o, false, func(l *incarnationState, batch *pebble.Batch) error {
		if !l.begun || l.fenced != fenced {
			return journal.ErrFenced
		}
		for n := l.truncated + 1; n <= upto; n++ {
			time, _, err := d.entry(d.entryKey(o, n))
			if err != nil {
				return err
			}
			l.largest = max(l.largest, time)
			if err := batch.Delete(d.entryKey(o, n), nil); err != nil {
				return err
			}
		}
		l.truncated = max(l.truncated, upto)
		return nil
	})
}

// Persist commits a write, and returns when it is durable. It returns journal.ErrFenced if the
// incarnation is fenced or never began.
func (d *Journal) Persist(_ context.Context, w journal.Write) error {
	if err := d.s.begin(); err != nil {
		return err
	}
	defer d.s.calls.RUnlock()
	if err := d.Fits(w.Muts); err != nil {
		return err
	}
	keys := make([]string, len(w.Muts))
	for i, m := range w.Muts {
		keys[i] = m.Key
	}
	l, err := d.incarnation(w.Dot.Incarnation)
	if err != nil {
		return err
	}
	l.mu.RLock()
	defer l.mu.RUnlock()
	switch {
	case !l.begun || l.fenced:
		return journal.ErrFenced
	case w.Dot.N <= l.truncated:
		return nil
	}
	defer d.lock(keys, (*sync.RWMutex).Lock, (*sync.RWMutex).Unlock)()
	entry := d.entryKey(w.Dot.Incarnation, w.Dot.N)
	if _, b, err := d.entry(entry); b != nil || err != nil {
		return err
	}
	batch := d.s.db.NewBatch()
	defer batch.Close()
	if err := batch.Set(entry, append(binary.BigEndian.AppendUint64(nil, w.Stamp.Time), w.Body...), nil); err != nil {
		return err
	}
	put := d.merge
	if d.siblings.Load() {
		put = d.join
	}
	for _, m := range w.Muts {
		if err := put(batch, w, m); err != nil {
			return err
		}
	}
	return d.s.apply(batch)
}

// merge adds a mutation to a batch if its stamp wins the row.
func (d *Journal) merge(batch *pebble.Batch, w journal.Write, m journal.Mutation) error {
	old, err := d.row(m.Key)
	if err != nil || (old.Exists || old.Dot != journal.Dot{}) && !old.Stamp.Less(w.Stamp) {
		return err
	}
	r := journal.Row{Exists: !m.Delete, Stamp: w.Stamp, Dot: w.Dot}
	if r.Exists {
		r.Value = m.Value
	} else if err := batch.Set(d.graveKey(w.Stamp.Time, m.Key), nil, nil); err != nil {
		return err
	}
	return batch.Set(d.rowKey(m.Key), appendJournalRow(nil, r), nil)
}

// Fetch returns the journal's entries of the dots, in the order of dots. It leaves out those that
// the journal does not have.
func (d *Journal) Fetch(_ context.Context, dots []journal.Dot) (bodies [][]byte, err error) {
	if err := d.s.begin(); err != nil {
		return nil, err
	}
	defer d.s.calls.RUnlock()
	for _, dot := range dots {
		_, b, err := d.entry(d.entryKey(dot.Incarnation, dot.N))
		if err != nil {
			return nil, err
		}
		if b != nil {
			bodies = append(bodies, b)
		}
	}
	return bodies, nil
}

// Entries returns up to limit entries of an incarnation with numbers above after, in order.
// truncated is the number up to which the journal of the incarnation was truncated. Entries returns
// journal.ErrFenced if the incarnation never began.
func (d *Journal) Entries(_ context.Context, o uint32, after uint64, limit int) (entries []journal.Entry, truncated uint64, err error) {
	if err := d.s.begin(); err != nil {
		return nil, 0, err
	}
	defer d.s.calls.RUnlock()
	l, err := d.incarnation(o)
	if err != nil {
		return nil, 0, err
	}
	l.mu.Lock() // every Persist is either finished before the read, or begins after it
	defer l.mu.Unlock()
	if !l.begun {
		return nil, 0, journal.ErrFenced
	}
	low := d.entryKey(o, cmp.Or(after, l.truncated)+1)
	it, err := d.s.db.NewIter(&pebble.IterOptions{LowerBound: low, UpperBound: append(d.entryKey(o, math.MaxUint64), 0)})
	if err != nil {
		return nil, 0, err
	}
	for ok := it.First(); ok && len(entries) < limit; ok = it.Next() {
		k, v := it.Key(), it.Value()
		if len(v) < 8 {
			return nil, 0, errors.Join(errEntry, it.Close())
		}
		entries = append(entries, journal.Entry{N: binary.BigEndian.Uint64(k[len(k)-8:]), Body: append([]byte{}, v[8:]...)})
	}
	return entries, l.truncated, errors.Join(it.Error(), it.Close())
}

// CollectTombstones removes the tombstones whose stamps have a smaller time. A crash may undo it.
func (d *Journal) CollectTombstones(ctx context.Context, before uint64) error {
	if err := d.s.begin(); err != nil {
		return err
	}
	defer d.s.calls.RUnlock()
	for old := d.collected.Load(); old < before && !d.collected.CompareAndSwap(old, before); old = d.collected.Load() {
	}
	if err := d.s.set(d.key('b'), binary.BigEndian.AppendUint64(nil, d.collected.Load()), pebble.NoSync); err != nil { // logged before the removals
		return err
	}
	it, err := d.s.db.NewIter(&pebble.IterOptions{LowerBound: d.key('g'), UpperBound: d.graveKey(before, "")})
	if err != nil {
		return err
	}
	defer it.Close()
	head := len(d.prefix) + 1 + 8
	for ok := it.First(); ok && ctx.Err() == nil; ok = it.Next() {
		grave := append([]byte{}, it.Key()...)
		if len(grave) < head {
			return fmt.Errorf("%w: the index of deleted keys has one of %d bytes", ErrDamaged, len(grave))
		}
		if err := d.collect(string(grave[head:]), before, grave); err != nil {
			return err
		}
	}
	return errors.Join(it.Error(), context.Cause(ctx))
}

// collect removes a row if it is still a tombstone.
func (d *Journal) collect(key string, before uint64, grave []byte) error {
	defer d.lock([]string{key}, (*sync.RWMutex).Lock, (*sync.RWMutex).Unlock)()
	if d.siblings.Load() {
		return d.collectSiblings(key, before, grave)
	}
	r, err := d.row(key)
	if err != nil {
		return err
	}
	batch := d.s.db.NewBatch()
	defer batch.Close()
	if err := batch.Delete(grave, nil); err != nil {
		return err
	}
	if !r.Exists && r.Stamp.Time < before {
		if err := batch.Delete(d.rowKey(key), nil); err != nil {
			return err
		}
	}
	return d.s.applyLater(batch)
}

// Largest returns the largest time of a stamp that was ever persisted. It reads all entries of the
// journal.
func (d *Journal) Largest(ctx context.Context) (largest uint64, err error) {
	if err := d.s.begin(); err != nil {
		return 0, err
	}
	defer d.s.calls.RUnlock()
	m, err := d.merged()
	if err != nil {
		return 0, err
	}
	largest = m.largest
	for _, kind := range []byte{'j', 'o'} {
		it, err := d.s.db.NewIter(&pebble.IterOptions{LowerBound: d.key(kind), UpperBound: d.key(kind + 1)})
		if err != nil {
			return 0, err
		}
		for ok := it.First(); ok && ctx.Err() == nil; ok = it.Next() {
			switch v := it.Value(); {
			case kind == 'j' && len(v) >= 8:
				largest = max(largest, binary.BigEndian.Uint64(v))
			case kind == 'o' && len(v) >= incarnationBytes:
				largest = max(largest, binary.BigEndian.Uint64(v[10:]))
			}
		}
		if err := errors.Join(it.Error(), it.Close(), context.Cause(ctx)); err != nil {
			return 0, err
		}
	}
	return largest, nil
}
