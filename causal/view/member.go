package view

import (
	"slices"

	"github.com/freshet-cache/freshet/shard/lease"
)

// MemberOptions describe one incarnation of a server.
type MemberOptions struct {
	Name string // unique for ever
	Addr string
	Host string
	// Store is what the store knows of the incarnations that have begun there.
	Store Known
	// Drift bounds how much any clock may run fast or slow, in millionths. Default 200.
	Drift int64
}

// Member is a server's side. It is not safe for concurrent use.
type Member struct {
	opt         MemberOptions
	seq         uint64
	sent        map[uint64]lease.Tick // when the last were sent
	incarnation uint32
	until       lease.Tick // of the lease
	length      lease.Tick // of the longest lease heard of
	view        View
	sum         uint64                // of view
	departed    map[uint32]lease.Tick // when it was heard that an incarnation is over (K7)
	retired     map[uint32]bool
	leaving     bool
}

const maxSent = 64 // older ones can have no answer that still counts

// NewMember returns an incarnation that has no number yet.
func NewMember(opt MemberOptions) *Member {
	if opt.Drift <= 0 {
		opt.Drift = 200
	}
	return &Member{opt: opt, sent: map[uint64]lease.Tick{}, departed: map[uint32]lease.Tick{}, retired: map[uint32]bool{}}
}

// Beat is what to ask the leader. knows says that the server has what a member must know.
func (m *Member) Beat(now lease.Tick, knows bool) Renew {
	m.seq++
	m.sent[m.seq] = now
	delete(m.sent, m.seq-maxSent)
	r := Renew{Name: m.opt.Name, Addr: m.opt.Addr, Host: m.opt.Host, Incarnation: m.incarnation, Seq: m.seq, Knows: knows, Leaving: m.leaving, View: m.view.Number, Sum: m.sum}
	if m.incarnation == 0 {
		r.Store = m.opt.Store
	}
	for _, o := range m.view.Departed {
		if m.retired[o] {
			r.Retired = append(r.Retired, o)
		}
	}
	return r
}

// Granted takes an answer, and reports whether it told of a newer view.
func (m *Member) Granted(now lease.Tick, g Grant) (newer bool) {
	sent, ok := m.sent[g.Seq]
	if !ok {
		return false
	}
	if m.incarnation == 0 { // else an ask that was late may have been given a place of its own
		m.incarnation = g.Incarnation
	}
	m.length = max(m.length, g.Length)
	if newer = g.View.Number > m.view.Number; newer {
		m.view, m.sum = g.View, g.View.Sum()
		for _, o := range g.View.Departed {
			if _, known := m.departed[o]; !known {
				m.departed[o] = now
			}
		}
	}
	if m.Place() >= 0 && g.View.Number == m.view.Number && g.View.Sum() == m.sum { // K3, and K8: it may be another view
		m.until = max(m.until, sent+lease.Shorten(g.Length, m.opt.Drift))
	}
	return newer
}

// Incarnation is the incarnation's number, 0 if it has none yet.
func (m *Member) Incarnation() uint32 { return m.incarnation }

// View is the latest view heard of.
func (m *Member) View() View { return m.view }

// Place is where the incarnation stands in the ring; -1 if it is not in it.
func (m *Member) Place() int {
	return slices.IndexFunc(m.view.Ring, func(p Place) bool {
		return p.Name == m.opt.Name && (m.incarnation == 0 || m.incarnation == p.Incarnation)
	})
}

// Until is when the lease ends: before it the server may serve.
func (m *Member) Until() lease.Tick { return m.until }

// Ended is when a departed incarnation surely answers nobody any more (K7). Not ok means that
// it is not known to be lost, or how long leases are.
func (m *Member) Ended(incarnation uint32) (at lease.Tick, ok bool) {
	heard, ok := m.departed[incarnation]
	return heard + lease.Lengthen(m.length, 2*m.opt.Drift), ok && m.length > 0
}

// Retire remembers to tell the leader that everything of an incarnation has been everywhere.
func (m *Member) Retire(incarnation uint32) { m.retired[incarnation] = true }

// Leave makes every later Renew ask to be left out.
func (m *Member) Leave() { m.leaving = true }
