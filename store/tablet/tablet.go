// Package tablet keeps the write guards of a store, and its fence: once SetGuard has returned, no
// write admitted under another token is in flight, and none will be admitted (WriteGuards, section
// 5). The stores that run in this process share the package.
//
// A tablet is a range of keys with a gate. A writer is inside the gate from the check of its guards
// until its commit is done. A call that installs a guard, or splits, merges or restarts a tablet,
// waits until no writer is inside.
package tablet

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/freshet-cache/freshet/store"
)

// Map has the tablets of a store. It is safe for concurrent use.
type Map struct {
	// Max bounds the guards of one tablet. Default 65 536.
	Max    int
	mu     sync.Mutex // one change of layout at a time
	layout atomic.Pointer[[]*tablet]
}

// tablet is a range with its guards, which change only while the gate is closed.
type tablet struct {
	gate
	low, high string
	guards    atomic.Pointer[[]guard] // sorted, not overlapping; other keys have no guard
	retired   bool                    // the tablet was split or merged: find the key's tablet again
}

type guard struct {
	low, high string
	token     store.Token
}

// New returns a Map with these tablet boundaries, which must be sorted, and no guards.
func New(points []string) *Map {
	m := &Map{Max: 65_536}
	var all []*tablet
	low := ""
	for _, at := range points {
		all = append(all, newTablet(low, at, nil))
		low = at
	}
	all = append(all, newTablet(low, "", nil))
	m.layout.Store(&all)
	return m
}

func newTablet(low, high string, guards []guard) *tablet {
	t := &tablet{low: low, high: high}
	t.guards.Store(&guards)
	return t
}

func (t *tablet) contains(key string) bool { return t.low <= key && (t.high == "" || key < t.high) }

// find returns the tablet of key in the current layout.
func (m *Map) find(key string) *tablet {
	all := *m.layout.Load()
	i, ok := slices.BinarySearchFunc(all, key, func(t *tablet, k string) int { return strings.Compare(t.low, k) })
	if !ok {
		i--
	}
	return all[i]
}

// Admit checks the guards of a commit and lets it in. No guard of its keys changes until leave is
// called. ErrGuardMismatch means that the commit may not proceed.
func (m *Map) Admit(ctx context.Context, muts []store.Mutation) (leave func(), err error) {
	if len(muts) == 1 {
		t, err := m.enter(ctx, muts[0].Key)
		if err != nil {
			return nil, err
		}
		if err := t.check(muts[0]); err != nil {
			t.leave()
			return nil, err
		}
		return t.leave, nil
	}
	var in []*tablet
	leave = func() {
		for _, t := range in {
			t.leave()
		}
	}
	keys := make([]string, len(muts))
	for i, mut := range muts {
		keys[i] = mut.Key
	}
	slices.Sort(keys) // in order, so that no two commits wait for each other
	for _, key := range keys {
		if len(in) > 0 && in[len(in)-1].contains(key) {
			continue
		}
		t, err := m.enter(ctx, key)
		if err != nil {
			leave()
			return nil, err
		}
		in = append(in, t)
	}
	for _, mut := range muts {
		i := slices.IndexFunc(in, func(t *tablet) bool { return t.contains(mut.Key) })
		if err := in[i].check(mut); err != nil {
			leave()
			return nil, err
		}
	}
	return leave, nil
}

func (m *Map) enter(ctx context.Context, key string) (*tablet, error) {
	for {
		t := m.find(key)
		if err := t.gate.enter(ctx); err != nil {
			return nil, fmt.Errorf("%w: %q was not written: a guard is being installed there: %w", store.ErrGuardMismatch, key, err)
		}
		if !t.retired {
			return t, nil
		}
		t.leave()
	}
}

func (t *tablet) check(m store.Mutation) error {
	if t.at(m.Key) != m.Guard {
		return fmt.Errorf("%w (key %q)", store.ErrGuardMismatch, m.Key)
	}
	return nil
}

func (t *tablet) at(key string) store.Token {
	guards := *t.guards.Load()
	i, ok := slices.BinarySearchFunc(guards, key, func(g guard, k string) int { return strings.Compare(g.low, k) })
	if !ok {
		i--
	}
	if i >= 0 && (guards[i].high == "" || key < guards[i].high) {
		return guards[i].token
	}
	return store.Token{}
}

// Guard returns the token that covers key. It is a hint, because a SetGuard may be in progress;
// Guard does not wait for it.
func (m *Map) Guard(key string) store.Token { return m.find(key).at(key) }

// change runs f while the gate of key's tablet is closed.
func (m *Map) change(ctx context.Context, key string, f func(t *tablet) error) error {
	for {
		t := m.find(key)
		if err := t.gate.close(ctx); err != nil {
			return err
		}
		if t.retired {
			t.gate.open()
			continue
		}
		defer t.gate.open()
		return f(t)
	}
}

// SetGuard installs token over [low, high) and replaces the guards there. ErrLayoutChanged means
// that the range is not inside one tablet, and ErrFull that the tablet has too many guards. After
// an error of ctx the token is not installed.
func (m *Map) SetGuard(ctx context.Context, low, high string, token store.Token) error {
	if high != "" && high <= low {
		return fmt.Errorf("%w: [%q, %q) is empty", store.ErrLayoutChanged, low, high)
	}
	return m.change(ctx, low, func(t *tablet) error {
		if t.high != "" && (high == "" || high > t.high) {
			return fmt.Errorf("%w: [%q, %q) crosses %q", store.ErrLayoutChanged, low, high, t.high)
		}
		next := put(*t.guards.Load(), guard{low, high, token})
		if len(next) > m.Max {
			return fmt.Errorf("%w: the tablet from %q has %d guards; install fewer, wider ones", store.ErrFull, t.low, m.Max)
		}
		t.guards.Store(&next)
		return nil
	})
}

// put returns guards with g in place of the parts that g covers.
func put(guards []guard, g guard) (out []guard) {
	placed := false
	add := func(h guard) {
		if last := len(out) - 1; last >= 0 && out[last].token == h.token && out[last].high == h.low {
			out[last].high = h.high
			return
		}
		out = append(out, h)
	}
	for _, old := range guards {
		if old.low < g.low { // the part to the left of g
			left := old
			if old.high == "" || old.high > g.low {
				left.high = g.low
			}
			add(left)
		}
		if !placed && old.low >= g.low {
			add(g)
			placed = true
		}
		if g.high != "" && (old.high == "" || old.high > g.high) { // the part to the right of g
			if !placed {
				add(g)
				placed = true
			}
			right := old
			right.low = max(old.low, g.high)
			add(right)
		}
	}
	if !placed {
		add(g)
	}
	return out
}

// Splits returns the tablet boundaries strictly inside (low, high).
func (m *Map) Splits(low, high string) (out []string) {
	for _, t := range (*m.layout.Load())[1:] {
		if t.low > low && (high == "" || t.low < high) {
			out = append(out, t.low)
		}
	}
	return out
}

// Split adds the tablet boundary at; both halves keep their guards. It reports false if at is a
// boundary already.
func (m *Map) Split(ctx context.Context, at string) (done bool, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	err = m.change(ctx, at, func(t *tablet) error {
		if t.low == at {
			return nil
		}
		var left, right []guard
		for _, g := range *t.guards.Load() {
			if g.low < at {
				l := g
				if g.high == "" || g.high > at {
					l.high = at
				}
				left = append(left, l)
			}
			if g.high == "" || g.high > at {
				r := g
				r.low = max(g.low, at)
				right = append(right, r)
			}
		}
		m.replace([]*tablet{t}, newTablet(t.low, at, left), newTablet(at, t.high, right))
		done = true
		return nil
	})
	return done, err
}

// Merge removes the tablet boundary at; each half keeps its guards. It reports false if at is not a
// boundary.
func (m *Map) Merge(ctx context.Context, at string) (done bool, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	all := *m.layout.Load()
	i := slices.IndexFunc(all, func(t *tablet) bool { return t.low == at })
	if at == "" || i < 1 {
		return false, nil
	}
	left, right := all[i-1], all[i]
	for _, t := range []*tablet{left, right} {
		if err := t.gate.close(ctx); err != nil {
			return false, err
		}
		defer t.gate.open()
	}
	m.replace([]*tablet{left, right}, newTablet(left.low, right.high, append(slices.Clone(*left.guards.Load()), *right.guards.Load()...)))
	return true, nil
}

func (m *Map) replace(old []*tablet, fresh ...*tablet) {
	all := slices.Clone(*m.layout.Load())
	i := slices.Index(all, old[0])
	all = slices.Replace(all, i, i+len(old), fresh...)
	for _, t := range old {
		t.retired = true
	}
	m.layout.Store(&all)
}

// Restart removes the guards of key's tablet, as the restart of a tablet server does, once the
// admitted writes are done.
func (m *Map) Restart(ctx context.Context, key string) error {
	return m.change(ctx, key, func(t *tablet) error {
		t.guards.Store(new([]guard))
		return nil
	})
}

// gate lets many writers in, or is closed by one caller. The caller that closes it goes before
// later writers, and waits no longer than its context.
type gate struct {
	mu      sync.Mutex
	inside  int
	closed  bool
	changed chan struct{} // made by the first that waits, closed when the waiting ones may try again
}

func (g *gate) enter(ctx context.Context) error {
	g.mu.Lock()
	for g.closed {
		if err := g.wait(ctx); err != nil {
			return err
		}
	}
	g.inside++
	g.mu.Unlock()
	return nil
}

// wait is called with mu held. It returns with mu held unless it returns an error.
func (g *gate) wait(ctx context.Context) error {
	if g.changed == nil {
		g.changed = make(chan struct{})
	}
	ch := g.changed
	g.mu.Unlock()
	select {
	case <-ch:
		g.mu.Lock()
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (g *gate) signal() {
	if g.changed != nil {
		close(g.changed)
		g.changed = nil
	}
}

func (g *gate) leave() {
	g.mu.Lock()
	if g.inside--; g.inside == 0 {
		g.signal()
	}
	g.mu.Unlock()
}

func (g *gate) close(ctx context.Context) error {
	g.mu.Lock()
	for g.closed {
		if err := g.wait(ctx); err != nil {
			return err
		}
	}
	g.closed = true
	for g.inside > 0 {
		if err := g.wait(ctx); err != nil {
			g.open()
			return err
		}
	}
	g.mu.Unlock()
	return nil
}

func (g *gate) open() {
	g.mu.Lock()
	g.closed = false
	g.signal()
	g.mu.Unlock()
}
