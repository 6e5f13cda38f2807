package linear

import "sync"

// tasks counts background work. Go and Wait may be called at the same time, which a sync.WaitGroup
// forbids, because a lease can arrive while the cache is being closed. The zero value is ready.
type tasks struct {
	mu   sync.Mutex
	n    int
	idle chan struct{} // closed when n is 0 again; nil if nobody waits
}

// Go runs do on a goroutine of its own.
func (t *tasks) Go(do func()) {
	t.mu.Lock()
	t.n++
	t.mu.Unlock()
	go func() {
		defer t.done()
		do()
	}()
}

func (t *tasks) done() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.n--; t.n == 0 && t.idle != nil {
		close(t.idle)
		t.idle = nil
	}
}

// Wait returns when no task runs.
func (t *tasks) Wait() {
	t.mu.Lock()
	if t.n == 0 {
		t.mu.Unlock()
		return
	}
	if t.idle == nil {
		t.idle = make(chan struct{})
	}
	idle := t.idle
	t.mu.Unlock()
	<-idle
}
