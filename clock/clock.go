// Package clock reads the monotonic clock that leases are measured with. Leases are safe only if
// everything that compares ticks in one process reads them from the same Clock.
package clock

import (
	"time"

	"golang.org/x/sys/unix"

	"github.com/freshet-cache/freshet/ticks"
)

// Clock reads a monotonic clock. The zero Clock stands still while a machine is suspended, as
// Linux's CLOCK_MONOTONIC does: after a suspend longer than a lease it may still count on leases
// that have ended. Boot also counts the time asleep, at the price of a system call for every
// reading.
type Clock struct{ Boot bool }

// start lies long before the process, so that no reading is 0 or less, in the virtual time of a
// test either.
var start = time.Now().Add(-50 * 365 * 24 * time.Hour)

// Now returns the reading, in nanoseconds.
func (c Clock) Now() ticks.Tick {
	if c.Boot {
		return boot()
	}
	return ticks.Tick(time.Since(start)) // time.Since reads only the monotonic clock, which is cheaper than time.Now
}

func boot() ticks.Tick {
	var ts unix.Timespec
	if unix.ClockGettime(unix.CLOCK_BOOTTIME, &ts) != nil {
		return ticks.Tick(time.Since(start))
	}
	return ticks.Tick(ts.Nano())
}
