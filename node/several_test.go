package node

import (
	"context"
	"fmt"
	"net"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/freshet-cache/freshet/internal/testkit"
	"github.com/freshet-cache/freshet/link"
	"github.com/freshet-cache/freshet/peer"
	"github.com/freshet-cache/freshet/resp"
)

// routed reports whether all nodes of a process know that a node owns a key.
func routed(p *Process, key string, owner *Node) bool {
	for _, n := range p.nodes {
		if r, _ := n.shard.Table().Find(key); r.Node != owner.incarnation {
			return false
		}
	}
	return true
}

// keysByNode waits until each node of a process owns something and all of them know that, and
// returns count keys of each.
func keysByNode(t *testing.T, p *Process, count int) (keys [][]string) {
	t.Helper()
	testkit.True(t, "every node owns keys", func() bool {
		least, most := 1<<30, 0
		for _, n := range p.nodes {
			own, _ := n.leased.Leases()
			least, most = min(least, own), max(most, own)
		}
		if least == 0 || most-least > 1 { // slices are moving
			return false
		}
		keys = make([][]string, len(p.nodes))
		full := 0
		for i := 0; i < 10_000 && full < len(p.nodes); i++ {
			key := fmt.Sprintf("%c%d", '0'+i%74, i)
			for j, n := range p.nodes {
				if n.cache.Owns(key) && len(keys[j]) < count && routed(p, key, n) {
					if keys[j] = append(keys[j], key); len(keys[j]) == count {
						full++
					}
				}
			}
		}
		return full == len(p.nodes)
	})
	return keys
}

// twoNodes starts a process of two nodes that hold their leases for long, and returns
// keys of each.
func twoNodes(t *testing.T, change func(*Config)) (*Process, []string, []string) {
	p := start(t, func(c *Config) {
		c.Nodes, c.Lease, c.Timeout = 2, time.Hour, 300*time.Millisecond
		if change != nil {
			change(c)
		}
	})
	keys := keysByNode(t, p, 3)
	return p, keys[0], keys[1]
}

func (c *wire) answers(want string, args ...string) {
	c.t.Helper()
	r := c.do(args...)
	got := r.String()
	if r.Kind == '-' {
		got = r.Text
	}
	if !strings.HasPrefix(got, want) {
		c.t.Fatalf("%s: got %s, want %s", strings.Join(args, " "), got, want)
	}
}

// A command over several owners, one of whom is dead, says what is known of its keys.
func TestDeadOwnerAmongSeveral(t *testing.T) {
	p, alive, dead := twoNodes(t, nil)
	c := dial(t, p.nodes[0].addr)
	all := append(append([]string{}, alive...), dead...)
	mset := func(value string, keys ...string) (out []string) {
		for _, k := range keys {
			out = append(out, k, value)
		}
		return append([]string{"MSET"}, out...)
	}
	c.answers("OK", mset("old", all...)...)
	_ = p.nodes[1].close(context.Background())
	testkit.True(t, "the link to the dead node is broken", func() bool {
		return !p.nodes[0].peers.Stands(p.nodes[1].addr, peer.Writes)
	})

	c.answers("PARTIAL 3 of 6 keys were written, and 3 were not: TRYAGAIN nothing was written", mset("new", all...)...)
	for i, want := range []string{"new", "new", "new", "old", "old", "old"} {
		c.answers(want, "GET", all[i])
	}
	c.answers("TRYAGAIN nothing was written", mset("newer", dead...)...)
	c.answers("TRYAGAIN nothing was written", append([]string{"DEL"}, dead...)...)
	c.answers("PARTIAL 1 of 2 keys", "UNLINK", alive[0], dead[0])
	c.answers("PARTIAL 1 of 2 keys", "DEL", dead[0], alive[1])
	c.answers("CROSSSLOT", "MSETNX", alive[0], "v", dead[0], "v")
	c.answers("4", append([]string{"EXISTS"}, all...)...) // whoever is dead: the store knows
	c.answers("4", append([]string{"TOUCH"}, all...)...)
	if r := c.do(append([]string{"MGET"}, all...)...); len(r.Elems) != 6 || r.Elems[3].Text != "old" {
		t.Fatalf("MGET answers %v", r)
	}
	c.answers("PARTIAL 1 keys were removed", "FLUSHALL")
	c.answers("TRYAGAIN", "FLUSHALL")
	c.answers("3", "DBSIZE")
}

// silent replaces the link of a node to another one by one that takes everything and
// answers nothing.
func silent(t *testing.T, from, to *Node) {
	t.Helper()
	ours, theirs := net.Pipe()
	go func() {
		buf := make([]byte, 64<<10)
		for {
			if _, err := theirs.Read(buf); err != nil {
				return
			}
		}
	}()
	l := link.New(ours, nil, link.Options{})
	t.Cleanup(func() { theirs.Close(); l.Close() })
	from.peers.Use(to.addr, peer.Writes, l)
}

// An owner that does not answer may have written: nobody is told that it did not.
func TestSilentOwnerAmongSeveral(t *testing.T) {
	p, near, far := twoNodes(t, nil)
	c := dial(t, p.nodes[0].addr)
	c.answers("OK", "MSET", near[0], "1", far[0], "1")
	silent(t, p.nodes[0], p.nodes[1])
	c.answers("UNKNOWN 1 of 2 keys may or may not have been written, 1 were, 0 were not", "MSET", near[0], "2", far[0], "2")
	silent(t, p.nodes[0], p.nodes[1])
	c.answers("UNKNOWN 2 of 3 keys may or may not have been written, 1 were", "DEL", near[0], far[0], far[1])
	c.answers("OK", "SET", near[0], "3")
	silent(t, p.nodes[0], p.nodes[1])
	c.answers("UNKNOWN 1 keys were removed, 1 may or may not have been", "FLUSHALL")
}

func TestFlush(t *testing.T) {
	p, _, _ := twoNodes(t, func(c *Config) { c.Timeout = 20 * time.Second })
	c := dial(t, p.nodes[1].addr)
	fill := func() {
		for from := 0; from < 20_000; from += 1000 {
			args := []string{"MSET"}
			for i := from; i < from+1000; i++ {
				args = append(args, string(rune('0'+i%74))+strconv.Itoa(i), "v")
			}
			c.answers("OK", args...)
		}
		c.answers("20000", "DBSIZE")
	}
	fill()
	c.answers("OK", "FLUSHALL")
	c.answers("0", "DBSIZE")
	fill()
	c.answers("OK", "FLUSHDB", "ASYNC")
	info := ""
	testkit.True(t, "FLUSHDB ASYNC ends", func() bool {
		info = c.do("INFO").Text
		return strings.Contains(info, "flush_running:0")
	})
	if !strings.Contains(info, "flush_removed_keys:20000") || !strings.Contains(info, "flush_last:done") {
		t.Fatalf("INFO says %s", info)
	}
	c.answers("0", "DBSIZE")
	c.answers("ERR syntax error", "FLUSHALL", "NOW")
	c.answers("ERR syntax error", "FLUSHALL", "ASYNC", "SYNC")
}

// A store that others may share is not emptied by accident.
func TestFlushOfASharedStore(t *testing.T) {
	n := &Node{p: &Process{cfg: Config{Store: "postgres://db/app"}}}
	w := resp.NewWriter(2)
	n.flush(nil, [][]byte{[]byte("FLUSHALL")}, w)
	if got := string(w.Bytes()); !strings.HasPrefix(got, "-NOPERM flushall") || !strings.Contains(got, "--allow-flush") {
		t.Fatalf("FLUSHALL answers %q", got)
	}
}

func TestDeniedCommands(t *testing.T) {
	p := start(t, func(c *Config) { c.DenyCommands = "FLUSHALL, get,set" })
	c := dial(t, p.nodes[0].addr)
	c.answers("NOPERM the command 'flushall' is denied by --deny-commands", "FLUSHALL")
	c.answers("NOPERM the command 'set'", "SET", "k", "v")
	for range 3 { // GETs that arrive together have a way of their own
		c.send("GET", "k")
	}
	for range 3 {
		if r := c.reply(); !strings.HasPrefix(r.Text, "NOPERM") {
			t.Fatalf("GET answers %v", r)
		}
	}
	c.answers("OK", "MULTI")
	c.answers("NOPERM", "SET", "k", "v")
	c.answers("EXECABORT", "EXEC")
	c.answers("OK", "MSET", "k", "v")
	cfg := Defaults()
	cfg.DenyCommands = "flush"
	if _, err := Start(cfg); err == nil || !strings.Contains(err.Error(), `no command "flush"`) {
		t.Fatalf("an unknown command is denied: %v", err)
	}
}

// A node that was drained takes slices again once it is told to.
func TestUndrain(t *testing.T) {
	p := start(t, func(c *Config) { c.Nodes, c.Lease = 2, time.Second })
	c := dial(t, p.nodes[1].addr)
	testkit.True(t, "the node is drained", func() bool { return c.do("FR.DRAIN").Text == "OK" })
	owned := func() (count int) {
		for _, s := range p.nodes[1].shard.Table().Slices {
			if s.Node == p.nodes[1].incarnation {
				count++
			}
		}
		return count
	}
	if own, _ := p.nodes[1].leased.Leases(); own != 0 {
		t.Fatalf("a drained node holds %d slices", own)
	}
	c.answers("OK", "FR.UNDRAIN")
	testkit.True(t, "the node has slices again", func() bool { return owned() > 0 && p.nodes[1].ready() })
}
