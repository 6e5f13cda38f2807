package kit

import (
	"context"
	"sync"
	"time"
)

// OpenLoop begins requests at a constant rate, however the earlier ones fare.
type OpenLoop struct {
	Schedule Schedule
	// Sleep sleeps for about a duration that is more than zero. It should wake in time:
	// what it is late counts as latency.
	Sleep func(d time.Duration)
	// Before is called before each request; an error ends the loop. Default: nothing.
	Before func(i int) error
}

// Run begins n requests, each on a goroutine of its own, and waits for all of them. began
// is the time from which the schedule counts.
func (l OpenLoop) Run(n int, request func(i int, began time.Time)) error {
	var wg sync.WaitGroup
	defer wg.Wait()
	began := time.Now()
	for i := range n {
		for d := l.Schedule.Due(i) - time.Since(began); d > 0; d = l.Schedule.Due(i) - time.Since(began) {
			l.Sleep(d)
		}
		if l.Before != nil {
			if err := l.Before(i); err != nil {
				return err
			}
		}
		wg.Go(func() { request(i, began) })
	}
	return nil
}

// ClosedLoop has clients that each begin a request when the last has ended, for a while. It
// returns how long requests took.
func ClosedLoop(ctx context.Context, clients int, span time.Duration, request func()) (*Latencies, error) {
	sum := NewLatencies()
	var mu sync.Mutex
	var wg sync.WaitGroup
	began := time.Now()
	for range clients {
		wg.Go(func() {
			own := NewLatencies()
			for time.Since(began) < span && ctx.Err() == nil {
				at := time.Now()
				request()
				own.Add(time.Since(at), 1)
			}
			mu.Lock()
			defer mu.Unlock()
			sum.Merge(own)
		})
	}
	wg.Wait()
	return sum, context.Cause(ctx)
}
