package postgres

import (
	"context"

	"github.com/jackc/pgx/v5"

	"github.com/freshet-cache/freshet/store/journal"
)

// KeepSiblings says whether the space keeps siblings. Call it before the first use of the space. It
// returns journal.ErrSiblings if the space was begun with the other setting.
func (d *Journal) KeepSiblings(ctx context.Context, concurrent bool) error {
	if _, err := d.s.pool.Exec(ctx, d.sql.keepSiblings, d.space, concurrent); err != nil {
		return d.s.failed("choosing whether concurrent writes are kept", err)
	}
	var kept bool
	if err := d.s.pool.QueryRow(ctx, d.sql.kept, d.space).Scan(&kept); err != nil {
		return d.s.failed("choosing whether concurrent writes are kept", err)
	}
	if kept != concurrent {
		return journal.ErrSiblings
	}
	d.siblings.Store(concurrent)
	return nil
}

// siblingsOf is Load in a space that keeps siblings.
func (d *Journal) siblingsOf(ctx context.Context, keys []string) ([]journal.Row, error) {
	names := make([][]byte, len(keys))
	for i, k := range keys {
		names[i] = []byte(k)
	}
	found, err := d.s.pool.Query(ctx, d.sql.siblings, d.space, names)
	if err != nil {
		return nil, d.s.failed("reading causal rows", err)
	}
	rows := make([]journal.Row, len(keys))
	var value []byte
	var i, collected, time, stamper, incarnation, n int64
	var there bool
	_, err = pgx.ForEachRow(found, []any{&i, &collected, &there, &value, &time, &stamper, &incarnation, &n}, func() error {
		r := &rows[i-1]
		if r.Stamp.Time = uint64(collected); there {
			r.Siblings = append(r.Siblings, journal.Version{Exists: value != nil, Value: append(value[:0:0], value...),
				Stamp: journal.Stamp{Time: uint64(time), Incarnation: uint32(stamper)}, Dot: journal.Dot{Incarnation: uint32(incarnation), N: uint64(n)}})
		}
		return nil
	})
	if err != nil {
		return nil, d.s.failed("reading causal rows", err)
	}
	return rows, nil
}

// supersedes returns the versions that mutations replace, as arguments of causal_persist_siblings.
func supersedes(muts []journal.Mutation) []any {
	keys, incarnations, numbers := [][]byte{}, []int64{}, []int64{}
	for _, m := range muts {
		for _, d := range m.Supersedes {
			keys, incarnations, numbers = append(keys, []byte(m.Key)), append(incarnations, int64(d.Incarnation)), append(numbers, int64(d.N))
		}
	}
	return []any{keys, incarnations, numbers}
}
