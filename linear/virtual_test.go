package linear

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/freshet-cache/freshet/check"
	"github.com/freshet-cache/freshet/store/memory"
)

// luck is chance that goroutines share.
type luck struct {
	mu sync.Mutex
	r  *rand.Rand
}

// one is true once in n times.
func (l *luck) one(in int) bool { return l.upto(in) == 0 }

func (l *luck) upto(n int) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.r.IntN(n)
}

// span is a time that is short as a rule, and longer than a lease now and then.
func (l *luck) span() time.Duration {
	d := time.Duration(l.upto(30)) * time.Millisecond
	if l.one(40) {
		d = time.Duration(l.upto(6000)) * time.Millisecond
	}
	return d
}

// The runtime that ships, over virtual time: messages are lost, repeated and late, nodes
// are cut off until their leases end, and the store is slow, takes effect after its caller
// has given up, does not answer, splits and forgets its guards. Every key's history is
// linearizable.
func TestLinearizableInVirtualTime(t *testing.T) {
	seeds := 16
	if testing.Short() {
		seeds = 4
	}
	unknown, ok, lapsed := 0, 0, 0
	for seed := range seeds {
		synctest.Test(t, func(t *testing.T) {
			l := &luck{r: rand.New(rand.NewPCG(uint64(seed), 2026))}
			slow := func(context.Context, memory.Call) error {
				time.Sleep(l.span()) // whoever asked may have given up: then it takes effect late
				if l.one(50) {
					return errors.New("no answer")
				}
				return nil
			}
			opt := Options[string]{Timeout: time.Second}
			if seed%4 == 1 {
				opt.MaxBytes = 160
			}
			c := newClusterOver(t, 3, memory.Options{Before: slow, After: slow}, opt, func(deliver func()) {
				for times := []int{0, 2, 1, 1, 1, 1, 1, 1, 1, 1}[l.upto(10)]; times > 0; times-- {
					time.Sleep(l.span())
					deliver()
				}
			})
			c.think = func() { time.Sleep(time.Duration(l.upto(60)) * time.Millisecond) }
			stop, began := make(chan struct{}), time.Now()
			var wg, disturber sync.WaitGroup
			disturber.Go(func() { c.trouble(l, stop) })
			clients := make([]*client, 6)
			for i := range clients {
				clients[i] = &client{c: c, id: i, began: began, r: rand.New(rand.NewPCG(uint64(seed), uint64(i)))}
				wg.Go(func() { clients[i].run(t, 120) })
			}
			wg.Wait()
			close(stop)
			disturber.Wait()
			c.close(t)
			var ops []check.Op
			for _, cl := range clients {
				ops = append(ops, cl.ops...)
			}
			for _, o := range ops {
				switch o.Outcome {
				case check.OK:
					ok++
				case check.Unknown:
					unknown++
				}
			}
			lapsed += int(c.cutOff.Load())
			if v := check.Linear(ops, time.Minute); v.Finding != check.Linearizable {
				t.Errorf("seed %d: %+v", seed, v)
			}
		})
	}
	t.Logf("%d operations done, %d without an answer, %d nodes cut off", ok, unknown, lapsed)
	if ok < 300*seeds || unknown == 0 || lapsed < seeds {
		t.Error("too little has happened")
	}
}

// trouble moves and cuts slices, changes the store's layout, and cuts nodes off.
func (c *cluster) trouble(l *luck, stop chan struct{}) {
	ctx := context.Background()
	for {
		select {
		case <-stop:
			c.muted.Store(0)
			return
		case <-time.After(time.Duration(l.upto(400)) * time.Millisecond):
		}
		key := fmt.Sprint("k", l.upto(9))
		switch l.upto(8) {
		case 0, 1, 2:
			c.assigner.Move(key, fmt.Sprint("n", l.upto(3)))
		case 3:
			c.assigner.Cut(key)
		case 4:
			_ = c.st.Split(ctx, key)
		case 5:
			_ = c.st.Merge(ctx, key)
		case 6:
			_ = c.st.Restart(ctx, key)
		case 7:
			c.cutOff.Add(1)
			c.mute(l.upto(3))
			time.Sleep(time.Duration(l.upto(5000)) * time.Millisecond)
			c.muted.Store(0)
		}
	}
}
