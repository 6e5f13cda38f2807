package node

import (
	"bytes"
	"slices"

	"github.com/freshet-cache/freshet/linear"
	"github.com/freshet-cache/freshet/redis"
	"github.com/freshet-cache/freshet/resp"
)

// gatherBytes of answers to GETs that arrived together are sent without the rest.
const gatherBytes = 256 << 10

// Gets implements resp.Handler: what is in memory is served from there, with one
// reading of the clock for many.
func (n *Node) Gets(c *resp.Conn, cmd *resp.Command, keys [][]byte, w *resp.Writer) {
	if c.DB() != 0 {
		for _, k := range keys {
			n.inSpace(c, cmd, [][]byte{[]byte(cmd.Name), k}, w)
		}
		return
	}
	s := n.session(c)
	names := s.names[:0]
	for _, k := range keys {
		names = append(names, view(k))
	}
	s.names = names
	track := c.Tracks() && n.track.Reading(c, keys, w)
	if len(s.out) < len(names) {
		s.out = make([]linear.Entry[string], 2*len(names))
	}
	for at := 0; at < len(names); at++ {
		hits := n.cache.Hits(names[at:], s.out)
		for i, e := range s.out[:hits] {
			if track && e.Copy { // only its owner will tell of writes
				hits = i
				break
			}
			if track {
				n.track.Read(keys[at+i], e.TTL)
			}
			s.copy += uint64(flag(e.Copy))
			if redis.Value(e, w); len(w.Bytes()) > gatherBytes {
				w.MayBlock()
			}
		}
		s.hits += uint64(hits)
		if at += hits; at < len(names) {
			n.Command(c, cmd, [][]byte{[]byte(cmd.Name), keys[at]}, w)
		}
	}
	clear(s.out[:len(names)])
}

// Sets implements resp.Handler. What has one owner is committed there at once:
// nobody sees a later SET without an earlier one, as in Redis, and the store is
// asked once.
func (n *Node) Sets(c *resp.Conn, cmd *resp.Command, pairs [][]byte, w *resp.Writer) {
	if c.DB() != 0 {
		for p := range slices.Chunk(pairs, 2) {
			n.inSpace(c, cmd, [][]byte{[]byte(cmd.Name), p[0], p[1]}, w)
		}
		return
	}
	for len(pairs) > 0 {
		some := n.alike(pairs)
		if some == 1 || !n.setAll(c, cmd, pairs[:2*some], w) {
			for p := range slices.Chunk(pairs[:2*some], 2) {
				n.Command(c, cmd, [][]byte{[]byte(cmd.Name), p[0], p[1]}, w)
			}
		}
		pairs = pairs[2*some:]
	}
}

// alike counts the pairs, from the first on, whose keys seem to have one owner and
// that nothing is wrong with; at least one.
func (n *Node) alike(pairs [][]byte) (some int) {
	t, owner, size := n.shard.Table(), "", 0
	for ; 2*some < len(pairs); some++ {
		key, value := pairs[2*some], pairs[2*some+1]
		r, _ := t.Find(view(key))
		if len(key) == 0 || len(key) > n.p.cfg.MaxKey || len(value) > n.p.cfg.MaxValue || some > 0 && r.Node != owner {
			break
		}
		if size += len(value) + 4*len(key) + 512; n.p.maxBatchBytes > 0 && size > n.p.maxBatchBytes && some > 0 { // with what the store adds
			break
		}
		owner = r.Node
	}
	return max(1, some)
}

// setAll runs SETs as one MSET. It reports false if nothing was done, because
// their keys have several owners after all.
func (n *Node) setAll(c *resp.Conn, cmd *resp.Command, pairs [][]byte, w *resp.Writer) bool {
	defer n.timed(c, cmd.Name, pairs, len(pairs)/2)()
	w.MayBlock()
	j := &job{proto: w.Proto(), cmds: [][][]byte{append([][]byte{[]byte("MSET")}, pairs...)}}
	tmp := resp.NewWriter(w.Proto())
	if n.run(c, j, n.keysOf(j), tmp); bytes.HasPrefix(tmp.Bytes(), []byte("-CROSSSLOT ")) {
		return false
	}
	for range len(pairs) / 2 {
		w.Raw(tmp.Bytes())
	}
	return true
}
