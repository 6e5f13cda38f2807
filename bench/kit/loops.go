package kit

import (
	"context"
	"sync"
	"time"
)

// OpenLoop begins requests at a constant rate, however long the earlier ones take.
type OpenLoop struct {
	Schedule Schedule
	// Sleep sleeps for about d, which is positive. It should wake in time: a delay counts as
	// latency.
	Sleep func(d time.Duration)
	// Before is called before each request; an error ends the loop. Default: nothing.
	Before func(i int) error
}

// Run begins n requests, each in its own goroutine, and waits for all of them. The schedule starts
// at began.
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

// ClosedLoop runs clients for a time. Each one begins a request when its last one has ended. It
// returns the latencies.
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
