package tier

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/freshet-cache/freshet/ticks"
)

// world is a store of rows a and b, keys x (of a) and y (of both, by tags), writers and fillers.
type world struct {
	t       *Tier
	r       *rand.Rand
	now     ticks.Tick
	rows    map[string]int
	writes  []*write
	fills   []*fill
	op      uint64
	lasting ticks.Tick
	hits    int
}

type write struct {
	id     MarkID
	names  []string
	until  ticks.Tick
	landed bool
}

type fill struct {
	key            string
	lease, counter uint64
	version        int
	read           bool
}

// depends are the tags of each key; a key without tags is a row of its own.
var depends = map[string][]string{"x": nil, "y": {"a", "b"}, "z": {"a"}}

// version is what the store has for a key.
func (w *world) version(key string) int {
	sum := w.rows[key]
	for _, row := range depends[key] {
		sum += w.rows[row]
	}
	return sum
}

func (w *world) step() error {
	switch w.r.IntN(8) {
	case 0: // a writer marks
		if len(w.writes) < 2 && w.r.IntN(2) == 0 {
			w.op++
			n := &write{id: MarkID{1 + w.op%2, w.op}, names: [][]string{{"x"}, {"a"}, {"b"}, {"a", "b"}, {"x", "a"}}[w.r.IntN(5)], until: w.now + w.lasting}
			w.t.Mark(n.id, n.names, n.until)
			w.writes = append(w.writes, n)
		}
	case 1: // a write lands before its mark expires, or ends: its mark is removed, or left to expire
		if len(w.writes) > 0 {
			i := w.r.IntN(len(w.writes))
			n := w.writes[i]
			switch {
			case !n.landed && w.now <= n.until:
				n.landed = true
				for _, name := range n.names {
					w.rows[name]++
				}
				return nil
			case w.r.IntN(2) == 0:
				w.t.Unmark(n.id, n.names)
			}
			w.writes = append(w.writes[:i], w.writes[i+1:]...)
		}
	case 2, 3, 4: // a node asks
		key := []string{"x", "y", "z"}[w.r.IntN(3)]
		v, found, lease, counter := w.t.Get(w.now, key)
		if found && v.Version != w.version(key) {
			return fmt.Errorf("%s is %d in the tier, and %d in the store", key, v.Version, w.version(key))
		}
		if w.hits++; !found {
			w.hits--
			w.fills = append(w.fills, &fill{key: key, lease: lease, counter: counter})
		}
	case 5, 6: // a load reads the store, or is set
		if len(w.fills) > 0 {
			i := w.r.IntN(len(w.fills))
			if f := w.fills[i]; !f.read {
				f.read, f.version = true, w.version(f.key)
			} else {
				w.t.Set(w.now, f.key, f.lease, Value{depends[f.key], f.counter, f.version})
				w.fills = append(w.fills[:i], w.fills[i+1:]...)
			}
		}
	case 7:
		if w.now++; w.r.IntN(8) == 0 {
			w.t.Evict([]string{"x", "y", "z"}[w.r.IntN(3)])
		}
	}
	return nil
}

// No value in the tier is older than a write that was marked there and has landed, whether its mark
// was removed or expired.
func TestSchedules(t *testing.T) {
	found := 0
	for seed := range uint64(6000) {
		w := &world{t: New(), r: rand.New(rand.NewPCG(seed, 2)), rows: map[string]int{}, lasting: 3}
		for n := range 200 {
			if err := w.step(); err != nil {
				t.Fatalf("seed %d, step %d: %v\n%s", seed, n, err, w.t.Dump())
			}
			w.t.Check()
		}
		found += w.hits
	}
	if found < 5000 {
		t.Errorf("only %d values were found in the tier", found)
	}
}

// One of many nodes that miss fills the tier.
func TestOneFills(t *testing.T) {
	tr := New()
	_, _, first, c := tr.Get(1, "x")
	_, _, second, d := tr.Get(1, "x")
	if first == 0 || second == first || tr.Set(1, "x", first, Value{nil, c, 1}) || !tr.Set(1, "x", second, Value{nil, d, 2}) || tr.Set(1, "x", second, Value{nil, d, 3}) {
		t.Errorf("leases %d and %d", first, second)
	}
	if v, ok, _, _ := tr.Get(1, "x"); !ok || v.Version != 2 {
		t.Errorf("%v", v)
	}
	tr.Mark(MarkID{1, 1}, []string{"x"}, 5)
	if _, ok, lease, _ := tr.Get(5, "x"); ok || lease != 0 || !tr.Marked(5, "x") || tr.Marked(6, "x") {
		t.Errorf("a marked key has lease %d", lease)
	}
	if tr.Set(6, "x", 0, Value{}) {
		t.Error("set without a lease")
	}
}

// The removal of everything takes values and leases away, and leaves the marks (T1).
func TestClear(t *testing.T) {
	x := New()
	_, _, lease, counter := x.Get(1, "x")
	x.Set(1, "x", lease, Value{Counter: counter, Version: 1})
	_, _, before, counter := x.Get(1, "y")
	x.Mark(MarkID{1, 1}, []string{"z"}, 9)
	x.Clear()
	x.Check()
	if _, found, _, _ := x.Get(2, "x"); found {
		t.Error("a value is left")
	}
	if x.Set(2, "y", before, Value{Counter: counter, Version: 1}) {
		t.Error("a lease from before is good")
	}
	if !x.Marked(2, "z") {
		t.Error("a mark is gone")
	}
}
