package sim

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/freshet-cache/freshet/linear/clink"
)

func sorted[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }

// Judge knows the truth and is told of every call: a read is right if the value
// it returned was current at some instant of the call; a write that was
// answered yes has taken effect exactly once, during the call; one that was
// answered no never does; one of unknown outcome at most once.
//
// Every written value is unique, so a value names its write.
type Judge struct {
	now    map[string]string // current values; absent keys are not in the map
	calls  map[int]*call
	commit map[string]int // how often each value was committed
	refuse map[string]bool
}

// call is one call under way.
type call struct {
	node    int
	kind    Kind
	keys    []string
	value   string
	seen    map[string]map[string]bool // per key, what was current during the call
	commits int                        // changes of its keys since it began
}

// Kind of a call.
type Kind uint8

// The kinds of calls.
const (
	Get      Kind = iota // read
	Put                  // write a value
	Del                  // blind delete
	Append               // decide from the stored value: always writes
	PutNX                // decide from the stored value: write if absent
	Transact             // decide from the stored value, in a transaction of the caller's
	Layered              // read a version here and a value there
)

func (k Kind) String() string {
	return [...]string{"get", "put", "del", "append", "putnx", "transact", "layered"}[k]
}

func (k Kind) reads() bool { return k == Get || k == Layered }

// absent stands for absence among the values seen.
const absent = "\x00absent"

// NewJudge returns a judge of an empty store.
func NewJudge() *Judge {
	return &Judge{now: map[string]string{}, calls: map[int]*call{}, commit: map[string]int{}, refuse: map[string]bool{}}
}

// Current is the value that is current under a key, or what stands for absence.
func (j *Judge) Current(key string) string { return j.current(key) }

func (j *Judge) current(key string) string {
	if v, ok := j.now[key]; ok {
		return v
	}
	return absent
}

// Began: a client made a call. value is what it would write.
func (j *Judge) Began(id, node int, kind Kind, value string, keys ...string) {
	c := &call{node: node, kind: kind, keys: keys, value: value, seen: map[string]map[string]bool{}}
	for _, k := range keys {
		c.seen[k] = map[string]bool{j.current(k): true}
	}
	j.calls[id] = c
}

// Written is the value that a call would write to one of its keys.
func Written(value, key string, keys []string) string {
	if len(keys) < 2 {
		return value
	}
	return value + "@" + key
}

// Changed: the store has committed value under key, or removed it (absence), or
// it expired.
func (j *Judge) Changed(key, value string, exists bool) error {
	if !exists {
		value = absent
		delete(j.now, key)
	} else {
		j.now[key] = value
		if j.commit[value]++; j.commit[value] > 1 {
			return fmt.Errorf("value %s was committed twice", value)
		}
		if j.refuse[value] {
			return fmt.Errorf("value %s was committed though its write was refused", value)
		}
	}
	for _, c := range j.calls {
		if s := c.seen[key]; s != nil {
			s[value] = true
			c.commits++
		}
	}
	return nil
}

// Atomic: value, which was decided from what the key was believed to hold, is
// about to be committed.
func (j *Judge) Atomic(key, value, believed string) error {
	if now := j.current(key); now != believed {
		return fmt.Errorf("value %s was decided from %q, but %q was current when it was committed", value, believed, now)
	}
	return nil
}

// Hit: an entry was served at this instant.
func (j *Judge) Hit(node int, key, value string, exists bool) error {
	if !exists {
		value = absent
	}
	if now := j.current(key); now != value {
		return fmt.Errorf("node %d served %q for %s from memory, but %q was current", node, value, key, now)
	}
	return nil
}

// Answered: a call ended. For a read, row is the answer.
func (j *Judge) Answered(id int, outcome clink.Outcome, row clink.Row) error {
	c := j.calls[id]
	delete(j.calls, id)
	switch {
	case c == nil:
		return fmt.Errorf("call %d was answered twice", id)
	case c.kind.reads() && outcome == clink.Done:
		got := absent
		if row.Exists {
			got = string(row.Value)
		}
		if !c.seen[c.keys[0]][got] {
			return fmt.Errorf("read of %s at node %d returned %q, which was not current during the call (%v was)", c.keys[0], c.node, got, sorted(c.seen[c.keys[0]]))
		}
	case c.kind.reads():
	case outcome == clink.Unknown:
	case outcome != clink.Done: // a definite no
		return j.refused(c)
	case c.kind == Del:
		if !c.seen[c.keys[0]][absent] && c.commits == 0 { // a later write it was combined with may hide it
			return fmt.Errorf("delete of %s was acknowledged, but the key was present all the time", c.keys[0])
		}
	case c.kind == PutNX && j.commit[c.value] == 0: // it found something there
		if len(c.seen[c.keys[0]]) == 1 && c.seen[c.keys[0]][absent] {
			return fmt.Errorf("conditional write to %s found a value, but there was none", c.keys[0])
		}
	case c.kind == Put && len(c.keys) == 1 && j.commit[c.value] == 0: // overwritten at once by one it was combined with, or deleted at once where nothing was
		if c.commits == 0 && !c.seen[c.keys[0]][absent] {
			return fmt.Errorf("write of %s was acknowledged, but nothing was committed", c.value)
		}
		j.refuse[c.value] = true
	default:
		return j.done(c)
	}
	return nil
}

// refused: a write was answered with a definite no.
func (j *Judge) refused(c *call) error {
	if c.kind == Del {
		return nil
	}
	for _, k := range c.keys {
		v := Written(c.value, k, c.keys)
		j.refuse[v] = true
		if j.commit[v] > 0 {
			return fmt.Errorf("write of %s was answered with no, but it was committed", v)
		}
	}
	return nil
}

// done: a write was answered with yes.
func (j *Judge) done(c *call) error {
	for _, k := range c.keys {
		if v := Written(c.value, k, c.keys); j.commit[v] != 1 {
			return fmt.Errorf("write of %s was acknowledged, but committed %d times", v, j.commit[v])
		}
	}
	return nil
}

// Dump is the state as text.
func (j *Judge) Dump() string {
	var b strings.Builder
	for _, id := range slices.Sorted(maps.Keys(j.calls)) {
		c := j.calls[id]
		fmt.Fprintf(&b, "call %d %d %v %s", id, c.node, c.kind, c.value)
		for _, k := range sorted(c.seen) {
			fmt.Fprintf(&b, " %q", sorted(c.seen[k]))
		}
		fmt.Fprintf(&b, " %v\n", c.commits > 0)
	}
	fmt.Fprint(&b, j.commit, j.refuse, "\n")
	return b.String()
}

// nowOf are the values that are current under the keys of muts.
func (j *Judge) nowOf(muts []clink.Mut) (out []string) {
	for _, m := range muts {
		out = append(out, j.current(m.Key))
	}
	return out
}
