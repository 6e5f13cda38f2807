package node

import (
	"context"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/freshet-cache/freshet/peer"
	"github.com/freshet-cache/freshet/shard/lease"
)

// says demands replies, one per command; one that ends in dots is only its beginning.
func (c *wire) says(script [][2]string) {
	c.t.Helper()
	for _, line := range script {
		got := c.do(strings.Fields(line[0])...).String()
		if begin, ok := strings.CutSuffix(line[1], "..."); got != line[1] && !(ok && strings.HasPrefix(got, begin)) {
			c.t.Errorf("%s\n got %q\nwant %q", line[0], got, line[1])
		}
	}
}

// A transaction without commands answers for its watches all the same.
func TestEmptyTransaction(t *testing.T) {
	p := start(t, nil)
	listen, _ := p.Addr(0)
	dial(t, listen).says([][2]string{
		{"MULTI", "OK"}, {"EXEC", "[]"},
		{"WATCH a", "OK"}, {"MULTI", "OK"}, {"EXEC", "[]"},
		{"WATCH a", "OK"}, {"SET a 1", "OK"}, {"MULTI", "OK"}, {"EXEC", "(nil)"},
		{"MULTI", "OK"}, {"PING", "QUEUED"}, {"EXEC", "[PONG]"},
		{"WATCH a", "OK"}, {"SET a 2", "OK"}, {"MULTI", "OK"}, {"PING", "QUEUED"}, {"EXEC", "(nil)"},
	})
	if n := p.nodes[0].server.Stats().Panics; n > 0 {
		t.Errorf("%d commands panicked", n)
	}
}

// A process forgets the link of a node that is gone: nodes come and go for years.
func TestLinksAreForgotten(t *testing.T) {
	p := start(t, nil)
	listen, _ := p.Addr(0)
	other := peer.New(peer.Options{Version: frameVersion})
	l, err := other.Link(t.Context(), listen, peer.Control)
	if err != nil {
		t.Fatal(err)
	}
	linked := func() bool {
		p.mu.Lock()
		defer p.mu.Unlock()
		return p.members["guest/1"].link != nil
	}
	if err := l.Send(lease.Append([]byte{frameVersion, frameLease}, &lease.Renew{Node: "guest/1", Addr: "127.0.0.1:1", Host: "elsewhere"})); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	for _, want := range []bool{true, false} {
		for linked() != want {
			if ctx.Err() != nil {
				t.Fatalf("linked: %v", !want)
			}
			runtime.Gosched()
		}
		other.Close()
	}
}

// What another node sends is refused if it cannot be run, and never ends this one.
func TestJobsThatCannotBeRun(t *testing.T) {
	p := start(t, nil)
	n := p.nodes[0]
	for _, j := range []*job{
		{proto: 2},
		{proto: 2, multi: true},
		{proto: 2, watch: []watched{{"k", 7}}},
		{proto: 2, cmds: [][][]byte{{[]byte("GET")}}},
		{proto: 2, cmds: [][][]byte{{[]byte("SET"), []byte("k")}}},
		{proto: 2, cmds: [][][]byte{{[]byte("NOSUCH"), []byte("k")}}},
		{proto: 2, cmds: [][][]byte{{[]byte("PING")}}},
		{proto: 2, cmds: [][][]byte{{[]byte("SET"), []byte("k"), []byte("v")}, {[]byte("GETRANGE"), []byte("k")}}},
		{proto: 2, multi: true, cmds: [][][]byte{{[]byte("SET"), []byte("k"), []byte("v")}, {[]byte("GETRANGE"), []byte("k")}}},
	} {
		b := n.serve(context.Background(), j.append(nil), nil)
		if len(b) == 0 || b[0] != answerError {
			t.Errorf("%+v was answered with %q", j, b)
		}
	}
	watching := &job{proto: 2, multi: true, watch: []watched{{"k", 7}}}
	if b := n.serve(context.Background(), watching.append(nil), nil); string(b) != string(rune(answerDone))+"*-1\r\n" {
		t.Errorf("a transaction that only watches was answered with %q", b)
	}
	if b := n.serve(context.Background(), []byte{frameVersion, frameRead}, nil); len(b) == 0 {
		t.Error("a read of the empty key was not answered")
	}
}

// No command, with no arguments or many, whatever they are, panics.
func TestEveryCommandWithNonsense(t *testing.T) {
	p := start(t, func(c *Config) { c.MaxValue = 1 << 10 })
	listen, _ := p.Addr(0)
	c := dial(t, listen)
	words := []string{"", "0", "1", "-1", "k", "x\x00\xff", "9223372036854775807", "-9223372036854775808", "EX", "NX", "GET", "COUNT", "MATCH", "[", "\\", "*", strings.Repeat("x", 1500)}
	for _, cmd := range p.commands {
		if cmd.Name == "fr.link" || cmd.Name == "fr.drain" {
			continue // these end the conversation
		}
		for size := range 5 {
			for i := range 3 * len(words) {
				args := []string{cmd.Name}
				for j := range size {
					args = append(args, words[(i*(j+1)+j*7)%len(words)])
				}
				if r := c.do(args...); r.Kind == 0 || strings.Contains(r.Text, "internal error") {
					t.Errorf("%q: %v", args, r)
				}
			}
		}
	}
	if n := p.nodes[0].server.Stats().Panics; n > 0 {
		t.Errorf("%d commands panicked", n)
	}
}

// A small request does not make a huge answer: what MGET and EXEC read is bounded,
// and GETs in a pipeline are sent as they come.
func TestAnswersAreBounded(t *testing.T) {
	p := start(t, nil)
	listen, _ := p.Addr(0)
	c := dial(t, listen)
	c.do("set", "k", strings.Repeat("x", 8<<20))
	mget := []string{"mget"}
	for range 20 {
		mget = append(mget, "k")
	}
	c.says([][2]string{{strings.Join(mget, " "), "-ERR the values asked for..."}, {"MULTI", "OK"}})
	for range 20 {
		c.do("get", "k")
	}
	c.says([][2]string{{"INCR n", "QUEUED"}, {"EXEC", "-ERR the values asked for..."}, {"GET n", "(nil)"}})
	if _, err := c.nc.Write([]byte(strings.Repeat("GET k\r\n", 16))); err != nil {
		t.Fatal(err)
	}
	for range 16 {
		if r := c.reply(); len(r.Text) != 8<<20 {
			t.Fatalf("%d bytes", len(r.Text))
		}
	}
}
