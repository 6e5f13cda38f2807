package blackbox

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/freshet-cache/freshet/check"
	"github.com/freshet-cache/freshet/internal/etcdserver"
)

// chaos is a cluster over PostgreSQL and etcd with proxies in all connections, and a schedule of
// faults from a seed.
type chaos struct {
	*cluster
	etcd    *etcdserver.Cluster
	links   []*proxy // from other nodes to each node
	toStore []*proxy // from each node
	toEtcd  []*proxy // from each node to its own member of etcd
	r       *recorder
	rnd     *rand.Rand

	mu       sync.Mutex
	injected map[string]int
	trouble  [][2]int64 // the times during which a fault lasted
}

const chaosLease = 2 * time.Second

func newChaos(t *testing.T, seed uint64) *chaos {
	t.Helper()
	base, etcd := gatherOnEtcd(t, 0)
	c := &chaos{cluster: base, etcd: etcd, r: &recorder{began: time.Now(), pause: 2 * time.Millisecond}, rnd: rand.New(rand.NewPCG(seed, 5)), injected: map[string]int{}}
	const nodes = 3
	c.reserve(nodes)
	for i := range nodes {
		c.links = append(c.links, between(t, c.addrs[i], seed+uint64(i)))
		c.toStore = append(c.toStore, between(t, c.pg.Addr(), seed+10+uint64(i)))
		c.toEtcd = append(c.toEtcd, between(t, etcd.Endpoints()[i], seed+20+uint64(i)))
	}
	c.store = func(i int) string {
		return strings.Replace(c.pg.URL("admin", "postgres"), c.pg.Addr(), c.toStore[i].addr(), 1)
	}
	c.args = func(i int) []string {
		return []string{"--coordinator", "etcd://" + c.toEtcd[i].addr() + "," + strings.Join(etcd.Endpoints(), ",") + "/chaos",
			"--advertise", c.links[i].addr(), "--lease", chaosLease.String(), "--timeout", "3s"}
	}
	for i := range nodes {
		c.restart(i)
	}
	return c
}

// revive starts a process. It repeats the start if PostgreSQL or etcd is unreachable. The process
// is ready when it owns a slice or needs none.
func (c *chaos) revive(i int) {
	for end := time.Now().Add(time.Minute); ; {
		p := begin(c.t, 1, c.command(i))
		c.procs[i] = p
		tick := time.NewTicker(5 * time.Millisecond)
		for ended := false; !ended; {
			select {
			case <-p.done:
				ended = true
			case <-tick.C:
				select {
				case <-p.up:
					if p.get(0, "/readyz") == 200 {
						tick.Stop()
						return
					}
				default:
				}
			}
			if time.Now().After(end) {
				c.t.Errorf("node %d does not come back\n%s", i+1, p.said())
				tick.Stop()
				return
			}
		}
		tick.Stop()
	}
}

// fault injects one fault, which n chooses, and heals it after its time.
func (c *chaos) fault(n int, i int, lasts time.Duration) {
	name := ""
	hold := func() {
		span := time.NewTimer(lasts) // the fault itself, not a wait for something
		<-span.C
	}
	spoiled := func(p *proxy, what, how string) {
		name = what + ": " + how
		p.spoil(how, 20*time.Millisecond)
		hold()
		p.heal()
	}
	how := []string{"cut", "mute", "delay"}[n/16%3]
	from := int64(time.Since(c.r.began))
	switch n % 9 {
	case 0, 1:
		name = "node killed"
		_ = c.procs[i].ends(syscall.SIGKILL)
		hold()
		c.revive(i)
	case 2:
		name = "node stopped and continued"
		c.procs[i].signal(syscall.SIGSTOP)
		hold()
		c.procs[i].signal(syscall.SIGCONT)
	case 3:
		name = "node restarted in an orderly way"
		if err := c.procs[i].ends(syscall.SIGTERM); err != nil {
			c.t.Errorf("node %d ended with %v", i+1, err)
		}
		c.revive(i)
	case 4, 5:
		spoiled(c.links[i], "links to a node", how)
	case 6:
		spoiled(c.toStore[i], "a node's connections to PostgreSQL", how)
	case 7:
		spoiled(c.toEtcd[i], "a node's connections to a member of etcd", how)
	case 8:
		if n/16%2 == 0 {
			name = "PostgreSQL crashed"
			c.pg.Crash()
			if err := c.pg.Resume(c.t.Context()); err != nil {
				c.t.Error(err)
			}
			break
		}
		name = "member of etcd killed"
		c.etcd.Kill(i)
		hold()
		if err := c.etcd.Resume(i); err != nil {
			c.t.Error(err)
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.injected[name]++
	c.trouble = append(c.trouble, [2]int64{from, int64(time.Since(c.r.began))})
}

// run injects faults for a time. Each node has one fault after the other, so up to three last at
// the same time. Only the turn of one node crashes PostgreSQL.
func (c *chaos) run(d time.Duration) {
	var wg sync.WaitGroup
	end := time.Now().Add(d)
	for i := range c.procs {
		r := rand.New(rand.NewPCG(c.rnd.Uint64(), uint64(i)))
		wg.Go(func() {
			for time.Now().Before(end) {
				quiet := time.NewTimer(time.Duration(r.Int64N(int64(3 * time.Second)))) // a time without a fault
				<-quiet.C
				n := r.IntN(1 << 16)
				if n%9 == 8 && i != 0 {
					n++
				}
				c.fault(n, i, time.Duration(r.Int64N(int64(2*chaosLease))))
			}
		})
	}
	wg.Wait()
}

// TestChaos injects faults into three real processes, their links, PostgreSQL and etcd, with
// unmodified clients at all nodes, and judges what the clients saw. FRESHET_CHAOS sets the time and
// FRESHET_SEED the seed.
func TestChaos(t *testing.T) {
	lasts, err := time.ParseDuration(os.Getenv("FRESHET_CHAOS"))
	if err != nil {
		lasts = 15 * time.Second
	}
	seed, err := strconv.ParseUint(os.Getenv("FRESHET_SEED"), 10, 64)
	if err != nil {
		seed = uint64(time.Now().UnixNano())
	}
	t.Logf("FRESHET_CHAOS=%v FRESHET_SEED=%d go test ./blackbox -run TestChaos -v", lasts, seed)
	c := newChaos(t, seed)
	stop := make(chan struct{})
	wait := c.r.loadAt(c.addrs, 6, stop)
	var operator sync.WaitGroup
	operator.Go(func() { c.operate(stop) })
	c.run(lasts)
	calm := time.Now()
	writer := c.procs[0].client(0)
	for _, key := range []string{"key:1", "key:7", "counter:0"} { // everything recovers without help
		c.procs[0].eventually(func() bool {
			if key == "counter:0" {
				return writer.Incr(t.Context(), "another counter").Err() == nil
			}
			return writer.Set(t.Context(), "calm:"+key, "v", 0).Err() == nil
		})
	}
	t.Logf("every kind of write succeeds %v after the last fault", time.Since(calm).Round(time.Millisecond))
	before := c.r.size()
	c.procs[0].eventually(func() bool { return c.r.size() > before+200 })
	close(stop)
	operator.Wait()
	wait()
	for _, name := range slices.Sorted(maps.Keys(c.injected)) {
		t.Logf("%3d  %s", c.injected[name], name)
	}
	t.Log(c.available())
	if c.r.verdict(t) < 100 {
		t.Error("too little was done to judge")
	}
}

// operate changes the numbers of replicas of some keys until stop is closed.
func (c *chaos) operate(stop chan struct{}) {
	most := 0
	tick := time.NewTicker(700 * time.Millisecond)
	defer tick.Stop()
	for i := 0; ; i++ {
		select {
		case <-stop:
			c.t.Logf("up to %d replicas", most)
			if most == 0 {
				c.t.Error("no key was replicated")
			}
			return
		case <-tick.C:
		}
		ctx, cancel := context.WithTimeout(c.t.Context(), time.Second)
		client := redis.NewClient(&redis.Options{Addr: c.addrs[i%3], MaxRetries: -1})
		_ = client.Do(ctx, "FR.REPLICAS", fmt.Sprintf("key:%d", i%4), (i/4+1)%3).Err() // the node may be dead or cut off
		if state, err := client.Do(ctx, "FR.STATE").Text(); err == nil {
			most = max(most, strings.Count(state, `"replicas"`))
		}
		_ = client.Close()
		cancel()
	}
}

// available returns the shares of calls that were answered during faults and without them.
func (c *chaos) available() string {
	var all, ok [2][2]int
	for _, o := range c.r.ops {
		kind, broken := 0, 0
		if o.Kind != check.Read {
			kind = 1
		}
		if slices.ContainsFunc(c.trouble, func(s [2]int64) bool { return o.End >= s[0] && o.Start <= s[1] }) {
			broken = 1
		}
		all[broken][kind]++
		if o.Outcome == check.OK {
			ok[broken][kind]++
		}
	}
	share := func(b, k int) string {
		return fmt.Sprintf("%.2f %% of %d", 100*float64(ok[b][k])/float64(max(1, all[b][k])), all[b][k])
	}
	return fmt.Sprintf("answered while something was broken: reads %s, writes %s; else: reads %s, writes %s", share(1, 0), share(1, 1), share(0, 0), share(0, 1))
}
