package blackbox

import (
	"bufio"
	"fmt"
	"net"
	"os/exec"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/freshet-cache/freshet/resp"
)

// counter returns the sum of the lines of a metric that contain all these texts.
func (p *process) counter(name string, with ...string) (sum float64) {
	_, page := p.page(0, "/metrics")
next:
	for _, line := range strings.Split(page, "\n") {
		if !strings.HasPrefix(line, name) {
			continue
		}
		for _, w := range with {
			if !strings.Contains(line, w) {
				continue next
			}
		}
		var v float64
		if _, err := fmt.Sscan(line[strings.LastIndexByte(line, ' ')+1:], &v); err == nil {
			sum += v
		}
	}
	return sum
}

// The store of one node stands still, and ten thousand clients of another node wait for writes to
// keys of the first one. The leases of the first node must not end, because renewals do not wait
// behind writes. Reads from its memory succeed, and all writes are answered when the store
// continues.
func TestTenThousandBlockedWriters(t *testing.T) {
	const writers = 10_000
	c := &cluster{t: t, pg: postgres(t), dir: t.TempDir()}
	toStore := between(t, c.pg.Addr(), 1)
	c.store = func(i int) string {
		if i == 0 {
			return c.pg.URL("admin", "postgres")
		}
		return strings.Replace(c.pg.URL("admin", "postgres"), c.pg.Addr(), toStore.addr(), 1)
	}
	c.args = func(i int) []string {
		args := []string{"--data", c.dir, "--lease", "1500ms", "--timeout", "60s", "--max-conns", "12000"}
		if i > 0 {
			args = append(args, "--coordinator", "freshet://"+c.addrs[0])
		}
		return args
	}
	c.start(2)
	c.give(1, "w") // from here on to the next bound
	key := func(i int) string { return fmt.Sprintf("w%05d", i) }
	warm := c.procs[1].client(0)
	if err := warm.Set(t.Context(), key(0), "kept", 0).Err(); err != nil {
		t.Fatal(err)
	}
	lapsed := func() float64 {
		return c.procs[0].counter("freshet_leases_total", `kind="lapsed"`) + c.procs[1].counter("freshet_leases_total", `kind="lapsed"`)
	}
	before := lapsed()

	toStore.spoil("mute", 0)
	var wg sync.WaitGroup
	var sent, answered, wrong atomic.Int64
	for i := 1; i <= writers; i++ {
		wg.Go(func() {
			nc, err := net.Dial("tcp", c.addrs[0])
			if err != nil {
				t.Error(err)
				return
			}
			defer nc.Close()
			_ = nc.SetDeadline(time.Now().Add(2 * time.Minute))
			if _, err := nc.Write(resp.AppendCommand(nil, "SET", key(i), "v")); err != nil {
				t.Error(err)
				return
			}
			sent.Add(1)
			r, err := resp.ReadReply(bufio.NewReader(nc))
			answered.Add(1)
			if err != nil || r.Text != "OK" && !strings.HasPrefix(r.Text, "TRYAGAIN") && !strings.HasPrefix(r.Text, "UNKNOWN") {
				wrong.Add(1)
				t.Errorf("%v, %v", r, err)
			}
		})
	}
	c.procs[0].eventually(func() bool { return sent.Load() == writers })
	reader := c.procs[0].client(0)
	for end := time.Now().Add(5 * time.Second); time.Now().Before(end); { // more than three leases: the fault itself
		if v, err := reader.Get(t.Context(), key(0)).Result(); v != "kept" || err != nil {
			t.Fatalf("a read while writers wait: %q, %v", v, err)
		}
	}
	if now := lapsed(); now != before {
		t.Errorf("%v leases ended while writers waited", now-before)
	}
	toStore.heal()
	wg.Wait()
	if wrong.Load() > 0 {
		t.Errorf("%d of %d answers are none", wrong.Load(), writers)
	}
}

// Clients open as many connections as they can. Connected clients are served, the store can still
// write files, and the log stays short.
func TestClientsTakeAllDescriptors(t *testing.T) {
	shell := exec.Command("sh", "-c", `ulimit -n 1100 && exec "$0" "$@"`, binary, "serve", "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0", "--data", t.TempDir(), "--no-sync")
	p := launch(t, 1, shell)
	if !strings.Contains(p.said(), "open files") {
		t.Errorf("nobody is told that fewer clients are taken:\n%s", p.said())
	}
	c := p.client(0)
	if err := c.Set(t.Context(), "k", "v", 0).Err(); err != nil {
		t.Fatal(err)
	}
	var taken []net.Conn
	defer func() {
		for _, nc := range taken {
			nc.Close()
		}
	}()
	for range 1500 {
		nc, err := net.DialTimeout("tcp", p.addrs[0], time.Second)
		if err != nil {
			break
		}
		taken = append(taken, nc)
	}
	value := strings.Repeat("x", 1<<20)
	for i := range 80 { // more than the store keeps in memory
		if err := c.Set(t.Context(), fmt.Sprint("large", i), value, 0).Err(); err != nil {
			t.Fatalf("write %d while clients hold %d connections: %v", i, len(taken), err)
		}
	}
	if n := p.get(0, "/healthz"); n != 200 {
		t.Errorf("/healthz answers %d", n)
	}
	if n := strings.Count(p.said(), "\n"); n > 2000 {
		t.Errorf("%d lines are logged", n)
	}
	for _, nc := range taken {
		nc.Close()
	}
	p.eventually(func() bool { return p.client(0).Get(t.Context(), "large79").Val() == value })
}
