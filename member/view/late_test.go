package view

import (
	"testing"

	"github.com/freshet-cache/freshet/ticks"
)

// An answer that another one has overtaken, or that brings a shorter lease, takes nothing away: a lease that was granted
// lasts.
func TestALeaseThatWasGrantedLasts(t *testing.T) {
	const length = ticks.Tick(5e6)
	v := View{Number: 1, Newest: 1, Ring: []Place{{1, "me", "", ""}}}
	m := NewMember(MemberOptions{Name: "me"})
	for _, at := range []ticks.Tick{100, 200, 300} {
		m.Beat(at, true)
	}
	m.Granted(400, Grant{Seq: 2, Incarnation: 1, Length: length, View: v})
	until := m.Until()
	if want := 200 + ticks.Shorten(length, 200); until != want {
		t.Fatalf("it has a lease until %d, not %d", until, want)
	}
	if m.Granted(500, Grant{Seq: 1, Incarnation: 1, Length: length, View: v}); m.Until() != until {
		t.Errorf("behind an older answer it has a lease until %d, not %d", m.Until(), until)
	}
	if m.Granted(600, Grant{Seq: 3, Incarnation: 1, Length: length / 2, View: v}); m.Until() != until {
		t.Errorf("behind a shorter lease it has one until %d, not %d", m.Until(), until)
	}
}
