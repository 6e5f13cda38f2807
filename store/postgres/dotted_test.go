package postgres

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"

	"github.com/freshet-cache/freshet/store"
	"github.com/freshet-cache/freshet/store/dotted"
	"github.com/freshet-cache/freshet/store/storetest"
)

// closing closes its store with itself.
type closing struct {
	*Dotted
	s *Store
}

func (c closing) Close() error { return c.s.Close() }

func openDotted(t *testing.T, url string) closing {
	t.Helper()
	s := open(t, Options{URL: url})
	d, err := s.Dotted("feeds")
	if err != nil {
		t.Fatal(err)
	}
	return closing{d, s}
}

func TestDotted(t *testing.T) {
	storetest.RunDotted(t, func(t *testing.T) storetest.Dotted { return openDotted(t, fresh(t, Migration{})) })
}

// The fence holds also for connections that are killed while they persist, and while
// the server says nothing of what became of their last statement.
func TestFenceOverKilledConnections(t *testing.T) {
	url, ctx := fresh(t, Migration{}), t.Context()
	c, other := openDotted(t, url), openDotted(t, url)
	if err := c.Begin(ctx, 1); err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	var mu sync.Mutex
	acked, lost := 0, 0
	for i := range 8 {
		wg.Go(func() {
			for n := uint64(i) + 1; ; {
				err := c.Persist(ctx, dotted.Write{Dot: dotted.Dot{Origin: 1, N: n}, Stamp: dotted.Stamp{Time: n, Origin: 1},
					Muts: []dotted.Mutation{{Key: fmt.Sprint("k", i), Value: []byte("v")}, {Key: "shared", Value: []byte(fmt.Sprint(n))}}, Body: []byte{1}})
				mu.Lock()
				switch {
				case err == nil:
					acked, n = acked+1, n+8
				case errors.Is(err, dotted.ErrFenced):
					mu.Unlock()
					return
				default:
					lost++
				}
				mu.Unlock()
			}
		})
	}
	for range 20 {
		if _, err := other.s.pool.Exec(ctx, "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE query LIKE '%persist%' AND pid <> pg_backend_pid()"); err != nil {
			t.Fatal(err)
		}
	}
	if err := other.Fence(ctx, 1); err != nil {
		t.Fatal(err)
	}
	seen, _, err := other.Journal(ctx, 1, 0, 1<<20)
	if err != nil {
		t.Fatal(err)
	}
	wg.Wait()
	later, _, err := other.Journal(ctx, 1, 0, 1<<20)
	if err != nil || len(later) != len(seen) || acked > len(seen) {
		t.Errorf("%d entries when the fence stood, %d later, %d acknowledged, %v", len(seen), len(later), acked, err)
	}
	t.Logf("%d acknowledged, %d without an answer, %d in the journal", acked, lost, len(later))
}

// What a server cannot take is refused, with the reason.
func TestDottedRefusals(t *testing.T) {
	url, ctx := fresh(t, Migration{}), t.Context()
	c := openDotted(t, url)
	if err := c.Begin(ctx, 1); err != nil {
		t.Fatal(err)
	}
	long := dotted.Write{Dot: dotted.Dot{Origin: 1, N: 1}, Muts: []dotted.Mutation{{Key: string(make([]byte, MaxKey+1)), Value: []byte("v")}}}
	if err := c.Persist(ctx, long); !errors.Is(err, store.ErrTooLarge) {
		t.Errorf("a key that is too long: %v", err)
	}
	for _, name := range []string{"", "a\x00b"} {
		if _, err := c.s.Dotted(name); err == nil {
			t.Errorf("a space is called %q", name)
		}
	}
	other, err := c.s.Dotted("feed")
	if err != nil {
		t.Fatal(err)
	}
	if err := other.Persist(ctx, dotted.Write{Dot: dotted.Dot{Origin: 1, N: 1}}); !errors.Is(err, dotted.ErrFenced) {
		t.Errorf("an origin of another space persists: %v", err)
	}
	_ = c.Close()
	if _, err := c.Load(ctx, "k"); !errors.Is(err, store.ErrClosed) {
		t.Errorf("a closed store answers %v", err)
	}
	if err := c.Persist(ctx, dotted.Write{Dot: dotted.Dot{Origin: 1, N: 1}}); !errors.Is(err, store.ErrClosed) {
		t.Errorf("a closed store persists: %v", err)
	}
}

// A fence waits for a write of the origin that has begun: it is there when the fence stands,
// or never.
func TestFenceWaitsForWrites(t *testing.T) {
	url, ctx := fresh(t, Migration{}), t.Context()
	c := openDotted(t, url)
	write := func(n uint64) error {
		return c.Persist(ctx, dotted.Write{Dot: dotted.Dot{Origin: 1, N: n}, Stamp: dotted.Stamp{Time: n, Origin: 1}, Muts: []dotted.Mutation{{Key: "k", Value: []byte("v")}}})
	}
	if err := errors.Join(c.Begin(ctx, 1), write(1)); err != nil {
		t.Fatal(err)
	}
	tx, err := c.s.pool.Begin(ctx)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback(context.Background()) }() // or closing waits for it
	if _, err := tx.Exec(ctx, "SELECT FROM "+c.s.schema+".dotted FOR UPDATE"); err != nil {
		t.Fatal(err)
	}
	written, fenced := make(chan error, 1), make(chan error, 1)
	waits := func(n int) {
		for seen := 0; seen < n; {
			if err := c.s.pool.QueryRow(ctx, "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND query LIKE '%'||$1||'%'", c.s.schema).Scan(&seen); err != nil {
				t.Fatal(err)
			}
			select {
			case err := <-fenced:
				t.Fatalf("the fence stands while a write is under way (%v)", err)
			default:
			}
		}
	}
	go func() { written <- write(2) }()
	waits(1)
	go func() { fenced <- c.Fence(ctx, 1) }()
	waits(2)
	if err := tx.Rollback(ctx); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(<-fenced, <-written); err != nil {
		t.Fatal(err)
	}
	if entries, _, err := c.Journal(ctx, 1, 0, 9); err != nil || len(entries) != 2 {
		t.Errorf("%v, %v", entries, err)
	}
}
