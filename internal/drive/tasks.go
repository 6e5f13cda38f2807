package drive

import "sync"

// Tasks counts background work. Go and Wait may be called at the same time, which a sync.WaitGroup
// forbids, because a lease or a frame can arrive while a promise is being closed. The zero value is ready.
type Tasks struct {
	mu   sync.Mutex
	n    int
	idle chan struct{} // closed when n is 0 again; nil if nobody waits
}

// Go runs do on a goroutine of its own.
func (t *Tasks) Go(do func()) {
	t.begin()
	go func() {
		defer t.done()
		do()
	}()
}

func (t *Tasks) begin() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.n++
}

func (t *Tasks) done() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.n--; t.n == 0 && t.idle != nil {
		close(t.idle)
		t.idle = nil
	}
}

// Wait returns when no task runs.
func (t *Tasks) Wait() {
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
