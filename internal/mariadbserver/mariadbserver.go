// Package mariadbserver runs a MariaDB server of one's own for tests and
// measurements: in a directory of its own, on a free port, gone when stopped.
package mariadbserver

import (
	"bytes"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/go-sql-driver/mysql"
)

// Server is a running MariaDB. Its methods must not overlap.
type Server struct {
	dir, data, bin string
	port           int
	settings       []string
	cred           *syscall.Credential // who runs it, if not us: MariaDB refuses root
	proc           *exec.Cmd
	done           chan struct{} // closed when proc has ended
}

// Bin is the server program: FRESHET_TEST_MARIADB, or that in PATH or where Debian
// puts it; empty if there is none.
func Bin() string {
	if name := os.Getenv("FRESHET_TEST_MARIADB"); name != "" {
		return name
	}
	for _, name := range []string{"mariadbd", "/usr/sbin/mariadbd"} {
		if path, err := exec.LookPath(name); err == nil {
			return path
		}
	}
	return ""
}

// Start makes a server's directory in dir, which must exist and be empty, and starts
// it with settings such as "innodb_page_size=8k". It returns when connections are
// taken.
func Start(ctx context.Context, dir string, settings ...string) (*Server, error) {
	s := &Server{dir: dir, data: filepath.Join(dir, "data"), bin: Bin(), settings: settings}
	if s.bin == "" {
		return nil, errors.New("mariadbserver: no MariaDB: install mariadb-server-core, or name the program in FRESHET_TEST_MARIADB")
	}
	if err := s.asSomebody(); err != nil {
		return nil, err
	}
	if err := s.bootstrap(ctx); err != nil {
		return nil, err
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

// asSomebody makes the directories, and chooses another user for them if we are root. A server that
// starts removes the temporary files of others in its directory for those, so each has its own.
func (s *Server) asSomebody() error {
	if err := errors.Join(os.Mkdir(s.data, 0o700), os.Mkdir(s.tmp(), 0o700)); err != nil || os.Getuid() != 0 {
		return err
	}
	u, err := user.Lookup("mysql")
	if err != nil {
		u, err = user.Lookup("nobody")
	}
	if err != nil {
		return fmt.Errorf("mariadbserver: MariaDB does not run as root, and there is no other user: %w", err)
	}
	uid, err1 := strconv.Atoi(u.Uid)
	gid, err2 := strconv.Atoi(u.Gid)
	s.cred = &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}
	err = errors.Join(err1, err2, os.Chown(s.data, uid, gid), os.Chown(s.tmp(), uid, gid))
	for d := s.dir; err == nil && strings.HasPrefix(d, os.TempDir()+"/"); d = filepath.Dir(d) {
		err = os.Chmod(d, 0o755) // the way there
	}
	return err
}

// share is where the server's own texts and scripts are.
func (s *Server) share() string { return filepath.Join(s.base(), "share", "mysql") }
func (s *Server) tmp() string   { return filepath.Join(s.dir, "tmp") }
func (s *Server) base() string  { return filepath.Dir(filepath.Dir(s.bin)) }

func (s *Server) command(ctx context.Context, args ...string) *exec.Cmd {
	c := exec.CommandContext(ctx, s.bin, append([]string{"--no-defaults", "--datadir=" + s.data, "--tmpdir=" + s.tmp(), "--basedir=" + s.base(),
		"--lc-messages-dir=" + s.share(), "--character-sets-dir=" + filepath.Join(s.share(), "charsets"),
		"--log-warnings=1", "--innodb-buffer-pool-size=64M", "--innodb-log-file-size=32M"}, args...)...)
	c.Dir = "/"
	c.SysProcAttr = &syscall.SysProcAttr{Credential: s.cred, Pdeathsig: syscall.SIGKILL}
	return c
}

// bootstrap makes the system tables and the user admin, who may do everything. It
// does what mariadb-install-db does, which wants programs of further packages.
func (s *Server) bootstrap(ctx context.Context) error {
	var script bytes.Buffer
	script.WriteString("CREATE DATABASE IF NOT EXISTS mysql;\nUSE mysql;\nSET @auth_root_socket = NULL;\nSET @skip_auth_anonymous = 1;\n")
	for _, name := range []string{"mysql_system_tables.sql", "mysql_performance_tables.sql", "mysql_system_tables_data.sql"} {
		b, err := os.ReadFile(filepath.Join(s.share(), name))
		if err != nil {
			return fmt.Errorf("mariadbserver: the server's scripts are not beside it: %w", err)
		}
		script.Write(b)
	}
	script.WriteString("FLUSH PRIVILEGES;\nCREATE USER admin@'%';\nGRANT ALL ON *.* TO admin@'%' WITH GRANT OPTION;\n")
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	c := s.command(ctx, "--bootstrap", "--enforce-storage-engine=")
	c.Stdin = &script
	if out, err := c.CombinedOutput(); err != nil {
		return fmt.Errorf("mariadbserver: bootstrap: %w\n%s", err, out)
	}
	return nil
}

// Resume starts the server again after Stop or Crash, and returns when connections
// are taken.
func (s *Server) Resume(ctx context.Context) error {
	args := []string{"--port=" + strconv.Itoa(s.port), "--bind-address=127.0.0.1", "--socket=" + filepath.Join(s.data, "s"), "--skip-name-resolve", "--max-connections=300"}
	for _, set := range s.settings {
		args = append(args, "--"+set)
	}
	log, err := os.OpenFile(filepath.Join(s.dir, "mariadb.log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	defer log.Close()
	s.proc = s.command(context.WithoutCancel(ctx), args...)
	s.proc.Stdout, s.proc.Stderr = log, log
	if err := s.proc.Start(); err != nil {
		return fmt.Errorf("mariadbserver: %w", err)
	}
	s.done = make(chan struct{})
	go func(p *exec.Cmd, done chan struct{}) {
		_ = p.Wait()
		close(done)
	}(s.proc, s.done)
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	cfg := mysql.NewConfig()
	cfg.Addr, cfg.User, cfg.Logger, cfg.Timeout = s.Addr(), "admin", &mysql.NopLogger{}, time.Second
	connector, err := mysql.NewConnector(cfg)
	if err != nil {
		return err
	}
	db := sql.OpenDB(connector)
	defer db.Close()
	for {
		err := db.PingContext(ctx)
		if err == nil {
			return nil
		}
		select {
		case <-s.done:
			text, _ := os.ReadFile(log.Name())
			return fmt.Errorf("mariadbserver: the server has ended: %w\n%s", err, text)
		case <-ctx.Done():
			s.Crash()
			return fmt.Errorf("mariadbserver: the server takes no connections: %w", err)
		case <-time.After(10 * time.Millisecond):
		}
	}
}

// URL is where a user, or user:password, finds a database. The superuser is admin.
func (s *Server) URL(who, database string) string {
	return fmt.Sprintf("mysql://%s@%s/%s", who, s.Addr(), database)
}

// Addr is where the server listens.
func (s *Server) Addr() string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(s.port)) }

// Stop ends the server in an orderly way.
func (s *Server) Stop() { s.end(syscall.SIGTERM) }

// Crash kills the server: what was committed survives it.
func (s *Server) Crash() { s.end(syscall.SIGKILL) }

func (s *Server) end(sig syscall.Signal) {
	if s.proc == nil || s.proc.Process.Signal(sig) != nil {
		return
	}
	select {
	case <-s.done:
	case <-time.After(20 * time.Second):
		_ = s.proc.Process.Kill()
		<-s.done
	}
}
