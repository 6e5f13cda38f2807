package blackbox

import (
	"context"
	"errors"
	"fmt"
	"net"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/rueidis"
)

func port(addr string) string {
	_, p, _ := net.SplitHostPort(addr)
	return p
}

// Every client talks to one node and to three, each of which takes every key.
func TestClients(t *testing.T) {
	for _, nodes := range []int{1, 3} {
		t.Run(fmt.Sprintf("%d nodes", nodes), func(t *testing.T) {
			p := run(t, nodes, "--store", "memory:")
			for i, addr := range p.addrs {
				t.Run("redis-cli", func(t *testing.T) { redisCLI(t, addr, i) })
				t.Run("redis-benchmark", func(t *testing.T) { redisBenchmark(t, addr) })
				t.Run("go-redis", func(t *testing.T) { goRedis(t, p.client(i), i) })
				t.Run("rueidis", func(t *testing.T) { rueidisClient(t, addr, i) })
			}
		})
	}
}

func redisCLI(t *testing.T, addr string, i int) {
	cli := func(args string) string { return sh(t, "redis-cli", "-p "+port(addr)+" "+args) }
	for _, c := range [][2]string{
		{"SET cli v", "OK"}, {"GET cli", "v"}, {"-3 GET cli", "v"}, {"INCRBY cli:n 5", fmt.Sprint(5 * (i + 1))},
		{"--scan --pattern cl*", "cli\ncli:n"}, {"EXPIRE cli 100", "1"}, {"DEL cli", "1"}, {"GET cli", ""},
	} {
		if got := cli(c[0]); got != c[1] {
			t.Errorf("redis-cli %s: %q, want %q", c[0], got, c[1])
		}
	}
}

var perSecond = regexp.MustCompile(`requests per second`)

func redisBenchmark(t *testing.T, addr string) {
	out := sh(t, "redis-benchmark", "-p "+port(addr)+" -n 3000 -c 20 -P 16 -r 100 -q -t ping,set,get,incr,mset")
	if n := len(perSecond.FindAllString(out, -1)); n < 6 || strings.Contains(out, "rror") {
		t.Fatalf("%d figures:\n%s", n, out)
	}
}

func goRedis(t *testing.T, c *redis.Client, i int) {
	ctx := t.Context()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	k := func(name string) string { return fmt.Sprintf("go:%d:%s", i, name) }
	must(c.Set(ctx, k("a"), "1", time.Minute).Err())
	if d, err := c.PTTL(ctx, k("a")).Result(); err != nil || d <= 50*time.Second || d > time.Minute {
		t.Errorf("the incarnation of a minute is %v, %v", d, err)
	}
	if err := c.Get(ctx, k("nothing")).Err(); !errors.Is(err, redis.Nil) {
		t.Error(err)
	}
	if ok, err := c.SetNX(ctx, k("a"), "2", 0).Result(); ok || err != nil {
		t.Error(ok, err)
	}
	cmds, err := c.Pipelined(ctx, func(p redis.Pipeliner) error {
		for j := range 100 {
			p.Set(ctx, fmt.Sprint(k("p"), j), j, 0)
		}
		for j := range 100 {
			p.Get(ctx, fmt.Sprint(k("p"), j))
		}
		return nil
	})
	must(err)
	for j := range 100 {
		if v := cmds[100+j].(*redis.StringCmd).Val(); v != fmt.Sprint(j) {
			t.Fatalf("a pipeline read %q for %d", v, j)
		}
	}
	_, err = c.TxPipelined(ctx, func(p redis.Pipeliner) error {
		p.Incr(ctx, k("a"))
		p.Get(ctx, k("a"))
		return nil
	})
	must(err)
	must(c.Watch(ctx, func(tx *redis.Tx) error {
		n, err := tx.Get(ctx, k("a")).Int()
		if err != nil {
			return err
		}
		_, err = tx.TxPipelined(ctx, func(p redis.Pipeliner) error { p.Set(ctx, k("a"), n*10, 0); return nil })
		return err
	}, k("a")))
	if v, err := c.GetDel(ctx, k("a")).Result(); v != "20" || err != nil {
		t.Error(v, err)
	}
	n := 0
	for it := c.Scan(ctx, 0, k("p*"), 10).Iterator(); it.Next(ctx); n++ {
	}
	if n != 100 {
		t.Errorf("a scan found %d of 100", n)
	}
	if v, err := c.MGet(ctx, k("p1"), k("nothing"), k("p2")).Result(); err != nil || fmt.Sprint(v) != "[1 <nil> 2]" {
		t.Error(v, err)
	}
}

func rueidisClient(t *testing.T, addr string, i int) {
	c, err := rueidis.NewClient(rueidis.ClientOption{InitAddress: []string{addr}, DisableCache: true, ForceSingleClient: true})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	ctx := context.Background()
	k := fmt.Sprintf("ru:%d", i)
	if err := c.Do(ctx, c.B().Set().Key(k).Value("v").Px(time.Minute).Build()).Error(); err != nil {
		t.Fatal(err)
	}
	var cmds rueidis.Commands
	for range 50 {
		cmds = append(cmds, c.B().Get().Key(k).Build())
	}
	for _, r := range c.DoMulti(ctx, cmds...) {
		if v, err := r.ToString(); v != "v" || err != nil {
			t.Fatal(v, err)
		}
	}
	if _, err := c.Do(ctx, c.B().Get().Key(k+"nothing").Build()).ToString(); !rueidis.IsRedisNil(err) {
		t.Error(err)
	}
	m, err := c.Do(ctx, c.B().Arbitrary("FR.EXPLAIN").Keys(k).Build()).AsStrMap()
	if err != nil || m["owner"] == "" || m["slice"] == "" || m["guard"] == "" {
		t.Errorf("%v %v", m, err)
	}
}
