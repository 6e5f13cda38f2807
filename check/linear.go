package check

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"time"

	"github.com/anishathalye/porcupine"
)

// Finding is what a verdict says.
type Finding string

// The findings.
const (
	Linearizable Finding = "linearizable"
	Violated     Finding = "violated"
	Undecided    Finding = "undecided" // the search took too long: not a success
)

// Verdict is the judgement of a history.
type Verdict struct {
	Finding   Finding
	Ops, Keys int
	Searched  int    // keys that zones could not decide
	Key       string // the first that is violated or undecided
	Reason    string
	Witness   []Op // operations of Key that contradict each other; as few as could be found
}

// Linear judges a history of registers, spending at most limit on the search for
// one key; 0 is a minute.
func Linear(ops []Op, limit time.Duration) Verdict {
	if limit <= 0 {
		limit = time.Minute
	}
	keys := byKey(ops)
	v := Verdict{Finding: Linearizable, Ops: len(ops), Keys: len(keys)}
	for _, name := range slices.Sorted(maps.Keys(keys)) {
		j := judge{limit: limit}
		finding, reason := j.key(keys[name])
		v.Searched += j.searched
		if finding == Linearizable || finding == Undecided && v.Finding == Undecided {
			continue
		}
		v.Finding, v.Key, v.Reason = finding, name, reason
		if finding == Violated {
			v.Witness = shrink(keys[name], limit)
			return v
		}
	}
	return v
}

// byKey sorts the operations that can matter by key and start. A definite no did
// nothing, and a read without an answer says nothing.
func byKey(ops []Op) map[string][]Op {
	keys := map[string][]Op{}
	for _, o := range ops {
		if o.Outcome == No || o.Kind == Read && o.Outcome != OK {
			continue
		}
		if o.Outcome == Unknown {
			o.End = never
		}
		keys[o.Key] = append(keys[o.Key], o)
	}
	for _, list := range keys {
		slices.SortStableFunc(list, func(a, b Op) int { return cmp.Compare(a.Start, b.Start) })
	}
	return keys
}

// judge judges one key.
type judge struct {
	limit    time.Duration
	searched int
}

func (j *judge) key(ops []Op) (Finding, string) {
	if reason := versions(ops); reason != "" {
		return Violated, reason
	}
	if z, ok := newZones(ops); ok {
		if reason := z.violation(); reason != "" {
			return Violated, reason
		}
		return Linearizable, ""
	}
	j.searched++
	return search(ops, j.limit)
}

// versions sees that nobody goes back: what began after another ended has a
// version at least as high, a higher one if it is a write, and reads that agree
// on it agree on the value. Writes at the same time may share a version: a system
// may send only the last of several that wait for each other.
func versions(ops []Op) string {
	ended := slices.Clone(ops)
	slices.SortFunc(ended, func(a, b Op) int { return cmp.Compare(a.End, b.End) })
	type state struct {
		value string
		found bool
	}
	seen := map[uint64]state{}
	var high uint64
	next := 0
	for _, o := range ops {
		for ; next < len(ended) && ended[next].End < o.Start; next++ {
			high = max(high, ended[next].Version)
		}
		if o.Version == 0 || o.Outcome != OK {
			continue
		}
		switch {
		case o.Version < high:
			return fmt.Sprintf("version %d comes back after version %d had been seen", o.Version, high)
		case o.Version == high && o.Kind != Read:
			return fmt.Sprintf("a write is given version %d, which had been seen before it began", high)
		}
		if o.Kind == Read {
			s := state{o.Value, o.Found}
			if was, ok := seen[o.Version]; ok && was != s {
				return fmt.Sprintf("version %d is %q to one reader and %q to another", o.Version, was.value, s.value)
			}
			seen[o.Version] = s
		}
	}
	return ""
}

// register is the state of a key.
type register struct {
	value string
	found bool
}

// model is a register for the search. An operation without an answer never ends,
// so that not happening is happening last.
var model = porcupine.Model{
	Init: func() any { return register{} },
	Step: func(state, input, _ any) (bool, any) {
		s, o := state.(register), input.(Op)
		switch o.Kind {
		case Read:
			return s.found == o.Found && (!s.found || s.value == o.Value), s
		case Write:
			return true, register{o.Value, true}
		case Delete:
			return true, register{}
		case CAS:
			if s == (register{o.Was, true}) {
				return true, register{o.Value, true}
			}
			return o.Outcome != OK, s
		case Update:
			if s == (register{o.Was, o.WasFound}) {
				return true, register{o.Value, true}
			}
			return o.Outcome != OK, s
		case Add:
			return o.add(s)
		}
		return false, s
	},
	Equal: func(a, b any) bool { return a == b },
}

// add is what an addition makes of a state, and whether its answer fits. What is
// there and no number refuses it.
func (o Op) add(s register) (bool, register) {
	n, err := int64(0), error(nil)
	if s.found {
		n, err = strconv.ParseInt(s.value, 10, 64)
	}
	sum := strconv.FormatInt(n+o.Delta, 10)
	switch {
	case err != nil:
		return o.Outcome != OK, s
	case o.Outcome == OK && sum != o.Value:
		return false, s
	}
	return true, register{sum, true}
}

// search looks for an order.
func search(ops []Op, limit time.Duration) (Finding, string) {
	var list []porcupine.Operation
	for i, o := range ops {
		list = append(list, porcupine.Operation{ClientId: i, Input: o, Call: o.Start, Output: o, Return: o.End})
	}
	switch porcupine.CheckOperationsTimeout(model, list, limit) {
	case porcupine.Ok:
		return Linearizable, ""
	case porcupine.Illegal:
		return Violated, "no order of these operations explains their answers"
	}
	return Undecided, fmt.Sprintf("%d operations could not be ordered within %v", len(ops), limit)
}

// shrink takes out of a violating key what it can, larger parts first.
func shrink(ops []Op, limit time.Duration) []Op {
	end := time.Now().Add(limit)
	broken := func(part []Op) bool {
		j := judge{limit: min(limit, 5*time.Second)}
		finding, _ := j.key(part)
		return finding == Violated
	}
	for part := len(ops) / 2; part > 0; part /= 2 {
		for at := 0; at < len(ops) && time.Now().Before(end); {
			rest := without(ops, at, min(at+part, len(ops)))
			if len(rest) < len(ops) && broken(rest) {
				ops = rest
			} else {
				at += part
			}
		}
	}
	return ops
}

// without is ops less those from low to high, except writes that a read which
// stays needs: leaving those out proves nothing.
func without(ops []Op, low, high int) []Op {
	needed, absence := map[string]bool{}, false
	for i, o := range ops {
		if (i < low || i >= high) && (o.Kind == Read || o.Kind == CAS || o.Kind == Update) {
			needed[o.Value], needed[o.Was] = true, true
			absence = absence || o.Kind == Read && !o.Found || o.Kind == Update && !o.WasFound
		}
	}
	var out []Op
	for i, o := range ops {
		effect := o.Kind != Read
		if i < low || i >= high || effect && (o.Kind == Add || o.Kind == Delete && absence || o.Kind != Delete && needed[o.Value]) {
			out = append(out, o)
		}
	}
	return out
}
