package fanout

import (
	"slices"

	"github.com/freshet-cache/freshet/ticks"
)

// add returns a token with one more moment (S5).
func (m *Node) add(t Token, moment Moment) Token {
	return t.With(moment, Moment{Of: m.opt.Self, Beat: m.beat, Elsewhere: true})
}

// normal returns a token in which every moment is of an incarnation that this one knows (S5), without
// those that are older than the bound (S6).
func (m *Node) normal(t Token) (out Token) {
	for _, o := range t {
		_, known := m.peers[o.Of]
		switch {
		case o.Of == m.opt.Self:
			o.Beat = min(o.Beat, m.beat)
		case !known:
			o = Moment{Of: m.opt.Self, Beat: m.beat, Elsewhere: true}
		}
		if h, ok := m.after(o); !ok || m.now-h.at <= ticks.Lengthen(m.opt.Bound(), 2*m.opt.Drift) {
			out = m.add(out, o)
		}
	}
	return out
}

// after returns when this incarnation first knew that a moment was over: when it heard a later
// heartbeat of that incarnation, or sent one of its own.
func (m *Node) after(o Moment) (h heard, ok bool) {
	if o.Of == m.opt.Self {
		h, ok = m.sent[max(o.Beat+1, m.beat-min(m.beat, beats-1))]
		return h, ok
	}
	p := m.peers[o.Of]
	if p == nil {
		return h, false
	}
	i := slices.IndexFunc(p.heard, func(h heard) bool { return h.beat > o.Beat })
	if i < 0 {
		return h, false
	}
	return p.heard[i], true
}

// shows reports whether an entry whose load began at an order, and of which nothing is marked, is not
// older than what a session has seen (S2).
func (m *Node) shows(t Token, began uint64) bool {
	for _, o := range t {
		h, ok := m.after(o)
		switch {
		case o.Of == m.opt.Self && !o.Elsewhere: // S1
		case ok && h.order < began:
		case m.echoed(o):
		default:
			return false
		}
	}
	return true
}

// echoed reports whether every registered incarnation has said, within what was applied, that it had
// heard a later heartbeat than a moment's: all that it had announced before the moment is known.
func (m *Node) echoed(o Moment) bool {
	if !m.surveyed || !m.opt.NoRegistry && m.now > m.registered() { // Q5
		return false
	}
	for id, p := range m.peers {
		beat := p.covered.echo(o.Of)
		if id == o.Of {
			beat = p.covered.beat
		}
		if !p.adopted || beat <= o.Beat {
			return false
		}
	}
	return true
}

// joins reports whether a load under way is one that a session's read would begin: nothing was
// invalidated since, or it began after every moment of the session was over (S7).
func (m *Node) joins(t Token, l *load) bool {
	for _, o := range t {
		h, ok := m.after(o)
		if (!ok || h.order >= l.began) && !(o.Of == m.opt.Self && !o.Elsewhere && l.count == m.counts.Now()) {
			return false
		}
	}
	return true
}
