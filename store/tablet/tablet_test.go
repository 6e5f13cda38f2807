package tablet

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/freshet-cache/freshet/store"
)

func tok(n int) store.Token { return store.Token{15: byte(n), 14: byte(n >> 8)} }

// points are where ranges of the tests begin and end; the keys are these and what lies
// between them.
var points = []string{"", "b", "d", "f", "h", "j"}

func keys() (out []string) {
	for _, p := range points {
		out = append(out, p, p+"x")
	}
	return out
}

// over is the i-th to the j-th part between points; the last has no upper end.
func over(i, j int) (low, high string) {
	if low = points[i]; j < len(points) {
		high = points[j]
	}
	return low, high
}

func within(key, low, high string) bool { return low <= key && (high == "" || key < high) }

// list is a Map as a plain list: what covers each key, and where it is cut.
type list struct {
	t     *testing.T
	m     *Map
	cuts  map[string]bool
	guard map[string]store.Token
}

// change does something at random to both.
func (l *list) change(r *rand.Rand) {
	ctx, i := l.t.Context(), r.IntN(len(points))
	low, high := over(i, i+1+r.IntN(len(points)-i))
	switch r.IntN(6) {
	case 0:
		if done, err := l.m.Split(ctx, low); err != nil || done != (low != "" && !l.cuts[low]) {
			l.t.Fatalf("split at %q: %v, %v", low, done, err)
		}
		if low != "" {
			l.cuts[low] = true
		}
	case 1:
		if done, err := l.m.Merge(ctx, low); err != nil || done != l.cuts[low] {
			l.t.Fatalf("merge at %q: %v, %v", low, done, err)
		}
		delete(l.cuts, low)
	case 2:
		if r.IntN(6) > 0 {
			return
		}
		if err := l.m.Restart(ctx, low); err != nil {
			l.t.Fatal(err)
		}
		for _, k := range keys() {
			if l.m.find(k) == l.m.find(low) {
				delete(l.guard, k)
			}
		}
	default:
		n := 1 + r.IntN(3) // often the same as beside it
		err := l.m.SetGuard(ctx, low, high, tok(n))
		crossed := false
		for at := range l.cuts {
			crossed = crossed || at > low && (high == "" || at < high)
		}
		if crossed != errors.Is(err, store.ErrLayoutChanged) || !crossed && err != nil {
			l.t.Fatalf("a guard over [%q, %q) with boundaries %v: %v", low, high, l.cuts, err)
		}
		for _, k := range keys() {
			if err == nil && within(k, low, high) {
				l.guard[k] = tok(n)
			}
		}
	}
}

// Guards, splits, merges and restarts at random leave over every key what a plain list of
// keys says, and boundaries are those that were made.
func TestAgainstAPlainList(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 8))
	for range 150 {
		l := &list{t, New([]string{"d", "h"}), map[string]bool{"d": true, "h": true}, map[string]store.Token{}}
		for step := range 60 {
			l.change(r)
			for _, k := range keys() {
				if got := l.m.Guard(k); got != l.guard[k] {
					t.Fatalf("step %d: over %q stands %v, not %v", step, k, got, l.guard[k])
				}
				for n := range 4 {
					leave, err := l.m.Admit(t.Context(), []store.Mutation{{Key: k, Guard: tok(n)}})
					if (err == nil) != (tok(n) == l.guard[k]) || err != nil && !errors.Is(err, store.ErrGuardMismatch) {
						t.Fatalf("step %d: a write of %q under %d, where %v stands: %v", step, k, n, l.guard[k], err)
					}
					if err == nil {
						leave()
					}
				}
			}
			check(t, l.m, l.cuts)
		}
	}
}

// check looks at what cannot be seen from outside: the tablets cover all keys once, and so
// many guards as there must be lie in each.
func check(t *testing.T, m *Map, cuts map[string]bool) {
	t.Helper()
	last := ""
	for i, tab := range *m.layout.Load() {
		if tab.low != last || tab.retired || tab.inside != 0 || tab.closed || i > 0 && !cuts[tab.low] {
			t.Fatalf("tablet %d: [%q, %q) retired %v, %d inside, closed %v", i, tab.low, tab.high, tab.retired, tab.inside, tab.closed)
		}
		end := tab.low
		for _, g := range *tab.guards.Load() {
			if g.low < end || g.high != "" && g.high <= g.low || tab.high != "" && (g.high == "" || g.high > tab.high) {
				t.Fatalf("in [%q, %q): guard [%q, %q) behind %q", tab.low, tab.high, g.low, g.high, end)
			}
			end = g.high
		}
		last = tab.high
	}
	if last != "" || len(*m.layout.Load()) != len(cuts)+1 {
		t.Fatalf("%d tablets, and %d boundaries", len(*m.layout.Load()), len(cuts))
	}
	for i := range points {
		for j := i + 1; j <= len(points); j++ {
			low, high := over(i, j)
			var want []string
			for _, p := range slices.Sorted(maps.Keys(cuts)) {
				if p > low && (high == "" || p < high) {
					want = append(want, p)
				}
			}
			if got := m.Splits(low, high); !slices.Equal(got, want) {
				t.Fatalf("boundaries inside [%q, %q): %q, want %q", low, high, got, want)
			}
		}
	}
}

// Whoever changes guards or tablets waits for the writes that were admitted there, in all
// tablets it changes, and for no others; writes that come meanwhile wait for it.
func TestChangesWaitForWrites(t *testing.T) {
	for name, change := range map[string]func(ctx context.Context, m *Map) error{
		"guard of the first":    func(ctx context.Context, m *Map) error { return m.SetGuard(ctx, "a", "b", tok(1)) },
		"guard of the second":   func(ctx context.Context, m *Map) error { return m.SetGuard(ctx, "m", "", tok(1)) },
		"split of the first":    func(ctx context.Context, m *Map) error { _, err := m.Split(ctx, "c"); return err },
		"split of the second":   func(ctx context.Context, m *Map) error { _, err := m.Split(ctx, "p"); return err },
		"merge of both":         func(ctx context.Context, m *Map) error { _, err := m.Merge(ctx, "m"); return err },
		"restart of the first":  func(ctx context.Context, m *Map) error { return m.Restart(ctx, "a") },
		"restart of the second": func(ctx context.Context, m *Map) error { return m.Restart(ctx, "z") },
	} {
		for side, key := range map[string]string{"first": "a", "second": "z"} {
			for _, batch := range []bool{false, true} { // a batch is in both
				waits := batch || name == "merge of both" || name[len(name)-len(side):] == side
				synctest.Test(t, func(t *testing.T) {
					m := New([]string{"m"})
					muts := []store.Mutation{{Key: key}}
					if batch {
						muts = []store.Mutation{{Key: "y"}, {Key: "a"}, {Key: "z"}, {Key: "b"}}
					}
					leave, err := m.Admit(t.Context(), muts)
					if err != nil {
						t.Fatal(err)
					}
					changed, late := false, false
					var wg sync.WaitGroup
					wg.Go(func() {
						if err := change(t.Context(), m); err != nil {
							t.Error(err)
						}
						changed = true
					})
					synctest.Wait()
					if changed == waits {
						t.Errorf("%s, with a write in the %s under way (several: %v): done %v", name, side, batch, changed)
					}
					wg.Go(func() {
						if leave, err := m.Admit(t.Context(), []store.Mutation{{Key: key}}); err == nil {
							if tab := m.find(key); tab.inside == 0 { // whoever changes guards there would not wait for it
								t.Errorf("%s: a later write in the %s is let into a tablet that is no more", name, side)
							}
							leave()
						} else if !errors.Is(err, store.ErrGuardMismatch) {
							t.Error(err)
						}
						late = true
					})
					synctest.Wait()
					behind := waits && name[len(name)-len(side):] == side || name == "merge of both" && side == "first" // a merge closes one after the other
					if name != "merge of both" && late == behind || behind && late {
						t.Errorf("%s: a later write in the %s (several: %v) was let by: %v", name, side, batch, late)
					}
					leave()
					wg.Wait()
					cuts := map[string]bool{}
					for _, at := range m.Splits("", "") {
						cuts[at] = true
					}
					if cuts["m"] == (name == "merge of both") || cuts["c"] != (name == "split of the first") || cuts["p"] != (name == "split of the second") {
						t.Errorf("%s leaves boundaries at %v", name, cuts)
					}
				})
			}
		}
	}
}

// Whoever waits no longer than its context leaves nothing behind: a change that was given
// up did not happen, and writes go on; a write that was given up was not let in.
func TestGivenUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := New([]string{"m"})
		soon := func() context.Context {
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			t.Cleanup(cancel)
			return ctx
		}
		leave, err := m.Admit(t.Context(), []store.Mutation{{Key: "z"}})
		if err != nil {
			t.Fatal(err)
		}
		_, split := m.Split(soon(), "p")
		_, merge := m.Merge(soon(), "m")
		for _, err := range []error{m.SetGuard(soon(), "m", "", tok(1)), m.Restart(soon(), "z"), split, merge} {
			if !errors.Is(err, context.DeadlineExceeded) {
				t.Error(err)
			}
		}
		go func() { _ = m.SetGuard(t.Context(), "m", "", tok(2)) }() // it waits for as long as it takes
		synctest.Wait()
		for _, muts := range [][]store.Mutation{{{Key: "z"}}, {{Key: "z"}, {Key: "a"}}} {
			if _, err := m.Admit(soon(), muts); !errors.Is(err, store.ErrGuardMismatch) || !errors.Is(err, context.DeadlineExceeded) {
				t.Error(err)
			}
		}
		if err := m.SetGuard(soon(), "m", "", tok(3)); !errors.Is(err, context.DeadlineExceeded) { // behind another
			t.Error(err)
		}
		leave()
		synctest.Wait()
		if m.Guard("z") != tok(2) || m.Guard("a") != tok(0) {
			t.Errorf("%v and %v stand", m.Guard("z"), m.Guard("a"))
		}
		check(t, m, map[string]bool{"m": true})
	})
}

// A batch is let in if all its guards stand, whichever tablets they lie in, or not at all.
func TestBatchesAreAdmittedWhole(t *testing.T) {
	ctx := t.Context()
	m := New([]string{"d", "h"})
	for i, r := range [][2]string{{"", "b"}, {"b", "d"}, {"d", "h"}, {"h", ""}} {
		if err := m.SetGuard(ctx, r[0], r[1], tok(i+1)); err != nil {
			t.Fatal(err)
		}
	}
	right := func() []store.Mutation {
		return []store.Mutation{{Key: "z", Guard: tok(4)}, {Key: "a", Guard: tok(1)}, {Key: "e", Guard: tok(3)}, {Key: "c", Guard: tok(2)}, {Key: "y", Guard: tok(4)},
			{Key: "h", Guard: tok(4)}, {Key: "d", Guard: tok(3)}}
	}
	leave, err := m.Admit(ctx, right())
	if err != nil {
		t.Fatal(err)
	}
	leave()
	for i := range right() {
		muts := right()
		muts[i].Guard = tok(9)
		if _, err := m.Admit(ctx, muts); !errors.Is(err, store.ErrGuardMismatch) {
			t.Errorf("%s under a wrong guard: %v", muts[i].Key, err)
		}
	}
	check(t, m, map[string]bool{"d": true, "h": true})
}

// A tablet holds so many guards and no more; a range that is empty is none.
func TestBoundsOfGuards(t *testing.T) {
	ctx := t.Context()
	m := New(nil)
	if m.Max != 65_536 {
		t.Error(m.Max)
	}
	m.Max = 3
	for i, want := range []error{nil, nil, nil, store.ErrFull, store.ErrFull} {
		if err := m.SetGuard(ctx, fmt.Sprint("k", i), fmt.Sprint("k", i, "x"), tok(i+1)); !errors.Is(err, want) {
			t.Errorf("guard %d: %v", i, err)
		}
	}
	if m.Guard("k2") != tok(3) || m.Guard("k3") != tok(0) || m.SetGuard(ctx, "", "", tok(7)) != nil || m.Guard("k3") != tok(7) {
		t.Error("what was refused stands, or what takes no room is refused")
	}
	for _, r := range [][2]string{{"b", "b"}, {"c", "b"}} {
		if err := m.SetGuard(ctx, r[0], r[1], tok(1)); !errors.Is(err, store.ErrLayoutChanged) || m.Guard("b") != tok(7) {
			t.Errorf("a guard over [%s, %s): %v", r[0], r[1], err)
		}
	}
}

// A commit enters its tablets in their order, whatever the order of its keys: while it waits for
// one, a guard over a later one is installed, so that no two of them wait for each other.
func TestTabletsAreEnteredInOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, ctx := New([]string{"m"}), t.Context()
		leave, err := m.Admit(ctx, []store.Mutation{{Key: "a"}})
		if err != nil {
			t.Fatal(err)
		}
		low, both, high := make(chan error, 1), make(chan error, 1), make(chan error, 1)
		go func() { low <- m.SetGuard(ctx, "", "m", tok(1)) }()
		synctest.Wait() // it waits for the first commit, and lets no other in
		go func() {
			leave, err := m.Admit(ctx, []store.Mutation{{Key: "z", Guard: tok(2)}, {Key: "y", Guard: tok(2)}, {Key: "a", Guard: tok(1)}, {Key: "b", Guard: tok(1)}})
			if err == nil {
				leave()
			}
			both <- err
		}()
		synctest.Wait()
		go func() { high <- m.SetGuard(ctx, "m", "", tok(2)) }()
		synctest.Wait()
		if len(low)+len(both) != 0 || len(high) != 1 {
			t.Errorf("%d guards below, %d commits, %d guards above are through", len(low), len(both), len(high))
		}
		leave()
		for what, answer := range map[string]chan error{"the guard below": low, "the guard above": high, "the commit": both} {
			if err := <-answer; err != nil {
				t.Errorf("%s: %v", what, err)
			}
		}
	})
}
