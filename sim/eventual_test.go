package sim

import (
	"os"
	"testing"
)

// TestEventualStorms runs the seeds that have failed once, and then 100, or FRESHET_SEEDS.
func TestEventualStorms(t *testing.T) {
	n := uint64(100)
	if testing.Short() {
		n = 10
	}
	if os.Getenv("FRESHET_SEEDS") != "" {
		n = campaign(t)
	}
	seeds := failed(t, "eventual")
	for i := range n {
		seeds = append(seeds, i+1)
	}
	seen, events := try(t, seeds, "freshet sim eventual --seed %d", func(seed uint64) Result { return NewEventualPlan(seed).Run(false) })
	for _, what := range []string{"a hit", "a hit of a session", "a message is lost", "a message takes longer than S", "a mutation is refused", "a node drops everything",
		"a node finds that it was struck out", "a node leaves", "a write of unknown outcome lands late", "a write's value is kept", "an incarnation is struck out", "the registry is not reached"} {
		if seen[what] == 0 && !testing.Short() {
			t.Errorf("never in %d seeds: %s", len(seeds), what)
		}
	}
	t.Logf("%d seeds, %d events, %d hits, %d hits of sessions", len(seeds), events, seen["a hit"], seen["a hit of a session"])
}

// The same seed gives the same storm.
func TestEventualStormsRepeat(t *testing.T) {
	for seed := range uint64(5) {
		a, b := NewEventualPlan(seed).Run(true), NewEventualPlan(seed).Run(true)
		if a.Events != b.Events || len(a.Log) != len(b.Log) {
			t.Fatalf("seed %d ran in two ways: %d and %d events", seed, a.Events, b.Events)
		}
	}
}

// A plan of eventual that fails is made smaller: of its calls and faults the one is left that does it.
func TestShrinkEventual(t *testing.T) {
	p := NewEventualPlan(3)
	p.Faults = append(p.Faults, EventualFault{At: sec, Kind: EventualCrash, Node: -1}) // there is no such node
	shrunk, res := Shrink(p, 300)
	if res.Err == nil {
		t.Fatal("it does not fail any more")
	}
	if small := shrunk.(EventualPlan); len(small.Faults) != 1 || len(small.Calls) > 0 || small.Config.Loss > 0 {
		t.Fatalf("it is no smaller than\n%v", small)
	}
}
