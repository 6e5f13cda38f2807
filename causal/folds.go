package causal

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/freshet-cache/freshet/causal/mesh"
)

// folded is the merged value of the first siblings of a key.
type folded struct {
	dots []mesh.Dot // of these siblings
	text []byte     // encoded, so that no reader can change it
	err  error      // ErrUnlawful, if it was noticed
}

// folds keeps merged values. A key that many clients write has many siblings, which every read
// would merge again. The zero folds is ready.
type folds struct {
	mu     sync.Mutex
	keys   map[string][]folded
	bytes  int
	tries  atomic.Uint64
	broken atomic.Bool // the merge function was seen to break its laws

	compacts map[string]time.Time // when the siblings of a key were last replaced by one
}

const (
	foldStep  = 8       // a merged value is kept after so many siblings
	foldEach  = 16      // merged values that are kept of a key
	foldBytes = 8 << 20 // bytes of the merged values that are kept of all keys
	lawEvery  = 16      // one of so many merges checks the laws

	compactAt    = 8           // siblings of a key that are compacted
	compactRest  = time.Second // the least time between two compactions of a key
	compactsMost = 1024        // keys for which the time of the last compaction is known
)

// due reports whether the siblings of a key should be replaced by one now.
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

// compact replaces the siblings of a key by their merged value, in the background. Without it,
// every reader would merge them until a client writes the key. If it fails, a later read tries
// again.
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

// aside runs do in the background, unless the server is closed.
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

// sampled reports whether a merge checks the laws: the first one, one of lawEvery, and every one
// after a violation.
func (f *folds) sampled() bool { return f.tries.Add(1)%lawEvery == 1 || f.broken.Load() }

// find returns the kept value of as many of a key's first siblings as possible.
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

// keep keeps a merged value, and drops others if there is no room.
func (f *folds) keep(key string, is folded) {
	if slices.Contains(is.dots, mesh.Dot{}) || len(is.text) > foldBytes/foldEach {
		// An external write has no dot.
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
	for other, all := range f.keys { // in any order: any key may lose its values
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
