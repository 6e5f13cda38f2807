package kit

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
)

// StartFreshet runs freshet serve with this many nodes and waits until every key has an owner. The
// kernel chooses the ports and the process prints them. If kit chose a port, another process could
// take it first, and kit would measure that process.
func StartFreshet(ctx context.Context, opt Options, pin bool, nodes int, dir string, flags ...string) (*Server, error) {
	args := append([]string{}, opt.Serve...)
	args = append(args, "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0", "--nodes", strconv.Itoa(nodes), "--data", dir)
	s, err := start(ctx, pin, append(args, flags...))
	if err != nil {
		return nil, err
	}
	return s, s.ready(ctx, func() bool {
		if s.Addrs, s.Admins = s.log.addresses(); len(s.Admins) < nodes {
			return false
		}
		for _, a := range s.Admins {
			if _, err := Fetch(ctx, "http://"+a+"/readyz"); err != nil {
				return false
			}
		}
		return true
	})
}

// StartRedis runs redis-server. With aof, the server syncs every write to disk before it answers;
// otherwise it stores nothing on disk. It cannot choose a port itself, so StartRedis tries ports
// that were free until the server that answers is the one it started.
func StartRedis(ctx context.Context, pin bool, dir string, aof bool) (*Server, error) {
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
		s.Addrs = []string{net.JoinHostPort("127.0.0.1", port)}
		own := fmt.Sprintf("process_id:%d\r\n", s.cmd.Process.Pid)
		err = s.ready(ctx, func() bool { return strings.Contains(info(s.Addrs[0]), own) })
		if err == nil || !errors.Is(err, errEnded) || try == 4 {
			return s, err
		}
	}
}

// freePort returns a port on which nothing listens at the moment.
func freePort() (string, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	_, port, err := net.SplitHostPort(l.Addr().String())
	return port, errors.Join(err, l.Close())
}

// Scratch creates a directory for the data of servers.
func Scratch(name string) (string, error) {
	dir, err := os.MkdirTemp("", "freshet-bench-")
	if err != nil {
		return "", err
	}
	dir = filepath.Join(dir, name)
	return dir, os.Mkdir(dir, 0o700)
}
