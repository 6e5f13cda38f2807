package causal

import (
	"context"
	"slices"

	"github.com/freshet-cache/freshet/causal/dot"
	"github.com/freshet-cache/freshet/causal/mesh"
	"github.com/freshet-cache/freshet/causal/wire"
	"github.com/freshet-cache/freshet/store/dotted"
)

// past answers a read of keys from the store alone, past all servers. Rows of one instant are
// a causal cut: whatever anybody has seen was in the store before, and a row is no older than
// any write of its key. The session carries what it so reads, with its causes, as long as
// nobody says that it is visible.
func (s *Server) past(ctx context.Context, m *mesh.Session, keys []string) (r mesh.Reply, err error) {
	ctx, cancel := context.WithTimeout(ctx, s.opt.Timeout)
	defer cancel()
	rows, err := s.opt.Store.Load(ctx, keys...)
	if err != nil {
		return r, err
	}
	r.Visible = m.Deps
	var want []mesh.Dot
	for i, row := range rows {
		is := fromRow(keys[i], row)
		if s.opt.Concurrent {
			is.Item = is.Item.Of(keys[i])
		}
		r.Items = append(r.Items, is.Item)
		for _, d := range append(is.Dots(), is.Dot) {
			if d != (mesh.Dot{}) && !r.Visible.Covers(d) {
				want = append(want, d)
			}
		}
	}
	for len(want) > 0 { // the rows' writes, then what those name one by one
		slices.SortFunc(want, mesh.Dot.Compare)
		want = slices.Compact(want)
		writes, err := s.journal(ctx, want)
		if err != nil {
			return r, err
		}
		var next []mesh.Dot
		for _, d := range want {
			i := slices.IndexFunc(writes, func(w *mesh.Write) bool { return w.Dot == d })
			if i < 0 { // the journal has let it go: everybody has it
				r.Visible = r.Visible.Union(dot.NewFrontier(d))
				continue
			}
			r.Visible = r.Visible.Union(writes[i].Deps)
			next = append(next, writes[i].After...)
		}
		r.Carried = append(r.Carried, writes...)
		want = slices.DeleteFunc(next, func(d mesh.Dot) bool {
			return r.Visible.Covers(d) || slices.ContainsFunc(r.Carried, func(w *mesh.Write) bool { return w.Dot == d })
		})
	}
	return r, nil
}

// journal is what the journal has of some writes.
func (s *Server) journal(ctx context.Context, dots []mesh.Dot) (writes []*mesh.Write, err error) {
	names := make([]dotted.Dot, len(dots))
	for i, d := range dots {
		names[i] = dotted.Dot{Origin: uint32(d.Origin), N: d.N}
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

func fromRow(key string, r dotted.Row) mesh.Row {
	row := mesh.Row{
		Item: mesh.Item{Exists: r.Exists, Value: r.Value, Stamp: mesh.Stamp{Time: r.Stamp.Time, Origin: mesh.Origin(r.Stamp.Origin)}},
		Dot:  mesh.Dot{Origin: mesh.Origin(r.Dot.Origin), N: r.Dot.N},
	}
	for _, v := range r.Among {
		row.Among = append(row.Among, &mesh.Write{
			Dot: mesh.Dot{Origin: mesh.Origin(v.Dot.Origin), N: v.Dot.N}, Stamp: mesh.Stamp{Time: v.Stamp.Time, Origin: mesh.Origin(v.Stamp.Origin)},
			Muts: []mesh.Mut{{Key: key, Value: v.Value, Delete: !v.Exists, Beside: v.Dot != dotted.Dot{}}},
		})
	}
	return row
}
