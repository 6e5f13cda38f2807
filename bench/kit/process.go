package kit

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
)

// Server is a process under test.
type Server struct {
	Addrs  []string // address for clients
	Admins []string
	cmd    *exec.Cmd // nil if kit did not start it
	log    *tail
	Done   chan struct{} // closed when the process has ended
}

// tail keeps the first output of a process, which has its addresses, and the last output, for a
// report of its failure.
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

// listening matches the lines in which freshet serve prints the addresses of a node.
var listening = regexp.MustCompile(`msg=listening .*redis=(\S+) admin=http://(\S+)\n`)

// addresses returns the addresses that the process has printed.
func (t *tail) addresses() (clients, admins []string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, m := range listening.FindAllSubmatch(t.first, -1) {
		clients, admins = append(clients, string(m[1])), append(admins, string(m[2]))
	}
	return clients, admins
}

// start runs a command. With pin, the command runs on the first processor only.
func start(ctx context.Context, pin bool, args []string) (*Server, error) {
	s := &Server{log: &tail{}, Done: make(chan struct{})}
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
		_ = s.cmd.Wait() // the output says more than the exit status
		close(s.Done)
	}()
	return s, nil
}

var errEnded = errors.New("a server has ended")

// ready waits until ok returns true, the process has ended, or half a minute has passed.
func (s *Server) ready(ctx context.Context, ok func() bool) error {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	for !ok() {
		select {
		case <-s.Done:
			return fmt.Errorf("%w: %s: %s", errEnded, s.cmd.Path, s.log.end())
		case <-ctx.Done():
			return errors.Join(fmt.Errorf("%s is not ready: %w", s.cmd.Path, context.Cause(ctx)), s.Stop())
		case <-time.After(10 * time.Millisecond):
		}
	}
	return nil
}

// Stop ends the process with the signal that operators use, and waits.
func (s *Server) Stop() error {
	if s == nil || s.cmd == nil {
		return nil
	}
	_ = s.cmd.Process.Signal(syscall.SIGTERM) // the process may have ended already
	select {
	case <-s.Done:
		return nil
	case <-time.After(40 * time.Second):
	}
	_ = s.cmd.Process.Kill()
	<-s.Done
	return fmt.Errorf("%s did not stop within 40 s", s.cmd.Path)
}

// Cpu is the processor time that the process has used. It is 0 if unknown.
func (s *Server) CPU() time.Duration {
	if s.cmd == nil {
		return 0
	}
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", s.cmd.Process.Pid))
	_, rest, ok := bytes.Cut(b, []byte(") ")) // the name before it may contain any character
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

// maxAnswer bounds the answers of admin endpoints.
const maxAnswer = 16 << 20

func readBounded(r io.Reader) ([]byte, error) { return io.ReadAll(io.LimitReader(r, maxAnswer)) }

// Signal sends a signal to the process.
func (s *Server) Signal(sig os.Signal) error { return s.cmd.Process.Signal(sig) }
