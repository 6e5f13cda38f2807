package node

import (
	"fmt"
	"strconv"
	"strings"
	"testing"

	"github.com/freshet-cache/freshet/resp"
)

// SETs that arrive together are answered each, in order, wherever their keys are
// owned and whatever is wrong with some of them.
func TestPipelinedSets(t *testing.T) {
	for _, nodes := range []int{1, 3} {
		t.Run(fmt.Sprint(nodes, " nodes"), func(t *testing.T) {
			p := start(t, func(c *Config) { c.Nodes = nodes })
			listen, _ := p.Addr(nodes - 1)
			c := dial(t, listen)
			var sent []byte
			var want []string
			add := func(reply string, args ...string) {
				sent, want = resp.AppendCommand(sent, args...), append(want, reply)
			}
			last := map[string]string{}
			for i := range 500 {
				key := fmt.Sprintf("%c%d", rune('A'+i*7%50), i%90)
				switch {
				case i%37 == 5:
					add("-ERR a key of 0 bytes: keys have 1 to 4096", "SET", "", "v")
				case i%41 == 7:
					add("-ERR syntax error", "SET", key, "v", "NOSUCH")
				case i%53 == 9:
					add(last[key], "SET", key, "v", "GET")
					last[key] = "v"
				default:
					add("OK", "SET", key, strconv.Itoa(i))
					last[key] = strconv.Itoa(i)
				}
			}
			for key, v := range last {
				add(v, "GET", key)
			}
			if _, err := c.nc.Write(sent); err != nil {
				t.Fatal(err)
			}
			for i, w := range want {
				if got := c.reply().String(); got != w && !(w == "" && got == "(nil)") {
					t.Fatalf("reply %d is %q, want %q", i, got, w)
				}
			}
		})
	}
}

// Nobody sees the second SET of a pipeline without the first.
func TestPipelinedSetsAreSeenInOrder(t *testing.T) {
	p := start(t, nil)
	listen, _ := p.Addr(0)
	writer, reader := dial(t, listen), dial(t, listen)
	const rounds = 2000
	go func() {
		for i := range rounds {
			var b []byte
			for _, key := range []string{"data", "more", "ready"} {
				b = resp.AppendCommand(b, "SET", key, strconv.Itoa(i))
			}
			if _, err := writer.nc.Write(b); err != nil {
				return
			}
		}
	}()
	go func() {
		buf := make([]byte, 1<<16)
		for {
			if _, err := writer.nc.Read(buf); err != nil {
				return
			}
		}
	}()
	for ready := -1; ready < rounds-1; {
		if r := reader.do("GET", "ready"); r.Kind == '$' {
			ready, _ = strconv.Atoi(r.Text)
		}
		for _, key := range []string{"more", "data"} {
			r := reader.do("GET", key)
			if n, err := strconv.Atoi(r.Text); ready >= 0 && (err != nil || n < ready) {
				t.Fatalf("%s is %v where ready was %d", key, r, ready)
			}
		}
	}
}

// A pipeline of large SETs is taken in parts, and what is too large is refused
// alone.
func TestPipelinedSetsThatAreLarge(t *testing.T) {
	p := start(t, func(c *Config) { c.MaxValue = 600_000 })
	listen, _ := p.Addr(0)
	c := dial(t, listen)
	var sent []byte
	for i := range 12 {
		sent = resp.AppendCommand(sent, "SET", fmt.Sprint("k", i), strings.Repeat("x", 500_000+i))
	}
	if _, err := c.nc.Write(sent); err != nil {
		t.Fatal(err)
	}
	for range 12 {
		if r := c.reply(); r.Text != "OK" {
			t.Fatal(r)
		}
	}
	for i := range 12 {
		if r := c.do("STRLEN", fmt.Sprint("k", i)); r.String() != strconv.Itoa(500_000+i) {
			t.Error(i, r)
		}
	}
}
