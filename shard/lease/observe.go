package lease

// Ending says how many slices are leased to a node, as their owner, and when the last
// of these leases is over.
type Ending struct {
	Slices int
	Last   Tick
}

// Endings are those of all nodes, by incarnation. Slices without an owner stand under
// the empty name.
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
