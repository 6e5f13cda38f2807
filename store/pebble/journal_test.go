package pebble

import (
	"errors"
	"testing"

	"github.com/freshet-cache/freshet/store/journal"
	"github.com/freshet-cache/freshet/store/storetest"
)

// closing closes its store with itself.
type closing struct {
	*Journal
	s *Store
}

func (c closing) Close() error { return c.s.Close() }

func openJournal(t *testing.T, dir, space string) closing {
	t.Helper()
	s := open(t, dir, Options{})
	d, err := s.Journal(space)
	if err != nil {
		t.Fatal(err)
	}
	return closing{d, s}
}

func TestJournal(t *testing.T) {
	storetest.RunJournal(t, func(t *testing.T) storetest.Journal { return openJournal(t, t.TempDir(), "feeds") })
}

func TestLog(t *testing.T) {
	c := openJournal(t, t.TempDir(), "feeds")
	defer c.Close()
	storetest.RunLog(t, c)
}

// What was merged is there when the store is opened again, and how far that had come.
func TestMergedIsDurable(t *testing.T) {
	dir, ctx := t.TempDir(), t.Context()
	c := openJournal(t, dir, "feeds")
	row := journal.Row{Exists: true, Value: []byte("v"), Stamp: journal.Stamp{Time: 9, Incarnation: 1}, Dot: journal.Dot{Incarnation: 1, N: 4}}
	_, err := c.Claim(ctx, 3)
	if err = errors.Join(err, c.Merge(ctx, journal.Flush{Term: 3, Number: 1, Rows: []journal.Keyed{{Key: "k", Row: row}}, Mark: []byte("mark")}), c.Close()); err != nil {
		t.Fatal(err)
	}
	c = openJournal(t, dir, "feeds")
	defer c.Close()
	if err := c.Merge(ctx, journal.Flush{Term: 3, Number: 1, Mark: []byte("late")}); err != nil {
		t.Error(err)
	}
	mark, err := c.Claim(ctx, 4)
	rows, e := c.Load(ctx, "k")
	largest, f := c.Largest(ctx)
	if err = errors.Join(err, e, f); err != nil || string(mark) != "mark" || string(rows[0].Value) != "v" || rows[0].Dot != row.Dot || largest != 9 {
		t.Errorf("%q, %+v, %d, %v", mark, rows, largest, err)
	}
}

// An incarnation that an older freshet has written has no name: it is read, it goes on, and nobody begins it again.
func TestALifeWithoutAName(t *testing.T) {
	dir, ctx := t.TempDir(), t.Context()
	c := openJournal(t, dir, "feeds")
	write := func(n uint64) error {
		return c.Persist(ctx, journal.Write{Dot: journal.Dot{Incarnation: 3, N: n}, Stamp: journal.Stamp{Time: n, Incarnation: 3}, Muts: []journal.Mutation{{Key: "k", Value: []byte("v")}}})
	}
	err := errors.Join(c.Begin(ctx, 3, journal.Name{3}), write(1), write(2), c.Truncate(ctx, 3, 1))
	old, e := c.read(c.incarnationKey(3))
	if err = errors.Join(err, e, c.s.db.Set(c.incarnationKey(3), old[:incarnationBytes], nil), c.Close()); err != nil {
		t.Fatal(err)
	}
	c = openJournal(t, dir, "feeds")
	if k, err := c.Known(ctx); err != nil || k.Newest != 3 || len(k.Open) != 1 {
		t.Errorf("%+v, %v", k, err)
	}
	if err := c.Begin(ctx, 3, journal.Name{3}); !errors.Is(err, journal.ErrBegun) {
		t.Errorf("it begins again: %v", err)
	}
	if _, truncated, err := c.Entries(ctx, 3, 0, 10); err != nil || truncated != 1 {
		t.Errorf("settled up to %d, %v", truncated, err)
	}
	if largest, err := c.Largest(ctx); err != nil || largest != 2 {
		t.Errorf("the largest time is %d, %v", largest, err)
	}
	if err := errors.Join(write(3), c.Fence(ctx, 3)); err != nil {
		t.Error(err)
	}
	if err := c.Begin(ctx, 3, journal.Name{}); !errors.Is(err, journal.ErrBegun) {
		t.Errorf("it begins without a name: %v", err)
	}
}

// What was acknowledged is there when the store is opened again; spaces, and rows of
// linear, know nothing of each other.
func TestJournalIsDurable(t *testing.T) {
	dir, ctx := t.TempDir(), t.Context()
	c := openJournal(t, dir, "feeds")
	del := journal.Write{Dot: journal.Dot{Incarnation: 3, N: 3}, Stamp: journal.Stamp{Time: 9, Incarnation: 3}, Muts: []journal.Mutation{{Key: "gone", Delete: true}}, Body: []byte("c")}
	err := errors.Join(c.Begin(ctx, 3, journal.Name{byte(3)}), c.Fence(ctx, 4),
		c.Persist(ctx, journal.Write{Dot: journal.Dot{Incarnation: 3, N: 1}, Stamp: journal.Stamp{Time: 7, Incarnation: 3}, Muts: []journal.Mutation{{Key: "k", Value: []byte("v")}}, Body: []byte("a")}),
		c.Persist(ctx, journal.Write{Dot: journal.Dot{Incarnation: 3, N: 2}, Stamp: journal.Stamp{Time: 8, Incarnation: 3}, Body: []byte("b")}),
		c.Truncate(ctx, 3, 1), c.CollectTombstones(ctx, 5), c.Persist(ctx, del), c.Close())
	if err != nil {
		t.Fatal(err)
	}
	c = openJournal(t, dir, "feeds")
	rows, err := c.Load(ctx, "k", "gone", "never")
	if err != nil || string(rows[0].Value) != "v" || rows[0].Dot.N != 1 || rows[1].Exists || rows[1].Stamp != del.Stamp || rows[2].Stamp != (journal.Stamp{Time: 5}) {
		t.Errorf("%+v, %v", rows, err)
	}
	entries, truncated, err := c.Entries(ctx, 3, 0, 10)
	if err != nil || truncated != 1 || len(entries) != 2 || string(entries[1].Body) != "c" {
		t.Errorf("%+v up to %d, %v", entries, truncated, err)
	}
	for o, name := range map[uint32]journal.Name{3: {4}, 4: {}} {
		if err := c.Begin(ctx, o, name); !errors.Is(err, journal.ErrBegun) {
			t.Errorf("incarnation %d begins again: %v", o, err)
		}
	}
	if err := c.Begin(ctx, 3, journal.Name{3}); err != nil {
		t.Errorf("incarnation 3 is not known by its name: %v", err)
	}
	if err := c.Persist(ctx, journal.Write{Dot: journal.Dot{Incarnation: 4, N: 1}}); !errors.Is(err, journal.ErrFenced) {
		t.Errorf("the fence is gone: %v", err)
	}
	other, err := c.s.Journal("feed")
	if err != nil {
		t.Fatal(err)
	}
	if rows, err := other.Load(ctx, "k"); err != nil || rows[0].Exists {
		t.Errorf("another space has %+v, %v", rows, err)
	}
	if n, err := c.s.Count(ctx); err != nil || n != 0 {
		t.Errorf("linear has %d keys, %v", n, err)
	}
	if _, err := c.s.Journal(""); err == nil {
		t.Error("a space has no name")
	}
}
