package causal

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/freshet-cache/freshet/causal/mesh"
)

// folded is what a key's first versions are when they are merged.
type folded struct {
	dots []mesh.Dot // which they are
	text []byte     // encoded: nobody who is given it can change it
	err  error      // ErrUnlawful, if it was noticed
}

// folds are values that were merged: keys that many write hold many versions, and readers would merge all of them at
// every read. The zero folds are ready.
type folds struct {
	mu     sync.Mutex
	keys   map[string][]folded
	bytes  int
	tries  atomic.Uint64
	broken atomic.Bool // the function was seen to break its laws

	compacts map[string]time.Time // keys of which many versions were replaced by one, and when
}

const (
	foldStep  = 8       // of so many versions the value is kept in between
	foldEach  = 16      // values of a key
	foldBytes = 8 << 20 // of all keys
	lawEvery  = 16      // of so many merges one tries the laws

	compactAt    = 8           // versions of a key are many
	compactRest  = time.Second // between two times that one replaces those of a key
	compactsMost = 1024        // keys of which that is known
)

// due reports whether the versions of a key are to be replaced by one now.
func (f *folds) due(key string, now time.Time) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.broken.Load() || now.Sub(f.compacts[key]) < compactRest {
		return false
	}
	if f.compacts == nil || len(f.compacts) >= compactsMost {
		f.compacts = map[string]time.Time{}
	}
	f.compacts[key] = now
	return true
}

// compact has many versions of a key replaced by what they are when they are merged, behind the back of who reads them:
// else they would be kept, and merged by everybody, until somebody writes the key. If it fails, a later read tries again.
func (sp *Space[V]) compact(key string) {
	server, err := sp.server()
	if err != nil || !sp.folds.due(key, time.Now()) {
		return
	}
	server.aside(func(ctx context.Context) {
		err := sp.Begin().Update(ctx, key, func(v V, _ bool) (V, error) { return v, nil })
		if err != nil {
			server.opt.Logger.Debug("many versions of a key stay as they are", "key", key, "err", err)
		}
	})
}

// aside does something beside what callers ask, unless the server is closed.
func (s *Server) aside(do func(ctx context.Context)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return
	}
	s.work.Go(func() {
		ctx, cancel := context.WithTimeout(s.ctx, s.opt.Timeout)
		defer cancel()
		do(ctx)
	})
}

// sampled reports whether the laws are tried: at first, now and then, and always when they were broken once.
func (f *folds) sampled() bool { return f.tries.Add(1)%lawEvery == 1 || f.broken.Load() }

// find is the value of the most of a key's first versions.
func (f *folds) find(key string, dots []mesh.Dot) (best folded) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, is := range f.keys[key] {
		if n := len(is.dots); n > len(best.dots) && n <= len(dots) && slices.Equal(is.dots, dots[:n]) {
			best = is
		}
	}
	return best
}

// keep remembers a value; others go for it.
func (f *folds) keep(key string, is folded) {
	if slices.Contains(is.dots, mesh.Dot{}) || len(is.text) > foldBytes/foldEach { // a version that came from outside has no name
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.keys == nil {
		f.keys = map[string][]folded{}
	}
	all := f.keys[key]
	if slices.ContainsFunc(all, func(o folded) bool { return slices.Equal(o.dots, is.dots) }) {
		return
	}
	if len(all) == foldEach {
		f.bytes -= all[0].weight()
		all = slices.Delete(all, 0, 1)
	}
	f.keys[key] = append(all, is)
	f.bytes += is.weight()
	for other, all := range f.keys { // any of them
		if f.bytes <= foldBytes {
			break
		}
		for _, o := range all {
			f.bytes -= o.weight()
		}
		delete(f.keys, other)
	}
}

func (f *folded) weight() int { return 100 + 16*len(f.dots) + len(f.text) }
