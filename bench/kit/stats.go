package kit

import (
	"slices"
)

// Spread summarizes the measurements of several rounds.
type Spread struct {
	Median float64 `json:"median"`
	Min    float64 `json:"min"`
	Max    float64 `json:"max"`
}

// SpreadOf returns the median of rounds, with the minimum and the maximum.
func SpreadOf(rounds []float64) Spread {
	if len(rounds) == 0 {
		return Spread{}
	}
	s := slices.Sorted(slices.Values(rounds))
	mid := s[len(s)/2]
	if len(s)%2 == 0 {
		mid = (s[len(s)/2-1] + mid) / 2
	}
	return Spread{mid, s[0], s[len(s)-1]}
}

// Ratios divides round by round, because a disturbance affects both values of a round.
func Ratios(a, b []float64) (out []float64) {
	for i := range min(len(a), len(b)) {
		if b[i] != 0 {
			out = append(out, a[i]/b[i])
		}
	}
	return out
}

// Minus subtracts others from a, round by round.
func Minus(a []float64, others ...[]float64) []float64 {
	out := slices.Clone(a)
	for _, o := range others {
		for i := range min(len(out), len(o)) {
			out[i] -= o[i]
		}
	}
	return out
}
