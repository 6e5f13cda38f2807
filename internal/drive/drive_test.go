package drive

import (
	"context"
	"testing"
	"testing/synctest"
	"time"
)

// Waits double up to the longest, and begin again after Reset; the end of a context ends a wait.
func TestBackoff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := Backoff{First: 10 * time.Millisecond, Most: 50 * time.Millisecond}
		for i, want := range []time.Duration{10, 20, 40, 50, 50, 10, 20} {
			if i == 5 {
				b.Reset()
			}
			began := time.Now()
			b.Pause(t.Context())
			if took := time.Since(began); took != want*time.Millisecond {
				t.Errorf("wait %d is %v, want %v", i, took, want*time.Millisecond)
			}
		}
		for try, want := range map[int]time.Duration{0: 0, 1: 2 * time.Millisecond, 9: 512 * time.Millisecond, 10: time.Second, 80: time.Second} {
			began := time.Now()
			if ok := Retry(t.Context(), try); !ok || time.Since(began) != want {
				t.Errorf("attempt %d comes after %v, want %v", try, time.Since(began), want)
			}
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		began := time.Now()
		if b.Pause(ctx); time.Since(began) != 0 || Retry(ctx, 5) || time.Since(began) != 0 {
			t.Error("it waits though the context is over")
		}
	})
}
