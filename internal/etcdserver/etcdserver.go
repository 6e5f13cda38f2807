// Package etcdserver runs an etcd of one's own for tests and measurements: one or
// more members in a directory of their own, on free ports, gone when stopped.
package etcdserver

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
)

// Cluster is a running etcd. Its methods must not overlap.
type Cluster struct {
	bin, dir string
	members  []*member
}

type member struct {
	name, client, peer string
	proc               *exec.Cmd
	done               chan struct{}
}

// Bin is the etcd program: FRESHET_TEST_ETCD, or that in PATH; empty if there is
// none.
func Bin() string {
	if name := os.Getenv("FRESHET_TEST_ETCD"); name != "" {
		return name
	}
	name, _ := exec.LookPath("etcd")
	return name
}

// Start runs n members in dir, which must exist and be empty, and returns when they
// have a leader.
func Start(ctx context.Context, dir string, n int) (*Cluster, error) {
	c, err := plan(dir, n)
	if err != nil {
		return nil, err
	}
	if err := c.run(ctx); err != nil {
		c.Stop()
		return nil, err
	}
	return c, nil
}

// plan chooses names and ports.
func plan(dir string, n int) (*Cluster, error) {
	c := &Cluster{bin: Bin(), dir: dir}
	if c.bin == "" {
		return nil, errors.New("etcdserver: no etcd: install etcd-server, or name the program in FRESHET_TEST_ETCD")
	}
	for i := range n {
		ports := make([]string, 2)
		for k := range ports {
			l, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				return nil, err
			}
			defer l.Close() // all at once, so that they differ
			ports[k] = l.Addr().String()
		}
		c.members = append(c.members, &member{name: fmt.Sprint("m", i), client: ports[0], peer: ports[1]})
	}
	return c, nil
}

// run starts every member, and returns when a leader answers.
func (c *Cluster) run(ctx context.Context) error {
	for i := range c.members {
		if err := c.Resume(i); err != nil {
			return err
		}
	}
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	cl, err := clientv3.New(clientv3.Config{Endpoints: c.Endpoints(), Logger: zap.NewNop()})
	if err != nil {
		return err
	}
	defer cl.Close()
	for {
		one, cancel := context.WithTimeout(ctx, time.Second)
		_, err := cl.Get(one, "ready")
		cancel()
		if err == nil || ctx.Err() != nil {
			return err
		}
	}
}

// Endpoints are where the members listen.
func (c *Cluster) Endpoints() (out []string) {
	for _, m := range c.members {
		out = append(out, m.client)
	}
	return out
}

// Resume starts the i-th member, again if it ran before, unless it is running.
func (c *Cluster) Resume(i int) error {
	m := c.members[i]
	if m.proc != nil {
		return nil
	}
	var all []string
	for _, o := range c.members {
		all = append(all, o.name+"=http://"+o.peer)
	}
	data := filepath.Join(c.dir, m.name)
	state := "new"
	if _, err := os.Stat(data); err == nil {
		state = "existing"
	}
	log, err := os.OpenFile(filepath.Join(c.dir, m.name+".log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	defer log.Close()
	m.proc = exec.Command(c.bin, "--name", m.name, "--data-dir", data, "--initial-cluster-state", state,
		"--listen-client-urls", "http://"+m.client, "--advertise-client-urls", "http://"+m.client,
		"--listen-peer-urls", "http://"+m.peer, "--initial-advertise-peer-urls", "http://"+m.peer,
		"--initial-cluster", strings.Join(all, ","))
	m.proc.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	m.proc.Stdout, m.proc.Stderr = log, log
	if err := m.proc.Start(); err != nil {
		m.proc = nil
		return fmt.Errorf("etcdserver: %w", err)
	}
	m.done = make(chan struct{})
	go func(p *exec.Cmd, done chan struct{}) {
		_ = p.Wait()
		close(done)
	}(m.proc, m.done)
	return nil
}

// Kill ends the i-th member at once.
func (c *Cluster) Kill(i int) {
	m := c.members[i]
	if m.proc == nil {
		return
	}
	_ = m.proc.Process.Kill()
	<-m.done
	m.proc = nil
}

// Stop ends all members.
func (c *Cluster) Stop() {
	for i := range c.members {
		c.Kill(i)
	}
}

// Lose kills all members, removes what they had stored, and starts them again: the
// same addresses then serve an etcd that knows nothing.
func (c *Cluster) Lose(ctx context.Context) error {
	c.Stop()
	for _, m := range c.members {
		if err := os.RemoveAll(filepath.Join(c.dir, m.name)); err != nil {
			return err
		}
	}
	return c.run(ctx)
}

// Save kills all members, copies what they have stored into the directory to, which must
// not exist, and starts them again.
func (c *Cluster) Save(ctx context.Context, to string) error {
	c.Stop()
	for _, m := range c.members {
		if err := os.CopyFS(filepath.Join(to, m.name), os.DirFS(filepath.Join(c.dir, m.name))); err != nil {
			return err
		}
	}
	return c.run(ctx)
}

// Restore kills all members, puts back what Save has copied, and starts them again.
func (c *Cluster) Restore(ctx context.Context, from string) error {
	c.Stop()
	for _, m := range c.members {
		data := filepath.Join(c.dir, m.name)
		if err := os.RemoveAll(data); err != nil {
			return err
		}
		if err := os.CopyFS(data, os.DirFS(filepath.Join(from, m.name))); err != nil {
			return err
		}
	}
	return c.run(ctx)
}
