package clink

import (
	"fmt"
	"testing"

	"github.com/freshet-cache/freshet/shard/lease"
)

// Offers that wait for a guard take a bounded amount of memory, whatever their sizes are. The oldest
// ones are dropped, and the others are kept once the guard is in force.
func TestOffersThatWaitAreBounded(t *testing.T) {
	p := NewPod(Options{Incarnation: 1})
	value := make([]byte, maxOffers/4) // all rows share it
	for i := range 10 {
		p.Step(1, Offered{After: 3, Key: fmt.Sprint("k", i), Row: Row{Exists: true, Value: value[:len(value)-i<<20], Version: uint64(i + 1)}}, nil)
		bytes := 0
		for _, o := range p.offers.list {
			bytes += o.size()
		}
		if p.offers.bytes != bytes || bytes > maxOffers {
			t.Fatalf("after %d offers, %d bytes are counted, and %d wait", i+1, p.offers.bytes, bytes)
		}
		if dropped := i - len(p.offers.list); dropped >= 0 && bytes+len(value)-dropped<<20 <= maxOffers {
			t.Fatalf("after %d offers, %d are left, and the one that was dropped last would fit", i+1, len(p.offers.list))
		}
	}
	waiting := len(p.offers.list)
	out := p.Step(1, Acquired{Lease: lease.Lease{Gen: 4}, Until: 100, After: 3}, nil)
	out = p.Step(1, Splits{Call: out[0].(ReadSplits).Call}, nil)
	kept := only[Keep](p.Step(1, Guarded{Call: out[0].(SetGuard).Call}, nil))
	if len(kept) != waiting || kept[0].Key != fmt.Sprint("k", 10-waiting) || p.offers.bytes != 0 {
		t.Errorf("of %d offers %d are kept, and %d bytes are still counted", waiting, len(kept), p.offers.bytes)
	}
}
