package lease

import (
	"slices"
	"testing"
)

// hot is an assigner whose middle slice is the key k, of n1.
func hot(t *testing.T, opt AssignerOptions) (*Assigner, *slice) {
	a := leading(t, opt, "n1", "n1", "n1", "n2", "n3", "n4")
	a.slices[0].High, a.slices[1].Range, a.slices[2].Low = "b", Point("b"), "b\x00"
	a.Check()
	return a, &a.slices[1]
}

func names(all []copied) (out []string) {
	for _, c := range all {
		out = append(out, c.Node)
	}
	return out
}

// A key has as many replicas as its load asks for: one more member at once when it is too
// much for those there are, one fewer when the others would have a quarter to spare and all
// have said what they are asked.
func TestReplicasFollowTheLoad(t *testing.T) {
	for _, c := range []struct {
		rate uint64
		had  int
		want int
	}{
		{1000, 0, 0}, {1001, 0, 1}, {2000, 0, 1}, {2001, 0, 2}, {3001, 0, 3}, {9000, 0, 3},
		{2000, 1, 1}, {2001, 1, 2}, {750, 1, 1}, {749, 1, 0}, {0, 1, 0},
		{3000, 2, 2}, {1500, 2, 2}, {1499, 2, 1}, {0, 2, 1}, {9000, 3, 3},
	} {
		for name, change := range map[string]func(s *slice) bool{ // whether it still follows
			"":                     func(*slice) bool { return true },
			"pinned":               func(s *slice) bool { s.pinned = true; return false },
			"on the move":          func(s *slice) bool { s.recalled = true; return false },
			"more than one key":    func(s *slice) bool { s.Range = Range{"b", "c"}; return false },
			"one has said nothing": func(s *slice) bool { s.copies = append(s.copies, copied{}); return c.want >= c.had },
		} {
			a, s := hot(t, AssignerOptions{Balance: Balance{OneNode: 1000, MaxReplicas: 3}})
			s.want, s.load.Rate = c.had, c.rate
			follows := change(s)
			rev, want := a.rev, c.want
			if !follows {
				want = c.had
			}
			if a.heed(s); s.want != want || (a.rev != rev) != (want != c.had) {
				t.Errorf("%d operations, %d replicas, %s: %d are wanted, not %d", c.rate, c.had, name, s.want, want)
			}
		}
	}
	a, s := hot(t, AssignerOptions{})
	if s.load.Rate = 1 << 40; a.opt.Balance.OneNode == 0 {
		a.heed(s)
	}
	if s.want != 0 {
		t.Error("replicas without anybody having said how much is too much")
	}
	a, s = hot(t, AssignerOptions{})
	s.copies = []copied{{GroupMember: GroupMember{Node: "n2"}}, {GroupMember: GroupMember{Node: "n3"}}}
	a.report("n3", []Load{{Gen: s.Gen, Rate: 40}})
	a.report("n9", []Load{{Gen: s.Gen, Rate: 80}})
	if a.report("n1", []Load{{Gen: s.Gen, Rate: 2}}); s.demand() != 42 || s.copies[0].heard || !s.copies[1].heard || s.load.Rate != 2 {
		t.Errorf("%+v", s)
	}
}

// An operator asks for replicas within bounds, of a key that stays where it is.
func TestReplicateWithinBounds(t *testing.T) {
	for _, c := range []struct {
		key    string
		n      int
		ok     bool
		slices int
	}{{"b", 3, true, 6}, {"b", 4, false, 6}, {"b", -1, false, 6}, {"b", 1, true, 6}, {"c", 0, true, 6}, {"b\x00", 1, true, 7}, {"cx", 1, true, 8}, {"a", 2, true, 8}, {"d", 1, false, 6}} {
		a, _ := hot(t, AssignerOptions{Balance: Balance{MaxReplicas: 3}})
		a.slices[3].recalled = true // that of d
		rev := a.rev
		ok := a.Replicate(5, c.key, c.n)
		i := slices.IndexFunc(a.slices, func(s slice) bool { return s.Contains(c.key) })
		if s := a.slices[i]; ok != c.ok || len(a.slices) != c.slices || (a.rev > rev) != ok || ok && (s.want != c.n || s.pinned != (c.n > 0)) || !ok && s.want != 0 {
			t.Errorf("%d of %s: %v, %d slices, %+v", c.n, c.key, ok, len(a.slices), s.crew)
		}
		a.Check()
	}
	a, _ := hot(t, AssignerOptions{MaxSlices: 7})
	if a.Replicate(5, "cx", 1) || !a.Replicate(5, "b\x00", 1) {
		t.Error("more slices than there may be, or fewer")
	}
	if a, _ = hot(t, AssignerOptions{}); !a.Unreplicate(5, "b") || (&Assigner{}).Replicate(5, "b", 1) {
		t.Error("nothing to take back, and that is refused; or a key that is in no slice is replicated")
	}
}

// Who is in the group: whoever was, as long as it does not leave and may hold a lease; then
// the least busy others that can be in one.
func TestMuster(t *testing.T) {
	for name, c := range map[string]struct {
		change func(a *Assigner, s *slice)
		want   []string
	}{
		"the least busy":        {func(a *Assigner, _ *slice) { a.slices[3].load.Rate = 9; a.slices[5].load.Rate = 5 }, []string{"n3", "n4"}},
		"the first of equals":   {func(*Assigner, *slice) {}, []string{"n2", "n3"}},
		"none":                  {func(_ *Assigner, s *slice) { s.want = 0 }, nil},
		"more than there are":   {func(_ *Assigner, s *slice) { s.want = 9 }, []string{"n2", "n3", "n4"}},
		"one leaves":            {func(a *Assigner, _ *slice) { a.nodes["n2"] = member{seen: 5, groups: true, leaving: true} }, []string{"n3", "n4"}},
		"one knows no groups":   {func(a *Assigner, _ *slice) { a.nodes["n2"] = member{seen: 5} }, []string{"n3", "n4"}},
		"one is silent":         {func(a *Assigner, _ *slice) { a.nodes["n2"] = member{seen: -96, groups: true} }, []string{"n3", "n4"}},
		"one is done":           {func(a *Assigner, _ *slice) { a.nodes["n2"] = member{seen: 5, groups: true, done: true} }, []string{"n3", "n4"}},
		"the primary leaves":    {func(a *Assigner, _ *slice) { a.nodes["n1"] = member{seen: 5, groups: true, leaving: true} }, nil},
		"the primary cannot":    {func(a *Assigner, _ *slice) { a.nodes["n1"] = member{seen: 5} }, nil},
		"the primary is silent": {func(a *Assigner, _ *slice) { a.nodes["n1"] = member{seen: -96, groups: true} }, nil},
		"whoever was":           {func(_ *Assigner, s *slice) { s.copies = []copied{{GroupMember: GroupMember{Node: "n4"}}} }, []string{"n4", "n2"}},
		"too many were": {func(_ *Assigner, s *slice) {
			s.copies = []copied{{GroupMember: GroupMember{Node: "n4"}}, {GroupMember: GroupMember{Node: "n3"}}, {GroupMember: GroupMember{Node: "n2"}}}
		}, []string{"n4", "n3"}},
		"it was, and leaves": {func(a *Assigner, s *slice) {
			s.copies = []copied{{GroupMember: GroupMember{Node: "n4"}, until: 50}}
			a.nodes["n4"] = member{seen: 5, groups: true, leaving: true}
		}, []string{"n2", "n3"}},
		"it was, is silent, and may hold it": {func(a *Assigner, s *slice) {
			s.copies = []copied{{GroupMember: GroupMember{Node: "n4"}, until: 6}}
			a.nodes["n4"] = member{seen: -96, groups: true}
		}, []string{"n4", "n2"}},
		"it was, is silent, and does not": {func(a *Assigner, s *slice) {
			s.copies = []copied{{GroupMember: GroupMember{Node: "n4"}, until: 5}}
			a.nodes["n4"] = member{seen: -96, groups: true}
		}, []string{"n2", "n3"}},
		"it has become the primary": {func(_ *Assigner, s *slice) { s.copies = []copied{{GroupMember: GroupMember{Node: "n1"}}} }, []string{"n2", "n3"}},
	} {
		a, s := hot(t, AssignerOptions{})
		s.want = 2
		c.change(a, s)
		if got := names(a.muster(5, s)); !slices.Equal(got, c.want) {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}

// A group that is not what it should be is asked back, unless nobody could hold it anew.
func TestReplicateAsksBack(t *testing.T) {
	for name, c := range map[string]struct {
		change func(a *Assigner, s *slice)
		asked  bool
	}{
		"it wants more": {func(_ *Assigner, s *slice) { s.want = 1 }, true},
		"it has what it wants": {func(_ *Assigner, s *slice) {
			s.want = 1
			s.copies = []copied{{GroupMember: GroupMember{Node: "n2", Addr: "at-n2", Host: "host-n2"}, until: 50}}
		}, false},
		"it wants fewer": {func(_ *Assigner, s *slice) { s.copies = []copied{{GroupMember: GroupMember{Node: "n2"}, until: 50}} }, true},
		"it moves":       {func(_ *Assigner, s *slice) { s.want = 1; s.recalled, s.next = true, "n4" }, false},
		"it is nobody's": {func(_ *Assigner, s *slice) { s.want = 1; s.Node = "" }, false},
		"its primary is silent": {func(a *Assigner, s *slice) {
			s.copies = []copied{{GroupMember: GroupMember{Node: "n2"}, until: 50}}
			a.nodes["n1"] = member{seen: -96, groups: true}
		}, false},
	} {
		a, s := hot(t, AssignerOptions{})
		c.change(a, s)
		next := s.next
		a.replicate(5)
		if c.asked {
			next = "n1"
		}
		if s.recalled != (c.asked || name == "it moves") || s.next != next {
			t.Errorf("%s: recalled %v for %q", name, s.recalled, s.next)
		}
	}
}
