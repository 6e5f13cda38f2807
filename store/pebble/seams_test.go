package pebble

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"testing"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/freshet-cache/freshet/store"
	"github.com/freshet-cache/freshet/store/journal"
)

// held is a disk whose syncs wait while they are held.
type held struct {
	mu   sync.Mutex // locked while syncs are to wait
	disk *vfs.MemFS
}

func (h *held) open(t *testing.T) *Store {
	t.Helper()
	h.disk = vfs.NewMem()
	s, err := Open(t.TempDir(), Options{Free: func(string) (uint64, error) { return 1 << 40, nil }, fs: &watched{h.disk, func() {
		h.mu.Lock() // and release at once: it is only waited for
		defer h.mu.Unlock()
	}}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

// unsynced begins a write, and returns when pebble would show it though it is not durable.
func (h *held) unsynced(t *testing.T, s *Store, key []byte, write func() error) (done chan error) {
	t.Helper()
	before, closer, err := s.db.Get(key)
	if err != nil {
		t.Fatal(err)
	}
	was := string(before)
	closer.Close()
	h.mu.Lock()
	done = make(chan error, 1)
	go func() { done <- write() }()
	for {
		now, closer, err := s.db.Get(key)
		if err != nil {
			t.Fatal(err)
		}
		changed := string(now) != was
		if closer.Close(); changed {
			return done
		}
		runtime.Gosched()
	}
}

// early runs read while a write is unsynced, and wants it to wait until the sync is over.
func (h *held) early(t *testing.T, meanwhile func(), read func() string) {
	t.Helper()
	got := make(chan string, 1)
	go func() { got <- read() }()
	for range 200 { // others go on
		meanwhile()
		runtime.Gosched()
	}
	select {
	case v := <-got:
		t.Errorf("a reader was shown %s before it was durable", v)
		h.mu.Unlock()
	default:
		h.mu.Unlock()
		if v := <-got; v != "new" {
			t.Errorf("a reader was shown %s", v)
		}
	}
}

// What a reader is shown is durable: it waits for the sync of a write of that key, and of
// no other.
func TestReadersWaitForTheSync(t *testing.T) {
	h, ctx := &held{}, t.Context()
	s := h.open(t)
	put := func(key, value string) error {
		_, err := s.Commit(ctx, store.ID{1}, []store.Mutation{{Key: key, Value: []byte(value)}})
		return err
	}
	other := "other"
	for i := 0; s.stripe(other) == s.stripe("k"); i++ {
		other = fmt.Sprint("other", i)
	}
	if err := errors.Join(put("k", "old"), put(other, "v")); err != nil {
		t.Fatal(err)
	}
	done := h.unsynced(t, s, rowKey("k"), func() error { return put("k", "new") })
	load := func(key string) string {
		r, err := s.Load(ctx, key)
		if err != nil {
			t.Error(err)
		}
		return string(r.Value)
	}
	h.early(t, func() { load(other) }, func() string { return load("k") })
	if err := <-done; err != nil {
		t.Error(err)
	}
}

// So is what a reader of a causal space is shown.
func TestCausalReadersWaitForTheSync(t *testing.T) {
	h, ctx := &held{}, t.Context()
	s := h.open(t)
	d, err := s.Journal("feeds")
	if err != nil {
		t.Fatal(err)
	}
	persist := func(key, value string, n uint64) error {
		return d.Persist(ctx, journal.Write{Dot: journal.Dot{Incarnation: 1, N: n}, Stamp: journal.Stamp{Time: n, Incarnation: 1}, Muts: []journal.Mutation{{Key: key, Value: []byte(value)}}})
	}
	other := "other"
	for i := 0; s.stripe(other) == s.stripe("k"); i++ {
		other = fmt.Sprint("other", i)
	}
	if err := errors.Join(d.Begin(ctx, 1, journal.Name{1}), persist("k", "old", 1), persist(other, "v", 2)); err != nil {
		t.Fatal(err)
	}
	load := func(keys ...string) string {
		r, err := d.Load(ctx, keys...)
		if err != nil {
			t.Error(err)
			return ""
		}
		return string(r[0].Value)
	}
	done := h.unsynced(t, s, d.rowKey("k"), func() error { return persist("k", "new", 3) })
	h.early(t, func() { load(other) }, func() string { return load("k", other) })
	if err := <-done; err != nil {
		t.Error(err)
	}
	// A merge of rows is no different.
	if _, err := d.Claim(ctx, 1); err != nil {
		t.Fatal(err)
	}
	if err := persist("k", "older", 4); err != nil {
		t.Fatal(err)
	}
	row := journal.Row{Exists: true, Value: []byte("new"), Stamp: journal.Stamp{Time: 9, Incarnation: 1}, Dot: journal.Dot{Incarnation: 1, N: 9}}
	done = h.unsynced(t, s, d.rowKey("k"), func() error {
		return d.Merge(ctx, journal.Flush{Term: 1, Number: 1, Rows: []journal.Keyed{{Key: "k", Row: row}}})
	})
	h.early(t, func() { load(other) }, func() string { return load("k", other) })
	if err := <-done; err != nil {
		t.Error(err)
	}
}

// Writes of one key compete one after the other: whatever their order, the one with the
// largest stamp is left, and readers of several keys see all that one write did, or nothing.
func TestCausalWritesCompeteInTurn(t *testing.T) {
	const writers, rounds = 4, 150
	ctx := t.Context()
	s := open(t, t.TempDir(), Options{NoSync: true})
	defer s.Close()
	d, err := s.Journal("feeds")
	if err != nil {
		t.Fatal(err)
	}
	for o := range uint32(writers) {
		if err := d.Begin(ctx, o+1, journal.Name{byte(o)}); err != nil {
			t.Fatal(err)
		}
	}
	for round := range uint64(rounds) {
		keys := []string{fmt.Sprint("a", round), fmt.Sprint("b", round)}
		var wg sync.WaitGroup
		for o := range uint32(writers) {
			wg.Go(func() {
				w := journal.Write{Dot: journal.Dot{Incarnation: o + 1, N: round + 1}, Stamp: journal.Stamp{Time: 10 - uint64(o), Incarnation: o + 1}}
				for _, k := range keys {
					w.Muts = append(w.Muts, journal.Mutation{Key: k, Value: []byte{byte(o)}})
				}
				if err := d.Persist(ctx, w); err != nil {
					t.Error(err)
				}
				rows, err := d.Load(ctx, keys...)
				if err != nil || rows[0].Dot != rows[1].Dot || rows[0].Stamp.Less(w.Stamp) {
					t.Errorf("%+v, %v", rows, err)
				}
			})
		}
		wg.Wait()
		rows, err := d.Load(ctx, keys...)
		if err != nil || rows[0].Stamp.Time != 10 || rows[1].Stamp.Time != 10 {
			t.Fatalf("round %d: %+v, %v", round, rows, err)
		}
	}
}

// What cannot be read is said, by whoever needs it, and is written over by nobody.
func TestDamageIsSaid(t *testing.T) {
	d := openJournal(t, t.TempDir(), "feeds")
	defer d.Close()
	ctx := t.Context()
	w := func(n uint64) journal.Write {
		return journal.Write{Dot: journal.Dot{Incarnation: 1, N: n}, Stamp: journal.Stamp{Time: n, Incarnation: 1}, Muts: []journal.Mutation{{Key: "k", Value: []byte("v")}}, Body: []byte("b")}
	}
	_, err := d.Claim(ctx, 1)
	if err = errors.Join(err, d.Begin(ctx, 1, journal.Name{1}), d.Begin(ctx, 2, journal.Name{2}), d.Persist(ctx, w(1))); err != nil {
		t.Fatal(err)
	}
	flush := journal.Flush{Term: 1, Number: 1, Rows: []journal.Keyed{{Key: "k", Row: journal.Row{Exists: true, Stamp: journal.Stamp{Time: 99}, Dot: journal.Dot{Incarnation: 1, N: 99}}}}}
	first := func(_ any, err error) error { return err }
	commit := func(m store.Mutation) func() error {
		return func() error { return first(d.s.Commit(ctx, store.ID{1}, []store.Mutation{m})) }
	}
	for name, c := range map[string]struct {
		key   []byte
		value string
		calls map[string]func() error
	}{
		"how far merging has come": {d.key('m'), "short", map[string]func() error{
			"claim": func() error { return first(d.Claim(ctx, 2)) }, "merge": func() error { return d.Merge(ctx, flush) },
			"known": func() error { return first(d.Known(ctx)) }, "largest": func() error { return first(d.Largest(ctx)) },
		}},
		"a row of a space": {d.rowKey("k"), "\x09", map[string]func() error{
			"load": func() error { return first(d.Load(ctx, "other", "k")) }, "merge": func() error { return d.Merge(ctx, flush) },
			"persist": func() error { return d.Persist(ctx, w(2)) },
		}},
		"an entry of a journal": {d.entryKey(1, 1), "short", map[string]func() error{
			"fetch": func() error { return first(d.Fetch(ctx, []journal.Dot{{Incarnation: 1, N: 1}})) }, "persist again": func() error { return d.Persist(ctx, w(1)) },
			"forget":  func() error { return d.Truncate(ctx, 1, 1) },
			"journal": func() error { _, _, err := d.Entries(ctx, 1, 0, 10); return err },
		}},
		"an incarnation": {d.incarnationKey(3), "short", map[string]func() error{
			"persist": func() error { x := w(1); x.Dot.Incarnation = 3; return d.Persist(ctx, x) }, "begin": func() error { return d.Begin(ctx, 3, journal.Name{3}) },
			"fence": func() error { return d.Fence(ctx, 3) }, "fenced": func() error { return first(d.Fenced(ctx, 1, 3)) },
			"remove": func() error { return d.Remove(ctx, 3) }, "known": func() error { return first(d.Known(ctx)) },
			"journal": func() error { _, _, err := d.Entries(ctx, 3, 0, 10); return err },
		}},
		"what was collected": {d.key('b'), "short", map[string]func() error{"open": func() error { return first(d.s.Journal("feeds")) }}},
		"a row": {rowKey("k"), "\x09", map[string]func() error{
			"load": func() error { return first(d.s.Load(ctx, "k")) }, "scan": func() error { _, _, _, err := d.s.Scan(ctx, "", 10); return err },
			"count": func() error { return first(d.s.Count(ctx)) }, "check": commit(store.Mutation{Key: "k", Check: true}), "keep": commit(store.Mutation{Key: "k", TTL: store.KeepTTL}),
		}},
	} {
		if err := d.s.db.Set(c.key, []byte(c.value), pebble.Sync); err != nil {
			t.Fatal(err)
		}
		for call, do := range c.calls {
			if err := do(); err == nil {
				t.Errorf("%s is damaged, and %s says nothing", name, call)
			}
			if b, err := d.read(c.key); string(b) != c.value || err != nil {
				t.Errorf("%s is damaged, and %s makes it %q, %v", name, call, b, err)
			}
		}
		if err := d.s.db.Delete(c.key, pebble.Sync); err != nil {
			t.Fatal(err)
		}
	}
}

// What a store knows of itself it must be able to read when it is opened.
func TestOpeningNeedsWhatItKnows(t *testing.T) {
	for _, name := range []string{metaNext, metaLow, metaTime, metaTabs} {
		dir := t.TempDir()
		s := open(t, dir, Options{})
		if err := errors.Join(s.db.Set(metaKey(name), []byte{1, 2, 3}, pebble.Sync), s.Close()); err != nil {
			t.Fatal(err)
		}
		if s, err := Open(dir, Options{}); !errors.Is(err, ErrDamaged) {
			t.Errorf("%s is damaged: %v", name, err)
			if s != nil {
				s.Close()
			}
		}
	}
}

// Versions and the clock go on where they were, also if the machine's clock was set back
// and all rows are forgotten.
func TestWhatIsForgottenIsKnown(t *testing.T) {
	dir, ctx := t.TempDir(), context.Background()
	opt := Options{Grace: 1}
	s := open(t, dir, opt)
	s.clock.base += 1e15 // two weeks ahead
	stamps, err := s.Commit(ctx, store.ID{1}, []store.Mutation{{Key: "k", Delete: true}})
	if err != nil {
		t.Fatal(err)
	}
	for r, err := s.Load(ctx, "k"); err != nil || r.Writer != (store.ID{}); r, err = s.Load(ctx, "k") {
		if err = errors.Join(err, s.sweep(ctx)); err != nil {
			t.Fatal(err)
		}
	}
	now, err := s.clock.now(s)
	if err = errors.Join(err, s.db.Flush(), s.Close()); err != nil {
		t.Fatal(err)
	}
	s = open(t, dir, opt)
	defer s.Close()
	if r, err := s.Load(ctx, "k"); err != nil || r.Exists || r.Version <= stamps[0].Version {
		t.Errorf("its absence has version %d after %d, %v", r.Version, stamps[0].Version, err)
	}
	if later, err := s.clock.now(s); err != nil || later <= now {
		t.Errorf("the clock stepped back from %d to %d, %v", now, later, err)
	}
	if again, err := s.Commit(ctx, store.ID{2}, []store.Mutation{{Key: "l"}}); err != nil || again[0].Version <= stamps[0].Version+1 {
		t.Errorf("version %d after %d, %v", again[0].Version, stamps[0].Version, err)
	}
}
