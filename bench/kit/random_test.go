package kit

import (
	"slices"
	"testing"
)

func TestStreamsAreReproducible(t *testing.T) {
	if a, b := Mix(1, 0), Mix(1, 1); a != 0x910a2dec89025cc1 || a == b {
		t.Errorf("%#x %#x", a, b) // the first is the generator's published test vector
	}
	a, b, other := Uniform(Stream(1, 2), 100, 1000), Uniform(Stream(1, 2), 100, 1000), Uniform(Stream(1, 3), 100, 1000)
	if !slices.Equal(a, b) || slices.Equal(a, other) {
		t.Error("a stream depends on something else than its seed and name")
	}
}

func TestUniform(t *testing.T) {
	const keys, draws = 100, 200_000
	count := make([]float64, keys)
	for _, k := range Uniform(Stream(1, 1), draws, keys) {
		count[k]++
	}
	chi := 0.0
	for _, n := range count {
		chi += (n - draws/keys) * (n - draws/keys) / (draws / keys)
	}
	if chi < 55 || chi > 160 { // 99 degrees of freedom: far beyond one in a thousand
		t.Errorf("chi square is %g", chi)
	}
}
