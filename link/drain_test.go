package link

import (
	"context"
	"encoding/binary"
	"errors"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// Whoever calls over a link whose other end drains hears what became of each call: it was
// answered, or nothing was done. No call is left unknown.
func TestDrainLeavesNoCallUnknown(t *testing.T) {
	for range 50 {
		var mu sync.Mutex
		served := map[uint64]bool{}
		a, b := pair(t, Options{}, Options{Request: func(_ context.Context, f []byte) []byte {
			mu.Lock()
			defer mu.Unlock()
			served[binary.BigEndian.Uint64(f)] = true
			return f
		}})
		var answered, refused atomic.Int64
		var wg sync.WaitGroup
		began := make(chan struct{}, 1000)
		for g := range 20 {
			wg.Go(func() {
				for i := 0; ; i++ {
					id := uint64(g*1_000_000 + i)
					reply, err := a.Call(t.Context(), binary.BigEndian.AppendUint64(nil, id))
					mu.Lock()
					was := served[id]
					mu.Unlock()
					switch {
					case err == nil && binary.BigEndian.Uint64(reply) == id && was:
						answered.Add(1)
					case errors.Is(err, ErrRefused) && !was:
						refused.Add(1)
						return
					default:
						t.Errorf("call %d: %v, %v; served: %v", id, reply, err, was)
						return
					}
					select {
					case began <- struct{}{}:
					default:
					}
				}
			})
		}
		for range 100 {
			<-began
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		b.Drain(ctx)
		cancel()
		wg.Wait()
		if answered.Load() == 0 || refused.Load() != 20 {
			t.Fatalf("%d answered, %d refused", answered.Load(), refused.Load())
		}
		a.Close()
		b.Close()
		if t.Failed() {
			return
		}
	}
}

// A drain waits for requests that are being served, and ends when its time is over.
func TestDrainWaitsForAnswers(t *testing.T) {
	release, began := make(chan struct{}), make(chan struct{})
	a, b := pair(t, Options{}, Options{Request: func(context.Context, []byte) []byte {
		close(began)
		<-release
		return []byte("late")
	}})
	reply := make(chan string, 1)
	go func() {
		r, err := a.Call(t.Context(), nil)
		reply <- string(r)
		if err != nil {
			t.Error(err)
		}
	}()
	<-began
	drained := make(chan struct{})
	go func() { b.Drain(t.Context()); close(drained) }()
	for !a.Goes() {
		select {
		case <-drained:
			t.Fatal("the drain is over, and the request is not answered")
		case r := <-reply:
			t.Fatalf("answered with %q before it was served", r)
		default:
		}
	}
	if _, err := a.Call(t.Context(), nil); !errors.Is(err, ErrRefused) {
		t.Errorf("a call over a link that goes: %v", err)
	}
	if _, err := a.CallHeard(t.Context(), nil, time.Minute); !errors.Is(err, ErrRefused) {
		t.Errorf("a call over a link that goes: %v", err)
	}
	close(release)
	if r := <-reply; r != "late" {
		t.Errorf("answered with %q", r)
	}
	<-drained

	stuck := make(chan struct{})
	defer close(stuck)
	entered := make(chan struct{})
	c, d := pair(t, Options{}, Options{Request: func(context.Context, []byte) []byte {
		close(entered)
		<-stuck
		return nil
	}})
	unknown := make(chan error, 1)
	go func() { _, err := c.Call(t.Context(), nil); unknown <- err }()
	<-entered
	over, cancel := context.WithCancel(t.Context())
	cancel()
	d.Drain(over)
	if err := <-unknown; !errors.Is(err, ErrBroken) {
		t.Errorf("the drain had no time: %v", err)
	}
}

// However many requests wait to be served, messages and answers pass: reading never waits
// for them. A request beyond the bound is refused, and a caller within its own bound waits.
func TestRequestsDoNotHoldMessagesUp(t *testing.T) {
	release, messages := make(chan struct{}), make(chan struct{}, 1)
	a, b := pair(t, Options{MaxRequests: 100}, Options{MaxRequests: 10,
		Request: func(context.Context, []byte) []byte { <-release; return []byte("done") },
		Message: func([]byte) { messages <- struct{}{} }})
	var done, full atomic.Int64
	var wg sync.WaitGroup
	for range 300 {
		wg.Go(func() {
			switch r, err := a.Call(t.Context(), nil); {
			case err == nil && string(r) == "done":
				done.Add(1)
			case errors.Is(err, ErrFull):
				full.Add(1)
			default:
				t.Errorf("%q, %v", r, err)
			}
		})
	}
	for end := time.Now().Add(20 * time.Second); full.Load() < 290; runtime.Gosched() { // ten are being served, and nobody else waits for them
		if time.Now().After(end) {
			close(release)
			t.Fatalf("of 300 requests, 10 of which are being served, %d were refused", full.Load())
		}
	}
	if err := a.Send(nil); err != nil {
		t.Fatal(err)
	}
	<-messages
	close(release)
	wg.Wait()
	if done.Load() != 10 {
		t.Errorf("%d served, %d refused", done.Load(), full.Load())
	}
	_ = b
}

// A caller waits for the calls of its own end, as long as it wishes to.
func TestCallsAreBounded(t *testing.T) {
	release, entered := make(chan struct{}), make(chan struct{}, 8)
	a, _ := pair(t, Options{MaxRequests: 2}, Options{MaxRequests: 8,
		Request: func(context.Context, []byte) []byte { entered <- struct{}{}; <-release; return nil }})
	var wg sync.WaitGroup
	for range 2 {
		wg.Go(func() {
			if _, err := a.Call(t.Context(), nil); err != nil {
				t.Error(err)
			}
		})
	}
	<-entered
	<-entered
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := a.Call(ctx, nil); !errors.Is(err, ErrFull) {
		t.Errorf("a call beyond the bound: %v", err)
	}
	if _, err := a.CallHeard(t.Context(), nil, time.Minute); !errors.Is(err, ErrFull) {
		t.Errorf("a read beyond the bound: %v", err)
	}
	close(release)
	wg.Wait()
	if _, err := a.Call(t.Context(), nil); err != nil {
		t.Errorf("the bound does not end: %v", err)
	}
	<-entered
}

// A link that is broken has sent nothing of a call that begins after it broke.
func TestCallAfterTheEnd(t *testing.T) {
	a, b := pair(t, Options{}, Options{})
	b.Close()
	<-a.Done()
	if _, err := a.Call(t.Context(), nil); !errors.Is(err, ErrRefused) {
		t.Errorf("a call over a broken link: %v", err)
	}
}
