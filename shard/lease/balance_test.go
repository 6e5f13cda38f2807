package lease

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/freshet-cache/freshet/ticks"
)

// points are where the slices begin, but for the first.
func (a *Assigner) cuts() (out []string) {
	for _, s := range a.slices[1:] {
		out = append(out, s.Low)
	}
	return out
}

func sampled(rate uint64, keys ...string) Load { return Load{Rate: rate, Sample: keys} }

func hottest(rate uint64, key string, of uint64, keys ...string) Load {
	return Load{Rate: rate, Hot: []HotKey{{key, of}}, Sample: keys}
}

// splits are what makes a slice the one to be cut, and where.
var splits = map[string]struct {
	change func(a *Assigner)
	want   []string
}{
	"none is busy enough":    {func(a *Assigner) { a.slices[1].load = sampled(1999, "b1", "b2", "b3") }, nil},
	"one is":                 {func(a *Assigner) { a.slices[1].load = sampled(2000, "b3", "b1", "b2") }, []string{"b2"}},
	"too few keys are known": {func(a *Assigner) { a.slices[1].load = sampled(2000, "b1", "b2") }, nil},
	"it is moving": {func(a *Assigner) {
		a.slices[1].load, a.slices[1].recalled = sampled(2000, "b1", "b2", "b3"), true
	}, nil},
	"it is nobody's": {func(a *Assigner) {
		a.slices[1].load, a.slices[1].Node = sampled(2000, "b1", "b2", "b3"), ""
	}, nil},
	"another is busier": {func(a *Assigner) {
		a.slices[1].load = sampled(2001, "b1", "b2", "b3")
		a.slices[2].load = sampled(2002, "c1", "c2", "c3")
	}, []string{"c2"}},
	"the first is busier": {func(a *Assigner) {
		a.slices[1].load = sampled(2002, "b1", "b2", "b3")
		a.slices[2].load = sampled(2001, "c1", "c2", "c3")
	}, []string{"b2"}},
	"the first of equals": {func(a *Assigner) {
		a.slices[1].load = sampled(2001, "b1", "b2", "b3")
		a.slices[2].load = sampled(2001, "c1", "c2", "c3")
	}, []string{"b2"}},
	"busier but unknown": {func(a *Assigner) {
		a.slices[1].load = sampled(2000, "b1", "b2", "b3")
		a.slices[2].load = Load{Rate: 2002}
	}, []string{"b2"}},
	"one key is half of it": {func(a *Assigner) { a.slices[1].load = hottest(2000, "b5", 1000) }, []string{"b5", "b5\x00"}},
	"one key is nearly half": {func(a *Assigner) {
		a.slices[1].load = hottest(2000, "b5", 999, "b1", "b2", "b3")
	}, []string{"b2"}},
	"one key needs replicas": {func(a *Assigner) {
		a.opt.Balance.OneNode = 100
		a.slices[1].load = hottest(1000, "b5", 101)
	}, []string{"b5", "b5\x00"}},
	"one key nearly does": {func(a *Assigner) {
		a.opt.Balance.OneNode = 100
		a.slices[1].load = hottest(1000, "b5", 100)
	}, nil},
	"its first key": {func(a *Assigner) { a.slices[1].load = hottest(2000, "b", 2000) }, []string{"b\x00"}},
	"a key of another slice": {func(a *Assigner) {
		a.slices[1].load = hottest(2000, "c5", 2000, "b1", "b2", "b3")
	}, []string{"b2"}},
	"its first key, sampled": {func(a *Assigner) { a.slices[1].load = sampled(2000, "b", "b", "b") }, nil},
	"a sample of another":    {func(a *Assigner) { a.slices[1].load = sampled(2000, "c", "c1", "c2") }, nil},
	"a sample beside it":     {func(a *Assigner) { a.slices[1].load = sampled(2000, "a1", "bcd", "bce") }, []string{"bc"}},
	"one key is all there is": {func(a *Assigner) {
		a.slices[1].Range, a.slices[2].Low = Point("b"), "b\x00"
		a.slices[1].load = hottest(2000, "b", 2000)
	}, nil},
	"there are enough": {func(a *Assigner) {
		a.opt.Balance.MaxSlices = 4
		a.slices[1].load = sampled(2000, "b1", "b2", "b3")
	}, nil},
	"there are nearly enough": {func(a *Assigner) {
		a.opt.Balance.MaxSlices = 5
		a.slices[1].load = sampled(2000, "b1", "b2", "b3")
	}, []string{"b2"}},
}

// The busiest slice that is too busy is cut, and only that, if it can be.
func TestSplitCutsTheBusiest(t *testing.T) {
	for name, c := range splits {
		a := leading(t, AssignerOptions{}, "n1", "n1", "n1")
		c.change(a)
		before := a.cuts()
		a.split(5, a.opt.Balance.MaxSlices)
		a.Check()
		if got := slices.DeleteFunc(a.cuts(), func(at string) bool { return slices.Contains(before, at) }); !slices.Equal(got, c.want) {
			t.Errorf("%s: cut at %q, want %q", name, got, c.want)
		}
	}
}

// The parts of a slice keep its book and share its load; whose entries they may take over is
// known only if its owner cannot have been told of it yet.
func TestCutKeepsTheBook(t *testing.T) {
	for _, granted := range []bool{true, false} {
		a := leading(t, AssignerOptions{}, "n1", "n1")
		s := &a.slices[0]
		s.load, s.after, s.until = Load{Rate: 1000, Sample: []string{"", "aa", "ab", "ac"}}, 77, 42
		if a.slices[1].recalled = true; !granted {
			a.rev++
			s.rev = a.rev
		}
		if !a.Cut(5, []string{"ab", "aa", "ba"}) { // the second slice is on the move and stays whole
			t.Fatal("there is no room")
		}
		a.Check()
		if got := a.cuts(); !slices.Equal(got, []string{"aa", "ab", "b"}) {
			t.Fatalf("cut at %q", got)
		}
		for i, rate := range []uint64{250, 250, 500} {
			p := a.slices[i]
			if p.load.Rate != rate || p.until != 42 || !p.fresh || p.apart != 105 || p.Gen != Gen(3+i) || p.rev != a.rev || (p.after == 77) == granted || granted && p.after != 0 {
				t.Errorf("part %d, granted %v: %+v", i, granted, p)
			}
		}
	}
	for sample, want := range map[string]uint64{"": 333, "x": 0, "k": 1000, "kx": 500} {
		if l := share(Load{Rate: 1000, Sample: strings.Split(sample, "")}, Range{"a", "m"}, 3); l.Rate != want {
			t.Errorf("%q: a rate of %d", sample, l.Rate)
		}
	}
}

// A state is kept within its bounds, to the slice and to the byte.
func TestRoomToTheByte(t *testing.T) {
	a := leading(t, AssignerOptions{}, "n1")
	a.slices[0].Host = strings.Repeat("h", 400)
	names := len("n1") + len("at-n1") + 400
	a.slices[0].want, a.slices[0].copies = 1, []copied{{}, {}}
	each := 32 + names + 2*256
	for by, room := range map[int]bool{0: true, -1: false} {
		a.opt.StateBytes = 2*each + 2*len("point") + by
		if a.room([]string{"point"}) != room {
			t.Errorf("with %d bytes more than it takes: room %v", by, !room)
		}
	}
	a.slices[0].want = 3
	if a.room([]string{"point"}) {
		t.Error("replicas that it is to have are not counted")
	}
	a.slices[0].crew, a.slices[0].Host = crew{}, "h"
	a.opt.StateBytes = 2 * (32 + 256)
	for most, room := range map[int]bool{2: true, 1: false} {
		if a.opt.MaxSlices = most; a.room([]string{""}) != true || a.opt.StateBytes < 0 {
			t.Error("nothing is cut, and there is no room")
		}
		a.opt.StateBytes = 1 << 20
		if a.room([]string{"p"}) != room {
			t.Errorf("2 slices of %d: room %v", most, !room)
		}
	}
}

// Slices go from the busiest node to the least busy one while that helps.
func TestEvenMovesWhatHelps(t *testing.T) {
	type load = []uint64
	for name, c := range map[string]struct {
		owners string
		rates  load
		change func(a *Assigner)
		want   string // where each slice goes
	}{
		"idle ones spread":          {"1111", load{0, 0, 0, 0}, nil, "2211"},
		"even already":              {"1122", load{0, 0, 0, 0}, nil, "1122"},
		"an odd one stays":          {"111", load{0, 0, 0}, nil, "211"},
		"the busiest that helps":    {"1111", load{10, 40, 30, 100}, func(a *Assigner) { a.opt.Balance.Churn = 100 }, "2221"},
		"too much at once":          {"1111", load{10, 40, 30, 100}, nil, "1111"},
		"nothing small enough":      {"12", load{1000, 0}, nil, "12"},
		"it is moving":              {"1111", load{0, 0, 0, 0}, func(a *Assigner) { a.slices[0].recalled, a.slices[0].next = true, "n2" }, "2211"},
		"it has moved lately":       {"1111", load{0, 0, 0, 0}, func(a *Assigner) { a.slices[0].stays = 6 }, "1221"},
		"it has moved a while ago":  {"1111", load{0, 0, 0, 0}, func(a *Assigner) { a.slices[0].stays = 5 }, "2211"},
		"it is shared":              {"1111", load{0, 0, 0, 0}, func(a *Assigner) { a.slices[0].copies = []copied{{GroupMember: GroupMember{Node: "n3"}}} }, "1221"},
		"the other has a busy copy": {"1111", load{0, 0, 0, 0}, func(a *Assigner) { a.slices[3].copies = []copied{{GroupMember: GroupMember{Node: "n2"}, rate: 9}} }, "1111"},
		"within the slack":          {"1112", load{10, 10, 10, 22}, func(a *Assigner) { a.opt.Balance.Slack = 100 }, "1112"},
		"a third node is out of it": {"1113", load{0, 0, 0, 900}, nil, "2113"},
	} {
		a := leading(t, AssignerOptions{}, "n1", "n2")
		var all []slice
		for i, n := range c.owners {
			all = append(all, slice{Lease: Lease{Range{string(rune('a' + i)), string(rune('b' + i))}, Gen(i + 1)}, Node: "n" + string(n), load: Load{Rate: c.rates[i]}})
		}
		if a.slices = all; c.change != nil {
			c.change(a)
		}
		a.even(5, []string{"n1", "n2"})
		got := ""
		for _, s := range a.slices {
			to := s.Node
			if s.recalled {
				to = s.next
			}
			got += to[1:]
		}
		if got != c.want {
			t.Errorf("%s: %s becomes %s, want %s", name, c.owners, got, c.want)
		}
	}
}

// No more than a part of the load moves within a minute, however often it is evened out;
// the next minute has its own.
func TestChurnIsBoundedByTheMinute(t *testing.T) {
	a := leading(t, AssignerOptions{}, "n1", "n2")
	a.slices = nil
	for i := range 20 {
		a.slices = append(a.slices, slice{Lease: Lease{Range{fmt.Sprint(i), ""}, Gen(i + 1)}, Node: "n1", load: Load{Rate: 50}})
	}
	moved := func() (n int) {
		for _, s := range a.slices {
			if s.recalled {
				n++
			}
		}
		return n
	}
	start := ticks.Tick(0)
	for i, c := range []struct {
		at    ticks.Tick
		moved int
	}{{1, 2}, {2, 2}, {minute - 1, 2}, {minute, 4}, {minute + 1, 4}, {2*minute - 1, 4}, {2 * minute, 6}} { // 10 % of 1000 a minute
		if a.even(start+c.at, []string{"n1", "n2"}); moved() != c.moved {
			t.Errorf("step %d: %d slices have moved, want %d", i, moved(), c.moved)
		}
	}
}

// What a node weighs is what it has and will have, its copies included; the lightest is the
// first of equals.
func TestWeights(t *testing.T) {
	a := leading(t, AssignerOptions{}, "n1", "n1", "n2", "n3")
	for i, rate := range []uint64{100, 20, 30, 170} {
		a.slices[i].load.Rate = rate
	}
	a.slices[1].recalled, a.slices[1].next = true, "n2"
	a.slices[3].copies = []copied{{GroupMember: GroupMember{Node: "n1"}, rate: 7}, {GroupMember: GroupMember{Node: "n4"}, rate: 5}}
	idle := uint64(1 + 320/(8*4))
	w, total := a.weights([]string{"n1", "n2"})
	if w["n1"] != 100+idle+8 || w["n2"] != 50+2*idle || w["n3"] != 0 || len(w) != 2 || total != 158+3*idle || a.idle() != idle || a.rate() != 320 {
		t.Errorf("%v, %d in all, idle %d, rate %d", w, total, a.idle(), a.rate())
	}
	if to := a.lightest(1); to != "n2" {
		t.Errorf("lightest is %s", to)
	}
	a = leading(t, AssignerOptions{}, "n1", "n2", "n3")
	if to := a.lightest(1); to != "n1" {
		t.Errorf("of equals, %s is the lightest", to)
	}
	a.Renewed(1, Renew{Node: "n1", Seq: 2, Leaving: true}, nil)
	if to := a.lightest(1); to != "n2" {
		t.Errorf("lightest is %s, and n1 leaves", to)
	}
}

// Who leaves is relieved of everything that does not move already, if somebody can take it.
func TestRelieve(t *testing.T) {
	a := leading(t, AssignerOptions{}, "n1", "n1", "n1", "n2")
	a.slices[1].recalled, a.slices[1].next = true, "n3"
	a.slices[2].Node = ""
	a.nodes["n1"] = member{seen: 0, leaving: true}
	a.relieve(1)
	if s := a.slices; !s[0].recalled || s[0].next != "n2" || s[1].next != "n3" || s[2].recalled || s[3].recalled {
		t.Errorf("%s", a.show(1))
	}
	a = leading(t, AssignerOptions{}, "n1")
	a.nodes["n1"] = member{seen: 0, leaving: true}
	if a.relieve(1); a.slices[0].recalled {
		t.Error("there is nobody to take it")
	}
}

// Move takes a slice that is somebody else's, does not move, and to a node that is known.
func TestMoveAsksForWhatCanMove(t *testing.T) {
	for _, c := range []struct {
		key, to string
		moves   bool
	}{{"a", "n2", true}, {"a", "n1", false}, {"a", "n9", false}, {"b", "n1", false}, {"c", "n1", false}, {"d", "n1", true}, {"", "n2", true}} {
		a := leading(t, AssignerOptions{}, "n1", "n2", "n1", "n2")
		a.slices[2].Node = ""
		a.slices[1].recalled, a.slices[1].next = true, "n3"
		if got := a.Move(c.key, c.to); got != c.moves {
			t.Errorf("%s to %s: %v", c.key, c.to, got)
		}
		n := 0
		for _, s := range a.slices {
			if s.recalled && s.next == c.to {
				n++
			}
		}
		if (n == 1) != c.moves || a.slices[1].next != "n3" {
			t.Errorf("%s to %s: %s", c.key, c.to, a.show(0))
		}
	}
}

// Neighbours are joined when both are cold, were not cut lately, and were not apart from
// the beginning.
func TestMergeJoinsTheCold(t *testing.T) {
	for name, c := range map[string]struct {
		change func(a *Assigner)
		want   []string
	}{
		"the first two":          {func(*Assigner) {}, []string{"c"}},
		"too warm":               {func(a *Assigner) { a.slices[0].load.Rate, a.slices[1].load.Rate, a.slices[2].load.Rate = 100, 100, 100 }, []string{"b", "c"}},
		"just cold":              {func(a *Assigner) { a.slices[0].load.Rate, a.slices[1].load.Rate = 100, 99 }, []string{"c"}},
		"the first is too warm":  {func(a *Assigner) { a.slices[0].load.Rate = 200 }, []string{"b"}},
		"cut lately, left":       {func(a *Assigner) { a.slices[0].apart = 6 }, []string{"b"}},
		"cut lately, right":      {func(a *Assigner) { a.slices[1].apart = 6 }, []string{"b", "c"}},
		"cut lately, and before": {func(a *Assigner) { a.slices[0].apart = 5; a.slices[1].apart = 5 }, []string{"c"}},
		"apart from the first":   {func(a *Assigner) { a.opt.First = []string{"b"} }, []string{"b"}},
		"nobody's":               {func(a *Assigner) { a.slices[0].Node, a.slices[1].Node = "", "" }, []string{"b", "c"}},
	} {
		a := leading(t, AssignerOptions{}, "n1", "n1", "n1")
		c.change(a)
		if a.merge(5); !slices.Equal(a.cuts(), c.want) {
			t.Errorf("%s: cut at %q, want %q", name, a.cuts(), c.want)
		}
		a.Check()
	}
}
