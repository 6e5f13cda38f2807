package bench

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// server is a process under test.
type server struct {
	addrs  []string // where clients connect
	admins []string
	cmd    *exec.Cmd // nil: somebody else's
	log    *tail
	done   chan struct{} // the process has ended
}

// tail keeps the first output of a process, which says where it listens, and the
// last, for when it fails.
type tail struct {
	mu    sync.Mutex
	first []byte
	last  []byte
}

func (t *tail) Write(b []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.first = append(t.first, b[:min(len(b), 16<<10-len(t.first))]...)
	t.last = append(t.last, b...)
	t.last = t.last[max(0, len(t.last)-4096):]
	return len(b), nil
}

func (t *tail) end() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return string(t.last)
}

// listening are the lines in which freshet serve says where a node listens.
var listening = regexp.MustCompile(`msg=listening .*redis=(\S+) admin=http://(\S+)\n`)

// addresses are those that the process has said it listens at.
func (t *tail) addresses() (clients, admins []string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, m := range listening.FindAllSubmatch(t.first, -1) {
		clients, admins = append(clients, string(m[1])), append(admins, string(m[2]))
	}
	return clients, admins
}

// start runs a command. With pin, it gets the first processor and no other.
func start(ctx context.Context, pin bool, args []string) (*server, error) {
	s := &server{log: &tail{}, done: make(chan struct{})}
	s.cmd = exec.CommandContext(ctx, args[0], args[1:]...)
	s.cmd.Stdout, s.cmd.Stderr = s.log, s.log
	s.cmd.Cancel = func() error { return s.cmd.Process.Signal(syscall.SIGTERM) }
	s.cmd.WaitDelay = 10 * time.Second
	begin := s.cmd.Start
	if pin {
		begin = func() error { return onFirstProcessor(s.cmd.Start) }
	}
	if err := begin(); err != nil {
		return nil, fmt.Errorf("%s does not start: %w", args[0], err)
	}
	go func() {
		_ = s.cmd.Wait() // what matters is what it printed
		close(s.done)
	}()
	return s, nil
}

var errEnded = errors.New("a server has ended")

// ready waits until ok says so, the process has ended, or half a minute is over.
func (s *server) ready(ctx context.Context, ok func() bool) error {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	for !ok() {
		select {
		case <-s.done:
			return fmt.Errorf("%w: %s: %s", errEnded, s.cmd.Path, s.log.end())
		case <-ctx.Done():
			return errors.Join(fmt.Errorf("%s is not ready: %w", s.cmd.Path, context.Cause(ctx)), s.stop())
		case <-time.After(10 * time.Millisecond):
		}
	}
	return nil
}

// stop ends the process as an operator would, and waits.
func (s *server) stop() error {
	if s == nil || s.cmd == nil {
		return nil
	}
	_ = s.cmd.Process.Signal(syscall.SIGTERM) // it may have ended already
	select {
	case <-s.done:
		return nil
	case <-time.After(40 * time.Second):
	}
	_ = s.cmd.Process.Kill()
	<-s.done
	return fmt.Errorf("%s did not stop within 40 s", s.cmd.Path)
}

// cpu is the processor time that the process has used. It is 0 if unknown.
func (s *server) cpu() time.Duration {
	if s.cmd == nil {
		return 0
	}
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", s.cmd.Process.Pid))
	_, rest, ok := bytes.Cut(b, []byte(") ")) // the name before may hold anything
	fields := strings.Fields(string(rest))
	if err != nil || !ok || len(fields) < 13 {
		return 0
	}
	user, err1 := strconv.ParseInt(fields[11], 10, 64)
	system, err2 := strconv.ParseInt(fields[12], 10, 64)
	if err1 != nil || err2 != nil {
		return 0
	}
	return time.Duration(user+system) * (time.Second / 100) // the kernel counts in hundredths
}

// startFreshet runs freshet serve, with as many nodes, until every key has an
// owner. The kernel chooses the ports and the process says which: a port that we
// chose might be somebody else's by then, and theirs the server we measure.
func startFreshet(ctx context.Context, opt Options, pin bool, nodes int, dir string, flags ...string) (*server, error) {
	args := append([]string{}, opt.Serve...)
	args = append(args, "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0", "--nodes", strconv.Itoa(nodes), "--data", dir)
	s, err := start(ctx, pin, append(args, flags...))
	if err != nil {
		return nil, err
	}
	return s, s.ready(ctx, func() bool {
		if s.addrs, s.admins = s.log.addresses(); len(s.admins) < nodes {
			return false
		}
		for _, a := range s.admins {
			if _, err := fetch(ctx, "http://"+a+"/readyz"); err != nil {
				return false
			}
		}
		return true
	})
}

// startRedis runs redis-server; with aof it syncs every write to disk before it
// answers, and otherwise keeps nothing. It cannot choose a port itself, so a port
// that was free a moment ago is tried until the one who answers is ours.
func startRedis(ctx context.Context, pin bool, dir string, aof bool) (*server, error) {
	path, err := exec.LookPath("redis-server")
	if err != nil {
		return nil, fmt.Errorf("install Redis 7, say --redis HOST:PORT, or leave its systems out with --systems: %w", err)
	}
	for try := 0; ; try++ {
		port, err := freePort()
		if err != nil {
			return nil, err
		}
		args := []string{path, "--port", port, "--bind", "127.0.0.1", "--dir", dir, "--save", "", "--daemonize", "no", "--appendonly", "no"}
		if aof {
			args = append(args[:len(args)-1], "yes", "--appendfsync", "always")
		}
		s, err := start(ctx, pin, args)
		if err != nil {
			return nil, err
		}
		s.addrs = []string{net.JoinHostPort("127.0.0.1", port)}
		own := fmt.Sprintf("process_id:%d\r\n", s.cmd.Process.Pid)
		err = s.ready(ctx, func() bool { return strings.Contains(info(s.addrs[0]), own) })
		if err == nil || !errors.Is(err, errEnded) || try == 4 {
			return s, err
		}
	}
}

// freePort is a port that nobody listens at, at the moment.
func freePort() (string, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	_, port, err := net.SplitHostPort(l.Addr().String())
	return port, errors.Join(err, l.Close())
}

// scratch is a directory for the data of servers.
func scratch(name string) (string, error) {
	dir, err := os.MkdirTemp("", "freshet-bench-")
	if err != nil {
		return "", err
	}
	dir = filepath.Join(dir, name)
	return dir, os.Mkdir(dir, 0o700)
}

// onFirstProcessor runs f on the first processor; a process that f starts stays
// there.
func onFirstProcessor(f func() error) error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	var before, first unix.CPUSet
	if err := unix.SchedGetaffinity(0, &before); err != nil {
		return fmt.Errorf("processors cannot be assigned: %w", err)
	}
	first.Set(processors(before)[0])
	if err := unix.SchedSetaffinity(0, &first); err != nil {
		return fmt.Errorf("processors cannot be assigned: %w", err)
	}
	err := f()
	return errors.Join(err, unix.SchedSetaffinity(0, &before))
}

func processors(set unix.CPUSet) (list []int) {
	for i := range 1024 {
		if set.IsSet(i) {
			list = append(list, i)
		}
	}
	return list
}

// leaveFirstProcessor moves this process off the first processor, so that a
// server has it alone. It returns how to move back, and whether there was room.
func leaveFirstProcessor() (back func(), ok bool) {
	var all unix.CPUSet
	if unix.SchedGetaffinity(0, &all) != nil || all.Count() < 2 {
		return func() {}, false
	}
	rest := all
	rest.Clear(processors(all)[0])
	move := func(to *unix.CPUSet) {
		threads, _ := os.ReadDir("/proc/self/task")
		for _, t := range threads {
			if id, err := strconv.Atoi(t.Name()); err == nil {
				_ = unix.SchedSetaffinity(id, to) // a thread may have ended
			}
		}
	}
	move(&rest)
	return func() { move(&all) }, true
}

// maxAnswer bounds what an admin endpoint may answer.
const maxAnswer = 16 << 20

func readBounded(r io.Reader) ([]byte, error) { return io.ReadAll(io.LimitReader(r, maxAnswer)) }
