package linear

import (
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"slices"
)

// histogram draws numbers by bins. The probability of a bin is proportional to its weight, and the
// consecutive numbers in it are equally likely.
type histogram struct {
	upTo  []float64 // cumulative weights
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

// readHistogram reads a popularity of keys in the format of cachebench (CacheLib).
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

// lognormal draws sizes with a mean and the usual skew of sizes (sigma 1).
func lognormal(r *rand.Rand, mean float64) int {
	const sigma = 1.0
	return int(min(1<<20, max(1, math.Round(math.Exp(math.Log(mean)-sigma*sigma/2+sigma*r.NormFloat64())))))
}

// pareto draws sizes of values from the model of ZippyDB (Meta) in RocksDB: a generalized Pareto
// distribution, limited to 1 to 1024.
func pareto(r *rand.Rand) int {
	const k, sigma = 0.2615, 25.45
	for {
		if x := sigma / k * (math.Pow(1-r.Float64(), -k) - 1); x >= 1 && x <= 1024 {
			return int(x)
		}
	}
}
