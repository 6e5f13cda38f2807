package node

import (
	"bufio"
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/freshet-cache/freshet/resp"
)

// start runs a process on free ports, with a store in memory.
func start(t testing.TB, change func(*Config)) *Process {
	t.Helper()
	cfg := Defaults()
	cfg.Listen, cfg.Admin, cfg.Store = "127.0.0.1:0", "127.0.0.1:0", "memory:"
	if change != nil {
		change(&cfg)
	}
	p, err := Start(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
		defer cancel()
		if err := p.Stop(ctx); err != nil {
			t.Error(err)
		}
	})
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	if err := p.Ready(ctx); err != nil {
		t.Fatal(err)
	}
	return p
}

// wire is a connection that speaks RESP by hand.
type wire struct {
	t  testing.TB
	nc net.Conn
	r  *bufio.Reader
}

func dial(t testing.TB, addr string) *wire {
	t.Helper()
	nc, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { nc.Close() })
	_ = nc.SetDeadline(time.Now().Add(60 * time.Second))
	return &wire{t, nc, bufio.NewReader(nc)}
}

func (c *wire) send(args ...string) {
	c.t.Helper()
	if _, err := c.nc.Write(resp.AppendCommand(nil, args...)); err != nil {
		c.t.Fatal(err)
	}
}

func (c *wire) do(args ...string) resp.Reply {
	c.t.Helper()
	c.send(args...)
	return c.reply()
}

func (c *wire) reply() resp.Reply {
	c.t.Helper()
	r, err := resp.ReadReply(c.r)
	if err != nil {
		c.t.Fatal(err)
	}
	return r
}

// realRedis is the real one, if there is one.
func realRedis(t *testing.T) string {
	addr := os.Getenv("FRESHET_TEST_REDIS")
	if addr == "" && os.Getenv("FRESHET_TEST_REQUIRE") != "" {
		t.Fatal("FRESHET_TEST_REDIS is not set, and tests that need it may not be skipped")
	}
	if addr == "" {
		t.Skip("no real redis-server to compare with: set FRESHET_TEST_REDIS=HOST:PORT, or run make test")
	}
	return addr
}

// differences from Redis that are meant, by the command as it was sent: Redis's
// answer, and ours.
var differences = []struct{ command, redis, freshet, why string }{
	{`^(set|getset|setex|psetex|setnx|mset|append|setrange|get|getdel|strlen|del|incr|exists)\b.* ?$`, `.*`, `^-ERR a key of 0 bytes`, "keys have at least one byte"},
}

// times are replies that tell the time, which passes between two answers.
var times = regexp.MustCompile(`^(ttl|pttl|expiretime|pexpiretime) `)

// generator makes commands, in right and in wrong forms.
type generator struct{ r *rand.Rand }

func (g *generator) pick(of ...string) string { return of[g.r.IntN(len(of))] }

func (g *generator) key() string { return "k" + strconv.Itoa(g.r.IntN(6)) }

func (g *generator) value() string {
	return g.pick("v", "", "10", "-3", "9223372036854775807", "1.5", "3.0e3", " 7", "007", "text", "\x00\xff", "99999999999999999999")
}

func (g *generator) number() string {
	return g.pick("0", "1", "-1", "5", "100000", "x", "", "9223372036854775807", "-9223372036854775808", "1.5", "+1", " 1")
}

func (g *generator) ttlText() string {
	soon := strconv.Itoa(100_000 + 1000*g.r.IntN(1_000_000))                              // never the same: ours would be less than a millisecond apart
	return g.pick(soon, soon, "0", "-5", "x", "9223372036854775807", "99999999999999999") // none ends while the test runs
}

func (g *generator) options() (out []string) {
	for range g.r.IntN(3) {
		switch o := g.pick("NX", "XX", "GET", "KEEPTTL", "EX", "PX", "nonsense"); o {
		case "EX", "PX":
			out = append(out, o, g.ttlText())
		default:
			out = append(out, o)
		}
	}
	return out
}

func (g *generator) command() []string {
	k := g.key()
	switch g.r.IntN(16) {
	case 0:
		return append([]string{"set", k, g.value()}, g.options()...)
	case 1:
		return []string{g.pick("get", "getdel", "strlen", "type", "ttl", "pttl", "persist", "exists", "del", "unlink", "touch"), k}
	case 2:
		return []string{g.pick("incr", "decr"), k}
	case 3:
		return []string{g.pick("incrby", "decrby"), k, g.number()}
	case 4:
		return []string{"incrbyfloat", k, g.pick("1.5", "-1", "x", "inf", "3e2", "")}
	case 5:
		return []string{"append", k, g.value()}
	case 6:
		return []string{"setrange", k, g.pick("0", "3", "-1", "x", "600000000"), g.pick("", "zz")}
	case 7:
		return []string{g.pick("getrange", "substr"), k, g.number(), g.number()}
	case 8:
		return []string{g.pick("setex", "psetex"), k, g.ttlText(), g.value()}
	case 9:
		return []string{g.pick("setnx", "getset"), k, g.value()}
	case 10:
		return append([]string{g.pick("expire", "pexpire"), k, g.ttlText()}, g.pick("", "NX", "XX", "GT", "LT", "nonsense"))[:3+g.r.IntN(2)]
	case 11:
		out := []string{"getex", k}
		return append(out, [][]string{nil, {"PERSIST"}, {"EX", g.ttlText()}, {"PX", g.ttlText()}, {"EX"}, {"nonsense"}}[g.r.IntN(6)]...)
	case 12:
		out := []string{g.pick("mset", "msetnx")}
		for range 1 + g.r.IntN(3) {
			out = append(out, g.key(), g.value())
		}
		return out[:len(out)-g.r.IntN(2)]
	case 13:
		return []string{g.pick("mget", "del", "exists", "unlink"), k, g.key(), g.key()}
	case 14:
		return []string{g.pick("get", "set", "incr", "append", "expire", "mget", "nosuchcommand", "getrange")} // too few arguments
	}
	return []string{g.pick("expireat", "pexpireat"), k, g.pick("1", "-1", "99999999999", "x")}
}

// What we answer is what Redis answers, in both dialects, also to what is wrong.
func TestSameAnswersAsRedis(t *testing.T) {
	addr := realRedis(t)
	for _, proto := range []string{"2", "3"} {
		t.Run("RESP"+proto, func(t *testing.T) {
			theirs := dial(t, addr)
			p := start(t, nil)
			listen, _ := p.Addr(0)
			ours := dial(t, listen)
			theirs.do("select", "9")
			theirs.do("hello", proto)
			ours.do("hello", proto)
			theirs.do("flushdb")
			g := generator{rand.New(rand.NewPCG(7, 7))}
			failed := 0
			for i := 0; i < 20000 && failed < 10; i++ {
				args := g.command()
				want, got := theirs.do(args...), ours.do(args...)
				if !alike(args, want, got) {
					failed++
					t.Errorf("%d: %q\n Redis   %c%v\n freshet %c%v", i, args, want.Kind, want, got.Kind, got)
				}
				if i%500 == 499 { // so that one difference does not breed others
					theirs.do("flushdb")
					ours.do("flushdb")
				}
			}
		})
	}
}

func alike(args []string, want, got resp.Reply) bool {
	if want.Kind == got.Kind && want.String() == got.String() {
		return true
	}
	line := strings.Join(args, " ")
	if a, err := strconv.ParseInt(want.Text, 10, 64); err == nil && times.MatchString(line) {
		b, err := strconv.ParseInt(got.Text, 10, 64)
		long := int64(3_000_000_000) // seconds: a TTL of more than a century counts as a century here
		return err == nil && (max(a-b, b-a) <= 2000 && (a < 0) == (b < 0) || a > long && b > long)
	}
	for _, d := range differences {
		if regexp.MustCompile(d.command).MatchString(line) && regexp.MustCompile(d.redis).MatchString(want.String()) && regexp.MustCompile(d.freshet).MatchString(got.String()) {
			return true
		}
	}
	return false
}

// Transactions and watches too.
func TestSameTransactionsAsRedis(t *testing.T) {
	addr := realRedis(t)
	p := start(t, nil)
	listen, _ := p.Addr(0)
	script := [][]string{
		{"flushdb"}, {"set", "a", "1"}, {"multi"}, {"incr", "a"}, {"get", "a"}, {"set", "a", "x"}, {"incr", "a"}, {"get", "a"}, {"exec"},
		{"watch", "a"}, {"multi"}, {"set", "a", "2"}, {"exec"},
		{"watch", "a"}, {"set", "a", "3"}, {"multi"}, {"set", "a", "4"}, {"exec"}, {"get", "a"},
		{"watch", "a"}, {"set", "a", "5"}, {"unwatch"}, {"multi"}, {"set", "a", "6"}, {"exec"}, {"get", "a"},
		{"multi"}, {"get"}, {"exec"}, {"multi"}, {"ping"}, {"echo", "x"}, {"get", "a"}, {"exec"},
		{"multi"}, {"watch", "a"}, {"discard"}, {"discard"}, {"exec"}, {"multi"}, {"multi"}, {"exec"},
		{"watch", "nothing"}, {"multi"}, {"set", "nothing", "1"}, {"exec"},
		{"multi"}, {"set", "e", "1", "PX", "100000"}, {"persist", "e"}, {"ttl", "e"}, {"del", "e"}, {"get", "e"}, {"exec"},
		{"object", "encoding", "a"}, {"ping"}, {"echo", "x"}, {"dbsize"},
	}
	theirs, ours := dial(t, addr), dial(t, listen)
	theirs.do("select", "10")
	for i, args := range script {
		want, got := theirs.do(args...), ours.do(args...)
		if !alike(args, want, got) && args[0] != "object" {
			t.Errorf("%d: %q\n Redis   %c%v\n freshet %c%v", i, args, want.Kind, want, got.Kind, got)
		}
	}
}

// SCAN returns every key that is there all the time, whatever else changes.
func TestScan(t *testing.T) {
	p := start(t, nil)
	listen, _ := p.Addr(0)
	c := dial(t, listen)
	for i := range 300 {
		c.do("set", fmt.Sprintf("stay:%03d", i), "v")
	}
	seen := map[string]bool{}
	cursor := "0"
	for i := 0; ; i++ {
		r := c.do("scan", cursor, "match", "stay:*", "count", "17", "type", "string")
		for _, e := range r.Elems[1].Elems {
			seen[e.Text] = true
		}
		c.do("set", fmt.Sprintf("come:%d", i), "v")
		c.do("del", fmt.Sprintf("come:%d", i-2))
		if cursor = r.Elems[0].Text; cursor == "0" {
			break
		}
	}
	if len(seen) != 300 {
		t.Fatalf("%d of 300 keys were seen", len(seen))
	}
	if r := c.do("scan", "77777"); r.Kind != '-' {
		t.Fatalf("a cursor that was never given out was answered with %v", r)
	}
}
