package tracking

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/freshet-cache/freshet/clock"
	"github.com/freshet-cache/freshet/link"
	"github.com/freshet-cache/freshet/resp"
	"github.com/freshet-cache/freshet/shard"
	"github.com/freshet-cache/freshet/shard/lease"
	"github.com/freshet-cache/freshet/ticks"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// fake is a node in a cluster whose other nodes do what the test says.
type fake struct {
	table    lease.Table
	living   map[string]bool
	insist   func(ctx context.Context, addr string, message []byte) error
	tell     func(ctx context.Context, message []byte) error
	decided  func() error
	draining bool
	insisted atomic.Int64
}

func (f *fake) Table() *lease.Table                              { return &f.table }
func (f *fake) Newer(context.Context, uint64) bool               { return false }
func (f *fake) Living(context.Context) map[string]bool           { return f.living }
func (f *fake) Link(context.Context, string) (*link.Link, error) { return nil, errors.New("unreached") }
func (f *fake) Tell(ctx context.Context, _ *link.Link, m []byte) error {
	if f.tell == nil {
		return nil
	}
	return f.tell(ctx, m)
}
func (f *fake) Conn(int64) *resp.Conn                   { return nil }
func (f *fake) Decided(context.Context, []string) error { return f.decided() }
func (f *fake) Draining() bool                          { return f.draining }
func (f *fake) Closed() bool                            { return false }
func (f *fake) Insist(ctx context.Context, a string, m []byte, _ bool) error {
	f.insisted.Add(1)
	return f.insist(ctx, a, m)
}

// of makes the tracking of a node. All happens under virtual time.
func of(t *testing.T, f *fake, keys int) *Tracking {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	x := New(f, Options{Keys: keys, Addr: "here:1", Context: ctx})
	t.Cleanup(func() { cancel(); x.Wait() })
	return x
}

// asker is a node that has asked to be told, over a link of its own.
func asker(t *testing.T, addr string) *Asker {
	t.Helper()
	ours, theirs := net.Pipe()
	go func() { // it reads, and says nothing
		for b := make([]byte, 64); ; {
			if _, err := theirs.Read(b); err != nil {
				return
			}
		}
	}()
	l := link.New(ours, bufio.NewReader(ours), link.Options{})
	t.Cleanup(func() { l.Close(); theirs.Close(); l.Wait() })
	return &Asker{Link: l, Addr: addr}
}

// held is a lease that is in force.
func held(low, high string) *shard.Handle {
	return shard.NewHandle(lease.Lease{Gen: 1, Range: lease.Range{Low: low, High: high}}, clock.Clock{}, ticks.Tick(1)<<62)
}

// ends reports whether f has returned once everything else stands still.
func ends(f func()) func() bool {
	done := make(chan struct{})
	go func() { f(); close(done) }()
	return func() bool {
		synctest.Wait()
		select {
		case <-done:
			return true
		default:
			return false
		}
	}
}

// A new owner does not acknowledge a write before all nodes know of it, or a second has passed. Keys
// of other slices need not wait.
func TestNotAcknowledgedBeforeAnnounced(t *testing.T) {
	for name, answers := range map[string]bool{"they answer": true, "they do not": false} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				release := make(chan struct{})
				f := &fake{living: map[string]bool{"a:1": true, "b:1": false}, insist: func(ctx context.Context, _ string, m []byte) error {
					if addr, all, err := decodeAcquired(m); err != nil || addr != "here:1" || len(all) != 1 || all[0].Range != (lease.Range{Low: "k", High: "m"}) {
						t.Errorf("announced is %q %v, %v", addr, all, err)
					}
					select {
					case <-release:
						return nil
					case <-ctx.Done():
						return ctx.Err()
					}
				}}
				x := of(t, f, 0)
				began := time.Now()
				x.Acquired(held("k", "m"))
				written := ends(func() { x.Changed([]string{"a", "k"}, Writer{}) })
				if !ends(func() { x.Changed([]string{"a", "m"}, Writer{}) })() {
					t.Error("a write of other keys waits")
				}
				if written() {
					t.Error("it was acknowledged before")
				}
				if n := f.insisted.Load(); n != 2 {
					t.Errorf("%d of 2 nodes hear of it", n)
				}
				if answers {
					close(release)
				} else {
					time.Sleep(takeoverWait)
				}
				if !written() || time.Since(began) > takeoverWait {
					t.Error("it is not acknowledged")
				}
				if !x.Idle() {
					t.Error("there is something left to tell")
				}
				if x.Acquired(held("k", "l")); !x.Idle() {
					t.Error("what a node holds already is announced")
				}
			})
		})
	}
}

// When the link is broken over which a node asked to be told, a write is not acknowledged before that
// node knows, or a second has passed.
func TestNotAcknowledgedBeforeABreakIsKnown(t *testing.T) {
	for name, c := range map[string]struct{ owns, draining, asked bool }{
		"an owner": {true, false, true}, "the owner of nothing": {false, false, true},
		"the owner of nothing, which goes": {false, true, true}, "an owner, which goes": {true, true, true}, "nobody asked": {true, false, false},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				release := make(chan struct{})
				f := &fake{draining: c.draining, insist: func(_ context.Context, addr string, m []byte) error {
					if addr != "b:1" {
						return nil // hears of a new owner
					}
					want := appendInvalid(nil, cause{}, nil)
					if c.owns {
						want = appendAcquired(nil, "here:1", []*takeover{{Range: lease.Range{Low: "k"}}})
					}
					if !slices.Equal(m, want) {
						t.Errorf("the node hears %q, want %q", m, want)
					}
					<-release
					return nil
				}}
				x := of(t, f, 0)
				if c.owns {
					x.Acquired(held("k", ""))
				}
				synctest.Wait()
				a := asker(t, "b:1")
				if c.asked {
					x.Interest(a, "k")
				}
				x.LinkLost(a)
				x.LinkLost(a) // again: it is told once
				written := ends(func() { x.Changed([]string{"k"}, Writer{}) })
				waits := c.asked && (c.owns || !c.draining)
				if written() == waits {
					t.Errorf("a write waits: %v, want %v", !waits, waits)
				}
				close(release)
				if !written() || !x.Idle() || x.Counts().PeerKeys != 0 {
					t.Error("it is not acknowledged, or something is left")
				}
			})
		})
	}
}

// A node that does not tell its clients in time is cut off, and the write goes on when it knows that.
func TestANodeThatDoesNotTellIsCutOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var told []string
		f := &fake{insist: func(_ context.Context, addr string, _ []byte) error {
			told = append(told, addr)
			return nil
		}, tell: func(ctx context.Context, _ []byte) error {
			<-ctx.Done()
			return ctx.Err()
		}}
		x := of(t, f, 0)
		a := asker(t, "b:1")
		x.Interest(a, "k")
		began := time.Now()
		x.Changed([]string{"k"}, Writer{})
		if took := time.Since(began); took != tellWait {
			t.Errorf("the write waited for %v", took)
		}
		if synctest.Wait(); a.Err() == nil {
			t.Error("the link is not cut")
		}
		if !slices.Equal(told, []string{"b:1"}) {
			t.Errorf("told that a link broke: %q", told)
		}
	})
}

// A write of unknown outcome is told of at once and once it is decided. If that is never known, all
// clients of all nodes forget what they keep.
func TestWritesOfUnknownOutcome(t *testing.T) {
	for name, c := range map[string]struct {
		decided func() error
		told    int // of the key
		forgets int64
	}{
		"decided":          {func() error { return nil }, 2, 0},
		"another's":        {func() error { return ErrNotOurs }, 1, 0},
		"never decided":    {func() error { return errors.New("no connection") }, 1, 1},
		"decided in time":  {inTime(settleTries - 1), 2, 0},
		"decided too late": {inTime(settleTries), 1, 1},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				told := 0
				var x *Tracking
				f := &fake{living: map[string]bool{"b:1": true}, decided: c.decided, insist: func(context.Context, string, []byte) error { return nil },
					tell: func(context.Context, []byte) error { told++; return nil }}
				x = of(t, f, 0)
				a := asker(t, "b:1")
				x.Interest(a, "k")
				x.Doubtful([]string{"k"}, Writer{})
				x.Interest(a, "k") // is read meanwhile
				for range settleTries + 1 {
					time.Sleep(endsBeat)
				}
				synctest.Wait()
				if n := f.insisted.Load(); told != c.told || n != c.forgets || x.Counts().Undecided != 0 {
					t.Errorf("told %d times of the key and %d times to forget everything, %d writes undecided", told, n, x.Counts().Undecided)
				}
			})
		})
	}
}

// inTime decides after so many attempts.
func inTime(failures int) func() error {
	return func() error {
		if failures--; failures < 0 {
			return nil
		}
		return errors.New("no connection")
	}
}

// So many writes of unknown outcome are followed up; of one more all clients forget everything at once.
func TestTooManyWritesOfUnknownOutcome(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hold := make(chan struct{})
		f := &fake{living: map[string]bool{"b:1": true}, insist: func(context.Context, string, []byte) error { return nil },
			decided: func() error { <-hold; return nil }}
		x := of(t, f, 0)
		for range settleMax {
			x.Doubtful([]string{"k"}, Writer{})
		}
		if n := f.insisted.Load(); n != 0 || x.Counts().Undecided != settleMax {
			t.Errorf("%d undecided, %d times to forget everything", x.Counts().Undecided, n)
		}
		x.Doubtful([]string{"k"}, Writer{})
		if n := f.insisted.Load(); n != 1 || x.Counts().Undecided != settleMax {
			t.Errorf("%d undecided, %d times to forget everything", x.Counts().Undecided, n)
		}
		close(hold)
	})
}

// A node asks others for the prefixes that its clients follow; if these are too many, or too long
// together, for everything.
func TestTooManyPrefixesFollowEverything(t *testing.T) {
	x := of(t, &fake{}, 0)
	conn := &resp.Conn{}
	if got := x.followed(); len(got) != 0 {
		t.Errorf("nothing is followed, and asked for are %q", got)
	}
	many := make([]string, maxPrefixList+1)
	for i := range many {
		many[i] = fmt.Sprintf("%05d", i)
	}
	long := strings.Repeat("x", maxPrefixBytes-1)
	for _, prefixes := range [][]string{{"a", "b"}, many[:maxPrefixList], {"y", long}} {
		x.local.Subscribe(conn, prefixes)
		if got := x.followed(); !slices.Equal(got, slices.Sorted(slices.Values(prefixes))) {
			t.Errorf("%d prefixes are followed, and asked for are %d", len(prefixes), len(got))
		}
	}
	for _, prefixes := range [][]string{many, {"yy", long}} {
		x.local.Subscribe(conn, prefixes)
		if got := x.followed(); !slices.Equal(got, []string{""}) {
			t.Errorf("%d prefixes are followed, and asked for are %d", len(prefixes), len(got))
		}
	}
}

// A range is held if leases in force cover all of it, one behind the other.
func TestLeasesCoverARange(t *testing.T) {
	x := of(t, &fake{}, 0)
	over := &shard.Handle{Lease: lease.Lease{Gen: 1, Range: lease.Range{Low: "d", High: "f"}}}
	for _, c := range []struct {
		handles []*shard.Handle
		r       lease.Range
		want    bool
	}{
		{nil, lease.Range{}, false},
		{[]*shard.Handle{held("", "")}, lease.Range{}, true},
		{[]*shard.Handle{held("", "")}, lease.Range{Low: "a", High: "b"}, true},
		{[]*shard.Handle{held("", "d"), held("f", "")}, lease.Range{Low: "a", High: "g"}, false},
		{[]*shard.Handle{held("", "d"), held("f", ""), over}, lease.Range{Low: "a", High: "g"}, false},
		{[]*shard.Handle{held("f", ""), held("d", "f"), held("", "d")}, lease.Range{Low: "a", High: "g"}, true},
		{[]*shard.Handle{held("a", "d"), held("d", "f")}, lease.Range{Low: "b", High: "f"}, true},
		{[]*shard.Handle{held("a", "d"), held("d", "f")}, lease.Range{Low: "b", High: "g"}, false},
		{[]*shard.Handle{held("a", "d"), held("d", "f")}, lease.Range{Low: "b"}, false},
	} {
		if x.handles = c.handles; x.holds(c.r) != c.want {
			t.Errorf("%d leases hold %v: %v", len(c.handles), c.r, !c.want)
		}
	}
}

// What cannot be read is refused, and so is a list of prefixes that did not come over a link of its own.
func TestMessagesThatAreRefused(t *testing.T) {
	x := of(t, &fake{}, 0)
	for _, m := range [][]byte{nil, {}, {'?'}, {Invalid}, {Acquired}, {Follow}, appendFollow(nil, []string{"a"})} {
		if x.Serve(t.Context(), m, nil) == nil {
			t.Errorf("%q is served", m)
		}
	}
	if x.Counts().Prefixes != 0 {
		t.Error("a prefix is followed")
	}
}
