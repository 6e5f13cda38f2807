package sim

import "testing"

func TestEventualStorms(t *testing.T) {
	rare := []string{"a hit", "a hit of a session", "a message is lost", "a message takes longer than S", "a mutation is refused", "a node drops everything",
		"a node finds that it was struck out", "a node leaves", "a write of unknown outcome lands late", "a write's value is kept", "an incarnation is struck out", "the registry is not reached"}
	seen := stormed(t, "eventual", 100, 10, rare, func(seed uint64) Result { return NewEventualPlan(seed).Run(false) })
	t.Logf("%d hits, %d hits of sessions", seen["a hit"], seen["a hit of a session"])
}

func TestEventualStormsRepeat(t *testing.T) {
	repeated(t, 5, func(seed uint64) Result { return NewEventualPlan(seed).Run(true) })
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
