package bench

import (
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
)

// spread is what several rounds gave.
type spread struct {
	Median float64 `json:"median"`
	Min    float64 `json:"min"`
	Max    float64 `json:"max"`
}

func spreadOf(rounds []float64) spread {
	if len(rounds) == 0 {
		return spread{}
	}
	s := slices.Sorted(slices.Values(rounds))
	mid := s[len(s)/2]
	if len(s)%2 == 0 {
		mid = (s[len(s)/2-1] + mid) / 2
	}
	return spread{mid, s[0], s[len(s)-1]}
}

// ratios divides round by round: what disturbs a round disturbs both.
func ratios(a, b []float64) (out []float64) {
	for i := range min(len(a), len(b)) {
		if b[i] != 0 {
			out = append(out, a[i]/b[i])
		}
	}
	return out
}

// minus subtracts others from a, round by round.
func minus(a []float64, others ...[]float64) []float64 {
	out := slices.Clone(a)
	for _, o := range others {
		for i := range min(len(out), len(o)) {
			out[i] -= o[i]
		}
	}
	return out
}

// schedule is when requests are due: the i-th at i/rate after the start, however
// the earlier ones fare.
type schedule struct{ rate float64 }

func (s schedule) due(i int) time.Duration {
	return time.Duration(math.Round(float64(i) / s.rate * 1e9))
}

// late is the latency of the i-th request that was answered at the time done
// after the start. It counts from when the request was due, so that a request
// that had to wait to be sent does not look fast.
func (s schedule) late(i int, done time.Duration) time.Duration { return max(0, done-s.due(i)) }

// latencies collects durations from 1 ns to 100 s to three digits.
type latencies struct{ h *hdrhistogram.Histogram }

func newLatencies() *latencies { return &latencies{hdrhistogram.New(1, 100e9, 3)} }

// add counts a duration n times.
func (l *latencies) add(d time.Duration, n int64) {
	_ = l.h.RecordValues(min(max(1, int64(d)), 100e9), n) // it fits: it is clipped
}

// micros is a percentile, in microseconds.
func (l *latencies) micros(percent float64) float64 {
	return float64(l.h.ValueAtPercentile(percent)) / 1e3
}

// text is a number of a table: as many digits as matter.
func text(v any) string {
	switch v := v.(type) {
	case spread:
		return fmt.Sprintf("%s (%s..%s)", text(v.Median), text(v.Min), text(v.Max))
	case float64:
		switch a := math.Abs(v); {
		case a >= 10_000:
			return fmt.Sprintf("%.0f", v)
		case a >= 100:
			return fmt.Sprintf("%.1f", v)
		case a >= 1 || a == 0:
			return fmt.Sprintf("%.2f", v)
		}
		return fmt.Sprintf("%.3f", v)
	}
	return fmt.Sprint(v)
}
