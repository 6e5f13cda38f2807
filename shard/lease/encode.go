package lease

import (
	"encoding/binary"
	"errors"
	"slices"
)

// The encoding of every message and of the saved state: a version byte, a kind byte, then the
// fields in order. Numbers are varints; strings have their length before them. A reader refuses
// other versions and trailing bytes.
//
// The second version has groups. A message without groups is written in the first version, so that
// an older process can read it until a key is replicated.
const (
	encoding     = 1
	groupedSince = 2
)

const (
	kindRenew = iota + 1
	kindGrant
	kindRecall
	kindGave
	kindState
)

// ErrMessage means that bytes are not a message of a known version.
var ErrMessage = errors.New("lease: malformed message or another version of the protocol; run one version of freshet on all nodes")

// codec writes if write is set, and reads otherwise. Both directions are one list of fields, so
// they cannot differ.
type codec struct {
	write   bool
	grouped bool // the version has groups
	buf     []byte
	bad     bool
}

func (c *codec) num(v *uint64) {
	if c.write {
		c.buf = binary.AppendUvarint(c.buf, *v)
		return
	}
	n, w := binary.Uvarint(c.buf)
	if w <= 0 {
		c.bad, c.buf, n, w = true, nil, 0, 0
	}
	*v, c.buf = n, c.buf[w:]
}

func number[T ~uint64 | ~int64 | ~int](c *codec, v *T) {
	n := uint64(*v)
	c.num(&n)
	*v = T(n)
}

func (c *codec) flag(v *bool) {
	var n uint64
	if *v {
		n = 1
	}
	c.num(&n)
	*v = n == 1
	c.bad = c.bad || n > 1
}

func (c *codec) str(v *string) {
	n := uint64(len(*v))
	c.num(&n)
	switch {
	case c.write:
		c.buf = append(c.buf, *v...)
	case n > uint64(len(c.buf)):
		c.bad, c.buf = true, nil
	default:
		*v, c.buf = string(c.buf[:n]), c.buf[n:]
	}
}

// list writes or reads a slice. Every element takes at least one byte, so a length beyond the bytes
// left is refused before memory is allocated for it.
func list[T any](c *codec, v *[]T, each func(*T)) {
	n := uint64(len(*v))
	c.num(&n)
	if !c.write {
		if n > uint64(len(c.buf)) {
			c.bad, c.buf = true, nil
			return
		}
		if n > 0 {
			*v = make([]T, n)
		}
	}
	for i := range *v {
		if each(&(*v)[i]); c.bad {
			return
		}
	}
}

func (c *codec) lease(l *Lease) {
	c.str(&l.Low)
	c.str(&l.High)
	number(c, &l.Gen)
}

func (c *codec) gens(v *[]Gen) { list(c, v, func(g *Gen) { number(c, g) }) }

func (c *codec) load(l *Load) {
	number(c, &l.Gen)
	c.num(&l.Rate)
	list(c, &l.Sample, c.str)
	list(c, &l.Hot, func(h *HotKey) { c.str(&h.Key); c.num(&h.Rate) })
}

func (c *codec) members(v *[]GroupMember) {
	if c.grouped {
		list(c, v, func(m *GroupMember) { c.str(&m.Node); c.str(&m.Addr); c.str(&m.Host) })
	}
}

func (c *codec) route(r *Route) {
	c.lease(&r.Lease)
	c.str(&r.Node)
	c.str(&r.Addr)
	c.members(&r.Copies)
}

func (c *codec) held(h *Held) {
	c.lease(&h.Lease)
	c.str(&h.Node)
	c.str(&h.Addr)
	c.str(&h.Host)
	if c.members(&h.Copies); c.grouped {
		number(c, &h.Want)
		c.flag(&h.Pinned)
	}
}

// grouped reports whether a message needs the second version.
func grouped(m any) bool {
	switch m := m.(type) {
	case *Renew:
		return m.Groups || m.Done
	case *Grant:
		return len(m.Groups) > 0 || m.Table != nil && slices.ContainsFunc(m.Table.Slices, func(r Route) bool { return len(r.Copies) > 0 })
	case *State:
		return slices.ContainsFunc(m.Slices, func(h Held) bool { return len(h.Copies) > 0 || h.Want != 0 || h.Pinned })
	}
	return false
}

func (c *codec) message(m any) (kind byte) {
	switch m := m.(type) {
	case *Renew:
		c.str(&m.Node)
		c.str(&m.Addr)
		c.str(&m.Host)
		c.num(&m.Seq)
		c.gens(&m.Gave)
		c.flag(&m.Leaving)
		c.num(&m.Table)
		if list(c, &m.Loads, c.load); c.grouped {
			c.flag(&m.Groups)
			c.flag(&m.Done)
		}
		return kindRenew
	case *Grant:
		c.str(&m.Node)
		c.num(&m.Term)
		c.num(&m.Seq)
		number(c, &m.Length)
		list(c, &m.Leases, c.lease)
		c.gens(&m.After)
		if c.grouped {
			list(c, &m.Groups, func(g *Group) { c.members((*[]GroupMember)(g)) })
		}
		c.bad = c.bad || len(m.After) != len(m.Leases) || len(m.Groups) > 0 && len(m.Groups) != len(m.Leases)
		has := m.Table != nil
		if c.flag(&has); has {
			if !c.write {
				m.Table = &Table{}
			}
			c.num(&m.Table.Version)
			list(c, &m.Table.Slices, c.route)
		}
		return kindGrant
	case *Recall:
		c.str(&m.Node)
		c.num(&m.Term)
		list(c, &m.Leases, c.lease)
		list(c, &m.Next, c.str)
		c.bad = c.bad || len(m.Next) != len(m.Leases)
		return kindRecall
	case *Gave:
		c.str(&m.Node)
		c.gens(&m.Gens)
		return kindGave
	case *State:
		number(c, &m.Gen)
		c.num(&m.Table)
		number(c, &m.Longest)
		list(c, &m.Slices, c.held)
		return kindState
	}
	panic("lease: not a message")
}

// Append appends the encoding of a *Renew, *Grant, *Recall, *Gave or *State.
func Append(buf []byte, m any) []byte {
	at := len(buf)
	c := codec{write: true, buf: append(buf, encoding, 0)}
	if c.grouped = grouped(m); c.grouped {
		c.buf[at] = groupedSince
	}
	c.buf[at+1] = c.message(m)
	return c.buf
}

// Decode reads one message: a *Renew, *Grant, *Recall, *Gave or *State.
func Decode(b []byte) (any, error) {
	if len(b) < 2 || b[0] != encoding && b[0] != groupedSince {
		return nil, ErrMessage
	}
	var m any
	switch b[1] {
	case kindRenew:
		m = &Renew{}
	case kindGrant:
		m = &Grant{}
	case kindRecall:
		m = &Recall{}
	case kindGave:
		m = &Gave{}
	case kindState:
		m = &State{}
	default:
		return nil, ErrMessage
	}
	c := codec{buf: b[2:], grouped: b[0] == groupedSince}
	if c.message(m); c.bad || len(c.buf) > 0 {
		return nil, ErrMessage
	}
	return m, nil
}
