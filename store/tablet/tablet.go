// Package tablet keeps the write guards of a store, and its fence: once SetGuard
// has returned, no write admitted under another token is in flight, and none will
// be admitted (WriteGuards, section 5). Stores in this process share it.
//
// A tablet is a range of keys with a gate. Writers hold the gate open from the
// check of their guards until their commit is done; who installs a guard, splits,
// merges or restarts a tablet waits until nobody is inside.
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

// Map is the tablets of a store. It is safe for concurrent use.
type Map struct {
	// Max bounds the guards of one tablet. Default 65 536.
	Max    int
	mu     sync.Mutex // one change of layout at a time
	layout atomic.Pointer[[]*tablet]
}

// tablet is a range with its guards, which are changed only behind the closed
// gate.
type tablet struct {
	gate
	low, high string
	guards    atomic.Pointer[[]guard] // sorted, not overlapping; elsewhere there is none
	retired   bool                    // split or merged: look again
}

type guard struct {
	low, high string
	token     store.Token
}

// New returns the tablets with these boundaries, sorted, and no guards.
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

// find is the tablet of key in the present layout.
func (m *Map) find(key string) *tablet {
	all := *m.layout.Load()
	i, ok := slices.BinarySearchFunc(all, key, func(t *tablet, k string) int { return strings.Compare(t.low, k) })
	if !ok {
		i--
	}
	return all[i]
}

// Admit checks the guards of a commit and lets it in. Until leave is called, no
// guard over its keys changes.
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
	slices.Sort(keys) // tablets are entered in order, so nobody waits in a circle
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

// Guard is the token that covers key. It is a hint: another may be on its
// way, and it waits for nobody.
func (m *Map) Guard(key string) store.Token { return m.find(key).at(key) }

// change runs f behind the closed gate of the tablet of key.
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

// SetGuard installs token over [low, high), replacing what stood there. An error
// of ctx means that it was not installed.
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

// put lays g over guards.
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
		if old.low < g.low { // what stands to the left of g
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
		if g.high != "" && (old.high == "" || old.high > g.high) { // what stands to the right
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

// Splits are the boundaries strictly inside (low, high).
func (m *Map) Splits(low, high string) (out []string) {
	for _, t := range (*m.layout.Load())[1:] {
		if t.low > low && (high == "" || t.low < high) {
			out = append(out, t.low)
		}
	}
	return out
}

// Split makes at a boundary; both halves keep the guards. False if it is one.
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

// Merge removes the boundary at; each half keeps its guards. False if there is none.
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

// Restart makes the tablet of key lose its guards, as a tablet server's restart
// does, once what it admitted is done.
func (m *Map) Restart(ctx context.Context, key string) error {
	return m.change(ctx, key, func(t *tablet) error {
		t.guards.Store(new([]guard))
		return nil
	})
}

// gate lets many in, or is closed by one: who closes it goes before who enters
// later, and waits no longer than its context.
type gate struct {
	mu      sync.Mutex
	inside  int
	closed  bool
	changed chan struct{} // made when somebody waits, closed when it may go on
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

// wait is called with mu held, and returns with mu held unless there is an error.
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
