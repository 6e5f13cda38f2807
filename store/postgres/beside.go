package postgres

import (
	"context"

	"github.com/jackc/pgx/v5"

	"github.com/freshet-cache/freshet/store/dotted"
)

// Keep says whether the space keeps concurrent writes, before it is used.
func (d *Dotted) Keep(ctx context.Context, concurrent bool) error {
	if _, err := d.s.pool.Exec(ctx, d.sql.keep, d.space, concurrent); err != nil {
		return d.s.failed("choosing whether concurrent writes are kept", err)
	}
	var kept bool
	if err := d.s.pool.QueryRow(ctx, d.sql.kept, d.space).Scan(&kept); err != nil {
		return d.s.failed("choosing whether concurrent writes are kept", err)
	}
	if kept != concurrent {
		return dotted.ErrKept
	}
	d.beside.Store(concurrent)
	return nil
}

// amongst is Load where concurrent writes are kept.
func (d *Dotted) amongst(ctx context.Context, keys []string) ([]dotted.Row, error) {
	names := make([][]byte, len(keys))
	for i, k := range keys {
		names[i] = []byte(k)
	}
	found, err := d.s.pool.Query(ctx, d.sql.among, d.space, names)
	if err != nil {
		return nil, d.s.failed("reading causal rows", err)
	}
	rows := make([]dotted.Row, len(keys))
	var value []byte
	var i, buried, time, stamper, origin, n int64
	var there bool
	_, err = pgx.ForEachRow(found, []any{&i, &buried, &there, &value, &time, &stamper, &origin, &n}, func() error {
		r := &rows[i-1]
		if r.Stamp.Time = uint64(buried); there {
			r.Among = append(r.Among, dotted.Version{Exists: value != nil, Value: append(value[:0:0], value...),
				Stamp: dotted.Stamp{Time: uint64(time), Origin: uint32(stamper)}, Dot: dotted.Dot{Origin: uint32(origin), N: uint64(n)}})
		}
		return nil
	})
	if err != nil {
		return nil, d.s.failed("reading causal rows", err)
	}
	return rows, nil
}

// over are the versions whose place mutations take, as causal_persist_siblings wants them.
func over(muts []dotted.Mutation) []any {
	keys, origins, numbers := [][]byte{}, []int64{}, []int64{}
	for _, m := range muts {
		for _, d := range m.Over {
			keys, origins, numbers = append(keys, []byte(m.Key)), append(origins, int64(d.Origin)), append(numbers, int64(d.N))
		}
	}
	return []any{keys, origins, numbers}
}
