package blackbox

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/redis/go-redis/v9"

	"github.com/freshet-cache/freshet/check"
)

// workflows are clients of a causal space that use another process at every step. They record what
// they have seen.
type workflows struct {
	c    *cluster
	mu   sync.Mutex
	acts []check.Act
	ids  int
	left int // operations without an answer
}

func (f *workflows) size() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.acts)
}

// workflow is one client.
type workflow struct {
	f     *workflows
	name  string
	r     *rand.Rand
	token string
	last  []int
}

// clients has a client of each process, running or not.
func (c *cluster) clients() (all []*redis.Client, done func()) {
	for _, a := range c.addrs {
		all = append(all, redis.NewClient(&redis.Options{Addr: a, MaxRetries: -1, PoolSize: 1, ReadTimeout: 3 * time.Second}))
	}
	return all, func() {
		for _, c := range all {
			c.Close()
		}
	}
}

// run works until stop is closed.
func (w *workflow) run(stop chan struct{}) {
	clients, done := w.f.c.clients()
	defer done()
	for {
		select {
		case <-stop:
			return
		default:
		}
		w.step(clients[w.r.IntN(len(clients))])
	}
}

// step does one operation at a process. If the process does not answer, the workflow continues at
// another one with its former session.
func (w *workflow) step(c *redis.Client) {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	if w.token == "" {
		token, err := c.Do(ctx, "FR.BEGIN", "feeds").Text()
		if err != nil {
			return
		}
		w.token = token
	}
	a := check.Act{Session: w.name, After: w.last}
	key := func() string { return fmt.Sprint("k", w.r.IntN(6)) }
	var got any
	var err error
	write := false
	switch n := w.r.IntN(10); {
	case n < 5:
		keys := []string{key(), key(), key()}
		if got, err = c.Do(ctx, "FR.CMGET", w.token, keys[0], keys[1], keys[2]).Result(); err == nil {
			both := got.([]any)
			got = both[0]
			for i, v := range both[1].([]any) {
				text, exists := v.(string)
				a.Reads = append(a.Reads, check.Cell{Key: keys[i], Write: text, Gone: !exists})
			}
		}
	default:
		write = true
		w.f.mu.Lock()
		w.f.ids++
		cell := check.Cell{Key: key(), Write: fmt.Sprint("v", w.f.ids), Gone: n == 9}
		w.f.mu.Unlock()
		a.Writes = []check.Cell{cell}
		if cell.Gone {
			got, err = c.Do(ctx, "FR.CDEL", w.token, cell.Key).Result()
		} else {
			got, err = c.Do(ctx, "FR.CSET", w.token, cell.Key, cell.Write).Result()
		}
	}
	w.f.mu.Lock()
	defer w.f.mu.Unlock()
	switch {
	case err == nil:
		w.token = got.(string)
		w.last = []int{len(w.f.acts)}
	case strings.HasPrefix(err.Error(), "TRYAGAIN") || errors.Is(err, syscall.ECONNREFUSED) || !write:
		w.f.left++
		return
	default: // the write may have happened, and no session continues from it
		w.f.left++
		a.Session += "?"
	}
	w.f.acts = append(w.f.acts, a)
}

// causalTrial runs workflows over processes during fault, and judges what they saw.
func causalTrial(t *testing.T, c *cluster, fault func(more func(n int))) {
	f := &workflows{c: c}
	stop := make(chan struct{})
	var wg sync.WaitGroup
	for i := range 6 {
		w := &workflow{f: f, name: fmt.Sprint("w", i), r: rand.New(rand.NewPCG(uint64(i), 7))}
		wg.Go(func() { w.run(stop) })
	}
	fault(func(n int) {
		n += f.size()
		c.procs[0].eventually(func() bool { return f.size() >= n })
	})
	close(stop)
	wg.Wait()
	v := check.Causal(f.acts)
	if !v.OK {
		t.Fatalf("%s\n%s", v.Reason, strings.Join(v.Witness, "\n"))
	}
	t.Logf("causally consistent: %d acts, %d without an answer", len(f.acts), f.left)
	keys := []any{"FR.CMGET", "", "k0", "k1", "k2", "k3", "k4", "k5"}
	c.procs[0].eventually(func() bool { // at rest, all nodes answer the same
		var seen []string
		for i := range c.procs {
			client := c.procs[i].client(0)
			token, err := client.Do(t.Context(), "FR.BEGIN", "feeds").Text()
			if err != nil {
				return false
			}
			keys[1] = token
			got, err := client.Do(t.Context(), keys...).Slice()
			if err != nil {
				return false
			}
			seen = append(seen, fmt.Sprint(got[1]))
		}
		return !slices.ContainsFunc(seen, func(s string) bool { return s != seen[0] })
	})
}

// Three processes over PostgreSQL: one is killed, one stands still for longer than a lease,
// all are restarted, and every workflow sees causes before effects.
func TestCausalCluster(t *testing.T) {
	c := gather(t, 3, "--lease", "1500ms", "--timeout", "4s", "--space", "feeds=causal")
	causalTrial(t, c, func(more func(int)) {
		more(500)
		_ = c.procs[2].ends(syscall.SIGKILL)
		more(500)
		c.restart(2)
		more(300)
		c.procs[1].signal(syscall.SIGSTOP)
		pause := time.NewTimer(4 * time.Second) // the pause itself, not a wait for something
		<-pause.C
		c.procs[1].signal(syscall.SIGCONT)
		more(300)
		_ = c.procs[0].ends(syscall.SIGKILL) // the leader of the ring
		c.restart(0)
		more(300)
		for i := range c.procs {
			if err := c.procs[i].ends(syscall.SIGTERM); err != nil {
				t.Errorf("node %d ended with %v", i+1, err)
			}
			c.restart(i)
			more(300)
		}
	})
}

// Sets grow at three processes, which are killed and paused. In the end, every acknowledged word is
// in its set at every node, and no reader sees a set shrink.
func TestMergingCluster(t *testing.T) {
	c := gather(t, 3, "--lease", "1500ms", "--timeout", "4s", "--space", "carts=causal,merge=union")
	var mu sync.Mutex
	acked := map[string]bool{}
	stop := make(chan struct{})
	var wg sync.WaitGroup
	for i := range 4 {
		wg.Go(func() {
			clients, done := c.clients()
			defer done()
			r, token, has := rand.New(rand.NewPCG(uint64(i), 3)), "", map[string]bool{}
			for n := 0; ; n++ {
				select {
				case <-stop:
					return
				default:
				}
				word := fmt.Sprintf("w%d.%d", i, n)
				next, set, err := grow(clients[r.IntN(3)], token, word)
				if err != nil { // the client continues at another node with its former session
					continue
				}
				for old := range has {
					if !strings.Contains(set, `"`+old+`"`) {
						t.Errorf("adder %d had seen %s, and reads %s", i, old, set)
						return
					}
				}
				token, has[word] = next, true
				mu.Lock()
				acked[word] = true
				mu.Unlock()
			}
		})
	}
	more := func(n int) {
		size := func() int { mu.Lock(); defer mu.Unlock(); return len(acked) }
		n += size()
		c.procs[0].eventually(func() bool { return size() >= n })
	}
	more(60)
	_ = c.procs[2].ends(syscall.SIGKILL)
	more(60)
	c.restart(2)
	more(40)
	c.procs[1].signal(syscall.SIGSTOP)
	more(40)
	c.procs[1].signal(syscall.SIGCONT)
	_ = c.procs[0].ends(syscall.SIGKILL)
	c.restart(0)
	more(40)
	close(stop)
	wg.Wait()
	for i := range c.procs {
		c.procs[0].eventually(func() bool {
			_, set, err := grow(c.procs[i].client(0), "", "end")
			missing := 0
			for word := range acked {
				if err != nil || !strings.Contains(set, `"`+word+`"`) {
					missing++
				}
			}
			return missing == 0
		})
	}
	t.Logf("%d words, none lost", len(acked))
}

// grow adds a word to a set in a session, or in a new one, and reads the set.
func grow(c *redis.Client, token, word string) (next, set string, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	if token == "" {
		if token, err = c.Do(ctx, "FR.BEGIN", "carts").Text(); err != nil {
			return "", "", err
		}
	}
	if token, err = c.Do(ctx, "FR.CSET", token, "cart", `["`+word+`"]`).Text(); err != nil {
		return "", "", err
	}
	got, err := c.Do(ctx, "FR.CGET", token, "cart").Slice()
	if err != nil {
		return "", "", err
	}
	return got[0].(string), got[1].(string), nil
}

// TestCausalCluster when writes are acknowledged from the logs of the processes: one is killed, then all
// at once, and all are restarted in turn.
func TestCausalAsyncCluster(t *testing.T) {
	c := &cluster{t: t, pg: postgres(t), dir: t.TempDir()}
	c.args = func(i int) []string {
		args := []string{"--data", filepath.Join(c.dir, fmt.Sprint(i)), "--lease", "1500ms", "--timeout", "4s", "--space", "feeds=causal,async"}
		if i > 0 {
			args = append(args, "--coordinator", "freshet://"+c.addrs[0])
		}
		return args
	}
	c.start(3)
	causalTrial(t, c, func(more func(int)) {
		more(500)
		_ = c.procs[2].ends(syscall.SIGKILL)
		more(300)
		c.restart(2)
		more(300)
		for i := range c.procs {
			_ = c.procs[i].ends(syscall.SIGKILL)
		}
		for i := range c.procs {
			c.restart(i)
		}
		more(500)
		for i := range c.procs {
			if err := c.procs[i].ends(syscall.SIGTERM); err != nil {
				t.Errorf("node %d ended with %v", i+1, err)
			}
			c.restart(i)
			more(300)
		}
	})
	c.procs[0].eventually(func() bool { // every process has its log again, and the store has every write
		_, state := c.procs[0].page(0, "/api/state")
		return strings.Contains(state, `"departed":0`) && !strings.Contains(state, `"owes"`)
	})
}

// TestCausalCluster with etcd, which elects the leader of the ring, over links that are cut, muted
// and slowed.
func TestCausalOnEtcd(t *testing.T) {
	c, etcd := gatherOnEtcd(t, 0, "--lease", "2s", "--timeout", "4s")
	c.reserve(3)
	var links []*proxy
	for i := range 3 {
		links = append(links, between(t, c.addrs[i], uint64(i)))
	}
	c.args = func(i int) []string {
		return []string{"--coordinator", "etcd://" + strings.Join(etcd.Endpoints(), ",") + "/test", "--advertise", links[i].addr(), "--lease", "2s", "--timeout", "4s", "--space", "feeds=causal"}
	}
	for i := range 3 {
		c.restart(i)
	}
	causalTrial(t, c, func(more func(int)) {
		more(300)
		for i, how := range []string{"cut", "mute", "delay", "cut"} {
			links[i%3].spoil(how, 20*time.Millisecond)
			more(200)
			links[i%3].heal()
			more(200)
		}
		_ = c.procs[0].ends(syscall.SIGKILL)
		more(300)
		c.restart(0)
		more(300)
	})
}

// A row is changed in the database, without freshet. Every node that has the key in memory shows
// the change, and later reads there are its effects.
func TestCausalOutside(t *testing.T) {
	c := gather(t, 3, "--space", "feeds=causal")
	conn, err := pgx.Connect(t.Context(), c.pg.URL("admin", "postgres"))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(context.Background())
	exec := func(sql string, args ...any) {
		t.Helper()
		if _, err := conn.Exec(t.Context(), sql, args...); err != nil {
			t.Fatal(err)
		}
	}
	clients, done := c.clients()
	defer done()
	get := func(i int, token string) (next, value string) {
		if token == "" {
			if token, err = clients[i].Do(t.Context(), "FR.BEGIN", "feeds").Text(); err != nil {
				return "", err.Error()
			}
		}
		got, err := clients[i].Do(t.Context(), "FR.CGET", token, "price").Slice()
		if err != nil {
			return "", err.Error()
		}
		return got[0].(string), fmt.Sprint(got[1])
	}
	everywhere := func(want string) {
		t.Helper()
		for i := range clients {
			c.procs[0].eventually(func() bool {
				token, got := get(i, "")
				if got != want {
					return false
				}
				if _, got := get((i+1)%3, token); got != want { // a session that has seen it sees it at other nodes
					t.Errorf("%q was read, and then %q at the next node", want, got)
				}
				return true
			})
		}
	}
	exec(`SELECT freshet.watch_space('feeds')`)
	everywhere("<nil>") // memory knows that it does not exist
	const upsert = `INSERT INTO freshet.causal_rows (space, key, value) VALUES ('feeds', 'price', $1) ON CONFLICT (space, key) DO UPDATE SET value = EXCLUDED.value`
	for i := range 5 {
		exec(upsert, fmt.Sprint(10+i))
		everywhere(fmt.Sprint(10 + i))
	}
	token, _ := get(1, "")
	if err := clients[1].Do(t.Context(), "FR.CSET", token, "price", "99").Err(); err != nil {
		t.Fatal(err)
	}
	everywhere("99")
	exec(`UPDATE freshet.causal_rows SET value = '100' WHERE key = 'price'`)
	everywhere("100")
	exec(`DELETE FROM freshet.causal_rows WHERE key = 'price'`)
	everywhere("<nil>")
}

// Sixty clients add to one set of 34 kB concurrently, at three nodes. All of them are served, and
// every word is in the set.
func TestContendedSet(t *testing.T) {
	p := run(t, 3, "--data", t.TempDir(), "--space", "carts=causal,merge=union", "--timeout", "5s")
	const clients, each = 60, 3
	var first []string
	for i := range 1300 {
		first = append(first, fmt.Sprintf(`"element %06d of the set"`, i))
	}
	ctx := t.Context()
	for i := range 3 { // the node is in the ring
		p.eventually(func() bool {
			token, err := p.client(i).Do(ctx, "FR.BEGIN", "carts").Text()
			return err == nil && p.client(i).Do(ctx, "FR.CGET", token, "cart").Err() == nil
		})
	}
	token, err := p.client(0).Do(ctx, "FR.BEGIN", "carts").Text()
	if err == nil {
		err = p.client(0).Do(ctx, "FR.CSET", token, "cart", "["+strings.Join(first, ",")+"]").Err()
	}
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	for i := range clients {
		c := p.client(i % 3)
		wg.Go(func() {
			for k := range each {
				token, err := c.Do(ctx, "FR.BEGIN", "carts").Text()
				if err == nil {
					err = c.Do(ctx, "FR.CSET", token, "cart", fmt.Sprintf(`["client %d word %d"]`, i, k)).Err()
				}
				if err != nil {
					t.Errorf("client %d: %v", i, err)
					return
				}
			}
		})
	}
	wg.Wait()
	for i := range 3 {
		p.eventually(func() bool {
			token, err := p.client(i).Do(ctx, "FR.BEGIN", "carts").Text()
			if err != nil {
				return false
			}
			got, err := p.client(i).Do(ctx, "FR.CGET", token, "cart").Slice()
			return err == nil && strings.Count(fmt.Sprint(got[1]), "word") == clients*each
		})
	}
}
