package blackbox

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/rueidis"

	"github.com/freshet-cache/freshet/resp"
)

// encoded is a command as clients send it.
func encoded(args ...string) string {
	return string(resp.AppendCommand(nil, args...))
}

// raw is a connection that speaks RESP by hand.
type raw struct {
	t  *testing.T
	nc net.Conn
	r  *bufio.Reader
}

func dial(t *testing.T, addr string) *raw {
	t.Helper()
	nc, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { nc.Close() })
	_ = nc.SetDeadline(time.Now().Add(60 * time.Second))
	return &raw{t, nc, bufio.NewReaderSize(nc, 64<<10)}
}

func (c *raw) do(args ...string) resp.Reply {
	c.t.Helper()
	if _, err := io.WriteString(c.nc, encoded(args...)); err != nil {
		c.t.Fatal(err)
	}
	return c.reply()
}

func (c *raw) reply() resp.Reply {
	c.t.Helper()
	r, err := resp.ReadReply(c.r)
	if err != nil {
		c.t.Fatal(err)
	}
	return r
}

// redis-cli --pipe loads a file of commands.
func TestMassInsertion(t *testing.T) {
	p := run(t, 3, "--store", "memory:")
	var in bytes.Buffer
	for i := range 5000 {
		in.WriteString(encoded("SET", fmt.Sprint("mass:", i), strings.Repeat("x", i%200)))
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, tool(t, "redis-cli"), "-p", port(p.addrs[1]), "--pipe")
	cmd.Stdin = &in
	out, err := cmd.CombinedOutput()
	if err != nil || !strings.Contains(string(out), "errors: 0, replies: 5000") {
		t.Fatalf("%v\n%s", err, out)
	}
	if n, err := p.client(2).DBSize(t.Context()).Result(); n != 5000 || err != nil {
		t.Errorf("%d of 5000 keys are there: %v", n, err)
	}
}

// A pipeline of any length is answered in order; what is too large in it is one
// error, and what comes after it is done.
func TestLargePipeline(t *testing.T) {
	p := run(t, 1, "--store", "memory:", "--max-value", "100000")
	c := dial(t, p.addrs[0])
	const rounds = 20_000
	go func() {
		w := bufio.NewWriter(c.nc)
		for i := range rounds {
			_, _ = w.WriteString(encoded("INCR", "n"))
			if i%1000 == 0 {
				_, _ = w.WriteString(encoded("SET", "big", strings.Repeat("x", 100_001)))
				_, _ = w.WriteString(encoded("SET", strings.Repeat("k", 5000), "v"))
				_, _ = w.WriteString(encoded("SET", "big", strings.Repeat("x", 100_000)))
			}
		}
		_ = w.Flush()
	}()
	for i := range rounds {
		if r := c.reply(); r.Text != fmt.Sprint(i+1) {
			t.Fatalf("the answer to INCR %d is %v", i+1, r)
		}
		if i%1000 == 0 {
			for _, begin := range []string{"-ERR argument exceeds the limit", "-ERR a key of 5000 bytes", "OK"} {
				if r := c.reply(); !strings.HasPrefix(r.String(), begin) {
					t.Fatalf("%v, want %s", r, begin)
				}
			}
		}
	}
	if r := c.do("STRLEN", "big"); r.Text != "100000" {
		t.Errorf("the largest value has %v bytes", r)
	}
}

// What cannot be done together is refused whole, and says why.
func TestKeysOfSeveralOwners(t *testing.T) {
	p := run(t, 3, "--store", "memory:")
	c := dial(t, p.addrs[0])
	apart := func() bool {
		both := true
		for key, node := range map[string]string{"1": "n1", "z": "n2"} {
			if !strings.Contains(c.do("FR.EXPLAIN", key).String(), "[owner "+node+" ") {
				c.do("FR.MOVE", key, node) // an error if it is under way
				both = false
			}
		}
		return both
	}
	var wrong []string
	p.eventually(func() bool { // a node that has just come is given slices, these two among them
		if !apart() {
			return false
		}
		c.do("DEL", "1", "z")
		wrong = nil
		for _, s := range [][2]string{
			{"MSET 1 a z b", "OK"}, {"MGET 1 z", "[a b]"}, {"MSETNX 1 c z d", "-CROSSSLOT..."}, {"DEL 1 z nothing", "2"},
			{"MULTI", "OK"}, {"SET 1 a", "QUEUED"}, {"SET z b", "QUEUED"}, {"EXEC", "-CROSSSLOT..."}, {"EXISTS 1 z", "0"},
			{"WATCH 1 z", "OK"}, {"MULTI", "OK"}, {"SET 1 a", "QUEUED"}, {"EXEC", "-CROSSSLOT..."}, {"EXISTS 1 z", "0"},
		} {
			got := c.do(strings.Fields(s[0])...).String()
			if begin, ok := strings.CutSuffix(s[1], "..."); got != s[1] && !(ok && strings.HasPrefix(got, begin)) {
				wrong = append(wrong, fmt.Sprintf("%s: %s, want %s", s[0], got, s[1]))
			}
		}
		return apart()
	})
	for _, w := range wrong {
		t.Error(w)
	}
}

// Commands on many keys go on while the keys move from owner to owner: none fails,
// and each key has what was last written to it.
func TestManyKeysWhileMoving(t *testing.T) {
	p := run(t, 3, "--store", "memory:")
	keys := strings.Fields("0 6 A G M S Z f l s") // on both sides of most boundaries
	stop := make(chan struct{})
	var wait sync.WaitGroup
	var rounds atomic.Int64
	for i := range 3 {
		c := p.client(i)
		wait.Go(func() {
			for n := 0; ; n++ {
				select {
				case <-stop:
					return
				default:
				}
				var set, get []string
				for _, k := range keys {
					get = append(get, fmt.Sprint(k, i))
					set = append(set, fmt.Sprint(k, i), fmt.Sprint(n))
				}
				ctx := context.Background()
				err := c.MSet(ctx, set).Err()
				values, err2 := c.MGet(ctx, get...).Result()
				gone, err3 := c.Del(ctx, get[:5]...).Result()
				if err := errors.Join(err, err2, err3); err != nil || gone != 5 || fmt.Sprint(values) != strings.TrimSuffix("["+strings.Repeat(fmt.Sprint(n)+" ", 10), " ")+"]" {
					t.Errorf("round %d: %v, %d removed, %v", n, values, gone, err)
					return
				}
				rounds.Add(1)
			}
		})
	}
	c := p.client(0)
	for i := range 60 {
		before := rounds.Load()
		_ = c.Do(t.Context(), "FR.MOVE", keys[i%10], fmt.Sprintf("n%d", i%3+1)).Err() // an error if it is there, or under way
		p.eventually(func() bool { return rounds.Load() > before || t.Failed() })
	}
	close(stop)
	wait.Wait()
}

// counters are pipelines of INCR, each client's on a key of its own.
type counters struct {
	sent, acked [6]int
	wait        sync.WaitGroup
}

func (n *counters) load(p *process) {
	for i := range n.sent {
		c := redis.NewClient(&redis.Options{Addr: p.addrs[i%len(p.addrs)], MaxRetries: -1, ReadTimeout: 20 * time.Second, PoolSize: 1})
		n.wait.Go(func() {
			defer c.Close()
			for failed := false; !failed; {
				cmds, _ := c.Pipelined(context.Background(), func(pipe redis.Pipeliner) error {
					for range 20 {
						pipe.Incr(context.Background(), fmt.Sprint("count:", i))
					}
					return nil
				})
				for _, cmd := range cmds {
					n.sent[i]++
					if cmd.Err() == nil {
						n.acked[i]++
					}
					failed = failed || cmd.Err() != nil
				}
			}
		})
	}
}

// However the process ends in the middle of pipelines, no addition that was
// acknowledged is lost, and none is done twice.
func TestPipelinesThroughAnEnd(t *testing.T) {
	for _, s := range []syscall.Signal{syscall.SIGTERM, syscall.SIGKILL, syscall.SIGINT} {
		t.Run(s.String(), func(t *testing.T) {
			dir := t.TempDir()
			p := run(t, 2, "--data", dir)
			var n counters
			n.load(p)
			c := p.client(0)
			p.eventually(func() bool { v, _ := c.Get(t.Context(), "count:0").Int(); return v > 200 })
			if err := p.ends(s); err != nil && s != syscall.SIGKILL {
				t.Errorf("it ended with %v\n%s", err, p.said())
			}
			n.wait.Wait()
			again := run(t, 1, "--data", dir).client(0)
			for i := range n.sent {
				v, err := again.Get(t.Context(), fmt.Sprint("count:", i)).Int()
				if err != nil && !errors.Is(err, redis.Nil) {
					t.Fatal(err)
				}
				if v < n.acked[i] || v > n.sent[i] {
					t.Errorf("client %d sent %d additions, had %d acknowledged, and found %d", i, n.sent[i], n.acked[i], v)
				}
			}
		})
	}
}

// A full disk refuses writes with one clear error, and what it holds can be read.
func TestFullDisk(t *testing.T) {
	dir := t.TempDir()
	mount := func(args ...string) *exec.Cmd {
		cmd := exec.Command("sh", append([]string{"-c", `mount -t tmpfs -o size=200m none "$0" && exec "$@"`, dir}, args...)...)
		cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWUSER | syscall.CLONE_NEWNS,
			UidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getuid(), Size: 1}},
			GidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getgid(), Size: 1}}}
		return cmd
	}
	if out, err := mount("true").CombinedOutput(); err != nil {
		t.Skipf("no small disk can be made: user namespaces are not allowed here: %v %s", err, out)
	}
	p := launch(t, 1, mount(binary, "serve", "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0", "--data", dir))
	c := p.client(0)
	ctx := t.Context()
	kept := 0
	var full error
	for ; full == nil && kept < 600; kept++ {
		full = c.Set(ctx, fmt.Sprint("k", kept), strings.Repeat("x", 500_000), 0).Err()
	}
	kept--
	if full == nil || kept == 0 || !strings.HasPrefix(full.Error(), "OOM ") || !strings.Contains(full.Error(), "free") {
		t.Fatalf("after %d writes: %v", kept, full)
	}
	for i := range kept {
		if n, err := c.StrLen(ctx, fmt.Sprint("k", i)).Result(); n != 500_000 || err != nil {
			t.Fatalf("k%d has %d bytes: %v", i, n, err)
		}
	}
	if n, err := c.Exists(ctx, fmt.Sprint("k", kept)).Result(); n != 0 || err != nil {
		t.Errorf("a write that was refused is there: %d, %v", n, err)
	}
	if n, err := c.Del(ctx, "k0").Result(); n != 1 || err != nil { // how else would a user make room
		t.Errorf("DEL on a full disk: %d, %v", n, err)
	}
	if err := p.ends(syscall.SIGTERM); err != nil {
		t.Errorf("it ended with %v", err)
	}
}

// How long a start takes is written down, not demanded.
func TestFirstAnswer(t *testing.T) {
	dir := t.TempDir()
	for _, what := range []string{"an empty directory", "a directory with data"} {
		began := time.Now()
		p := run(t, 1, "--data", dir)
		if err := p.client(0).Set(t.Context(), "k", "v", 0).Err(); err != nil {
			t.Fatal(err)
		}
		t.Logf("%s: the first write was acknowledged after %v", what, time.Since(began).Round(time.Millisecond))
		if err := p.ends(syscall.SIGTERM); err != nil {
			t.Fatal(err)
		}
	}
}

// A configuration that cannot be read is one clear error.
func TestUnreadableConfiguration(t *testing.T) {
	secret := filepath.Join(t.TempDir(), "freshet.yaml")
	if err := os.WriteFile(secret, []byte("nodes: 1\n"), 0); err != nil {
		t.Fatal(err)
	}
	files := []string{t.TempDir(), "/dev/null/x"}
	if os.Getuid() != 0 {
		files = append(files, secret) // root reads everything
	}
	for _, file := range files {
		out, err := command(t, nil, "serve", "--config", file)
		if err == nil || !strings.Contains(out, "--config") || !strings.Contains(out, file) || strings.Count(out, "\n") != 1 {
			t.Errorf("%s: %v\n%s", file, err, out)
		}
	}
}

// Clients give the password in whatever way they do, found in the environment.
func TestClientsWithPassword(t *testing.T) {
	t.Setenv("FRESHET_PASSWORD", "s3cret")
	p := run(t, 2, "--store", "memory:")
	ctx := t.Context()
	for i := range 2 {
		for _, protocol := range []int{2, 3} {
			c := redis.NewClient(&redis.Options{Addr: p.addrs[i], Password: "s3cret", Protocol: protocol})
			if err := c.Incr(ctx, "n").Err(); err != nil {
				t.Errorf("go-redis, RESP%d: %v", protocol, err)
			}
			c.Close()
		}
		c, err := rueidis.NewClient(rueidis.ClientOption{InitAddress: []string{p.addrs[i]}, Password: "s3cret", DisableCache: true})
		if err != nil {
			t.Fatal(err)
		}
		if err := c.Do(ctx, c.B().Incr().Key("n").Build()).Error(); err != nil {
			t.Errorf("rueidis: %v", err)
		}
		c.Close()
		if out := sh(t, "redis-cli", "-p "+port(p.addrs[i])+" -a s3cret --no-auth-warning INCR n"); out != fmt.Sprint(4*i+4) {
			t.Errorf("redis-cli: %s", out)
		}
	}
	if strings.Contains(p.said(), "s3cret") {
		t.Error("the password is in the log")
	}
}
