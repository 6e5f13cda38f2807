// Package storetest is what every store must pass to be used by freshet: the
// words of package store, as tests. Its checks return what is wrong, so that
// wrong stores can be shown to fail them.
package storetest

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/freshet-cache/freshet/store"
)

// Store is what a store must have to be tested.
type Store interface {
	Load(ctx context.Context, key string) (store.Row, error)
	Commit(ctx context.Context, id store.ID, muts []store.Mutation) ([]store.Stamp, error)
	SetGuard(ctx context.Context, low, high string, token store.Token) error
	Splits(ctx context.Context, low, high string) ([]string, error)
	Scan(ctx context.Context, from string, limit int) (keys []string, next string, done bool, err error)
	Count(ctx context.Context) (int, error)
	Close() error
}

// Tablets is what a store has besides whose guards may not lie across boundaries.
type Tablets interface {
	Split(ctx context.Context, at string) error
	Merge(ctx context.Context, at string) error
}

// Restarts is what a store has besides that can be made to lose the guards around
// a key, as a crash or a move does.
type Restarts interface {
	Restart(ctx context.Context, key string) error
}

// Run runs the suite. open returns an empty store with one tablet.
func Run(t *testing.T, open func(t *testing.T) Store) {
	for _, c := range Checks {
		t.Run(c.Name, func(t *testing.T) {
			s := open(t)
			defer s.Close()
			if _, ok := s.(Tablets); c.tablets && !ok {
				t.Skip("this store has no tablets")
			}
			if err := c.Check(t.Context(), s); err != nil {
				t.Fatal(err)
			}
		})
	}
}

// Check is one promise.
type Check struct {
	Name    string
	Check   func(ctx context.Context, s Store) error
	tablets bool
}

// Checks are all of them.
var Checks = []Check{
	{Name: "RowsComeBack", Check: rowsComeBack},
	{Name: "GuardsAreChecked", Check: guardsAreChecked},
	{Name: "GuardsFollowTablets", Check: guardsFollowTablets, tablets: true},
	{Name: "VersionsGrow", Check: versionsGrow},
	{Name: "ConditionsHold", Check: conditionsHold},
	{Name: "LivesEnd", Check: livesEnd},
	{Name: "NoDeadlineIsKeptOfWhatIsGone", Check: noDeadlineIsKept},
	{Name: "BatchesAreAllOrNone", Check: batchesAreAllOrNone},
	{Name: "ScansSeeEveryKey", Check: scansSeeEveryKey},
	{Name: "TheFenceHolds", Check: theFenceHolds},
}

func tok(n uint64) (t store.Token) { binary.BigEndian.PutUint64(t[8:], n); return t }
func wid(n uint64) (w store.ID)    { binary.BigEndian.PutUint64(w[8:], n); return w }

func put(key, value string) store.Mutation { return store.Mutation{Key: key, Value: []byte(value)} }

// commit writes with an id that later checks can look for.
func commit(ctx context.Context, s Store, id uint64, muts ...store.Mutation) (store.Stamp, error) {
	stamps, err := s.Commit(ctx, wid(id), muts)
	if err != nil {
		return store.Stamp{}, err
	}
	return stamps[0], nil
}

func rowsComeBack(ctx context.Context, s Store) error {
	r, err := s.Load(ctx, "k")
	if err != nil || r.Exists || r.Version != 0 {
		return fmt.Errorf("a key never written is %+v, %v", r, err)
	}
	for i, v := range []string{"v", "", "another\x00\xff"} {
		st, err := commit(ctx, s, uint64(i+1), put("k", v))
		if err != nil {
			return err
		}
		r, err := s.Load(ctx, "k")
		if err != nil || !r.Exists || string(r.Value) != v || r.Version != st.Version || r.TTL != 0 || st.TTL != 0 || r.Writer != wid(uint64(i+1)) {
			return fmt.Errorf("after writing %q: %+v, stamped %+v, %v", v, r, st, err)
		}
	}
	st, err := commit(ctx, s, 9, store.Mutation{Key: "k", Delete: true})
	if err != nil {
		return err
	}
	if r, err = s.Load(ctx, "k"); err != nil || r.Exists || r.Value != nil || r.Version != st.Version || r.Writer != wid(9) {
		return fmt.Errorf("after a delete: %+v, %v", r, err)
	}
	return nil
}

// guardsAreChecked tries every token against every guard.
func guardsAreChecked(ctx context.Context, s Store) error {
	try := func(key string, t store.Token, want bool) error {
		m := put(key, "v")
		m.Guard = t
		_, err := commit(ctx, s, 1, m)
		if got := err == nil; got != want || !got && !errors.Is(err, store.ErrGuardMismatch) {
			return fmt.Errorf("a write to %s with token %d: %v", key, t[15], err)
		}
		return nil
	}
	if err := errors.Join(try("c", tok(0), true), try("c", tok(1), false)); err != nil {
		return fmt.Errorf("without guards: %w", err)
	}
	for _, g := range []struct {
		low, high string
		token     uint64
	}{{"", "", 1}, {"b", "d", 2}, {"c", "c\x00", 3}, {"d", "", 4}} {
		if err := s.SetGuard(ctx, g.low, g.high, tok(g.token)); err != nil {
			return err
		}
	}
	for key, want := range map[string]uint64{"a": 1, "b": 2, "c": 3, "c1": 2, "d": 4, "z": 4} {
		for n := range uint64(6) {
			if err := try(key, tok(n), n == want); err != nil {
				return err
			}
		}
		if r, err := s.Load(ctx, key); err != nil || r.Guard != tok(want) {
			return fmt.Errorf("a read of %s shows guard %v, %v", key, r.Guard, err)
		}
	}
	return nil
}

func guardsFollowTablets(ctx context.Context, s Store) error {
	tablets, restarts := s.(Tablets), s.(Restarts)
	stands := func(when, key string, want uint64) error {
		m := put(key, "v")
		m.Guard = tok(want)
		if _, err := commit(ctx, s, 1, m); err != nil {
			return fmt.Errorf("%s: guard %d does not cover %s: %w", when, want, key, err)
		}
		for n := range uint64(5) {
			m.Guard = tok(n)
			if _, err := commit(ctx, s, 1, m); n != want && !errors.Is(err, store.ErrGuardMismatch) {
				return fmt.Errorf("%s: a write to %s with guard %d: %v", when, key, n, err)
			}
		}
		return nil
	}
	if err := errors.Join(s.SetGuard(ctx, "", "", tok(1)), tablets.Split(ctx, "m")); err != nil {
		return err
	}
	if err := errors.Join(stands("after a split", "a", 1), stands("after a split", "m", 1), stands("after a split", "z", 1)); err != nil {
		return err
	}
	if p, err := s.Splits(ctx, "", ""); err != nil || !slices.Equal(p, []string{"m"}) {
		return fmt.Errorf("boundaries after a split: %q, %v", p, err)
	}
	if err := s.SetGuard(ctx, "", "", tok(2)); !errors.Is(err, store.ErrLayoutChanged) {
		return fmt.Errorf("a guard over a boundary: %v", err)
	}
	if err := errors.Join(stands("after a refused guard", "a", 1), s.SetGuard(ctx, "m", "", tok(2)), stands("beside another", "a", 1), stands("itself", "m", 2)); err != nil {
		return err
	}
	if err := errors.Join(tablets.Merge(ctx, "m"), stands("after a merge", "a", 1), stands("after a merge", "z", 2)); err != nil {
		return err
	}
	if err := errors.Join(tablets.Split(ctx, "m"), restarts.Restart(ctx, "z"), stands("beside a restart", "a", 1), stands("after a restart", "z", 0)); err != nil {
		return err
	}
	return tablets.Merge(ctx, "m")
}

func versionsGrow(ctx context.Context, s Store) error {
	var last store.Version
	for i := range 200 {
		m := put("k", "v")
		m.Delete = i%3 == 2
		st, err := commit(ctx, s, 1, m)
		if err != nil {
			return err
		}
		if st.Version <= last || st.Version >= 1<<63 {
			return fmt.Errorf("version %d follows %d", st.Version, last)
		}
		last = st.Version
	}
	var wg sync.WaitGroup
	errs := make([]error, 8)
	for w := range errs { // in the order of commits, whoever drew first
		wg.Go(func() {
			for range 100 {
				st, err := commit(ctx, s, 1, put("k", "v"))
				if err != nil {
					errs[w] = err
					return
				}
				if r, err := s.Load(ctx, "k"); err != nil || r.Version < st.Version {
					errs[w] = fmt.Errorf("version %d was committed over %d, %w", r.Version, st.Version, err)
					return
				}
			}
		})
	}
	wg.Wait()
	return errors.Join(errs...)
}

func conditionsHold(ctx context.Context, s Store) error {
	m := put("k", "v")
	m.Check = true
	st, err := commit(ctx, s, 1, m)
	if err != nil {
		return fmt.Errorf("a first write on condition of nothing: %w", err)
	}
	if _, err := commit(ctx, s, 2, m); !errors.Is(err, store.ErrConflict) {
		return fmt.Errorf("a second one: %v", err)
	}
	m.Expect = st.Version
	if _, err := commit(ctx, s, 3, m); err != nil {
		return fmt.Errorf("on condition of the present version: %w", err)
	}
	if _, err := commit(ctx, s, 4, m); !errors.Is(err, store.ErrConflict) {
		return fmt.Errorf("on condition of an older version: %v", err)
	}
	if r, err := s.Load(ctx, "k"); err != nil || r.Writer != wid(3) {
		return fmt.Errorf("a refused write left %+v, %v", r, err)
	}
	return nil
}

func livesEnd(ctx context.Context, s Store) error {
	m := put("k", "v")
	m.TTL = time.Hour
	st, err := commit(ctx, s, 1, m)
	if err != nil || st.TTL <= 0 || st.TTL > time.Hour {
		return fmt.Errorf("a write with a TTL: %+v, %v", st, err)
	}
	m = put("k", "w")
	m.TTL = store.KeepTTL
	if _, err := commit(ctx, s, 2, m); err != nil {
		return err
	}
	if r, err := s.Load(ctx, "k"); err != nil || r.TTL <= 0 || r.TTL > time.Hour {
		return fmt.Errorf("a write that keeps the deadline left %+v, %v", r, err)
	}
	if _, err := commit(ctx, s, 3, put("k", "w")); err != nil {
		return err
	}
	if r, err := s.Load(ctx, "k"); err != nil || r.TTL != 0 {
		return fmt.Errorf("a plain write left a deadline: %+v, %v", r, err)
	}
	m = put("k", "x")
	m.TTL = time.Millisecond
	if st, err = commit(ctx, s, 4, m); err != nil {
		return err
	}
	var r store.Row
	for r.Exists = true; r.Exists; { // until the store's clock says so
		if r, err = s.Load(ctx, "k"); err != nil {
			return err
		}
	}
	if r.Version != st.Version+1 || r.Writer != wid(4) || r.Value != nil {
		return fmt.Errorf("after its TTL a row of version %d is %+v", st.Version, r)
	}
	m = put("k", "y")
	m.Check, m.Expect = true, st.Version
	if _, err := commit(ctx, s, 5, m); !errors.Is(err, store.ErrConflict) {
		return fmt.Errorf("a write on condition of an expired row: %v", err)
	}
	m.Expect++
	_, err = commit(ctx, s, 6, m)
	return err
}

// noDeadlineIsKept writes with KeepTTL over every kind of absence, and over a row that does
// not expire: what is not there has no deadline, also if its row had one.
func noDeadlineIsKept(ctx context.Context, s Store) error {
	short := put("expired", "v")
	short.TTL = time.Millisecond
	long := put("deleted", "v")
	long.TTL = time.Hour
	for _, m := range []store.Mutation{short, long, {Key: "deleted", Delete: true}, put("for ever", "v")} {
		if _, err := commit(ctx, s, 1, m); err != nil {
			return err
		}
	}
	for {
		if r, err := s.Load(ctx, "expired"); err != nil {
			return err
		} else if !r.Exists {
			break
		}
	}
	for i, key := range []string{"expired", "deleted", "for ever", "never there"} {
		m := put(key, "w")
		m.TTL = store.KeepTTL
		st, err := commit(ctx, s, uint64(i+2), m)
		if err != nil {
			return err
		}
		if r, err := s.Load(ctx, key); err != nil || !r.Exists || string(r.Value) != "w" || r.TTL != 0 || st.TTL != 0 || r.Version != st.Version {
			return fmt.Errorf("a write to what is %s, which keeps the deadline there: %+v, stamped %+v, %v", key, r, st, err)
		}
	}
	return nil
}

func batchesAreAllOrNone(ctx context.Context, s Store) error {
	if err := s.SetGuard(ctx, "b", "c", tok(7)); err != nil {
		return err
	}
	if t, ok := s.(Tablets); ok {
		if err := t.Split(ctx, "bb"); err != nil {
			return err
		}
	}
	if _, err := commit(ctx, s, 1, put("a", "v"), put("bbb", "v"), put("z", "v")); !errors.Is(err, store.ErrGuardMismatch) {
		return fmt.Errorf("a batch one of whose guards is wrong: %v", err)
	}
	m := put("bbb", "v")
	m.Guard = tok(7)
	c := put("z", "v")
	c.Check, c.Expect = true, 12345
	if _, err := commit(ctx, s, 2, put("a", "v"), m, c); !errors.Is(err, store.ErrConflict) {
		return fmt.Errorf("a batch one of whose conditions is wrong: %v", err)
	}
	for _, k := range []string{"a", "bbb", "z"} {
		if r, err := s.Load(ctx, k); err != nil || r.Exists {
			return fmt.Errorf("a refused batch wrote %s: %+v, %v", k, r, err)
		}
	}
	_, err := commit(ctx, s, 3, put("z", "v"), m, put("a", "v"))
	for _, k := range []string{"a", "bbb", "z"} {
		if r, err := s.Load(ctx, k); err != nil || !r.Exists || r.Writer != wid(3) {
			return fmt.Errorf("a batch left %s as %+v, %v", k, r, err)
		}
	}
	return err
}

func scansSeeEveryKey(ctx context.Context, s Store) error {
	var want []string
	for i := range 300 {
		k := fmt.Sprintf("k%03d", i)
		m := put(k, "v")
		m.Delete = i%7 == 3
		if _, err := commit(ctx, s, 1, m); err != nil {
			return err
		}
		if !m.Delete {
			want = append(want, k)
		}
	}
	for _, limit := range []int{1, 7, 1000} {
		var got []string
		for from, done := "", false; !done; {
			keys, next, end, err := s.Scan(ctx, from, limit)
			if err != nil || len(keys) > limit || !end && next <= from {
				return fmt.Errorf("a scan from %q: %d keys, next %q, %v", from, len(keys), next, err)
			}
			got, from, done = append(got, keys...), next, end
		}
		if !slices.Equal(got, want) {
			return fmt.Errorf("scans by %d saw %d keys of %d", limit, len(got), len(want))
		}
	}
	if n, err := s.Count(ctx); err != nil || n != len(want) {
		return fmt.Errorf("counted %d of %d, %v", n, len(want), err)
	}
	return nil
}
