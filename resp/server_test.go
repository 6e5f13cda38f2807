package resp

import (
	"bufio"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"math/big"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// toy is a handler with a map for a store.
type toy struct {
	mu      sync.Mutex
	m       map[string]string
	entered chan struct{} // a wait command has begun
	leave   chan struct{} // it may end
	idles   atomic.Int64
}

func (h *toy) Command(c *Conn, cmd *Command, args [][]byte, w *Writer) {
	h.mu.Lock()
	defer h.mu.Unlock()
	switch cmd.Name {
	case "get":
		v, ok := h.m[string(args[1])]
		if !ok {
			w.Null()
			return
		}
		w.BulkString(v)
	case "set":
		h.m[string(args[1])] = string(args[2])
		w.SimpleString("OK")
	case "wait":
		close(h.entered)
		select {
		case <-h.leave:
		case <-c.Context().Done():
		}
		w.SimpleString("waited")
	case "panic":
		w.SimpleString("half an answer")
		panic("at the disco")
	case "take":
		w.SimpleString("yours")
		c.Hijack(func(nc net.Conn, r *bufio.Reader) {
			_, _ = io.Copy(nc, r)
		})
	default:
		w.SimpleString(cmd.Name)
	}
}

func (h *toy) Gets(c *Conn, cmd *Command, keys [][]byte, w *Writer) {
	for _, k := range keys {
		h.Command(c, cmd, [][]byte{[]byte("get"), k}, w)
	}
}

func (h *toy) Sets(c *Conn, cmd *Command, pairs [][]byte, w *Writer) {
	for p := range slices.Chunk(pairs, 2) {
		h.Command(c, cmd, [][]byte{[]byte("set"), p[0], p[1]}, w)
	}
}

func (h *toy) Exec(c *Conn, cmds []Queued, w *Writer) {
	w.Array(len(cmds))
	for _, q := range cmds {
		h.Command(c, q.Cmd, q.Args, w)
	}
}

func (h *toy) Idle(*Conn)   { h.idles.Add(1) }
func (h *toy) Closed(*Conn) {}

type server struct {
	*Server
	h    *toy
	addr string
	done chan error
}

func serve(t *testing.T, opt Options) *server {
	t.Helper()
	h := &toy{m: map[string]string{}, entered: make(chan struct{}), leave: make(chan struct{})}
	opt.Commands = append(DataCommands(), Command{Name: "wait", Arity: 1, Group: "toy"}, Command{Name: "panic", Arity: 1, Group: "toy"}, Command{Name: "take", Arity: 1, Group: "toy"})
	s := &server{Server: NewServer(h, opt), h: h, done: make(chan error, 1)}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s.addr = l.Addr().String()
	go func() { s.done <- s.Serve(l) }()
	t.Cleanup(func() {
		_ = s.Close()
		if err := <-s.done; !errors.Is(err, ErrClosed) {
			t.Errorf("Serve ended with %v", err)
		}
	})
	return s
}

// peer is a client that says bytes and reads replies.
type peer struct {
	t  *testing.T
	nc net.Conn
	r  *bufio.Reader
}

func (s *server) dial(t *testing.T) *peer {
	t.Helper()
	nc, err := net.Dial("tcp", s.addr)
	if err != nil {
		t.Fatal(err)
	}
	return newPeer(t, nc)
}

func newPeer(t *testing.T, nc net.Conn) *peer {
	t.Cleanup(func() { nc.Close() })
	_ = nc.SetDeadline(time.Now().Add(20 * time.Second))
	return &peer{t, nc, bufio.NewReader(nc)}
}

func (p *peer) send(text string) {
	p.t.Helper()
	if _, err := io.WriteString(p.nc, text); err != nil {
		p.t.Fatal(err)
	}
}

func (p *peer) reply() string {
	p.t.Helper()
	r, err := ReadReply(p.r)
	if err != nil {
		return "error " + err.Error()
	}
	return r.String()
}

// says sends a line and demands the reply, or a reply that begins with it if it
// ends in dots.
func (p *peer) says(line, want string) {
	p.t.Helper()
	p.send(line + "\r\n")
	got := p.reply()
	if begin, ok := strings.CutSuffix(want, "..."); got != want && !(ok && strings.HasPrefix(got, begin)) {
		p.t.Errorf("%s\n got %q\nwant %q", line, got, want)
	}
}

func (p *peer) ended() {
	p.t.Helper()
	if _, err := p.r.ReadByte(); err != io.EOF {
		p.t.Errorf("the connection goes on: %v", err)
	}
}

func TestConversation(t *testing.T) {
	p := serve(t, Options{}).dial(t)
	for _, c := range [][2]string{
		{"PING", "PONG"},
		{"ping hello", "hello"},
		{"ECHO x", "x"},
		{"GET k", "(nil)"},
		{"SET k v", "OK"},
		{"get k", "v"},
		{"GET", "-ERR wrong number of arguments for 'get' command"},
		{"NOSUCH a b", "-ERR unknown command 'NOSUCH', with args beginning with: 'a' 'b' "},
		{"HELLO 9", "-NOPROTO..."},
		{"HELLO 3", "[server redis version 7.4.0 proto 3..."},
		{"HELLO 2", "[server redis version 7.4.0 proto 2..."},
		{"SELECT 0", "OK"},
		{"SELECT 1", "-ERR..."},
		{"CLIENT SETNAME me", "OK"},
		{"CLIENT GETNAME", "me"},
		{"CLIENT SETNAME \"a b\"", "-ERR..."},
		{"CLIENT ID", "1"},
		{"CLIENT SETINFO LIB-NAME x", "OK"},
		{"CLIENT NOSUCH", "-ERR..."},
		{"CLIENT LIST", "id=1 addr=..."},
		{"COMMAND COUNT", "..."},
		{"COMMAND DOCS get", "[get [summary..."},
		{"COMMAND INFO get nosuch", "[[get 2 [readonly..."},
		{"RESET", "RESET"},
		{"CLIENT GETNAME", "(nil)"},
	} {
		p.says(c[0], c[1])
	}
	p.says("QUIT", "OK")
	p.ended()
}

func TestTransactions(t *testing.T) {
	p := serve(t, Options{}).dial(t)
	for _, c := range [][2]string{
		{"EXEC", "-ERR EXEC without MULTI"},
		{"DISCARD", "-ERR DISCARD without MULTI"},
		{"MULTI", "OK"},
		{"MULTI", "-ERR MULTI calls can not be nested"},
		{"SET k v", "QUEUED"},
		{"GET k", "QUEUED"},
		{"EXEC", "[OK v]"},
		{"MULTI", "OK"},
		{"SET k w", "QUEUED"},
		{"GET", "-ERR wrong number..."},
		{"EXEC", "-EXECABORT..."},
		{"GET k", "v"},
		{"MULTI", "OK"},
		{"SET k w", "QUEUED"},
		{"DISCARD", "OK"},
		{"GET k", "v"},
	} {
		p.says(c[0], c[1])
	}
}

// A pipeline is answered in order, however its GETs are taken together, and with
// whatever stands between them.
func TestPipeline(t *testing.T) {
	s := serve(t, Options{})
	p := s.dial(t)
	var sent strings.Builder
	var want []string
	for i := range 300 {
		switch {
		case i%70 == 0:
			fmt.Fprintf(&sent, "SET k%d v%d\r\n", i/70, i)
			want = append(want, "OK")
		case i%41 == 0:
			sent.WriteString("get\r\n")
			want = append(want, "-ERR wrong number of arguments for 'get' command")
		default:
			fmt.Fprintf(&sent, "*2\r\n$3\r\n%s\r\n$2\r\nk%d\r\n", []string{"GET", "get"}[i/100%2], i/70)
			want = append(want, fmt.Sprintf("v%d", i/70*70))
		}
	}
	p.send(sent.String())
	for i, w := range want {
		if got := p.reply(); got != w {
			t.Fatalf("reply %d is %q, want %q", i, got, w)
		}
	}
	p.says("PING", "PONG") // everything before it has been counted
	if n := s.Stats().Commands; n < 300 {
		t.Fatalf("%d commands were counted", n)
	}
}

func TestClientReply(t *testing.T) {
	p := serve(t, Options{}).dial(t)
	p.send("CLIENT REPLY OFF\r\nPING\r\nGET k\r\nGET k\r\n")
	p.says("CLIENT REPLY ON", "OK")
	p.send("CLIENT REPLY SKIP\r\nPING\r\n")
	p.says("ECHO x", "x")
}

func TestMalformedEndsOnlyItsConnection(t *testing.T) {
	s := serve(t, Options{})
	other := s.dial(t)
	for _, c := range requests {
		if c.bad == "" || strings.HasPrefix(c.in, "a") || strings.HasPrefix(c.in, "*2000000") {
			continue // within this server's limits
		}
		p := s.dial(t)
		p.says(c.in+"\r\n", "-ERR Protocol error: "+c.bad+"...")
		p.ended()
	}
	other.says("PING", "PONG")
}

func TestOversizeIsSkipped(t *testing.T) {
	p := serve(t, Options{MaxBulk: 100}).dial(t)
	for _, size := range []int{101, 5000, 1 << 20} {
		p.send(fmt.Sprintf("*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$%d\r\n%s\r\n", size, strings.Repeat("x", size)))
		if got := p.reply(); !strings.HasPrefix(got, "-ERR argument exceeds the limit") {
			t.Fatal(got)
		}
	}
	p.says("GET k", "(nil)")
}

func TestPassword(t *testing.T) {
	s := serve(t, Options{Password: "secret"})
	p := s.dial(t)
	for _, c := range [][2]string{
		{"GET k", "-NOAUTH..."},
		{"HELLO 3", "-NOAUTH..."},
		{"AUTH wrong", "-WRONGPASS..."},
		{"AUTH someone secret", "-WRONGPASS..."},
		{"AUTH default secret", "OK"},
		{"GET k", "(nil)"},
		{"RESET", "RESET"},
		{"GET k", "-NOAUTH..."},
		{"HELLO 3 AUTH default secret SETNAME me", "[server..."},
		{"CLIENT GETNAME", "me"},
	} {
		p.says(c[0], c[1])
	}
	stranger := s.dial(t)
	stranger.says(fmt.Sprintf("*2\r\n$4\r\nAUTH\r\n$%d\r\n", 1<<20), "-ERR Protocol error...") // nobody buffers a stranger's megabyte
}

func TestTooManyConnections(t *testing.T) {
	s := serve(t, Options{MaxConns: 2})
	s.dial(t).says("PING", "PONG")
	second := s.dial(t)
	second.says("PING", "PONG")
	third := s.dial(t)
	if got := third.reply(); !strings.HasPrefix(got, "-ERR max number of clients") {
		t.Fatal(got)
	}
	third.ended()
	second.says("PING", "PONG")
}

// Clients that take every connection do not keep out what has connections to spare.
func TestSpareConnections(t *testing.T) {
	s := serve(t, Options{MaxConns: 1, Spare: 1, Password: "secret", Commands: []Command{
		{Name: "get", Arity: 2}, {Name: "link", Arity: 1, Spare: true}}})
	first := s.dial(t)
	first.says("AUTH secret", "OK")
	first.says("PING", "PONG")
	client := s.dial(t)
	client.says("AUTH secret", "OK")
	client.says("PING", "-ERR max number of clients reached")
	client.ended()
	node := s.dial(t)
	node.says("AUTH secret", "OK")
	node.says("LINK", "...")
	third := s.dial(t)
	if got := third.reply(); !strings.HasPrefix(got, "-ERR max number of clients") {
		t.Fatal(got)
	}
}

func TestPanicIsOneError(t *testing.T) {
	s := serve(t, Options{})
	p := s.dial(t)
	p.send("SET k v\r\nPANIC\r\nGET k\r\n")
	for _, want := range []string{"OK", "-ERR internal error", "v"} {
		if got := p.reply(); !strings.HasPrefix(got, want) {
			t.Fatalf("%q, want %q", got, want)
		}
	}
	if s.Stats().Panics != 1 {
		t.Fatal("the panic was not counted")
	}
}

// A command under way is answered; who is idle is told to go.
func TestShutdown(t *testing.T) {
	s := serve(t, Options{})
	idle, busy := s.dial(t), s.dial(t)
	idle.says("PING", "PONG")
	busy.send("WAIT\r\n")
	<-s.h.entered
	down := make(chan error)
	go func() { down <- s.Shutdown(context.Background()) }()
	idle.ended()
	close(s.h.leave)
	if got := busy.reply(); got != "waited" {
		t.Fatal(got)
	}
	busy.ended()
	if err := <-down; err != nil {
		t.Fatal(err)
	}
}

func TestShutdownHasAnEnd(t *testing.T) {
	s := serve(t, Options{})
	p := s.dial(t)
	p.send("WAIT\r\n")
	<-s.h.entered
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if err := s.Shutdown(ctx); !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
	if got := p.reply(); !strings.HasPrefix(got, "error") {
		t.Fatalf("a connection that was cut got %q", got)
	}
}

func TestHijack(t *testing.T) {
	p := serve(t, Options{}).dial(t)
	p.send("TAKE\r\nwhat follows is not RESP")
	if got := p.reply(); got != "yours" {
		t.Fatal(got)
	}
	back := make([]byte, len("what follows is not RESP"))
	if _, err := io.ReadFull(p.r, back); err != nil || string(back) != "what follows is not RESP" {
		t.Fatalf("%q %v", back, err)
	}
}

func TestTLS(t *testing.T) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour), IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	s := serve(t, Options{TLS: &tls.Config{Certificates: []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: key}}}})
	cert, _ := x509.ParseCertificate(der)
	pool := x509.NewCertPool()
	pool.AddCert(cert)
	nc, err := tls.Dial("tcp", s.addr, &tls.Config{RootCAs: pool})
	if err != nil {
		t.Fatal(err)
	}
	newPeer(t, nc).says("PING", "PONG")
	plain := s.dial(t)
	plain.send("PING\r\n")
	if got := plain.reply(); !strings.HasPrefix(got, "error") {
		t.Fatalf("a plain connection was answered %q", got)
	}
}

// FuzzConversation: bytes of any kind never take the server down, and never harm
// another connection.
func FuzzConversation(f *testing.F) {
	for _, c := range requests {
		f.Add([]byte(c.in))
	}
	f.Add([]byte(long(100, "v") + "*2\r\n$4\r\nECHO\r\n$2000\r\n"))
	h := &toy{m: map[string]string{}}
	s := NewServer(h, Options{Commands: DataCommands(), MaxBulk: 1 << 10, MaxArgs: 200, MaxInline: 256, MaxRequest: 4 << 10})
	f.Cleanup(func() { _ = s.Close() })
	f.Fuzz(func(t *testing.T, in []byte) {
		client, end := net.Pipe()
		c := newConn(s, end, 1)
		done := make(chan struct{})
		go func() {
			defer close(done)
			if take := c.serve(); take != nil {
				take()
			}
		}()
		go func() { _, _ = io.Copy(io.Discard, client) }()
		_ = client.SetWriteDeadline(time.Now().Add(5 * time.Second))
		_, _ = client.Write(in)
		client.Close()
		<-done
		if n := s.Stats().Panics; n > 0 {
			t.Fatalf("%q made a command panic", in)
		}
	})
}
