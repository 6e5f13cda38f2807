package causal

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/freshet-cache/freshet/store/journal"
	"github.com/freshet-cache/freshet/store/memory"
)

// alone is a server of its own over a store with hooks, and a space of it.
func alone(t *testing.T, opt memory.Options) (*memory.Journal, *Server, *Space[string]) {
	t.Helper()
	c := gather(t, 1, opt, nil)
	return c.store, c.servers[0], c.spaces[0]
}

// A write that has begun when its server ends is never told not to have happened: the store may have it.
func TestUnfinishedWrites(t *testing.T) {
	begun, free := make(chan struct{}), make(chan struct{})
	_, server, space := alone(t, memory.Options{After: func(_ context.Context, c memory.Call) error {
		if c.Op == memory.OpPersist && c.Key == "k" {
			close(begun)
			<-free
		}
		return nil
	}})
	told := make(chan error)
	go func() { told <- space.Begin().Set(t.Context(), "k", "v") }()
	<-begun
	ended := make(chan error)
	go func() { ended <- server.Close(t.Context()) }()
	if err := <-told; !errors.Is(err, ErrOutcomeUnknown) || errors.Is(err, ErrExpelled) {
		t.Errorf("a write that the store has is answered with %v", err)
	}
	close(free)
	if err := <-ended; err != nil {
		t.Error(err)
	}
	if err := space.Begin().Set(t.Context(), "k", "v"); !errors.Is(err, ErrClosed) {
		t.Errorf("a write that has not begun is answered with %v", err)
	}
}

// The same of a write that the store took without saying so, before it refused the incarnation.
func TestFencedWrites(t *testing.T) {
	tries := 0
	var store *memory.Journal
	store, _, space := alone(t, memory.Options{After: func(ctx context.Context, c memory.Call) error {
		if c.Op != memory.OpPersist || c.Key != "k" {
			return nil
		}
		if tries++; tries == 1 {
			return errors.Join(errors.New("the answer was lost"), store.Fence(ctx, 1))
		}
		return nil
	}})
	err := space.Begin().Set(t.Context(), "k", "v")
	rows, e := store.Load(t.Context(), "k")
	if e != nil || string(rows[0].Value) != "v" || rows[0].Dot != (journal.Dot{Incarnation: 1, N: 1}) {
		t.Fatalf("%+v, %v", rows, e)
	}
	if !errors.Is(err, ErrOutcomeUnknown) {
		t.Errorf("a write that the store has is answered with %v", err)
	}
	if err := space.Begin().Set(t.Context(), "k", "w"); !errors.Is(err, ErrExpelled) {
		t.Errorf("a write that has not begun is answered with %v", err)
	}
}

// A session that carries more than fits waits until every server has it.
func TestShrink(t *testing.T) {
	c, ctx := gather(t, 3, memory.Options{}, (&disks{}).onDisk(t, nil)), t.Context()
	s := c.spaces[0].Begin()
	for _, key := range []string{"a", "b"} {
		if err := s.Set(ctx, key, strings.Repeat("v", 2<<20)); err != nil {
			t.Fatal(err)
		}
		if err := s.Shrink(ctx, 0); err != nil {
			t.Fatal(err)
		}
		token, err := s.Token()
		if err != nil {
			t.Fatal(err)
		}
		if s, err = c.spaces[1].Resume(token); err != nil {
			t.Fatal(err)
		}
	}
	for _, srv := range c.servers { // nothing becomes visible any more
		srv.mu.Lock()
		srv.ring = ring{}
		srv.mu.Unlock()
	}
	if err := s.Set(ctx, "c", strings.Repeat("v", 2<<20)); err != nil {
		t.Fatal(err)
	}
	ended, cancel := context.WithCancel(ctx)
	cancel()
	if err := s.Shrink(ended, 0); !errors.Is(err, ErrCarriesTooMuch) {
		t.Errorf("a session that carries what nobody else has: %v", err)
	}
}
