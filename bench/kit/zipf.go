package kit

import (
	"math"
	"math/rand/v2"
)

// Zipf draws ranks from 1 to n; rank r has a probability proportional to r^-a, for any a > 0. It
// uses rejection-inversion (Hörmann and Derflinger, 1996), which needs no table.
type zipf struct {
	n          int
	a          float64
	first, all float64 // the integrals of the density up to the first and to the last rank
	shortcut   float64
}

// NewZipf returns a Zipf for ranks from 1 to n and the exponent a.
func NewZipf(n int, a float64) *zipf {
	z := &zipf{n: n, a: a}
	z.first, z.all = z.integral(1.5)-1, z.integral(float64(n)+0.5)
	z.shortcut = 2 - z.inverse(z.integral(2.5)-math.Pow(2, -a))
	return z
}

func (z *zipf) integral(x float64) float64 {
	if math.Abs(z.a-1) < 1e-9 {
		return math.Log(x)
	}
	return (math.Pow(x, 1-z.a) - 1) / (1 - z.a)
}

func (z *zipf) inverse(y float64) float64 {
	if math.Abs(z.a-1) < 1e-9 {
		return math.Exp(y)
	}
	return math.Pow(1+y*(1-z.a), 1/(1-z.a))
}

func (z *zipf) Draw(r *rand.Rand) int {
	for {
		u := z.all + r.Float64()*(z.first-z.all)
		x := z.inverse(u)
		k := min(max(1, math.Floor(x+0.5)), float64(z.n))
		if k-x <= z.shortcut || u >= z.integral(k+0.5)-math.Pow(k, -z.a) {
			return int(k)
		}
	}
}

// distinct returns the expected number of different ranks in this many draws of zipf(n, a). It sums
// ranks beyond a thousand in groups, because their probabilities hardly differ.
func distinct(n int, a float64, draws int) (sum float64) {
	z := NewZipf(n, a)
	total := z.all - z.integral(0.5)
	if n > 1 { // at the first ranks, an integral does not approximate the sum
		total = z.all - z.integral(min(float64(n), 1000)+0.5)
		for r := 1; r <= min(n, 1000); r++ {
			total += math.Pow(float64(r), -a)
		}
	}
	for r := 1.0; r <= float64(n); {
		width := 1.0
		if r > 1000 {
			width = min(math.Ceil(r/200), float64(n)-r+1)
		}
		p := math.Pow(r+(width-1)/2, -a) / total
		sum += width * -math.Expm1(float64(draws)*math.Log1p(-min(p, 1-1e-12)))
		r += width
	}
	return sum
}

// Ranks returns the n for which the draws of zipf(n, a) contain about as many different ranks as
// wanted. So a short run has the same share of first reads as a long trace.
func Ranks(a float64, draws int, wanted float64) int {
	low, high := 1, 2
	for high < 1<<30 && distinct(high, a, draws) < wanted {
		low, high = high, 2*high
	}
	for high-low > max(1, low/1000) {
		mid := low + (high-low)/2
		if distinct(mid, a, draws) < wanted {
			low = mid
		} else {
			high = mid
		}
	}
	return high
}
