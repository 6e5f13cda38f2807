package kit

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// Requests of an open loop begin when they are due, also while earlier ones are under way.
func TestOpenLoop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		var begun []time.Duration
		l := OpenLoop{Schedule: Schedule{Rate: 10}, Sleep: time.Sleep}
		err := l.Run(4, func(_ int, began time.Time) {
			mu.Lock()
			begun = append(begun, time.Since(began))
			mu.Unlock()
			time.Sleep(time.Hour)
		})
		if want := []time.Duration{0, 100e6, 200e6, 300e6}; err != nil || !slices.Equal(begun, want) {
			t.Error(begun, err)
		}
		stop := errors.New("enough")
		l.Before = func(i int) error {
			if i == 2 {
				return stop
			}
			return nil
		}
		var n atomic.Int64
		if err := l.Run(4, func(int, time.Time) { n.Add(1) }); !errors.Is(err, stop) || n.Load() != 2 {
			t.Error(n.Load(), err)
		}
	})
}

func TestClosedLoop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, err := ClosedLoop(t.Context(), 3, time.Second, func() { time.Sleep(250 * time.Millisecond) })
		if err != nil || l.Count() != 12 || l.Micros(50) < 249_000 || l.Micros(100) > 251_000 {
			t.Error(l.Count(), l.Micros(50), err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if l, err := ClosedLoop(ctx, 3, time.Second, func() {}); err == nil || l.Count() != 0 {
			t.Error(l.Count(), err)
		}
	})
}
