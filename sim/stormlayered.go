package sim

import (
	"github.com/freshet-cache/freshet/linear/clink"
)

// item is what a layered cache keeps of a key, beside a version service: every item it
// was ever told, any of which it may answer with.
type item struct {
	version uint64
	value   string
	exists  bool
}

// tellValues has the value cache hear of a state, sooner or later, or never.
func (s *storm) tellValues(key string, i item) {
	r := s.rng("values")
	if i.version%2 == 0 && !chance(r, 10) {
		s.after(spread(r, s.plan.Config.Delay), func() { s.values[key] = append(s.values[key], i) })
	}
}

// askValues is what the value cache answers.
func (s *storm) askValues(key string) (i item, ok bool) {
	r, all := s.rng("values"), s.values[key]
	switch {
	case len(all) == 0 || chance(r, 5):
		return item{}, false
	case chance(r, 30):
		return all[r.IntN(len(all))], true
	}
	return all[len(all)-1], true
}

// layeredRead is a read through a layered cache: the version that the node knows, or
// finds, and a value asked for at the same time.
type layeredRead struct {
	n     *stormNode
	op    clink.Op
	key   string
	heard int
	row   clink.Row // its version
	item  item
	ok    bool
}

func (n *stormNode) readLayered(op clink.Op, key string) {
	l := &layeredRead{n: n, op: op, key: key}
	n.layered[op] = l
	r := n.s.rng("layered at " + n.name)
	n.later(spread(r, n.s.plan.Config.Delay), func() {
		l.item, l.ok = n.s.askValues(key)
		l.both()
	})
	n.later(spread(r, n.s.plan.Config.Delay), func() {
		if e, ok := n.serves(key); ok {
			l.version(e.Row)
			return
		}
		n.locked(func() { n.step(clink.Read{Op: op, Key: key}) })
	})
}

// version takes the version service's answer.
func (l *layeredRead) version(row clink.Row) {
	l.row = row
	l.both()
}

func (l *layeredRead) both() {
	s := l.n.s
	if l.heard++; l.heard < 2 {
		return
	}
	switch {
	case !l.row.Exists:
		l.answer(clink.Row{})
	case l.ok && l.item.version == l.row.Version:
		s.sometimes("a layered read is served by the value cache")
		l.answer(clink.Row{Exists: l.item.exists, Value: []byte(l.item.value)})
	default:
		s.sometimes("a layered read finds another version")
		l.n.later(spread(s.rng("layered at "+l.n.name), s.plan.Config.Delay), func() {
			row := s.store.Load(s.clock(), l.key)
			s.tellValues(l.key, item{row.Version, string(row.Value), row.Exists})
			l.answer(row)
		})
	}
}

func (l *layeredRead) answer(row clink.Row) {
	delete(l.n.layered, l.op)
	if _, waits := l.n.calls[l.op]; waits {
		l.n.s.answered(l.n, clink.Reply{Op: l.op, Row: row})
	}
}
