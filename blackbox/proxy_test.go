package blackbox

import (
	"io"
	"math/rand/v2"
	"net"
	"sync"
	"testing"
	"time"
)

// proxy forwards TCP connections and injects faults.
type proxy struct {
	listener net.Listener
	target   string

	mu    sync.Mutex
	cut   bool          // connections are reset and new ones refused
	mute  chan struct{} // if not nil, nothing passes until it is closed, and neither end notices
	delay time.Duration // delay of every piece, each way
	conns map[net.Conn]bool
	rnd   *rand.Rand
	work  sync.WaitGroup
}

// between starts a proxy to target.
func between(t *testing.T, target string, seed uint64) *proxy {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &proxy{listener: l, target: target, conns: map[net.Conn]bool{}, rnd: rand.New(rand.NewPCG(seed, 77))}
	p.work.Go(p.accept)
	t.Cleanup(func() {
		_ = l.Close()
		p.heal()
		p.drop()
		p.work.Wait()
	})
	return p
}

func (p *proxy) addr() string { return p.listener.Addr().String() }

func (p *proxy) accept() {
	for {
		c, err := p.listener.Accept()
		if err != nil {
			return
		}
		p.work.Go(func() { p.serve(c) })
	}
}

func (p *proxy) serve(c net.Conn) {
	defer c.Close()
	p.mu.Lock()
	cut := p.cut
	p.mu.Unlock()
	if cut {
		return
	}
	to, err := net.DialTimeout("tcp", p.target, 5*time.Second)
	if err != nil {
		return
	}
	defer to.Close()
	p.mu.Lock()
	p.conns[c], p.conns[to] = true, true
	p.mu.Unlock()
	var both sync.WaitGroup
	both.Go(func() { p.pass(c, to) })
	both.Go(func() { p.pass(to, c) })
	both.Wait()
	p.mu.Lock()
	delete(p.conns, c)
	delete(p.conns, to)
	p.mu.Unlock()
}

// pass copies pieces one way, with the delay of the proxy, in order.
func (p *proxy) pass(from, to net.Conn) {
	type piece struct {
		b   []byte
		due time.Time
	}
	pieces := make(chan piece, 1024)
	var writer sync.WaitGroup
	writer.Go(func() {
		for x := range pieces {
			if wait := time.Until(x.due); wait > 0 {
				late := time.NewTimer(wait) // the delay itself
				<-late.C
			}
			p.unmuted()
			if _, err := to.Write(x.b); err != nil {
				_ = from.Close()
			}
		}
		p.unmuted() // the end of a connection does not pass either
		_ = to.Close()
	})
	buf := make([]byte, 32<<10)
	for {
		n, err := from.Read(buf)
		if n > 0 {
			p.mu.Lock()
			d := p.delay
			if d > 0 {
				d = d/2 + time.Duration(p.rnd.Int64N(int64(d)))
			}
			p.mu.Unlock()
			pieces <- piece{append([]byte(nil), buf[:n]...), time.Now().Add(d)}
		}
		if err != nil {
			break
		}
	}
	close(pieces)
	writer.Wait()
}

// unmuted waits until pieces may pass.
func (p *proxy) unmuted() {
	p.mu.Lock()
	mute := p.mute
	p.mu.Unlock()
	if mute != nil {
		<-mute
	}
}

// spoil begins a fault. heal ends every fault.
func (p *proxy) spoil(how string, d time.Duration) {
	p.mu.Lock()
	switch how {
	case "cut":
		p.cut = true
	case "mute":
		if p.mute == nil {
			p.mute = make(chan struct{})
		}
	case "delay":
		p.delay = d
	}
	p.mu.Unlock()
	if how == "cut" {
		p.drop()
	}
}

// drop resets every connection.
func (p *proxy) drop() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for c := range p.conns {
		if tc, ok := c.(*net.TCPConn); ok {
			_ = tc.SetLinger(0)
		}
		_ = c.Close()
	}
}

func (p *proxy) heal() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.cut, p.delay = false, 0
	if p.mute != nil {
		close(p.mute)
		p.mute = nil
	}
}

// echoing returns the address of a server that echoes.
func echoing(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() { _, _ = io.Copy(c, c) }()
		}
	}()
	return l.Addr().String()
}

// The proxy passes what it is given, late or not at all as told.
func TestProxy(t *testing.T) {
	p := between(t, echoing(t), 1)
	echo := func(c net.Conn, text string) error {
		_ = c.SetDeadline(time.Now().Add(10 * time.Second))
		if _, err := io.WriteString(c, text); err != nil {
			return err
		}
		b := make([]byte, len(text))
		_, err := io.ReadFull(c, b)
		if err == nil && string(b) != text {
			t.Errorf("%q came back as %q", text, b)
		}
		return err
	}
	dial := func() net.Conn {
		c, err := net.Dial("tcp", p.addr())
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	c := dial()
	defer c.Close()
	if err := echo(c, "plain"); err != nil {
		t.Fatal(err)
	}
	p.spoil("delay", 5*time.Millisecond)
	if err := echo(c, "late"); err != nil {
		t.Fatal(err)
	}
	p.heal()
	p.spoil("mute", 0)
	answered := make(chan error, 1)
	go func() { answered <- echo(c, "held back") }()
	select {
	case err := <-answered:
		t.Fatalf("what was muted has passed: %v", err)
	case <-time.NewTimer(20 * time.Millisecond).C: // nothing is what is waited for
	}
	p.heal()
	if err := <-answered; err != nil {
		t.Fatal(err)
	}
	p.spoil("cut", 0)
	if err := echo(c, "gone"); err == nil {
		t.Error("a cut connection answers")
	}
	d := dial()
	defer d.Close()
	if err := echo(d, "gone"); err == nil {
		t.Error("a connection was taken while it was cut")
	}
	p.heal()
	e := dial()
	defer e.Close()
	if err := echo(e, "again"); err != nil {
		t.Error(err)
	}
}
