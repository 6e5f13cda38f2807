package blackbox

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

// cset writes a key of the space feeds in its own session and waits for the acknowledgement. It
// repeats a write that was answered with TRYAGAIN or UNKNOWN.
func cset(t *testing.T, c *redis.Client, key, value string) {
	t.Helper()
	for end := time.Now().Add(40 * time.Second); ; {
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		token, err := c.Do(ctx, "FR.BEGIN", "feeds").Text()
		if err == nil {
			err = c.Do(ctx, "FR.CSET", token, key, value).Err()
		}
		cancel()
		switch {
		case err == nil:
			return
		case !strings.HasPrefix(err.Error(), "TRYAGAIN") && !strings.HasPrefix(err.Error(), "UNKNOWN") && !errors.Is(err, syscall.ECONNREFUSED) || time.Now().After(end):
			t.Fatalf("writing %s: %v", key, err)
		}
	}
}

// cget reads a key of the space feeds in a new session.
func cget(t *testing.T, c *redis.Client, key string) string {
	t.Helper()
	for end := time.Now().Add(40 * time.Second); ; {
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		token, err := c.Do(ctx, "FR.BEGIN", "feeds").Text()
		var got []any
		if err == nil {
			got, err = c.Do(ctx, "FR.CGET", token, key).Slice()
		}
		cancel()
		switch {
		case err == nil:
			return fmt.Sprint(got[1])
		case !strings.HasPrefix(err.Error(), "TRYAGAIN") || time.Now().After(end):
			t.Fatalf("reading %s: %v", key, err)
		}
	}
}

// batch writes keys with this name and waits for each acknowledgement.
func batch(t *testing.T, c *redis.Client, name string, n int) {
	t.Helper()
	for i := range n {
		cset(t, c, fmt.Sprint(name, i), name)
	}
}

// lost counts the keys of a batch that a session does not find.
func lost(t *testing.T, c *redis.Client, name string, n int) (missing int) {
	t.Helper()
	for i := range n {
		if cget(t, c, fmt.Sprint(name, i)) != name {
			missing++
		}
	}
	return missing
}

// copyTree replaces a directory by a copy of another.
func copyTree(t *testing.T, from, to string) {
	t.Helper()
	if err := os.RemoveAll(to); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command("cp", "-a", from, to).CombinedOutput(); err != nil {
		t.Fatal(err, string(out))
	}
}

// A backup of the coordinator is restored beside a store that has gone on: writes that are acknowledged after that
// are in the rows, beside all that were acknowledged before.
func TestRestoredCoordinator(t *testing.T) {
	t.Run("synchronous", func(t *testing.T) { restoredCoordinator(t, "feeds=causal") })
	t.Run("asynchronous", func(t *testing.T) { restoredCoordinator(t, "feeds=causal,async") })
}

func restoredCoordinator(t *testing.T, space string) {
	dir, backup := t.TempDir(), t.TempDir()
	args := []string{"--data", dir, "--space", space}
	p := run(t, 1, args...)
	batch(t, p.client(0), "first", 3)
	_ = p.ends(syscall.SIGTERM)
	for _, sub := range []string{"coordinator", "coordinator-causal-feeds"} {
		copyTree(t, filepath.Join(dir, sub), filepath.Join(backup, sub))
	}
	p = run(t, 1, args...)
	batch(t, p.client(0), "second", 40)
	_ = p.ends(syscall.SIGTERM)
	for _, sub := range []string{"coordinator", "coordinator-causal-feeds"} {
		copyTree(t, filepath.Join(backup, sub), filepath.Join(dir, sub))
	}
	p = run(t, 1, args...)
	batch(t, p.client(0), "third", 40)
	_ = p.ends(syscall.SIGKILL)
	p = run(t, 1, args...) // nothing is in memory
	for name, n := range map[string]int{"first": 3, "second": 40, "third": 40} {
		if k := lost(t, p.client(0), name, n); k > 0 && space == "feeds=causal" {
			t.Errorf("%d of %d acknowledged writes of the %s batch are lost", k, n, name)
		}
		p.eventually(func() bool { return lost(t, p.client(0), name, n) == 0 }) // a log is written again in its own time
	}
}

// The same over PostgreSQL: --data is restored while another process goes on, and then lost for good.
func TestRestoredDataOverPostgres(t *testing.T) {
	backup := t.TempDir()
	c := gather(t, 2, "--lease", "1500ms", "--timeout", "4s", "--space", "feeds=causal")
	clients, done := c.clients()
	defer done()
	batch(t, clients[0], "first", 3)
	_ = c.procs[0].ends(syscall.SIGTERM)
	copyTree(t, c.dir, filepath.Join(backup, "data"))
	c.restart(0)
	for i := range 2 { // each restart is another incarnation, whose number the backup does not know
		batch(t, clients[i], fmt.Sprint("second", i, "."), 20)
	}
	_ = c.procs[1].ends(syscall.SIGTERM)
	c.restart(1)
	batch(t, clients[1], "third", 20)
	_ = c.procs[0].ends(syscall.SIGKILL)
	copyTree(t, filepath.Join(backup, "data"), c.dir)
	c.restart(0)
	for i := range 2 {
		batch(t, clients[i], fmt.Sprint("fourth", i, "."), 20)
	}
	for i := range c.procs {
		_ = c.procs[i].ends(syscall.SIGTERM)
	}
	if err := os.RemoveAll(c.dir); err != nil {
		t.Fatal(err)
	}
	if out, err := command(t, nil, "migrate", "--store", c.pg.URL("admin", "postgres"), "--adopt"); err != nil {
		t.Fatal(err, out)
	}
	for i := range c.procs {
		c.restart(i)
	}
	for i := range 2 {
		batch(t, clients[i], fmt.Sprint("fifth", i, "."), 20)
	}
	for i := range c.procs {
		_ = c.procs[i].ends(syscall.SIGKILL)
	}
	for i := range c.procs {
		c.restart(i) // nothing is in memory
	}
	for name, n := range map[string]int{"first": 3, "second0.": 20, "second1.": 20, "third": 20, "fourth0.": 20, "fourth1.": 20, "fifth0.": 20, "fifth1.": 20} {
		if k := lost(t, clients[0], name, n); k > 0 {
			t.Errorf("%d of %d acknowledged writes of the %s batch are lost", k, n, name)
		}
	}
}

// restored restores a whole store to an earlier state, says so with freshet migrate --restored, and goes on: nothing that
// clients hold of the history that is gone is mistaken for what comes after it.
func restored(t *testing.T, start func() (*process, func()), save, restore func(), migrate ...string) {
	p, stop := start()
	batch(t, p.client(0), "first", 5)
	version := func(p *process, value string) int64 {
		t.Helper()
		if err := p.client(0).Set(t.Context(), "row", value, 0).Err(); err != nil {
			t.Fatal(err)
		}
		v, err := p.client(0).Do(t.Context(), "FR.VERSION", "row").Slice()
		if err != nil {
			t.Fatal(err)
		}
		n, err := strconv.ParseInt(fmt.Sprint(v[0]), 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	version(p, "first")
	stop()
	save()
	p, stop = start()
	batch(t, p.client(0), "gone", 20)
	gone := version(p, "gone")
	token, err := p.client(0).Do(t.Context(), "FR.BEGIN", "feeds").Text()
	if err == nil {
		token, err = p.client(0).Do(t.Context(), "FR.CSET", token, "carried", "gone").Text()
	}
	if err != nil {
		t.Fatal(err)
	}
	stop()
	restore()
	if out, err := command(t, nil, append([]string{"migrate", "--restored"}, migrate...)...); err != nil {
		t.Fatal(err, out)
	}
	p, stop = start()
	cset(t, p.client(0), "carried", "second")
	batch(t, p.client(0), "second", 20)
	if v := version(p, "second"); v <= gone {
		t.Errorf("a row has version %d, and had version %d with another value in the history that is gone", v, gone)
	}
	got, err := p.client(0).Do(t.Context(), "FR.CGET", token, "carried").Slice()
	if err != nil || fmt.Sprint(got[1]) != "second" {
		t.Errorf("a session of the history that is gone reads %v, %v", got, err)
	}
	stop()
	p, stop = start() // nothing is in memory
	defer stop()
	if n := lost(t, p.client(0), "first", 5) + lost(t, p.client(0), "second", 20); n > 0 {
		t.Errorf("%d acknowledged writes are lost", n)
	}
	if n := lost(t, p.client(0), "gone", 20); n != 20 {
		t.Errorf("%d writes of the history that is gone are there", 20-n)
	}
}

func TestRestoredPebble(t *testing.T) {
	dir, backup := t.TempDir(), filepath.Join(t.TempDir(), "data")
	restored(t, func() (*process, func()) {
		p := run(t, 1, "--data", dir, "--space", "feeds=causal")
		return p, func() { _ = p.ends(syscall.SIGTERM) }
	}, func() { copyTree(t, dir, backup) }, func() { copyTree(t, backup, dir) }, "--store", "pebble:", "--data", dir)
}

// PostgreSQL is restored to an earlier state, and the coordinator is not.
func TestRestoredPostgres(t *testing.T) {
	pg, dir := postgresIn(t)
	data, backup := t.TempDir(), filepath.Join(t.TempDir(), "pg")
	copied := func(from, to string) {
		pg.Stop()
		copyTree(t, from, to)
		if err := pg.Resume(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	url := pg.URL("admin", "postgres")
	restored(t, func() (*process, func()) {
		p := run(t, 1, "--data", data, "--store", url, "--space", "feeds=causal")
		return p, func() { _ = p.ends(syscall.SIGTERM) }
	}, func() { copied(dir, backup) }, func() { copied(backup, dir) }, "--store", url)
}
