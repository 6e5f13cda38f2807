package link

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"net"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func pair(t *testing.T, a, b Options) (*Link, *Link) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	out, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	in, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	x, y := New(out, nil, a), New(in, nil, b)
	t.Cleanup(func() { x.Close(); y.Close() })
	return x, y
}

func TestMessagesArriveOnceInOrder(t *testing.T) {
	const n = 20_000
	got := make(chan uint64, n)
	a, _ := pair(t, Options{}, Options{Message: func(f []byte) { got <- binary.BigEndian.Uint64(f) }})
	for i := range uint64(n) {
		if err := a.Send(binary.BigEndian.AppendUint64(nil, i)); err != nil {
			t.Fatal(err)
		}
	}
	for i := range uint64(n) {
		if k := <-got; k != i {
			t.Fatalf("message %d arrived in place of %d", k, i)
		}
	}
}

func TestEveryCallGetsItsOwnAnswer(t *testing.T) {
	echo := func(_ context.Context, f []byte) []byte { return append([]byte("re:"), f...) }
	a, b := pair(t, Options{Request: echo}, Options{Request: echo})
	var wg sync.WaitGroup
	for i := range 500 {
		wg.Go(func() {
			for _, l := range []*Link{a, b} {
				q := bytes.Repeat([]byte(strconv.Itoa(i)), i*10)
				r, err := l.Call(t.Context(), q)
				if err != nil || string(r) != "re:"+string(q) {
					t.Errorf("call %d: %d bytes, %v", i, len(r), err)
				}
			}
		})
	}
	wg.Wait()
}

func TestABreakIsToldToEverybody(t *testing.T) {
	hold := make(chan struct{})
	arrived := make(chan struct{})
	a, b := pair(t, Options{}, Options{Request: func(context.Context, []byte) []byte { close(arrived); <-hold; return nil }})
	res := make(chan error, 1)
	go func() {
		_, err := a.Call(context.Background(), []byte("q"))
		res <- err
	}()
	<-arrived
	b.fail(errors.New("cable cut"))
	if err := <-res; !errors.Is(err, ErrBroken) {
		t.Fatalf("a call over a broken link ended with %v", err)
	}
	<-a.Done()
	<-b.Done()
	if err := a.Send(nil); !errors.Is(err, ErrBroken) {
		t.Fatalf("a message over a broken link: %v", err)
	}
	close(hold)
}

func TestAHugeLengthTakesNoMemory(t *testing.T) {
	x, y := net.Pipe()
	l := New(x, nil, Options{MaxFrame: 1 << 30})
	head := binary.BigEndian.AppendUint32(nil, 1<<30-1)
	head = append(head, make([]byte, header-4)...)
	if _, err := y.Write(head); err != nil {
		t.Fatal(err)
	}
	y.Close()
	<-l.Done()
	l.Close()
}

func TestAFullQueueRefuses(t *testing.T) {
	x, y := net.Pipe() // nobody reads y
	l := New(x, nil, Options{MaxQueue: 1 << 10})
	var err error
	for range 100 {
		if err = l.Send(make([]byte, 100)); err != nil {
			break
		}
	}
	if !errors.Is(err, ErrFull) {
		t.Fatalf("a link nobody reads took everything: %v", err)
	}
	y.Close()
	l.Close()
}

// FuzzRead: whatever arrives, the link breaks or goes on, and never panics.
func FuzzRead(f *testing.F) {
	f.Add([]byte{0, 0, 0, 1, 1, 0, 0, 0, 0, 0, 0, 0, 7, 'x'})
	f.Fuzz(func(t *testing.T, b []byte) {
		x, y := net.Pipe()
		l := New(x, nil, Options{MaxFrame: 1 << 16, Message: func([]byte) {}, Request: func(_ context.Context, f []byte) []byte { return f }})
		go func() {
			var sink [1024]byte
			for {
				if _, err := y.Read(sink[:]); err != nil {
					return
				}
			}
		}()
		_, _ = y.Write(b)
		y.Close()
		l.Close()
	})
}

// A node that stands still is noticed when nothing at all is heard of it, and asked no
// more than now and then; one that is only slow is waited for.
func TestSilence(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const patience = 100 * time.Millisecond
		x, y := net.Pipe()
		release := make(chan struct{})
		var served atomic.Int32
		a := New(x, nil, Options{})
		b := New(y, nil, Options{Request: func(ctx context.Context, f []byte) []byte {
			served.Add(1)
			if f[0] == 'w' {
				select {
				case <-release:
				case <-ctx.Done():
				}
			}
			return f
		}})
		defer func() { a.Close(); b.Close() }()
		call := func(f string) (time.Duration, error) {
			began := time.Now()
			_, err := a.CallHeard(t.Context(), []byte(f), patience)
			return time.Since(began), err
		}
		if _, err := call("x"); err != nil {
			t.Fatal(err)
		}
		if after, err := call("w"); !errors.Is(err, ErrSilent) || after != patience {
			t.Fatalf("after %v: %v", after, err)
		}
		for i := range int32(10) { // one asks once more, and not even that one waits
			for range 10 {
				if after, err := call("w"); !errors.Is(err, ErrSilent) || after != 0 {
					t.Fatalf("after %v: %v", after, err)
				}
			}
			synctest.Wait()
			if n := served.Load(); n != 3+i {
				t.Fatalf("%d requests were sent to a node that stands still", n)
			}
			time.Sleep(patience)
		}
		// Slow, but something is heard: it is waited for.
		stop := make(chan struct{})
		go func() {
			for {
				select {
				case <-stop:
					return
				case <-time.After(patience / 2):
					_ = b.Send([]byte("still here"))
				}
			}
		}()
		time.Sleep(patience)
		time.AfterFunc(10*patience, func() { close(release) })
		if after, err := call("w"); err != nil || after != 10*patience {
			t.Errorf("a slow node was given up after %v: %v", after, err)
		}
		close(stop)
	})
}
