package causalbase

import (
	"cmp"
	"encoding/binary"
	"slices"
	"strings"
	"sync"
)

// row is what the store keeps of a key: which commit has left it, and the version, encoded.
type row struct {
	seq  uint64
	body string
}

// commit is a row that was set.
type commit struct {
	key string
	row
}

// rows is the store of the baselines: linearizable, its commits numbered, with a feed of
// them that caches read. Every answer takes as long as the world says.
type rows struct {
	world *World

	mu   sync.Mutex
	rows map[string]row
	seq  uint64
	feed []commit // those that somebody has not had
}

func newRows(w *World, initial map[string]string) *rows {
	r := &rows{world: w, rows: make(map[string]row, len(initial))}
	for k, v := range initial {
		r.rows[k] = row{0, string(appendBody(nil, v, nil, 0))}
	}
	return r
}

// loaded are versions of everything that was there before.
func loaded(initial map[string]string) map[string]*version {
	out := make(map[string]*version, len(initial))
	for k, v := range initial {
		out[k] = &version{value: v}
	}
	return out
}

// get reads keys at one instant, and says which commit was the last.
func (r *rows) get(keys []string) (out []*version, at uint64) {
	out = make([]*version, len(keys))
	found := make([]row, len(keys))
	r.mu.Lock()
	for i, k := range keys {
		found[i] = r.rows[k]
	}
	at = r.seq
	r.mu.Unlock()
	r.world.answer()
	for i, f := range found {
		if f.body != "" {
			out[i] = (&reader{f.body}).body(f.seq)
		}
	}
	return out, at
}

// put sets keys at once.
func (r *rows) put(writes []setting, needs deps) uint64 {
	const own = 1<<64 - 1 // stands for the commit
	if len(writes) > 1 {  // who sees one of them sees all
		all := make(deps, 0, len(writes))
		for _, w := range writes {
			all = append(all, dep{w.key, own})
		}
		slices.SortFunc(all, func(a, b dep) int { return cmp.Compare(a.key, b.key) })
		needs = needs.with(all, 0)
	}
	bodies := make([]string, len(writes))
	for i, w := range writes {
		bodies[i] = string(appendBody(make([]byte, 0, 64), w.v.value, needs, own))
	}
	r.mu.Lock()
	r.seq++
	seq := r.seq
	for i, w := range writes {
		r.rows[w.key] = row{seq, bodies[i]}
		r.feed = append(r.feed, commit{w.key, row{seq, bodies[i]}})
	}
	r.mu.Unlock()
	r.world.answer()
	return seq
}

// behind is the place in the feed behind a commit.
func (r *rows) behind(seq uint64) int {
	i, _ := slices.BinarySearchFunc(r.feed, seq+1, func(c commit, seq uint64) int { return cmp.Compare(c.seq, seq) })
	return i
}

// since is the feed behind a commit, as a message, and the last commit in it.
func (r *rows) since(after uint64) ([]byte, uint64) {
	r.mu.Lock()
	feed, at := slices.Clone(r.feed[r.behind(after):]), r.seq
	r.mu.Unlock()
	var b []byte
	for _, c := range feed {
		b = binary.AppendUvarint(appendText(b, c.key), c.seq)
		b = appendText(b, c.body)
	}
	r.world.answer()
	return b, at
}

// told is what since has said. Each version stands for itself: it may outlive the others.
func told(feed []byte) (out []setting) {
	for r := read(feed); r.s != ""; {
		key, seq := strings.Clone(r.text()), r.uint()
		out = append(out, setting{key, (&reader{strings.Clone(r.text())}).body(seq)})
	}
	return out
}

// trim releases the feed up to a commit.
func (r *rows) trim(upto uint64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.feed = slices.Clone(r.feed[r.behind(upto):])
}

func (r *rows) last() uint64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.seq
}
