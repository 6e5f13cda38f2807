package linear

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/freshet-cache/freshet/linear/clink"
	"github.com/freshet-cache/freshet/linear/replica"
	"github.com/freshet-cache/freshet/shard"
	"github.com/freshet-cache/freshet/shard/lease"
	"github.com/freshet-cache/freshet/store/memory"
)

// group is two nodes that keep the key k, of which n1 is the primary, in virtual time. Each
// message takes a millisecond, unless lost says that it is lost.
type group struct {
	st    *memory.Store
	count *counter // of both
	nodes map[string]*Cache[string]
	lease *shard.Handle // of the primary

	mu      sync.Mutex
	lost    func(m replica.Message) bool
	along   int // rows that came along with a message
	noReply int // so many commits are not answered
}

func newGroup(t *testing.T, opt Options[string]) *group {
	t.Helper()
	g := &group{count: &counter{}, nodes: map[string]*Cache[string]{}, lost: func(replica.Message) bool { return false }}
	g.st = memory.New(memory.Options{After: func(_ context.Context, c memory.Call) error {
		g.mu.Lock()
		defer g.mu.Unlock()
		if c.Op == memory.OpCommit && g.noReply > 0 {
			g.noReply--
			return errors.New("no answer")
		}
		return nil
	}})
	members := lease.Group{{Node: "n1", Addr: "n1"}, {Node: "n2", Addr: "n2"}}
	for _, m := range members {
		o := opt
		o.Store, o.Codec, o.Recorder, o.Peers = g.st, String(), g.count, telling{node: m.Node, tell: g.tell}
		g.nodes[m.Node] = open(t, o)
	}
	l := lease.Lease{Gen: 5, Range: lease.Range{Low: "k", High: "k\x00"}}
	clock := g.nodes["n1"].opt.Clock
	g.lease = shard.NewHandle(l, clock, 1<<62)
	g.lease.Group = members
	copies := shard.NewHandle(l, clock, 1<<62)
	copies.Group, copies.Copy = members, true
	g.nodes["n1"].acquired(g.lease, 0)
	g.nodes["n2"].sharedWith(copies)
	time.Sleep(time.Second)
	return g
}

func (g *group) tell(to lease.GroupMember, message []byte) {
	m, _ := decodeMessage(message)
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.lost(m) {
		return
	}
	if f, ok := m.(replica.Finish); ok && f.Row != nil {
		g.along++
	}
	time.AfterFunc(time.Millisecond, func() { g.nodes[to.Node].told(message) })
}

// lose has messages lost from here on.
func (g *group) lose(lost func(m replica.Message) bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.lost = lost
}

// copy reads the key at the replica, and wants a value there, after so many loads.
func (g *group) copy(t *testing.T, when, value string, loads int64) {
	t.Helper()
	time.Sleep(500 * time.Millisecond)
	before := g.count.loads.Load()
	for range 3 {
		if e, err := g.nodes["n2"].GetEntry(t.Context(), "k"); err != nil || e.Value != value || e.Exists != (value != "") {
			t.Errorf("%s, the copy is %+v, %v; want %q", when, e, err, value)
		}
	}
	if n := g.count.loads.Load() - before; n != loads {
		t.Errorf("%s, three reads of the copy take %d loads, want %d", when, n, loads)
	}
}

// The replica has what the primary wrote, from the write itself: only what expires or is large
// it reads from the store, once. A primary writes, updates and locks only what no replica
// serves, and a message that is lost is said again.
func TestAReplicaFollowsItsPrimary(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGroup(t, Options[string]{Timeout: time.Minute})
		one := g.nodes["n1"]
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour) // who waits for ever says so
		defer cancel()
		check := func(err error) {
			t.Helper()
			if err != nil {
				t.Fatal(err)
			}
		}
		g.copy(t, "before anything", "", 1)
		check(one.Set(ctx, "k", "v"))
		g.copy(t, "after a write", "v", 0)
		if e, ok := g.nodes["n2"].Peek("k"); !ok || !e.Copy {
			t.Errorf("%+v, %v", e, ok)
		}
		_, err := one.SetTTL(ctx, "k", "w", time.Hour)
		check(err)
		g.copy(t, "after a write that expires", "w", 1)
		_, err = one.Update(ctx, []string{"k"}, func(tx *Tx[string]) error {
			if _, ok := g.nodes["n2"].Peek("k"); !ok {
				t.Error("an update that has not decided drops the copy")
			}
			return tx.Set("k", "x")
		})
		check(err)
		g.copy(t, "after an update", "x", 0)
		_, err = one.Delete(ctx, "k")
		check(err)
		g.copy(t, "after a delete", "", 0)
		large := strings.Repeat("v", mostAlong)
		check(one.Set(ctx, "k", large))
		g.copy(t, "after a large write", large, 0)
		check(one.Set(ctx, "k", large+"v"))
		g.copy(t, "after a larger write", large+"v", 1)
		_, err = one.lock(ctx, clink.ID{1}, []string{"k"})
		check(err)
		if _, ok := g.nodes["n2"].Peek("k"); ok {
			t.Error("what is locked is served by a replica")
		}
		one.settle(ctx, clink.ID{1}, 0)
		g.copy(t, "after a lock", large+"v", 1)
		seen := map[string]int{}
		g.lose(func(m replica.Message) bool { // every other message of each kind
			kind := fmt.Sprintf("%T", m)
			seen[kind]++
			return seen[kind]%2 == 1
		})
		for i := range 5 {
			check(one.Set(ctx, "k", fmt.Sprint(i)))
		}
		g.lose(func(replica.Message) bool { return false })
		time.Sleep(time.Second)
		g.copy(t, "after messages were lost", "4", 1)
		one.mu.Lock()
		if n := len(one.members.held); n != 0 {
			t.Errorf("%d writes are held back when all have ended", n)
		}
		one.mu.Unlock()
	})
}

// A write that the store does not answer is found out, and no replica keeps anything until then.
func TestAReplicaOfAnUnknownWrite(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGroup(t, Options[string]{Timeout: time.Minute})
		g.mu.Lock()
		g.noReply = 1
		g.mu.Unlock()
		if err := g.nodes["n1"].Set(t.Context(), "k", "v"); err != nil {
			t.Fatal(err)
		}
		if g.count.events[clink.OutcomeUnknown].Load() != 1 {
			t.Error("the store has answered")
		}
		time.Sleep(time.Second)
		_, _, _ = g.nodes["n1"].Get(t.Context(), "k")
		g.copy(t, "when it is found out", "v", 0)
		if err := g.nodes["n1"].Set(t.Context(), "k", "w"); err != nil {
			t.Fatal(err)
		}
		g.copy(t, "after the next write", "w", 0)
	})
}

// A write waits for a replica of which nothing is heard, and is refused when the lease is
// recalled meanwhile: nothing was written. A caller may give it up before.
func TestAWriteWaitsForAReplica(t *testing.T) {
	for _, gives := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			g := newGroup(t, Options[string]{Timeout: time.Hour})
			g.copy(t, "before anything", "", 1)
			g.lose(func(replica.Message) bool { return true })
			commits := g.count.commits.Load()
			ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
			defer cancel()
			written, locked := make(chan error, 1), make(chan error, 1)
			go func() { written <- g.nodes["n1"].Set(ctx, "k", "v") }()
			synctest.Wait()
			go func() { _, err := g.nodes["n1"].lock(ctx, clink.ID{1}, []string{"k"}); locked <- err }()
			time.Sleep(time.Minute)
			if len(written)+len(locked) != 0 || g.count.commits.Load() != commits {
				t.Fatal("it does not wait for the replica")
			}
			if gives {
				cancel()
				if err := <-written; err == nil {
					t.Error("done without a replica that may serve what was before")
				}
				if err := <-locked; !errors.Is(err, context.Canceled) {
					t.Error(err)
				}
			}
			g.lease.Revoke()
			g.nodes["n1"].revoked(g.lease)
			synctest.Wait()
			if !gives {
				for _, answer := range []chan error{written, locked} {
					if err := <-answer; !errors.Is(err, ErrNotOwner) {
						t.Errorf("when the lease is recalled: %v", err)
					}
				}
			}
			if own, copies := g.nodes["n1"].leases(); own != 0 || copies != 0 || g.count.commits.Load() != commits {
				t.Errorf("%d leases, %d copies, %d commits", own, copies, g.count.commits.Load()-commits)
			}
			if g.nodes["n1"].Owns("k") || g.nodes["n1"].members.primary.Busy() {
				t.Error("it has the key when the lease was recalled")
			}
			time.Sleep(time.Minute)
		})
	}
}

// Messages of replicas are read as they were written, or not at all: a flag that nobody knows,
// and a tail, are no message.
func TestMessagesAreTakenWhole(t *testing.T) {
	along := replica.Finish{Gen: 7, N: 2, Row: &replica.Row{Exists: true, Version: 9, Value: []byte("v")}}
	for flag := range byte(4) {
		for name, b := range map[string][]byte{"a report": {sayReport, 7, 3, flag, 1, 'n'}, "a row": {sayFinish, 7, 2, flag, 9}} {
			if _, ok := decodeMessage(b); ok != (flag <= 1) {
				t.Errorf("%s with flag %d is read: %v", name, flag, ok)
			}
		}
	}
	for _, m := range []replica.Message{replica.Cacheable{Gen: 7}, replica.Invalidate{Gen: 7, N: 300}, replica.Report{Gen: 7, From: "n"}} {
		b := appendMessage(nil, m)
		if _, ok := decodeMessage(append(b, 0)); ok {
			t.Errorf("%#v and a byte are read", m)
		}
		for i := range b {
			if got, ok := decodeMessage(b[:i]); ok {
				t.Errorf("%d bytes of %#v are read as %#v", i, m, got)
			}
		}
	}
	b := appendMessage(nil, along)
	for i := range len(b) - 1 { // without the flag and the row it is one that has none
		if got, ok := decodeMessage(b[:i]); ok && i != 3 {
			t.Errorf("%d bytes of %#v are read as %#v", i, along, got)
		}
	}
}
