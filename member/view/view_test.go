package view

import (
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"

	"github.com/freshet-cache/freshet/ticks"
)

// incarnation is a server in the test's world, with a clock of its own.
type testMember struct {
	m      *Member
	name   string
	rate   int64 // its clock runs fast by so many millionths
	knows  bool
	behind bool
	dead   bool
	heard  uint64
	served bool
}

func (l *testMember) now(t ticks.Tick) ticks.Tick { return t + t/1e6*ticks.Tick(l.rate) }

// world lets leaders follow one another, loses, delays and repeats messages, and ends
// incarnations; it knows what must hold.
type world struct {
	t            *testing.T
	seed         int
	r            *rand.Rand
	now          ticks.Tick
	leaders      [2]*Leader
	term         uint64
	terms        map[int]uint64 // of each leader
	stored       View           // by the coordinator
	views        map[uint64]View
	unknown      int // saves of which no leader knows what became of them
	incarnations []*testMember
	left         map[uint32]ticks.Tick // when a view without it was first decided
	mail         []func()
}

const (
	length = ticks.Tick(1e9)
	slack  = ticks.Tick(3e8)
)

func (w *world) post(f func()) {
	if w.r.IntN(10) > 0 {
		w.mail = append(w.mail, f)
	}
	if w.r.IntN(10) == 0 {
		w.mail = append(w.mail, f)
	}
}

// save is the coordinator: it takes the newest term's.
func (w *world) save(i int, saves []Save) {
	for _, s := range saves {
		w.mail = append(w.mail, func() { // it is answered in its own time
			ok := s.Term == w.term
			if w.r.IntN(8) == 0 { // nobody knows what became of it
				if ok && w.r.IntN(2) == 0 {
					w.decided(s.View)
				}
				w.unknown++
				w.save(i, w.leaders[i].Unsaved(s.Term))
				return
			}
			if ok {
				w.decided(s.View)
			}
			w.save(i, w.leaders[i].Saved(s.Term, s.View.Number, ok))
		})
	}
}

func (w *world) decided(v View) {
	if old, twice := w.views[v.Number]; twice && fmt.Sprint(old) != fmt.Sprint(v) {
		w.t.Fatalf("view %d is both %+v and %+v", v.Number, old, v)
	}
	if v.Number < w.stored.Number || v.Newest < w.stored.Newest {
		w.t.Fatalf("%+v after %+v", v, w.stored)
	}
	if len(v.Key) == 0 || len(w.stored.Key) > 0 && string(v.Key) != string(w.stored.Key) { // K9
		w.t.Fatalf("the key was %x and is %x", w.stored.Key, v.Key)
	}
	for _, m := range w.stored.Ring {
		if !slices.ContainsFunc(v.Ring, func(o Place) bool { return o.Incarnation == m.Incarnation }) {
			if !slices.Contains(v.Departed, m.Incarnation) {
				w.t.Fatalf("incarnation %d was left out and is not lost: %+v", m.Incarnation, v)
			}
			w.left[m.Incarnation] = w.now
		}
	}
	for _, m := range v.Ring {
		if _, gone := w.left[m.Incarnation]; gone {
			w.t.Fatalf("incarnation %d is back: %+v", m.Incarnation, v)
		}
	}
	w.stored, w.views[v.Number] = v, v
}

func (w *world) beat(l *testMember) {
	renew := l.m.Beat(l.now(w.now), l.knows)
	b := AppendRenew(nil, renew)
	w.post(func() {
		in, err := DecodeRenew(b)
		if err != nil || fmt.Sprint(in) != fmt.Sprint(renew) {
			w.t.Fatalf("%+v came as %+v, %v", renew, in, err)
		}
		i := w.r.IntN(2)
		g, saves, ok := w.leaders[i].Renewed(w.now, in)
		w.leaders[i].Check()
		w.save(i, saves)
		if !ok {
			return
		}
		w.post(func() {
			if l.dead {
				return
			}
			got, err := DecodeGrant(AppendGrant(nil, g))
			if err != nil || fmt.Sprint(got) != fmt.Sprint(g) {
				w.t.Fatalf("%+v came as %+v, %v", g, got, err)
			}
			l.m.Granted(l.now(w.now), got)
			place := l.m.Place()
			l.behind = l.behind || place > 0 // somebody, whose state it waits for
			l.knows = l.knows || place >= 0 && (!l.behind || w.r.IntN(3) == 0)
		})
	})
}

// check is what must hold at every instant.
func (w *world) check() {
	for _, l := range w.incarnations {
		v := l.m.View()
		if v.Number < l.heard {
			w.t.Fatalf("%s heard of view %d after %d", l.name, v.Number, l.heard)
		}
		if l.heard = v.Number; v.Number > 0 && fmt.Sprint(v) != fmt.Sprint(w.views[v.Number]) {
			w.t.Fatalf("%s knows %+v, which nobody stored", l.name, v)
		}
		serves := !l.dead && l.now(w.now) < l.m.Until()
		l.served = l.served || serves
		if !serves || l.m.Incarnation() == 0 {
			continue
		}
		for _, o := range w.incarnations { // K7: nobody recovers what yet serves
			if at, lost := o.m.Ended(l.m.Incarnation()); lost && o.now(w.now) >= at {
				w.t.Fatalf("seed %d: %s recovers incarnation %d, which serves until %d", w.seed, o.name, l.m.Incarnation(), l.m.Until())
			}
		}
	}
}

func TestViews(t *testing.T) {
	seeds := 320
	if testing.Short() {
		seeds = 50
	}
	views, served, turns, unknown := 0, 0, 0, 0
	for seed := range seeds {
		w := &world{t: t, seed: seed, r: rand.New(rand.NewPCG(uint64(seed), 1)), terms: map[int]uint64{}, views: map[uint64]View{}, left: map[uint32]ticks.Tick{}, now: 1e9}
		for i := range w.leaders {
			w.leaders[i] = NewLeader(Options{Length: length, Silence: length, Key: []byte{1, byte(i)}})
		}
		leader, until := 0, ticks.Tick(0)
		for range 1500 {
			w.now += ticks.Tick(w.r.IntN(3e7))
			if w.now >= until-slack && w.r.IntN(20) == 0 { // the lead ends, or is about to: another may follow within the slack
				leader, until = w.r.IntN(2), w.now+ticks.Tick(w.r.IntN(4e9))
				w.term++
				turns++
				w.leaders[leader].Elected(w.now, w.term, until, slack, w.stored)
			}
			for i := range w.r.IntN(1 + len(w.mail)) {
				_ = i
				at := w.r.IntN(len(w.mail))
				f := w.mail[at]
				w.mail = slices.Delete(w.mail, at, at+1)
				f()
			}
			for i, k := range w.leaders {
				w.save(i, k.Beat(w.now))
				k.Check()
			}
			if living := w.living(); len(living) < 5 && w.r.IntN(60) == 0 {
				n := len(w.incarnations)
				w.incarnations = append(w.incarnations, &testMember{name: fmt.Sprint("s", n), rate: int64(w.r.IntN(400) - 200), m: NewMember(MemberOptions{Name: fmt.Sprint("s", n), Addr: "a", Host: "h"})})
			} else if len(living) > 0 && w.r.IntN(150) == 0 {
				w.incarnations[living[w.r.IntN(len(living))]].dead = true
			} else if len(living) > 0 && w.r.IntN(100) == 0 {
				w.incarnations[living[w.r.IntN(len(living))]].m.Leave()
			}
			for _, i := range w.living() {
				l := w.incarnations[i]
				for _, o := range l.m.View().Departed {
					if at, ok := l.m.Ended(o); ok && l.now(w.now) >= at && w.r.IntN(10) == 0 {
						l.m.Retire(o)
					}
				}
				if w.r.IntN(4) == 0 {
					w.beat(l)
				}
			}
			w.check()
		}
		views, unknown = views+len(w.views), unknown+w.unknown
		for _, l := range w.incarnations {
			if l.served {
				served++
			}
		}
	}
	t.Logf("%d views, %d incarnations served, %d terms, %d saves of unknown outcome", views, served, turns, unknown)
	if views < 10*seeds || served < 3*seeds || unknown < seeds {
		t.Error("too little has happened")
	}
}

func (w *world) living() (out []int) {
	for i, l := range w.incarnations {
		if !l.dead {
			out = append(out, i)
		}
	}
	return out
}

// A state that an older freshet has stored has no key: it is read, and has one before anybody is told of one (K9).
func TestStateWithoutAKey(t *testing.T) {
	old := View{Number: 4, Newest: 2, Ring: []Place{{2, "b", "a", "h"}}, Departed: []uint32{1}}
	b := AppendView(nil, old)
	b[0] = encoding
	v, err := DecodeView(b[:len(b)-1])
	if err != nil || !reflect.DeepEqual(v, old) {
		t.Fatalf("%+v, %v", v, err)
	}
	k := NewLeader(Options{Length: length, Key: []byte("key")})
	k.Elected(0, 1, 1<<40, 0, v)
	m := NewMember(MemberOptions{Name: "c", Host: "h"})
	g, saves, _ := k.Renewed(1, m.Beat(1, false))
	if len(g.View.Key) > 0 || len(saves) != 1 || string(saves[0].View.Key) != "key" || saves[0].View.Number <= 4 {
		t.Fatalf("told %+v, to be stored %+v", g.View, saves)
	}
	k.Saved(1, saves[0].View.Number, true)
	if g, _, _ = k.Renewed(2, m.Beat(2, false)); string(g.View.Key) != "key" {
		t.Errorf("told %+v", g.View)
	}
}

func FuzzDecode(f *testing.F) {
	f.Add(AppendRenew(nil, Renew{Name: "n", Addr: "a", Host: "h", Incarnation: 3, Seq: 4, Knows: true, Retired: []uint32{1}}))
	f.Add(AppendGrant(nil, Grant{Seq: 1, Incarnation: 2, Length: 3, View: View{Number: 4, Newest: 2, Ring: []Place{{2, "n", "a", "h"}}, Departed: []uint32{1}, Key: []byte("key")}}))
	f.Fuzz(func(t *testing.T, b []byte) {
		if r, err := DecodeRenew(b); err == nil {
			if again, err := DecodeRenew(AppendRenew(nil, r)); err != nil || !reflect.DeepEqual(r, again) {
				t.Errorf("%+v, %v", again, err)
			}
		}
		if g, err := DecodeGrant(b); err == nil {
			if again, err := DecodeGrant(AppendGrant(nil, g)); err != nil || !reflect.DeepEqual(g, again) {
				t.Errorf("%+v, %v", again, err)
			}
		}
	})
}

// An incarnation that was left out and whose first ask is heard again then has a place that it does not
// know of: it hears that it is left out, and nobody counts what it says for that place.
func TestAPlaceOfALateAsk(t *testing.T) {
	k := NewLeader(Options{Length: 100})
	k.Elected(0, 1, 1<<40, 0, View{})
	save := func(saves []Save) {
		for len(saves) > 0 {
			saves = k.Saved(saves[0].Term, saves[0].View.Number, true)
		}
	}
	ask := func(m *Member, now ticks.Tick) (r Renew, newer bool) {
		r = m.Beat(now, false)
		g, saves, _ := k.Renewed(now, r)
		save(saves)
		return r, m.Granted(now, g)
	}
	a, b := NewMember(MemberOptions{Name: "a", Host: "a"}), NewMember(MemberOptions{Name: "b", Host: "b"})
	ask(a, 1)
	first, _ := ask(b, 1)
	if ask(b, 2); b.Incarnation() != 2 || b.Place() != 1 {
		t.Fatalf("b is %d at %d", b.Incarnation(), b.Place())
	}
	save(k.Gone(3, "b"))
	_, saves, _ := k.Renewed(4, first)
	save(saves)
	if ask(b, 5); b.Place() >= 0 || b.Incarnation() != 2 {
		t.Errorf("b is %d at %d of %+v", b.Incarnation(), b.Place(), b.View())
	}
	if h := k.seen[3]; h.at == 5 {
		t.Errorf("what 2 says counts for 3: %+v", h)
	}
}

// Who knew the ring's writes leaves while a leader has just begun to lead, which must take it
// that the other one knows as well. When it hears that it does not, the ring ends (K5).
func TestARingThatNobodyKnows(t *testing.T) {
	k := NewLeader(Options{Length: 100})
	save := func(saves []Save) {
		for len(saves) > 0 {
			saves = k.Saved(saves[0].Term, saves[0].View.Number, true)
		}
	}
	ask := func(m *Member, now ticks.Tick, knows bool) {
		g, saves, _ := k.Renewed(now, m.Beat(now, knows))
		save(saves)
		m.Granted(now, g)
	}
	k.Elected(0, 1, 1<<40, 0, View{})
	a, b := NewMember(MemberOptions{Name: "a", Host: "a"}), NewMember(MemberOptions{Name: "b", Host: "b"})
	ask(a, 1, false) // alone, it begins with the store, and has not heard of that yet
	ask(a, 2, false)
	ask(a, 3, true)
	ask(b, 3, false)
	if ask(b, 4, false); b.Place() != 1 || a.Incarnation() != 1 {
		t.Fatalf("b is at %d of %+v", b.Place(), b.View())
	}
	last := k.View()
	k = NewLeader(Options{Length: 100})
	k.Elected(5, 2, 1<<40, 0, last)
	save(k.Gone(6, "a"))
	if n := len(k.View().Ring); n != 1 {
		t.Fatalf("%d are left, and one may know", n)
	}
	if ask(b, 7, false); len(k.View().Ring) > 0 {
		t.Errorf("nobody knows, and %+v goes on", k.View())
	}
	if ask(b, 8, false); b.Place() >= 0 || b.Incarnation() == 0 {
		t.Errorf("b does not hear that it is left out: %+v", b.View())
	}
}
