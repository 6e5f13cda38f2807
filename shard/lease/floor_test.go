package lease

import (
	"fmt"
	"math/rand/v2"
	"testing"
)

// What a node gave up it knows for every key, and for every range the highest of its keys
// (N3), whatever the ranges were and in whichever order they came.
func TestFloorsKnowEveryKey(t *testing.T) {
	const points = 12 // range i..j holds the keys i to j-1; the last has no upper end
	r := rand.New(rand.NewPCG(3, 7))
	for range 200 {
		n := NewNode(NodeOptions{Node: "n"})
		var model [points]Gen
		over := func(i, j int) Range {
			out := Range{Low: string(rune('a' + i))}
			if i == 0 {
				out.Low = ""
			}
			if j < points {
				out.High = string(rune('a' + j))
			}
			return out
		}
		for range 30 {
			i := r.IntN(points)
			j, g := i+1+r.IntN(points-i), Gen(1+r.IntN(9))
			n.raise(Lease{over(i, j), g})
			for k := i; k < j; k++ {
				model[k] = max(model[k], g)
			}
			runs := 0
			for k := range points {
				if model[k] != 0 && (k == 0 || model[k] != model[k-1]) {
					runs++
				}
			}
			if len(n.floor) != runs {
				t.Fatalf("%v: %d floors are remembered, and %d differ", n.floor, len(n.floor), runs)
			}
			for i := range points {
				for j := i + 1; j <= points; j++ {
					want := Gen(0)
					for k := i; k < j; k++ {
						want = max(want, model[k])
					}
					if got := n.floorOf(over(i, j)); got != want {
						t.Fatalf("%v: generation %d of %v was given up, and %d is remembered", n.floor, want, over(i, j), got)
					}
				}
			}
			n.Check()
		}
	}
}

// When there are too many, neighbours share the higher one: never a lower one, never
// across a gap, and never where a lease is held, which would be as if it had been given up.
func TestTooManyFloorsAreShared(t *testing.T) {
	key := func(i int) string { return fmt.Sprintf("k%05d", i) }
	for _, count := range []int{maxFloors - 1, maxFloors, 2 * maxFloors} {
		n := NewNode(NodeOptions{Node: "n"})
		was := map[string]Gen{}
		for i := range count {
			f := floor{Range{key(i), key(i + 1)}, Gen(1 + i*5%7)}
			if i%10 == 9 { // the keys behind it were never given up
				f.Range.High = key(i) + "m"
			}
			n.floor = append(n.floor, f)
			was[key(i)] = f.Gen
		}
		for _, i := range []int{100, 101, 250, 777, 1000} {
			n.held[Gen(100+i)] = term{Range{key(i), key(i) + "c"}, 1}
		}
		n.raise(Lease{Range{Low: "z"}, 50})
		n.Check()
		for i := range count {
			got, held := n.floorOf(Point(key(i))), n.holdsIn(Range{key(i), key(i + 1)})
			if got < was[key(i)] || held && got != was[key(i)] || count < maxFloors && got != was[key(i)] {
				t.Fatalf("of %d: generation %d of %s was given up (held: %v), and %d is remembered", count, was[key(i)], key(i), held, got)
			}
			if i%10 == 9 {
				if got := n.floorOf(Point(key(i) + "n")); got != 0 {
					t.Fatalf("generation %d of %sn is remembered, which nobody gave up", got, key(i))
				}
			}
		}
		if n.floorOf(Point("zz")) != 50 {
			t.Error("the newest is forgotten")
		}
		switch got := len(n.floor); {
		case count < maxFloors && got != count+1:
			t.Errorf("%d floors became %d, and there may be %d", count+1, got, maxFloors)
		case count >= maxFloors && got > (count+1)*3/4:
			t.Errorf("%d floors became %d", count+1, got)
		}
	}
}
