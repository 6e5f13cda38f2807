package sim

import "testing"

func TestMeshStorms(t *testing.T) {
	stormed(t, "causal", 500, 20, RareMesh(), func(seed uint64) Result { return NewCausalPlan(seed).Run(false) })
}

func TestMeshStormsRepeat(t *testing.T) {
	repeated(t, 10, func(seed uint64) Result { return NewCausalPlan(seed).Run(true) })
}
