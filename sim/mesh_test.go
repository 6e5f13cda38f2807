package sim

import (
	"os"
	"testing"
)

// TestMeshStorms runs the seeds that have failed once, and then 500, or FRESHET_SEEDS.
func TestMeshStorms(t *testing.T) {
	n := uint64(500)
	if testing.Short() {
		n = 20
	}
	if os.Getenv("FRESHET_SEEDS") != "" {
		n = campaign(t)
	}
	seeds := failed(t, "causal")
	for i := range n {
		seeds = append(seeds, i+1)
	}
	seen, events := try(t, seeds, "freshet sim causal --seed %d", func(seed uint64) Result { return NewCausalPlan(seed).Run(false) })
	for _, what := range RareMesh() {
		if seen[what] == 0 && !testing.Short() {
			t.Errorf("never in %d seeds: %s", len(seeds), what)
		}
	}
	t.Logf("%d seeds, %d events", len(seeds), events)
}

// The same seed gives the same storm.
func TestMeshStormsRepeat(t *testing.T) {
	for seed := range uint64(10) {
		a, b := NewCausalPlan(seed).Run(true), NewCausalPlan(seed).Run(true)
		if a.Events != b.Events || len(a.Log) != len(b.Log) {
			t.Fatalf("seed %d ran in two ways: %d and %d events", seed, a.Events, b.Events)
		}
	}
}
