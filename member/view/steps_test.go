package view

import (
	"bytes"
	"math"
	"reflect"
	"slices"
	"testing"

	"github.com/freshet-cache/freshet/ticks"
)

// leading is a leader that leads, and a coordinator that stores at once.
type leading struct {
	*Leader
	t *testing.T
}

func (d leading) save(saves []Save) {
	for len(saves) > 0 {
		d.Check()
		saves = d.Saved(saves[0].Term, saves[0].View.Number, true)
	}
}

func (d leading) ask(now ticks.Tick, in Renew) Grant {
	d.t.Helper()
	g, saves, ok := d.Renewed(now, in)
	if !ok {
		d.t.Fatalf("at %d the leader says nothing", now)
	}
	d.save(saves)
	return g
}

// lead begins with three members that know everything, of whom the leader has not heard.
func lead(t *testing.T, opt Options, slack ticks.Tick) (leading, View) {
	v := View{Number: 7, Newest: 4, Departed: []uint32{1}, Key: []byte("key")}
	for _, o := range []uint32{2, 3, 4} {
		v.Ring = append(v.Ring, Place{o, string(rune('a' + o)), "addr", "host" + string(rune('0'+o))})
	}
	d := leading{NewLeader(opt), t}
	d.Elected(1000, 1, 1<<40, slack, v)
	return d, v
}

func (d leading) ring() (out []uint32) {
	for _, m := range d.View().Ring {
		out = append(out, m.Incarnation)
	}
	return out
}

func of(v View, i int) Renew {
	m := v.Ring[i]
	return Renew{Name: m.Name, Addr: m.Addr, Host: m.Host, Incarnation: m.Incarnation, Seq: 1, Knows: true, View: v.Number, Sum: v.Sum()}
}

// Who is silent is left out when it has been silent for so long, and not before the leader has led for so long.
func TestSilence(t *testing.T) {
	for _, c := range []struct {
		length, silence, slack, since ticks.Tick
	}{{100, 30, 20, 1120}, {100, 300, 20, 1320}, {100, 0, 0, 1100}, {0, 5, 0, 1000 + 10e9}} {
		d, v := lead(t, Options{Length: c.length, Silence: c.silence}, c.slack)
		d.ask(c.since-1, of(v, 1))
		if d.save(d.Beat(c.since - 1)); len(d.ring()) != 3 {
			t.Errorf("%+v: somebody is left out early: %v", c, d.ring())
		}
		if d.save(d.Beat(c.since)); !slices.Equal(d.ring(), []uint32{3}) || !slices.Equal(d.View().Departed, []uint32{1, 2, 4}) {
			t.Errorf("%+v: %v stay, and %v are lost", c, d.ring(), d.View().Departed)
		}
		silence := c.silence
		if silence == 0 {
			silence = c.length
		}
		if d.save(d.Beat(c.since - 1 + silence)); len(d.ring()) != 1 {
			t.Errorf("%+v: who was heard of not long ago is left out", c)
		}
		if d.save(d.Beat(c.since + silence)); len(d.ring()) != 0 {
			t.Errorf("%+v: %v stay though nobody has heard of them", c, d.ring())
		}
		if d.Beat(1<<40) != nil {
			t.Errorf("%+v: who does not lead decides", c)
		}
	}
}

// As long as the last leader may grant leases nobody is left out, whatever is said.
func TestSlack(t *testing.T) {
	for _, c := range []struct {
		at   ticks.Tick
		want int
	}{{1049, 3}, {1050, 2}} {
		d, v := lead(t, Options{Length: 100}, 50)
		in := of(v, 0)
		in.Leaving = true
		if d.ask(c.at, in); len(d.ring()) != c.want {
			t.Errorf("at %d who leaves: %v", c.at, d.ring())
		}
		d, v = lead(t, Options{Length: 100}, 50)
		if d.save(d.Gone(c.at, "host3")); len(d.ring()) != c.want {
			t.Errorf("at %d who is gone: %v", c.at, d.ring())
		}
		d, v = lead(t, Options{Length: 100}, 50)
		in = of(v, 1)
		in.View += 5 // of which nobody here knows
		if d.ask(c.at, in); (len(d.ring()) == 0) != (c.want == 2) {
			t.Errorf("at %d who knows more: %v", c.at, d.ring())
		}
		d, v = lead(t, Options{Length: 100}, 50)
		for i := range v.Ring {
			in = of(v, i)
			in.Knows = false
			d.ask(c.at, in)
		}
		if (len(d.ring()) == 0) != (c.want == 2) {
			t.Errorf("at %d nobody knows: %v", c.at, d.ring())
		}
		was := d.View().Number
		if d.ask(c.at, Renew{Name: "new", Leaving: true}); d.View().Number != was {
			t.Errorf("who leaves has a place: %+v", d.View())
		}
	}
}

// A state that is older than what somebody says is given up, and everything begins above what was said (K8).
func TestWhoKnowsMore(t *testing.T) {
	for what, c := range map[string]struct {
		change func(r *Renew, v View)
		newest uint32
		number uint64
	}{
		"nothing":                     {func(*Renew, View) {}, 4, 7},
		"an older view":               {func(r *Renew, _ View) { r.View, r.Sum = 6, 99 }, 4, 7},
		"another view":                {func(r *Renew, _ View) { r.Sum++ }, 4, 9},
		"a later view":                {func(r *Renew, _ View) { r.View = 12 }, 4, 13},
		"a later incarnation":         {func(r *Renew, _ View) { r.Incarnation = 9 }, 9, 9},
		"an incarnation in the store": {func(r *Renew, _ View) { r.Store.Newest = 8 }, 8, 9},
		"a claim in the store":        {func(r *Renew, _ View) { r.Store.Number = 20 }, 4, 21},
		"what cannot be":              {func(r *Renew, _ View) { r.View = math.MaxUint64 / 2 }, 4, 7},
		"who cannot be":               {func(r *Renew, _ View) { r.Incarnation = math.MaxUint32 }, 4, 7},
		"nor in the store":            {func(r *Renew, _ View) { r.Store.Newest = math.MaxUint32 }, 4, 7},
		"nor a claim":                 {func(r *Renew, _ View) { r.Store.Number = math.MaxUint64 / 2 }, 4, 7},
	} {
		d, v := lead(t, Options{Length: 100}, 0)
		in := of(v, 1)
		c.change(&in, v)
		d.ask(1000, in)
		if got := d.View(); got.Newest != c.newest || got.Number != c.number || (len(got.Ring) == 3) != (c.number == 7) {
			t.Errorf("%s: %+v", what, got)
		}
		if c.number > 7 { // they go on saying so, and are not heard again
			was := d.View().Number
			d.ask(1001, of(v, 2))
			if in.View < was {
				d.ask(1001, in)
			}
			if got := d.View(); got.Number != was {
				t.Errorf("%s: begun anew again: %+v", what, got)
			}
			d.ask(1002, Renew{Name: "new", Seq: 1})
			if got := d.View(); len(got.Ring) != 1 || got.Ring[0].Incarnation != c.newest+1 || !slices.Equal(got.Departed, []uint32{1, 2, 3, 4}) {
				t.Errorf("%s: then %+v", what, got)
			}
		}
	}
}

// What was begun anew is not begun anew again by who goes on saying what it had said, while that is being stored.
func TestBegunAnewOnce(t *testing.T) {
	d, v := lead(t, Options{Length: 100}, 0)
	in := of(v, 1)
	in.View = 12
	_, saves, _ := d.Renewed(1000, in)
	number := d.view.Number
	if d.Renewed(1001, in); len(saves) != 1 || d.view.Number != number || number != 13 {
		t.Errorf("view %d is decided, and then %d", number, d.view.Number)
	}
	in.View = 13
	if d.Renewed(1002, in); d.view.Number != 14 {
		t.Errorf("who knows of a view of that number is not heard: %d", d.view.Number)
	}
}

// Who begins a ring brings what the store has open: it is lost, and nothing else that the store says.
func TestWhatTheStoreHasOpen(t *testing.T) {
	d := leading{NewLeader(Options{Length: 100, Key: []byte("key")}), t}
	d.Elected(1000, 1, 1<<40, 0, View{Number: 3, Newest: 9, Departed: []uint32{8, 2}})
	if k := d.view; k.Number != 4 || string(k.Key) != "key" {
		t.Errorf("a ring without a key is %+v", k)
	}
	d.ask(1000, Renew{Name: "a", Store: Known{Newest: 9, Open: []uint32{0, 2, 5, 5, 9, 10, 11}}})
	if got := d.View(); !slices.Equal(got.Departed, []uint32{2, 5, 8, 9}) || got.Newest != 10 {
		t.Errorf("%+v", got)
	}
	d.ask(1001, Renew{Name: "b", Store: Known{Open: []uint32{7}}})
	if got := d.View(); !slices.Equal(got.Departed, []uint32{2, 5, 8, 9}) || !slices.Equal(d.ring(), []uint32{10, 11}) {
		t.Errorf("%+v", got)
	}
	number := d.View().Number
	in := of(d.View(), 0)
	in.Retired = []uint32{5, 77, 9}
	d.ask(1002, in)
	if got := d.View(); !slices.Equal(got.Departed, []uint32{2, 8}) || got.Number != number+2 {
		t.Errorf("%+v", got)
	}
	d = leading{NewLeader(Options{Length: 100, Key: []byte("key")}), t}
	d.Elected(1000, 1, 1<<40, 0, View{})
	if d.view.Number != 0 || string(d.view.Key) != "key" {
		t.Errorf("the first ring is %+v", d.view)
	}
	d.view.Newest, d.stored.Newest = maxIncarnation, maxIncarnation
	if d.ask(1000, Renew{Name: "a"}); len(d.ring()) > 0 {
		t.Errorf("a number is given that is none: %v", d.ring())
	}
}

// One view is stored after the other, and what a former term hears of its own counts for nothing.
func TestOneSaveAtATime(t *testing.T) {
	d, v := lead(t, Options{Length: 100}, 0)
	_, first, _ := d.Renewed(1000, Renew{Name: "x"})
	_, second, _ := d.Renewed(1000, Renew{Name: "y"})
	if len(first) != 1 || len(second) != 0 || len(d.View().Ring) != 3 {
		t.Fatalf("%v, then %v", first, second)
	}
	if again := d.Saved(9, first[0].View.Number, true); again != nil || d.View().Number != v.Number {
		t.Errorf("another term's view counts: %v", again)
	}
	again := d.Saved(1, first[0].View.Number, true)
	if len(again) != 1 || again[0].View.Number <= first[0].View.Number || again[0].Term != 1 {
		t.Fatalf("what was decided meanwhile is not stored: %v", again)
	}
	if d.Saved(1, again[0].View.Number, true); len(d.ring()) != 5 {
		t.Errorf("%v", d.ring())
	}
	if again := d.Saved(1, 3, false); again != nil || !d.Leads(1000) {
		t.Error("an answer to nothing counts")
	}
	d.Renewed(1001, Renew{Name: "z"})
	if d.Saved(1, 0, false); d.Leads(1001) {
		t.Error("it leads though another term is newer")
	}
	if d.Led(1, 1<<41); d.Leads(1001) {
		t.Error("its term goes on though another one is newer")
	}
	if d.Gone(1002, "host3") != nil || d.Beat(1<<39) != nil {
		t.Error("it decides though it does not lead")
	}
	if _, _, ok := d.Renewed(1002, of(v, 0)); ok {
		t.Error("it answers though it does not lead")
	}
	d, _ = lead(t, Options{Length: 100}, 0)
	d.Led(1, 5)
	if !d.Leads(1<<40-1) || d.Leads(1<<40) {
		t.Error("its right ends at another time")
	}
	if d.Led(2, 1<<41); d.Leads(1 << 40) {
		t.Error("another term's right counts")
	}
	if d.Led(1, 1<<41); !d.Leads(1 << 40) {
		t.Error("its right is not extended")
	}
}

// Who has not heard of its place yet says nothing new of what it knows; who knew stays one who knows.
func TestWhoHasNotHeardOfItsPlace(t *testing.T) {
	d := leading{NewLeader(Options{Length: 100}), t}
	d.Elected(1000, 1, 1<<40, 0, View{})
	d.ask(1000, Renew{Name: "a"}) // alone, it knows
	d.ask(1000, Renew{Name: "a"})
	d.ask(1000, Renew{Name: "b"})
	d.ask(1001, Renew{Name: "b"})
	if !d.seen[1].knows || d.seen[2].knows || d.seen[2].at != 1001 || d.seen[1].at != 1000 {
		t.Fatalf("%+v", d.seen)
	}
	in := of(d.View(), 0)
	in.Knows = false
	if d.ask(1002, in); len(d.ring()) != 0 {
		t.Errorf("nobody knows, and %v go on", d.ring())
	}
}

// A lease counts from when it was asked for, for members of the view that it comes with; an incarnation is over a lease after it
// was first heard of that.
func TestMember(t *testing.T) {
	const length = ticks.Tick(5e6)
	v := View{Number: 3, Newest: 5, Ring: []Place{{4, "me", "", ""}, {5, "other", "", ""}}, Departed: []uint32{1, 2}}
	for drift, by := range map[int64]int64{0: 200, -1: 200, 7: 7} {
		m := NewMember(MemberOptions{Name: "me", Drift: drift, Store: Known{Newest: 3}})
		first := m.Beat(100, false)
		if _, ok := m.Ended(1); ok || first.Store.Newest != 3 || first.Seq != 1 {
			t.Errorf("it begins with %+v", first)
		}
		if !m.Granted(150, Grant{Seq: 1, Incarnation: 4, Length: length, View: v}) || m.Incarnation() != 4 || m.Place() != 0 {
			t.Fatalf("%d at %d", m.Incarnation(), m.Place())
		}
		if want := 100 + ticks.Shorten(length, by); m.Until() != want {
			t.Errorf("drift %d: its lease ends at %d, not %d", drift, m.Until(), want)
		}
		later := v
		later.Number, later.Departed = 4, []uint32{1, 2, 5}
		m.Beat(200, true)
		if m.Granted(300, Grant{Seq: 2, Incarnation: 9, Length: length / 2, View: later}); m.Incarnation() != 4 {
			t.Errorf("it takes another's number: %d", m.Incarnation())
		}
		for incarnation, heard := range map[uint32]ticks.Tick{1: 150, 5: 300} {
			if at, ok := m.Ended(incarnation); !ok || at != heard+ticks.Lengthen(length, 2*by) {
				t.Errorf("drift %d: incarnation %d is over at %d", drift, incarnation, at)
			}
		}
		if _, ok := m.Ended(4); ok {
			t.Error("a member is over")
		}
		m.Retire(2)
		m.Retire(77)
		r := m.Beat(400, true)
		if !slices.Equal(r.Retired, []uint32{2}) || r.Store.Newest != 0 || r.Incarnation != 4 || r.View != 4 || r.Sum != later.Sum() || !r.Knows {
			t.Errorf("it says %+v", r)
		}
		until := m.Until()
		if m.Granted(500, Grant{Seq: 3, Length: length, View: View{Number: 2}}); m.Until() != until || m.View().Number != 4 {
			t.Error("an older view counts")
		}
		gone := View{Number: 5, Ring: []Place{{9, "me", "", ""}}}
		m.Beat(600, true)
		if m.Granted(700, Grant{Seq: 4, Incarnation: 9, Length: 10 * length, View: gone}); m.Place() != -1 || m.Until() != until {
			t.Error("another's place counts")
		}
	}
}

// Answers that come after many others count no more.
func TestLateAnswers(t *testing.T) {
	v := View{Number: 1, Newest: 1, Ring: []Place{{1, "me", "", ""}}}
	for late, taken := range map[int]bool{maxSent - 1: true, maxSent: false} {
		m := NewMember(MemberOptions{Name: "me"})
		for range late + 1 {
			m.Beat(100, false)
		}
		if got := m.Granted(200, Grant{Seq: 1, Incarnation: 1, Length: 1e6, View: v}); got != taken || len(m.sent) > maxSent {
			t.Errorf("an answer with %d others behind it: %v", late, got)
		}
	}
	m := NewMember(MemberOptions{Name: "me"})
	others := View{Number: 1, Newest: 1, Ring: []Place{{1, "other", "", ""}}, Departed: []uint32{9}}
	m.Beat(1, false)
	if m.Granted(1, Grant{Seq: 1, View: others}); m.Place() != -1 {
		t.Errorf("another's place is %d", m.Place())
	}
	if _, ok := m.Ended(9); ok {
		t.Error("an incarnation is over, and nobody knows how long leases are")
	}
	if m.Granted(1, Grant{Seq: 7, View: v}) {
		t.Error("an answer to nothing counts")
	}
	if m.Beat(2, false).Leaving {
		t.Error("it leaves")
	}
	if m.Leave(); !m.Beat(3, false).Leaving {
		t.Error("it does not leave")
	}
}

// What was damaged on its way is refused, or says something that can be said.
func TestDamage(t *testing.T) {
	renew := Renew{Name: "n", Addr: "a", Host: "h", Incarnation: 3, Seq: 4, Knows: true, Leaving: true, Retired: []uint32{1}, View: 9, Sum: 8, Store: Known{Newest: 3, Open: []uint32{2, 3}, Number: 300}}
	grant := Grant{Seq: 1, Incarnation: 2, Length: 3, View: View{Number: 4, Newest: 2, Ring: []Place{{2, "n", "a", "h"}}, Departed: []uint32{1}, Key: []byte("key")}}
	check := func(b []byte, decode func(b []byte) (any, error), again func(is any) []byte) {
		is, err := decode(b)
		if err != nil {
			return
		}
		if got, err := decode(again(is)); err != nil || !reflect.DeepEqual(got, is) {
			t.Errorf("%x is taken as %+v, which comes as %+v, %v", b, is, got, err)
		}
	}
	damage := func(b []byte, decode func(b []byte) (any, error), again func(is any) []byte) {
		if _, err := decode(b); err != nil {
			t.Errorf("%x: %v", b, err)
		}
		for i := range b {
			for v := range 256 {
				d := bytes.Clone(b)
				d[i] = byte(v)
				check(d, decode, again)
			}
			if _, err := decode(b[:i]); err == nil {
				t.Errorf("half of %x is taken", b)
			}
			check(append(append(bytes.Clone(b[:i]), 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1), b[i+1:]...), decode, again)
			check(append(append(bytes.Clone(b[:i]), 0x80, 0x80, 0x80, 0x80, 0x10), b[i+1:]...), decode, again)
		}
		if _, err := decode(append(bytes.Clone(b), 0)); err == nil {
			t.Errorf("more than %x is taken", b)
		}
	}
	damage(AppendRenew(nil, renew), func(b []byte) (any, error) { return DecodeRenew(b) }, func(is any) []byte { return AppendRenew(nil, is.(Renew)) })
	damage(AppendGrant(nil, grant), func(b []byte) (any, error) { return DecodeGrant(b) }, func(is any) []byte { return AppendGrant(nil, is.(Grant)) })
	damage(AppendView(nil, grant.View), func(b []byte) (any, error) { return DecodeView(b) }, func(is any) []byte { return AppendView(nil, is.(View)) })
	for what, b := range map[string][]byte{
		"a lease of no length":                  AppendGrant(nil, Grant{Length: -1}),
		"a flag of none":                        append(append([]byte{renewEncoding, 0, 0, 0, 0, 0}, 4), 0, 0, 0, 0, 0, 0),
		"an older ask":                          append([]byte{renewEncoding - 1}, AppendRenew(nil, renew)[1:]...),
		"an older answer":                       append([]byte{encoding + 1}, AppendGrant(nil, grant)[1:]...),
		"an incarnation above all incarnations": {viewEncoding, 1, 0x80, 0x80, 0x80, 0x80, 0x10, 0, 0, 0},
	} {
		_, grant := DecodeGrant(b)
		_, renew := DecodeRenew(b)
		if _, view := DecodeView(b); grant == nil || renew == nil || view == nil {
			t.Errorf("%s is taken", what)
		}
	}
	if g, err := DecodeGrant(AppendGrant(nil, Grant{})); err != nil || g.Length != 0 {
		t.Errorf("an empty answer: %+v, %v", g, err)
	}
	a, b := View{Number: 1, Newest: 1}, View{Number: 1, Newest: 2}
	if a.Sum() == b.Sum() || (View{Key: []byte("k")}).Sum() != 0 || a.Sum() == 0 {
		t.Error("two views have one sum")
	}
}
