package node

import (
	"fmt"
	"maps"
	"net"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/freshet-cache/freshet/redis/tracking"
)

// tracker is a connection that tracks.
func tracker(t *testing.T, addr string, options ...string) *wire {
	t.Helper()
	c := dial(t, addr)
	c.do("hello", "3")
	if r := c.do(append([]string{"client", "tracking", "on"}, options...)...); r.Text != "OK" {
		t.Fatalf("CLIENT TRACKING %v: %v", options, r)
	}
	return c
}

// hears wants a client to have been told exactly this by now.
func (c *wire) hears(want ...string) {
	c.t.Helper()
	if got := c.told(); !slices.Equal(got, want) {
		c.t.Errorf("hears %q, want %q", got, want)
	}
}

// keyAt is a key that the i-th of three nodes owns, once the slices are spread evenly: a
// slice that moves invalidates what is tracked in it.
func keyAt(t *testing.T, p *Process, i int) string {
	t.Helper()
	for {
		held := map[string]int{}
		for _, s := range p.assigner.State().Slices {
			held[s.Node]++
		}
		if counts := slices.Sorted(maps.Values(held)); len(counts) != len(p.nodes) || counts[len(counts)-1]-counts[0] > 1 {
			runtime.Gosched()
			continue
		}
		for k := range 75 {
			key := fmt.Sprintf("%c:k", '0'+k)
			if !p.nodes[i].cache.Owns(key) {
				continue
			}
			c := dial(t, p.nodes[i].addr) // an acknowledged write: all nodes know the owner, and have forgotten what was read before
			if c.do("set", key, "v").Text == "OK" && c.do("del", key).Text == "1" {
				return key
			}
		}
	}
}

// A key that must go because too many are remembered is invalidated, here and for
// the clients of other nodes.
func TestEvictedKeysAreInvalid(t *testing.T) {
	p := start(t, func(c *Config) { c.Nodes, c.TrackingKeys = 3, 3 })
	for i, n := range p.nodes[:2] { // the first owns what it is asked for, the second does not
		c := tracker(t, n.addr)
		kept := map[string]bool{}
		first := keyAt(t, p, 0)[:1]
		for j := range 20 {
			key := fmt.Sprintf("%s:%d:%d", first, i, j)
			c.do("get", key)
			kept[key] = true
			for _, said := range c.told() {
				delete(kept, strings.Trim(strings.TrimPrefix(said, "[invalidate "), "[]"))
			}
			if len(kept) > 3 {
				t.Fatalf("%d keys are kept, and 3 are remembered", len(kept))
			}
		}
		w := dial(t, p.nodes[2].addr)
		for key := range kept {
			w.do("set", key, "v")
		}
		if got := c.told(); len(got) != len(kept) {
			t.Errorf("told %q of %v", got, kept)
		}
	}
	if n := p.nodes[0].track.Counts().Evicted; n == 0 {
		t.Error("evictions are not counted")
	}
}

// Keys whose TTLs pass are invalidated without anybody asking for them.
func TestExpiredKeysAreInvalid(t *testing.T) {
	p := start(t, func(c *Config) { c.Nodes = 3 })
	w := dial(t, p.nodes[2].addr)
	for i, n := range p.nodes[:2] {
		c := tracker(t, n.addr)
		key := fmt.Sprint(keyAt(t, p, 0), i)
		w.do("set", key, "v", "px", "100")
		if r := c.do("mget", key, "nothing"); r.String() != "[v (nil)]" {
			t.Fatal(r)
		}
		_ = c.nc.SetDeadline(time.Now().Add(10 * time.Second))
		if r := c.reply(); r.String() != "[invalidate ["+key+"]]" {
			t.Errorf("told %v", r)
		}
		if r := c.do("get", key); r.Kind != '_' {
			t.Errorf("it was told too early: %v is there", r)
		}
	}
}

// FLUSHALL is heard everywhere, once, by who tracks.
func TestFlushIsHeard(t *testing.T) {
	p := start(t, func(c *Config) { c.Nodes = 3 })
	w := dial(t, p.nodes[2].addr)
	for range 3 {
		var keys []string
		for i := range p.nodes {
			keys = append(keys, keyAt(t, p, i))
			w.do("set", keys[i], "v")
		}
		var all []*wire
		for _, n := range p.nodes {
			c := tracker(t, n.addr)
			for _, key := range keys {
				c.do("get", key)
			}
			all = append(all, c)
		}
		w.do("flushall")
		for _, c := range all {
			c.hears("[invalidate (nil)]")
		}
	}
}

// Clients at one node hear of writes at another to keys of a third; NOLOOP and
// redirection mean the same there.
func TestToldAcrossNodes(t *testing.T) {
	p := start(t, func(c *Config) { c.Nodes = 3 })
	key := keyAt(t, p, 0)
	w := dial(t, p.nodes[2].addr)
	plain, quiet := tracker(t, p.nodes[1].addr), tracker(t, p.nodes[1].addr, "noloop")
	old := dial(t, p.nodes[1].addr)
	listener := dial(t, p.nodes[1].addr)
	id := listener.do("client", "id").Text
	listener.do("subscribe", "__redis__:invalidate")
	old.do("client", "tracking", "on", "redirect", id)
	read := func() {
		for _, c := range []*wire{plain, quiet, old} {
			c.do("get", key)
		}
	}
	told := "[invalidate [" + key + "]]"
	read()
	w.do("set", key, "1")
	plain.hears(told)
	quiet.hears(told)
	if r := listener.reply(); r.String() != "[message __redis__:invalidate ["+key+"]]" {
		t.Errorf("RESP2 hears %v", r)
	}
	read()
	quiet.do("set", key, "2")
	quiet.hears()
	plain.hears(told)
	read()
	plain.do("incr", key)
	plain.hears(told)
	quiet.hears(told)
	for _, cmd := range [][]string{{"multi"}, {"get", key}, {"strlen", key}, {"exec"}} {
		plain.do(cmd...)
	}
	w.do("del", key)
	plain.hears(told)
	prefix := tracker(t, p.nodes[1].addr, "bcast", "prefix", key[:2])
	w.do("mset", key, "1", key+"x", "2")
	prefix.hears("[invalidate [" + key + " " + key + "x]]")
	prefix.do("client", "tracking", "off")
	w.do("set", key, "3")
	prefix.hears()
}

// A client that takes nothing is cut off; who writes goes on.
func TestClientThatTakesNothing(t *testing.T) {
	p := start(t, nil)
	listen, _ := p.Addr(0)
	w := dial(t, listen)
	deaf := tracker(t, listen, "bcast")
	id := deaf.do("client", "id").Text
	if tc, ok := deaf.nc.(*net.TCPConn); ok {
		_ = tc.SetReadBuffer(4 << 10)
	}
	prefix := strings.Repeat("long", 900)
	for i := 0; p.nodes[0].server.Stats().Dropped == 0; i++ {
		args := []string{"mset"}
		for j := range 200 {
			args = append(args, fmt.Sprintf("%s:%d:%d", prefix, i%8, j), "v")
		}
		if r := w.do(args...); r.Text != "OK" {
			t.Fatal(r)
		}
	}
	waitGone(t, w, id)
	if n := p.nodes[0].track.Counts(); n.Clients != 0 || n.Prefixes != 0 {
		t.Errorf("%+v is left of it", n)
	}
}

// What a client reads while nobody owns the key is not kept: nobody would tell.
func TestReadWithoutAnOwner(t *testing.T) {
	p := start(t, func(c *Config) { c.Nodes = 3 })
	key := keyAt(t, p, 0)
	c := tracker(t, p.nodes[1].addr)
	p.nodes[1].peers.Close() // it reaches nobody
	for c.told() != nil {    // of the links
	}
	c.do("get", key)
	c.hears("[invalidate [" + key + "]]")
}

// A write of unknown outcome is told of, and told of again when it is decided: who
// has read between may have seen the value before.
func TestDoubtfulWritesAreToldTwice(t *testing.T) {
	p := start(t, nil)
	n := p.nodes[0]
	c := tracker(t, n.addr)
	c.do("get", "k")
	n.track.Doubtful([]string{"k"}, tracking.Writer{})
	for heard := 0; heard == 0; {
		heard += len(c.told())
	}
	for n.track.Counts().Undecided != 0 {
		c.do("get", "k")
		c.told()
	}
	c.do("get", "k")
	c.told()
	dial(t, n.addr).do("set", "k", "v")
	c.hears("[invalidate [k]]")
}

// FuzzJobs: a job of another node, however malformed, is refused or means what it says, and never ends
// this node.
func FuzzJobs(f *testing.F) {
	f.Add((&job{proto: 3, multi: true, track: true, by: 9, cmds: [][][]byte{{[]byte("GET"), []byte("k")}}}).append(nil))
	f.Fuzz(func(t *testing.T, b []byte) {
		if j, err := decodeJob(b); err == nil {
			if again, err := decodeJob(j.append(nil)); err != nil || again.by != j.by || again.track != j.track {
				t.Errorf("%q: %+v %v", b, again, err)
			}
		}
	})
}
