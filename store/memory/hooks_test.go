package memory

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/freshet-cache/freshet/store"
	"github.com/freshet-cache/freshet/store/journal"
)

func set(key, value string) []store.Mutation {
	return []store.Mutation{{Key: key, Value: []byte(value)}}
}

func causal(n uint64, muts ...journal.Mutation) journal.Write {
	return journal.Write{Dot: journal.Dot{Incarnation: 1, N: n}, Stamp: journal.Stamp{Time: n, Incarnation: 1}, Muts: muts, Body: []byte("b")}
}

// stores are one of each kind, under the same hooks.
type stores struct {
	s *Store
	d *Journal
}

// version, rows and incarnations are what there is to be seen of them.
func (x stores) version() string {
	r, err := x.s.Load(context.Background(), "k")
	return fmt.Sprintf("%s %v %v", r.Value, r.Guard[0], err)
}

func (x stores) rows() string {
	r, err := x.d.Load(context.Background(), "k", "never")
	return fmt.Sprint(r, err)
}

func (x stores) incarnations() string {
	ctx := context.Background()
	all, err := x.d.Incarnations(ctx)
	fenced, e := x.d.Fenced(ctx, 1, 2)
	k, f := x.d.Known(ctx)
	entries, truncated, _ := x.d.Entries(ctx, 1, 0, 9)
	return fmt.Sprint(all, fenced, k, len(entries), truncated, errors.Join(err, e, f))
}

// A call that Before ends has no effect, and its answer is the hook's error; one whose answer
// After loses has taken effect. Both hooks are told which call it is, and either may be missing.
func TestHooksDelayAndLose(t *testing.T) {
	ctx := t.Context()
	lost := errors.New("lost")
	one := func(_ any, err error) error { return err }
	for name, c := range map[string]struct {
		call Call
		do   func(x stores) error
		look func(x stores) string // what changes; nil if nothing does
	}{
		"load":      {Call{OpLoad, "k"}, func(x stores) error { return one(x.s.Load(ctx, "k")) }, nil},
		"commit":    {Call{OpCommit, "k"}, func(x stores) error { return one(x.s.Commit(ctx, store.ID{1}, set("k", "w"))) }, stores.version},
		"set guard": {Call{OpSetGuard, "a"}, func(x stores) error { return x.s.SetGuard(ctx, "a", "", store.Token{7}) }, stores.version},
		"rows":      {Call{OpLoad, "k"}, func(x stores) error { return one(x.d.Load(ctx, "k", "l")) }, nil},
		"known":     {Call{OpFetch, ""}, func(x stores) error { return one(x.d.Known(ctx)) }, nil},
		"fetch":     {Call{OpFetch, ""}, func(x stores) error { return one(x.d.Fetch(ctx, []journal.Dot{{Incarnation: 1, N: 1}})) }, nil},
		"persist": {Call{OpPersist, "k"}, func(x stores) error {
			return x.d.Persist(ctx, causal(2, journal.Mutation{Key: "k", Value: []byte("w")}))
		}, stores.rows},
		"forget":       {Call{OpTruncate, ""}, func(x stores) error { return x.d.Truncate(ctx, 1, 1) }, stores.incarnations},
		"remove":       {Call{OpTruncate, ""}, func(x stores) error { return x.d.Remove(ctx, 1) }, stores.incarnations},
		"collect":      {Call{OpTruncate, ""}, func(x stores) error { return x.d.CollectTombstones(ctx, 9) }, stores.rows},
		"largest":      {Call{}, func(x stores) error { return one(x.d.Largest(ctx)) }, nil},
		"fenced":       {Call{}, func(x stores) error { return one(x.d.Fenced(ctx, 1)) }, nil},
		"incarnations": {Call{}, func(x stores) error { return one(x.d.Incarnations(ctx)) }, nil},
	} {
		for _, before := range []bool{true, false} {
			var told []Call
			armed := false
			hook := func(_ context.Context, c Call) error {
				if !armed {
					return nil
				}
				armed, told = false, append(told, c)
				return lost
			}
			opt := Options{After: hook}
			if before {
				opt = Options{Before: hook}
			}
			x := stores{New(opt), NewJournal(opt)}
			_, err := x.s.Commit(ctx, store.ID{1}, set("k", "v"))
			if err = errors.Join(err, x.d.Begin(ctx, 1, journal.Name{1}), x.d.Persist(ctx, causal(1, journal.Mutation{Key: "k", Value: []byte("v")}))); err != nil {
				t.Fatal(err)
			}
			was := ""
			if c.look != nil {
				was = c.look(x)
			}
			armed = true
			if err := c.do(x); !errors.Is(err, lost) || len(told) != 1 || c.call.Op != "" && told[0].Op != c.call.Op || c.call.Key != "" && told[0].Key != c.call.Key {
				t.Errorf("%s, lost before it takes effect %v: %v, of the call %v", name, before, err, told)
			}
			if c.look != nil && (c.look(x) == was) != before {
				t.Errorf("%s, lost before it takes effect %v: from %s to %s", name, before, was, c.look(x))
			}
		}
	}
}

// A closed store answers nothing, and says so.
func TestClosed(t *testing.T) {
	s, d, ctx := New(Options{}), NewJournal(Options{}), t.Context()
	_, err := s.Commit(ctx, store.ID{1}, set("k", "v"))
	if err = errors.Join(err, d.Begin(ctx, 1, journal.Name{1}), s.Close(), s.Close(), d.Close(), d.Close()); err != nil {
		t.Fatal(err)
	}
	_, loading := s.Load(ctx, "k")
	_, committing := s.Commit(ctx, store.ID{1}, set("k", "w"))
	_, _, _, scanning := s.Scan(ctx, "", 9)
	_, counting := s.Count(ctx)
	_, rows := d.Load(ctx, "k")
	for what, err := range map[string]error{"load": loading, "commit": committing, "scan": scanning, "count": counting, "causal load": rows, "persist": d.Persist(ctx, causal(1)), "fence": d.Fence(ctx, 1)} {
		if !errors.Is(err, store.ErrClosed) {
			t.Errorf("%s: %v", what, err)
		}
	}
}

// A row expires at its instant, and what it was checked for is what it is at that instant. A key
// that never was may be written on version 0 whatever was forgotten; scans show what came since.
func TestRowsToTheInstant(t *testing.T) {
	now, ctx := time.Unix(1e9, 0), t.Context()
	s := New(Options{Clock: func() time.Time { return now }})
	commit := func(m store.Mutation) store.Stamp {
		t.Helper()
		stamps, err := s.Commit(ctx, store.ID{1}, []store.Mutation{m})
		if err != nil {
			t.Fatal(err)
		}
		return stamps[0]
	}
	made := commit(store.Mutation{Key: "short", Value: []byte("v"), TTL: time.Minute})
	for _, left := range []time.Duration{time.Minute, 1, 0, -1} {
		now = time.Unix(1e9, 0).Add(time.Minute - left)
		r, err := s.Load(ctx, "short")
		if err != nil || r.Exists != (left > 0) || r.Exists && (r.TTL != left || r.Version != made.Version) || !r.Exists && (r.TTL != 0 || r.Version != made.Version+1) {
			t.Errorf("%v before its end it is %+v, %v", left, r, err)
		}
	}
	if stamp := commit(store.Mutation{Key: "gone", Value: []byte("what a delete has no use for"), Delete: true, TTL: time.Minute}); stamp.TTL != 0 {
		t.Errorf("a delete expires: %+v", stamp)
	}
	if r, err := s.Load(ctx, "gone"); err != nil || r.Exists || len(r.Value) != 0 {
		t.Errorf("what was deleted is %+v, %v", r, err)
	}
	highest := store.Version(0)
	for i := range 40 {
		highest = max(highest, commit(store.Mutation{Key: fmt.Sprint("dead", i), Delete: true}).Version)
	}
	now = now.Add(2 * grace)
	s.mu.Lock()
	s.sweep()
	s.mu.Unlock()
	if r, err := s.Load(ctx, "dead3"); err != nil || r.Version <= highest {
		t.Errorf("what was forgotten is %+v, and version %d was given: %v", r, highest, err)
	}
	commit(store.Mutation{Key: "new", Value: []byte("v"), Check: true}) // it never was
	for _, key := range []string{"b", "a", "c"} {
		commit(store.Mutation{Key: key, Value: []byte("v")})
		if keys, _, done, err := s.Scan(ctx, "", 99); err != nil || !done || !slices.Contains(keys, key) || !slices.IsSorted(keys) {
			t.Errorf("a scan after %s was written: %q, %v, %v", key, keys, done, err)
		}
	}
	if keys, next, done, err := s.Scan(ctx, "a", 2); !slices.Equal(keys, []string{"a", "b"}) || next != "c" || done || err != nil {
		t.Errorf("%q, %q, %v, %v", keys, next, done, err)
	}
	if n, err := s.Count(ctx); n != 4 || err != nil {
		t.Errorf("%d keys, %v", n, err)
	}
}

// What a caller handed over may be used again: the store has its own.
func TestTheStoreHasItsOwn(t *testing.T) {
	ctx, value := t.Context(), []byte("value")
	s, d := New(Options{}), NewJournal(Options{})
	_, err := s.Commit(ctx, store.ID{1}, []store.Mutation{{Key: "k", Value: value}})
	_, e := d.Claim(ctx, 3)
	row := journal.Row{Exists: true, Value: value, Stamp: journal.Stamp{Time: 9, Incarnation: 1}, Dot: journal.Dot{Incarnation: 1, N: 9}}
	flush := journal.Flush{Term: 3, Number: 1, Rows: []journal.Keyed{{Key: "m", Row: row}}, Mark: []byte("mark")}
	if err = errors.Join(err, e, d.Begin(ctx, 1, journal.Name{1}), d.Persist(ctx, causal(1, journal.Mutation{Key: "k", Value: value})), d.Merge(ctx, flush)); err != nil {
		t.Fatal(err)
	}
	copy(value, "other")
	r, err := s.Load(ctx, "k")
	rows, e := d.Load(ctx, "k", "m")
	if err = errors.Join(err, e); err != nil || string(r.Value) != "value" || string(rows[0].Value) != "value" || string(rows[1].Value) != "value" {
		t.Errorf("%q, %+v, %v", r.Value, rows, err)
	}
	// Who claims its own term again goes on where it was.
	if mark, err := d.Claim(ctx, 3); string(mark) != "mark" || err != nil {
		t.Errorf("%q, %v", mark, err)
	}
	flush.Mark = []byte("twice")
	if err := d.Merge(ctx, flush); err != nil {
		t.Error(err)
	}
	if mark, err := d.Claim(ctx, 4); string(mark) != "mark" || err != nil {
		t.Errorf("the same batch is merged twice: %q, %v", mark, err)
	}
	for what, err := range map[string]error{"forget": d.Truncate(ctx, 9, 1), "drop": d.TruncateFenced(ctx, 9, 1)} {
		if !errors.Is(err, journal.ErrFenced) {
			t.Errorf("%s of an incarnation that never began: %v", what, err)
		}
	}
}
