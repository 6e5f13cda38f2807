package causal

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"

	"github.com/freshet-cache/freshet/internal/testkit"
	"github.com/freshet-cache/freshet/store/memory"
)

// Accounts whose sum never changes: whoever reads them in a transaction, in steps at
// different servers, sees that sum, whatever is transferred meanwhile.
func TestTransactions(t *testing.T) {
	c, ctx := gather(t, 3, memory.Options{}, nil), t.Context()
	const accounts = 5
	_, err := c.spaces[0].Transact(ctx, func(tx *Tx[string]) error {
		for i := range accounts {
			if err := tx.Set(fmt.Sprint("a", i), "100"); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	testkit.Eventually(t, func() bool {
		_, ok, err := c.spaces[2].Begin().Get(ctx, "a4")
		return err == nil && ok
	})
	var wg sync.WaitGroup
	stop := make(chan struct{})
	wg.Go(func() { transfer(t, c.spaces[0].Begin(), accounts, stop) })
	stale := 0
	for i := range 300 {
		_, err := c.spaces[i%3].Transact(ctx, func(tx *Tx[string]) error {
			sum := 0
			for k := range accounts {
				token, err := tx.Token()
				if err != nil {
					return err
				}
				step, err := c.spaces[(i+k)%3].ResumeTx(token)
				if err != nil {
					return err
				}
				v, ok, err := step.Get(ctx, fmt.Sprint("a", k))
				if errors.Is(err, ErrStale) {
					stale++
				}
				if err != nil {
					return err
				}
				var n int
				if fmt.Sscan(v, &n); !ok {
					t.Errorf("a%d is not there", k)
				}
				sum += n
				*tx = *step
			}
			if sum != 100*accounts {
				t.Errorf("the sum is %d", sum)
			}
			return nil
		})
		if err != nil && !errors.Is(err, ErrStale) {
			t.Fatal(err)
		}
	}
	close(stop)
	wg.Wait()
	t.Logf("%d snapshots were lost", stale)
}

// transfer moves money between accounts until stop is closed. There is one who does: causal
// consistency does not order writers, so two might overwrite each other.
func transfer(t *testing.T, s *Session[string], accounts int, stop chan struct{}) {
	ctx, r := t.Context(), rand.New(rand.NewPCG(1, 1))
	for {
		select {
		case <-stop:
			return
		default:
		}
		from, to := r.IntN(accounts), r.IntN(accounts)
		_, err := s.Transact(ctx, func(tx *Tx[string]) error {
			items, err := tx.GetMany(ctx, fmt.Sprint("a", from), fmt.Sprint("a", to))
			if err != nil || from == to {
				return err
			}
			var a, b int
			fmt.Sscan(items[0].Value, &a)
			fmt.Sscan(items[1].Value, &b)
			return errors.Join(tx.Set(fmt.Sprint("a", from), fmt.Sprint(a-1)), tx.Set(fmt.Sprint("a", to), fmt.Sprint(b+1)))
		})
		if err != nil && !errors.Is(err, ErrBusy) {
			t.Error(err)
			return
		}
	}
}

// A transaction sees what it is to write, its branches too, and nobody else does before it
// commits.
func TestTransactionBranches(t *testing.T) {
	c, ctx := gather(t, 2, memory.Options{}, nil), t.Context()
	tx, err := c.spaces[0].Begin().BeginTx(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(tx.Set("a", "1"), tx.Set("b", "1"), tx.Delete("b")); err != nil {
		t.Fatal(err)
	}
	f := tx.Fork()
	if err := f.Set("c", "1"); err != nil {
		t.Fatal(err)
	}
	if _, err := tx.Commit(ctx); !errors.Is(err, ErrBranch) {
		t.Errorf("a commit with an open branch: %v", err)
	}
	if _, err := f.Commit(ctx); !errors.Is(err, ErrBranch) {
		t.Errorf("a branch commits: %v", err)
	}
	if err := tx.Join(f); err != nil {
		t.Fatal(err)
	}
	if err := tx.Join(f); !errors.Is(err, ErrNotBranch) {
		t.Errorf("a branch is joined twice: %v", err)
	}
	items, err := tx.GetMany(ctx, "a", "b", "c")
	if err != nil || items[0].Value != "1" || items[1].Exists || items[2].Value != "1" {
		t.Errorf("%+v, %v", items, err)
	}
	if _, ok, err := c.spaces[0].Begin().Get(ctx, "a"); ok || err != nil {
		t.Errorf("it is seen before it commits: %v", err)
	}
	s, err := tx.Commit(ctx)
	if err != nil {
		t.Fatal(err)
	}
	s = roam(t, s, c.spaces[1])
	if v, _, err := s.Get(ctx, "c"); err != nil || v != "1" {
		t.Errorf("%q, %v", v, err)
	}
	token, _ := s.Token()
	if _, err := c.spaces[0].ResumeTx(token); !errors.Is(err, ErrForged) && !errors.Is(err, ErrOtherSpace) {
		t.Errorf("a session's token is taken for a transaction's: %v", err)
	}
	if _, err := c.spaces[0].ResumeTx("x"); !errors.Is(err, ErrToken) {
		t.Error(err)
	}
}
