package mesh

import "slices"

// Past is a read of keys from the store alone, without asking a server (M21). Rows of one instant
// are a causal cut: whatever a reader has seen was in the store before, and a row is no older than
// any write of its key. The session carries the writes that it reads, with their causes, until a
// server says that they are visible. While Wants is not empty, the caller fetches those writes from
// the journal and gives them to Fetched. Then the session takes the result with TookPast.
type Past struct {
	r    Reply
	want []Dot
	bare []Dot
}

// Past begins a read of rows, which are the rows of keys at one instant. concurrent says that the
// space keeps siblings.
func (s *Session) Past(rows []Row, keys []string, concurrent bool) *Past {
	p := &Past{r: Reply{Visible: s.Deps}}
	for i, row := range rows {
		if concurrent {
			row.Item = row.Item.Of(keys[i])
		}
		p.r.Items = append(p.r.Items, row.Item)
		for _, d := range append(row.Dots(), row.Dot) {
			if d != (Dot{}) && !p.known(d) {
				p.want = append(p.want, d)
			}
		}
	}
	return p.sort()
}

// known reports whether the session need not carry a write, or carries it already.
func (p *Past) known(d Dot) bool {
	return p.r.Visible.Covers(d) || slices.Contains(p.bare, d) || slices.ContainsFunc(p.r.Carried, func(w *Write) bool { return w.Dot == d })
}

func (p *Past) sort() *Past {
	slices.SortFunc(p.want, Dot.Compare)
	p.want = slices.Compact(p.want)
	return p
}

// Wants returns the writes that the caller must fetch from the journal.
func (p *Past) Wants() []Dot { return p.want }

// Fetched takes what the journal has of the wanted writes.
func (p *Past) Fetched(writes []*Write) {
	asked := p.want
	p.want = nil
	p.r.Carried = append(p.r.Carried, writes...)
	for _, w := range writes {
		p.r.Visible = p.r.Visible.Union(w.Deps)
	}
	for _, d := range asked { // M21: the journal has truncated the rest, so their causes are unknown
		if !p.known(d) {
			p.bare = append(p.bare, d)
		}
	}
	for _, w := range writes {
		for _, d := range w.After {
			if !p.known(d) {
				p.want = append(p.want, d)
			}
		}
	}
	p.sort()
}

// TookPast takes what a Past has found, and returns what the session sees of the keys. That is the
// rows alone: a write that the session carries was in the store before. If a row lacks it, another
// write has replaced it.
func (s *Session) TookPast(p *Past) []Item {
	s.Deps = s.Deps.Union(p.r.Visible)
	s.carry(p.r.Carried...)
	s.Bare = append(slices.Clone(s.Bare), p.bare...)
	s.tidy()
	for _, it := range p.r.Items {
		s.Time = max(s.Time, it.Stamp.Time)
	}
	return p.r.Items
}
