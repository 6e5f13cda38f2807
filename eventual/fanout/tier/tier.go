package tier

import (
	"fmt"
	"maps"
	"slices"

	"github.com/freshet-cache/freshet/ticks"
)

// MarkID is a mutation: an incarnation, and its number for it.
type MarkID struct{ Of, Op uint64 }

// Value is what a key has in the tier.
type Value struct {
	Tags    []string
	Counter uint64 // of the miss that its lease was taken at
	Version int    // stands for the bytes
}

// Tier is one server's part of one space. It is not safe for concurrent use.
type Tier struct {
	counter uint64
	lease   uint64
	floors  map[string]uint64
	marks   map[string]map[MarkID]ticks.Tick // by name: when each expires
	values  map[string]Value
	leases  map[string]uint64
}

// New returns a server that has nothing.
func New() *Tier {
	return &Tier{floors: map[string]uint64{}, marks: map[string]map[MarkID]ticks.Tick{}, values: map[string]Value{}, leases: map[string]uint64{}}
}

// raise removes the values and leases of names, and everything that depends on them (T1).
func (t *Tier) raise(names ...string) {
	t.counter++
	for _, name := range names {
		t.floors[name] = t.counter
		delete(t.values, name)
		delete(t.leases, name)
	}
}

// expire removes the marks of a name whose time is over (T7), and reports whether any is left.
func (t *Tier) expire(now ticks.Tick, name string) (marked bool) {
	for id, until := range t.marks[name] {
		if now > until {
			t.unmark(id, name)
			t.raise(name)
		}
	}
	return len(t.marks[name]) > 0
}

func (t *Tier) unmark(id MarkID, name string) {
	if delete(t.marks[name], id); len(t.marks[name]) == 0 {
		delete(t.marks, name)
	}
}

// Mark marks names until a time (T1).
func (t *Tier) Mark(id MarkID, names []string, until ticks.Tick) {
	t.raise(names...)
	for _, name := range names {
		if t.marks[name] == nil {
			t.marks[name] = map[MarkID]ticks.Tick{}
		}
		t.marks[name][id] = max(t.marks[name][id], until)
	}
}

// Unmark removes a mark (T1).
func (t *Tier) Unmark(id MarkID, names []string) {
	t.raise(names...)
	for _, name := range names {
		t.unmark(id, name)
	}
}

// Clear removes all values and leases, as Mark does for one name (T1).
func (t *Tier) Clear() {
	t.counter++
	clear(t.values)
	clear(t.leases)
}

// Get returns the value of a key (T3), or else a lease for a load of it, 0 if there is none to be had,
// and the counter (T2).
func (t *Tier) Get(now ticks.Tick, key string) (v Value, found bool, lease, counter uint64) {
	if t.expire(now, key) {
		return Value{}, false, 0, t.counter
	}
	if v, found = t.values[key]; found && t.believed(now, v.Counter, v.Tags) {
		return v, true, 0, t.counter
	}
	delete(t.values, key)
	t.lease++
	t.leases[key] = t.lease
	return Value{}, false, t.lease, t.counter
}

// believed reports whether none of the tags was marked since a counter, nor is.
func (t *Tier) believed(now ticks.Tick, counter uint64, tags []string) bool {
	for _, tag := range tags {
		if t.expire(now, tag) || counter < t.floors[tag] {
			return false
		}
	}
	return true
}

// Set sets the value of a key if its lease and counter allow that (T2), and reports whether they do.
func (t *Tier) Set(now ticks.Tick, key string, lease uint64, v Value) bool {
	if t.expire(now, key) || lease == 0 || t.leases[key] != lease || !t.believed(now, v.Counter, v.Tags) {
		return false
	}
	delete(t.leases, key)
	t.values[key] = v
	return true
}

// Evict removes the value and the lease of a key, as a server does that is short of memory.
func (t *Tier) Evict(key string) {
	delete(t.values, key)
	delete(t.leases, key)
}

// Marked reports whether a name is marked.
func (t *Tier) Marked(now ticks.Tick, name string) bool { return t.expire(now, name) }

// Check panics if the state is none that a Tier can be in.
func (t *Tier) Check() {
	for name, marks := range t.marks {
		if _, ok := t.values[name]; ok || len(marks) == 0 || t.leases[name] > 0 {
			panic(fmt.Sprintf("tier: %q is marked, and has a value or a lease", name))
		}
	}
	for name, floor := range t.floors {
		if floor > t.counter {
			panic(fmt.Sprintf("tier: the floor of %q is %d, above %d", name, floor, t.counter))
		}
	}
}

// Dump returns the state as text.
func (t *Tier) Dump() string {
	return fmt.Sprint(t.counter, t.lease, t.floors, t.marks, t.values, t.leases, slices.Sorted(maps.Keys(t.marks)))
}
