// Package blackbox tests freshet as users run it: real processes, real clients, real signals. It
// has only tests.
package blackbox

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	_ "github.com/freshet-cache/freshet/node" // the contents of the binary, so that go test does not reuse an old result
)

var binary string

// silent keeps go-redis from logging that killed processes are gone.
type silent struct{}

func (silent) Printf(context.Context, string, ...any) {}

func TestMain(m *testing.M) {
	redis.SetLogger(silent{})
	dir, err := os.MkdirTemp("", "freshet-blackbox")
	if err == nil {
		binary = filepath.Join(dir, "freshet")
		var out []byte
		if out, err = exec.Command("go", "build", "-o", binary, "../cmd/freshet").CombinedOutput(); err != nil {
			err = fmt.Errorf("%w\n%s", err, out)
		}
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "blackbox:", err)
		os.Exit(1)
	}
	code := m.Run()
	_ = os.RemoveAll(dir)
	os.Exit(code)
}

// process is a running freshet serve.
type process struct {
	t     *testing.T
	cmd   *exec.Cmd
	addrs []string // addresses of its nodes
	admin []string
	up    chan struct{} // closed when every node listens
	done  chan struct{} // closed when it has ended
	err   error

	mu  sync.Mutex
	log strings.Builder
}

var listening = regexp.MustCompile(`msg"?[=:]"?listening"?[ ,].*redis"?[=:]"?([^" ]+)"?[ ,]"?admin"?[=:]"?http://([^" }]+)`)

// run starts freshet serve on free ports and waits until every node is ready.
func run(t *testing.T, nodes int, args ...string) *process {
	t.Helper()
	args = append([]string{"serve", "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0", "--nodes", fmt.Sprint(nodes)}, args...)
	return launch(t, nodes, exec.Command(binary, args...))
}

// launch starts a command that ends in freshet serve, and waits as run does.
func launch(t *testing.T, nodes int, cmd *exec.Cmd) *process {
	t.Helper()
	p := begin(t, nodes, cmd)
	select {
	case <-p.up:
	case <-p.done:
		t.Fatalf("freshet serve ended: %v\n%s", p.err, p.said())
	case <-time.After(30 * time.Second):
		t.Fatalf("freshet serve does not listen\n%s", p.said())
	}
	for i := range nodes {
		p.eventually(func() bool { return p.get(i, "/readyz") == 200 })
	}
	return p
}

// begin starts the command without waiting.
func begin(t *testing.T, nodes int, cmd *exec.Cmd) *process {
	t.Helper()
	p := &process{t: t, cmd: cmd, done: make(chan struct{}), up: make(chan struct{})}
	p.cmd.Env = append(os.Environ(), "GOTRACEBACK=all")
	stderr, err := p.cmd.StderrPipe()
	if err == nil {
		err = p.cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	go p.watch(stderr, nodes)
	t.Cleanup(func() {
		p.signal(syscall.SIGKILL)
		<-p.done
		if t.Failed() {
			t.Logf("the process said:\n%s", p.said())
		}
	})
	return p
}

// watch reads the output of the process until it ends.
func (p *process) watch(stderr io.Reader, nodes int) {
	sc := bufio.NewScanner(stderr)
	for sc.Scan() {
		p.mu.Lock()
		p.log.WriteString(sc.Text() + "\n")
		if m := listening.FindStringSubmatch(sc.Text()); m != nil {
			p.addrs, p.admin = append(p.addrs, m[1]), append(p.admin, m[2])
			if len(p.addrs) == nodes {
				close(p.up)
			}
		}
		p.mu.Unlock()
	}
	p.err = p.cmd.Wait()
	close(p.done)
}

func (p *process) said() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.log.String()
}

func (p *process) signal(s syscall.Signal) { _ = p.cmd.Process.Signal(s) }

// ends sends a signal and waits until the process has ended.
func (p *process) ends(s syscall.Signal) error {
	p.t.Helper()
	p.signal(s)
	select {
	case <-p.done:
	case <-time.After(40 * time.Second):
		p.t.Fatalf("it does not end on %v\n%s", s, p.said())
	}
	return p.err
}

// get requests a page from the admin address of a node. The status 0 means that there was no
// answer.
func (p *process) get(node int, path string) int {
	code, _ := p.page(node, path)
	return code
}

func (p *process) page(node int, path string) (int, string) {
	client := http.Client{Timeout: 10 * time.Second}
	r, err := client.Get("http://" + p.admin[node] + path)
	if err != nil {
		return 0, err.Error()
	}
	defer r.Body.Close()
	b, _ := io.ReadAll(r.Body)
	return r.StatusCode, string(b)
}

// eventually waits for a condition.
func (p *process) eventually(ok func() bool) {
	p.t.Helper()
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	for end := time.Now().Add(40 * time.Second); !ok(); <-tick.C {
		if time.Now().After(end) {
			p.t.Fatalf("it never came to that\n%s", p.said())
		}
	}
}

// client is a go-redis client of one node.
func (p *process) client(node int) *redis.Client {
	c := redis.NewClient(&redis.Options{Addr: p.addrs[node], MaxRetries: -1, ReadTimeout: 20 * time.Second, DisableIdentity: false})
	p.t.Cleanup(func() { c.Close() })
	return c
}

// command runs the binary until it ends.
func command(t *testing.T, env []string, args ...string) (string, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	cmd := exec.CommandContext(ctx, binary, args...)
	cmd.Env = append(os.Environ(), env...)
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// tool returns the path of a program of Redis.
func tool(t *testing.T, name string) string {
	t.Helper()
	path, err := exec.LookPath(name)
	switch {
	case err == nil:
		return path
	case os.Getenv("FRESHET_TEST_REQUIRE") != "":
		t.Fatalf("%s is not in PATH, and tests that need it may not be skipped", name)
	}
	t.Skipf("%s is not in PATH; install Redis's tools, or run make test", name)
	return ""
}

// sh runs a program, with arguments split at spaces, and returns its output.
func sh(t *testing.T, name, args string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 60*time.Second)
	defer cancel()
	out, err := exec.CommandContext(ctx, tool(t, name), strings.Fields(args)...).CombinedOutput()
	if err != nil {
		t.Fatalf("%s %s: %v\n%s", name, args, err, out)
	}
	return strings.TrimSpace(string(out))
}
