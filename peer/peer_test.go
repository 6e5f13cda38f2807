package peer

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"
	"testing"

	"github.com/freshet-cache/freshet/link"
	"github.com/freshet-cache/freshet/resp"
)

// other is a node that offers services: it takes connections as a node does.
type other struct {
	Services
	addr string
	says string // what FR.LINK is answered with
	mu   sync.Mutex
	all  []net.Conn
}

func listen(t *testing.T) *other {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	o := &other{addr: l.Addr().String(), says: "+OK\r\n"}
	var work sync.WaitGroup
	work.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			o.mu.Lock()
			o.all = append(o.all, c)
			o.mu.Unlock()
			work.Go(func() { o.serve(c) })
		}
	})
	t.Cleanup(func() {
		l.Close()
		o.hangUp()
		work.Wait()
	})
	return o
}

// hangUp breaks every connection.
func (o *other) hangUp() {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, c := range o.all {
		c.Close()
	}
	o.all = nil
}

// serve answers one connection's FR.LINK, and serves what it asked for.
func (o *other) serve(c net.Conn) {
	defer c.Close()
	r := bufio.NewReader(c)
	cmd, err := resp.ReadReply(r)
	if err != nil {
		return
	}
	stream := ""
	if len(cmd.Elems) == 4 {
		stream = cmd.Elems[3].Text
	}
	o.mu.Lock()
	says := o.says
	o.mu.Unlock()
	if _, err := c.Write([]byte(says)); err != nil || says[0] != '+' {
		return
	}
	if stream != "" {
		if accept := o.Accept(stream, 0); accept != nil {
			accept(c, r)
		}
		return
	}
	l := link.New(c, r, link.Options{Message: func([]byte) {}, Request: func(ctx context.Context, frame []byte) []byte { return o.Answer(ctx, frame[2:]) }})
	<-l.Done()
	l.Wait()
}

func dialling(t *testing.T) *Peers {
	p := New(Options{Version: 7, Addr: "here", Message: func([]byte) {}, Request: func(context.Context, []byte) []byte { return nil }})
	t.Cleanup(p.Close)
	return p
}

// A request to a service says whether it was done, certainly not, or perhaps.
func TestAnswersOfServices(t *testing.T) {
	o, p := listen(t), dialling(t)
	o.Offer("echo", func(_ context.Context, request []byte) ([]byte, error) { return request, nil })
	o.Offer("no", func(context.Context, []byte) ([]byte, error) { return nil, errors.New("not today") })
	o.Offer("dies", func(context.Context, []byte) ([]byte, error) { o.hangUp(); return nil, nil })
	if o.Offer("echo", nil) {
		t.Error("two services have one name")
	}
	for _, size := range []int{0, 1, 100_000} {
		want := strings.Repeat("x", size)
		if b, err := p.Ask(t.Context(), o.addr, Control, "echo", []byte(want)); err != nil || string(b) != want {
			t.Errorf("%d bytes come back as %d, %v", size, len(b), err)
		}
	}
	if _, err := p.Ask(t.Context(), o.addr, Control, "no", nil); !errors.Is(err, ErrRefused) || !strings.Contains(err.Error(), "not today") {
		t.Errorf("a refusal is %v", err)
	}
	if _, err := p.Ask(t.Context(), o.addr, Control, "nobody", nil); !errors.Is(err, ErrRefused) || !strings.Contains(err.Error(), "open it in every process") {
		t.Errorf("a service that nobody offers: %v", err)
	}
	if _, err := p.Ask(t.Context(), o.addr, Writes, "dies", nil); err == nil || errors.Is(err, ErrRefused) || errors.Is(err, ErrUnreached) {
		t.Errorf("the connection broke under the request, and it is said that nothing was done: %v", err)
	}
	if b, err := p.Ask(t.Context(), o.addr, Writes, "echo", []byte("again")); err != nil || string(b) != "again" {
		t.Errorf("a broken link is not dialled again: %q, %v", b, err)
	}
	if out := o.Answer(t.Context(), []byte{9, 'x'}); len(out) == 0 || out[0] != refused {
		t.Errorf("half a request is answered with %q", out)
	}
}

// Who is not there, or speaks another version, was not reached.
func TestUnreached(t *testing.T) {
	o, p := listen(t), dialling(t)
	o.says = "-ERR this node speaks link version 8\r\n"
	if _, err := p.Ask(t.Context(), o.addr, Control, "echo", nil); !errors.Is(err, ErrUnreached) || !strings.Contains(err.Error(), "version 8") {
		t.Errorf("another version: %v", err)
	}
	if p.Stands(o.addr, Control) {
		t.Error("a link stands that was refused")
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := p.Call(ctx, o.addr, Reads, []byte{7, Named}); !errors.Is(err, ErrUnreached) {
		t.Errorf("who did not wait for the link: %v", err)
	}
	p.Close()
	if _, err := p.Ask(t.Context(), o.addr, Control, "echo", nil); !errors.Is(err, ErrUnreached) {
		t.Errorf("after Close: %v", err)
	}
}

// The frames of a stream arrive in order at whoever offers it, and its end reaches both sides.
func TestStreams(t *testing.T) {
	o, p := listen(t), dialling(t)
	got, over := make(chan string, 100), make(chan struct{})
	o.OfferStream("numbers", func(l *link.Link) func([]byte) {
		go func() { <-l.Done(); close(over) }()
		return func(frame []byte) {
			got <- string(frame)
			_ = l.Send(append([]byte("heard "), frame...))
		}
	})
	back := make(chan string, 100)
	l, err := p.Stream(o.addr, "numbers", func(frame []byte) { back <- string(frame) })
	if err != nil {
		t.Fatal(err)
	}
	for i := range 50 {
		if err := l.Send(fmt.Append(nil, i)); err != nil {
			t.Fatal(err)
		}
	}
	for i := range 50 {
		if g := <-got; g != fmt.Sprint(i) {
			t.Fatalf("frame %d is %s", i, g)
		}
		if b := <-back; b != fmt.Sprint("heard ", i) {
			t.Fatalf("answer %d is %s", i, b)
		}
	}
	l.Close()
	<-over
}
