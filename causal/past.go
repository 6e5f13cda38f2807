package causal

import (
	"context"

	"github.com/freshet-cache/freshet/causal/mesh"
	"github.com/freshet-cache/freshet/causal/wire"
	"github.com/freshet-cache/freshet/store/journal"
)

// past answers a read of keys from the store alone, without asking a server (M21).
func (s *Server) past(ctx context.Context, m *mesh.Session, keys []string) ([]mesh.Item, error) {
	ctx, cancel := context.WithTimeout(ctx, s.opt.Timeout)
	defer cancel()
	found, err := s.opt.Store.Load(ctx, keys...)
	if err != nil {
		return nil, err
	}
	rows := make([]mesh.Row, len(found))
	for i, row := range found {
		rows[i] = fromRow(keys[i], row)
	}
	p := m.Past(rows, keys, s.opt.Concurrent)
	for len(p.Wants()) > 0 { // first the writes of the rows, then the causes that these name one by one
		writes, err := s.journal(ctx, p.Wants())
		if err != nil {
			return nil, err
		}
		p.Fetched(writes)
	}
	return m.TookPast(p), nil
}

// journal returns what the journal has of some writes.
func (s *Server) journal(ctx context.Context, dots []mesh.Dot) (writes []*mesh.Write, err error) {
	names := make([]journal.Dot, len(dots))
	for i, d := range dots {
		names[i] = journal.Dot{Incarnation: uint32(d.Incarnation), N: d.N}
	}
	bodies, err := s.opt.Store.Fetch(ctx, names)
	for _, b := range bodies {
		w, e := wire.DecodeWrite(b)
		if e != nil {
			return nil, e
		}
		writes = append(writes, w)
	}
	return writes, err
}

func fromRow(key string, r journal.Row) mesh.Row {
	row := mesh.Row{
		Item: mesh.Item{Exists: r.Exists, Value: r.Value, Stamp: mesh.Stamp{Time: r.Stamp.Time, Incarnation: mesh.Incarnation(r.Stamp.Incarnation)}},
		Dot:  mesh.Dot{Incarnation: mesh.Incarnation(r.Dot.Incarnation), N: r.Dot.N},
	}
	for _, v := range r.Siblings {
		row.Siblings = append(row.Siblings, &mesh.Write{
			Dot: mesh.Dot{Incarnation: mesh.Incarnation(v.Dot.Incarnation), N: v.Dot.N}, Stamp: mesh.Stamp{Time: v.Stamp.Time, Incarnation: mesh.Incarnation(v.Stamp.Incarnation)},
			Muts: []mesh.Mut{{Key: key, Value: v.Value, Delete: !v.Exists, Siblings: v.Dot != journal.Dot{}}},
		})
	}
	return row
}
