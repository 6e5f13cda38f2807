package blackbox

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"sync"
	"testing"
	"time"

	"github.com/bsm/redislock"
	"github.com/go-redsync/redsync/v4"
	"github.com/go-redsync/redsync/v4/redis/goredis/v9"
)

// The locks, caches and limiters that Python programs use work as with Redis, at any of
// three nodes: what was locked is released and extended, and limits are kept.
func TestPythonLibraries(t *testing.T) {
	python := os.Getenv("FRESHET_TEST_CLIENTS")
	if python == "" {
		if os.Getenv("FRESHET_TEST_REQUIRE") != "" {
			t.Fatal("FRESHET_TEST_CLIENTS is not set, and tests that need it may not be skipped")
		}
		t.Skip("no Python with the libraries of scripts/python-clients.txt: set FRESHET_TEST_CLIENTS to what scripts/python-clients prints, or run make test")
	}
	p := run(t, 3, "--store", "memory:")
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	out, err := exec.CommandContext(ctx, python, append([]string{"testdata/clients.py"}, p.addrs...)...).CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
}

// redsync: a lock excludes through whichever node it is taken, is extended, and is given
// back.
func TestRedsync(t *testing.T) {
	p := run(t, 3, "--store", "memory:")
	var all []*redsync.Redsync
	for i := range 3 {
		all = append(all, redsync.New(goredis.NewPool(p.client(i))))
	}
	counter := 0 // guarded by the lock alone
	var wg sync.WaitGroup
	for i := range 6 {
		wg.Go(func() {
			for range 10 {
				m := all[i%3].NewMutex("counter", redsync.WithExpiry(time.Minute), redsync.WithTries(10_000), redsync.WithRetryDelay(time.Millisecond))
				if err := m.LockContext(t.Context()); err != nil {
					t.Error(err)
					return
				}
				counter++
				if ok, err := m.ExtendContext(t.Context()); !ok || err != nil {
					t.Error("a held lock was not extended", err)
				}
				if ok, err := m.UnlockContext(t.Context()); !ok || err != nil {
					t.Error("a held lock was not released", err)
				}
			}
		})
	}
	wg.Wait()
	if counter != 60 {
		t.Errorf("60 additions under a lock made %d", counter)
	}
	held, other := all[0].NewMutex("m", redsync.WithExpiry(time.Minute)), all[1].NewMutex("m", redsync.WithTries(1))
	if err := held.LockContext(t.Context()); err != nil {
		t.Fatal(err)
	}
	var taken *redsync.ErrTaken
	if err := other.LockContext(t.Context()); !errors.As(err, &taken) {
		t.Errorf("a lock was had twice: %v", err)
	}
	if err := p.client(2).Del(t.Context(), "m").Err(); err != nil {
		t.Fatal(err)
	}
	if _, err := held.UnlockContext(t.Context()); !errors.Is(err, redsync.ErrLockAlreadyExpired) {
		t.Errorf("a lock that was lost is released with %v", err)
	}
	again := all[1].NewMutex("m", redsync.WithExpiry(time.Minute), redsync.WithSetNXOnExtend())
	if ok, err := again.ExtendContext(t.Context()); !ok || err != nil {
		t.Errorf("a lock that is free is not taken: %v", err)
	}
}

// redislock: the same for another library.
func TestRedislock(t *testing.T) {
	p := run(t, 2, "--store", "memory:")
	for i := range 2 {
		here, there := redislock.New(p.client(i)), redislock.New(p.client(1-i))
		key := fmt.Sprint("lock:", i)
		l, err := here.Obtain(t.Context(), key, time.Minute, nil)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := there.Obtain(t.Context(), key, time.Minute, nil); !errors.Is(err, redislock.ErrNotObtained) {
			t.Errorf("a lock was had twice: %v", err)
		}
		if err := l.Refresh(t.Context(), time.Hour, nil); err != nil {
			t.Error(err)
		}
		if left, err := l.TTL(t.Context()); err != nil || left <= time.Minute {
			t.Errorf("after an hour was asked for, %v are left: %v", left, err)
		}
		if _, err := there.Obtain(t.Context(), key, time.Minute, &redislock.Options{Token: l.Token()}); err != nil {
			t.Errorf("the holder of a token does not obtain its lock: %v", err)
		}
		if err := l.Release(t.Context()); err != nil {
			t.Error(err)
		}
		if err := l.Release(t.Context()); !errors.Is(err, redislock.ErrLockNotHeld) {
			t.Errorf("a lock was released twice: %v", err)
		}
	}
}
