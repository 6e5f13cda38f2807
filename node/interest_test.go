package node

import (
	"bufio"
	"bytes"
	"context"
	"net"
	"runtime"
	"testing"

	"github.com/freshet-cache/freshet/linear"
	"github.com/freshet-cache/freshet/link"
	"github.com/freshet-cache/freshet/redis/tracking"
)

// Another node's interest in a key is noted before the key is looked up: whoever writes in
// between is then told of, or what is looked up is what was written.
func TestInterestIsNotedBeforeTheLookUp(t *testing.T) {
	n := start(t, func(c *Config) { c.TrackingKeys = 1 }).nodes[0]
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
			noting, release := make(chan struct{}), make(chan struct{})
			other := askerThat(t, func() { // is told that a key goes, while the interest in the next one is noted
				noting <- struct{}{}
				<-release
			})
			n.track.Interest(other, "held")
			reply := make(chan []byte, 1)
			go func() { reply <- n.serve(ctx, frame, askerThat(t, func() {})) }()
			<-noting
			if err := n.cache.Set(ctx, "k", "after"); err != nil {
				t.Fatal(err)
			}
			close(release)
			if got := <-reply; !bytes.Contains(got, []byte("after")) {
				t.Errorf("a write before the interest was noted is neither seen nor told of: %q", got)
			}
			if n.track.Counts().PeerKeys != 1 {
				t.Error("the interest is not noted")
			}
			n.track.ForgetEverywhere(0)
		})
	}
}

// askerThat is another node, which does something when it is told that a key has changed.
func askerThat(t *testing.T, does func()) *tracking.Asker {
	t.Helper()
	ours, theirs := net.Pipe()
	there := link.New(theirs, bufio.NewReader(theirs), link.Options{Request: func(context.Context, []byte) []byte {
		does()
		return []byte{answerDone}
	}})
	here := link.New(ours, bufio.NewReader(ours), link.Options{})
	t.Cleanup(func() {
		here.Close()
		there.Close()
		here.Wait()
		there.Wait()
	})
	return &tracking.Asker{Link: here}
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
	n.track.Doubtful([]string{"k"}, tracking.Writer{})
	c.hears("[invalidate [k]]")
	c.do("get", "k")
	c.hears()
	if n.track.Counts().Undecided != 1 {
		t.Error("it counts as decided while an earlier write is under way")
	}
	close(release)
	<-over
	for n.track.Counts().Undecided != 0 {
		runtime.Gosched()
	}
	c.hears("[invalidate [k]]")
}
