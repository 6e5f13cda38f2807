package drive

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
)

// Requests run at the same time, as many as there are; so many goroutines wait for the next ones, which
// they perform, and all end with the context.
func TestPool(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, stop := context.WithCancel(t.Context())
		var tasks Tasks
		var running atomic.Int64
		release := make(chan struct{})
		p := NewPool(ctx, &tasks, func(n int) {
			running.Add(int64(n))
			<-release
		})
		for range idlers + 10 {
			p.Do(1)
		}
		if synctest.Wait(); running.Load() != idlers+10 {
			t.Errorf("%d of %d requests run at the same time", running.Load(), idlers+10)
		}
		close(release)
		tasks.Wait()
		if synctest.Wait(); p.idle.Load() != idlers || p.all.n != idlers {
			t.Errorf("%d goroutines wait, and %d are left", p.idle.Load(), p.all.n)
		}
		p.Do(1)
		tasks.Wait()
		if synctest.Wait(); running.Load() != idlers+11 || p.all.n != idlers {
			t.Errorf("%d requests were performed, and %d goroutines are left", running.Load(), p.all.n)
		}
		stop()
		p.Wait()
		p.Do(1) // a request that comes late is performed, and leaves nothing behind
		tasks.Wait()
		p.Wait()
		if running.Load() != idlers+12 {
			t.Errorf("%d requests were performed", running.Load())
		}
	})
}
