// Package drive has what runtimes share that carry out what a machine asks: pauses that a context
// ends, waits between attempts that grow, goroutines for requests, and a count of what is under way.
package drive

import (
	"context"
	"time"
)

// Pause waits for d, or until ctx ends.
func Pause(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
}

// Retry waits before the attempt number try at what a machine asks for: not before the first, which is
// 0, then a millisecond, and twice as long each time, up to a second. It reports whether ctx lasts.
func Retry(ctx context.Context, try int) bool {
	if try > 0 {
		Pause(ctx, min(time.Second, time.Millisecond<<min(try, 10)))
	}
	return ctx.Err() == nil
}

// Backoff is the wait between attempts: First, and twice as long each time, up to Most. It is not
// safe for concurrent use.
type Backoff struct {
	First, Most time.Duration
	next        time.Duration
}

// Next returns how long to wait before the next attempt.
func (b *Backoff) Next() time.Duration {
	d := max(b.next, b.First)
	b.next = min(2*d, b.Most)
	return d
}

// Reset begins again with First.
func (b *Backoff) Reset() { b.next = 0 }

// Pause waits as long as Next says, or until ctx ends.
func (b *Backoff) Pause(ctx context.Context) { Pause(ctx, b.Next()) }
