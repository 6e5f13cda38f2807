package view

import (
	"slices"

	"github.com/freshet-cache/freshet/ticks"
)

// MemberOptions describes one incarnation of a server.
type MemberOptions struct {
	Name string // unique for ever
	Addr string
	Host string
	// Store is what the store says about the incarnations that have begun there.
	Store Known
	// Drift bounds how much any clock may run fast or slow, in millionths. Default 200.
	Drift int64
}

// Member keeps one server's lease and view. It is not safe for concurrent use.
type Member struct {
	opt         MemberOptions
	seq         uint64
	sent        map[uint64]ticks.Tick // when the latest Renews were sent
	incarnation uint32
	until       ticks.Tick // when the lease ends
	length      ticks.Tick // of the longest lease that was granted
	view        View
	sum         uint64                // of view
	departed    map[uint32]ticks.Tick // when the member heard that an incarnation has departed (K7)
	retired     map[uint32]bool
	leaving     bool
}

const maxSent = 64 // answers to older Renews do not count any more

// NewMember returns an incarnation that has no number yet.
func NewMember(opt MemberOptions) *Member {
	if opt.Drift <= 0 {
		opt.Drift = 200
	}
	return &Member{opt: opt, sent: map[uint64]ticks.Tick{}, departed: map[uint32]ticks.Tick{}, retired: map[uint32]bool{}}
}

// Beat returns the next Renew for the leader. knows says that the server has what a member must
// know.
func (m *Member) Beat(now ticks.Tick, knows bool) Renew {
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

// Granted takes an answer of the leader, and reports whether it brought a newer view.
func (m *Member) Granted(now ticks.Tick, g Grant) (newer bool) {
	sent, ok := m.sent[g.Seq]
	if !ok {
		return false
	}
	if m.incarnation == 0 { // otherwise a delayed Renew may have been given a place of its own
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
	if m.Place() >= 0 && g.View.Number == m.view.Number && g.View.Sum() == m.sum {
		// K3. K8: a view with the same number may still be another one.
		m.until = max(m.until, sent+ticks.Shorten(g.Length, m.opt.Drift))
	}
	return newer
}

// Incarnation returns the incarnation's number, or 0 if it has none yet.
func (m *Member) Incarnation() uint32 { return m.incarnation }

// View returns the latest view that the member has heard of.
func (m *Member) View() View { return m.view }

// Place returns the position of the incarnation in the ring, or -1 if it is not in it.
func (m *Member) Place() int {
	return slices.IndexFunc(m.view.Ring, func(p Place) bool {
		return p.Name == m.opt.Name && (m.incarnation == 0 || m.incarnation == p.Incarnation)
	})
}

// Until returns when the lease ends. Before that time the server may serve.
func (m *Member) Until() ticks.Tick { return m.until }

// Ended returns when a departed incarnation certainly answers no caller any more (K7). ok is false
// if the member has not heard that the incarnation departed, or how long leases are.
func (m *Member) Ended(incarnation uint32) (at ticks.Tick, ok bool) {
	heard, ok := m.departed[incarnation]
	return heard + ticks.Lengthen(m.length, 2*m.opt.Drift), ok && m.length > 0
}

// Retire remembers to tell the leader that all writes of an incarnation are visible everywhere.
func (m *Member) Retire(incarnation uint32) { m.retired[incarnation] = true }

// Leave makes every later Renew ask for removal from the ring.
func (m *Member) Leave() { m.leaving = true }
