package resp

import (
	"net"
	"strings"
	"sync"
	"testing"
	"time"
)

// coordinator is a toy whose wait lets pushes through, and says that it reads.
type slowToy struct {
	*toy
	reads bool
}

func (h *slowToy) Command(c *Conn, cmd *Command, args [][]byte, w *Writer) {
	if cmd.Name == "wait" {
		if h.reads {
			c.Reads()
		}
		w.MayBlock()
	}
	h.toy.Command(c, cmd, args, w)
}

// open starts a server with a coordinator, and connects to it.
func open(t *testing.T, reads bool, opt Options) (*slowToy, *Server, *peer) {
	t.Helper()
	h := &slowToy{&toy{m: map[string]string{"k": "v"}, entered: make(chan struct{}), leave: make(chan struct{})}, reads}
	opt.Commands = append(DataCommands(), Command{Name: "wait", Arity: 1})
	s := NewServer(h, opt)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var serving sync.WaitGroup
	serving.Go(func() { _ = s.Serve(l) })
	t.Cleanup(func() {
		_ = s.Close()
		serving.Wait()
	})
	nc, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { nc.Close() })
	return h, s, newPeer(t, nc)
}

func (p *peer) wants(lines ...string) {
	p.t.Helper()
	for _, want := range lines {
		if got := p.reply(); got != want {
			p.t.Errorf("%q, want %q", got, want)
		}
	}
}

// Pushes come between replies: at once while the client is waited for or a command
// waits, behind the reply when a command is busy, and again behind that of a read.
func TestPushesComeBetweenReplies(t *testing.T) {
	for _, reads := range []bool{false, true} {
		h, s, p := open(t, reads, Options{})
		p.says("PING", "PONG")
		c := s.Conns()[0]
		if err := c.Push([]byte("+idle\r\n")); err != nil {
			t.Fatal(err)
		}
		p.wants("idle")
		p.send("GET k\r\nGET k\r\nWAIT\r\nPING\r\n")
		<-h.entered
		if err := c.Push([]byte("+waiting\r\n")); err != nil {
			t.Fatal(err)
		}
		p.wants("v", "v", "waiting")
		if err := c.PushAfter([]byte("+own\r\n")); err != nil {
			t.Fatal(err)
		}
		close(h.leave)
		if p.wants("waited"); reads {
			p.wants("waiting")
		}
		p.wants("own", "PONG")
		if err := c.PushAfter([]byte("+own\r\n")); err != nil {
			t.Fatal(err)
		}
		p.wants("own")
		p.says("PING", "PONG")
	}
}

// Many may push while the client sends: nothing is torn, nothing is lost.
func TestManyPushes(t *testing.T) {
	_, s, p := open(t, false, Options{})
	p.says("PING", "PONG")
	c := s.Conns()[0]
	const each, pushers = 300, 4
	var wg sync.WaitGroup
	for range pushers {
		wg.Go(func() {
			for range each {
				if err := c.Push([]byte("+pushed\r\n")); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	wg.Go(func() { p.send(strings.Repeat("GET k\r\nPING\r\n", each)) })
	count := map[string]int{}
	for range each * (pushers + 2) {
		count[p.reply()]++
	}
	wg.Wait()
	if count["pushed"] != each*pushers || count["v"] != each || count["PONG"] != each {
		t.Errorf("%v", count)
	}
}

// Who takes no push is cut off, and who pushes goes on.
func TestPushToTheDeaf(t *testing.T) {
	_, s, p := open(t, false, Options{PushTimeout: 10 * time.Millisecond})
	p.says("PING", "PONG")
	c := s.Conns()[0]
	for c.Push([]byte("+"+strings.Repeat("long", 10_000)+"\r\n")) == nil {
	}
	if n := s.Stats().Dropped; n != 1 {
		t.Errorf("%d clients were cut off", n)
	}
	if c.Push([]byte("+late\r\n")) == nil || c.PushAfter([]byte("+late\r\n")) == nil && s.Conn(c.ID()) == nil {
		t.Error("a push to a client that has gone succeeds")
	}
}

// Without a handler that tracks, tracking is refused, and says so.
func TestTrackingIsRefused(t *testing.T) {
	_, _, p := open(t, false, Options{})
	p.send("CLIENT TRACKING ON\r\n")
	if got := p.reply(); !strings.Contains(got, "not supported") {
		t.Errorf("%q", got)
	}
}

// Subcommands about tracking are described like commands.
func TestSubcommandsAreDescribed(t *testing.T) {
	_, _, p := open(t, false, Options{})
	for _, name := range []string{"client|tracking", "CLIENT|CACHING", "client|trackinginfo", "client|getredir", "subscribe", "unsubscribe"} {
		p.send("COMMAND INFO " + name + "\r\n")
		if got := p.reply(); !strings.HasPrefix(got, "[["+strings.ToLower(name)+" ") {
			t.Errorf("%s: %s", name, got)
		}
		p.send("COMMAND DOCS " + name + "\r\n")
		if got := p.reply(); !strings.Contains(got, "summary ") {
			t.Errorf("%s: %s", name, got)
		}
	}
}
