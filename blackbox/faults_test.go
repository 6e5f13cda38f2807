package blackbox

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/freshet-cache/freshet/check"
)

// recorder makes calls of clients and records their outcomes.
type recorder struct {
	began time.Time
	pause time.Duration // pause between the calls of a client
	mu    sync.Mutex
	ops   []check.Op
	errs  []string // errors that nodes answered
	ids   atomic.Int64
}

// call makes one random call. The values that it writes are unique.
func (r *recorder) call(ctx context.Context, c *redis.Client, client int, rnd *rand.Rand, keys int) check.Outcome {
	o := check.Op{Client: client, Key: fmt.Sprintf("key:%d", rnd.IntN(keys)), Start: int64(time.Since(r.began)), Outcome: check.OK}
	var err error
	switch rnd.IntN(5) {
	case 0, 1:
		o.Kind, o.Value = check.Write, fmt.Sprint(r.ids.Add(1))
		err = c.Set(ctx, o.Key, o.Value, 0).Err()
	case 2:
		o.Kind, o.Delta = check.Add, 1
		o.Key = fmt.Sprintf("counter:%d", rnd.IntN(2)+2*r.epoch())
		var n int64
		n, err = c.Incr(ctx, o.Key).Result()
		o.Value = fmt.Sprint(n)
	default:
		o.Kind = check.Read
		o.Value, err = c.Get(ctx, o.Key).Result()
		o.Found = err == nil
		if errors.Is(err, redis.Nil) {
			err = nil
		}
	}
	o.End = int64(time.Since(r.began))
	if errors.Is(err, syscall.ECONNREFUSED) {
		return check.No // no process was reached, so nothing has happened
	}
	if err != nil {
		o.Outcome = check.Unknown
		if nothingWritten(err) {
			o.Outcome = check.No
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.ops = append(r.ops, o)
	var answered redis.Error
	if errors.As(err, &answered) {
		r.errs = append(r.errs, fmt.Sprintf("%v: %v", o, err))
	}
	return o.Outcome
}

// epoch changes from time to time in long runs. The checker searches for the outcome of increments
// without an answer among all such increments of a counter, whose number must stay small.
func (r *recorder) epoch() int {
	if r.pause == 0 {
		return 0
	}
	return int(r.ids.Load() / 500)
}

// nothingWritten reports whether the server answered that nothing was written.
func nothingWritten(err error) bool { return strings.HasPrefix(err.Error(), "TRYAGAIN") }

// load runs clients at every node until stop is closed. It returns when they have ended.
func (r *recorder) load(p *process, clients int, stop chan struct{}) (wait func()) {
	return r.loadAt(p.addrs, clients, stop)
}

// loadAt is load for the nodes at addrs.
func (r *recorder) loadAt(addrs []string, clients int, stop chan struct{}) (wait func()) {
	var wg sync.WaitGroup
	for i := range clients {
		c := redis.NewClient(&redis.Options{Addr: addrs[i%len(addrs)], MaxRetries: -1, ReadTimeout: 20 * time.Second, PoolSize: 1})
		wg.Go(func() {
			defer c.Close()
			rnd := rand.New(rand.NewPCG(uint64(i), 11))
			for {
				select {
				case <-stop:
					return
				default:
				}
				if r.call(context.Background(), c, i, rnd, 12) == check.No { // no process is reachable: do not fill the history
					pause := time.NewTimer(5 * time.Millisecond)
					<-pause.C
				}
				if r.pause > 0 {
					pause := time.NewTimer(r.pause)
					<-pause.C
				}
			}
		})
	}
	return wg.Wait
}

func (r *recorder) verdict(t *testing.T) (done int) {
	t.Helper()
	count := map[check.Outcome]int{}
	for _, o := range r.ops {
		count[o.Outcome]++
	}
	v := check.Linear(r.ops, time.Minute)
	var b strings.Builder
	v.Print(&b)
	if v.Finding != check.Linearizable {
		t.Fatal(b.String())
	}
	t.Logf("%s: %v", strings.TrimSpace(b.String()), count)
	return count[check.OK]
}

func (r *recorder) size() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.ops)
}

// Slices move, are cut and drained while clients read and write everywhere: no
// call fails, and the history is linearizable.
func TestResharding(t *testing.T) {
	p := run(t, 3, "--store", "memory:")
	r := &recorder{began: time.Now()}
	stop := make(chan struct{})
	wait := r.load(p, 6, stop)
	c := p.client(0)
	for i := range 40 {
		before := r.size()
		key := fmt.Sprintf("key:%d", i%12)
		if i%4 == 0 {
			_ = c.Do(t.Context(), "FR.SPLIT", key).Err()
		}
		if err := c.Do(t.Context(), "FR.MOVE", key, fmt.Sprintf("n%d", i%3+1)).Err(); err != nil && !strings.Contains(err.Error(), "ERR") {
			t.Error(err)
		}
		p.eventually(func() bool { return r.size() > before+100 })
	}
	if err := p.client(1).Do(t.Context(), "FR.DRAIN").Err(); err != nil {
		t.Error(err)
	}
	before := r.size()
	p.eventually(func() bool { return r.size() > before+500 })
	close(stop)
	wait()
	r.verdict(t)
	for _, o := range r.ops {
		if o.Outcome != check.OK {
			t.Errorf("a call failed though nothing was broken: %v", o)
		}
	}
}

// Killed at any moment and started again: nothing that was acknowledged is lost,
// and nothing comes back that had been overwritten.
func TestKillAndRestart(t *testing.T) {
	dir := t.TempDir()
	r := &recorder{began: time.Now()}
	for range 4 {
		p := run(t, 2, "--data", dir)
		stop := make(chan struct{})
		wait := r.load(p, 4, stop)
		before := r.size()
		p.eventually(func() bool { return r.size() > before+300 })
		_ = p.ends(syscall.SIGKILL)
		close(stop)
		wait()
	}
	p := run(t, 1, "--data", dir)
	for i := range 12 {
		c := p.client(0)
		for range 5 {
			r.call(t.Context(), c, 100, rand.New(rand.NewPCG(uint64(i), 5)), 12)
		}
	}
	if r.verdict(t) < 1000 {
		t.Fatal("too little was done to judge")
	}
}

// Stopped for longer than a lease and continued: every read is still the latest.
func TestPause(t *testing.T) {
	p := run(t, 3, "--store", "memory:", "--lease", "300ms")
	r := &recorder{began: time.Now()}
	stop := make(chan struct{})
	wait := r.load(p, 6, stop)
	for range 3 {
		before := r.size()
		p.eventually(func() bool { return r.size() > before+300 })
		p.signal(syscall.SIGSTOP)
		lease := time.NewTimer(700 * time.Millisecond) // the pause itself, not a wait for something
		<-lease.C
		p.signal(syscall.SIGCONT)
	}
	before := r.size()
	p.eventually(func() bool { return r.size() > before+300 })
	close(stop)
	wait()
	r.verdict(t)
}

// SIGTERM: commands under way are answered, and the process ends well.
func TestTerminate(t *testing.T) {
	dir := t.TempDir()
	p := run(t, 2, "--data", dir)
	r := &recorder{began: time.Now()}
	stop := make(chan struct{})
	wait := r.load(p, 4, stop)
	p.eventually(func() bool { return r.size() > 300 })
	if err := p.ends(syscall.SIGTERM); err != nil {
		t.Errorf("it ended with %v", err)
	}
	close(stop)
	wait()
	again := run(t, 1, "--data", dir)
	for i := range 60 {
		r.call(t.Context(), again.client(0), 100, rand.New(rand.NewPCG(uint64(i), 5)), 12)
	}
	r.verdict(t)
}

func TestWrongStarts(t *testing.T) {
	p := run(t, 1, "--data", t.TempDir())
	foreign := t.TempDir()
	if err := os.MkdirAll(filepath.Join(foreign, "store"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(foreign, "store", "diary.txt"), []byte("dear diary"), 0o600); err != nil {
		t.Fatal(err)
	}
	config := filepath.Join(t.TempDir(), "freshet.yaml")
	if err := os.WriteFile(config, []byte("listen: 127.0.0.1:0\nlease: soon\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	unknown := filepath.Join(t.TempDir(), "freshet.yaml")
	if err := os.WriteFile(unknown, []byte("lisen: 127.0.0.1:0\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	free := []string{"--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0"}
	for _, c := range []struct {
		name, says string
		args       []string
	}{
		{"a port in use", "address already in use", []string{"--listen", p.addrs[0], "--admin", "127.0.0.1:0", "--store", "memory:"}},
		{"somebody else's directory", foreign, append(free, "--data", foreign)},
		{"no such file", "no such file", append(free, "--config", "/nowhere/freshet.yaml")},
		{"a setting that cannot be read", "line 2", append(free, "--config", config)},
		{"an unknown setting", "lisen", append(free, "--config", unknown)},
		{"an unknown flag", "unknown flag", []string{"--nosuch"}},
		{"an unknown store", "--store", append(free, "--store", "oracle:")},
		{"open to the world", "password", []string{"--listen", "0.0.0.0:0", "--admin", "127.0.0.1:0", "--store", "memory:"}},
		{"a certificate that is not there", "tls-cert", append(free, "--store", "memory:", "--tls-cert", "/nowhere", "--tls-key", "/nowhere")},
	} {
		out, err := command(t, nil, append([]string{"serve"}, c.args...)...)
		if err == nil || !strings.Contains(out, c.says) || strings.Contains(out, "goroutine") || strings.Count(strings.TrimSpace(out), "\n") > 3 {
			t.Errorf("%s: %v\n%s", c.name, err, out)
		}
	}
	if err := p.client(0).Ping(t.Context()).Err(); err != nil {
		t.Errorf("the first process is harmed: %v", err)
	}
}

// One directory has one process.
func TestSecondProcess(t *testing.T) {
	dir := t.TempDir()
	p := run(t, 1, "--data", dir)
	if err := p.client(0).Set(t.Context(), "k", "v", 0).Err(); err != nil {
		t.Fatal(err)
	}
	out, err := command(t, nil, "serve", "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0", "--data", dir)
	if err == nil || !strings.Contains(out, dir) {
		t.Errorf("%v\n%s", err, out)
	}
	if v, err := p.client(0).Get(t.Context(), "k").Result(); v != "v" || err != nil {
		t.Error(v, err)
	}
}

func TestPasswordAndLimits(t *testing.T) {
	p := run(t, 2, "--store", "memory:", "--password", "secret", "--max-key", "100", "--max-value", "1000")
	ctx := t.Context()
	if err := p.client(0).Get(ctx, "k").Err(); err == nil || !strings.HasPrefix(err.Error(), "NOAUTH") {
		t.Errorf("without the password: %v", err)
	}
	c := redis.NewClient(&redis.Options{Addr: p.addrs[1], Password: "secret", PoolSize: 1})
	defer c.Close()
	id := c.ClientID(ctx).Val()
	for name, err := range map[string]error{
		"a long key":   c.Set(ctx, strings.Repeat("k", 101), "v", 0).Err(),
		"a long value": c.Set(ctx, "k", strings.Repeat("v", 1001), 0).Err(),
		"an empty key": c.Set(ctx, "", "v", 0).Err(),
		"an append":    errors.Join(c.Set(ctx, "k", strings.Repeat("v", 1000), 0).Err(), c.Append(ctx, "k", "v").Err()),
		"a type":       c.Incr(ctx, "k").Err(),
	} {
		if err == nil || strings.Contains(err.Error(), "EOF") {
			t.Errorf("%s: %v", name, err)
		}
	}
	for path, want := range map[string]int{"/healthz": 200, "/readyz": 200, "/metrics": 401, "/api/state": 401, "/debug/pprof/": 401} {
		if got := p.get(0, path); got != want {
			t.Errorf("%s without the password: %d, want %d", path, got, want)
		}
	}
	if out, err := command(t, []string{"FRESHET_PASSWORD=secret"}, "status", "--admin", p.admin[0]); err != nil || !strings.Contains(out, "n2") {
		t.Errorf("status with the password: %v\n%s", err, out)
	}
	if out, err := command(t, []string{"FRESHET_PASSWORD=wrong"}, "status", "--admin", p.admin[0]); err == nil || !strings.Contains(out, "refuses the password") {
		t.Errorf("status with a wrong password: %v\n%s", err, out)
	}
	if v, err := c.StrLen(ctx, "k").Result(); v != 1000 || err != nil || c.ClientID(ctx).Val() != id {
		t.Errorf("the connection or the value suffered: %d, %v", v, err)
	}
}

func TestAdmin(t *testing.T) {
	p := run(t, 2, "--store", "memory:")
	c := p.client(0)
	for i := range 50 {
		c.Set(t.Context(), fmt.Sprint("k", i%5), i, 0)
		c.Get(t.Context(), fmt.Sprint("k", i%5))
	}
	for path, want := range map[string]string{
		"/healthz": "ok", "/readyz": "ready", "/api/state": `"slices"`, "/debug/pprof/goroutine?debug=1": "goroutine profile", "/debug/pprof/": "profile",
	} {
		if code, body := p.page(0, path); code != 200 || !strings.Contains(body, want) {
			t.Errorf("%s: %d %.200s", path, code, body)
		}
	}
	_, metrics := p.page(0, "/metrics")
	for _, name := range []string{"freshet_reads_total", "freshet_misses_total", "freshet_fills_refused_total", "freshet_guards_total", "freshet_writes_unresolved_total",
		"freshet_command_seconds_count", "freshet_store_seconds_count", "freshet_leases_total", "freshet_table_version", "go_goroutines"} {
		if !strings.Contains(metrics, name) {
			t.Errorf("/metrics lacks %s", name)
		}
	}
	out, err := command(t, nil, "status", "--admin", p.admin[1])
	if err != nil || !strings.Contains(out, "n1") || !strings.Contains(out, "n2") || !strings.Contains(out, "SLICE") {
		t.Errorf("status: %v\n%s", err, out)
	}
	if out, err := command(t, nil, "status", "--admin", "127.0.0.1:1"); err == nil || !strings.Contains(out, "no freshet answers") {
		t.Errorf("status of nobody: %v\n%s", err, out)
	}
}

// Flags go before the environment, which goes before the file.
func TestConfig(t *testing.T) {
	file := filepath.Join(t.TempDir(), "freshet.yaml")
	if err := os.WriteFile(file, []byte("lease: 3s\ntimeout: 3s\nmax-key: 33\npassword: secret\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	out, err := command(t, []string{"FRESHET_TIMEOUT=4s", "FRESHET_MAX_KEY=44"}, "config", "print", "--config", file, "--max-key", "55")
	if err != nil {
		t.Fatal(err, out)
	}
	for _, line := range []string{"lease: 3s", "timeout: 4s", "max-key: 55", "password: (set)"} {
		if !strings.Contains(out, line) {
			t.Errorf("%q is not in\n%s", line, out)
		}
	}
	if strings.Contains(out, "secret") {
		t.Error("the password is printed")
	}
}
