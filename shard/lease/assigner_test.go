package lease

import (
	"reflect"
	"slices"
	"testing"

	"github.com/freshet-cache/freshet/ticks"
)

// leading is an assigner that leads until 1000, whose nodes were heard of at 0, and whose
// slices, each one letter, belong to the nodes named, under generations from 1 on.
func leading(t *testing.T, opt AssignerOptions, owners ...string) *Assigner {
	t.Helper()
	opt.Length, opt.Drift = 100, 1
	a := NewAssigner(opt)
	st := State{Gen: Gen(len(owners)), Longest: 100}
	for i, owner := range owners {
		h := Held{Lease: Lease{Range{string(rune('a' + i)), string(rune('b' + i))}, Gen(i + 1)}, Node: owner, Addr: "at-" + owner, Host: "host-" + owner}
		if i == 0 {
			h.Low = ""
		}
		if i == len(owners)-1 {
			h.High = ""
		}
		st.Slices = append(st.Slices, h)
	}
	a.Elected(0, 1, 1000, 0, st, nil, nil)
	if out := a.Saved(0, 1, a.saving, true, nil); len(out) != 0 {
		t.Fatalf("%+v", out)
	}
	for _, owner := range slices.Compact(slices.Sorted(slices.Values(owners))) {
		if owner != "" {
			a.Renewed(0, Renew{Node: owner, Addr: "at-" + owner, Host: "host-" + owner, Seq: 1, Groups: true, Table: 1 << 40}, nil)
		}
	}
	a.Check()
	return a
}

// Who does not lead, or leads no more, says nothing: to nobody, and of nothing.
func TestWhoDoesNotLeadIsSilent(t *testing.T) {
	before := []AssignerOutput{SendRecall{}}
	steps := map[string]func(a *Assigner, now ticks.Tick) []AssignerOutput{
		"renewed": func(a *Assigner, now ticks.Tick) []AssignerOutput {
			return a.Renewed(now, Renew{Node: "n2", Seq: 2}, before)
		},
		"gave up": func(a *Assigner, now ticks.Tick) []AssignerOutput { return a.GaveUp(now, Gave{"n1", []Gen{1}}, before) },
		"beat":    func(a *Assigner, now ticks.Tick) []AssignerOutput { return a.Beat(now, before) },
	}
	for name, step := range steps {
		for now, leads := range map[ticks.Tick]bool{99: true, 100: false} {
			a := leading(t, AssignerOptions{}, "n1", "n1", "n1")
			a.led = 100
			a.Move("a", "n1")
			a.slices[0].recalled, a.slices[0].next = true, "n1"
			was := a.Dump()
			out := step(a, now)
			if a.Leads(now) != leads || !leads && (!reflect.DeepEqual(out, before) || a.Dump() != was) || len(out) == 0 {
				t.Errorf("%s at %d: %+v", name, now, out)
			}
			if leads && len(out) == 1 && a.Dump() == was {
				t.Errorf("%s at %d: nothing is done", name, now)
			}
		}
		a := leading(t, AssignerOptions{}, "n1")
		a.Deposed()
		if out := step(a, 50); !reflect.DeepEqual(out, before) || a.Leads(0) {
			t.Errorf("%s, deposed: %+v", name, out)
		}
		a.Led(1, 1000) // of a term that is over
		if a.Leads(50) {
			t.Error("a term that is over goes on")
		}
	}
	a := leading(t, AssignerOptions{}, "n1")
	a.Led(1, 500) // heard of late
	if !a.Leads(999) {
		t.Error("leadership is cut short by an older answer")
	}
	a.Led(1, 2000)
	if !a.Leads(1999) || a.Leads(2000) {
		t.Error("leadership is not extended to the tick")
	}
}

// The answer to a save counts if it is that of the save under way, of this term.
func TestAnswersOfOtherSaves(t *testing.T) {
	before := []AssignerOutput{SendRecall{}}
	for name, answer := range map[string]func(a *Assigner, term, rev uint64) []AssignerOutput{
		"saved":     func(a *Assigner, term, rev uint64) []AssignerOutput { return a.Saved(1, term, rev, true, before) },
		"refused":   func(a *Assigner, term, rev uint64) []AssignerOutput { return a.Saved(1, term, rev, false, before) },
		"unsaved":   func(a *Assigner, term, rev uint64) []AssignerOutput { return a.Unsaved(term, rev, before) },
		"too large": func(a *Assigner, term, rev uint64) []AssignerOutput { a.Refused(term, rev, 100); return before },
	} {
		a := leading(t, AssignerOptions{}, "n1")
		a.Cut(1, []string{"m"})
		a.save(nil)
		rev := a.saving
		was := a.Dump()
		for _, other := range [][2]uint64{{2, rev}, {0, rev}, {1, rev - 1}, {1, rev + 1}, {1, 0}} {
			if out := answer(a, other[0], other[1]); !reflect.DeepEqual(out, before) || a.Dump() != was {
				t.Errorf("%s of term %d, revision %d: %+v", name, other[0], other[1], out)
			}
		}
		out := answer(a, 1, rev)
		if a.Dump() == was {
			t.Errorf("%s: nothing is done", name)
		}
		if gives := a.Leads(1); gives != (name == "saved" || name == "unsaved") {
			t.Errorf("%s: leads %v", name, gives)
		}
		if _, again := out[len(out)-1].(Save); again != (name == "unsaved") {
			t.Errorf("%s: %+v", name, out)
		}
		if !reflect.DeepEqual(out[0], before[0]) {
			t.Errorf("%s: what was there is lost: %+v", name, out)
		}
	}
}

// A state that is refused for good makes the next one smaller: three quarters of it, but
// never larger than it may be already. Another term can save again.
func TestRefusedStatesGetSmaller(t *testing.T) {
	for _, c := range []struct{ most, bytes, want int }{{1000, 400, 300}, {1000, 1333, 999}, {1000, 4000, 1000}} {
		a := leading(t, AssignerOptions{StateBytes: c.most}, "n1")
		a.rev++
		a.save(nil)
		if a.Refused(1, a.saving, c.bytes); a.opt.StateBytes != c.want {
			t.Errorf("%d of %d refused: %d", c.bytes, c.most, a.opt.StateBytes)
		}
		if out := a.Elected(10, 2, 1000, 0, State{Longest: 100, Gen: 1, Slices: []Held{{Lease: Lease{Gen: 1}}}}, nil, nil); len(out) != 1 {
			t.Errorf("the next term saves %+v", out)
		}
	}
}

// Leases of nodes that are known to be dead are over at once, of owners and of replicas, and
// of nobody else: all others count for one longest lease, and the slack, lengthened.
func TestNewLeaderWaitsForWhoMayLive(t *testing.T) {
	st := State{Gen: 4, Longest: 5_000_000, Slices: []Held{
		{Lease: Lease{Range{"", "k"}, 1}, Node: "n1", Host: "dead"},
		{Lease: Lease{Point("k"), 2}, Node: "n2", Host: "h2", Copies: []GroupMember{{Node: "n1", Host: "dead"}, {Node: "n3", Host: "h3"}}, Want: 2},
		{Lease: Lease{Range{"k\x00", ""}, 3}, Node: "n3", Host: "h3"},
	}}
	for _, length := range []ticks.Tick{2_000_000, 5_000_000, 9_000_000} {
		a := NewAssigner(AssignerOptions{Length: length, Drift: 100})
		out := a.Elected(50, 7, 1e9, 1_000_000, st, []string{"dead"}, nil)
		end := 50 + ticks.Lengthen(max(length, 5_000_000)+1_000_000, 100)
		got := []ticks.Tick{a.slices[0].until, a.slices[1].until, a.slices[1].copies[0].until, a.slices[1].copies[1].until, a.slices[2].until}
		if want := []ticks.Tick{0, end, 0, end, end}; !slices.Equal(got, want) {
			t.Errorf("leases of %d are over at %v, want %v", length, got, want)
		}
		if out[0].(Save).State.Longest != max(length, 5_000_000) {
			t.Errorf("leases of %d: %+v", length, out)
		}
		out = a.Renewed(60, Renew{Node: "n3", Host: "h3", Seq: 1, Groups: true}, nil)
		if g := out[len(out)-1].(SendGrant); (len(g.Leases) == 0) != (length > 5_000_000) { // A3: a successor must know of longer leases first
			t.Errorf("leases of %d: granted %+v before the save", length, g)
		}
	}
}

// Who was heard of by a former leadership of the same process is a stranger to the next one.
func TestNewTermBeginsAnew(t *testing.T) {
	a := leading(t, AssignerOptions{}, "n1", "n2")
	a.Deposed()
	out := a.Elected(10, 3, 1000, 0, State{Gen: 9, Table: 4, Longest: 100, Slices: []Held{{Lease: Lease{Gen: 9}}}}, nil, nil)
	out = a.Saved(15, 3, a.saving, true, out[:0])
	if out = a.Beat(20, out); len(out) != 0 || len(a.living(20)) != 0 {
		t.Errorf("%+v, living %v", out, a.living(20))
	}
	out = a.Renewed(30, Renew{Node: "n2", Addr: "at-n2", Seq: 1}, nil)
	if s, ok := out[0].(Save); !ok || s.State.Slices[0].Node != "n2" || s.State.Slices[0].Addr != "at-n2" || s.State.Gen != 10 || s.Term != 3 {
		t.Errorf("%+v", out)
	}
}

// What a node says of a generation that is not its own changes nothing, also not when it
// was its own under another name.
func TestOthersCannotGiveUp(t *testing.T) {
	a := leading(t, AssignerOptions{}, "n1", "n2")
	was := a.Dump()
	if out := a.GaveUp(5, Gave{"n2", []Gen{1, 3, 0}}, nil); len(out) != 0 || a.Dump() != was {
		t.Errorf("%+v", out)
	}
	if out := a.Renewed(5, Renew{Node: "n3", Seq: 1, Gave: []Gen{1, 2}}, nil); len(out) != 1 || a.slices[0].recalled || a.slices[1].recalled {
		t.Errorf("%+v", out)
	}
}

// A node is given nothing once it was silent for longer than it may be, to the tick.
func TestSilenceToTheTick(t *testing.T) {
	for now, alive := range map[ticks.Tick]bool{70: true, 71: false} {
		a := leading(t, AssignerOptions{Silence: 70}, "n1", "n2")
		if got := slices.Equal(a.living(now), []string{"n1", "n2"}); got != alive {
			t.Errorf("at %d: living %v", now, a.living(now))
		}
	}
	a := leading(t, AssignerOptions{Silence: 70}, "n1", "n2")
	a.Renewed(60, Renew{Node: "n2", Addr: "at-n2", Seq: 2}, nil)
	for _, now := range []ticks.Tick{100, 101} { // n1 is silent, and its lease over only now
		if a.Beat(now, nil); (a.slices[0].Node == "n2") != (now == 101) {
			t.Errorf("at %d: %s", now, a.show(now))
		}
	}
}

// What is granted is written down for each lease until it is over by the assigner's clock,
// and a shorter one that is granted later takes nothing away.
func TestTheBookIsNotShortened(t *testing.T) {
	a := leading(t, AssignerOptions{}, "n1")
	for now, want := range map[ticks.Tick]ticks.Tick{0: 101, 10: 111} {
		a.slices[0].until = 0
		if a.Renewed(now, Renew{Node: "n1", Seq: 2}, nil); a.slices[0].until != want {
			t.Errorf("a lease granted at %d is over at %d", now, a.slices[0].until)
		}
	}
	a.slices[0].until = 500 // what a former leader may have granted
	if a.Renewed(20, Renew{Node: "n1", Seq: 3}, nil); a.slices[0].until != 500 {
		t.Errorf("it is taken to be over at %d", a.slices[0].until)
	}
}

// A node is sent the table if it has an older one, and what it may know of groups.
func TestTablesForEachNode(t *testing.T) {
	a := leading(t, AssignerOptions{}, "n1", "n2")
	a.table = 5
	a.slices[0].Range = Range{"", "a\x00"}
	a.slices[1].Low = "a\x00"
	a.slices[0].copies = []copied{{GroupMember: GroupMember{Node: "n2"}, until: 50}}
	for _, c := range []struct {
		table  uint64
		groups bool
	}{{4, true}, {5, true}, {6, true}, {4, false}} {
		out := a.Renewed(1, Renew{Node: "n1", Seq: 9, Table: c.table, Groups: c.groups}, nil)
		g := out[len(out)-1].(SendGrant)
		if (g.Table != nil) != (c.table < 5) || g.Table != nil && (len(g.Table.Slices[0].Copies) == 1) != c.groups {
			t.Errorf("to one that has %d: %+v", c.table, g.Table)
		}
		if len(g.Groups) != 1 || len(g.Groups[0]) != 2 || len(g.After) != 1 || g.Seq != 9 || g.Term != 1 || g.Length != 100 {
			t.Errorf("%+v", g)
		}
	}
	a.slices[0].copies = nil
	out := a.Renewed(1, Renew{Node: "n1", Seq: 9, Groups: true}, nil)
	if g := out[len(out)-1].(SendGrant); g.Groups != nil { // so that who knows no groups can read it
		t.Errorf("%+v", g.Groups)
	}
}

// The slice that a primary has acknowledged is transferred, whichever member says so last.
func TestTransferredWhoeverIsLast(t *testing.T) {
	for _, order := range [][]string{{"n1", "n2", "n3"}, {"n2", "n1", "n3"}, {"n3", "n2", "n1"}} {
		a := leading(t, AssignerOptions{}, "n1", "n2", "n3")
		s := &a.slices[0]
		s.Range, a.slices[1].Low = Range{"", "\x00"}, "\x00"
		s.want = 2
		s.copies = []copied{{GroupMember: GroupMember{Node: "n2"}, until: 90}, {GroupMember: GroupMember{Node: "n3"}, until: 90}}
		s.recalled, s.next, s.until = true, "n3", 90
		for i, node := range order {
			if s.Gen != 1 {
				t.Fatalf("given away when %v of %v have acknowledged", order[:i], order)
			}
			a.GaveUp(5, Gave{node, []Gen{1}}, nil)
		}
		if s.Gen != 4 || s.Node != "n3" || s.after != 1 {
			t.Errorf("%v: generation %d of %s after %d", order, s.Gen, s.Node, s.after)
		}
		for node, after := range map[string]Gen{"n3": 1, "n2": 0} {
			if until, got := s.holds(node); until == nil || got != after {
				t.Errorf("%s holds it after %d", node, got)
			}
		}
	}
	// If the owner's lease only lapsed, there is nobody to take over from.
	a := leading(t, AssignerOptions{}, "n1", "n2")
	s := &a.slices[0]
	s.recalled, s.next, s.until = true, "n2", 90
	if a.Renewed(90, Renew{Node: "n2", Addr: "at-n2", Seq: 2}, nil); s.Node != "n2" || s.after != 0 {
		t.Errorf("%s after %d", s.Node, s.after)
	}
}

// What has moved lately, or is on the move, or is shared, is neither moved on nor joined.
func TestWhatIsBoundStays(t *testing.T) {
	for name, bind := range map[string]func(s *slice){
		"recalled":           func(s *slice) { s.recalled = true },
		"to be replicated":   func(s *slice) { s.want = 1 },
		"replicated":         func(s *slice) { s.copies = []copied{{GroupMember: GroupMember{Node: "n2"}}} },
		"another's":          func(s *slice) { s.Node = "n2" },
		"nothing is special": func(*slice) {},
	} {
		for i := range 2 {
			a := leading(t, AssignerOptions{}, "n1", "n1")
			bind(&a.slices[i])
			free := name == "nothing is special"
			if a.Join("b") != free || free != (len(a.slices) == 1) {
				t.Errorf("%s, of slice %d: %s", name, i, a.show(0))
			}
			a = leading(t, AssignerOptions{}, "n1", "n1")
			bind(&a.slices[i])
			if a.merge(0); free != (len(a.slices) == 1) {
				t.Errorf("%s, of slice %d: merged into %s", name, i, a.show(0))
			}
		}
	}
	a := leading(t, AssignerOptions{}, "n1", "n1")
	a.slices[0].until, a.slices[1].until = 30, 40
	a.slices[0].stays, a.slices[1].stays = 8, 7
	a.slices[0].after, a.slices[1].after = 5, 6
	a.slices[0].load, a.slices[1].load = Load{Rate: 3, Sample: []string{"a"}}, Load{Rate: 4, Sample: []string{"b"}}
	if !a.Join("b") || a.Join("b") || a.Join("") {
		t.Error("not joined once")
	}
	if s := a.slices[0]; s.until != 40 || s.stays != 8 || s.after != 0 || !s.fresh || s.Gen != 3 || s.load.Rate != 7 || !slices.Equal(s.load.Sample, []string{"a", "b"}) || s.Range != (Range{}) {
		t.Errorf("%+v", s)
	}
}

// The defaults are those of the documentation.
func TestDefaults(t *testing.T) {
	for _, zero := range []AssignerOptions{{}, {Length: -1, Drift: -1, Silence: -1, MaxSlices: -1, StateBytes: -1, Balance: Balance{MaxSlices: -1, MaxReplicas: -1}}} {
		zero.defaults()
		want := AssignerOptions{Length: 10e9, Drift: 200, Silence: 10e9, MaxSlices: 4096, StateBytes: 1 << 20,
			Balance: Balance{MaxSlices: 32, SplitRate: 2000, Slack: 20, Churn: 10, MaxReplicas: 4}}
		if !reflect.DeepEqual(zero, want) {
			t.Errorf("%+v", zero)
		}
	}
	one := AssignerOptions{Length: 1, Drift: 1, Silence: 1, MaxSlices: 1, StateBytes: 1, Balance: Balance{MaxSlices: 1, SplitRate: 1, Slack: 1, Churn: 1, MaxReplicas: 1}}
	was := one
	if one.defaults(); !reflect.DeepEqual(one, was) {
		t.Errorf("%+v", one)
	}
}
