package storetest

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/freshet-cache/freshet/store"
)

func theFenceHolds(ctx context.Context, s Store) error {
	return Fence{Rounds: 600}.Holds(ctx, s)
}

// Fence is a test of the fence: many writers, and guards that change under them.
// After SetGuard has returned, a row that was read must not change by a write under
// an older token, whatever else goes on.
type Fence struct {
	Rounds int // guards, and as many writes; more guards if writes are slow
	// Faults says that calls may fail: then only what was answered is judged.
	Faults bool
}

// Holds returns what is wrong, if anything is.
func (o Fence) Holds(ctx context.Context, s Store) error {
	f := &fight{s: s, faults: o.Faults, keys: []string{"a", "m", "mm", "z"}}
	f.current.Store(1)
	if err := s.SetGuard(ctx, "", "", tok(1)); err != nil && !o.Faults {
		return err
	}
	var wg sync.WaitGroup
	for w := range 8 {
		wg.Go(func() { f.write(ctx, w) })
	}
	enough := uint64(o.Rounds)
	for g := uint64(2); (g < enough || f.written.Load() < enough) && g < 1000*enough && !f.over.Load(); g++ {
		if g%16 == 0 {
			f.disturb(ctx, int(g/16))
		}
		f.advance(ctx, g)
	}
	f.over.Store(true)
	wg.Wait()
	if f.wrong == nil && f.written.Load() < enough {
		return fmt.Errorf("only %d writes were committed while %d guards were installed", f.written.Load(), 1000*enough)
	}
	return f.wrong
}

// fight is writers against guards that change under them.
type fight struct {
	s       Store
	keys    []string
	faults  bool
	current atomic.Uint64 // the guard that stands, or is about to
	written atomic.Uint64
	over    atomic.Bool
	mu      sync.Mutex
	wrong   error
}

func (f *fight) fail(err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.wrong = errors.Join(f.wrong, err)
	f.over.Store(true)
}

// write writes as fast as it can, under the token it believes in; the id of each
// write carries that token.
func (f *fight) write(ctx context.Context, w int) {
	for i := 0; !f.over.Load(); i++ {
		g := f.current.Load()
		muts := []store.Mutation{put(f.keys[(w+i)%len(f.keys)], "v")}
		if i%4 == 3 {
			muts = append(muts, put(f.keys[(w+i+1)%len(f.keys)], "v"))
		}
		for n := range muts {
			muts[n].Guard = tok(g)
		}
		_, err := f.s.Commit(ctx, wid(g<<24|uint64(w)<<20|uint64(i)&(1<<20-1)), muts)
		switch {
		case err == nil:
			f.written.Add(1)
		case !errors.Is(err, store.ErrGuardMismatch) && !f.faults:
			f.fail(err)
		}
	}
}

// disturb changes the layout, and now and then loses guards.
func (f *fight) disturb(ctx context.Context, n int) {
	var err error
	tablets, cut := f.s.(Tablets)
	restarts, forget := f.s.(Restarts)
	switch {
	case n%4 == 1 && cut:
		err = tablets.Split(ctx, "mm")
	case n%4 == 2 && forget:
		err = restarts.Restart(ctx, "z")
	case n%4 == 3 && cut:
		err = tablets.Merge(ctx, "mm")
	}
	if err != nil {
		f.fail(err)
	}
}

// advance installs the guard g and sees that nothing older commits from then on.
func (f *fight) advance(ctx context.Context, g uint64) {
	if err := install(ctx, f.s, tok(g)); err != nil {
		if !f.faults {
			f.fail(err)
		}
		return
	}
	before := map[string]store.Row{}
	for _, k := range f.keys {
		before[k] = f.load(ctx, k)
	}
	f.current.Store(g)
	for _, k := range f.keys {
		r := f.load(ctx, k)
		if under := binary.BigEndian.Uint64(r.Writer[8:]) >> 24; r.Version != before[k].Version && under != g {
			f.fail(fmt.Errorf("%s was written under token %d after SetGuard of %d had returned", k, under, g))
		}
	}
}

func (f *fight) load(ctx context.Context, key string) store.Row {
	for {
		r, err := f.s.Load(ctx, key)
		if err == nil || !f.faults || ctx.Err() != nil {
			if err != nil {
				f.fail(err)
			}
			return r
		}
	}
}

// install guards everything, in pieces if the layout asks for it.
func install(ctx context.Context, s Store, token store.Token) error {
	points, err := s.Splits(ctx, "", "")
	if err != nil {
		return err
	}
	low := ""
	for _, high := range append(points, "") {
		if err := s.SetGuard(ctx, low, high, token); err != nil {
			return err
		}
		low = high
	}
	return nil
}
