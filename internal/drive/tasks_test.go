package drive

import (
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
)

// Who waits does so for all that was begun before, whatever begins meanwhile.
func TestTasks(t *testing.T) {
	var all Tasks
	var running atomic.Int64
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for range 1000 {
				var ran atomic.Bool
				all.Go(func() {
					runtime.Gosched()
					ran.Store(true)
					running.Add(1)
				})
				if all.Wait(); !ran.Load() {
					t.Error("it runs yet")
					return
				}
			}
		})
	}
	wg.Wait()
	all.Wait()
	if n := running.Load(); n != 4000 {
		t.Errorf("%d of 4000 had run", n)
	}
}
