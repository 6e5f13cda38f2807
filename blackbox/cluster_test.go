package blackbox

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/freshet-cache/freshet/check"
	"github.com/freshet-cache/freshet/internal/etcdserver"
	"github.com/freshet-cache/freshet/internal/pgserver"
)

// cluster has several processes over one PostgreSQL, on fixed ports.
type cluster struct {
	t     *testing.T
	pg    *pgserver.Server
	dir   string
	addrs []string
	procs []*process
	args  func(i int) []string
	store func(i int) string // default: the address of pg
}

// postgres starts a server. It skips the test if PostgreSQL is not installed.
func postgres(t *testing.T, settings ...string) *pgserver.Server {
	t.Helper()
	pg, _ := postgresIn(t, settings...)
	return pg
}

// postgresIn is postgres and returns the directory of the server.
func postgresIn(t *testing.T, settings ...string) (*pgserver.Server, string) {
	t.Helper()
	if pgserver.Bin() == "" {
		if os.Getenv("FRESHET_TEST_REQUIRE") != "" {
			t.Fatal("no PostgreSQL, and FRESHET_TEST_REQUIRE is set")
		}
		t.Skip("no PostgreSQL: install it, or run make test")
	}
	dir, err := os.MkdirTemp("", "freshet-pg")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	pg, err := pgserver.Start(t.Context(), dir, settings...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pg.Stop)
	if out, err := command(t, nil, "migrate", "--store", pg.URL("admin", "postgres")); err != nil {
		t.Fatal(err, out)
	}
	return pg, dir
}

// gather starts n processes. The first one has the embedded coordinator.
func gather(t *testing.T, n int, more ...string) *cluster {
	t.Helper()
	c := &cluster{t: t, pg: postgres(t), dir: t.TempDir()}
	c.args = func(i int) []string {
		args := append([]string{"--data", c.dir}, more...)
		if i > 0 {
			args = append(args, "--coordinator", "freshet://"+c.addrs[0])
		}
		return args
	}
	c.start(n)
	return c
}

// gatherOnEtcd starts n processes that elect the assigner through etcd.
func gatherOnEtcd(t *testing.T, n int, more ...string) (*cluster, *etcdserver.Cluster) {
	t.Helper()
	if etcdserver.Bin() == "" {
		if os.Getenv("FRESHET_TEST_REQUIRE") != "" {
			t.Fatal("no etcd, and FRESHET_TEST_REQUIRE is set")
		}
		t.Skip("no etcd: install etcd-server, or run make test")
	}
	etcd, err := etcdserver.Start(t.Context(), t.TempDir(), 3)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(etcd.Stop)
	c := &cluster{t: t, pg: postgres(t), dir: t.TempDir()}
	c.args = func(int) []string {
		return append([]string{"--coordinator", "etcd://" + strings.Join(etcd.Endpoints(), ",") + "/test"}, more...)
	}
	c.start(n)
	return c, etcd
}

func (c *cluster) start(n int) {
	c.t.Helper()
	c.reserve(n)
	for i := range n {
		c.restart(i)
	}
	if n > 0 {
		c.spread()
	}
}

// reserve chooses ports for n processes. They are below the range of automatic ports, from which
// the system could give them to others before the processes start.
func (c *cluster) reserve(n int) {
	c.t.Helper()
	var held []net.Listener // all open at the same time, so that they differ
	for tries := 0; len(held) < n; tries++ {
		l, err := net.Listen("tcp", fmt.Sprint("127.0.0.1:", 12_000+rand.IntN(20_000)))
		if err != nil && tries > 1000 {
			c.t.Fatal(err)
		}
		if err == nil {
			c.addrs, held = append(c.addrs, l.Addr().String()), append(held, l)
		}
	}
	for _, l := range held {
		_ = l.Close()
	}
	c.procs = make([]*process, n)
}

// spread waits until every process owns a slice.
func (c *cluster) spread() {
	c.t.Helper()
	c.procs[0].eventually(func() bool {
		out, err := command(c.t, nil, "status", "--admin", c.procs[0].admin[0])
		_, slices, _ := strings.Cut(out, "OWNER")
		for i := range c.procs {
			if err != nil || !strings.Contains(slices, fmt.Sprint("n", i+1)) {
				return false
			}
		}
		return true
	})
}

// give moves keys, each in a slice of its own, to the i-th node, and waits until the node owns
// them.
func (c *cluster) give(i int, keys ...string) {
	c.t.Helper()
	admin := c.procs[(i+1)%len(c.procs)].client(0)
	for _, key := range keys {
		c.procs[i].eventually(func() bool {
			_ = admin.Do(c.t.Context(), "FR.SPLIT", key).Err()
			_ = admin.Do(c.t.Context(), "FR.MOVE", key, fmt.Sprint("n", i+1)).Err() // it fails if the boundary exists
			about, err := admin.Do(c.t.Context(), "FR.EXPLAIN", key).Result()
			fields, _ := about.(map[any]any)
			return err == nil && fields["owner"] == fmt.Sprint("n", i+1)
		})
	}
}

// restart starts the i-th process, on its port.
func (c *cluster) restart(i int) {
	c.t.Helper()
	c.procs[i] = launch(c.t, 1, c.command(i))
}

func (c *cluster) command(i int) *exec.Cmd {
	url := c.pg.URL("admin", "postgres")
	if c.store != nil {
		url = c.store(i)
	}
	args := append([]string{"serve", "--listen", c.addrs[i], "--admin", "127.0.0.1:0", "--node-id", fmt.Sprint("n", i+1),
		"--store", url}, c.args(i)...)
	return exec.Command(binary, args...)
}

// trial is a cluster under load, and what its clients saw.
type trial struct {
	*cluster
	r *recorder
}

// more waits until this many more calls have ended.
func (c trial) more(n int) {
	c.t.Helper()
	before := c.r.size()
	c.procs[0].eventually(func() bool { return c.r.size() > before+n })
}

// during runs a fault of the i-th node, which owns some of the keys. It returns the longest time
// that clients of the other nodes waited until a write succeeded. Reads at the other nodes must not
// fail. A negative i means a fault outside the nodes.
func (c trial) during(what string, i int, fault func()) {
	c.t.Helper()
	if i >= 0 {
		c.give(i, "key:4", "key:7", "counter:1")
	}
	c.more(500)
	began, from := c.r.size(), int64(time.Since(c.r.began))
	fault()
	c.r.mu.Lock()
	defer c.r.mu.Unlock()
	last, longest := from, int64(0)
	for _, o := range c.r.ops[began:] {
		switch {
		case o.Client%len(c.procs) == i || o.Start < from:
		case o.Kind == check.Read && o.Outcome != check.OK && i >= 0:
			c.t.Errorf("%s: a read at another node failed: %v", what, o)
		case o.Kind != check.Read && o.Outcome == check.OK:
			longest, last = max(longest, o.End-last), o.End
		}
	}
	c.t.Logf("%s: at most %v without a write at the other nodes", what, time.Duration(longest).Round(time.Millisecond))
}

// Three processes over PostgreSQL have clients at all of them and some replicated keys. One is
// killed, one stands still for longer than a lease, PostgreSQL crashes, the process with the
// coordinator is killed, and all are restarted in turn. The history is linearizable, and while
// another node is dead or paused, no read fails.
func TestCluster(t *testing.T) {
	c := trial{gather(t, 3, "--lease", "1500ms", "--timeout", "4s"), &recorder{began: time.Now()}}
	c.replicate("key:3", 2)
	c.replicate("key:7", 1)
	stop := make(chan struct{})
	wait := c.r.loadAt(c.addrs, 6, stop)
	c.during("a node is killed", 2, func() {
		_ = c.procs[2].ends(syscall.SIGKILL)
		c.more(3000)
		c.restart(2)
	})
	c.during("a node stands still", 1, func() {
		c.procs[1].signal(syscall.SIGSTOP)
		pause := time.NewTimer(4 * time.Second) // the pause itself, not a wait for something
		<-pause.C
		c.procs[1].signal(syscall.SIGCONT)
		c.more(1000)
	})
	c.during("PostgreSQL crashes", -1, func() {
		c.pg.Crash()
		if err := c.pg.Resume(t.Context()); err != nil {
			t.Fatal(err)
		}
		c.more(1000)
	})
	c.during("the coordinator is killed", 0, func() {
		_ = c.procs[0].ends(syscall.SIGKILL)
		c.restart(0)
		c.more(1000)
	})
	for _, i := range []int{2, 1, 0} {
		c.during(fmt.Sprint("node ", i+1, " is restarted"), i, func() {
			if err := c.procs[i].ends(syscall.SIGTERM); err != nil {
				t.Errorf("node %d ended with %v", i+1, err)
			}
			c.restart(i)
			c.more(500)
		})
	}
	c.procs[0].eventually(func() bool { return c.copies() == 3 })
	close(stop)
	wait()
	if c.r.verdict(t) < 5000 {
		t.Error("too little was done to judge")
	}
}

// The same with etcd. The process with the assigner is killed and another one takes over. etcd
// loses a member and then its quorum, for longer than a lease: reads go on, and writes succeed
// again afterwards.
func TestClusterOnEtcd(t *testing.T) {
	c, etcd := gatherOnEtcd(t, 3, "--lease", "2s", "--timeout", "4s")
	run := trial{c, &recorder{began: time.Now()}}
	stop := make(chan struct{})
	wait := run.r.loadAt(c.addrs, 6, stop)
	run.during("the leader is killed", 0, func() { // the process that started first was the first to stand for election
		_ = c.procs[0].ends(syscall.SIGKILL)
		run.more(2000)
		c.restart(0)
		run.more(500)
	})
	run.during("a member of etcd is lost", -1, func() {
		etcd.Kill(0)
		run.more(2000)
	})
	run.during("etcd has no quorum", -1, func() {
		etcd.Kill(1)
		c.procs[1].eventually(func() bool { return c.procs[1].get(0, "/readyz") == 200 })
		reader := c.procs[1].client(0)
		for end := time.Now().Add(6 * time.Second); time.Now().Before(end); { // longer than the leadership and a lease
			if err := reader.Get(t.Context(), "key:4").Err(); err != nil && !errors.Is(err, redis.Nil) {
				t.Fatalf("a read while etcd has no quorum: %v", err)
			}
		}
		for i := range 2 {
			if err := etcd.Resume(i); err != nil {
				t.Fatal(err)
			}
		}
		writer := c.procs[2].client(0)
		c.procs[2].eventually(func() bool { return writer.Set(t.Context(), "again", "v", 0).Err() == nil })
		run.more(500)
	})
	for _, i := range []int{2, 1, 0} {
		run.during(fmt.Sprint("node ", i+1, " is restarted"), i, func() {
			if err := c.procs[i].ends(syscall.SIGTERM); err != nil {
				t.Errorf("node %d ended with %v", i+1, err)
			}
			c.restart(i)
			run.more(500)
		})
	}
	close(stop)
	wait()
	if run.r.verdict(t) < 5000 {
		t.Error("too little was done to judge")
	}
}

func TestClusterRefusals(t *testing.T) {
	c := gather(t, 2)
	pg := c.pg.URL("admin", "postgres")
	free := []string{"serve", "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0"}
	for _, w := range []struct {
		name, says string
		args       []string
	}{
		{"a name that is taken", "--node-id", append(free, "--store", pg, "--coordinator", "freshet://"+c.addrs[0], "--node-id", "n2")},
		{"another cluster's schema", "another cluster", append(free, "--store", pg, "--data", t.TempDir())},
		{"a schema that is not there", "freshet migrate", append(free, "--store", pg+"&schema=none", "--data", t.TempDir())},
		{"a coordinator without a shared store", "--store postgres", append(free, "--store", "memory:", "--coordinator", "freshet://"+c.addrs[0])},
		{"a wrong user", "nobody", append(free, "--store", strings.Replace(pg, "admin@", "nobody:geheim@", 1), "--data", t.TempDir())},
		{"a coordinator that is no address", "HOST:PORT", append(free, "--store", pg, "--coordinator", "freshet://nowhere")},
	} {
		out, err := command(t, nil, w.args...)
		if err == nil || !strings.Contains(out, w.says) || strings.Contains(out, "geheim") || strings.Contains(out, "goroutine") {
			t.Errorf("%s: %v\n%s", w.name, err, out)
		}
	}
	if out, err := command(t, nil, "config", "print", "--store", "postgres://me:geheim@db/app"); err != nil || strings.Contains(out, "geheim") || !strings.Contains(out, "me:xxxxx@db") {
		t.Errorf("%v\n%s", err, out)
	}
	for i := range c.procs {
		if err := c.procs[i].client(0).Set(t.Context(), "k", i, 0).Err(); err != nil {
			t.Errorf("the cluster is harmed: %v", err)
		}
	}
}

// loads counts the rows that the processes have read from the store.
func (c *cluster) loads() (sum float64) {
	c.t.Helper()
	for _, p := range c.procs {
		_, page := p.page(0, "/metrics")
		for _, line := range strings.Split(page, "\n") {
			if strings.HasPrefix(line, "freshet_store_seconds_count") && strings.Contains(line, `request="load"`) {
				n, err := strconv.ParseFloat(line[strings.LastIndexByte(line, ' ')+1:], 64)
				if err != nil {
					c.t.Fatal(err)
				}
				sum += n
			}
		}
	}
	return sum
}

// settled waits until no slice has moved for longer than a lease of 3 s, the time for which a moved
// slice rests. An operator who restarts a cluster waits as well: a slice that moves on at once
// leaves its entries behind, and reads between two owners come from the store.
func (c *cluster) settled(i int) {
	c.t.Helper()
	seen, last := 0, ""
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	c.procs[i].eventually(func() bool {
		<-tick.C
		_, state := c.procs[i].page(0, "/api/state")
		_, slices, _ := strings.Cut(state, `"slices"`)
		if seen++; slices != last {
			seen, last = 0, slices
		}
		return seen == 40
	})
}

// All processes are restarted in turn. Their entries move along, so that the store is read for
// hardly any key. The test reads after slices were balanced to the restarted process, to count what
// the cluster has kept and not what was between two owners.
func TestRollingRestartKeepsMemory(t *testing.T) {
	c := gather(t, 3, "--lease", "3s")
	const keys = 3000
	read := func(node int) (share float64) {
		t.Helper()
		before := c.loads()
		client := c.procs[node].client(0)
		for from := 0; from < keys; from += 100 {
			pipe := client.Pipeline()
			for i := range 100 {
				pipe.Get(t.Context(), fmt.Sprintf("%c:%d", 'a'+(from+i)%26, from+i))
			}
			got, err := pipe.Exec(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			for i, g := range got {
				if v := g.(*redis.StringCmd).Val(); v != fmt.Sprint("v", from+i) {
					t.Fatalf("key %d is %q", from+i, v)
				}
			}
		}
		return 100 * (1 - (c.loads()-before)/keys)
	}
	client := c.procs[0].client(0)
	for i := range keys {
		if err := client.Set(t.Context(), fmt.Sprintf("%c:%d", 'a'+i%26, i), fmt.Sprint("v", i), 0).Err(); err != nil {
			t.Fatal(err)
		}
	}
	c.settled(1)
	if share := read(1); share < 90 {
		t.Errorf("%.2f %% from memory after all was written", share)
	}
	for i := range c.procs {
		c.settled(i) // the reads may have moved slices again
		if err := c.procs[i].ends(syscall.SIGTERM); err != nil {
			t.Error(err)
		}
		c.restart(i)
		c.settled(i)
		share := read((i + 1) % len(c.procs))
		t.Logf("%.2f %% from memory after node %d was restarted", share, i+1)
		if share < 90 {
			t.Errorf("node %d took its memory along", i+1)
		}
	}
}
