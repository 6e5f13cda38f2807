package causalbase

import (
	"slices"
	"sync"
)

// version is a value of a key. It does not change.
type version struct {
	value string
	seq   uint64 // which commit of the store left it, 0 for what was there before: a global order
	deps  deps
}

// dep is a key of which at least that version is needed.
type dep struct {
	key string
	seq uint64
}

// deps are sorted by key. They do not change.
type deps []dep

// of is the version that is needed of a key, 0 for none.
func (d deps) of(key string) uint64 {
	i, ok := slices.BinarySearchFunc(d, key, func(e dep, key string) int {
		switch {
		case e.key < key:
			return -1
		case e.key > key:
			return 1
		}
		return 0
	})
	if !ok {
		return 0
	}
	return d[i].seq
}

// with is the union, of each key the later version; what is as old as upto is left out.
func (d deps) with(o deps, upto uint64) deps {
	if len(o) == 0 && upto == 0 {
		return d
	}
	out := make(deps, 0, len(d)+len(o))
	for len(d)+len(o) > 0 {
		var e dep
		switch {
		case len(o) == 0 || len(d) > 0 && d[0].key < o[0].key:
			e, d = d[0], d[1:]
		case len(d) == 0 || o[0].key < d[0].key:
			e, o = o[0], o[1:]
		default:
			e = dep{d[0].key, max(d[0].seq, o[0].seq)}
			d, o = d[1:], o[1:]
		}
		if e.seq > upto {
			out = append(out, e)
		}
	}
	return out
}

// bytes is what deps take on a link or in a cache: a length, the key and a version each.
func (d deps) bytes() (n int) {
	for _, e := range d {
		n += 1 + len(e.key) + 8
	}
	return n
}

// setting is a key that is set.
type setting struct {
	key string
	v   *version
}

// rows is the store of the baselines: linearizable, its commits numbered, with a feed of
// them that caches read. Every answer takes as long as the world says.
type rows struct {
	world *World

	mu   sync.Mutex
	rows map[string]*version
	seq  uint64
	feed []setting // the commits that somebody has not had
}

func newRows(w *World, initial map[string]string) *rows {
	r := &rows{world: w, rows: make(map[string]*version, len(initial))}
	for k, v := range initial {
		r.rows[k] = &version{value: v}
	}
	return r
}

// get reads keys at one instant, and says which commit was the last.
func (r *rows) get(keys []string) (out []*version, at uint64) {
	out = make([]*version, len(keys))
	r.mu.Lock()
	for i, k := range keys {
		out[i] = r.rows[k]
	}
	at = r.seq
	r.mu.Unlock()
	r.world.answer()
	return out, at
}

// put sets keys at once.
func (r *rows) put(writes []setting, needs deps) uint64 {
	r.mu.Lock()
	r.seq++
	seq := r.seq
	if len(writes) > 1 { // who sees one of them sees all
		own := make(deps, 0, len(writes))
		for _, w := range writes {
			own = append(own, dep{w.key, seq})
		}
		slices.SortFunc(own, func(a, b dep) int {
			if a.key < b.key {
				return -1
			}
			return 1
		})
		needs = needs.with(own, 0)
	}
	for _, w := range writes {
		w.v.seq, w.v.deps = seq, needs
		r.rows[w.key] = w.v
		r.feed = append(r.feed, w)
	}
	r.mu.Unlock()
	r.world.answer()
	return seq
}

// since is the feed behind a commit, and the last one in it.
func (r *rows) since(after uint64) ([]setting, uint64) {
	r.mu.Lock()
	i, _ := slices.BinarySearchFunc(r.feed, after+1, func(s setting, seq uint64) int { return int(int64(s.v.seq) - int64(seq)) })
	out, at := slices.Clone(r.feed[i:]), r.seq
	r.mu.Unlock()
	r.world.answer()
	return out, at
}

// trim lets go of the feed up to a commit.
func (r *rows) trim(upto uint64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	i, _ := slices.BinarySearchFunc(r.feed, upto+1, func(s setting, seq uint64) int { return int(int64(s.v.seq) - int64(seq)) })
	r.feed = slices.Clone(r.feed[i:])
}

func (r *rows) last() uint64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.seq
}
