package linear

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/freshet-cache/freshet/linear/clink"
	"github.com/freshet-cache/freshet/store"
	"github.com/freshet-cache/freshet/store/memory"
)

// What a store says is sorted once: only what it surely refused is a no. A deadline is
// none, wherever it comes from, for the request may still take effect.
func TestStoreErrorsAreSorted(t *testing.T) {
	deadline, cancel := context.WithTimeoutCause(context.Background(), 0, errors.New("too long"))
	defer cancel()
	for _, c := range []struct {
		err  error
		want clink.Status
	}{
		{nil, clink.OK},
		{store.ErrGuardMismatch, clink.Mismatch},
		{store.ErrConflict, clink.Conflict},
		{store.ErrLayoutChanged, clink.Layout},
		{store.ErrFull, clink.Refused},
		{store.ErrTooLarge, clink.Refused},
		{store.ErrUnavailable, clink.Refused},
		{store.ErrRefused, clink.Refused},
		{store.ErrClosed, clink.Refused},
		{fmt.Errorf("%w: no connection: %w", store.ErrUnavailable, context.DeadlineExceeded), clink.Refused},
		{fmt.Errorf("%w: while waiting: %w", store.ErrGuardMismatch, context.Canceled), clink.Mismatch},
		{context.DeadlineExceeded, clink.StatusUnknown},
		{context.Canceled, clink.StatusUnknown},
		{context.Cause(deadline), clink.StatusUnknown},
		{fmt.Errorf("commit: %w", context.DeadlineExceeded), clink.StatusUnknown},
		{errors.New("connection reset by peer"), clink.StatusUnknown},
	} {
		if got := status(c.err); got != c.want {
			t.Errorf("%v is taken for status %d, not %d", c.err, got, c.want)
		}
		if c.err == nil {
			continue
		}
		if got := status(fmt.Errorf("deeper: %w", c.err)); got != c.want {
			t.Errorf("%v, wrapped, is taken for status %d, not %d", c.err, got, c.want)
		}
	}
}

// lateCommits is a store whose first commit takes effect long after its caller's time
// limit, at which it returns the error of the context.
type lateCommits struct {
	Store
	takes chan time.Duration
	done  chan error
}

func (s *lateCommits) Commit(ctx context.Context, id store.ID, muts []store.Mutation) ([]store.Stamp, error) {
	select {
	case d := <-s.takes:
		go func() {
			time.Sleep(d)
			_, err := s.Store.Commit(context.Background(), id, muts)
			s.done <- err
		}()
		<-ctx.Done()
		return nil, ctx.Err()
	default:
		return s.Store.Commit(ctx, id, muts)
	}
}

// A commit that outlasts the time limit has an unknown outcome: it is proven one way or
// the other behind a new guard, and takes effect once at most, however late it arrives.
func TestACommitOutlastsItsTimeLimit(t *testing.T) {
	for _, takes := range []time.Duration{time.Second + 1, time.Minute} {
		synctest.Test(t, func(t *testing.T) {
			n := &counter{}
			st := &lateCommits{memory.New(memory.Options{}), make(chan time.Duration, 1), make(chan error, 1)}
			c := open(t, Options[string]{Store: st, Codec: String(), Timeout: time.Second, Recorder: n})
			if err := c.Set(t.Context(), "k", "old"); err != nil {
				t.Fatal(err)
			}
			st.takes <- takes
			if err := c.Set(t.Context(), "k", "new"); err != nil {
				t.Errorf("a write whose outcome can be found out ends with %v", err)
			}
			if n.events[clink.OutcomeUnknown].Load() != 1 {
				t.Error("the time limit is taken for an answer")
			}
			if err := c.Set(t.Context(), "k", "newest"); err != nil {
				t.Fatal(err)
			}
			if err := <-st.done; !errors.Is(err, store.ErrGuardMismatch) {
				t.Errorf("the commit that was given up ended with %v", err)
			}
			if v, _, err := c.Get(t.Context(), "k"); v != "newest" || err != nil {
				t.Errorf("%q, %v", v, err)
			}
			if row, err := st.Load(t.Context(), "k"); string(row.Value) != "newest" || err != nil {
				t.Errorf("the store has %q, %v", row.Value, err)
			}
		})
	}
}
