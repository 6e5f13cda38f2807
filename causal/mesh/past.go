package mesh

import "slices"

// Past is a read of keys from the store alone, past all servers (M21). Rows of one instant are a causal cut: whatever
// anybody has seen was in the store before, and a row is no older than any write of its key. The session carries what it
// so reads, with its causes, as long as nobody says that it is visible. It asks the journal while Wants says so; then
// the session takes it.
type Past struct {
	r    Reply
	want []Dot
	bare []Dot
}

// Past begins a read of rows, which are those of keys and of one instant.
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

// Wants are the writes that the journal is asked for.
func (p *Past) Wants() []Dot { return p.want }

// Fetched takes what the journal has of them.
func (p *Past) Fetched(writes []*Write) {
	asked := p.want
	p.want = nil
	p.r.Carried = append(p.r.Carried, writes...)
	for _, w := range writes {
		p.r.Visible = p.r.Visible.Union(w.Deps)
	}
	for _, d := range asked { // M21: the journal has truncated the rest, and with it of their causes
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

// TookPast takes what a Past has found, and returns what the session sees of the keys. That is the rows: what the session
// carries was in the store before, so a row from which it is missing has had it replaced.
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
