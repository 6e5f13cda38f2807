package blackbox

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"regexp"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/rueidis"

	"github.com/freshet-cache/freshet/internal/follower"
)

// Clients with caches of their own keep what they read. They receive an invalidation when it
// changes, at whichever of three nodes they and the writers are connected.
func TestClientsThatCache(t *testing.T) {
	p := run(t, 3, "--store", "memory:")
	for i := range p.addrs {
		t.Run(fmt.Sprint("rueidis at node ", i+1), func(t *testing.T) { rueidisCaches(t, p, i) })
		t.Run(fmt.Sprint("rueidis with prefixes at node ", i+1), func(t *testing.T) { rueidisFollows(t, p, i) })
		t.Run(fmt.Sprint("go-redis at node ", i+1), func(t *testing.T) { goRedisCaches(t, p, i) })
	}
}

func rueidisCaches(t *testing.T, p *process, i int) {
	c, err := rueidis.NewClient(rueidis.ClientOption{InitAddress: []string{p.addrs[i]}, ForceSingleClient: true})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	hits := 0
	get := func(key string) string {
		r := c.DoCache(t.Context(), c.B().Get().Key(key).Cache(), time.Hour)
		if r.IsCacheHit() {
			hits++
		}
		v, err := r.ToString()
		if err != nil && !rueidis.IsRedisNil(err) {
			t.Fatal(err)
		}
		return v
	}
	for k := range 20 {
		key := fmt.Sprintf("%c:rueidis:%d", '0'+k*4, i)
		for round := range 3 {
			w := p.client((i + round) % 3)
			if err := w.Set(t.Context(), key, round, 0).Err(); err != nil {
				t.Fatal(err)
			}
			p.eventually(func() bool { // what is read is kept, unless its slice moves just then
				read := get(key) == strconv.Itoa(round)
				before := hits
				return read && get(key) == strconv.Itoa(round) && hits == before+1
			})
		}
		_ = p.client(i).Del(t.Context(), key).Err()
		p.eventually(func() bool { return get(key) == "" })
	}
	many := rueidis.MGetCache
	got, err := many(c, t.Context(), time.Hour, []string{"0:a", "p:b", "z:c"})
	if err != nil || len(got) != 3 {
		t.Errorf("%v %v", got, err)
	}
}

func rueidisFollows(t *testing.T, p *process, i int) {
	prefix := fmt.Sprintf("follow:%d:", i)
	var mu sync.Mutex
	told := map[string]bool{}
	c, err := rueidis.NewClient(rueidis.ClientOption{InitAddress: []string{p.addrs[i]}, ForceSingleClient: true,
		ClientTrackingOptions: []string{"PREFIX", prefix, "BCAST"},
		OnInvalidations: func(keys []rueidis.RedisMessage) {
			mu.Lock()
			defer mu.Unlock()
			for _, k := range keys {
				s, _ := k.ToString()
				told[s] = true
			}
		}})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if err := c.Do(t.Context(), c.B().Ping().Build()).Error(); err != nil {
		t.Fatal(err)
	}
	for j := range 3 {
		for _, key := range []string{prefix + strconv.Itoa(j), "elsewhere"} {
			if err := p.client(j).Set(t.Context(), key, "v", 0).Err(); err != nil {
				t.Fatal(err)
			}
		}
		p.eventually(func() bool {
			mu.Lock()
			defer mu.Unlock()
			return told[prefix+strconv.Itoa(j)]
		})
	}
	mu.Lock()
	defer mu.Unlock()
	if told["elsewhere"] {
		t.Error("it is told of what it does not follow")
	}
}

func goRedisCaches(t *testing.T, p *process, i int) {
	c := redis.NewClient(&redis.Options{Addr: p.addrs[i], Protocol: 3, ClientSideCacheConfig: &redis.ClientSideCacheConfig{}})
	defer c.Close()
	for k := range 20 {
		key := fmt.Sprintf("%c:goredis:%d", '0'+k*4, i)
		for round := range 3 {
			w := p.client((i + round) % 3)
			if err := w.Set(t.Context(), key, round, 0).Err(); err != nil {
				t.Fatal(err)
			}
			p.eventually(func() bool {
				v, err := c.Get(t.Context(), key).Result()
				return err == nil && v == strconv.Itoa(round)
			})
		}
	}
	before := p.hits(i)
	for range 1000 {
		if err := c.Get(t.Context(), "0:goredis:"+strconv.Itoa(i)).Err(); err != nil {
			t.Fatal(err)
		}
	}
	if asked := p.hits(i) - before; asked > 500 {
		t.Errorf("%d of 1000 reads of one key came to the node", asked)
	}
}

// hits returns the reads that a node has served from memory.
func (p *process) hits(node int) int {
	_, page := p.page(node, "/metrics")
	n := 0
	for _, at := range regexpHits.FindAllStringSubmatch(page, -1) {
		f, _ := strconv.ParseFloat(at[1], 64)
		n += int(f)
	}
	return n
}

// chase runs writers and followers at all nodes, that begin anew when a node goes,
// until stop is called, which judges.
func chase(t *testing.T, addrs []string) (more func(int64), stop func()) {
	const keys = 60
	floor := make(follower.Floor, keys)
	var wg sync.WaitGroup
	var over atomic.Bool
	var rounds, checked, told, writes atomic.Int64
	for i, addr := range addrs {
		wg.Go(func() {
			c := redis.NewClient(&redis.Options{Addr: addr, MaxRetries: -1, ReadTimeout: 20 * time.Second})
			defer c.Close()
			r := rand.New(rand.NewPCG(5, uint64(i)))
			for !over.Load() {
				k := r.IntN(keys)
				if n, err := c.Incr(t.Context(), follower.Key(k)).Result(); err == nil {
					floor.Raise(k, n)
					writes.Add(1)
				}
			}
		})
		for j, options := range [][]string{nil, {"BCAST"}} {
			wg.Go(func() {
				r := rand.New(rand.NewPCG(6, uint64(10*i+j)))
				for !over.Load() && !t.Failed() {
					f, err := follower.Dial(addr, floor, options...)
					for err == nil && !over.Load() {
						if err = f.Round(r); err == nil {
							rounds.Add(1)
						}
					}
					var stale follower.Stale
					if errors.As(err, &stale) {
						t.Errorf("node %d, tracking %v: %v", i+1, options, err)
					}
					if f != nil {
						checked.Add(int64(f.Checked))
						told.Add(int64(f.Told))
						f.Close()
					}
				}
			})
		}
	}
	more = func(n int64) {
		tick := time.NewTicker(time.Millisecond)
		defer tick.Stop()
		from, wrote := rounds.Load(), writes.Load()
		for end := time.Now().Add(time.Minute); (rounds.Load() < from+n || writes.Load() < wrote+n/10) && !t.Failed() && time.Now().Before(end); {
			<-tick.C
		}
	}
	return more, func() {
		over.Store(true)
		wg.Wait()
		t.Logf("%d writes, %d pushes, %d kept values judged in %d rounds", writes.Load(), told.Load(), checked.Load(), rounds.Load())
		if told.Load() == 0 || checked.Load() == 0 {
			t.Error("nothing was judged")
		}
	}
}

// A client that keeps what it read receives the invalidation before the write is acknowledged: at
// three processes over PostgreSQL, while slices move, links are cut, a node is killed, and one is
// restarted.
func TestToldInACluster(t *testing.T) {
	c := &cluster{t: t, pg: postgres(t), dir: t.TempDir()}
	c.reserve(3)
	var between3 []*proxy // connections between nodes go through these proxies, those of clients do not
	for i := range c.addrs {
		between3 = append(between3, between(t, c.addrs[i], uint64(i)))
	}
	c.args = func(i int) []string {
		args := []string{"--data", c.dir, "--lease", "1500ms", "--timeout", "4s", "--advertise", between3[i].addr()}
		if i > 0 {
			args = append(args, "--coordinator", "freshet://"+between3[0].addr())
		}
		return args
	}
	for i := range c.procs {
		c.restart(i)
	}
	c.spread()
	more, stop := chase(t, c.addrs)
	defer stop()
	more(500)
	for i := range 3 {
		c.give(i, follower.Key(i), follower.Key(10+i), follower.Key(20+i))
		more(300)
	}
	for i := range 6 {
		between3[i%3].drop()
		more(300)
	}
	c.give(2, follower.Key(0), follower.Key(1), follower.Key(2))
	more(300)
	_ = c.procs[2].ends(syscall.SIGKILL)
	more(1000)
	c.restart(2)
	more(500)
	if err := c.procs[1].ends(syscall.SIGTERM); err != nil {
		t.Error(err)
	}
	c.restart(1)
	more(500)
}

var regexpHits = regexp.MustCompile(`(?m)^freshet_reads_total\S*source="(?:memory|replica)"\S* (\S+)`)
