package pebble

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/freshet-cache/freshet/store"
	"github.com/freshet-cache/freshet/store/journal"
)

// quick opens a store that does not sync, with a space.
func quick(t *testing.T, o Options) closing {
	t.Helper()
	o.NoSync, o.Sweep, o.fs = true, time.Hour, vfs.NewMem()
	s := open(t, t.TempDir(), o)
	d, err := s.Journal("feeds")
	if err != nil {
		t.Fatal(err)
	}
	return closing{d, s}
}

func write(o uint32, n, at uint64, muts ...journal.Mutation) journal.Write {
	return journal.Write{Dot: journal.Dot{Incarnation: o, N: n}, Stamp: journal.Stamp{Time: at, Incarnation: o}, Muts: muts, Body: []byte(fmt.Sprint(o, ".", n))}
}

// What is read from disk is a record if it is whole and of a known form, and damage if not: no
// length in between is taken, nor a flag or a version that nobody has written.
func TestRecordsAreTakenWhole(t *testing.T) {
	name := len(journal.Name{})
	form := func(length int, set map[int]byte) []byte {
		b := make([]byte, max(length, 3))
		b[0] = rowEncoding
		for i, v := range set {
			b[i] = v
		}
		return b[:length]
	}
	c := quick(t, Options{})
	defer c.Close()
	for record, r := range map[string]struct {
		lengths map[int]bool // whether it is taken, with flag 1
		flags   bool         // it has one
		bare    int          // what it is with flag 0, at most
		read    func(b []byte) error
	}{
		"row":        {map[int]bool{0: false, 1: false, rowHeader - 1: false, rowHeader: true, rowHeader + 1: true}, true, rowHeader, func(b []byte) error { _, err := decodeRow("k", b); return err }},
		"causal row": {map[int]bool{0: false, 1: false, journalRowHeader - 1: false, journalRowHeader: true, journalRowHeader + 1: true}, true, journalRowHeader, func(b []byte) error { _, err := decodeJournalRow(b); return err }},
		"incarnation": {map[int]bool{0: false, 1: false, incarnationBytes - 1: false, incarnationBytes: true, incarnationBytes + 1: false, incarnationBytes + name - 1: false, incarnationBytes + name: true, incarnationBytes + name + 1: false},
			true, math.MaxInt, func(b []byte) error { _, err := decodeIncarnation(1, b); return err }},
		"progress of merging": {map[int]bool{0: false, 1: false, mergedHeader - 1: false, mergedHeader: true, mergedHeader + 1: true}, false, 0, func(b []byte) error {
			err := c.s.db.Set(c.key('m'), b, pebble.NoSync)
			_, bad := c.merged()
			return errors.Join(err, bad)
		}},
	} {
		for length, want := range r.lengths {
			if length == 0 && record == "incarnation" {
				continue // there is none
			}
			if err := r.read(form(length, map[int]byte{1: 1})); (err == nil) != want {
				t.Errorf("%s of %d bytes: %v", record, length, err)
			}
			if err := r.read(form(length, map[int]byte{0: rowEncoding + 1})); length > 0 && err == nil {
				t.Errorf("%s of another form is taken", record)
			}
			if !r.flags || !want {
				continue
			}
			if err := r.read(form(length, map[int]byte{1: 2})); err == nil {
				t.Errorf("%s of %d bytes with an unknown flag is taken", record, length)
			}
			if err := r.read(form(length, map[int]byte{1: 0})); (err == nil) != (length <= r.bare) {
				t.Errorf("%s of %d bytes that does not exist: %v", record, length, err)
			}
			if err := r.read(form(length, map[int]byte{1: 1, 2: 9})); err != nil {
				t.Errorf("%s with a large number: %v", record, err)
			}
		}
	}
	if d, err := decodeJournalRow(form(journalRowHeader, map[int]byte{1: 0})); err != nil || d.Value != nil {
		t.Errorf("a tombstone has the value %q, %v", d.Value, err)
	}
}

// Tablet boundaries are read as they were written, in order and different, or not at all.
func TestTabletsAreTakenWhole(t *testing.T) {
	for _, list := range [][]string{nil, {"a"}, {"a", "b", strings.Repeat("c", 200)}} {
		b := appendList(nil, list)
		if got, ok := decodeList(b); !ok || !slices.Equal(got, list) {
			t.Errorf("%q is read as %q, %v", list, got, ok)
		}
		for i := 1; i < len(b); i++ {
			if got, ok := decodeList(b[:i]); ok && !slices.Equal(got, list[:len(got)]) {
				t.Errorf("%d bytes of %q are read as %q", i, list, got)
			}
		}
	}
	if list, ok := decodeList(nil); !ok || list != nil {
		t.Error("a store without tablets cannot be read")
	}
	for what, b := range map[string][]byte{
		"another form": {rowEncoding + 1, 1, 'a'}, "no name": {rowEncoding, 0}, "a name cut short": {rowEncoding, 2, 'a'}, "half a length": {rowEncoding, 0x80},
		"one twice": {rowEncoding, 1, 'a', 1, 'a'}, "no order": {rowEncoding, 1, 'b', 1, 'a'}, "an endless length": append([]byte{rowEncoding}, slices.Repeat([]byte{0xff}, 11)...),
	} {
		if list, ok := decodeList(b); ok {
			t.Errorf("%s is read as %q", what, list)
		}
	}
}

// A row is there until the instant it expires, and absent with a version of its own from then on.
func TestTheInstantARowExpires(t *testing.T) {
	expires := row{exists: true, version: 6, writer: store.ID{1}, written: 50, at: 100}
	for now, want := range map[int64]store.Row{
		98:  {Exists: true, Version: 6, Writer: store.ID{1}, Written: time.Unix(0, 50), TTL: 2},
		99:  {Exists: true, Version: 6, Writer: store.ID{1}, Written: time.Unix(0, 50), TTL: 1},
		100: {Version: 7, Writer: store.ID{1}, Written: time.Unix(0, 100)},
		101: {Version: 7, Writer: store.ID{1}, Written: time.Unix(0, 100)},
	} {
		if got := expires.seen(now); !reflect.DeepEqual(got, want) {
			t.Errorf("at %d it is %+v, want %+v", now, got, want)
		}
	}
	lasts, gone := row{exists: true, version: 6}, row{version: 6, at: 100}
	if a, b := lasts.seen(math.MaxInt64), gone.seen(math.MaxInt64); !a.Exists || a.TTL != 0 || b.Exists || a.Version != 6 || b.Version != 6 || lasts.expires() || gone.expires() {
		t.Errorf("%+v, %+v", a, b)
	}
}

// Space is kept free to the byte: for writes what Options say, for deletes alone a quarter of
// it, and a batch with both is a write. Nobody knows how much is free if the system does not say.
func TestSpaceIsKeptFree(t *testing.T) {
	const most = 8000
	var free uint64
	var fails error
	asked := 0
	c := quick(t, Options{MinFree: most, Free: func(string) (uint64, error) { asked++; return free, fails }})
	defer c.Close()
	set, del := store.Mutation{Key: "k", Value: []byte("v")}, store.Mutation{Key: "gone", Delete: true}
	for name, muts := range map[string][]store.Mutation{"a write": {set}, "a delete": {del}, "both": {set, del}, "both, in another order": {del, set}} {
		least := uint64(most)
		if name == "a delete" {
			least /= 4
		}
		for _, free = range []uint64{least - 1, least, least + 1} {
			c.s.space.checked = time.Time{}
			if _, err := c.s.Commit(t.Context(), store.ID{1}, muts); (err == nil) != (free >= least) || err != nil && !errors.Is(err, store.ErrFull) {
				t.Errorf("%s with %d bytes free: %v", name, free, err)
			}
		}
	}
	free, c.s.space.checked = 0, time.Time{}
	if err := c.Fits(nil); err != nil {
		t.Errorf("a write of nothing does not fit: %v", err)
	}
	if err := c.Fits([]journal.Mutation{put("v")}); !errors.Is(err, store.ErrFull) {
		t.Errorf("a write to a full disk: %v", err)
	}
	free, fails, c.s.space.checked = 0, errors.New("no such system"), time.Time{}
	if _, err := c.s.Commit(t.Context(), store.ID{1}, []store.Mutation{set}); err != nil {
		t.Errorf("when nobody knows what is free: %v", err)
	}
	free, fails = math.MaxUint64, nil
	c.s.space.checked, c.s.space.written, asked = time.Now().Add(time.Hour), 0, 0 // so that only what is written counts
	for i := 1; i <= 40; i++ {
		if _, err := c.s.Commit(t.Context(), store.ID{1}, []store.Mutation{{Key: "0123456789", Value: make([]byte, 90)}}); err != nil {
			t.Fatal(err)
		}
		if want := i / 10; asked != want { // each time that an eighth has been written
			t.Fatalf("after %d bytes it was asked %d times, want %d", i*100, asked, want)
		}
		if i%10 == 0 {
			c.s.space.checked = time.Now().Add(time.Hour)
		}
	}
}

// Scan goes from page to page and misses nothing that exists; what was deleted or has expired is
// not shown, and who gives up learns that it has not seen all.
func TestScanGoesFromPageToPage(t *testing.T) {
	c := quick(t, Options{})
	defer c.Close()
	var want []string
	for i := range 10 {
		key := fmt.Sprint("k", i)
		m := store.Mutation{Key: key, Value: []byte("v")}
		switch i {
		case 3:
			m.TTL = 1
		case 5:
			m.TTL = time.Hour
		case 0, 7, 9:
			m = store.Mutation{Key: key, Value: []byte("what a delete has no use for"), Delete: true}
		}
		stamps, err := c.s.Commit(t.Context(), store.ID{1}, []store.Mutation{m})
		if err != nil || (stamps[0].TTL != 0) != (m.TTL != 0) {
			t.Fatalf("%+v, %v", stamps, err)
		}
		if !m.Delete && m.TTL != 1 {
			want = append(want, key)
		}
	}
	if r, err := c.s.Load(t.Context(), "k7"); err != nil || r.Exists || len(r.Value) != 0 {
		t.Errorf("what was deleted is %+v, %v", r, err)
	}
	for limit := 1; limit <= len(want)+1; limit++ {
		var got []string
		pages := 0
		for from, done := "", false; !done; pages++ {
			keys, next, end, err := c.s.Scan(t.Context(), from, limit)
			if err != nil || len(keys) > limit || !end && next <= from || end && next != "" || pages > 20 {
				t.Fatalf("%q, %q, %v, %v", keys, next, end, err)
			}
			got, from, done = append(got, keys...), next, end
		}
		if !slices.Equal(got, want) {
			t.Errorf("in pages of %d: %q, want %q", limit, got, want)
		}
	}
	if keys, _, done, err := c.s.Scan(t.Context(), "k51", 100); !slices.Equal(keys, []string{"k6", "k8"}) || !done || err != nil {
		t.Errorf("from a key that is not there: %q, %v, %v", keys, done, err)
	}
	if n, err := c.s.Count(t.Context()); n != len(want) || err != nil {
		t.Errorf("%d keys, %v", n, err)
	}
}

// Who gives up is told so, and nothing is said to be complete that is not.
func TestWhoGivesUpIsTold(t *testing.T) {
	c := quick(t, Options{TabletBytes: 1, Grace: 1})
	defer c.Close()
	ctx := t.Context()
	_, err := c.s.Commit(ctx, store.ID{1}, []store.Mutation{{Key: "k", Value: []byte("v")}, {Key: "gone", Delete: true}})
	if err = errors.Join(err, c.Begin(ctx, 1, journal.Name{1}), c.Persist(ctx, write(1, 1, 5, journal.Mutation{Key: "gone", Delete: true})), c.s.db.Flush()); err != nil {
		t.Fatal(err)
	}
	over, cancel := context.WithCancel(ctx)
	cancel()
	for name, do := range map[string]func() error{
		"scan": func() error {
			_, _, done, err := c.s.Scan(over, "", 10)
			if done {
				t.Error("a scan that was given up is done")
			}
			return err
		},
		"count": func() error {
			n, err := c.s.Count(over)
			if n != 0 {
				t.Error(n)
			}
			return err
		},
		"incarnations": func() error { _, err := c.Incarnations(over); return err }, "known": func() error { _, err := c.Known(over); return err },
		"largest": func() error { _, err := c.Largest(over); return err }, "collect": func() error { return c.CollectTombstones(over, 9) },
		"spaces": func() error { _, err := c.s.spaces(over); return err },
	} {
		if err := do(); !errors.Is(err, context.Canceled) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if err := errors.Join(c.s.sweep(over), c.s.grow(over)); err != nil {
		t.Error(err)
	}
	if p, err := c.s.Splits(ctx, "", ""); len(p) != 0 || err != nil {
		t.Errorf("tablets are split at %q, %v", p, err)
	}
	rows, err := c.Load(ctx, "gone")
	if r, e := c.s.Load(ctx, "gone"); e != nil || err != nil || r.Writer != (store.ID{1}) || rows[0].Stamp.Time != 5 || rows[0].Dot.N != 1 {
		t.Errorf("tombstones are gone: %+v, %+v, %v, %v", r, rows, e, err)
	}
	if err := errors.Join(c.s.sweep(ctx), c.CollectTombstones(ctx, 5)); err != nil {
		t.Error(err)
	}
	if rows, err = c.Load(ctx, "gone"); err != nil || rows[0].Dot.N != 1 {
		t.Errorf("a tombstone of time 5 is collected before 5: %+v, %v", rows, err)
	}
	if err = c.CollectTombstones(ctx, 6); err != nil {
		t.Error(err)
	}
	if rows, err = c.Load(ctx, "gone"); err != nil || rows[0].Dot != (journal.Dot{}) {
		t.Errorf("a tombstone of time 5 is there: %+v, %v", rows, err)
	}
}

// A store that is closed, or has failed, answers every call with that, and takes none.
func TestAClosedStoreTakesNothing(t *testing.T) {
	for _, failed := range []bool{false, true} {
		c := quick(t, Options{})
		ctx := t.Context()
		if failed {
			c.s.fail(errors.New("the disk is broken"))
			c.s.fail(errors.New("and broken again"))
			select {
			case <-c.s.over:
			default:
				t.Error("who waits for the store is not told that it failed")
			}
		} else if err := c.Close(); err != nil {
			t.Fatal(err)
		}
		one := func(_ any, err error) error { return err }
		for name, do := range map[string]func() error{
			"load": func() error { return one(c.s.Load(ctx, "k")) }, "commit": func() error { return one(c.s.Commit(ctx, store.ID{1}, set("k", "v"))) },
			"guard": func() error { return c.s.SetGuard(ctx, "", "", store.Token{1}) }, "split": func() error { return c.s.Split(ctx, "m") },
			"scan": func() error { _, _, _, err := c.s.Scan(ctx, "", 1); return err }, "count": func() error { return one(c.s.Count(ctx)) },
			"causal load": func() error { return one(c.Load(ctx, "k")) }, "persist": func() error { return c.Persist(ctx, write(1, 1, 1)) },
			"forget": func() error { return c.Truncate(ctx, 1, 1) }, "drop": func() error { return c.TruncateFenced(ctx, 1, 1) }, "fetch": func() error { return one(c.Fetch(ctx, nil)) },
			"journal": func() error { _, _, err := c.Entries(ctx, 1, 0, 1); return err }, "collect": func() error { return c.CollectTombstones(ctx, 1) },
			"largest": func() error { return one(c.Largest(ctx)) }, "claim": func() error { return one(c.Claim(ctx, 1)) }, "merge": func() error { return c.Merge(ctx, journal.Flush{}) },
			"fenced": func() error { return one(c.Fenced(ctx, 1)) }, "incarnations": func() error { return one(c.Incarnations(ctx)) }, "remove": func() error { return c.Remove(ctx, 1) },
			"begin": func() error { return c.Begin(ctx, 1, journal.Name{}) }, "fence": func() error { return c.Fence(ctx, 1) }, "known": func() error { return one(c.Known(ctx)) },
			"keep": func() error { return c.KeepSiblings(ctx, true) },
		} {
			if err := do(); !errors.Is(err, store.ErrClosed) || failed && !strings.Contains(err.Error(), "the disk is broken") {
				t.Errorf("%s (failed %v): %v", name, failed, err)
			}
		}
		if err := c.s.sweep(ctx); err != nil {
			t.Errorf("the sweep of a closed store: %v", err)
		}
		if err := c.Close(); err != nil {
			t.Error(err)
		}
		if failed {
			_ = c.s.db.Close()
		}
	}
}

// Whoever waits for a key holds no key behind it, so that no two writers wait for each other.
func TestKeysAreLockedInOrder(t *testing.T) {
	c := quick(t, Options{})
	defer c.Close()
	low, high := "a", "b"
	for i := 0; c.s.stripe(low) >= c.s.stripe(high); i++ {
		low, high = fmt.Sprint("low", i), fmt.Sprint("high", i)
	}
	unlock := c.s.lock([]store.Mutation{{Key: high}, {Key: low}})
	for _, key := range []string{low, high} {
		if c.s.stripes[c.s.stripe(key)].TryLock() {
			t.Errorf("of two keys, %s is not locked", key)
		}
	}
	unlock()
	for name, l := range map[string]struct {
		low, high *sync.RWMutex
		take      func() func()
	}{
		"commit": {&c.s.stripes[c.s.stripe(low)], &c.s.stripes[c.s.stripe(high)], func() func() { return c.s.lock([]store.Mutation{{Key: high}, {Key: low}, {Key: high}}) }},
		"persist": {&c.stripes[c.s.stripe(low)], &c.stripes[c.s.stripe(high)], func() func() {
			return c.lock([]string{high, low, high}, (*sync.RWMutex).Lock, (*sync.RWMutex).Unlock)
		}},
	} {
		for range 50 {
			l.low.Lock()
			began, done := make(chan struct{}), make(chan struct{})
			go func() {
				close(began)
				l.take()()
				close(done)
			}()
			<-began
			for range 100 {
				if !l.high.TryLock() {
					t.Fatalf("%s: who waits for a key holds one behind it", name)
				}
				l.high.Unlock()
			}
			l.low.Unlock()
			<-done
		}
		if !l.low.TryLock() || !l.high.TryLock() {
			t.Errorf("%s: a key stays locked", name)
		}
		l.low.Unlock()
		l.high.Unlock()
	}
}

// What is left out of the options has a default, and what is given is kept.
func TestDefaults(t *testing.T) {
	var o Options
	o.defaults()
	if o.MaxKey != 4<<10 || o.MaxValue != 16<<20 || o.MinFree != 64<<20 || o.CacheSize != 64<<20 || o.TabletBytes != 256<<20 || o.Grace != 10*time.Minute || o.Sweep != 30*time.Second ||
		o.Free == nil || o.Logger == nil {
		t.Errorf("%+v", o)
	}
	given := Options{MaxKey: 1, MaxValue: 2, MinFree: 3, CacheSize: 4, TabletBytes: 5, Grace: 6, Sweep: 7, Logger: slog.Default(), Free: func(string) (uint64, error) { return 8, nil }}
	o = given
	o.defaults()
	if n, _ := o.Free(""); n != 8 || o.Logger != given.Logger || o.MaxKey != 1 || o.MaxValue != 2 || o.MinFree != 3 || o.CacheSize != 4 || o.TabletBytes != 5 || o.Grace != 6 || o.Sweep != 7 {
		t.Errorf("%+v", o)
	}
	if free, err := freeSpace(t.TempDir()); err != nil || free == 0 {
		t.Errorf("%d bytes are free here, %v", free, err)
	}
	if _, err := freeSpace(filepath.Join(t.TempDir(), "nowhere")); err == nil {
		t.Error("space is free in a directory that is not there")
	}
}

// Only tablets that are too large are split, each of them in its middle.
func TestOnlyLargeTabletsAreSplit(t *testing.T) {
	c := quick(t, Options{TabletBytes: 1 << 15})
	defer c.Close()
	ctx := t.Context()
	value := make([]byte, 1<<10)
	for i := range 200 {
		for j := range value {
			value[j] = byte(i * j >> 3)
		}
		binary.BigEndian.PutUint64(value[i%500:], uint64(i)*0x9e3779b97f4a7c15)
		key := fmt.Sprintf("m%03d", i)
		if i < 4 {
			key = fmt.Sprintf("a%03d", i)
		}
		if _, err := c.s.Commit(ctx, store.ID{1}, set(key, string(value)+fmt.Sprint(os.Getpid(), i, time.Now()))); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(c.s.Split(ctx, "m"), c.s.Split(ctx, ""), c.s.db.Flush()); err != nil {
		t.Fatal(err)
	}
	at, err := c.s.middle(ctx, rowKey("m"), []byte{'r' + 1})
	if err != nil || at < "m090" || at > "m115" {
		t.Errorf("the middle of 196 rows is %q, %v", at, err)
	}
	if at, err := c.s.middle(ctx, rowKey("x"), []byte{'r' + 1}); at != "" || err != nil {
		t.Errorf("the middle of nothing is %q, %v", at, err)
	}
	size, err := c.s.db.EstimateDiskUsage(rowKey("m"), []byte{'r' + 1})
	if err != nil {
		t.Fatal(err)
	}
	for most, parts := range map[uint64]int{size + size/2: 1, size / 2: 2, size / 8: 4} { // those of m and above
		if err := errors.Join(c.s.Merge(ctx, at), c.s.db.Flush()); err != nil {
			t.Fatal(err)
		}
		c.s.opt.TabletBytes = most
		for range parts / 2 {
			if err := c.s.grow(ctx); err != nil {
				t.Fatal(err)
			}
		}
		p, err := c.s.Splits(ctx, "", "")
		if err != nil || len(p) != parts || p[0] != "m" || parts > 1 && !slices.Contains(p, at) || !slices.IsSorted(p) {
			t.Errorf("with up to %d of %d bytes, tablets begin at %q, want %d of them, %v", most, size, p, parts, err)
		}
		for _, b := range p[1:] {
			if err := c.s.Merge(ctx, b); err != nil {
				t.Fatal(err)
			}
		}
	}
}
