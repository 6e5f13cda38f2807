package causalbase

import (
	"cmp"
	"encoding/binary"
	"slices"
	"strings"
	"sync"
)

// row is what the store keeps of a key: the number of the commit, and the encoded version.
type row struct {
	seq  uint64
	body string
}

// commit is one write of a key.
type commit struct {
	key string
	row
}

// rows is the store of the baselines. It is linearizable, numbers its commits, and has a feed of
// them for caches. Every answer takes as long as the world says.
type rows struct {
	world *World

	mu   sync.Mutex
	rows map[string]row
	seq  uint64
	feed []commit // commits that some cache has not received
}

func newRows(w *World, initial map[string]string) *rows {
	r := &rows{world: w, rows: make(map[string]row, len(initial))}
	for k, v := range initial {
		r.rows[k] = row{0, string(appendBody(nil, v, nil, 0))}
	}
	return r
}

// loaded returns versions for the initial rows.
func loaded(initial map[string]string) map[string]*version {
	out := make(map[string]*version, len(initial))
	for k, v := range initial {
		out[k] = &version{value: v}
	}
	return out
}

// get reads keys at one instant. It returns the number of the last commit.
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

// put writes keys atomically.
func (r *rows) put(writes []setting, needs deps) uint64 {
	const own = 1<<64 - 1 // stands for the number of this commit
	if len(writes) > 1 {  // a reader of one of them depends on all of them
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

// behind returns the position in the feed after a commit.
func (r *rows) behind(seq uint64) int {
	i, _ := slices.BinarySearchFunc(r.feed, seq+1, func(c commit, seq uint64) int { return cmp.Compare(c.seq, seq) })
	return i
}

// since returns the feed after a commit, as a message, and the last commit in it.
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

// told decodes the answer of since. Each version has its own memory, because it may outlive the
// others.
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
