package causal

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/freshet-cache/freshet/check"
	"github.com/freshet-cache/freshet/internal/testkit"
	"github.com/freshet-cache/freshet/store/memory"
)

// A server joins, and answers from what the ring knows; one leaves without a word, and
// what it had acknowledged is there.
func TestJoinAndCrash(t *testing.T) {
	c, ctx := gather(t, 2, memory.Options{}, nil), t.Context()
	s := c.spaces[0].Begin()
	for i := range 200 {
		if err := s.Set(ctx, fmt.Sprint("k", i), fmt.Sprint("v", i)); err != nil {
			t.Fatal(err)
		}
	}
	c.enter(func(v *View) { v.Ring, v.Newest = append(v.Ring, RingServer{3, "2"}), 3 })
	c.start(t, true)
	testkit.Eventually(t, func() bool { return c.servers[2].Joined() })
	at3 := roam(t, s, c.spaces[2])
	for i := range 200 {
		if v, _, err := at3.Get(ctx, fmt.Sprint("k", i)); err != nil || v != fmt.Sprint("v", i) {
			t.Fatalf("k%d is %q at the server that joined, %v", i, v, err)
		}
	}
	for i := range 200 { // the last of them are nowhere else
		if err := at3.Set(ctx, fmt.Sprint("k", i), fmt.Sprint("w", i)); err != nil {
			t.Fatal(err)
		}
	}
	c.servers[2].crash()
	c.enter(func(v *View) { v.Ring, v.Departed = v.Ring[:2], []uint32{3} })
	for i := range 200 {
		at := roam(t, at3, c.spaces[i%2])
		testkit.Eventually(t, func() bool {
			v, _, err := at.Get(ctx, fmt.Sprint("k", i))
			if err != nil && !errors.Is(err, ErrBehind) {
				t.Fatal(err)
			}
			return err == nil && v == fmt.Sprint("w", i)
		})
	}
	if incarnation := <-c.retired; incarnation != 3 {
		t.Errorf("incarnation %d was retired", incarnation)
	}
	c.enter(func(v *View) { v.Departed = nil })
	for i := range 200 { // without a token too
		if v, _, err := c.spaces[0].Begin().Get(ctx, fmt.Sprint("k", i)); err != nil || v != fmt.Sprint("w", i) {
			t.Fatalf("k%d is %q after all, %v", i, v, err)
		}
	}
}

// A server joins while more is under way than one frame of a link can hold.
func TestJoinBehindManyWrites(t *testing.T) {
	c, ctx := gather(t, 2, memory.Options{}, nil), t.Context()
	c.servers[1].crash() // what is written now is nowhere else
	s := c.spaces[0].Begin()
	value := strings.Repeat("v", 1<<20)
	for i := range 6 {
		if err := s.Set(ctx, fmt.Sprint("k", i), value); err != nil {
			t.Fatal(err)
		}
	}
	c.mu.Lock()
	c.enter(func(v *View) {
		v.Ring, v.Departed, v.Newest = []RingServer{v.Ring[0], {3, "2"}}, []uint32{2}, 3
	})
	c.mu.Unlock()
	c.start(t, true)
	testkit.Eventually(t, func() bool { return c.servers[2].Joined() })
	at3 := roam(t, s, c.spaces[2])
	for i := range 6 {
		if v, _, err := at3.Get(ctx, fmt.Sprint("k", i)); err != nil || v != value {
			t.Fatalf("k%d has %d bytes at the server that joined, %v", i, len(v), err)
		}
	}
}

// crash ends a server without a word.
func (s *Server) crash() {
	s.mu.Lock()
	s.closed = true
	for op, ch := range s.waiting { // who waited hears that the connection is gone
		delete(s.waiting, op)
		ch <- answer{err: ErrClosed}
	}
	r := s.ring
	s.ring = ring{}
	s.mu.Unlock()
	s.stop()
	for _, c := range []*stream{r.out, r.in} {
		if c != nil {
			c.conn.Break()
		}
	}
}

// A server that the others have left behind and that has not heard of it answers from the
// store what a session has seen elsewhere; it takes no write of it.
func TestLeftBehind(t *testing.T) {
	c, ctx := gather(t, 3, memory.Options{}, nil), t.Context()
	v := c.view
	v.Number, v.Ring, v.Departed = 2, v.Ring[:2], []uint32{3}
	c.servers[0].Enter(v)
	c.servers[1].Enter(v)
	s := c.spaces[0].Begin()
	for i := range 30 {
		want := fmt.Sprint(i)
		if err := errors.Join(s.Set(ctx, "a", want), s.Set(ctx, "b", want)); err != nil {
			t.Fatal(err)
		}
		s = roam(t, s, c.spaces[1])
		if i%2 == 0 {
			testkit.Eventually(t, func() bool { // nothing is carried any more
				_, _, err := s.Get(ctx, "a")
				return err == nil && len(s.m.Carried)+len(s.m.Bare) == 0
			})
		}
		s = roam(t, s, c.spaces[2])
		items, err := s.GetMany(ctx, "b", "a", "never")
		if err != nil || items[0].Value != want || items[1].Value != want || items[2].Exists {
			t.Fatalf("step %d: %+v, %v", i, items, err)
		}
		if v, _, err := s.Get(ctx, "b"); err != nil || v != want {
			t.Fatalf("step %d: %q, %v", i, v, err)
		}
		if err := s.Set(ctx, "c", want); i%2 == 0 && !errors.Is(err, ErrBehind) {
			t.Fatalf("it takes a write: %v", err)
		}
		s = roam(t, s, c.spaces[0])
	}
}

// A ring whose servers are all gone begins anew, with what they had acknowledged.
func TestAllRestart(t *testing.T) {
	c, ctx := gather(t, 2, memory.Options{}, nil), t.Context()
	s := c.spaces[0].Begin()
	for i := range 50 {
		if err := s.Set(ctx, "k", fmt.Sprint(i)); err != nil {
			t.Fatal(err)
		}
	}
	for _, srv := range c.servers {
		srv.crash()
	}
	largest, err := c.store.Largest(ctx)
	if err != nil {
		t.Fatal(err)
	}
	settled := map[uint32]uint64{}
	for o := range uint32(2) {
		if err := c.store.Fence(ctx, o+1); err != nil { // or what they were saying to the store may come later
			t.Fatal(err)
		}
		if _, settled[o+1], err = c.store.Entries(ctx, o+1, 0, 1); err != nil {
			t.Fatal(err)
		}
	}
	c.change = func(o *ServerOptions) { o.Floor, o.Truncated = largest, settled }
	c.view = View{Number: 2, Ring: []RingServer{{3, "2"}}, Departed: []uint32{1, 2}, Newest: 3}
	c.start(t, false)
	at := roam(t, s, c.spaces[2])
	testkit.Eventually(t, func() bool {
		v, _, err := at.Get(ctx, "k")
		if err != nil && !errors.Is(err, ErrBehind) {
			t.Fatal(err)
		}
		return v == "49"
	})
	testkit.Eventually(t, func() bool { // when what they had acknowledged is recovered
		err := at.Set(ctx, "k", "50")
		if err != nil && !errors.Is(err, ErrBehind) {
			t.Fatal(err)
		}
		return err == nil
	})
	rows, err := c.store.Load(ctx, "k")
	if err != nil || string(rows[0].Value) != "50" {
		t.Errorf("%+v, %v", rows, err)
	}
}

// Servers join, crash and are taken for dead while workflows roam: what they see is
// causally consistent, and nothing that was acknowledged is lost.
func TestCausalWhileTheRingChanges(t *testing.T) {
	c := gather(t, 3, memory.Options{}, nil)
	h, end := c.wander(t, 6)
	r := rand.New(rand.NewPCG(4, 4))
	for range 12 {
		n := len(h.now())
		testkit.Eventually(t, func() bool { return len(h.now()) > n+150 })
		c.mu.Lock()
		switch ring := c.view.Ring; {
		case len(ring) < 3 || r.IntN(2) == 0 && len(ring) < 5:
			at, o := r.IntN(len(ring)+1), uint32(len(c.servers)+1)
			c.enter(func(v *View) { v.Ring, v.Newest = slices.Insert(v.Ring, at, RingServer{o, fmt.Sprint(o - 1)}), o })
			c.mu.Unlock()
			c.start(t, true)
			continue
		default:
			at := r.IntN(len(ring))
			gone := ring[at].Incarnation
			if r.IntN(2) == 0 {
				c.servers[gone-1].crash()
			}
			c.enter(func(v *View) { v.Ring, v.Departed = slices.Delete(v.Ring, at, at+1), append(v.Departed, gone) })
		}
		c.mu.Unlock()
	}
	end()
	t.Logf("%d acts, %d incarnations, view %d", len(h.acts), len(c.servers), c.view.Number)
	retired := map[uint32]bool{}
	for deadline := time.After(30 * time.Second); len(retired) < len(c.view.Departed); {
		select {
		case incarnation := <-c.retired:
			retired[incarnation] = true
		case <-deadline:
			t.Fatalf("of %v only %v were retired", c.view.Departed, retired)
		}
	}
}

// wander lets workflows roam among the members of the current ring, until end, which
// judges what they saw.
func (c *cluster) wander(t *testing.T, clients int) (h *history, end func()) {
	h = &history{}
	stop := make(chan struct{})
	var wg sync.WaitGroup
	living := func() (out []int) {
		c.mu.Lock()
		defer c.mu.Unlock()
		for _, m := range c.view.Ring {
			out = append(out, int(m.Incarnation)-1)
		}
		return out
	}
	for i := range clients {
		cl := &client{h: h, c: c, r: rand.New(rand.NewPCG(uint64(i), 1)), name: fmt.Sprint("c", i), s: c.spaces[i%3].Begin(), at: living}
		wg.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
					cl.act(t)
				}
			}
		})
	}
	return h, func() {
		close(stop)
		wg.Wait()
		if v := check.Causal(h.acts); !v.OK {
			t.Fatalf("%s\n%s", v.Reason, strings.Join(v.Witness, "\n"))
		}
	}
}

func (h *history) now() []check.Act {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.acts
}

// A server that cannot tell whether it is a member yet reads from the store, and takes no
// write.
func TestLeaseOver(t *testing.T) {
	var serves atomic.Bool
	serves.Store(true)
	c, ctx := gather(t, 2, memory.Options{}, func(o *ServerOptions) { o.Serves = serves.Load }), t.Context()
	s := c.spaces[0].Begin()
	if err := s.Set(ctx, "k", "v"); err != nil {
		t.Fatal(err)
	}
	serves.Store(false)
	if v, _, err := roam(t, s, c.spaces[1]).Get(ctx, "k"); err != nil || v != "v" {
		t.Errorf("%q, %v", v, err)
	}
	if items, err := c.spaces[1].Begin().GetMany(ctx, "never", "k"); err != nil || items[0].Exists || items[1].Value != "v" {
		t.Errorf("%+v, %v", items, err)
	}
	if err := s.Set(ctx, "k", "w"); !errors.Is(err, ErrExpelled) {
		t.Errorf("it takes a write: %v", err)
	}
}
