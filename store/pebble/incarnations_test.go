package pebble

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"testing"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/freshet-cache/freshet/store"
	"github.com/freshet-cache/freshet/store/journal"
)

// put is a write of k in a causal space.
func put(value string) journal.Mutation { return journal.Mutation{Key: "k", Value: []byte(value)} }

// The journal of an incarnation is its own, in order and to the last number there is: what is asked
// for begins behind a number, ends at a limit, and never shows what was truncated.
func TestJournalsAreApart(t *testing.T) {
	c := quick(t, Options{})
	defer c.Close()
	ctx := t.Context()
	for o := range uint32(3) {
		if err := c.Begin(ctx, o, journal.Name{byte(o)}); err != nil {
			t.Fatal(err)
		}
		for _, n := range []uint64{1, 2, 3, 300, math.MaxUint64} {
			if err := c.Persist(ctx, write(o, n, n, put("v"))); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := c.Truncate(ctx, 1, 2); err != nil {
		t.Fatal(err)
	}
	for _, q := range []struct {
		o       uint32
		after   uint64
		limit   int
		want    []uint64
		settled uint64
	}{
		{0, 0, 9, []uint64{1, 2, 3, 300, math.MaxUint64}, 0},
		{1, 0, 9, []uint64{3, 300, math.MaxUint64}, 2},
		{1, 2, 1, []uint64{3}, 2},
		{1, 3, 9, []uint64{300, math.MaxUint64}, 2},
		{2, 1, 2, []uint64{2, 3}, 0},
		{2, 300, 9, []uint64{math.MaxUint64}, 0},
		{2, 0, 0, nil, 0},
	} {
		entries, truncated, err := c.Entries(ctx, q.o, q.after, q.limit)
		var got []uint64
		for _, e := range entries {
			if got = append(got, e.N); string(e.Body) != fmt.Sprint(q.o, ".", e.N) {
				t.Errorf("entry %d of %d is %q", e.N, q.o, e.Body)
			}
		}
		if err != nil || truncated != q.settled || !slices.Equal(got, q.want) {
			t.Errorf("%+v: %v up to %d, %v", q, got, truncated, err)
		}
	}
	// What was truncated is not written again, and its fate is known of an incarnation that is over too.
	if err := errors.Join(c.Persist(ctx, write(1, 2, 99, put("again"))), c.Fence(ctx, 1), c.TruncateFenced(ctx, 1, 300), c.Remove(ctx, 1)); err != nil {
		t.Fatal(err)
	}
	for o, want := range map[uint32]int{0: 5, 2: 5} {
		if entries, _, err := c.Entries(ctx, o, 0, 9); len(entries) != want || err != nil {
			t.Errorf("when a neighbour was removed, incarnation %d has %d entries, %v", o, len(entries), err)
		}
	}
	if entries, _, err := c.Entries(ctx, 1, 0, 9); !errors.Is(err, journal.ErrFenced) || len(entries) != 0 {
		t.Errorf("an incarnation that was removed has %d entries, %v", len(entries), err)
	}
	if found, err := c.any(c.entryKey(1, 0), c.entryKey(2, 0)); found || err != nil {
		t.Errorf("something is left of its journal: %v, %v", found, err)
	}
	if bodies, err := c.Fetch(ctx, []journal.Dot{{Incarnation: 2, N: 3}, {Incarnation: 1, N: 3}, {Incarnation: 0, N: 1}}); err != nil || len(bodies) != 2 || string(bodies[0]) != "2.3" || string(bodies[1]) != "0.1" {
		t.Errorf("%q, %v", bodies, err)
	}
}

// A incarnation is open while it is not fenced, or has entries that others may need.
func TestWhichLivesAreOpen(t *testing.T) {
	c := quick(t, Options{})
	defer c.Close()
	ctx := t.Context()
	known := func(when string, newest uint32, open ...uint32) {
		t.Helper()
		k, err := c.Known(ctx)
		if err != nil || k.Newest != newest || !slices.Equal(k.Open, open) {
			t.Errorf("%s: %+v, %v; want %d, open %v", when, k, err, newest, open)
		}
	}
	known("in the beginning", 0)
	must := func(errs ...error) {
		t.Helper()
		if err := errors.Join(errs...); err != nil {
			t.Fatal(err)
		}
	}
	must(c.Begin(ctx, 4, journal.Name{4}), c.Begin(ctx, 2, journal.Name{2}), c.Begin(ctx, journal.External, journal.Name{9}), c.Begin(ctx, 3, journal.Name{3}))
	known("when incarnations have begun", 4, 2, 3, 4)
	must(c.Persist(ctx, write(3, 1, 1, put("v"))), c.Persist(ctx, write(3, 2, 2, put("w"))), c.Fence(ctx, 3), c.Fence(ctx, 4))
	known("when incarnations are over", 4, 2, 3)
	must(c.TruncateFenced(ctx, 3, 1))
	known("when an entry is left", 4, 2, 3)
	must(c.TruncateFenced(ctx, 3, 2))
	known("when nothing is left", 4, 2)
	if err := c.Truncate(ctx, 3, 2); !errors.Is(err, journal.ErrFenced) {
		t.Errorf("an incarnation that is over forgets: %v", err)
	}
	if err := c.TruncateFenced(ctx, 2, 1); !errors.Is(err, journal.ErrFenced) {
		t.Errorf("an incarnation that goes on is dropped: %v", err)
	}
	if fenced, err := c.Fenced(ctx, 2, 3, 4, 5); err != nil || !slices.Equal(fenced, []uint32{3, 4}) {
		t.Errorf("fenced are %v, %v", fenced, err)
	}
	must(c.Remove(ctx, 4))
	known("when the newest was removed", 3, 2)
	if incarnations, err := c.Incarnations(ctx); err != nil || !slices.Equal(incarnations, []uint32{2, 3, journal.External}) {
		t.Errorf("%v, %v", incarnations, err)
	}
	must(c.Remove(ctx, 3), c.Begin(ctx, 3, journal.Name{5}), c.Persist(ctx, write(3, 1, 1, put("x"))))
	if entries, truncated, err := c.Entries(ctx, 3, 0, 9); err != nil || truncated != 0 || len(entries) != 1 {
		t.Errorf("a number that was removed begins anew with %v up to %d, %v", entries, truncated, err)
	}
}

// The largest time is that of whatever was ever persisted: of the journal, whatever its order, of
// what was truncated of it, and of rows that were merged.
func TestTheLargestTime(t *testing.T) {
	ctx, s := t.Context(), quick(t, Options{}).s
	defer s.Close()
	for name, c := range map[string]struct {
		times  [2][]uint64 // of writes of two incarnations
		forget [2]uint64
		merged uint64
		want   uint64
	}{
		"nothing":                 {},
		"in order":                {times: [2][]uint64{{1, 2}, {3, 4}}, want: 4},
		"not in order":            {times: [2][]uint64{{9, 2}, {3, 4}}, want: 9},
		"in the second, first":    {times: [2][]uint64{{1, 2}, {8, 4}}, want: 8},
		"truncated":               {times: [2][]uint64{{9, 2}, {3, 4}}, forget: [2]uint64{1, 0}, want: 9},
		"all truncated":           {times: [2][]uint64{{2, 9, 3}, {3, 4}}, forget: [2]uint64{3, 2}, want: 9},
		"truncated in the second": {times: [2][]uint64{{2, 3}, {7, 4}}, forget: [2]uint64{1, 2}, want: 7},
		"merged":                  {times: [2][]uint64{{2, 3}, {7, 4}}, merged: 11, want: 11},
		"merged what is earlier":  {times: [2][]uint64{{2, 3}, {7, 4}}, merged: 5, want: 7},
	} {
		d, err := s.Journal(name)
		if err != nil {
			t.Fatal(err)
		}
		for i, times := range c.times {
			o := uint32(i + 1)
			err := d.Begin(ctx, o, journal.Name{byte(o)})
			for n, at := range times {
				err = errors.Join(err, d.Persist(ctx, write(o, uint64(n+1), at, put("v"))))
			}
			if c.forget[i] > 0 {
				err = errors.Join(err, d.Truncate(ctx, o, c.forget[i]))
			}
			if err != nil {
				t.Fatal(err)
			}
		}
		if c.merged > 0 {
			_, err := d.Claim(ctx, 1)
			row := journal.Row{Exists: true, Stamp: journal.Stamp{Time: c.merged, Incarnation: 1}, Dot: journal.Dot{Incarnation: 1, N: 9}}
			early := journal.Row{Exists: true, Stamp: journal.Stamp{Time: 1, Incarnation: 1}, Dot: journal.Dot{Incarnation: 1, N: 8}}
			rows := []journal.Keyed{{Key: "m", Row: row}, {Key: "n", Row: early}}
			if err = errors.Join(err, d.Merge(ctx, journal.Flush{Term: 1, Number: 1, Rows: rows}), d.Merge(ctx, journal.Flush{Term: 1, Number: 2, Rows: rows[1:]})); err != nil {
				t.Fatal(err)
			}
		}
		if got, err := d.Largest(ctx); got != c.want || err != nil {
			t.Errorf("%s: the largest time is %d, %v; want %d", name, got, err, c.want)
		}
	}
}

// A call that fails leaves an incarnation as it was, on disk and in memory.
func TestWhatFailsChangesNothing(t *testing.T) {
	c := quick(t, Options{})
	defer c.Close()
	ctx := t.Context()
	if err := errors.Join(c.Begin(ctx, 1, journal.Name{1}), c.Persist(ctx, write(1, 1, 5, put("v"))), c.Persist(ctx, write(1, 2, 6, put("w"))),
		c.s.db.Set(c.entryKey(1, 2), []byte("short"), pebble.NoSync)); err != nil {
		t.Fatal(err)
	}
	if err := c.Truncate(ctx, 1, 2); !errors.Is(err, ErrDamaged) {
		t.Errorf("an entry that cannot be read is truncated: %v", err)
	}
	if _, b, err := c.entry(c.entryKey(1, 1)); string(b) != "1.1" || err != nil {
		t.Errorf("the entry before it is %q, %v", b, err)
	}
	if l, err := c.incarnation(1); err != nil || l.truncated != 0 || l.largest != 0 || !l.begun || l.fenced || l.name != (journal.Name{1}) {
		t.Errorf("the incarnation is %+v, %v", l, err)
	}
	if err := c.Begin(ctx, 1, journal.Name{2}); !errors.Is(err, journal.ErrBegun) {
		t.Errorf("an incarnation of another name: %v", err)
	}
	if l, err := c.incarnation(1); err != nil || l.name != (journal.Name{1}) {
		t.Errorf("the incarnation is %+v, %v", l, err)
	}
	for _, name := range []string{"", string(make([]byte, 256))} {
		if _, err := c.s.Journal(name); err == nil {
			t.Errorf("a space with a name of %d bytes", len(name))
		}
	}
	if _, err := c.s.Journal(string(make([]byte, 255))); err != nil {
		t.Error(err)
	}
}

// A space keeps concurrent writes or it does not, from its first use on, and says so to whoever
// wants it otherwise.
func TestASpaceIsOfOneKind(t *testing.T) {
	ctx := t.Context()
	for _, used := range []bool{false, true} {
		for _, first := range []bool{false, true} {
			dir := t.TempDir()
			mem := vfs.NewMem()
			reopen := func() closing {
				s := open(t, dir, Options{fs: mem})
				d, err := s.Journal("feeds")
				if err != nil {
					t.Fatal(err)
				}
				return closing{d, s}
			}
			c := reopen()
			if used { // before there was a choice: nothing concurrent was kept
				if err := c.Begin(ctx, 1, journal.Name{1}); err != nil {
					t.Fatal(err)
				}
			}
			kind := first && !used
			for round := range 2 {
				for _, concurrent := range []bool{first, true, false} {
					if err := c.KeepSiblings(ctx, concurrent); (err == nil) != (concurrent == kind) || err != nil && !errors.Is(err, journal.ErrSiblings) {
						t.Errorf("used %v, first %v: concurrent %v in round %d: %v", used, first, concurrent, round, err)
					}
				}
				if c.siblings.Load() != kind {
					t.Errorf("used %v, first %v: it keeps concurrent writes: %v", used, first, !kind)
				}
				if err := c.Close(); err != nil {
					t.Fatal(err)
				}
				c = reopen()
			}
			if err := c.Close(); err != nil {
				t.Error(err)
			}
		}
	}
}

// Concurrent versions are read as they were written: a row that is cut short is damaged, whoever
// needs it says so, and nobody writes it over.
func TestVersionsAreTakenWhole(t *testing.T) {
	c := quick(t, Options{})
	defer c.Close()
	ctx := t.Context()
	err := errors.Join(c.KeepSiblings(ctx, true), c.Begin(ctx, 1, journal.Name{1}), c.Begin(ctx, 2, journal.Name{2}),
		c.Persist(ctx, write(1, 1, 5, put("one"))), c.Persist(ctx, write(2, 1, 6, journal.Mutation{Key: "k", Delete: true})))
	if err != nil {
		t.Fatal(err)
	}
	whole, err := c.read(c.siblingKey("k"))
	if err != nil {
		t.Fatal(err)
	}
	both, err := decodeVersions(whole)
	if err != nil || len(both) != 2 || !both[0].Exists || string(both[0].Value) != "one" || both[1].Exists {
		t.Fatalf("%+v, %v", both, err)
	}
	ends := map[int]int{0: 0, len(appendVersions(nil, both[:1])): 1, len(whole): 2}
	for i := range len(whole) + 1 {
		got, err := decodeVersions(whole[:i])
		if n, ends := ends[i]; ends != (err == nil) || ends && len(got) != n {
			t.Errorf("%d of %d bytes are %d versions, %v", i, len(whole), len(got), err)
		}
	}
	if _, err := decodeVersions(slices.Repeat([]byte{0xff}, 11)); err == nil {
		t.Error("a version without end is read")
	}
	short := whole[:len(whole)-1]
	if err := c.s.db.Set(c.siblingKey("k"), short, pebble.NoSync); err != nil {
		t.Fatal(err)
	}
	_, loading := c.Load(ctx, "k")
	for what, err := range map[string]error{"load": loading, "persist": c.Persist(ctx, write(1, 2, 7, put("two"))), "collect": c.CollectTombstones(ctx, 99)} {
		if err == nil {
			t.Errorf("%s says nothing of a row that cannot be read", what)
		}
	}
	if b, err := c.read(c.siblingKey("k")); string(b) != string(short) || err != nil {
		t.Errorf("it is %q now, %v", b, err)
	}
	if err := errors.Join(c.s.db.Set(c.siblingKey("k"), whole, pebble.NoSync), c.CollectTombstones(ctx, 6)); err != nil {
		t.Fatal(err)
	}
	if rows, err := c.Load(ctx, "k"); err != nil || len(rows[0].Siblings) != 2 {
		t.Errorf("a deletion of time 6 is collected before 6: %+v, %v", rows, err)
	}
	if err := c.CollectTombstones(ctx, 7); err != nil {
		t.Fatal(err)
	}
	if rows, err := c.Load(ctx, "k"); err != nil || len(rows[0].Siblings) != 1 || !rows[0].Siblings[0].Exists {
		t.Errorf("a deletion of time 6 is there: %+v, %v", rows, err)
	}
}

// Deletions of one key are replaced by tombstones each in its time, and nothing is left of the last one.
func TestDeletionsAreCollectedInTurn(t *testing.T) {
	ctx := t.Context()
	del := journal.Mutation{Key: "k", Delete: true}
	for _, concurrent := range []bool{false, true} {
		c := quick(t, Options{})
		err := errors.Join(c.KeepSiblings(ctx, concurrent), c.Begin(ctx, 1, journal.Name{1}), c.Begin(ctx, 2, journal.Name{2}), c.Persist(ctx, write(1, 1, 3, del)), c.Persist(ctx, write(2, 1, 6, del)))
		if err != nil {
			t.Fatal(err)
		}
		key := c.rowKey("k")
		if concurrent {
			key = c.siblingKey("k")
		}
		for _, before := range []uint64{4, 6} {
			if err := c.CollectTombstones(ctx, before); err != nil {
				t.Fatal(err)
			}
			rows, err := c.Load(ctx, "k")
			stands := []journal.Version{{Stamp: rows[0].Stamp, Dot: rows[0].Dot}}
			if concurrent {
				stands = rows[0].Siblings
			}
			if err != nil || len(stands) != 1 || stands[0].Exists || stands[0].Stamp != (journal.Stamp{Time: 6, Incarnation: 2}) || stands[0].Dot.N != 1 {
				t.Errorf("concurrent %v: before %d were collected: %+v, %v", concurrent, before, rows, err)
			}
		}
		if err := c.CollectTombstones(ctx, 7); err != nil {
			t.Fatal(err)
		}
		if b, err := c.read(key); b != nil || err != nil {
			t.Errorf("concurrent %v: %q is left, %v", concurrent, b, err)
		}
		if found, err := c.any(c.key('g'), c.key('h')); found || err != nil {
			t.Errorf("concurrent %v: the index of deletions has something left: %v, %v", concurrent, found, err)
		}
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	}
}

// A store that was restored to an earlier state gives no version and no number of an incarnation again
// that may have been given since; incarnations of asynchronous spaces go on, for their logs are there.
func TestRestored(t *testing.T) {
	dir, ctx := t.TempDir(), t.Context()
	s := open(t, dir, Options{})
	spaces := map[string]*Journal{}
	for _, name := range []string{"a", "ab", "async", "unused"} {
		d, err := s.Journal(name)
		if err != nil {
			t.Fatal(err)
		}
		spaces[name] = d
		if name == "unused" {
			err = d.KeepSiblings(ctx, true)
		} else {
			err = errors.Join(d.Begin(ctx, 5, journal.Name{5}), d.Begin(ctx, 7, journal.Name{7}), d.Fence(ctx, 6), d.Persist(ctx, write(7, 1, 3, put("v"))))
		}
		if name == "async" {
			_, claims := d.Claim(ctx, 1)
			err = errors.Join(err, claims)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	stamps, err := s.Commit(ctx, store.ID{1}, set("k", "v"))
	if err != nil {
		t.Fatal(err)
	}
	if names, err := s.spaces(ctx); err != nil || !slices.Equal(names, []string{"a", "ab", "async", "unused"}) {
		t.Errorf("the spaces are %q, %v", names, err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	given := store.NextVersion(s.clock.since, 0)
	if err := Restored(ctx, dir); err != nil {
		t.Fatal(err)
	}
	s = open(t, dir, Options{})
	defer s.Close()
	if again, err := s.Commit(ctx, store.ID{2}, set("k", "w")); err != nil || again[0].Version <= stamps[0].Version || again[0].Version < given {
		t.Errorf("version %d follows %d, %v", again[0].Version, stamps[0].Version, err)
	}
	for name := range spaces {
		d, err := s.Journal(name)
		if err != nil {
			t.Fatal(err)
		}
		k, err := d.Known(ctx)
		want := journal.Known{}
		switch name {
		case "a", "ab":
			want = journal.Known{Newest: 7 + journal.Skip, Open: []uint32{7}} // whose journal others may need
		case "async":
			want = journal.Known{Newest: 7 + journal.Skip, Open: []uint32{5, 7}, Term: 1}
		}
		fenced, e := d.Fenced(ctx, 5, 6, 7)
		if err = errors.Join(err, e); err != nil || k.Newest != want.Newest || !slices.Equal(k.Open, want.Open) || k.Term != want.Term {
			t.Errorf("space %s: %+v, %v; want %+v", name, k, err, want)
		}
		if n := map[string]int{"a": 3, "ab": 3, "async": 1}[name]; len(fenced) != n {
			t.Errorf("space %s: fenced are %v", name, fenced)
		}
	}
}

// A directory without a store cannot be restored, nor one that is in use, and who gives up is told.
func TestRestoredNot(t *testing.T) {
	c := openJournal(t, t.TempDir(), "feeds")
	if err := c.Begin(t.Context(), 1, journal.Name{1}); err != nil {
		t.Fatal(err)
	}
	if err := Restored(t.Context(), t.TempDir()); err == nil {
		t.Error("a directory without a store was restored")
	}
	if err := Restored(t.Context(), c.s.dir); !errors.Is(err, ErrLocked) {
		t.Errorf("a store that is open was restored: %v", err)
	}
	over, cancel := context.WithCancel(t.Context())
	cancel()
	if err := errors.Join(c.Close(), Restored(over, c.s.dir)); !errors.Is(err, context.Canceled) {
		t.Errorf("a restore that was given up: %v", err)
	}
}
