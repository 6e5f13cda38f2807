package link

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// far is the other end of a link, by hand.
type far struct {
	t  *testing.T
	nc net.Conn
}

func frame(kind byte, id uint64, body string) []byte {
	b := binary.BigEndian.AppendUint32(nil, uint32(len(body)))
	return append(binary.BigEndian.AppendUint64(append(b, kind), id), body...)
}

func (f far) send(kind byte, id uint64, body string) {
	f.t.Helper()
	if _, err := f.nc.Write(frame(kind, id, body)); err != nil {
		f.t.Error(err)
	}
}

func (f far) receive() (kind byte, id uint64, body string) {
	f.t.Helper()
	var head [header]byte
	if _, err := io.ReadFull(f.nc, head[:]); err != nil {
		f.t.Error(err)
		return 0, 0, ""
	}
	b := make([]byte, binary.BigEndian.Uint32(head[:]))
	if _, err := io.ReadFull(f.nc, b); err != nil {
		f.t.Error(err)
	}
	return head[4], binary.BigEndian.Uint64(head[5:]), string(b)
}

// by runs f with a link and its other end, in virtual time.
func by(t *testing.T, opt Options, f func(t *testing.T, l *Link, other far)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		x, y := net.Pipe()
		l := New(x, nil, opt)
		f(t, l, far{t, y})
		y.Close()
		l.Close()
	})
}

// An answer belongs to the request of its number, and to nobody else: not when its caller
// has given up, not when it comes twice, not when nobody has asked.
func TestAnAnswerReachesNobodyElse(t *testing.T) {
	calls := map[string]func(l *Link, ctx context.Context, body string) ([]byte, error){
		"Call": func(l *Link, ctx context.Context, body string) ([]byte, error) { return l.Call(ctx, []byte(body)) },
		"CallHeard": func(l *Link, ctx context.Context, body string) ([]byte, error) {
			return l.CallHeard(ctx, []byte(body), time.Minute)
		},
	}
	for name, call := range calls {
		for _, late := range []byte{kindAnswer, kindFull} {
			t.Run(fmt.Sprint(name, late), func(t *testing.T) {
				by(t, Options{MaxRequests: 2}, func(t *testing.T, l *Link, other far) {
					type result struct {
						body string
						err  error
					}
					ask := func(ctx context.Context, body string) (id uint64, out chan result) {
						out = make(chan result, 1)
						go func() {
							b, err := call(l, ctx, body)
							out <- result{string(b), err}
						}()
						kind, id, got := other.receive()
						if kind != kindRequest || got != body {
							t.Errorf("request %d is %q", kind, got)
						}
						return id, out
					}
					var before []uint64
					for round := range 5 {
						ctx, cancel := context.WithCancel(t.Context())
						gone, first := ask(ctx, "gives up")
						cancel()
						if r := <-first; !errors.Is(r.err, context.Canceled) {
							t.Errorf("%q, %v", r.body, r.err)
						}
						id, second := ask(t.Context(), "waits")
						if id <= gone || slices.Contains(before, id) {
							t.Errorf("request %d follows request %d", id, gone)
						}
						for _, stray := range append(before, gone, gone, 0, id+1, id+1000) {
							other.send(late, stray, "for another")
						}
						synctest.Wait()
						select {
						case r := <-second:
							t.Fatalf("round %d: answered with %q, %v", round, r.body, r.err)
						default:
						}
						other.send(kindAnswer, id, "its own")
						other.send(kindAnswer, id, "its own again")
						other.send(kindFull, id, "")
						if r := <-second; r.body != "its own" || r.err != nil {
							t.Errorf("answered with %q, %v", r.body, r.err)
						}
						before = append(before, gone, id)
					}
				})
			})
		}
	}
}

// When the other end says that it goes, each caller hears what became of its request: the
// last that is named is answered, those behind it were not done.
func TestFarewellNamesTheLast(t *testing.T) {
	by(t, Options{}, func(t *testing.T, l *Link, other far) {
		type result struct {
			i   int
			err error
		}
		results := make(chan result, 3)
		for i := range 3 {
			go func() {
				b, err := l.Call(t.Context(), fmt.Append(nil, i))
				if err == nil && string(b) != fmt.Sprint("answer ", i) {
					t.Errorf("%d is answered with %q", i, b)
				}
				results <- result{i, err}
			}()
			if kind, id, body := other.receive(); kind != kindRequest || id != uint64(i+1) || body != fmt.Sprint(i) {
				t.Fatalf("frame %d %d %q", kind, id, body)
			}
		}
		other.send(kindBye, 2, "")
		if r := <-results; r.i != 2 || !errors.Is(r.err, ErrRefused) {
			t.Errorf("%d: %v", r.i, r.err)
		}
		if _, err := l.Call(t.Context(), nil); !errors.Is(err, ErrRefused) || !l.Goes() {
			t.Errorf("a later call: %v", err)
		}
		other.send(kindAnswer, 3, "late")
		synctest.Wait()
		if l.Err() != nil {
			t.Errorf("broken before all are answered: %v", l.Err())
		}
		other.send(kindAnswer, 2, "answer 1")
		if r := <-results; r.i != 1 || r.err != nil {
			t.Errorf("%d: %v", r.i, r.err)
		}
		other.send(kindAnswer, 1, "answer 0")
		if r := <-results; r.i != 0 || r.err != nil {
			t.Errorf("%d: %v", r.i, r.err)
		}
		<-l.Done()
		if err := l.Err(); !errors.Is(err, ErrBroken) || !strings.Contains(err.Error(), "orderly") {
			t.Error(err)
		}
	})
}

// What arrives is handed on only when it is whole; what is no frame ends the link.
func TestFramesAreTakenWhole(t *testing.T) {
	const most = 100
	stream := slices.Concat(frame(kindMessage, 0, "one"), frame(kindMessage, 7, ""), frame(kindMessage, 0, strings.Repeat("x", most)))
	for cut := range len(stream) + 1 {
		var got []string
		by(t, Options{MaxFrame: most, Message: func(f []byte) { got = append(got, string(f)) }}, func(t *testing.T, l *Link, other far) {
			if _, err := other.nc.Write(stream[:cut]); err != nil {
				t.Fatal(err)
			}
			other.nc.Close()
			<-l.Done()
			l.Wait()
			var want []string
			for _, part := range []struct {
				at   int
				body string
			}{{header + 3, "one"}, {2*header + 3, ""}, {len(stream), strings.Repeat("x", most)}} {
				if cut >= part.at {
					want = append(want, part.body)
				}
			}
			if !slices.Equal(got, want) || !errors.Is(l.Err(), ErrBroken) {
				t.Errorf("of %d bytes: %q, %v", cut, got, l.Err())
			}
		})
	}
	for name, bad := range map[string][]byte{"too long": frame(kindMessage, 0, strings.Repeat("x", most+1)), "of no kind": frame(kindBye+1, 0, "")} {
		by(t, Options{MaxFrame: most, Message: func([]byte) { t.Errorf("a frame that is %s was handed on", name) }}, func(t *testing.T, l *Link, other far) {
			_, _ = other.nc.Write(bad)
			<-l.Done()
			if err := l.Err(); !strings.Contains(err.Error(), "not a link, or another version") {
				t.Error(err)
			}
		})
	}
}

// A frame is as long as it may be, and no longer; a queue that is empty takes any frame.
func TestBoundsOfFramesAndQueues(t *testing.T) {
	by(t, Options{MaxFrame: 100, MaxQueue: 60}, func(t *testing.T, l *Link, other far) {
		for size, want := range map[int]error{100: nil, 101: ErrRefused} {
			if err := l.Send(make([]byte, size)); !errors.Is(err, want) {
				t.Errorf("a frame of %d bytes: %v", size, err)
			}
		}
		synctest.Wait() // it is being written, and the queue is empty
		for _, c := range []struct {
			size int
			want error
		}{{20, nil}, {28, ErrFull}, {27, nil}, {0, ErrFull}} { // each takes 13 more
			if err := l.Send(make([]byte, c.size)); !errors.Is(err, c.want) {
				t.Errorf("a frame of %d bytes: %v, want %v", c.size, err, c.want)
			}
		}
		if _, err := l.Call(t.Context(), nil); !errors.Is(err, ErrFull) {
			t.Errorf("a request beyond the bound: %v", err)
		}
		for _, want := range []int{100, 20, 27} {
			if _, _, body := other.receive(); len(body) != want {
				t.Errorf("%d bytes arrive, and %d were sent", len(body), want)
			}
		}
		if _, err := l.Call(t.Context(), make([]byte, 101)); !errors.Is(err, ErrRefused) {
			t.Errorf("a request that is too long: %v", err)
		}
	})
}

// Frames of all sizes around the steps in which memory is taken arrive as they were sent.
func TestLargeFrames(t *testing.T) {
	const step = 1 << 20
	echo := func(_ context.Context, f []byte) []byte { return f }
	a, _ := pair(t, Options{}, Options{Request: echo})
	for _, size := range []int{0, 1, step - 1, step, step + 1, 2*step - 1, 2 * step, 3*step + 7} {
		b := make([]byte, size)
		for i := range b {
			b[i] = byte(i * 7 >> 3)
		}
		if got, err := a.Call(t.Context(), b); err != nil || !bytes.Equal(got, b) {
			t.Errorf("%d bytes came back as %d, %v", size, len(got), err)
		}
	}
}

// An answer that is too long to be sent breaks the link, or its caller would wait for ever.
func TestAnswersThatAreTooLong(t *testing.T) {
	a, _ := pair(t, Options{}, Options{MaxFrame: 10, Request: func(context.Context, []byte) []byte { return make([]byte, 11) }})
	if _, err := a.Call(t.Context(), nil); !errors.Is(err, ErrBroken) {
		t.Error(err)
	}
}

// Whoever does not read is released when the time to write is over, and not before.
func TestWhoDoesNotReadIsLetGo(t *testing.T) {
	by(t, Options{WriteTimeout: time.Minute}, func(t *testing.T, l *Link, _ far) {
		began := time.Now()
		if err := l.Send([]byte("x")); err != nil {
			t.Fatal(err)
		}
		<-l.Done()
		if after := time.Since(began); after != time.Minute { // virtual time
			t.Errorf("ended after %v", after)
		}
	})
}

// A request that was given up is forgotten: nothing waits for its answer when the other end
// goes, and its place is another's.
func TestGivenUpIsForgotten(t *testing.T) {
	by(t, Options{MaxRequests: 1}, func(t *testing.T, l *Link, other far) {
		for i := range 3 {
			ctx, cancel := context.WithCancel(t.Context())
			done := make(chan error, 1)
			go func() {
				_, err := l.Call(ctx, fmt.Append(nil, i))
				done <- err
			}()
			other.receive()
			if _, err := l.CallHeard(t.Context(), nil, time.Minute); !errors.Is(err, ErrFull) {
				t.Errorf("a second request, where one may be under way: %v", err)
			}
			cancel()
			if err := <-done; !errors.Is(err, context.Canceled) {
				t.Error(err)
			}
		}
		other.send(kindBye, 3, "")
		<-l.Done()
		if err := l.Err(); !strings.Contains(err.Error(), "orderly") {
			t.Error(err)
		}
	})
}

// Answers wait for room in the queue, and all of them arrive when the other end reads.
func TestAnswersWaitForRoom(t *testing.T) {
	const count, size = 20, 50
	answer := func(_ context.Context, f []byte) []byte { return bytes.Repeat(f, size) }
	by(t, Options{MaxQueue: 2 * (size + header), Request: answer}, func(t *testing.T, l *Link, other far) {
		for i := range count {
			other.send(kindRequest, uint64(i+1), string(rune('a'+i)))
		}
		synctest.Wait()
		l.mu.Lock()
		if waiting := len(l.queue); waiting > 2*(size+header) {
			t.Errorf("%d bytes wait", waiting)
		}
		l.mu.Unlock()
		seen := map[uint64]bool{}
		for range count {
			kind, id, body := other.receive()
			if kind != kindAnswer || seen[id] || body != strings.Repeat(string(rune('a'+id-1)), size) {
				t.Errorf("frame %d of request %d: %q", kind, id, body)
			}
			seen[id] = true
		}
		other.send(kindBye, 0, "")
		<-l.Done() // all is said
	})
}

// An answer that is larger than the queue may be leaves when the queue is empty.
func TestLargeAnswers(t *testing.T) {
	by(t, Options{MaxQueue: 10, Request: func(context.Context, []byte) []byte { return make([]byte, 1000) }}, func(t *testing.T, _ *Link, other far) {
		for i := range uint64(3) {
			other.send(kindRequest, i+1, "")
			if kind, id, body := other.receive(); kind != kindAnswer || id != i+1 || len(body) != 1000 {
				t.Errorf("frame %d of request %d with %d bytes", kind, id, len(body))
			}
		}
	})
}

// What is asked over a silent link only to hear whether it is over is not waited for, also
// not when the other end goes.
func TestProbesAreForgotten(t *testing.T) {
	by(t, Options{}, func(t *testing.T, l *Link, other far) {
		const patience = time.Second
		go func() {
			for {
				if _, err := io.CopyN(io.Discard, other.nc, 1); err != nil {
					return
				}
			}
		}()
		for i := range 4 { // the first waits, later ones ask and do not
			began := time.Now()
			_, err := l.CallHeard(t.Context(), nil, patience)
			if waited := time.Since(began); !errors.Is(err, ErrSilent) || (waited == patience) != (i == 0) {
				t.Errorf("call %d waited for %v: %v", i, waited, err)
			}
			time.Sleep(patience)
		}
		l.mu.Lock()
		if len(l.waiting) != 0 || l.next < 3 {
			t.Errorf("%d requests of %d are waited for", len(l.waiting), l.next)
		}
		l.mu.Unlock()
		other.send(kindBye, 100, "")
		<-l.Done()
		l.Wait()
		if err := l.Err(); !strings.Contains(err.Error(), "orderly") {
			t.Error(err)
		}
	})
}
