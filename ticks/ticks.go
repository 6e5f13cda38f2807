// Package ticks has what the machines of all protocols count time with: readings of a monotonic
// clock as plain numbers, which a machine receives and never reads, and the arithmetic that makes a
// span safe on clocks that run at different rates.
package ticks

// Tick is a reading of a monotonic clock, or a span of one, in nanoseconds. A Tick means something
// only to the clock it was read from.
type Tick int64

// Shorten returns how long a lease of length d may be used by a clock that may run slow by drift
// millionths.
func Shorten(d Tick, drift int64) Tick { return d - Tick((int64(d)/1e6+1)*drift) }

// Lengthen returns how long to wait until a lease of length d has certainly ended, by a clock that
// may run fast by drift millionths.
func Lengthen(d Tick, drift int64) Tick { return d + Tick((int64(d)/1e6+1)*drift) }
