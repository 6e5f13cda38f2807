package lease

import (
	"reflect"
	"slices"
	"testing"

	"github.com/freshet-cache/freshet/ticks"
)

// nodeWith is a node that holds leases, each until 100, by the renewal it sent at 0.
func nodeWith(leases ...Lease) *Node {
	n := NewNode(NodeOptions{Node: "n", Groups: true})
	n.Beat(0, nil, nil)
	n.Granted(1, Grant{Node: "n", Seq: 1, Length: 100, Leases: leases}, nil)
	return n
}

func wants(t *testing.T, what string, got []NodeOutput, want ...NodeOutput) {
	t.Helper()
	if len(got) != len(want) || len(got) > 0 && !reflect.DeepEqual(got, want) {
		t.Errorf("%s: %+v, want %+v", what, got, want)
	}
}

// A lease is over at its end, and not a tick before: for the beat, for the answer that
// brings it, and for one that would extend it.
func TestEndsToTheTick(t *testing.T) {
	l := Lease{Range{"a", "c"}, 5}
	for now, over := range map[ticks.Tick]bool{99: false, 100: true, 101: true} {
		n := nodeWith(l)
		out := n.Beat(now, nil, nil)
		if over {
			wants(t, "beat", out[:len(out)-1], Revoke{Gen: 5})
		} else {
			wants(t, "beat", out[:len(out)-1])
		}
		if r := out[len(out)-1].(SendRenew); over != slices.Equal(r.Gave, []Gen{5}) || over == n.Holds() {
			t.Errorf("at %d: gave %v, holds %v", now, r.Gave, n.Holds())
		}

		n = NewNode(NodeOptions{Node: "n"})
		n.Beat(0, nil, nil)
		out = n.Granted(now, Grant{Node: "n", Seq: 1, Length: 100, Leases: []Lease{l}}, nil)
		if over {
			wants(t, "late grant", out)
		} else {
			wants(t, "grant", out, Acquire{Lease: l, Until: 100})
		}

		n = nodeWith(l)
		n.Beat(50, nil, nil)
		out = n.Granted(now, Grant{Node: "n", Seq: 2, Length: 100, Leases: []Lease{l}}, nil)
		if over { // N6
			wants(t, "revival", out, Revoke{Gen: 5})
		} else {
			wants(t, "extension", out, Extend{5, 150})
			wants(t, "the same again", n.Granted(now, Grant{Node: "n", Seq: 2, Length: 100, Leases: []Lease{l}}, nil))
			wants(t, "an earlier one", n.Granted(now, Grant{Node: "n", Seq: 1, Length: 100, Leases: []Lease{l}}, nil))
		}
		n.Check()
	}
}

// The drift of the node's clock shortens what it is granted, by a part of every started
// million ticks.
func TestDriftBothWays(t *testing.T) {
	for _, c := range []struct{ length, short, long ticks.Tick }{{999_999, 999_799, 1_000_199}, {1_000_000, 999_600, 1_000_400}, {10_000_000, 9_997_800, 10_002_200}} {
		if s, l := ticks.Shorten(c.length, 200), ticks.Lengthen(c.length, 200); s != c.short || l != c.long {
			t.Errorf("%d becomes %d and %d, want %d and %d", c.length, s, l, c.short, c.long)
		}
	}
}

// The answer to a renewal counts from when that was sent, as long as it is remembered.
func TestOldRenewalsAreForgotten(t *testing.T) {
	n := NewNode(NodeOptions{Node: "n"})
	for i := range ticks.Tick(maxSent + 10) {
		n.Beat(i, nil, nil)
		n.Check()
	}
	if len(n.sent) != maxSent {
		t.Errorf("%d renewals are remembered", len(n.sent))
	}
	l := Lease{Gen: 5}
	for seq, want := range map[uint64][]NodeOutput{10: nil, 11: {Acquire{Lease: l, Until: 1010}}, maxSent + 11: nil} {
		m := *n
		m.held, m.gave = map[Gen]term{}, map[Gen]uint64{}
		wants(t, "an answer", m.Granted(100, Grant{Node: "n", Seq: seq, Length: 1000, Leases: []Lease{l}}, nil), want...)
	}
	wants(t, "another incarnation's", n.Granted(100, Grant{Node: "m", Seq: 11, Length: 1000, Leases: []Lease{l}}, nil))
	wants(t, "another incarnation's", n.Recalled(100, Recall{Node: "m", Leases: []Lease{l}}, nil))
}

// What is given up is said in every renewal, until an answer shows that one arrived which
// said it: not one to a renewal from before.
func TestGivenUpIsSaidUntilItIsHeard(t *testing.T) {
	gave := func(out []NodeOutput) []Gen { return out[len(out)-1].(SendRenew).Gave }
	n := nodeWith(Lease{Gen: 5})
	n.Beat(50, nil, nil)                                              // renewal 2 says nothing
	if g := gave(n.Beat(100, nil, nil)); !slices.Equal(g, []Gen{5}) { // renewal 3
		t.Errorf("gave %v", g)
	}
	n.Granted(101, Grant{Node: "n", Seq: 2}, nil)
	if g := gave(n.Beat(102, nil, nil)); !slices.Equal(g, []Gen{5}) {
		t.Errorf("gave %v", g)
	}
	n.Granted(103, Grant{Node: "n", Seq: 3}, nil)
	if g := gave(n.Beat(104, nil, nil)); len(g) != 0 { // renewal 5
		t.Errorf("gave %v", g)
	}
	// It is offered all the same: it is refused, said again, and said no longer than needed.
	wants(t, "an old generation", n.Granted(105, Grant{Node: "n", Seq: 5, Length: 100, Leases: []Lease{{Gen: 5}}}, nil))
	if g := gave(n.Beat(106, nil, nil)); !slices.Equal(g, []Gen{5}) { // renewal 6
		t.Errorf("gave %v", g)
	}
	n.Granted(107, Grant{Node: "n", Seq: 5, Length: 100, Leases: []Lease{{Gen: 5}}}, nil) // it crossed renewal 6
	n.Granted(108, Grant{Node: "n", Seq: 6}, nil)
	if g := gave(n.Beat(109, nil, nil)); len(g) != 0 {
		t.Errorf("gave %v", g)
	}
}

// A recall ends the generation it names and older ones of its keys, wherever they lie; a
// newer one stays. What was recalled is never accepted again.
func TestRecallEndsWhatItNames(t *testing.T) {
	old, part, other, newer := Lease{Range{"a", "m"}, 5}, Lease{Range{"m", "p"}, 6}, Lease{Range{"p", "z"}, 7}, Lease{Range{"c", "d"}, 9}
	n := nodeWith(old, part, other)
	n.Granted(2, Grant{Node: "n", Seq: 1, Length: 100, Leases: []Lease{newer}}, nil)
	in := Recall{Node: "n", Leases: []Lease{{Range{"b", "n"}, 8}, {Range{"x", "y"}, 8}}, Next: []string{"n2"}}
	wants(t, "recall", n.Recalled(3, in, nil),
		Revoke{5, Range{"b", "n"}, 8, "n2"}, Revoke{6, Range{"b", "n"}, 8, "n2"}, Revoke{Gen: 7}, SendGave{Gave{"n", []Gen{8, 8}}})
	wants(t, "again", n.Recalled(4, in, nil), SendGave{Gave{"n", []Gen{8, 8}}})
	for _, l := range []Lease{old, part, other, {Range{"b", "n"}, 8}} {
		wants(t, "late grant", n.Granted(5, Grant{Node: "n", Seq: 1, Length: 100, Leases: []Lease{l}}, nil))
	}
	if !n.Holds() || n.floorOf(newer.Range) != 8 {
		t.Error("a newer lease was taken away")
	}
	n.Check()
}

// Leases whose keys are all held under newer ones are over, and stay over; but a newer one
// that has lapsed holds nothing.
func TestWhatWasCutIsOver(t *testing.T) {
	old, left, right := Lease{Range{"a", "z"}, 5}, Lease{Range{"a", "m"}, 6}, Lease{Range{"m", "z"}, 7}
	n := nodeWith(old)
	wants(t, "one half", n.Granted(2, Grant{Node: "n", Seq: 1, Length: 100, Leases: []Lease{left}}, nil), Acquire{Lease: left, Until: 100})
	wants(t, "the other", n.Granted(3, Grant{Node: "n", Seq: 1, Length: 100, Leases: []Lease{right}}, nil), Acquire{Lease: right, Until: 100}, Revoke{Gen: 5})
	wants(t, "the whole, late", n.Granted(4, Grant{Node: "n", Seq: 1, Length: 100, Leases: []Lease{old}}, nil))

	n = nodeWith(old, left)
	n.Beat(50, nil, nil)
	n.Granted(51, Grant{Node: "n", Seq: 2, Length: 100, Leases: []Lease{old}}, nil) // until 150
	wants(t, "the other half, when one has lapsed", n.Granted(100, Grant{Node: "n", Seq: 2, Length: 100, Leases: []Lease{right}}, nil), Acquire{Lease: right, Until: 150})
}

// A node that cannot share says so of every lease that comes with a group, and says what
// its leases follow if it is told.
func TestGroupsAndSuccessors(t *testing.T) {
	l, m := Lease{Point("a"), 5}, Lease{Point("b"), 6}
	n := NewNode(NodeOptions{Node: "n"})
	n.Beat(0, nil, nil)
	wants(t, "a group", n.Granted(1, Grant{Node: "n", Seq: 1, Length: 100, Leases: []Lease{l, m}, After: []Gen{3}, Groups: []Group{{{Node: "n"}}}}, nil), Acquire{Lease: m, Until: 100})
	if out := n.Beat(2, nil, nil); !slices.Equal(out[0].(SendRenew).Gave, []Gen{5}) {
		t.Errorf("%+v", out)
	}
	n = NewNode(NodeOptions{Node: "n", Groups: true})
	n.Beat(0, nil, nil)
	wants(t, "a group", n.Granted(1, Grant{Node: "n", Seq: 1, Length: 100, Leases: []Lease{l, m}, After: []Gen{3}, Groups: []Group{{{Node: "n"}}}}, nil),
		Acquire{Lease: l, Until: 100, After: 3, Group: Group{{Node: "n"}}}, Acquire{Lease: m, Until: 100})
}

// A routing table is taken if it is newer, and only then.
func TestTablesDoNotGoBack(t *testing.T) {
	n := nodeWith()
	for _, c := range []struct {
		version uint64
		taken   bool
	}{{3, true}, {3, false}, {2, false}, {4, true}} {
		out := n.Granted(2, Grant{Node: "n", Seq: 1, Table: &Table{Version: c.version}}, nil)
		if (len(out) == 1) != c.taken {
			t.Errorf("table %d: %v", c.version, out)
		}
	}
	if out := n.Beat(3, nil, nil); out[0].(SendRenew).Table != 4 {
		t.Errorf("%+v", out)
	}
}

// Find is the route whose range holds the key, in tables of every length, with and without
// gaps.
func TestFind(t *testing.T) {
	for count := range 9 {
		var table Table
		for i := range count {
			r := Range{string(rune('b' + 2*i)), string(rune('c' + 2*i))}
			table.Slices = append(table.Slices, Route{Lease: Lease{r, Gen(i + 1)}})
		}
		for key := 'a'; key < 'z'; key++ {
			want := slices.IndexFunc(table.Slices, func(r Route) bool { return r.Contains(string(key)) })
			if r, ok := table.Find(string(key)); ok != (want >= 0) || int(r.Gen) != want+1 {
				t.Errorf("%c in %d: %v, %v", key, count, r, ok)
			}
		}
	}
}

// Ranges are what their keys say.
func TestRangesAreSetsOfKeys(t *testing.T) {
	points := []string{"", "a", "b", "c", "d"}
	var all []Range
	for i, low := range points {
		all = append(all, Range{low, ""})
		for _, high := range points[i+1:] {
			all = append(all, Range{low, high})
		}
	}
	keys := func(r Range) (n int) {
		for i, k := range points {
			if r.Low <= k && (r.High == "" || k < r.High) {
				n |= 1 << i
			}
		}
		return n
	}
	same := func(what string, r, s Range, got bool, want bool) {
		if got != want {
			t.Errorf("%v %s %v: %v", r, what, s, got)
		}
	}
	for _, r := range all {
		for _, s := range all {
			same("covers", r, s, r.Covers(s), keys(r)|keys(s) == keys(r))
			same("overlaps", r, s, r.Overlaps(s), keys(r)&keys(s) != 0)
			if in, ok := r.Intersect(s); ok && keys(in) != keys(r)&keys(s) || ok != r.Overlaps(s) {
				t.Errorf("%v intersects %v in %v, %v", r, s, in, ok)
			}
			rest := 0
			for _, part := range without([]Range{r}, s) {
				rest |= keys(part)
				same("covers", part, s, part.Low == part.High && part.High != "", false)
			}
			if rest != keys(r)&^keys(s) {
				t.Errorf("%v without %v is %v", r, s, without([]Range{r}, s))
			}
		}
		sum, last := 0, r.Low
		parts := r.Cut(points)
		for i, part := range parts {
			if sum |= keys(part); part.Low != last || part.Low >= part.High && part.High != "" || i+1 < len(parts) && part.High == "" {
				t.Errorf("%v is cut into %v", r, parts)
			}
			last = part.High
		}
		if sum != keys(r) || last != r.High {
			t.Errorf("%v is cut into %v", r, parts)
		}
	}
}
