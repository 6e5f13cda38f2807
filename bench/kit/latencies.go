package kit

import (
	"math"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
)

// Schedule is when requests are due: the i-th at i/rate after the start, however
// the earlier ones fare.
type Schedule struct{ Rate float64 }

// Due is when the i-th request is due, after the start.
func (s Schedule) Due(i int) time.Duration {
	return time.Duration(math.Round(float64(i) / s.Rate * 1e9))
}

// Late is the latency of the i-th request that was answered at the time done
// after the start. It counts from when the request was due, so that a request
// that had to wait to be sent does not look fast.
func (s Schedule) Late(i int, done time.Duration) time.Duration { return max(0, done-s.Due(i)) }

// Latencies collects durations from 1 ns to 100 s to three digits.
type Latencies struct{ h *hdrhistogram.Histogram }

// NewLatencies is an empty collection.
func NewLatencies() *Latencies { return &Latencies{hdrhistogram.New(1, 100e9, 3)} }

// Add counts a duration n times.
func (l *Latencies) Add(d time.Duration, n int64) {
	_ = l.h.RecordValues(min(max(1, int64(d)), 100e9), n) // it fits: it is clipped
}

// Micros is a percentile, in microseconds.
func (l *Latencies) Micros(percent float64) float64 {
	return float64(l.h.ValueAtPercentile(percent)) / 1e3
}

// Merge adds what another has collected.
func (l *Latencies) Merge(o *Latencies) { l.h.Merge(o.h) }

// Count is how many durations were added.
func (l *Latencies) Count() int64 { return l.h.TotalCount() }

// Longest is the longest duration, in nanoseconds.
func (l *Latencies) Longest() int64 { return l.h.Max() }
