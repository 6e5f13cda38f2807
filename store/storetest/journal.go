package storetest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/freshet-cache/freshet/store"
	"github.com/freshet-cache/freshet/store/journal"
)

// Journal is what a store of causal rows must have to be tested.
type Journal interface {
	Load(ctx context.Context, keys ...string) ([]journal.Row, error)
	KeepSiblings(ctx context.Context, concurrent bool) error
	Begin(ctx context.Context, incarnation uint32, name journal.Name) error
	Known(ctx context.Context) (journal.Known, error)
	Persist(ctx context.Context, w journal.Write) error
	Fetch(ctx context.Context, dots []journal.Dot) ([][]byte, error)
	Entries(ctx context.Context, incarnation uint32, after uint64, limit int) ([]journal.Entry, uint64, error)
	Truncate(ctx context.Context, incarnation uint32, upto uint64) error
	TruncateFenced(ctx context.Context, incarnation uint32, upto uint64) error
	CollectTombstones(ctx context.Context, before uint64) error
	Fence(ctx context.Context, incarnation uint32) error
	Largest(ctx context.Context) (uint64, error)
	Claim(ctx context.Context, term uint64) ([]byte, error)
	Merge(ctx context.Context, f journal.Flush) error
	Fits(muts []journal.Mutation) error
	Fenced(ctx context.Context, incarnations ...uint32) ([]uint32, error)
	Close() error
}

// RunJournal runs the suite of package journal. open returns an empty store.
func RunJournal(t *testing.T, open func(t *testing.T) Journal) {
	for _, c := range JournalChecks {
		t.Run(c.Name, func(t *testing.T) {
			s := open(t)
			defer s.Close()
			if err := c.Check(t.Context(), s); err != nil {
				t.Fatal(err)
			}
		})
	}
}

// JournalCheck is one promise.
type JournalCheck struct {
	Name  string
	Check func(ctx context.Context, s Journal) error
}

// JournalChecks are all of them.
var JournalChecks = []JournalCheck{
	{"TheLargestStampWins", largestStampWins},
	{"ADeletedKeyHasAStamp", deletedKeyHasAStamp},
	{"AWriteIsOneCommit", writeIsOneCommit},
	{"TheJournalGivesBack", journalGivesBack},
	{"WhatWasLetGoStaysSo", letGoStaysSo},
	{"AnOriginIsUsedOnce", incarnationIsUsedOnce},
	{"WhichNumbersWereUsedIsKnown", usedNumbersAreKnown},
	{"TheFenceHoldsForOrigins", fenceHoldsForIncarnations},
	{"LettingGoHolds", lettingGoHolds},
	{"RowsOfOneInstant", rowsOfOneInstant},
	{"TheLargestTimeIsKnown", largestTimeIsKnown},
	{"ConcurrentWritesAreKept", concurrentWritesAreKept},
	{"TheSettingIsForEver", settingIsForEver},
	{"VersionsUnderContention", versionsUnderContention},
	{"WhatIsMergedCompetes", mergedCompetes},
	{"OneMergesAtATime", oneMerges},
	{"ABatchIsOneCommit", batchIsOneCommit},
}

// puts is a write of keys and values in turn; "-" deletes.
func puts(incarnation uint32, n, time uint64, pairs ...string) journal.Write {
	w := journal.Write{Dot: journal.Dot{Incarnation: incarnation, N: n}, Stamp: journal.Stamp{Time: time, Incarnation: incarnation}, Body: fmt.Appendf(nil, "write %d.%d", incarnation, n)}
	for p := range slices.Chunk(pairs, 2) {
		m := journal.Mutation{Key: p[0], Delete: p[1] == "-"}
		if !m.Delete {
			m.Value = []byte(p[1])
		}
		w.Muts = append(w.Muts, m)
	}
	return w
}

// stands wants a row.
func stands(ctx context.Context, s Journal, key, value string, dot journal.Dot, stamp journal.Stamp) error {
	rows, err := s.Load(ctx, key)
	if err != nil {
		return err
	}
	want := journal.Row{Exists: value != "-", Stamp: stamp, Dot: dot}
	if want.Exists {
		want.Value = []byte(value)
	}
	if got := rows[0]; got.Exists != want.Exists || !bytes.Equal(got.Value, want.Value) || got.Stamp != want.Stamp || got.Dot != want.Dot {
		return fmt.Errorf("%s is %+v, want %+v", key, got, want)
	}
	return nil
}

func persistAll(ctx context.Context, s Journal, writes ...journal.Write) error {
	for _, w := range writes {
		if err := s.Persist(ctx, w); err != nil {
			return fmt.Errorf("%v: %w", w.Dot, err)
		}
	}
	return nil
}

// named is the name of an incarnation in these tests.
func named(incarnation uint32) journal.Name { return journal.Name{1, byte(incarnation)} }

func begin(ctx context.Context, s Journal, incarnations ...uint32) error {
	for _, o := range incarnations {
		if err := s.Begin(ctx, o, named(o)); err != nil {
			return err
		}
	}
	return nil
}

func largestStampWins(ctx context.Context, s Journal) error {
	a, b, c := puts(1, 1, 10, "k", "a"), puts(2, 1, 20, "k", "b"), puts(1, 2, 20, "k", "c", "other", "")
	return errors.Join(begin(ctx, s, 1, 2),
		stands(ctx, s, "k", "-", journal.Dot{}, journal.Stamp{}),
		persistAll(ctx, s, b, a, c), // 20 of incarnation 2 is larger than 20 of incarnation 1
		stands(ctx, s, "k", "b", b.Dot, b.Stamp),
		stands(ctx, s, "other", "", c.Dot, c.Stamp),
		persistAll(ctx, s, puts(2, 2, 1<<62, "k", "last"), puts(1, 3, 1<<62, "k", "x")),
		stands(ctx, s, "k", "last", journal.Dot{Incarnation: 2, N: 2}, journal.Stamp{Time: 1 << 62, Incarnation: 2}))
}

func deletedKeyHasAStamp(ctx context.Context, s Journal) error {
	set, del, old := puts(1, 1, 10, "k", "v"), puts(1, 2, 20, "k", "-"), puts(2, 1, 15, "k", "old")
	return errors.Join(begin(ctx, s, 1, 2), persistAll(ctx, s, set, del, old),
		stands(ctx, s, "k", "-", del.Dot, del.Stamp),
		s.CollectTombstones(ctx, 20), stands(ctx, s, "k", "-", del.Dot, del.Stamp),
		persistAll(ctx, s, puts(1, 3, 5, "alive", "v")),
		s.CollectTombstones(ctx, 21), stands(ctx, s, "k", "-", journal.Dot{}, journal.Stamp{Time: 21}),
		s.CollectTombstones(ctx, 7), stands(ctx, s, "never", "-", journal.Dot{}, journal.Stamp{Time: 21}),
		stands(ctx, s, "alive", "v", journal.Dot{Incarnation: 1, N: 3}, journal.Stamp{Time: 5, Incarnation: 1}))
}

func writeIsOneCommit(ctx context.Context, s Journal) error {
	w := puts(1, 1, 10, "a", "1", "b", "1", "c", "1")
	if err := errors.Join(begin(ctx, s, 1), persistAll(ctx, s, w, w)); err != nil {
		return err
	}
	large := puts(1, 2, 20, "a", "2", "", "2")
	if err := s.Persist(ctx, large); !store.Definite(err) {
		return fmt.Errorf("an impossible write was answered with %v", err)
	}
	if got, err := s.Fetch(ctx, []journal.Dot{large.Dot}); err != nil || len(got) > 0 {
		return fmt.Errorf("a refused write is in the journal: %q, %w", got, err)
	}
	return errors.Join(stands(ctx, s, "a", "1", w.Dot, w.Stamp), stands(ctx, s, "c", "1", w.Dot, w.Stamp),
		persistAll(ctx, s, puts(1, 2, 20))) // the number comes to nothing
}

func journalGivesBack(ctx context.Context, s Journal) error {
	if err := begin(ctx, s, 1, 2); err != nil {
		return err
	}
	for n := range uint64(5) {
		if err := persistAll(ctx, s, puts(1, n+1, 10+n, "k", "v"), puts(2, n+1, 10+n, "k", "v")); err != nil {
			return err
		}
	}
	got, err := s.Fetch(ctx, []journal.Dot{{Incarnation: 2, N: 4}, {Incarnation: 7, N: 1}, {Incarnation: 1, N: 9}, {Incarnation: 1, N: 2}})
	if err != nil || len(got) != 2 || string(got[0]) != "write 2.4" || string(got[1]) != "write 1.2" {
		return fmt.Errorf("fetched %q, %w", got, err)
	}
	entries, truncated, err := s.Entries(ctx, 1, 1, 3)
	if err != nil || truncated != 0 || len(entries) != 3 || entries[0].N != 2 || string(entries[2].Body) != "write 1.4" {
		return fmt.Errorf("the journal of 1 is %v up to %d, %w", entries, truncated, err)
	}
	if none, err := s.Fetch(ctx, nil); err != nil || len(none) != 0 {
		return fmt.Errorf("nothing was asked for, and %q was given back, %w", none, err)
	}
	return nil
}

func letGoStaysSo(ctx context.Context, s Journal) error {
	w, after := puts(1, 1, 10, "k", "v"), puts(1, 2, 11, "k", "w")
	err := errors.Join(begin(ctx, s, 1), persistAll(ctx, s, w, after), s.Truncate(ctx, 1, 1), s.Truncate(ctx, 1, 0))
	if err != nil {
		return err
	}
	entries, truncated, err := s.Entries(ctx, 1, 0, 10)
	if err != nil || truncated != 1 || len(entries) != 1 || entries[0].N != 2 {
		return fmt.Errorf("the journal is %v up to %d, %w", entries, truncated, err)
	}
	del := puts(1, 3, 12, "k", "-")
	err = errors.Join(persistAll(ctx, s, del), s.Truncate(ctx, 1, 3), s.CollectTombstones(ctx, 13), persistAll(ctx, s, w, after, del)) // late
	if err != nil {
		return err
	}
	if got, err := s.Fetch(ctx, []journal.Dot{w.Dot, after.Dot, del.Dot}); err != nil || len(got) > 0 {
		return fmt.Errorf("what was truncated is back: %q, %w", got, err)
	}
	return stands(ctx, s, "k", "-", journal.Dot{}, journal.Stamp{Time: 13})
}

func incarnationIsUsedOnce(ctx context.Context, s Journal) error {
	if err := s.Persist(ctx, puts(1, 1, 1, "k", "v")); !errors.Is(err, journal.ErrFenced) {
		return fmt.Errorf("an incarnation that has not begun: %w", err)
	}
	if _, _, err := s.Entries(ctx, 1, 0, 1); !errors.Is(err, journal.ErrFenced) {
		return fmt.Errorf("the journal of an incarnation that has not begun: %w", err)
	}
	if err := errors.Join(begin(ctx, s, 1), persistAll(ctx, s, puts(1, 1, 1, "k", "v"))); err != nil {
		return err
	}
	if err := s.Begin(ctx, 1, named(1)); err != nil {
		return fmt.Errorf("an incarnation whose beginning is said again: %w", err)
	}
	for _, other := range []journal.Name{{}, named(2), journal.NewName()} {
		if err := s.Begin(ctx, 1, other); !errors.Is(err, journal.ErrBegun) {
			return fmt.Errorf("an incarnation began twice, as %x too: %w", other, err)
		}
	}
	if err := errors.Join(s.Fence(ctx, 1), s.Fence(ctx, 1), s.Fence(ctx, 2)); err != nil {
		return err
	}
	for _, incarnation := range []uint32{1, 2} {
		if err := s.Persist(ctx, puts(incarnation, 2, 2, "k", "w")); !errors.Is(err, journal.ErrFenced) {
			return fmt.Errorf("incarnation %d was fenced, and persists: %w", incarnation, err)
		}
		for _, name := range []journal.Name{{}, named(incarnation)} {
			if err := s.Begin(ctx, incarnation, name); !errors.Is(err, journal.ErrBegun) {
				return fmt.Errorf("incarnation %d was fenced, and begins as %x: %w", incarnation, name, err)
			}
		}
	}
	if err := s.Truncate(ctx, 1, 1); !errors.Is(err, journal.ErrFenced) {
		return fmt.Errorf("a fenced incarnation truncates: %w", err)
	}
	entries, _, err := s.Entries(ctx, 1, 0, 10)
	if err != nil || len(entries) != 1 {
		return fmt.Errorf("the journal of a fenced incarnation is %v, %w", entries, err)
	}
	if err := errors.Join(begin(ctx, s, 3), s.TruncateFenced(ctx, 1, 1)); err != nil {
		return err
	}
	if err := s.TruncateFenced(ctx, 3, 1); !errors.Is(err, journal.ErrFenced) {
		return fmt.Errorf("a living incarnation is dropped: %w", err)
	}
	if entries, truncated, err := s.Entries(ctx, 1, 0, 10); err != nil || len(entries) != 0 || truncated != 1 {
		return fmt.Errorf("the journal of a dropped incarnation is %v up to %d, %w", entries, truncated, err)
	}
	return stands(ctx, s, "k", "v", journal.Dot{Incarnation: 1, N: 1}, journal.Stamp{Time: 1, Incarnation: 1})
}

// A number counts as used once its incarnation began or was fenced, and as open until it is fenced and its journal is empty.
func usedNumbersAreKnown(ctx context.Context, s Journal) error {
	known := func(newest uint32, term uint64, open ...uint32) error {
		k, err := s.Known(ctx)
		if err != nil || k.Newest != newest || k.Term != term || !slices.Equal(k.Open, open) {
			return fmt.Errorf("known is %+v, want newest %d, term %d, open %v: %w", k, newest, term, open, err)
		}
		return nil
	}
	steps := []func() error{
		func() error { return known(0, 0) },
		func() error { return begin(ctx, s, 3, 1) },
		func() error { return known(3, 0, 1, 3) },
		func() error { return errors.Join(persistAll(ctx, s, puts(3, 1, 1, "k", "v")), s.Fence(ctx, 9)) },
		func() error { return known(9, 0, 1, 3) },
		func() error { return errors.Join(s.Fence(ctx, 1), s.Fence(ctx, 3)) },
		func() error { return known(9, 0, 3) }, // its journal has an entry
		func() error { return s.TruncateFenced(ctx, 3, 1) },
		func() error { return errors.Join(known(9, 0), s.Fence(ctx, journal.External)) },
		func() error { return known(9, 0) },
		func() error { _, err := s.Claim(ctx, 7); return err },
		func() error { return known(9, 7) },
	}
	for i, step := range steps {
		if err := step(); err != nil {
			return fmt.Errorf("step %d: %w", i, err)
		}
	}
	return nil
}

// hammer persists writes of incarnation 1 from many callers until one says stop, numbers
// from 1 on, and returns what was acknowledged.
func hammer(ctx context.Context, s Journal, callers int, strike func(acknowledged func() int) error) (acked []uint64, err error) {
	var mu sync.Mutex
	var next atomic.Uint64
	var wg sync.WaitGroup
	over, count := make(chan struct{}), atomic.Int64{}
	for i := range callers {
		wg.Go(func() {
			for {
				select {
				case <-over:
					return
				default:
				}
				n := next.Add(1)
				e := s.Persist(ctx, puts(1, n, n, fmt.Sprint("k", i%3), fmt.Sprint(n), "shared", fmt.Sprint(n)))
				switch {
				case e == nil:
					mu.Lock()
					acked = append(acked, n)
					mu.Unlock()
					count.Add(1)
				case errors.Is(e, journal.ErrFenced):
					return
				default:
					mu.Lock()
					err = errors.Join(err, e)
					mu.Unlock()
					return
				}
			}
		})
	}
	struck := strike(func() int { return int(count.Load()) })
	close(over)
	wg.Wait()
	return acked, errors.Join(err, struck)
}

func fenceHoldsForIncarnations(ctx context.Context, s Journal) error {
	if err := begin(ctx, s, 1); err != nil {
		return err
	}
	seen := 0
	acked, err := hammer(ctx, s, 8, func(acknowledged func() int) error {
		for acknowledged() < 50 {
			runtime.Gosched()
		}
		if err := s.Fence(ctx, 1); err != nil {
			return err
		}
		entries, _, err := s.Entries(ctx, 1, 0, 1<<20) // what is not there now never will be
		seen = len(entries)
		return err
	})
	if err != nil {
		return err
	}
	entries, _, err := s.Entries(ctx, 1, 0, 1<<20)
	if err != nil || len(entries) != seen || len(acked) > seen {
		return fmt.Errorf("%d entries when the fence stood, %d later, %d acknowledged: %w", seen, len(entries), len(acked), err)
	}
	last := entries[len(entries)-1].N
	return stands(ctx, s, "shared", fmt.Sprint(last), journal.Dot{Incarnation: 1, N: last}, journal.Stamp{Time: last, Incarnation: 1})
}

// Truncating numbers that are being persisted: none of them is in the journal
// afterwards, though all are acknowledged.
func lettingGoHolds(ctx context.Context, s Journal) error {
	if err := begin(ctx, s, 1); err != nil {
		return err
	}
	upto := uint64(0)
	_, err := hammer(ctx, s, 8, func(acknowledged func() int) error {
		for upto < 200 {
			upto += 20
			for acknowledged() < int(upto)-10 {
				runtime.Gosched()
			}
			if err := s.Truncate(ctx, 1, upto); err != nil {
				return err
			}
			entries, truncated, err := s.Entries(ctx, 1, 0, 1)
			if err != nil || truncated != upto || len(entries) > 0 && entries[0].N <= upto {
				return fmt.Errorf("up to %d was truncated; the journal begins with %v, truncated up to %d: %w", upto, entries, truncated, err)
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	entries, _, err := s.Entries(ctx, 1, 0, 1)
	if err != nil || len(entries) > 0 && entries[0].N <= upto {
		return fmt.Errorf("up to %d was truncated, and %v is back: %w", upto, entries, err)
	}
	return nil
}

// A write of several keys is seen whole or not at all.
func rowsOfOneInstant(ctx context.Context, s Journal) error {
	if err := begin(ctx, s, 1); err != nil {
		return err
	}
	_, err := hammer(ctx, s, 4, func(func() int) error {
		for range 200 {
			rows, err := s.Load(ctx, "k0", "k1", "k2", "shared")
			if err != nil {
				return err
			}
			most := uint64(0)
			for _, r := range rows[:3] {
				most = max(most, r.Stamp.Time)
			}
			if rows[3].Stamp.Time < most {
				return fmt.Errorf("a write of time %d is half there: %d", most, rows[3].Stamp.Time)
			}
		}
		return nil
	})
	return err
}

// The largest time is that of any write, whatever became of its row and its entry.
func largestTimeIsKnown(ctx context.Context, s Journal) error {
	largest := func(want uint64) error {
		if got, err := s.Largest(ctx); err != nil || got != want {
			return fmt.Errorf("the largest time is %d, want %d: %w", got, want, err)
		}
		return nil
	}
	return errors.Join(largest(0), begin(ctx, s, 1, 2),
		persistAll(ctx, s, puts(1, 1, 30, "k", "-"), puts(1, 2, 20), puts(2, 1, 10, "k", "v")), largest(30),
		s.Truncate(ctx, 1, 1), s.CollectTombstones(ctx, 40), largest(30),
		s.Truncate(ctx, 1, 2), s.Truncate(ctx, 2, 1), largest(30),
		persistAll(ctx, s, puts(2, 2, 50)), largest(50), s.Fence(ctx, 2), s.TruncateFenced(ctx, 2, 2), largest(50))
}
