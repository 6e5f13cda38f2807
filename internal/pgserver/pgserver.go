// Package pgserver runs a PostgreSQL server of one's own for tests and
// measurements: in a directory of its own, on a free port, gone when stopped.
package pgserver

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"
)

// Server is a running PostgreSQL. Its methods must not overlap.
type Server struct {
	dir, bin string
	port     int
	settings []string
	cred     *syscall.Credential // who runs it, if not us: PostgreSQL refuses root
	proc     *exec.Cmd
	done     chan struct{} // closed when proc has ended
}

// Bin is the directory of PostgreSQL's programs: FRESHET_TEST_PGBIN, or that of
// initdb in PATH, or the newest of Debian's; empty if there is none.
func Bin() string {
	if dir := os.Getenv("FRESHET_TEST_PGBIN"); dir != "" {
		return dir
	}
	if p, err := exec.LookPath("initdb"); err == nil {
		return filepath.Dir(p)
	}
	all, _ := filepath.Glob("/usr/lib/postgresql/*/bin/initdb")
	slices.Sort(all)
	if len(all) == 0 {
		return ""
	}
	return filepath.Dir(all[len(all)-1])
}

// Start makes a database cluster in dir, which must exist and be empty, and starts
// it with settings such as "fsync=off". It returns when connections are taken.
func Start(ctx context.Context, dir string, settings ...string) (*Server, error) {
	s := &Server{dir: filepath.Join(dir, "pg"), bin: Bin(), settings: settings}
	if s.bin == "" {
		return nil, errors.New("pgserver: no PostgreSQL: install postgresql, or name the directory of initdb in FRESHET_TEST_PGBIN")
	}
	if err := s.asSomebody(dir); err != nil {
		return nil, err
	}
	out, err := s.command(ctx, "initdb", "-D", s.dir, "-U", "admin", "--auth=trust", "--no-sync", "--encoding=UTF8", "--locale=C").CombinedOutput()
	if err != nil {
		return nil, fmt.Errorf("pgserver: initdb: %w\n%s", err, out)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	s.port = l.Addr().(*net.TCPAddr).Port
	if err := l.Close(); err != nil {
		return nil, err
	}
	if err := s.Resume(ctx); err != nil {
		return nil, err
	}
	return s, nil
}

// asSomebody chooses another user if we are root, and gives dir to it.
func (s *Server) asSomebody(dir string) error {
	if os.Getuid() != 0 {
		return nil
	}
	u, err := user.Lookup("postgres")
	if err != nil {
		u, err = user.Lookup("nobody")
	}
	if err != nil {
		return fmt.Errorf("pgserver: PostgreSQL does not run as root, and there is no other user: %w", err)
	}
	uid, err1 := strconv.Atoi(u.Uid)
	gid, err2 := strconv.Atoi(u.Gid)
	s.cred = &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}
	err = errors.Join(err1, err2, os.Mkdir(s.dir, 0o700), os.Chown(s.dir, uid, gid))
	for d := dir; err == nil && strings.HasPrefix(d, os.TempDir()+"/"); d = filepath.Dir(d) {
		err = os.Chmod(d, 0o755) // the way there
	}
	return err
}

func (s *Server) command(ctx context.Context, name string, args ...string) *exec.Cmd {
	c := exec.CommandContext(ctx, filepath.Join(s.bin, name), args...)
	c.Dir = "/"
	c.SysProcAttr = &syscall.SysProcAttr{Credential: s.cred, Pdeathsig: syscall.SIGKILL}
	return c
}

// Resume starts the server again after Stop or Crash, and returns when connections
// are taken.
func (s *Server) Resume(ctx context.Context) error {
	args := []string{"-D", s.dir, "-p", strconv.Itoa(s.port), "-c", "listen_addresses=127.0.0.1", "-c", "unix_socket_directories=",
		"-c", "max_connections=200", "-c", "logging_collector=off"}
	for _, set := range s.settings {
		args = append(args, "-c", set)
	}
	log, err := os.OpenFile(filepath.Join(filepath.Dir(s.dir), "pg.log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	defer log.Close()
	s.proc = s.command(context.WithoutCancel(ctx), "postgres", args...)
	s.proc.Stdout, s.proc.Stderr = log, log
	if err := s.proc.Start(); err != nil {
		return fmt.Errorf("pgserver: %w", err)
	}
	s.done = make(chan struct{})
	go func(p *exec.Cmd, done chan struct{}) {
		_ = p.Wait()
		close(done)
	}(s.proc, s.done)
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	for {
		conn, err := pgx.Connect(ctx, s.URL("admin", "postgres"))
		if err == nil {
			return conn.Close(ctx)
		}
		select {
		case <-s.done:
			text, _ := os.ReadFile(log.Name())
			return fmt.Errorf("pgserver: the server has ended: %w\n%s", err, text)
		case <-ctx.Done():
			s.Crash()
			return fmt.Errorf("pgserver: the server takes no connections: %w", err)
		case <-time.After(10 * time.Millisecond):
		}
	}
}

// URL is where a user finds a database. The superuser is admin.
func (s *Server) URL(who, database string) string {
	return fmt.Sprintf("postgres://%s@127.0.0.1:%d/%s?sslmode=disable", who, s.port, database)
}

// Addr is where the server listens.
func (s *Server) Addr() string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(s.port)) }

// Stop ends the server in an orderly way; soft state survives it.
func (s *Server) Stop() { s.end(syscall.SIGINT) }

// Crash ends the server at once, as a crash does: what was committed survives it,
// and unlogged tables are emptied when it is resumed.
func (s *Server) Crash() { s.end(syscall.SIGQUIT) }

// Signal is sent to the server's first process.
func (s *Server) Signal(sig syscall.Signal) error { return s.proc.Process.Signal(sig) }

func (s *Server) end(sig syscall.Signal) {
	if s.proc.Process.Signal(sig) != nil {
		return
	}
	select {
	case <-s.done:
	case <-time.After(20 * time.Second):
		_ = s.proc.Process.Kill()
		<-s.done
	}
}
