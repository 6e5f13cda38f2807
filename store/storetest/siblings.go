package storetest

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/freshet-cache/freshet/store/journal"
)

// siblings wants the versions of a key, each as "incarnation.number=value", "-" for a deletion.
func siblings(ctx context.Context, s Journal, key string, collected uint64, want ...string) error {
	rows, err := s.Load(ctx, "never", key)
	if err != nil {
		return err
	}
	var got []string
	for _, v := range rows[1].Siblings {
		text := string(v.Value)
		if !v.Exists {
			text = "-"
		}
		got = append(got, fmt.Sprintf("%d.%d@%d=%s", v.Dot.Incarnation, v.Dot.N, v.Stamp.Time, text))
	}
	slices.Sort(got)
	if r := rows[1]; !slices.Equal(got, want) || r.Stamp != (journal.Stamp{Time: collected}) || r.Exists || r.Dot != (journal.Dot{}) {
		return fmt.Errorf("%s holds %q at %v, want %q at %d", key, got, r.Stamp, want, collected)
	}
	if len(rows[0].Siblings) > 0 || rows[0].Exists {
		return fmt.Errorf("what was never written is %+v", rows[0])
	}
	return nil
}

// over is a write whose first mutation takes the place of others.
func over(w journal.Write, dots ...journal.Dot) journal.Write {
	w.Muts[0].Supersedes = dots
	return w
}

func concurrentWritesAreKept(ctx context.Context, s Journal) error {
	a, b := puts(1, 1, 10, "k", "a"), puts(2, 1, 20, "k", "")
	both := over(puts(1, 2, 15, "k", "both", "other", "x"), a.Dot, b.Dot, journal.Dot{Incarnation: 9, N: 9})
	gone := over(puts(2, 2, 30, "k", "-"), both.Dot)
	return errors.Join(s.KeepSiblings(ctx, true), s.KeepSiblings(ctx, true), begin(ctx, s, 1, 2),
		siblings(ctx, s, "k", 0),
		persistAll(ctx, s, b, a), siblings(ctx, s, "k", 0, "1.1@10=a", "2.1@20="),
		persistAll(ctx, s, both, b, a), // who comes again changes nothing
		siblings(ctx, s, "k", 0, "1.2@15=both"), siblings(ctx, s, "other", 0, "1.2@15=x"),
		persistAll(ctx, s, gone, puts(1, 3, 12, "k", "late")),
		siblings(ctx, s, "k", 0, "1.3@12=late", "2.2@30=-"),
		s.CollectTombstones(ctx, 30), siblings(ctx, s, "k", 30, "1.3@12=late", "2.2@30=-"),
		s.CollectTombstones(ctx, 31), siblings(ctx, s, "k", 31, "1.3@12=late"),
		s.Truncate(ctx, 1, 3), persistAll(ctx, s, a, both), siblings(ctx, s, "k", 31, "1.3@12=late"),
		persistAll(ctx, s, over(puts(1, 4, 40, "k", "-"), journal.Dot{Incarnation: 1, N: 3})), s.CollectTombstones(ctx, 50), siblings(ctx, s, "k", 50))
}

func settingIsForEver(ctx context.Context, s Journal) error {
	if err := errors.Join(begin(ctx, s, 1), s.KeepSiblings(ctx, false)); err != nil {
		return err
	}
	if err := s.KeepSiblings(ctx, true); !errors.Is(err, journal.ErrSiblings) {
		return fmt.Errorf("a space that was begun without concurrent writes may keep them: %v", err)
	}
	w := puts(1, 1, 10, "k", "v")
	return errors.Join(s.KeepSiblings(ctx, false), persistAll(ctx, s, w), stands(ctx, s, "k", "v", w.Dot, w.Stamp))
}

// versionsUnderContention lets several incarnations replace what they see of a key, or add to it,
// all at once. Each write says in its value whose place it takes, so that what must be left
// can be told in the end.
func versionsUnderContention(ctx context.Context, s Journal) error {
	const callers, writes = 4, 25
	if err := errors.Join(s.KeepSiblings(ctx, true), begin(ctx, s, 1, 2, 3, 4)); err != nil {
		return err
	}
	var wg sync.WaitGroup
	var mu sync.Mutex
	var all error
	replaced, written := map[journal.Dot]bool{}, map[journal.Dot]bool{}
	for c := range callers {
		wg.Go(func() {
			for n := range uint64(writes) {
				w := puts(uint32(c+1), n+1, uint64(time.Now().UnixMicro()), "k", "v", "l", "v")
				if c%2 == 1 {
					slices.Reverse(w.Muts)
				}
				rows, err := s.Load(ctx, "k")
				if n%3 > 0 && err == nil {
					for i := range w.Muts {
						for _, v := range rows[0].Siblings {
							w.Muts[i].Supersedes = append(w.Muts[i].Supersedes, v.Dot)
						}
					}
				}
				if err == nil {
					err = s.Persist(ctx, w)
				}
				for try := 0; err != nil && try < 100; try++ { // two that wait for each other are told so
					err = s.Persist(ctx, w)
				}
				mu.Lock()
				all = errors.Join(all, err)
				written[w.Dot] = true
				for _, d := range w.Muts[0].Supersedes {
					replaced[d] = true
				}
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	rows, err := s.Load(ctx, "k")
	if err != nil || all != nil {
		return errors.Join(err, all)
	}
	var got, want []journal.Dot
	for _, v := range rows[0].Siblings {
		got = append(got, v.Dot)
	}
	for d := range written {
		if !replaced[d] {
			want = append(want, d)
		}
	}
	order := func(a, b journal.Dot) int {
		return cmp.Or(cmp.Compare(a.Incarnation, b.Incarnation), cmp.Compare(a.N, b.N))
	}
	slices.SortFunc(got, order)
	slices.SortFunc(want, order)
	if !slices.Equal(got, want) {
		return fmt.Errorf("k holds %v, and %v were not replaced", got, want)
	}
	return nil
}
