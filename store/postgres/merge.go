package postgres

import (
	"cmp"
	"context"
	"slices"

	"github.com/jackc/pgx/v5"

	"github.com/freshet-cache/freshet/store"
	"github.com/freshet-cache/freshet/store/journal"
)

// Claim refuses every later Merge of a smaller term, and returns the mark of the last Merge. It
// waits for a Merge that is under way, for as long as it may take. It returns journal.ErrFenced if
// a larger term has claimed.
func (d *Journal) Claim(ctx context.Context, term uint64) (mark []byte, err error) {
	if err := d.s.pool.QueryRow(ctx, d.sql.claim, d.space, int64(term)).Scan(&mark); err != nil {
		return nil, d.s.failed("claiming the rows of a space", err)
	}
	if mark == nil {
		return nil, journal.ErrFenced
	}
	return mark, nil
}

// Merge stores those rows of f that win by their stamps. It returns journal.ErrFenced if another
// term has claimed.
func (d *Journal) Merge(ctx context.Context, f journal.Flush) error {
	rows := slices.Clone(f.Rows)
	slices.SortFunc(rows, func(a, b journal.Keyed) int { return cmp.Compare(a.Key, b.Key) })
	n := len(rows)
	keys, values := make([][]byte, n), make([][]byte, n)
	times, stampers, incarnations, numbers := make([]int64, n), make([]int64, n), make([]int64, n), make([]int64, n)
	largest := uint64(0)
	for i, k := range rows {
		keys[i], values[i] = []byte(k.Key), value(&store.Mutation{Value: k.Row.Value, Delete: !k.Row.Exists})
		times[i], stampers[i] = int64(k.Row.Stamp.Time), int64(k.Row.Stamp.Incarnation)
		incarnations[i], numbers[i] = int64(k.Row.Dot.Incarnation), int64(k.Row.Dot.N)
		largest = max(largest, k.Row.Stamp.Time)
	}
	mark := f.Mark
	if mark == nil {
		mark = []byte{}
	}
	conn, err := d.s.pool.Acquire(ctx)
	if err != nil { // nothing was sent
		return d.s.unreached(err)
	}
	defer conn.Release()
	var status int
	err = conn.QueryRow(ctx, d.sql.merge, d.space, int64(f.Term), int64(f.Number), int64(largest), mark,
		keys, values, times, stampers, incarnations, numbers).Scan(&status)
	switch {
	case err != nil:
		return d.s.failed("merging causal rows", err)
	case status != 0:
		return journal.ErrFenced
	}
	return nil
}

// Fits returns why mutations can never be persisted or merged, or nil if they can.
func (d *Journal) Fits(muts []journal.Mutation) error {
	for _, m := range muts {
		if err := d.s.admissible([]store.Mutation{{Key: m.Key, Value: m.Value, Delete: m.Delete}}); err != nil {
			return err
		}
	}
	return nil
}

// Fenced returns those of the given incarnations that are fenced.
func (d *Journal) Fenced(ctx context.Context, incarnations ...uint32) ([]uint32, error) {
	all := make([]int64, len(incarnations))
	for i, o := range incarnations {
		all[i] = int64(o)
	}
	found, err := d.s.pool.Query(ctx, d.sql.fenced, d.space, all)
	if err != nil {
		return nil, d.s.failed("asking which incarnations were fenced", err)
	}
	over, err := pgx.CollectRows(found, func(r pgx.CollectableRow) (uint32, error) {
		var o int64
		err := r.Scan(&o)
		return uint32(o), err
	})
	if err != nil {
		return nil, d.s.failed("asking which incarnations were fenced", err)
	}
	return over, nil
}
