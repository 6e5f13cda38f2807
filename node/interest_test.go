package node

import (
	"bytes"
	"context"
	"runtime"
	"testing"

	"github.com/freshet-cache/freshet/linear"
)

// Another node's interest in a key is noted before the key is looked up: whoever writes in
// between is then told of, or what is looked up is what was written.
func TestInterestIsNotedBeforeTheLookUp(t *testing.T) {
	p := start(t, nil)
	n := p.nodes[0]
	other := &asker{}
	for name, frame := range map[string][]byte{
		"a read":        append([]byte{frameVersion, frameTrack}, "k"...),
		"a command":     (&job{proto: 3, track: true, by: 9, cmds: [][][]byte{{[]byte("MGET"), []byte("k"), []byte("other")}}}).append(nil),
		"a transaction": (&job{proto: 3, multi: true, track: true, by: 9, cmds: [][][]byte{{[]byte("GET"), []byte("k")}}}).append(nil),
	} {
		t.Run(name, func(t *testing.T) {
			ctx := context.Background()
			if err := n.cache.Set(ctx, "k", "before"); err != nil {
				t.Fatal(err)
			}
			asker := &asker{}
			defer n.track.remote.Forget(asker)
			n.track.remote.Add("held", other, nil)
			defer n.track.remote.Forget(other)
			locked, release, free := make(chan struct{}), make(chan struct{}), make(chan struct{})
			go func() { // nothing can be noted meanwhile
				defer close(free)
				n.track.remote.TakeIf(func(key string, _ any) bool {
					if key == "held" {
						close(locked)
						<-release
					}
					return false
				})
			}()
			<-locked
			reply := make(chan []byte, 1)
			go func() { reply <- n.serve(ctx, frame, asker) }()
			for !asker.asked.Load() { // it is about to be noted
				runtime.Gosched()
			}
			if err := n.cache.Set(ctx, "k", "after"); err != nil {
				t.Fatal(err)
			}
			close(release)
			<-free
			if got := <-reply; !bytes.Contains(got, []byte("after")) {
				t.Errorf("a write before the interest was noted is neither seen nor told of: %q", got)
			}
			if k := n.track.remote.Take("k"); k == nil || len(k.Tell[asker]) != 1 {
				t.Error("the interest is not noted")
			} else {
				k.Done()
			}
		})
	}
}

// A write of unknown outcome is told of at once, and again when it is decided, which is
// only then when no earlier write of the key is under way any more: who reads meanwhile may
// see the value before.
func TestDoubtfulWritesAreToldWhenTheyAreDecided(t *testing.T) {
	n := start(t, nil).nodes[0]
	c := tracker(t, n.addr)
	c.do("get", "k")
	begun, release, over := make(chan struct{}), make(chan struct{}), make(chan struct{})
	go func() {
		defer close(over)
		_, _ = n.cache.Update(context.Background(), []string{"k"}, func(*linear.Tx[string]) error {
			close(begun)
			<-release
			return errDecided
		})
	}()
	<-begun
	n.track.doubtful([]string{"k"}, &job{})
	c.hears("[invalidate [k]]")
	c.do("get", "k")
	c.hears()
	if n.track.undecided.Load() != 1 {
		t.Error("it counts as decided while an earlier write is under way")
	}
	close(release)
	<-over
	for n.track.undecided.Load() != 0 {
		runtime.Gosched()
	}
	c.hears("[invalidate [k]]")
}
