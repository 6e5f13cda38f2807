package check

import (
	"cmp"
	"fmt"
	"math"
	"slices"
)

// zone is when a value was surely there, or surely for one instant at least: a
// write and every read of it. If some operation of it ends before another begins,
// the value was there all the time in between (forward); otherwise at one instant
// in between at least (backward).
type zone struct {
	value               string
	written             int64 // when its write began
	firstEnd, lastBegin int64
}

func (z zone) forward() bool { return z.firstEnd < z.lastBegin }
func (z zone) low() int64    { return min(z.firstEnd, z.lastBegin) }
func (z zone) high() int64   { return max(z.firstEnd, z.lastBegin) }

// zones are those of one key, and the first thing wrong with its reads.
type zones struct {
	list []zone
	bad  string
}

// newZones sorts the operations of a key by value; false if a value is written
// twice, or an operation depends on what was there.
func newZones(ops []Op) (*zones, bool) {
	z := &zones{}
	at := map[string]int{}
	add := func(value string, begin, end int64) {
		at[value] = len(z.list)
		z.list = append(z.list, zone{value: value, written: begin, firstEnd: end, lastBegin: begin})
	}
	add("", math.MinInt64, math.MinInt64) // absence, which nobody writes; values are prefixed
	for _, o := range ops {
		switch _, twice := at["="+o.Value]; {
		case o.Kind == Read:
		case o.Kind != Write || twice:
			return nil, false
		default:
			add("="+o.Value, o.Start, o.End)
		}
	}
	read := map[int]bool{0: true}
	for _, o := range ops {
		if o.Kind != Read {
			continue
		}
		name := ""
		if o.Found {
			name = "=" + o.Value
		}
		i, ok := at[name]
		switch {
		case !ok:
			z.bad = fmt.Sprintf("%q was read, but nobody wrote it", o.Value)
			return z, true
		case o.End < z.list[i].written:
			z.bad = fmt.Sprintf("%q was read before it was written", o.Value)
			return z, true
		}
		read[i] = true
		z.list[i].firstEnd = min(z.list[i].firstEnd, o.End)
		z.list[i].lastBegin = max(z.list[i].lastBegin, o.Start)
	}
	kept := z.list[:0]
	for i, one := range z.list { // a write without an answer that nobody read need not have happened
		if one.firstEnd != never || read[i] {
			kept = append(kept, one)
		}
	}
	z.list = kept
	return z, true
}

// violation says which zones cannot both be, or nothing: two forward zones must
// not overlap, and a backward zone must not lie inside a forward one.
func (z *zones) violation() string {
	if z.bad != "" {
		return z.bad
	}
	slices.SortFunc(z.list, func(a, b zone) int { return cmp.Compare(a.low(), b.low()) })
	var open zone // the forward zone that reaches furthest so far
	have := false
	for _, one := range z.list {
		switch {
		case !have || one.low() >= open.high():
		case one.forward() || open.low() < one.low() && one.high() < open.high():
			return fmt.Sprintf("%s and %s were both there at %d ns", name(open.value), name(one.value), one.low())
		}
		if one.forward() && (!have || one.high() > open.high()) {
			open, have = one, true
		}
	}
	return ""
}

func name(value string) string {
	if value == "" {
		return "absence"
	}
	return fmt.Sprintf("%q", value[1:])
}
