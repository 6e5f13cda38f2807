package kit

import (
	"math"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
)

// Schedule says when requests are due: request i at i/rate after the start, however long the
// earlier ones take.
type Schedule struct{ Rate float64 }

// Due returns when request i is due, after the start.
func (s Schedule) Due(i int) time.Duration {
	return time.Duration(math.Round(float64(i) / s.Rate * 1e9))
}

// Late returns the latency of request i, which was answered at the time done after the start. The
// latency counts from when the request was due, so that a request that had to wait before it was
// sent does not look fast.
func (s Schedule) Late(i int, done time.Duration) time.Duration { return max(0, done-s.Due(i)) }

// Latencies collects durations from 1 ns to 100 s to three digits.
type Latencies struct{ h *hdrhistogram.Histogram }

// NewLatencies returns an empty collection.
func NewLatencies() *Latencies { return &Latencies{hdrhistogram.New(1, 100e9, 3)} }

// Add counts a duration n times.
func (l *Latencies) Add(d time.Duration, n int64) {
	_ = l.h.RecordValues(min(max(1, int64(d)), 100e9), n) // it fits, because it is clipped
}

// Micros is a percentile, in microseconds.
func (l *Latencies) Micros(percent float64) float64 {
	return float64(l.h.ValueAtPercentile(percent)) / 1e3
}

// Merge adds the durations of another collection.
func (l *Latencies) Merge(o *Latencies) { l.h.Merge(o.h) }

// Count returns how many durations were added.
func (l *Latencies) Count() int64 { return l.h.TotalCount() }

// Longest is the longest duration, in nanoseconds.
func (l *Latencies) Longest() int64 { return l.h.Max() }
