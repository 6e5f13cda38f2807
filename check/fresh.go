package check

import (
	"cmp"
	"math"
	"slices"
)

// Stale counts the reads that returned what was surely overwritten: another
// write was acknowledged before the read began, and began itself after the write
// of what was read had ended. It is a lower bound, never wrong, and fast enough
// for any history; a linearizable one has none. A key with an addition that had
// no answer is left out of both counts.
func Stale(ops []Op) (stale, reads int) {
	for _, list := range byKey(ops) {
		s, r := staleReads(list)
		stale, reads = stale+s, reads+r
	}
	return stale, reads
}

// change is a write as the reads see it.
type change struct {
	state      register
	start, end int64
}

func staleReads(ops []Op) (stale, reads int) {
	var changes []change
	last := map[register]int64{{}: math.MinInt64} // when the latest write of a state ended
	for _, o := range ops {
		c := change{start: o.Start, end: o.End}
		switch {
		case o.Kind == Read:
			continue
		case o.Kind == Add && o.Outcome != OK:
			return 0, 0 // nobody was told what it made: any read may be of it
		case o.Kind == Delete:
		default:
			c.state = register{o.Value, true}
		}
		changes = append(changes, c)
		if was, ok := last[c.state]; !ok || c.end > was {
			last[c.state] = c.end
		}
	}
	slices.SortFunc(changes, func(a, b change) int { return cmp.Compare(a.end, b.end) })
	begun := int64(math.MinInt64) // the latest start among the changes that have ended
	next := 0
	for _, o := range ops {
		if o.Kind != Read {
			continue
		}
		for ; next < len(changes) && changes[next].end < o.Start; next++ {
			begun = max(begun, changes[next].start)
		}
		reads++
		s := register{found: o.Found}
		if o.Found {
			s.value = o.Value
		}
		if end, ok := last[s]; !ok || begun > end {
			stale++
		}
	}
	return stale, reads
}
