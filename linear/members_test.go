package linear

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/freshet-cache/freshet/check"
	"github.com/freshet-cache/freshet/internal/testkit"
	"github.com/freshet-cache/freshet/store/memory"
)

// share has every other node keep a copy of key, and returns the owner.
func (c *cluster) share(t *testing.T, key string) int {
	t.Helper()
	testkit.Eventually(t, func() bool { return c.assigner.Replicate(key, len(c.caches)-1) })
	owner := -1
	testkit.Eventually(t, func() bool {
		owner = slices.IndexFunc(c.caches, func(cache *Cache[string]) bool { return cache.Owns(key) })
		copies := 0
		for _, cache := range c.caches {
			if cache.mayCopy(key) {
				copies++
			}
		}
		return owner >= 0 && copies == len(c.caches)-1
	})
	return owner
}

// A replica serves what the owner has written, from its own memory, and nothing older
// once the write has returned.
func TestReplicasFollow(t *testing.T) {
	n := &counter{}
	c := newCluster(t, 4, memory.Options{}, Options[string]{Recorder: n})
	defer c.close(t)
	ctx := context.Background()
	owner := c.share(t, "k4")
	for i := range 50 {
		value := fmt.Sprint("v", i)
		if i%10 == 9 {
			if _, err := c.caches[owner].Delete(ctx, "k4"); err != nil {
				t.Fatal(err)
			}
			value = ""
		} else if err := c.caches[owner].Set(ctx, "k4", value); err != nil {
			t.Fatal(err)
		}
		for _, cache := range c.caches {
			if e, err := cache.GetEntry(ctx, "k4"); err != nil || e.Value != value || e.Exists != (value != "") {
				t.Fatalf("%+v, %v; it should be %q", e, err, value)
			}
		}
	}
	if _, err := c.caches[owner].SetTTL(ctx, "k4", "passing", time.Hour); err != nil {
		t.Fatal(err)
	}
	for i, cache := range c.caches {
		testkit.Eventually(t, func() bool {
			e, err := cache.GetEntry(ctx, "k4")
			if err != nil || e.Value != "passing" || e.TTL <= 0 || e.TTL > time.Hour {
				t.Fatalf("%+v, %v", e, err)
			}
			return e.Hit && e.Copy == (i != owner)
		})
		if own, copies := cache.leases(); (copies == 1) == (i == owner) || own == 0 && i == owner {
			t.Errorf("node %d has %d leases and %d copies", i, own, copies)
		}
	}
	loads := n.loads.Load()
	for range 1000 {
		for _, cache := range c.caches {
			if e, err := cache.GetEntry(ctx, "k4"); err != nil || !e.Hit {
				t.Fatalf("%+v, %v", e, err)
			}
		}
	}
	if n.loads.Load() != loads {
		t.Error("the store was asked")
	}
	if _, err := c.caches[(owner+1)%4].SetTTL(ctx, "k4", "x", 0); !errors.Is(err, ErrNotOwner) {
		t.Errorf("a replica has written: %v", err)
	}
}

// A write waits for a replica of which nothing is heard until its lease is over, and is
// then refused: nothing was written, and whoever has the key next takes it.
func TestSilentReplica(t *testing.T) {
	c := newCluster(t, 3, memory.Options{}, Options[string]{})
	defer c.close(t)
	ctx := context.Background()
	owner := c.share(t, "k4")
	if err := c.caches[owner].Set(ctx, "k4", "old"); err != nil {
		t.Fatal(err)
	}
	silent := (owner + 1) % 3
	testkit.Eventually(t, func() bool { e, _ := c.caches[silent].GetEntry(ctx, "k4"); return e.Hit })
	c.mute(silent)
	testkit.Eventually(t, func() bool {
		for _, cache := range c.caches {
			if err := cache.Set(ctx, "k4", "new"); err == nil {
				return true
			} else if !errors.Is(err, ErrNotOwner) {
				t.Fatal(err)
			}
		}
		return false
	})
	for i, cache := range c.caches {
		if e, err := cache.GetEntry(ctx, "k4"); err != nil || e.Value != "new" {
			t.Errorf("node %d: %+v, %v", i, e, err)
		}
	}
}

// Members come and go, messages are lost, repeated and overtaken, everybody reads and
// writes: the history of the key is linearizable, and replicas serve much of it.
func TestLinearizableWithReplicas(t *testing.T) {
	c := newCluster(t, 4, memory.Options{}, Options[string]{})
	began := time.Now()
	stop := make(chan struct{})
	var wg, disturber sync.WaitGroup
	c.share(t, "k4")
	disturber.Go(func() {
		tick := time.NewTicker(150 * time.Millisecond)
		defer tick.Stop()
		for i := 0; ; i++ {
			select {
			case <-stop:
				return
			case <-tick.C:
			}
			if i%4 == 3 {
				c.assigner.Move("k4", fmt.Sprintf("n%d", i/4%4))
			} else {
				c.assigner.Replicate("k4", 1+i%3)
			}
		}
	})
	clients := make([]*client, 8)
	for i := range clients {
		clients[i] = &client{c: c, id: i, began: began, r: rand.New(rand.NewPCG(uint64(i), 11))}
		wg.Go(func() {
			for range 40 {
				clients[i].hot(t, "k4", 200)
			}
		})
	}
	wg.Wait()
	close(stop)
	disturber.Wait()
	c.close(t)
	var ops []check.Op
	for _, cl := range clients {
		ops = append(ops, cl.ops...)
	}
	v := check.Linear(ops, time.Minute)
	if v.Finding != check.Linearizable {
		t.Fatalf("%+v", v)
	}
	t.Logf("%d operations, %d reads of replicas, %v", v.Ops, c.copies.Load(), time.Since(began))
	if c.copies.Load() < 1000 {
		t.Errorf("replicas have served %d reads only", c.copies.Load())
	}
}

// hot reads a key n times, anywhere, and writes it once.
func (cl *client) hot(t *testing.T, key string, n int) {
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	record := func(o check.Op, err error) {
		o.Client, o.Key, o.End, o.Outcome = cl.id, key, int64(time.Since(cl.began)), check.OK
		switch {
		case errors.Is(err, ErrNotOwner), errors.Is(err, ErrBusy):
			o.Outcome = check.No
		case errors.Is(err, ErrOutcomeUnknown):
			o.Outcome = check.Unknown
		case err != nil:
			t.Errorf("%v: %v", o, err)
		}
		cl.ops = append(cl.ops, o)
	}
	for range n {
		o := check.Op{Kind: check.Read, Start: int64(time.Since(cl.began))}
		e, err := cl.c.caches[cl.r.IntN(len(cl.c.caches))].GetEntry(ctx, key)
		if o.Value, o.Found, o.Version = e.Value, e.Exists, e.Version; e.Copy {
			cl.c.copies.Add(1)
		}
		record(o, err)
	}
	for _, cache := range cl.c.caches {
		if cache.Owns(key) {
			o := check.Op{Kind: check.Write, Value: fmt.Sprintf("%d.%d", cl.id, len(cl.ops)), Start: int64(time.Since(cl.began))}
			var err error
			o.Version, err = cache.SetTTL(ctx, key, o.Value, 0)
			record(o, err)
			return
		}
	}
}

// A node that shares nothing is told of it by others, late: it keeps nothing.
func TestToldOfWhatItDoesNotShare(t *testing.T) {
	c, err := New(Options[string]{Store: memory.New(memory.Options{}), Codec: String(), Peers: telling{node: "n0"}})
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range [][]byte{{sayCacheable, 1}, {sayInvalidate, 1, 1}, {sayFinish, 1, 1, 1, 1, 'v'}, {sayReport, 1, 1, 1, 2, 'n', '1'}} {
		if !c.told(m) {
			t.Errorf("%q cannot be read", m)
		}
	}
	if c.Len() != 0 || c.told([]byte{sayFinish}) || c.told(nil) || c.told([]byte("z1")) {
		t.Error("it has taken what it could not")
	}
	if err := c.Close(context.Background()); err != nil {
		t.Error(err)
	}
	if !c.told([]byte{sayCacheable, 1}) {
		t.Error("a closed cache cannot read")
	}
}
