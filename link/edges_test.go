package link

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// What is left out of the options has the documented default, and what is given is kept.
func TestDefaults(t *testing.T) {
	for _, n := range []int{-1, 0, 1, 7} {
		by(t, Options{MaxFrame: n, MaxQueue: n, MaxRequests: n, WriteTimeout: time.Duration(n)}, func(t *testing.T, l *Link, _ far) {
			want := Options{MaxFrame: 64 << 20, MaxQueue: 64 << 20, MaxRequests: 4096, WriteTimeout: 10 * time.Second}
			if n > 0 {
				want = Options{MaxFrame: n, MaxQueue: n, MaxRequests: n, WriteTimeout: time.Duration(n)}
			}
			if o := l.opt; o.MaxFrame != want.MaxFrame || o.MaxQueue != want.MaxQueue || o.MaxRequests != want.MaxRequests || o.WriteTimeout != want.WriteTimeout || cap(l.calls) != want.MaxRequests {
				t.Errorf("%d becomes %+v", n, o)
			}
		})
	}
}

// What was read of a connection before it became a link is part of it.
func TestBytesThatWereRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x, y := net.Pipe()
		r := bufio.NewReader(x)
		go func() { _, _ = y.Write(append(frame(kindMessage, 0, "first"), frame(kindMessage, 0, "second")...)) }()
		if _, err := r.Peek(header); err != nil {
			t.Fatal(err)
		}
		got := make(chan string, 2)
		l := New(x, r, Options{Message: func(f []byte) { got <- string(f) }})
		synctest.Wait()
		if len(got) != 2 || <-got != "first" || <-got != "second" {
			t.Error("what was read before is lost")
		}
		y.Close()
		l.Close()
	})
}

// A caller who hears something else of the other node waits on, and gives up when that falls
// silent again; a refusal is an answer.
func TestSilenceAfterSomethingElse(t *testing.T) {
	by(t, Options{}, func(t *testing.T, l *Link, other far) {
		const patience = time.Second
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour) // who waits for ever says so
		defer cancel()
		ended := make(chan error, 1)
		var at time.Time
		call := func() {
			_, err := l.CallHeard(ctx, nil, patience)
			at = time.Now()
			ended <- err
		}
		began := time.Now()
		go call()
		_, id, _ := other.receive()
		time.Sleep(patience / 2)
		other.send(kindMessage, 0, "something else")
		if err := <-ended; !errors.Is(err, ErrSilent) || at.Sub(began) <= patience || at.Sub(began) > 3*patience { // virtual time
			t.Errorf("after %v: %v", at.Sub(began), err)
		}
		other.send(kindAnswer, id, "late")
		go call()
		_, id, _ = other.receive()
		other.send(kindFull, id, "")
		if err := <-ended; !errors.Is(err, ErrFull) {
			t.Errorf("refused: %v", err)
		}
	})
}

// A node that goes hears the answers to its requests, and everything that was sent before, however
// slowly it reads: the link ends only then. So does the farewell of this end go out behind what
// fills the queue.
func TestNothingIsCutOff(t *testing.T) {
	var served chan struct{}
	by(t, Options{Request: func(context.Context, []byte) []byte { <-served; return []byte("answer") }}, func(t *testing.T, l *Link, other far) {
		served = make(chan struct{})
		other.send(kindRequest, 1, "")
		other.send(kindBye, 0, "")
		synctest.Wait()
		if l.Err() != nil {
			t.Fatalf("broken while a request is served: %v", l.Err())
		}
		close(served)
		if kind, id, body := other.receive(); kind != kindAnswer || id != 1 || body != "answer" {
			t.Errorf("frame %d of %d: %q", kind, id, body)
		}
		<-l.Done()
	})
	by(t, Options{}, func(t *testing.T, l *Link, other far) {
		for _, m := range []string{"one", "two", "three"} {
			if err := l.Send([]byte(m)); err != nil {
				t.Fatal(err)
			}
			synctest.Wait() // the first is being written, and the others wait for it
		}
		other.send(kindBye, 0, "")
		for _, want := range []string{"one", "two", "three"} {
			synctest.Wait()
			if l.Err() != nil {
				t.Fatalf("broken before %s has arrived: %v", want, l.Err())
			}
			if _, _, body := other.receive(); body != want {
				t.Errorf("%q arrives, and %q was sent", body, want)
			}
		}
		<-l.Done()
	})
	by(t, Options{MaxQueue: 20, MaxRequests: 1, Request: func(ctx context.Context, _ []byte) []byte { <-ctx.Done(); return nil }}, func(t *testing.T, l *Link, other far) {
		for range 2 {
			if err := l.Send(make([]byte, 20)); err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
		}
		if err := l.Send(nil); !errors.Is(err, ErrFull) {
			t.Fatalf("the queue is not full: %v", err)
		}
		other.send(kindRequest, 1, "")
		other.send(kindRequest, 2, "")
		ctx, cancel := context.WithCancel(t.Context())
		drained := make(chan struct{})
		go func() { l.Drain(ctx); close(drained) }()
		synctest.Wait()
		for _, want := range []byte{kindMessage, kindMessage, kindFull, kindBye} {
			if kind, id, _ := other.receive(); kind != want || kind == kindFull && id != 2 || kind == kindBye && id != 1 {
				t.Errorf("frame %d of %d arrives, want %d", kind, id, want)
			}
		}
		cancel()
		<-drained
	})
}

// A node that serves no requests answers them with nothing, and its callers go on.
func TestNoRequestsAreServed(t *testing.T) {
	by(t, Options{}, func(t *testing.T, _ *Link, other far) {
		other.send(kindRequest, 7, "anybody?")
		if kind, id, body := other.receive(); kind != kindAnswer || id != 7 || body != "" {
			t.Errorf("frame %d of %d: %q", kind, id, body)
		}
		other.send(kindMessage, 0, "nobody")
	})
}

// Wait returns when nothing runs any more: no message is being taken, and no answer waits for
// room in the queue.
func TestWaitIsForEverything(t *testing.T) {
	var taking atomic.Bool
	var taken chan struct{}
	by(t, Options{Message: func([]byte) { taking.Store(true); <-taken; taking.Store(false) }}, func(t *testing.T, l *Link, other far) {
		taken = make(chan struct{})
		other.send(kindMessage, 0, "slow")
		l.Break()
		waited := make(chan struct{})
		go func() { l.Wait(); close(waited) }()
		synctest.Wait()
		select {
		case <-waited:
			t.Error("a message is being taken, and nothing is waited for")
		default:
		}
		close(taken)
		if <-waited; taking.Load() {
			t.Error("a message is being taken yet")
		}
	})
	by(t, Options{MaxQueue: 30, Request: func(context.Context, []byte) []byte { return make([]byte, 25) }}, func(t *testing.T, l *Link, other far) {
		for i := range uint64(4) { // one is written, one is queued, and others wait
			other.send(kindRequest, i+1, "")
		}
		synctest.Wait()
		l.Break()
		l.Wait()
	})
}

// Memory for a frame is taken as its bytes arrive, a step at a time, whatever its length says.
func TestMemoryComesWithBytes(t *testing.T) {
	const step = 1 << 20
	for _, arrived := range []int{0, 1, step, 5 * step} {
		sizes := &widest{r: bytes.NewReader(make([]byte, arrived))}
		if _, err := readN(sizes, 1<<30); !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
			t.Errorf("%d bytes of a frame: %v", arrived, err)
		}
		if sizes.most > step {
			t.Errorf("%d bytes are asked for at once", sizes.most)
		}
	}
}

// widest notes the longest read.
type widest struct {
	r    io.Reader
	most int
}

func (w *widest) Read(b []byte) (int, error) {
	w.most = max(w.most, len(b))
	return w.r.Read(b)
}
