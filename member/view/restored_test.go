package view

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/freshet-cache/freshet/ticks"
)

// rows is what a store knows of incarnations: their names by number, and those that are fenced.
type rows struct {
	names  map[uint32]string
	fenced map[uint32]bool
}

func (s *rows) known() (k Known) {
	for o := range uint32(1 << 10) {
		if s.names[o] != "" || s.fenced[o] {
			k.Newest = o
			if !s.fenced[o] {
				k.Open = append(k.Open, o)
			}
		}
	}
	return k
}

// begins is false if the number belongs to another incarnation.
func (s *rows) begins(o uint32, name string) bool {
	if s.fenced[o] || s.names[o] != "" && s.names[o] != name {
		return false
	}
	s.names[o] = name
	return true
}

// past is a leader whose state can be restored, with the members that ask it.
type past struct {
	t    *testing.T
	r    *rand.Rand
	k    *Leader
	now  ticks.Tick
	term uint64
	all  []View // that were stored, the last one is the state of the coordinator
	rows rows
	next int
}

func (p *past) elected(v View) {
	p.term++
	p.k = NewLeader(Options{Length: length})
	p.k.Elected(p.now, p.term, 1<<62, 0, v)
}

func (p *past) saved(saves []Save) {
	for len(saves) > 0 {
		p.all = append(p.all, saves[0].View)
		saves = p.k.Saved(saves[0].Term, saves[0].View.Number, true)
		p.k.Check()
	}
}

func (p *past) member() *Member {
	p.next++
	return NewMember(MemberOptions{Name: fmt.Sprint("m", p.next), Host: "h", Store: p.rows.known()})
}

// ask has a member ask once, and reports whether it heard of a newer view.
func (p *past) ask(m *Member, knows bool) bool {
	p.now += 1e6
	in := m.Beat(p.now, knows)
	g, saves, ok := p.k.Renewed(p.now, in)
	p.saved(saves)
	return ok && m.Granted(p.now, g)
}

// join asks until the member has a number, or is left out.
func (p *past) join(m *Member) bool {
	for range 10 {
		p.ask(m, false)
		if m.Incarnation() != 0 {
			return m.Place() >= 0 && p.rows.begins(m.Incarnation(), m.opt.Name)
		}
	}
	p.t.Fatalf("%s has no number after ten asks: %+v", m.opt.Name, p.k.View())
	return false
}

func newPast(t *testing.T, seed int) *past {
	p := &past{t: t, r: rand.New(rand.NewPCG(uint64(seed), 2)), now: 1e9, rows: rows{map[uint32]string{}, map[uint32]bool{}}}
	p.elected(View{})
	return p
}

// The state of the coordinator is lost: the next incarnation has a number that the store has not seen, and what the store has
// open is lost, so that it is recovered.
func TestStateIsLost(t *testing.T) {
	p := newPast(t, 0)
	a, b := p.member(), p.member()
	if !p.join(a) || !p.join(b) {
		t.Fatal("nobody has a place")
	}
	p.rows.fenced[1] = true
	p.elected(View{})
	c := p.member()
	if !p.join(c) || c.Incarnation() != 3 || !slices.Equal(c.View().Departed, []uint32{2}) {
		t.Fatalf("it is %d in %+v", c.Incarnation(), c.View())
	}
}

// An old state is restored while members go on: nobody has a lease for a view that is not the leader's, though both have
// one number, and all begin anew.
func TestStateIsRestoredUnderMembers(t *testing.T) {
	p := newPast(t, 0)
	a, b, c := p.member(), p.member(), p.member()
	p.join(a)
	p.join(b)
	old := p.k.View()
	p.join(c) // view 3 has a, b and c
	p.ask(a, true)
	p.ask(b, true)
	p.elected(old)
	p.saved(p.k.Gone(p.now, "nowhere"))
	d := p.member()
	d.opt.Store = Known{} // it asked the store long ago
	for i, m := range []*Member{a, b, c} {
		until := m.Until()
		p.now += 1e6
		g, saves, _ := p.k.Renewed(p.now, m.Beat(p.now, true))
		if p.saved(saves); m.Granted(p.now, g) && m.Place() >= 0 || m.Until() > until && m.View().Sum() != p.k.View().Sum() {
			t.Fatalf("member %d has a lease until %d in %+v; the ring is %+v", i, m.Until(), m.View(), p.k.View())
		}
	}
	for _, m := range []*Member{a, b, c} {
		if p.ask(m, true); m.Place() >= 0 {
			t.Errorf("%d does not hear that it is left out: %+v", m.Incarnation(), m.View())
		}
	}
	if v := p.k.View(); v.Newest < 3 || len(v.Ring) > 0 {
		t.Errorf("a number may be given again: %+v", v)
	}
	if p.join(d); d.Incarnation() != 4 {
		t.Errorf("the next incarnation is %d", d.Incarnation())
	}
}

// The same, and the restored history comes to the number of the lost one: a member of both rings has no lease for the
// other view, and is left out.
func TestStateIsRestoredWithTheSameNumber(t *testing.T) {
	p := newPast(t, 0)
	a, b, c := p.member(), p.member(), p.member()
	a.opt.Host = "another"
	p.join(a)
	p.join(b)
	old := p.k.View()
	p.join(c)
	p.ask(b, true) // view 3 has a, b and c
	p.elected(old)
	p.saved(p.k.Gone(p.now, "another")) // view 3 has b
	until := b.Until()
	p.now += 1e6
	g, saves, _ := p.k.Renewed(p.now, b.Beat(p.now, true))
	if g.View.Number != 3 || b.View().Number != 3 {
		t.Fatalf("the numbers differ: %+v, %+v", g.View, b.View())
	}
	if b.Granted(p.now, g); b.Until() > until {
		t.Errorf("it has a lease until %d in %+v; the ring is %+v", b.Until(), b.View(), g.View)
	}
	p.saved(saves)
	if p.ask(b, true); b.Place() >= 0 {
		t.Errorf("it is in %+v", b.View())
	}
}

// The lost history has no new incarnation: a member that has heard of its last view is left out.
func TestStateIsRestoredBehindAView(t *testing.T) {
	p := newPast(t, 0)
	a, b := p.member(), p.member()
	p.join(a)
	p.join(b)
	old := p.k.View()
	a.Leave()
	p.ask(a, true)
	p.ask(b, true)
	p.elected(old)
	p.ask(b, true)
	if p.ask(b, true); b.Place() >= 0 {
		t.Errorf("it is in %+v; the ring is %+v", b.View(), p.k.View())
	}
}

// Old states are restored again and again: an incarnation that begins has a number of its own, and every incarnation of which the store
// has something is in the ring or lost as soon as somebody begins anew.
func TestStatesAreRestored(t *testing.T) {
	refused, restored := 0, 0
	for seed := range 300 {
		p := newPast(t, seed)
		var members []*Member
		for range 60 {
			switch n := p.r.IntN(10); {
			case n == 0 && len(p.all) > 0:
				restored++
				at := p.r.IntN(len(p.all))
				p.all = p.all[:at+1] // what came later is another history
				p.elected(p.all[at])
			case n < 4:
				m := p.member()
				if p.r.IntN(4) == 0 {
					m.opt.Store = Known{} // it asked the store long ago
				}
				if p.join(m) {
					members = append(members, m)
				} else {
					refused++
				}
			case len(members) > 0:
				i := p.r.IntN(len(members))
				if p.r.IntN(3) == 0 {
					members[i].Leave()
				}
				p.ask(members[i], true)
				if members[i].Place() < 0 {
					members = slices.Delete(members, i, i+1)
				}
			}
		}
		for _, m := range members {
			m.Leave()
		}
		last := p.member()
		for range 20 { // the current ring ends, and somebody begins anew
			for _, m := range append(members, last) {
				p.ask(m, true)
			}
			p.saved(p.k.Gone(p.now, "h"))
			if last.Place() < 0 && last.Incarnation() != 0 {
				last = p.member()
			}
		}
		first := p.member()
		if !p.join(first) {
			t.Fatalf("seed %d: nobody can begin any more", seed)
		}
		v := first.View()
		for o, name := range p.rows.names {
			in := slices.ContainsFunc(v.Ring, func(m Place) bool { return m.Incarnation == o })
			if !in && !slices.Contains(v.Departed, o) {
				t.Fatalf("seed %d: the store has something of incarnation %d (%s), and %+v knows nothing of it", seed, o, name, v)
			}
		}
	}
	t.Logf("%d states restored, %d incarnations refused by the store", restored, refused)
	if restored < 1000 || refused == 0 {
		t.Error("too little has happened")
	}
}
