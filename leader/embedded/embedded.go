// Package embedded coordinates a cluster from one of its processes. The process leads from the
// moment it opens the directory until it closes it. The saved state survives a crash.
//
// The process holds a lock on a file of the directory. Taking the lock proves that its former
// holder has ended, together with all nodes in that process, so a restart need not wait for their
// leases.
package embedded

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"os"
	"path/filepath"
	"strings"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/freshet-cache/freshet/internal/durable"
	"github.com/freshet-cache/freshet/leader"
)

// Coordinator implements leader.Coordinator. It is safe for concurrent use.
type Coordinator struct {
	dir  string // empty: in memory
	lock *os.File

	mu      sync.Mutex
	term    uint64
	cluster string // the name never changes
	host    string
	state   []byte
}

// ErrLocked means that another process is using the directory.
var ErrLocked = errors.New("embedded: another freshet is running on this directory; stop it, or use another --data")

const (
	file  = "coordinator"
	magic = "freshet coordinator 2\n"
	first = "freshet coordinator 1\n" // the former format, which has no name of the cluster
)

// Open opens or creates the coordinator in dir. If dir is empty, the state is only in memory.
func Open(dir string) (*Coordinator, error) {
	c := &Coordinator{dir: dir, cluster: rand.Text()}
	defer func() { c.host = c.cluster + "/" + rand.Text() }()
	if dir == "" {
		c.term = 1
		return c, nil
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("embedded: %w", err)
	}
	var err error
	if c.lock, err = os.OpenFile(filepath.Join(dir, file+".lock"), os.O_CREATE|os.O_RDWR, 0o600); err != nil {
		return nil, fmt.Errorf("embedded: %w", err)
	}
	if err := unix.Flock(int(c.lock.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		c.lock.Close()
		return nil, fmt.Errorf("%w (%s)", ErrLocked, dir)
	}
	if err := c.read(); err != nil {
		c.lock.Close()
		return nil, err
	}
	c.term++ // this ends the term of the former leader
	if err := c.write(); err != nil {
		c.lock.Close()
		return nil, err
	}
	return c, nil
}

// Cluster returns the name of the cluster, which was drawn when the directory was created.
func (c *Coordinator) Cluster() string { return c.cluster }

// Host returns a unique name of this process as the host of its nodes. By this name, the next
// process that opens the directory knows which nodes have ended.
func (c *Coordinator) Host() string { return c.host }

// The file: magic, checksum of the rest, term, cluster, state.
func (c *Coordinator) read() error {
	name := filepath.Join(c.dir, file)
	b, err := os.ReadFile(name)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("embedded: %w", err)
	}
	if c.decode(b) != nil {
		return fmt.Errorf("embedded: %s is damaged or of another version; it holds assignments only, so it may be removed while no freshet runs on %s", name, c.dir)
	}
	return nil
}

var errDamaged = errors.New("embedded: damaged")

func (c *Coordinator) decode(b []byte) error {
	if len(b) < len(magic)+12 || string(b[:len(magic)]) != magic && string(b[:len(magic)]) != first {
		return errDamaged
	}
	old, b := string(b[:len(magic)]) == first, b[len(magic):]
	if binary.BigEndian.Uint32(b) != crc32.ChecksumIEEE(b[4:]) {
		return errDamaged
	}
	c.term, b = binary.BigEndian.Uint64(b[4:]), b[12:]
	n := len(c.cluster)
	if old {
		n = 0
	}
	if len(b) < n {
		return errDamaged
	}
	if !old {
		c.cluster = string(b[:n])
	}
	if c.state = nil; len(b) > n {
		c.state = b[n:]
	}
	return nil
}

// write replaces the file atomically: after a crash it has the old or the new contents.
func (c *Coordinator) write() error {
	b := append(binary.BigEndian.AppendUint64(nil, c.term), c.cluster...)
	b = append(b, c.state...)
	out := binary.BigEndian.AppendUint32([]byte(magic), crc32.ChecksumIEEE(b))
	if err := durable.WriteFile(filepath.Join(c.dir, file), append(out, b...)); err != nil {
		return fmt.Errorf("embedded: %w", err)
	}
	return nil
}

// Lead implements leader.Coordinator.
func (c *Coordinator) Lead(context.Context) (leader.Leadership, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	gone := func(host string) bool { return host != c.host && strings.HasPrefix(host, c.cluster+"/") }
	return leader.Leadership{Term: c.term, State: c.state, Gone: gone}, nil
}

// Save implements leader.Coordinator.
func (c *Coordinator) Save(_ context.Context, term uint64, state []byte) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if term != c.term {
		return leader.ErrDeposed
	}
	c.state = state
	if c.dir == "" {
		return nil
	}
	return c.write()
}

// Close lets another process open the directory.
func (c *Coordinator) Close() error {
	if c.lock == nil {
		return nil
	}
	return c.lock.Close()
}
