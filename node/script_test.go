package node

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/redis/rueidis"
	"github.com/redis/rueidis/rueidislock"
)

// locker is rueidislock as its users have it, but for the invalidations.
func locker(t *testing.T, addr string, px bool) rueidislock.Locker {
	t.Helper()
	l, err := rueidislock.NewLocker(rueidislock.LockerOption{
		KeyMajority: 2, KeyValidity: 2 * time.Second, ExtendInterval: 20 * time.Millisecond, TryNextAfter: 5 * time.Second, FallbackSETPX: px,
		ClientOption: rueidis.ClientOption{InitAddress: []string{addr}, DisableCache: true, ForceSingleClient: true},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(l.Close)
	return l
}

// A lock is held by one at a time, through whichever node it is taken, also while
// its keys move.
func TestLocksExclude(t *testing.T) {
	p := start(t, func(c *Config) { c.Nodes = 3 })
	var wg sync.WaitGroup
	counter := 0 // guarded by the lock alone
	for i := range 6 {
		addr, _ := p.Addr(i % 3)
		l := locker(t, addr, i%2 == 0)
		wg.Go(func() {
			for done := 0; done < 5; {
				_, cancel, err := l.TryWithContext(context.Background(), "counter")
				switch {
				case errors.Is(err, rueidislock.ErrNotLocked):
					continue
				case err != nil:
					t.Error(err)
					return
				}
				counter++
				done++
				p.assigner.Move(fmt.Sprintf("rueidislock:%d:counter", done%3), p.nodes[counter%3].incarnation)
				cancel()
			}
		})
	}
	wg.Wait()
	if counter != 30 {
		t.Errorf("30 additions under a lock made %d", counter)
	}
}

// A lock is extended while it is held, and lost when it is taken by force.
func TestLockIsTakenByForce(t *testing.T) {
	p := start(t, nil)
	addr, _ := p.Addr(0)
	l := locker(t, addr, false)
	held, cancel, err := l.TryWithContext(t.Context(), "x")
	if err != nil {
		t.Fatal(err)
	}
	defer cancel()
	if _, _, err := l.TryWithContext(t.Context(), "x"); !errors.Is(err, rueidislock.ErrNotLocked) {
		t.Errorf("a lock was had twice: %v", err)
	}
	_, release, err := l.ForceWithContext(t.Context(), "x")
	if err != nil {
		t.Fatal(err)
	}
	defer release()
	select {
	case <-held.Done():
	case <-time.After(20 * time.Second):
		t.Error("the former holder was not told")
	}
}

// The scripts answer what they answer in Redis, where rueidislock has loaded them.
func TestScriptsAsRedis(t *testing.T) {
	addr := realRedis(t)
	for _, px := range []bool{false, true} {
		l := locker(t, addr, px)
		for _, take := range []func(context.Context, string) (context.Context, context.CancelFunc, error){l.TryWithContext, l.ForceWithContext} {
			ctx, cancel, err := take(t.Context(), fmt.Sprint("scripts", px))
			if err != nil {
				t.Fatal(err)
			}
			cancel()
			<-ctx.Done()
		}
	}
	p := start(t, nil)
	listen, _ := p.Addr(0)
	x := &pair{t: t, theirs: dial(t, addr), ours: dial(t, listen)}
	x.theirs.do("select", "9")
	x.theirs.do("flushdb")
	loaded := []string{"9eb62214c9af87ae5f9a9f12bb4520281c0d2ae1", "fa3d1aaa7e4145457755016a3d5daf72fa7a11bf", "3875d208d9e377969d2022550302cc83ad17b584",
		"4384ed08baff4dd7071b6c78c516a2fded4ee3e7", "c10e8119872659b926e8e28002d9b7fccbf15617"}
	x.both(append([]string{"script", "exists"}, loaded...))
	r := rand.New(rand.NewPCG(1, 2))
	for range 500 {
		name := loaded[r.IntN(len(loaded))]
		x.both([]string{"evalsha", name, "1", fmt.Sprint("k", r.IntN(2)), fmt.Sprint("v", r.IntN(2)), "4000000000000"})
		x.both([]string{"get", "k0"})
	}
	for _, args := range [][]string{
		{"evalsha"}, {"evalsha", loaded[0]}, {"evalsha", loaded[0], "x"}, {"evalsha", loaded[0], "-1"}, {"evalsha", loaded[0], "2", "k"},
		{"evalsha", "0000000000000000000000000000000000000000", "0"}, {"eval"}, {"eval", "x", "y", "z"},
		{"script", "exists", "0000000000000000000000000000000000000000"}, {"script", "flush"},
	} {
		x.both(args)
	}
}

func TestScripts(t *testing.T) {
	p := start(t, func(c *Config) { c.Nodes = 2 })
	listen, _ := p.Addr(1)
	const claim, replace, release = "fb80ce0e2c4327e6b8b4818dcf4591eec0ebbc2c", "3913f9de2aab2b98021c6f9b04f7293af86e2c61", "7726C7BE95E2A0ED082EC1DA1E26B562F5C8903F"
	const extend = "852ba6ec6104340ced36643283c856d4698569e4"
	dial(t, listen).says([][2]string{
		{"EVALSHA " + claim + " 1 k me 100000", "(nil)"}, {"EVALSHA " + claim + " 1 k you 100000", "me"}, {"EXISTS k", "1"},
		{"EVALSHA " + replace + " 1 k you v 100000", "0"}, {"EVALSHA " + replace + " 1 k me v 100000", "OK"}, {"GET k", "v"},
		{"EVALSHA " + extend + " 1 k me 4000000000000", "0"}, {"EVALSHA " + extend + " 1 k v 4000000000000", "1"}, {"PERSIST k", "1"},
		{"EVALSHA " + release + " 1 k me", "0"}, {"EVALSHA " + release + " 1 k v", "1"}, {"EXISTS k", "0"},
		{"EVALSHA " + claim + " 1 k me x", "-ERR value is not an integer or out of range"}, {"EXISTS k", "0"},
		{"EVALSHA " + claim + " 1 k", "-ERR this script takes a key..."}, {"EVALSHA " + claim + " 2 k l me 5", "-ERR this script takes one key..."},
		{"EVAL return 0", "-ERR this script is not known..."}, {"SCRIPT LOAD x", "-ERR this script is not known..."}, {"SCRIPT NOSUCH", "-ERR..."},
		{"MULTI", "OK"}, {"EVALSHA " + claim + " 1 k me 100000", "QUEUED"}, {"EVAL x 0", "QUEUED"}, {"GET k", "QUEUED"},
		{"EXEC", "[(nil) -ERR this script is not known: there is no Lua here, only the scripts of common locks and counters, which docs/clients.md lists; use WATCH, MULTI and EXEC, or FR.CAS, instead me]"},
	})
}
