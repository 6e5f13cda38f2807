package lease

import "testing"

// Floors with gaps between them are raised together: every key has one afterwards, and
// only one (N3).
func TestFloorsDoNotOverlap(t *testing.T) {
	n := NewNode(NodeOptions{Node: "n1/a"})
	for i, r := range []Range{{"c", "d"}, {"e", "f"}, {"", "g"}, {"d", "e"}, {"b", ""}} {
		n.raise(Lease{r, Gen(i + 1)})
		n.Check()
	}
	for k, want := range map[string]Gen{"a": 3, "b": 5, "c": 5, "d": 5, "z": 5} {
		if got := n.floorOf(Point(k)); got != want {
			t.Errorf("the floor of %s is %d, not %d", k, got, want)
		}
	}
}
