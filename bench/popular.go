package bench

import (
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"slices"
)

// zipf draws ranks from 1 to n, rank r as often as r^-a says, for any a > 0: by
// rejection-inversion (Hörmann and Derflinger, 1996), which needs no table.
type zipf struct {
	n          int
	a          float64
	first, all float64 // the integral of the density up to the first rank, and to all
	shortcut   float64
}

func newZipf(n int, a float64) *zipf {
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

func (z *zipf) draw(r *rand.Rand) int {
	for {
		u := z.all + r.Float64()*(z.first-z.all)
		x := z.inverse(u)
		k := min(max(1, math.Floor(x+0.5)), float64(z.n))
		if k-x <= z.shortcut || u >= z.integral(k+0.5)-math.Pow(k, -z.a) {
			return int(k)
		}
	}
}

// distinct is how many different ranks so many draws of zipf(n, a) are expected to
// find. Ranks beyond a thousand are taken together while they hardly differ.
func distinct(n int, a float64, draws int) (sum float64) {
	z := newZipf(n, a)
	total := z.all - z.integral(0.5)
	if n > 1 { // the integral is not the sum at the first ranks
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

// ranks is the n for which draws of zipf(n, a) find about as many different ranks as
// wanted, so that a short run misses as often for the first time as a long trace does.
func ranks(a float64, draws int, wanted float64) int {
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

// histogram draws numbers by bins: a bin as often as its weight says, and each of the
// numbers in it, which follow one another, as likely.
type histogram struct {
	upTo  []float64 // weights, summed
	first []int
	n     []int
}

func (h *histogram) add(n int, weight float64) {
	sum, first := weight, 0
	if k := len(h.n); k > 0 {
		sum, first = sum+h.upTo[k-1], h.first[k-1]+h.n[k-1]
	}
	h.upTo, h.first, h.n = append(h.upTo, sum), append(h.first, first), append(h.n, n)
}

func (h *histogram) draw(r *rand.Rand) int {
	at, _ := slices.BinarySearch(h.upTo, r.Float64()*h.upTo[len(h.upTo)-1])
	at = min(at, len(h.n)-1)
	return h.first[at] + r.IntN(h.n[at])
}

// readHistogram reads the popularity of keys as CacheLib's cachebench has it.
func readHistogram(name string) (*histogram, error) {
	b, err := os.ReadFile(name)
	if err != nil {
		return nil, err
	}
	var in struct {
		PopularityBuckets []int
		PopularityWeights []float64
	}
	if err := json.Unmarshal(b, &in); err != nil || len(in.PopularityBuckets) == 0 || len(in.PopularityBuckets) != len(in.PopularityWeights) {
		return nil, fmt.Errorf("%s is no popularity of cachebench: %w", name, err)
	}
	h := &histogram{}
	for i, n := range in.PopularityBuckets {
		if n > 0 {
			h.add(n, in.PopularityWeights[i])
		}
	}
	return h, nil
}

// lognormal draws sizes with a mean, as skewed as sizes are (sigma 1).
func lognormal(r *rand.Rand, mean float64) int {
	const sigma = 1.0
	return int(min(1<<20, max(1, math.Round(math.Exp(math.Log(mean)-sigma*sigma/2+sigma*r.NormFloat64())))))
}

// pareto draws the sizes of values as RocksDB's model of Meta's ZippyDB has them: a
// generalized Pareto distribution, cut to 1 to 1024.
func pareto(r *rand.Rand) int {
	const k, sigma = 0.2615, 25.45
	for {
		if x := sigma / k * (math.Pow(1-r.Float64(), -k) - 1); x >= 1 && x <= 1024 {
			return int(x)
		}
	}
}
