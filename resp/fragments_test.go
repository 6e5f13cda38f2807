package resp

import (
	"bytes"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"testing"
	"time"
)

// piped serves one connection that is fed pieces, each read before the next is
// sent, and returns all that it answers. what follows the pieces is the end.
func piped(t *testing.T, opt Options, pieces ...string) string {
	t.Helper()
	opt.Commands = DataCommands()
	s := NewServer(&toy{m: map[string]string{}}, opt)
	client, end := net.Pipe()
	_ = client.SetDeadline(time.Now().Add(20 * time.Second))
	c := newConn(s, end, 1)
	done := make(chan struct{})
	go func() {
		defer close(done)
		c.serve()
	}()
	answers := make(chan string)
	go func() {
		b, _ := io.ReadAll(client)
		answers <- string(b)
	}()
	for _, p := range pieces {
		if _, err := io.WriteString(client, p); err != nil {
			break // the server has ended the connection, as it may
		}
	}
	_, _ = io.WriteString(client, "QUIT\r\n")
	out := <-answers
	client.Close()
	<-done
	if n := s.Stats().Panics; n > 0 {
		t.Errorf("%q: %d panics", pieces, n)
	}
	return out
}

// long is a request with many arguments, all of which come back.
func long(args int, word string) string {
	all := []string{"COMMAND", "GETKEYS", "DEL"}
	for i := len(all); i < args; i++ {
		all = append(all, fmt.Sprint(word, i))
	}
	return string(AppendCommand(nil, all...))
}

// A long request that comes in small pieces is one request, and is bounded.
func TestLongRequest(t *testing.T) {
	in := long(20_000, "x")
	var pieces []string
	for at := 0; at < len(in); at += 97 {
		pieces = append(pieces, in[at:min(len(in), at+97)])
	}
	got, want := piped(t, Options{}, pieces...), piped(t, Options{}, in)
	if got != want || !strings.HasPrefix(got, "*19997\r\n$2\r\nx3\r\n") || !strings.HasSuffix(got, "x19999\r\n+OK\r\n") {
		t.Errorf("%d bytes of pieces were answered with %d bytes, at once with %d", len(in), len(got), len(want))
	}
	got = piped(t, Options{MaxRequest: 100_000}, append(pieces, "PING\r\n")...)
	if !strings.HasPrefix(got, "-ERR argument exceeds") || !strings.HasSuffix(got, "+PONG\r\n+OK\r\n") {
		t.Errorf("beyond the limit: %.200q", got)
	}
}

// Whatever is sent, and wherever it is cut, the answers are the same.
func TestCutAnywhere(t *testing.T) {
	opt := Options{MaxBulk: 64, MaxArgs: 200, MaxInline: 128, MaxRequest: 1200}
	sent := []string{
		"*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$3\r\n\r\nx\r\n*2\r\n$3\r\nGET\r\n$1\r\nk\r\n*2\r\n$3\r\nGET\r\n$1\r\nk\r\nGET k\r\nPING 'a b'\r\n",
		"*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$80\r\n" + strings.Repeat("y", 80) + "\r\nGET k\r\n*1\r\n$4\r\nPING\r\n",
		"MULTI\r\nSET k v\r\nSET k " + strings.Repeat("z", 80) + "\r\n*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$80\r\n" + strings.Repeat("y", 80) + "\r\nEXEC\r\nGET k\r\n",
		"CLIENT REPLY OFF\r\nSET k v\r\nCLIENT REPLY SKIP\r\nCLIENT REPLY ON\r\nGET k\r\nHELLO 3\r\nGET none\r\nRESET\r\nGET none\r\n",
		"*2\r\n$80\r\n" + strings.Repeat("y", 80) + "\r\n$-5\r\nPING\r\n",
		"*201\r\n$4\r\nPING\r\n",
		long(100, "v") + "PING\r\n",
		long(130, "v") + "PING\r\n", // too many bytes
		long(80, "v") + strings.Replace(long(80, "v"), "$3\r\nv79", "$70\r\n"+strings.Repeat("y", 70), 1) + "PING\r\n",
		strings.Replace(long(80, "v"), "$3\r\nv79", "$-1\r\nv79", 1) + "PING\r\n",
	}
	for _, in := range raw {
		if !strings.Contains(in, "QUIT") && len(in) < 60 {
			sent = append(sent, in)
		}
	}
	for _, in := range sent {
		whole := piped(t, opt, in)
		if whole == "" && !strings.HasPrefix(in, "*") {
			t.Errorf("%q was not answered", in)
		}
		for i := 1; i < len(in); i += 1 + len(in)/200 {
			if got := piped(t, opt, in[:i], in[i:]); got != whole {
				t.Fatalf("%q | %q\n got %q\nwant %q", in[:i], in[i:], got, whole)
			}
		}
		if got := piped(t, opt, strings.Split(in, "")...); got != whole {
			t.Errorf("%q byte for byte\n got %q\nwant %q", in, got, whole)
		}
	}
}

// A length that is only declared costs nothing: memory follows the bytes that come.
func TestDeclaredLengths(t *testing.T) {
	for _, in := range []string{"*1048576\r\n", "*2\r\n$3\r\nGET\r\n$16777216\r\n", "*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$536870912\r\nabc"} {
		s := NewServer(&toy{}, Options{})
		client, end := net.Pipe()
		c := newConn(s, end, 1)
		done := make(chan struct{})
		go func() {
			defer close(done)
			c.serve()
		}()
		if _, err := io.WriteString(client, in); err != nil {
			t.Fatal(err)
		}
		client.Close()
		<-done
		if cap(c.in) > 2*firstBuffer || cap(c.args) > 64 {
			t.Errorf("%q made a buffer of %d bytes and %d arguments", in, cap(c.in), cap(c.args))
		}
	}
}

// Who sends and does not read is cut off, and what is kept for them is bounded.
func TestSlowReader(t *testing.T) {
	s := serve(t, Options{WriteTimeout: 50 * time.Millisecond})
	s.dial(t).says("SET k "+strings.Repeat("x", 60_000), "OK")
	slow := s.dial(t)
	go func() {
		for { // ends when the server has had enough
			if _, err := io.WriteString(slow.nc, strings.Repeat("GET k\r\n", 1000)); err != nil {
				return
			}
		}
	}()
	other := s.dial(t)
	for end := time.Now().Add(20 * time.Second); s.Stats().Conns > 2; {
		other.says("PING", "PONG")
		if time.Now().After(end) {
			t.Fatal("the slow reader is still served")
		}
	}
}

func TestIdleConnectionsEnd(t *testing.T) {
	serve(t, Options{IdleTimeout: 50 * time.Millisecond}).dial(t).ended()
}

func TestStrangersEnd(t *testing.T) {
	serve(t, Options{Password: "secret", AuthTimeout: 50 * time.Millisecond}).dial(t).ended()
}

// timed is a connection that writes down how long it may be read.
type timed struct {
	net.Conn
	mu  sync.Mutex
	end time.Time
}

func (c *timed) SetReadDeadline(end time.Time) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.end = end
	return c.Conn.SetReadDeadline(end)
}

func (c *timed) limited() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return !c.end.IsZero()
}

// Who has said the password has all the time there is, however they said it, and
// who is asked again has the whole time again.
func TestTimeToAuthenticate(t *testing.T) {
	for _, say := range []string{"AUTH secret", "AUTH default secret", "HELLO 3 AUTH default secret"} {
		client, end := net.Pipe()
		nc := &timed{Conn: end}
		s := NewServer(&toy{}, Options{Password: "secret", AuthTimeout: time.Hour})
		c := newConn(s, nc, 1)
		began := c.since
		done := make(chan struct{})
		go func() {
			defer close(done)
			c.serve()
		}()
		p := newPeer(t, client)
		p.says("PING", "-NOAUTH...")
		p.send("\r\n") // when this is read, what follows the PING has been waited for
		if !nc.limited() {
			t.Error("a stranger has all the time there is")
		}
		p.send(say + "\r\n")
		if r := p.reply(); strings.HasPrefix(r, "-") {
			t.Error(r)
		}
		p.send("\r\n")
		if nc.limited() {
			t.Errorf("the connection ends in an hour though it said %s", say)
		}
		p.says("RESET", "RESET")
		p.send("\r\n")
		if !nc.limited() || !c.since.After(began) {
			t.Error("after RESET the time does not begin again")
		}
		client.Close()
		<-done
	}
}

// Guessing passwords costs a connection.
func TestGuessing(t *testing.T) {
	p := serve(t, Options{Password: "secret"}).dial(t)
	for range 5 {
		p.says("AUTH wrong", "-WRONGPASS...")
	}
	p.ended()
}

// What had been read when the shutdown came is answered to its end.
func TestShutdownAnswersPipelines(t *testing.T) {
	s := serve(t, Options{})
	p := s.dial(t)
	p.send("WAIT\r\nSET k v\r\n" + strings.Repeat("GET k\r\n", 100) + "PING\r\n")
	<-s.h.entered
	down := make(chan error)
	go func() { down <- s.Shutdown(context.Background()) }()
	for !s.closing.Load() {
		s.Stats()
	}
	close(s.h.leave)
	for _, want := range append([]string{"waited", "OK"}, strings.Fields(strings.Repeat("v ", 100)+"PONG")...) {
		if got := p.reply(); got != want {
			t.Fatalf("%q, want %q", got, want)
		}
	}
	p.ended()
	if err := <-down; err != nil {
		t.Fatal(err)
	}
}

// Half a request does not hold up a shutdown.
func TestShutdownDoesNotWaitForTheRest(t *testing.T) {
	s := serve(t, Options{})
	p := s.dial(t)
	p.says("PING", "PONG")
	p.send("PING\r\n*2\r\n$3\r\nGET\r\n$5\r\nab")
	if got := p.reply(); got != "PONG" {
		t.Fatal(got)
	}
	if err := s.Shutdown(t.Context()); err != nil {
		t.Fatal(err)
	}
	p.ended()
}

// A transaction is bounded, by its arguments even if they are empty.
func TestHugeTransaction(t *testing.T) {
	p := serve(t, Options{}).dial(t)
	p.says("MULTI", "OK")
	one := fmt.Sprintf("*%d\r\n$3\r\nDEL\r\n", 1<<18) + strings.Repeat("$0\r\n\r\n", 1<<18-1)
	refused := false
	for range 16 {
		p.send(one)
		refused = strings.HasPrefix(p.reply(), "-ERR transaction is too large") || refused
	}
	if !refused {
		t.Error("four million arguments were queued")
	}
	p.says("EXEC", "-EXECABORT...")
	p.says("PING", "PONG")
}

// Bytes that are not TLS end only their connection.
func TestPlainBytesToTLS(t *testing.T) {
	s := serve(t, Options{TLS: &tls.Config{GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return nil, io.EOF }}})
	for _, in := range []string{"PING\r\n", "\x16\x03\x01\xff\xff", strings.Repeat("\x00", 1000)} {
		p := s.dial(t)
		p.send(in)
		_ = p.nc.(*net.TCPConn).CloseWrite() // it may be closed already
		_, _ = io.Copy(io.Discard, p.nc)
	}
	if n := s.Stats().Panics; n > 0 {
		t.Errorf("%d panics", n)
	}
}

// FuzzInline: a line is understood or refused, costs no more than its length, and
// is understood the same when its words are quoted.
func FuzzInline(f *testing.F) {
	for _, in := range raw {
		f.Add([]byte(in))
	}
	f.Fuzz(func(t *testing.T, in []byte) {
		n, args, err := parseInline(in, nil, ordinary)
		if err != nil || n == 0 || len(args) == 0 {
			return
		}
		var line bytes.Buffer
		total := 0
		for _, a := range args {
			total += len(a)
			line.WriteByte('"')
			for _, b := range a {
				fmt.Fprintf(&line, `\x%02x`, b)
			}
			line.WriteString("\" ")
		}
		if total > n {
			t.Fatalf("%d bytes became %d", n, total)
		}
		line.WriteString("\r\n")
		m, same, err := parseInline(line.Bytes(), nil, limits{args: 1 << 20, inline: 1 << 20})
		if err != nil || m != line.Len() || len(same) != len(args) {
			t.Fatalf("%q became %q: %v", args, same, err)
		}
		for i := range args {
			if !bytes.Equal(args[i], same[i]) {
				t.Fatalf("%q became %q", args[i], same[i])
			}
		}
	})
}
