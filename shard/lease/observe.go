package lease

import "github.com/freshet-cache/freshet/ticks"

// Ending says how many slices a node owns, and when the last of their leases ends.
type Ending struct {
	Slices int
	Last   ticks.Tick
}

// Endings returns an Ending for each node, by incarnation. The empty name has the slices without an
// owner.
func (a *Assigner) Endings() map[string]Ending {
	out := map[string]Ending{}
	for i := range a.slices {
		s := &a.slices[i]
		e := out[s.Node]
		e.Slices++
		e.Last = max(e.Last, s.until)
		out[s.Node] = e
	}
	return out
}
