package blackbox

import (
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

// replicate requests n replicas of a key at any node until a node accepts.
func (c *cluster) replicate(key string, n int) {
	c.t.Helper()
	client := c.procs[0].client(0)
	c.procs[0].eventually(func() bool { return client.Do(c.t.Context(), "FR.REPLICAS", key, n).Err() == nil })
}

// copies counts the replicas at these processes.
func (c *cluster) copies() (sum int) {
	for _, p := range c.procs {
		_, page := p.page(0, "/metrics")
		for _, line := range strings.Split(page, "\n") {
			if strings.HasPrefix(line, "freshet_replica_keys{") {
				n := 0
				_, _ = fmt.Sscan(line[strings.LastIndexByte(line, ' ')+1:], &n)
				sum += n
			}
		}
	}
	return sum
}

// readWhileWritten writes a key at the first process and reads it at two meanwhile: the
// write may take its time, but no read fails, and none is old once it was acknowledged.
func (c *cluster) readWhileWritten(key, old, fresh string) {
	c.t.Helper()
	ctx, writer := c.t.Context(), c.procs[0].client(0)
	var written atomic.Bool
	done := make(chan struct{})
	go func() {
		defer close(done)
		for writer.Set(ctx, key, fresh, 0).Err() != nil {
		}
		written.Store(true)
	}()
	readers := []*redis.Client{c.procs[0].client(0), c.procs[1].client(0)}
	reads := 0
	for over := false; !over; {
		select {
		case <-done:
			over = true
		default:
		}
		for _, r := range readers {
			was := written.Load()
			v, err := r.Get(ctx, key).Result()
			if err != nil || v != old && v != fresh || was && v != fresh {
				c.t.Fatalf("%q, %v; written: %v", v, err, was)
			}
			reads++
		}
	}
	c.t.Logf("%d reads were answered until the write was", reads)
}

// A process that keeps a replica is stopped: a write waits until its lease is over, and
// everybody reads meanwhile. When it goes on, its first answer is the new value. Then
// it is killed: the key has other members.
func TestReplicaStoppedAndKilled(t *testing.T) {
	c := gather(t, 3, "--lease", "1s", "--timeout", "5s")
	ctx := t.Context()
	c.replicate("hot", 2)
	first := c.procs[0].client(0)
	c.procs[0].eventually(func() bool { return c.copies() == 2 && first.Set(ctx, "hot", "old", 0).Err() == nil })
	for _, p := range c.procs {
		p.eventually(func() bool {
			if v, err := p.client(0).Get(ctx, "hot").Result(); err != nil || v != "old" {
				t.Fatal(v, err)
			}
			return c.copies() == 2
		})
	}
	stopped := c.procs[2] // it has no assigner, and one more has none
	reader := stopped.client(0)
	if v := reader.Get(ctx, "hot").Val(); v != "old" {
		t.Fatal(v)
	}
	stopped.signal(syscall.SIGSTOP)
	c.readWhileWritten("hot", "old", "new")
	stopped.signal(syscall.SIGCONT)
	if v, err := reader.Get(ctx, "hot").Result(); err != nil || v != "new" {
		t.Errorf("who was stopped answers %q, %v", v, err)
	}
	c.procs[0].eventually(func() bool { return c.copies() == 2 })
	_ = stopped.ends(syscall.SIGKILL)
	c.procs[0].eventually(func() bool { return first.Set(ctx, "hot", "newest", 0).Err() == nil })
	c.restart(2)
	c.procs[2].eventually(func() bool {
		v, err := c.procs[2].client(0).Get(ctx, "hot").Result()
		if err != nil || v != "newest" {
			t.Fatal(v, errors.Join(err))
		}
		return true
	})
	took := time.Now()
	c.procs[0].eventually(func() bool { return c.copies() == 2 })
	t.Logf("both replicas are there again %v after the restart", time.Since(took).Round(time.Millisecond))
}
