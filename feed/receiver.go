package feed

import (
	"fmt"
	"slices"
)

// Verdict says what a message is to a Receiver.
type Verdict uint8

// The verdicts.
const (
	New    Verdict = iota // the message has not arrived before: apply it
	Repeat                // the message has arrived before, or a snapshot stands for it: apply nothing
	Beyond                // the message may be applied, but counts as missing until it comes again (F5)
)

var verdicts = [...]string{"new", "repeat", "beyond"}

func (v Verdict) String() string { return verdicts[v] }

// span is the numbers from one to another, inclusive.
type span struct{ from, to uint64 }

// Receiver follows the messages of one incarnation. It is not safe for concurrent use.
type Receiver struct {
	applied uint64
	known   uint64 // the largest number that the source is known to have used
	window  uint64
	above   []span // what has arrived above applied + 1, in order, with a gap before each
}

// NewReceiver returns a Receiver that records numbers up to window above Applied. Default
// DefaultRing: what lies further back is no longer in a Sender's ring.
func NewReceiver(window int) *Receiver {
	if window <= 0 {
		window = DefaultRing
	}
	return &Receiver{window: uint64(window)}
}

// Applied returns the last number with no gap below it (F4).
func (r *Receiver) Applied() uint64 { return r.applied }

// Known returns the largest number that the source is known to have used.
func (r *Receiver) Known() uint64 { return r.known }

// Heard notes that the source has used every number up to last.
func (r *Receiver) Heard(last uint64) { r.known = max(r.known, last) }

// Receive takes the number of a message that has arrived.
func (r *Receiver) Receive(n uint64) Verdict {
	i, found := slices.BinarySearchFunc(r.above, n, func(s span, n uint64) int {
		switch {
		case s.to < n:
			return -1
		case s.from > n:
			return 1
		}
		return 0
	})
	if n <= r.applied || found { // F3
		return Repeat
	}
	r.Heard(n)
	if n-r.applied > r.window { // F5
		return Beyond
	}
	r.above = slices.Insert(r.above, i, span{n, n})
	if i+1 < len(r.above) && r.above[i+1].from == n+1 {
		r.above[i].to = r.above[i+1].to
		r.above = slices.Delete(r.above, i+1, i+2)
	}
	if i > 0 && r.above[i-1].to == n-1 {
		r.above[i-1].to = r.above[i].to
		r.above = slices.Delete(r.above, i, i+1)
	}
	r.close()
	return New
}

// close lets applied grow over what has arrived right above it (F4).
func (r *Receiver) close() {
	for len(r.above) > 0 && r.above[0].from <= r.applied+1 {
		r.applied = max(r.applied, r.above[0].to)
		r.above = slices.Delete(r.above, 0, 1)
	}
}

// Adopt takes a snapshot that stands for all messages up to n. It returns false, and does nothing,
// if those have been applied (F6).
func (r *Receiver) Adopt(n uint64) bool {
	if n <= r.applied {
		return false
	}
	r.applied = n
	r.Heard(n)
	r.close()
	return true
}

// Gap returns the first numbers that are missing, at most so many of them (F7). ok is false if none
// is known to be missing.
func (r *Receiver) Gap(most int) (from, to uint64, ok bool) {
	if r.known <= r.applied || most <= 0 {
		return 0, 0, false
	}
	from, to = r.applied+1, r.known
	if len(r.above) > 0 {
		to = r.above[0].from - 1
	}
	return from, min(to, r.applied+uint64(most)), true
}

// Check panics if the state is none that a Receiver can be in.
func (r *Receiver) Check() {
	below := r.applied
	for _, s := range r.above {
		if s.from <= below+1 || s.to < s.from || s.to > r.known || s.to-r.applied > r.window {
			panic(fmt.Sprintf("feed: %v has arrived above %d, %d is known", r.above, r.applied, r.known))
		}
		below = s.to
	}
	if r.known < r.applied {
		panic(fmt.Sprintf("feed: %d is applied, and %d is known", r.applied, r.known))
	}
}

// Dump returns the state as text, for tests that compare states.
func (r *Receiver) Dump() string { return fmt.Sprint(r.applied, r.known, r.above) }
