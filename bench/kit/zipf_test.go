package kit

import (
	"math"
	"testing"
)

func TestZipf(t *testing.T) {
	const draws, n = 400_000, 50
	for _, a := range []float64{0.5, 0.8, 1, 1.2, 2} {
		z, r := NewZipf(n, a), Stream(1, 1)
		got, total := make([]float64, n+1), 0.0
		for range draws {
			got[z.Draw(r)]++
		}
		for k := 1; k <= n; k++ {
			total += math.Pow(float64(k), -a)
		}
		chi := 0.0
		for k := 1; k <= n; k++ {
			want := draws * math.Pow(float64(k), -a) / total
			chi += (got[k] - want) * (got[k] - want) / want
		}
		if chi > 95 { // 49 degrees of freedom: far beyond one in ten thousand
			t.Errorf("a %g: chi square is %g", a, chi)
		}
	}
}
