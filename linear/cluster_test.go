package linear

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/freshet-cache/freshet/check"
	"github.com/freshet-cache/freshet/internal/testkit"
	"github.com/freshet-cache/freshet/leader"
	"github.com/freshet-cache/freshet/linear/clink"
	"github.com/freshet-cache/freshet/shard"
	"github.com/freshet-cache/freshet/shard/lease"
	"github.com/freshet-cache/freshet/store/memory"
	"github.com/freshet-cache/freshet/ticks"
)

// memoryCoordinator is a coordinator that keeps its state in memory.
type memoryCoordinator struct {
	mu    sync.Mutex
	state []byte
	term  uint64
}

func (d *memoryCoordinator) Lead(context.Context) (leader.Leadership, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.term++
	return leader.Leadership{Term: d.term, State: d.state}, nil
}

func (d *memoryCoordinator) Save(_ context.Context, term uint64, state []byte) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if term != d.term {
		return leader.ErrDeposed
	}
	d.state = state
	return nil
}

// cluster is caches over one store, whose slices move under them. Messages are
// handed over by goroutines, in any order.
type cluster struct {
	st       *memory.Store
	assigner *shard.Assigner
	nodes    []atomic.Pointer[shard.Node]
	caches   []*Cache[string]
	ready    atomic.Bool // all of them are there
	mail     sync.WaitGroup
	down     atomic.Bool
	told     atomic.Int64
	copies   atomic.Int64 // reads that a replica served
	muted    atomic.Int64 // a node that is cut off, counted from 1
	cutOff   atomic.Int64 // how often one was
	carry    func(deliver func())
	think    func() // before each of a client's calls
}

func newCluster(t *testing.T, nodes int, st memory.Options, opt Options[string]) *cluster {
	return newClusterOver(t, nodes, st, opt, nil)
}

// newClusterOver is newCluster with messages that carry delivers, or loses.
func newClusterOver(t *testing.T, nodes int, st memory.Options, opt Options[string], carry func(deliver func())) *cluster {
	c := &cluster{carry: carry, st: memory.New(st), nodes: make([]atomic.Pointer[shard.Node], nodes)}
	c.assigner = shard.StartAssigner(&memoryCoordinator{}, shard.AssignerOptions{
		AssignerOptions: lease.AssignerOptions{Length: ticks.Tick(2 * time.Second), First: []string{"k3", "k6"}}, Beat: 20 * time.Millisecond,
		Send: func(node string, msg any) {
			c.post(func() {
				if n := c.nodes[node[1]-'0'].Load(); n != nil && c.muted.Load() != int64(node[1]-'0')+1 { // its first answer may come before it has a name
					n.Deliver(msg)
				}
			})
		},
	})
	for i := range nodes {
		o := opt
		o.Store, o.Codec = c.st, String()
		offer := func(_ context.Context, next string, after lease.Gen, batch []moved) {
			if c.ready.Load() {
				c.post(func() { c.caches[next[1]-'0'].offered(after, batch) })
			}
		}
		name := fmt.Sprintf("n%d", i)
		join := func(w Participant) {
			c.nodes[i].Store(shard.StartNode(shard.NodeOptions{
				NodeOptions: lease.NodeOptions{Node: name, Addr: name, Host: name, Drift: 200, Groups: true}, Beat: 50 * time.Millisecond, Watch: w,
				Send: func(msg any) {
					if c.muted.Load() != int64(i)+1 {
						c.post(func() { c.assigner.Deliver(msg) })
					}
				},
			}))
		}
		o.Peers = telling{hooks: hooks{join: join, offer: offer}, node: name, tell: c.tell}
		cache, err := New(o)
		if err != nil {
			t.Fatal(err)
		}
		c.caches = append(c.caches, cache)
	}
	c.ready.Store(true)
	return c
}

// mute cuts a node off from all others; it reaches the store.
func (c *cluster) mute(node int) { c.muted.Store(int64(node) + 1) }

// tell loses one message of sixteen, and carries another twice.
func (c *cluster) tell(to lease.GroupMember, message []byte) {
	luck := c.told.Add(1) % 16
	for times := luck; c.ready.Load() && times > 0; times -= 14 { // never for 0, twice for 15
		c.post(func() {
			if c.muted.Load() == int64(to.Addr[1]-'0')+1 {
				return
			}
			if !c.caches[to.Addr[1]-'0'].told(message) {
				panic("a message cannot be read")
			}
		})
	}
}

func (c *cluster) post(deliver func()) {
	if c.down.Load() {
		return
	}
	if c.carry != nil {
		c.mail.Go(func() { c.carry(deliver) })
		return
	}
	c.mail.Go(deliver)
}

func (c *cluster) close(t *testing.T) {
	for i := range c.nodes {
		c.nodes[i].Load().Close()
	}
	c.assigner.Close()
	c.down.Store(true)
	c.mail.Wait()
	for _, cache := range c.caches {
		if err := cache.Close(context.Background()); err != nil {
			t.Error(err)
		}
	}
}

// client does operations at random, each at the owner if it is found, and
// records them.
type client struct {
	c     *cluster
	id    int
	began time.Time
	r     *rand.Rand
	ops   []check.Op
}

func (cl *client) run(t *testing.T, n int) {
	for i := range n {
		if cl.c.think != nil {
			cl.c.think()
		}
		key := fmt.Sprint("k", cl.r.IntN(9))
		cache := cl.c.caches[cl.r.IntN(len(cl.c.caches))]
		for _, other := range cl.c.caches {
			if cl.r.IntN(4) > 0 && other.Owns(key) {
				cache = other
			}
		}
		ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
		o := check.Op{Client: cl.id, Key: key, Value: fmt.Sprintf("%d.%d", cl.id, i), Start: int64(time.Since(cl.began)), Outcome: check.OK}
		var err error
		switch cl.r.IntN(6) {
		case 0, 1:
			o.Kind = check.Write
			o.Version, err = cache.SetTTL(ctx, key, o.Value, 0)
		case 2:
			o.Kind, err = check.CAS, cl.swap(ctx, cache, &o)
		default:
			var e Entry[string]
			o.Kind = check.Read
			e, err = cache.GetEntry(ctx, key)
			o.Value, o.Found, o.Version = e.Value, e.Exists, e.Version
			if e.Copy {
				cl.c.copies.Add(1)
			}
		}
		cancel()
		o.End = int64(time.Since(cl.began))
		switch {
		case errors.Is(err, ErrOutcomeUnknown):
			o.Outcome = check.Unknown
		case errors.Is(err, ErrNotOwner), errors.Is(err, ErrBusy), errors.Is(err, errNothing):
			o.Outcome = check.No
		case err != nil && o.Kind == check.Read:
			o.Outcome = check.Unknown
		case err != nil:
			t.Errorf("%v: %v", o, err)
			return
		}
		cl.ops = append(cl.ops, o)
	}
}

var errNothing = errors.New("nothing is there")

// swap replaces what an update finds.
func (cl *client) swap(ctx context.Context, cache *Cache[string], o *check.Op) error {
	versions, err := cache.Update(ctx, []string{o.Key}, func(tx *Tx[string]) error {
		e, err := tx.Get(o.Key)
		if err == nil && !e.Exists {
			err = errNothing
		}
		o.Was = e.Value
		return errors.Join(err, tx.Set(o.Key, o.Value))
	})
	o.Version = versions[o.Key]
	return err
}

// Slices move, the store splits, forgets, delays and does not answer, callers
// read and write everywhere: every key's history is linearizable. Options change
// how fast that is, not what it means.
func TestLinearizableUnderResharding(t *testing.T) {
	for name, opt := range map[string]Options[string]{
		"everything fits":   {},
		"one entry fits":    {MaxBytes: 160},
		"nothing is kept":   {MaxBytes: -1},
		"one writer queues": {Queue: 1},
	} {
		t.Run(name, func(t *testing.T) {
			var calls atomic.Int64
			chaos := func(every int64) func(context.Context, memory.Call) error {
				return func(_ context.Context, _ memory.Call) error {
					if calls.Add(1)%every == 0 {
						return errors.New("no answer")
					}
					return nil
				}
			}
			c := newCluster(t, 3, memory.Options{Before: chaos(97), After: chaos(61)}, opt)
			began := time.Now()
			stop := make(chan struct{})
			var wg, disturber sync.WaitGroup
			disturber.Go(func() { c.disturb(t, stop) })
			clients := make([]*client, 8)
			for i := range clients {
				clients[i] = &client{c: c, id: i, began: began, r: rand.New(rand.NewPCG(uint64(i), 9))}
				wg.Go(func() { clients[i].run(t, 1500) })
			}
			wg.Wait()
			close(stop)
			disturber.Wait()
			var ops []check.Op
			done := map[check.Outcome]int{}
			for _, cl := range clients {
				ops = append(ops, cl.ops...)
				for _, o := range cl.ops {
					done[o.Outcome]++
				}
			}
			c.close(t)
			v := check.Linear(ops, time.Minute)
			if v.Finding != check.Linearizable {
				t.Fatalf("%+v", v)
			}
			t.Logf("%d operations: %v, %d keys searched, %d reads of replicas", v.Ops, done, v.Searched, c.copies.Load())
			if done[check.OK] < 1000 {
				t.Errorf("only %d of %d operations were done", done[check.OK], len(ops))
			}
		})
	}
}

// A slice that moves takes its entries along: the new owner serves them from
// memory without having asked the store.
func TestEntriesMoveAlong(t *testing.T) {
	n := &counter{}
	c := newCluster(t, 2, memory.Options{}, Options[string]{Recorder: n})
	defer c.close(t)
	ctx := context.Background()
	owner := func(key string) int {
		return slices.IndexFunc(c.caches, func(cache *Cache[string]) bool { return cache.Owns(key) })
	}
	testkit.Eventually(t, func() bool { // the slices are spread, and stay
		spread := map[int]bool{owner("k1"): true, owner("k4"): true, owner("k7"): true}
		return len(spread) == 2 && !spread[-1]
	})
	from := owner("k7")
	for i := range 500 {
		testkit.Eventually(t, func() bool { return c.caches[from].Set(ctx, fmt.Sprintf("k7%03d", i), "v") == nil })
	}
	if !c.assigner.Move("k7", fmt.Sprint("n", 1-from)) {
		t.Fatal("it does not move")
	}
	testkit.Eventually(t, func() bool { return n.events[clink.Transferred].Load() >= 500 })
	loads := n.loads.Load()
	for i := range 500 {
		testkit.Eventually(t, func() bool { // the lease may lapse for a moment on a busy machine
			e, ok := c.caches[1-from].Peek(fmt.Sprintf("k7%03d", i))
			return ok && e.Value == "v"
		})
	}
	if n.loads.Load() != loads {
		t.Error("the store was asked")
	}
}

// A part of a slice that is cut out and moves takes its entries along, and leaves the
// others where they are.
func TestEntriesOutliveACut(t *testing.T) {
	n := &counter{}
	c := newCluster(t, 2, memory.Options{}, Options[string]{Recorder: n})
	defer c.close(t)
	ctx := context.Background()
	owner := func(key string) int {
		return slices.IndexFunc(c.caches, func(cache *Cache[string]) bool { return cache.Owns(key) })
	}
	testkit.Eventually(t, func() bool {
		spread := map[int]bool{owner("k1"): true, owner("k4"): true, owner("k7"): true}
		return len(spread) == 2 && !spread[-1]
	})
	from, key := owner("k7"), func(i int) string { return fmt.Sprintf("k7%03d", i) }
	for i := range 500 {
		ttl := time.Duration(0)
		if i%10 == 9 { // which is not handed over, and goes on where it stays
			ttl = time.Hour
		}
		testkit.Eventually(t, func() bool { _, err := c.caches[from].SetTTL(ctx, key(i), "v", ttl); return err == nil })
	}
	c.assigner.Cut(key(200), key(300))
	testkit.Eventually(t, func() bool { // messages overtake each other here, and a recall must not
		h := c.nodes[from].Load().Acquire(key(200))
		return h != nil && h.Low == key(200)
	})
	if !c.assigner.Move(key(200), fmt.Sprint("n", 1-from)) {
		t.Fatal("it does not move")
	}
	testkit.Eventually(t, func() bool { return n.events[clink.Transferred].Load() >= 90 })
	for i := range 500 {
		at, moved := from, i >= 200 && i < 300
		if moved {
			at = 1 - from
		}
		if e, ok := c.caches[at].Peek(key(i)); ok != (!moved || i%10 != 9) || ok && e.Value != "v" {
			t.Fatalf("%s: %+v %v in its owner's memory", key(i), e, ok)
		}
		if owner(key(i)) != at {
			t.Fatalf("%s has moved to %d", key(i), owner(key(i)))
		}
	}
}

// disturb moves slices and changes the store's layout until it is stopped.
func (c *cluster) disturb(t *testing.T, stop chan struct{}) {
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	ctx := context.Background()
	for i := 0; ; i++ {
		select {
		case <-stop:
			return
		case <-tick.C:
		}
		key, err := fmt.Sprint("k", i%9), error(nil)
		if i%3 == 0 {
			c.assigner.Replicate(key, i/3%3)
		}
		switch i % 5 {
		case 0, 1:
			c.assigner.Move(key, fmt.Sprintf("n%d", i/5%3))
		case 2:
			err = c.st.Split(ctx, key)
		case 3:
			err = c.st.Merge(ctx, key)
		case 4:
			err = c.st.Restart(ctx, key)
		}
		if err != nil {
			t.Error(err)
		}
	}
}
