package storetest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"

	"github.com/freshet-cache/freshet/store"
	"github.com/freshet-cache/freshet/store/journal"
)

// flush is a batch of what writes leave, each of one key.
func flush(term, number uint64, mark string, writes ...journal.Write) journal.Flush {
	f := journal.Flush{Term: term, Number: number, Mark: []byte(mark)}
	for _, w := range writes {
		m := w.Muts[0]
		f.Rows = append(f.Rows, journal.Keyed{Key: m.Key, Row: journal.Row{Exists: !m.Delete, Value: m.Value, Stamp: w.Stamp, Dot: w.Dot}})
	}
	return f
}

// claims wants a claim to return a mark.
func claims(ctx context.Context, s Journal, term uint64, mark string) error {
	if got, err := s.Claim(ctx, term); err != nil || string(got) != mark {
		return fmt.Errorf("claiming %d returns the mark %q, want %q: %w", term, got, mark, err)
	}
	return nil
}

func mergedCompetes(ctx context.Context, s Journal) error {
	a, b, old, del := puts(1, 1, 10, "k", "a"), puts(2, 1, 20, "l", ""), puts(3, 1, 9, "k", "old"), puts(3, 2, 11, "k", "-")
	err := errors.Join(claims(ctx, s, 1, ""), s.Merge(ctx, flush(1, 1, "one", a, b)),
		stands(ctx, s, "k", "a", a.Dot, a.Stamp), stands(ctx, s, "l", "", b.Dot, b.Stamp),
		s.Merge(ctx, flush(1, 2, "two", old)), stands(ctx, s, "k", "a", a.Dot, a.Stamp),
		s.Merge(ctx, flush(1, 3, "three", del)), stands(ctx, s, "k", "-", del.Dot, del.Stamp),
		s.CollectTombstones(ctx, 12), stands(ctx, s, "k", "-", journal.Dot{}, journal.Stamp{Time: 12}),
		s.Merge(ctx, flush(1, 1, "late", a)), stands(ctx, s, "k", "-", journal.Dot{}, journal.Stamp{Time: 12}),
		s.Merge(ctx, flush(1, 4, "")), claims(ctx, s, 1, ""))
	if err != nil {
		return err
	}
	if got, err := s.Largest(ctx); err != nil || got != 20 {
		return fmt.Errorf("the largest time is %d, want 20: %w", got, err)
	}
	if err := s.Fits(old.Muts); err != nil {
		return err
	}
	if err := s.Fits([]journal.Mutation{{Key: "a"}, {Key: ""}}); !errors.Is(err, store.ErrTooLarge) {
		return fmt.Errorf("an impossible write fits: %w", err)
	}
	if err := errors.Join(begin(ctx, s, 1, 2), s.Fence(ctx, 2), s.Fence(ctx, 3)); err != nil {
		return err
	}
	if got, err := s.Fenced(ctx, 3, 1, 4, 2); err != nil || !slices.Equal(slices.Sorted(slices.Values(got)), []uint32{2, 3}) {
		return fmt.Errorf("2 and 3 were fenced, and %v are said to be: %w", got, err)
	}
	if got, err := s.Fenced(ctx); err != nil || len(got) > 0 {
		return fmt.Errorf("of nobody %v were fenced: %w", got, err)
	}
	return nil
}

func oneMerges(ctx context.Context, s Journal) error {
	w := puts(1, 1, 10, "k", "v")
	if err := s.Merge(ctx, flush(1, 1, "early", w)); !errors.Is(err, journal.ErrFenced) {
		return fmt.Errorf("a term that has not claimed merges: %w", err)
	}
	err := errors.Join(claims(ctx, s, 5, ""), claims(ctx, s, 5, ""), s.Merge(ctx, flush(5, 1, "five", w)), claims(ctx, s, 5, "five"), claims(ctx, s, 7, "five"))
	if err != nil {
		return err
	}
	for _, term := range []uint64{5, 6, 8} {
		if err := s.Merge(ctx, flush(term, 2, "other", puts(1, 2, 20, "k", "w"))); !errors.Is(err, journal.ErrFenced) {
			return fmt.Errorf("7 has claimed, and %d merges: %w", term, err)
		}
	}
	if _, err := s.Claim(ctx, 6); !errors.Is(err, journal.ErrFenced) {
		return fmt.Errorf("7 has claimed, and so does 6: %w", err)
	}
	last := puts(2, 1, 30, "k", "last")
	return errors.Join(stands(ctx, s, "k", "v", w.Dot, w.Stamp), s.Merge(ctx, flush(7, 1, "seven", last)), claims(ctx, s, 7, "seven"),
		stands(ctx, s, "k", "last", last.Dot, last.Stamp))
}

// A batch is seen whole or not at all, and the claim that ends a term knows what it has merged.
func batchIsOneCommit(ctx context.Context, s Journal) error {
	if err := claims(ctx, s, 1, ""); err != nil {
		return err
	}
	var wg sync.WaitGroup
	var merging error
	wg.Go(func() {
		for n := uint64(1); ; n++ {
			v := fmt.Sprint(n)
			err := s.Merge(ctx, flush(1, n, v, puts(1, n, n, "a", v), puts(1, n, n, "b", v), puts(1, n, n, "c", v)))
			if err != nil {
				if !errors.Is(err, journal.ErrFenced) {
					merging = err
				}
				return
			}
		}
	})
	var failed error
	for range 100 {
		rows, err := s.Load(ctx, "a", "b", "c")
		if err != nil || !bytes.Equal(rows[0].Value, rows[1].Value) || !bytes.Equal(rows[0].Value, rows[2].Value) {
			failed = fmt.Errorf("half of a batch is there: %+v, %w", rows, err)
			break
		}
	}
	mark, err := s.Claim(ctx, 2)
	rows, e := s.Load(ctx, "a", "b")
	wg.Wait()
	after, f := s.Load(ctx, "a")
	if err = errors.Join(failed, merging, err, e, f); err != nil {
		return err
	}
	if string(rows[0].Value) != string(mark) || string(rows[1].Value) != string(mark) || string(after[0].Value) != string(mark) {
		return fmt.Errorf("%s was merged when 2 claimed, and the rows are %+v, and later %+v", mark, rows, after)
	}
	return nil
}

// Log is what a log of an asynchronous space must have to be tested.
type Log interface {
	Begin(ctx context.Context, incarnation uint32, name journal.Name) error
	Persist(ctx context.Context, w journal.Write) error
	Entries(ctx context.Context, incarnation uint32, after uint64, limit int) ([]journal.Entry, uint64, error)
	Fence(ctx context.Context, incarnation uint32) error
	Incarnations(ctx context.Context) ([]uint32, error)
	Remove(ctx context.Context, incarnation uint32) error
}

// RunLog tests an empty log.
func RunLog(t *testing.T, s Log) {
	ctx := t.Context()
	incarnations := func(want ...uint32) {
		t.Helper()
		if got, err := s.Incarnations(ctx); err != nil || !slices.Equal(got, want) {
			t.Fatalf("the incarnations are %v, want %v: %v", got, want, err)
		}
	}
	incarnations()
	if err := errors.Join(s.Begin(ctx, 3, named(3)), s.Begin(ctx, 7, named(7)), s.Persist(ctx, puts(3, 1, 5)), s.Persist(ctx, puts(7, 1, 5)), s.Persist(ctx, puts(7, 2, 6)), s.Fence(ctx, 3)); err != nil {
		t.Fatal(err)
	}
	incarnations(3, 7)
	if err := s.Remove(ctx, 3); err != nil {
		t.Fatal(err)
	}
	incarnations(7)
	if err := s.Persist(ctx, puts(3, 2, 6)); !errors.Is(err, journal.ErrFenced) {
		t.Errorf("an incarnation that was removed persists: %v", err)
	}
	if _, _, err := s.Entries(ctx, 3, 0, 10); !errors.Is(err, journal.ErrFenced) {
		t.Errorf("an incarnation that was removed has a journal: %v", err)
	}
	if entries, _, err := s.Entries(ctx, 7, 0, 10); err != nil || len(entries) != 2 {
		t.Errorf("of the other %v is left, %v", entries, err)
	}
}
