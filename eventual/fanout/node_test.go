package fanout

import (
	"slices"
	"testing"

	"github.com/freshet-cache/freshet/eventual/fanout/names"
	"github.com/freshet-cache/freshet/ticks"
)

// alone returns a node that is registered and hears itself; list says whether the registry has
// listed the members.
func alone(list bool, members ...Incarnation) *Node {
	m := New(Options{Self: 1})
	outs := m.Step(1, Ticked{}, nil)
	m.Step(1, Renewed{Seq: outs[0].(Renew).Seq}, nil)
	for _, out := range m.Step(2, Ticked{}, nil) {
		switch out := out.(type) {
		case Send:
			m.Step(2, Received{1, out.Message}, nil)
		case List:
			if list {
				m.Step(2, Listed{Seq: out.Seq, Members: append([]Incarnation{1}, members...)}, nil)
			} else {
				m.Step(2, Listed{Seq: out.Seq, Status: Unknown}, nil)
			}
		}
	}
	m.Check()
	return m
}

// A node vouches for nothing before it knows who is registered, and has heard of each (L6).
func TestWhoIsRegistered(t *testing.T) {
	if m := alone(true); m.vouched < 2 || !m.ready {
		t.Errorf("a node that is alone vouches until %d", m.vouched)
	}
	if m := alone(false); m.vouched >= 2 || m.ready {
		t.Errorf("a node that has no answer vouches until %d", m.vouched)
	}
	if m := alone(true, 2); m.vouched >= 2 || m.ready {
		t.Errorf("a node that has not heard of 2 vouches until %d", m.vouched)
	}
}

// The first hello that names the node counts as if it had just been sent, and no other (Q6).
func TestHello(t *testing.T) {
	const now = ticks.Tick(100)
	named, unnamed := []Echo{{Of: 1, Beat: 0}}, []Echo(nil)
	for _, c := range []struct {
		what   string
		before []Heartbeat
		h      Heartbeat
		cover  ticks.Tick
	}{
		{"a hello that names the node", nil, Heartbeat{Beat: 1, Hello: true, Echoes: named}, now},
		{"a hello that does not", nil, Heartbeat{Beat: 1, Hello: true, Echoes: unnamed}, never},
		{"a heartbeat of who writes", nil, Heartbeat{Beat: 9, Echoes: named}, never},
		{"another hello", []Heartbeat{{Beat: 1, Hello: true}}, Heartbeat{Beat: 2, Hello: true, Echoes: named}, never},
		{"a heartbeat that echoes the node", nil, Heartbeat{Beat: 9, Echoes: []Echo{{Of: 1, Beat: 1}}}, 2},
		{"a heartbeat that echoes what was never sent", nil, Heartbeat{Beat: 9, Echoes: []Echo{{Of: 1, Beat: 77}}}, never},
	} {
		m := alone(true)
		for _, h := range c.before {
			m.Step(50, Received{2, h}, nil)
		}
		outs := m.Step(now, Received{2, c.h}, nil)
		m.Check()
		if got := m.peers[2].cover; got != c.cover {
			t.Errorf("after %s 2 is known as of %d, not %d", c.what, got, c.cover)
		}
		answered := slices.ContainsFunc(outs, func(o Output) bool { _, ok := o.(Send); return ok })
		if first := c.h.Hello && c.before == nil; answered != first {
			t.Errorf("%s is answered: %v", c.what, answered)
		}
	}
}

// What the dead say late is not heard, nor is an incarnation struck out by a list from before it was heard of.
func TestLists(t *testing.T) {
	m := alone(true)
	var early, late uint64
	for _, out := range m.Step(3, Ticked{}, nil) {
		if l, ok := out.(List); ok {
			early = l.Seq
		}
	}
	m.Step(4, Received{2, Heartbeat{Beat: 1, Hello: true}}, nil)
	for _, out := range m.Step(5, Ticked{}, nil) {
		if l, ok := out.(List); ok {
			late = l.Seq
		}
	}
	if m.Step(6, Listed{Seq: early, Members: []Incarnation{1}}, nil); m.peers[2] == nil {
		t.Fatal("struck out by a list that was asked for before it was heard of")
	}
	if m.Step(7, Listed{Seq: late, Members: []Incarnation{1}}, nil); m.peers[2] != nil {
		t.Fatal("not struck out by a list that was asked for afterwards")
	}
	if m.Step(8, Received{2, Heartbeat{Beat: 2, Hello: true}}, nil); m.peers[2] != nil {
		t.Fatal("it is back")
	}
	m.Check()
}

// Who asks for permission and does not have it hears why.
func TestRefusals(t *testing.T) {
	ask := func(m *Node, now ticks.Tick, in Mutate) Reason {
		t.Helper()
		for _, out := range m.Step(now, in, nil) {
			switch out := out.(type) {
			case Done:
				return out.Refused
			case Write:
				return Permitted
			}
		}
		t.Fatal("no answer")
		return 0
	}
	m := alone(true)
	m.opt.Mutations = 2
	lease := m.lease()
	for _, c := range []struct {
		now  ticks.Tick
		in   Mutate
		want Reason
	}{
		{3, Mutate{Op: 1, Names: []string{"x"}}, Permitted},
		{3, Mutate{Op: 1, Names: []string{"x"}}, Busy},
		{lease, Mutate{Op: 2, Names: []string{"x"}}, Isolated},
		{lease, Mutate{Op: 2, Names: []string{"x"}, Proceed: true}, Permitted},
		{lease - 1, Mutate{Op: 3, Names: []string{"x"}}, Busy},
	} {
		if got := ask(m, c.now, c.in); got != c.want {
			t.Errorf("at %d %+v is refused for %d, not %d", c.now, c.in, got, c.want)
		}
		m.Check()
	}
	if got := ask(alone(true, 2), 3, Mutate{Op: 1}); got != NotReady {
		t.Errorf("refused for %d", got)
	}
	left := alone(true)
	left.Step(3, Closing{}, nil)
	if got := ask(left, 4, Mutate{Op: 1}); got != Ended {
		t.Errorf("refused for %d", got)
	}
}

// A mutation that discovers names announces them before it goes on, and closes all that it has announced.
func TestDiscovered(t *testing.T) {
	m := alone(true)
	m.Step(3, Mutate{Op: 1, Names: []string{"x"}}, nil)
	outs := m.Step(3, Discovered{1, []string{"y"}}, nil)
	if n, ok := outs[0].(Send).Message.(Notice); !ok || n.Number != 2 || n.Names[0] != "y" || outs[1] != (Announced{1, m.lease()}) {
		t.Fatalf("%v", outs)
	}
	if m.Check(); m.marked["x"] != 1 || m.marked["y"] != 1 {
		t.Errorf("%v is marked", m.marked)
	}
	outs = m.Step(4, Wrote{1, OK}, nil)
	closed := map[uint64]string{}
	for _, out := range outs {
		if s, ok := out.(Send); ok {
			n := s.Message.(Notice)
			closed[n.Closes] = n.Names[0]
		}
	}
	if m.Check(); closed[1] != "x" || closed[2] != "y" || !m.Quiet() {
		t.Errorf("%v is closed", closed)
	}
}

// A node says nothing before it is registered: who hears it would strike it out by a list from before.
func TestNothingIsSaidBefore(t *testing.T) {
	m := New(Options{Self: 1})
	for now := range ticks.Tick(3) {
		for _, out := range m.Step(now, Ticked{}, nil) {
			if r, ok := out.(Renew); !ok {
				t.Errorf("before it is registered it asks for %#v", out)
			} else {
				m.Step(now, Renewed{r.Seq, Unknown}, nil)
			}
		}
	}
}

// A hit's check allocates nothing.
func TestFreshAllocatesNothing(t *testing.T) {
	g := Grant{Started: 5}
	if n := testing.AllocsPerRun(100, func() { _ = Fresh(7, 9, 1, g) }); n > 0 {
		t.Errorf("%v allocations", n)
	}
	for _, c := range []struct {
		now, vouched ticks.Tick
		g            Grant
		want         bool
	}{
		{10, 0, Grant{Started: 8}, true}, {11, 0, Grant{Started: 8}, false}, {11, 11, Grant{Started: 8}, true}, {12, 11, Grant{Started: 8}, false},
		{10, 0, Grant{8, true}, true}, {11, 11, Grant{8, true}, false}, {0, 0, Grant{Started: NeverYoung}, true}, {1, 0, Grant{Started: NeverYoung}, false},
	} {
		if got := Fresh(c.now, c.vouched, 2, c.g); got != c.want {
			t.Errorf("at %d, vouched until %d, %+v is served: %v", c.now, c.vouched, c.g, got)
		}
	}
}

// A write that is marked in the tier is sent within S of its mark, which expires W later (T5).
func TestMarkedWrites(t *testing.T) {
	m := alone(true)
	m.opt.Tier = true
	m.Step(3, Reached{7}, nil)
	if m.share.named == 0 {
		t.Fatal("it names no server")
	}
	mark := m.Step(5, Mutate{Op: 1, Names: []string{"x"}}, nil)[0].(MarkTier)
	if least := m.opt.Stale + m.opt.Land; mark.TTL < least || mark.TTL > 2*least {
		t.Errorf("it is marked for %d", mark.TTL)
	}
	outs := m.Step(9, TierMarked{Op: 1, Server: mark.Server, Names: mark.Names}, nil)
	if w, ok := outs[len(outs)-1].(Write); !ok || w.Until != 5+m.opt.Stale {
		t.Errorf("it may be sent until %+v, and was marked at 5", outs)
	}
	mark = m.Step(10, Discovered{1, []string{"y"}}, nil)[0].(MarkTier)
	if len(m.marked) != 1 || mark.Names[0] != "y" {
		t.Errorf("%v is announced before it is marked", m.marked)
	}
	outs = m.Step(11, TierMarked{Op: 1, Server: mark.Server, Names: mark.Names}, nil)
	if a, ok := outs[len(outs)-1].(Announced); !ok || a.Until != 5+m.opt.Stale {
		t.Errorf("it may be committed until %+v", outs)
	}
	outs = m.Step(12, Wrote{1, OK}, nil)
	if u, ok := outs[0].(UnmarkTier); !ok || !slices.Equal(u.Names, []string{"x", "y"}) {
		t.Errorf("it ends with %+v", outs)
	}
	m.Check()
}

// Names that are discovered while others wait for their marks are announced after them, each once (P3).
func TestDiscoveredMeanwhile(t *testing.T) {
	m := alone(true)
	m.opt.Tier = true
	m.Step(3, Reached{7}, nil)
	answer := func(outs []Output) []Output {
		t.Helper()
		k, ok := outs[len(outs)-1].(MarkTier)
		if !ok {
			t.Fatalf("%v marks nothing", outs)
		}
		return m.Step(4, TierMarked{Op: k.Op, Server: k.Server, Names: k.Names}, nil)
	}
	answer(m.Step(4, Mutate{Op: 1, Names: []string{"x"}}, nil))
	outs := m.Step(4, Discovered{1, []string{"y"}}, nil)
	if more := append(m.Step(4, Discovered{1, []string{"z"}}, nil), m.Step(4, Discovered{1, []string{"u", "v"}}, nil)...); len(more) > 0 {
		t.Errorf("while y is marked it does %v", more)
	}
	announced := 0
	for _, name := range []string{"y", "z", "u"} {
		outs = answer(outs)
		for _, out := range outs {
			if a, ok := out.(Announced); ok && a.Op == 1 {
				announced++
			}
		}
		if m.Check(); m.marked[name] != 1 {
			t.Errorf("after the mark of %s %v is announced", name, m.marked)
		}
	}
	if announced != 3 || len(m.marked) != 5 {
		t.Errorf("%d of 3 are answered, and %v is announced", announced, m.marked)
	}
}

// What was written without a mark is removed from the tier before it is used again, one request at a
// time: name by name, or everything if it is too much to be remembered. An answer from before the tier
// was used again says nothing (T5).
func TestRemovals(t *testing.T) {
	m := alone(true)
	m.opt.Tier = true
	m.Step(3, Reached{7}, nil)
	op := Op(0)
	write := func(names ...string) {
		t.Helper()
		op++
		m.Step(5, Mutate{Op: op, Names: names}, nil)
		m.Step(5, Wrote{op, OK}, nil)
		if m.Check(); !m.Quiet() {
			t.Fatalf("the write of %d names does not end", len(names))
		}
	}
	leaves := func() { // the registry, too, hears that it names none
		m.Step(4, Reached{0}, nil)
		for _, out := range m.Step(4, Ticked{}, nil) {
			if r, ok := out.(Renew); ok {
				m.Step(4, Renewed{Seq: r.Seq}, nil)
			}
		}
	}
	removal := func(outs []Output, names int) MarkTier {
		t.Helper()
		k, ok := outs[0].(MarkTier)
		if !ok || k.Op != 0 || len(k.Names) != names {
			t.Fatalf("it asks for %v, and not for the removal of %d names", outs, names)
		}
		return k
	}
	leaves()
	write("x")
	write("y")
	first := removal(m.Step(6, Reached{7}, nil), 2)
	for _, out := range m.Step(6, Ticked{}, nil) {
		if k, ok := out.(MarkTier); ok {
			t.Errorf("it asks again: %v", k)
		}
	}
	m.Step(6, TierMarked{Server: first.Server, Names: first.Names, Seq: first.Seq, Status: Unknown}, nil)
	var again Output
	for _, out := range m.Step(6, Ticked{}, nil) {
		if _, ok := out.(MarkTier); ok {
			again = out
		}
	}
	removal([]Output{again}, 2)
	if m.Step(6, TierMarked{Server: first.Server, Names: first.Names, Seq: first.Seq}, nil); m.share.named == 0 {
		t.Error("it names no server, and nothing is left to be removed")
	}
	leaves()
	write("x")
	second := removal(m.Step(6, Reached{7}, nil), 1)
	if m.Step(6, TierMarked{Server: first.Server, Names: first.Names, Seq: first.Seq}, nil); m.share.named != 0 {
		t.Error("an answer from before x was written again is taken")
	}
	m.Step(6, TierMarked{Server: second.Server, Names: second.Names, Seq: second.Seq}, nil)
	leaves()
	for i := range names.Most + 1 {
		write(string(rune('a' + i)))
	}
	write("x")
	all := removal(m.Step(6, Reached{7}, nil), 0)
	if m.Step(6, TierMarked{Server: all.Server, Seq: all.Seq}, nil); m.share.named == 0 {
		t.Error("everything was removed, and it names no server")
	}
}

// An entry that takes another's place is found by its own tags, and not by those before (R7).
func TestOverwrite(t *testing.T) {
	for name, dropped := range map[string]bool{"t": false, "u": true, "x": true, "y": false} {
		m := alone(true)
		for op, tag := range []string{"t", "u"} {
			m.Step(3, PageBegan{Op(op)}, nil)
			m.Step(3, PageLoaded{Op(op), []Value{{"x", []string{tag}}}}, nil)
			m.Check()
		}
		outs := m.Step(4, Received{2, Notice{Number: 2, Closes: 1, Names: []string{name}}}, nil)
		if got := slices.Contains(outs, Output(Drop{"x"})); got != dropped {
			t.Errorf("a mutation of %s drops x: %v", name, got)
		}
		m.Check()
	}
}
