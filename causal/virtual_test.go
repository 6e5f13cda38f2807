package causal

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/freshet-cache/freshet/check"
	"github.com/freshet-cache/freshet/internal/testkit"
	"github.com/freshet-cache/freshet/store/memory"
)

// luck is chance that goroutines share.
type luck struct {
	mu sync.Mutex
	r  *rand.Rand
}

func (l *luck) upto(n int) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.r.IntN(n)
}

// slowly has a store take its time while it is faulty, up to longest now and then, and not
// answer once in a while.
func (l *luck) slowly(longest time.Duration, faulty func() bool) func(context.Context, memory.Call) error {
	return func(context.Context, memory.Call) error {
		if !faulty() {
			return nil
		}
		wait := time.Duration(l.upto(8)) * time.Millisecond
		if l.upto(60) == 0 {
			wait = time.Duration(l.upto(int(longest/time.Millisecond))) * time.Millisecond
		}
		time.Sleep(wait)
		if l.upto(40) == 0 {
			return errors.New("no answer")
		}
		return nil
	}
}

// The servers that ship, over virtual time: the store is slow, for seconds now and then,
// takes effect after its caller has given up, or does not answer, and connections break
// and come again. What workflows see is causally consistent, and all servers agree with
// the store when nothing is broken any more.
func TestCausalInVirtualTime(t *testing.T) {
	seeds := 12
	if testing.Short() {
		seeds = 3
	}
	acts := 0
	for seed := range seeds {
		emptyPools()
		synctest.Test(t, func(t *testing.T) {
			l := &luck{r: rand.New(rand.NewPCG(uint64(seed), 2026))}
			var faulty atomic.Bool
			slow := l.slowly(4*time.Second, faulty.Load)
			c := gather(t, 3, memory.Options{Before: slow, After: slow}, func(o *ServerOptions) {
				o.Round, o.Timeout = 20*time.Millisecond, time.Second
				switch seed % 3 {
				case 1:
					o.Keys = 2
				case 2:
					o.Window = 4
				}
			})
			faulty.Store(true)
			h, stop := &history{}, make(chan struct{})
			var wg, disturber sync.WaitGroup
			disturber.Go(func() { c.breakLinks(l, stop) })
			for i := range 5 {
				cl := &client{h: h, c: c, r: rand.New(rand.NewPCG(uint64(seed), uint64(i))), name: fmt.Sprint("c", i), s: c.spaces[i%3].Begin()}
				wg.Go(func() {
					for range 80 {
						time.Sleep(time.Duration(l.upto(40)) * time.Millisecond)
						cl.act(t)
					}
				})
			}
			wg.Wait()
			close(stop)
			disturber.Wait()
			faulty.Store(false)
			acts += len(h.acts)
			if v := check.Causal(h.acts); !v.OK {
				t.Fatalf("seed %d: %s\n%s", seed, v.Reason, strings.Join(v.Witness, "\n"))
			}
			c.agrees(t)
		})
	}
	emptyPools()
	t.Logf("%d acts", acts)
	if acts < 100*seeds {
		t.Error("too little was done to judge")
	}
}

// emptyPools forgets what servers keep to be used again, channels among it: one that was
// made under one clock must not be waited for under another.
func emptyPools() {
	runtime.GC()
	runtime.GC()
}

// breakLinks breaks connections now and then, until stop is closed.
func (c *cluster) breakLinks(l *luck, stop chan struct{}) {
	for {
		select {
		case <-stop:
			return
		case <-time.After(time.Duration(l.upto(800)) * time.Millisecond):
			n := l.upto(3)
			c.cut(func(i int) bool { return i%3 == n })
		}
	}
}

// agrees waits until every server says of every key what the store says.
func (c *cluster) agrees(t *testing.T) {
	t.Helper()
	for k := range 6 {
		key := fmt.Sprint("k", k)
		testkit.Eventually(t, func() bool {
			rows, err := c.store.Load(t.Context(), key)
			if err != nil {
				return false
			}
			for _, sp := range c.spaces {
				if v, ok, err := sp.Begin().Get(t.Context(), key); err != nil || ok != rows[0].Exists || v != string(rows[0].Value) {
					return false
				}
			}
			return true
		})
	}
}
