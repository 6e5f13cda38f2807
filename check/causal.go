package check

import (
	"fmt"
	"slices"
	"strings"
)

// Act is one operation of a session, or one transaction: what it read, all at once,
// and then wrote, all at once.
type Act struct {
	Session string `json:"session"`
	After   []int  `json:"after,omitempty"` // the acts it follows, by their places: the session's last; at a join one of every branch
	Reads   []Cell `json:"reads,omitempty"`
	Writes  []Cell `json:"writes,omitempty"`
}

// Cell is a key and the name of a write to it, unique for the key. A read names the
// write whose value it got; none if nothing was ever written.
type Cell struct {
	Key   string `json:"key"`
	Write string `json:"write,omitempty"`
	// Gone is set for a deletion; and for a read that found nothing and cannot tell
	// which deletion, or none, is the reason.
	Gone bool `json:"gone,omitempty"`
}

// CausalVerdict is what Causal finds.
type CausalVerdict struct {
	OK      bool
	Reason  string
	Witness []string // acts, and what leads from each to the next
}

// Causal judges whether a history is causally consistent, with one order of the
// writes to each key that all sessions agree with (causal convergence; bad patterns
// of Bouajjani, Enea, Guerraoui and Hamza, 2017). Session order with its forks and
// joins and reads-from make the causal order. A read that returns w although w' came
// before it causally says that w' is arbitrated before w. The history is consistent
// if the two orders together have no cycle, no read returns what nobody wrote, and
// none returns nothing although something was written before. It takes time in
// proportion to the acts, and to the writes of a key that are concurrent.
func Causal(acts []Act) CausalVerdict {
	c := &causality{acts: acts, keys: map[string]int{}, writer: map[Cell]int{}, deleted: map[string]bool{}}
	if v, bad := c.index(); bad {
		return v
	}
	order, rest := c.order()
	if rest >= 0 {
		return c.cycle(rest, "causes go round in a circle")
	}
	if v, bad := c.sweep(order); bad {
		return v
	}
	if _, rest := c.order(); rest >= 0 {
		return c.cycle(rest, "no order of the writes explains what was read")
	}
	return CausalVerdict{OK: true}
}

// Overtaken counts the acts of a history that read something although they knew, through
// their session and what they had read, of a write that came after it, or that there was
// one; and, by the same acts' places, says which. In a history that Causal accepts there
// are none. It is for comparing systems that promise less: the order of two concurrent
// writes, on which readers may not agree, is not looked at.
func Overtaken(acts []Act) (places []int, err error) {
	c := &causality{acts: acts, keys: map[string]int{}, writer: map[Cell]int{}, deleted: map[string]bool{}}
	if v, bad := c.index(); bad {
		return nil, fmt.Errorf("check: no history: %s %v", v.Reason, v.Witness)
	}
	order, rest := c.order()
	if rest >= 0 {
		return nil, fmt.Errorf("check: no history: act %d comes before itself", rest)
	}
	c.late = map[int32]bool{}
	c.sweep(order)
	for i := range c.late {
		places = append(places, int(i))
	}
	slices.Sort(places)
	return places, nil
}

// causality is a history as a graph.
type causality struct {
	acts    []Act
	keys    map[string]int
	writer  map[Cell]int // by key and name
	deleted map[string]bool
	edges   [][]edge // to each act from what comes before it
	depth   []int32  // of a write: the longest chain of known predecessors
	before  []past   // of acts that write: what they came after
	sets    [][]int32
	late    map[int32]bool // if acts are counted: those that read what was overtaken
}

// edge says why one act comes before another.
type edge struct {
	from int32
	why  int32 // followed, readFrom, or the place of the read that arbitrates
}

const (
	followed = -1
	readFrom = -2
)

// past is, for every key, the writes to it that came before and that nothing known to
// come later overwrites: 0 for none, a place plus one, or minus a set of several.
type past []*[chunk]int32

const chunk = 32

func (c *causality) index() (CausalVerdict, bool) {
	c.edges, c.depth, c.before = make([][]edge, len(c.acts)), make([]int32, len(c.acts)), make([]past, len(c.acts))
	for i, a := range c.acts {
		for _, w := range a.Writes {
			if _, ok := c.keys[w.Key]; !ok {
				c.keys[w.Key] = len(c.keys)
			}
			id := Cell{Key: w.Key, Write: w.Write}
			if j, twice := c.writer[id]; twice {
				return CausalVerdict{Reason: fmt.Sprintf("write %q of key %q was made twice", w.Write, w.Key), Witness: []string{c.show(j), c.show(i)}}, true
			}
			c.writer[id] = i
			c.deleted[w.Key] = c.deleted[w.Key] || w.Gone
		}
	}
	for i, a := range c.acts {
		for _, j := range a.After {
			if j < 0 || j >= len(c.acts) {
				return CausalVerdict{Reason: fmt.Sprintf("it follows act %d, which there is not", j), Witness: []string{c.show(i)}}, true
			}
			c.edges[i] = append(c.edges[i], edge{int32(j), followed})
		}
		for _, r := range a.Reads {
			if r.Write == "" {
				continue
			}
			j, ok := c.writer[Cell{Key: r.Key, Write: r.Write}]
			if !ok || j == i {
				return CausalVerdict{Reason: fmt.Sprintf("nobody wrote %q to key %q before it was read", r.Write, r.Key), Witness: []string{c.show(i)}}, true
			}
			c.edges[i] = append(c.edges[i], edge{int32(j), readFrom})
		}
	}
	return CausalVerdict{}, false
}

// order puts every act behind what comes before it. If there is a cycle, rest is an
// act that is on it or behind it.
func (c *causality) order() (out []int32, rest int) {
	next, left := make([][]int32, len(c.acts)), make([]int, len(c.acts))
	for i, in := range c.edges {
		left[i] = len(in)
		for _, e := range in {
			next[e.from] = append(next[e.from], int32(i))
		}
	}
	for i := range left {
		if left[i] == 0 {
			out = append(out, int32(i))
		}
	}
	for n := 0; n < len(out); n++ {
		for _, j := range next[out[n]] {
			if left[j]--; left[j] == 0 {
				out = append(out, j)
			}
		}
	}
	return out, slices.IndexFunc(left, func(n int) bool { return n > 0 })
}

// sweep finds out, act by act, which writes came before, and what the reads say of the
// order among them.
func (c *causality) sweep(order []int32) (CausalVerdict, bool) {
	known := make([]past, len(c.acts)) // after each act
	for _, i := range order {
		var p past
		for _, e := range c.edges[i] {
			p = c.merge(p, known[e.from])
		}
		a := c.acts[i]
		for _, r := range a.Reads {
			k, ok := c.keys[r.Key]
			if !ok || r.Write == "" && r.Gone && c.deleted[r.Key] {
				continue
			}
			set := c.members(p.at(k))
			if r.Write == "" {
				if len(set) > 0 && c.late != nil {
					c.late[i] = true
					continue
				}
				if len(set) > 0 {
					return CausalVerdict{Reason: fmt.Sprintf("key %q was read as never written, after it was written", r.Key),
						Witness: []string{c.show(int(set[0])), "comes causally before", c.show(int(i))}}, true
				}
				continue
			}
			w := int32(c.writer[Cell{Key: r.Key, Write: r.Write}])
			for _, x := range set {
				if x != w {
					c.edges[w] = append(c.edges[w], edge{x, i})
				}
				if c.late != nil && x != w && c.overwrites(k, x, w) {
					c.late[i] = true
				}
			}
			if c.late != nil {
				continue // what is known stays known, also if something concurrent is read
			}
			p = p.with(k, w+1, len(c.keys))
		}
		if len(a.Writes) > 0 {
			c.before[i] = p
		}
		for _, w := range a.Writes {
			k := c.keys[w.Key]
			for _, x := range c.members(p.at(k)) {
				c.depth[i] = max(c.depth[i], c.depth[x]+1)
			}
			p = p.with(k, i+1, len(c.keys))
		}
		known[i] = p
	}
	return CausalVerdict{}, false
}

func (p past) at(k int) int32 {
	if len(p) == 0 || p[k/chunk] == nil {
		return 0
	}
	return p[k/chunk][k%chunk]
}

// with is the past with one key changed; what others share stays.
func (p past) with(k int, v int32, keys int) past {
	q := make(past, (keys+chunk-1)/chunk)
	copy(q, p)
	var b [chunk]int32
	if q[k/chunk] != nil {
		b = *q[k/chunk]
	}
	b[k%chunk] = v
	q[k/chunk] = &b
	return q
}

// merge is what came before in either.
func (c *causality) merge(a, b past) past {
	if len(a) == 0 {
		return b
	}
	var out past
	for i := range b {
		switch {
		case a[i] == b[i] || b[i] == nil:
			continue
		case out == nil:
			out = slices.Clone(a)
		}
		if a[i] == nil {
			out[i] = b[i]
			continue
		}
		m, grown := *a[i], false
		for k, v := range b[i] {
			if v != m[k] && v != 0 {
				if u := c.union(i*chunk+k, m[k], v); u != m[k] {
					m[k], grown = u, true
				}
			}
		}
		if grown {
			out[i] = &m
		}
	}
	if out == nil {
		return a
	}
	return out
}

func (c *causality) members(v int32) []int32 {
	switch {
	case v == 0:
		return nil
	case v > 0:
		return []int32{v - 1}
	}
	return c.sets[-v-1]
}

// union are the writes of both that none of the others comes after.
func (c *causality) union(k int, a, b int32) int32 {
	switch {
	case a == 0:
		return b
	case a > 0 && b > 0 && c.overwrites(k, a-1, b-1):
		return a
	case a > 0 && b > 0 && c.overwrites(k, b-1, a-1):
		return b
	}
	all := slices.Concat(c.members(a), c.members(b))
	slices.Sort(all)
	all = slices.Compact(all)
	var keep []int32
	for _, x := range all {
		if !slices.ContainsFunc(all, func(y int32) bool { return x != y && c.overwrites(k, y, x) }) {
			keep = append(keep, x)
		}
	}
	if len(keep) == 1 {
		return keep[0] + 1
	}
	for _, v := range []int32{a, b} {
		if slices.Equal(keep, c.members(v)) {
			return v
		}
	}
	c.sets = append(c.sets, keep)
	return -int32(len(c.sets))
}

// overwrites reports whether the write y of a key came after x.
func (c *causality) overwrites(k int, y, x int32) bool {
	for c.depth[y] > c.depth[x] {
		v := c.before[y].at(k)
		if v <= 0 {
			return slices.ContainsFunc(c.members(v), func(z int32) bool { return z == x || c.overwrites(k, z, x) })
		}
		if y = v - 1; y == x {
			return true
		}
	}
	return false
}

// cycle walks back from an act until it comes by a second time.
func (c *causality) cycle(from int, reason string) CausalVerdict {
	order, _ := c.order()
	done := make([]bool, len(c.acts))
	for _, i := range order {
		done[i] = true
	}
	var path []edge
	seen := map[int]int{}
	at := from
	for {
		if n, ok := seen[at]; ok {
			path = path[n:]
			break
		}
		seen[at] = len(path)
		i := slices.IndexFunc(c.edges[at], func(e edge) bool { return !done[e.from] })
		path = append(path, edge{int32(at), c.edges[at][i].why})
		at = int(c.edges[at][i].from)
	}
	v := CausalVerdict{Reason: reason}
	for i := len(path) - 1; i >= 0; i-- { // from causes to effects
		v.Witness = append(v.Witness, c.show(int(path[(i+1)%len(path)].from)))
		switch why := path[i].why; why {
		case followed:
			v.Witness = append(v.Witness, "comes before, in the session,")
		case readFrom:
			v.Witness = append(v.Witness, "wrote what is read by")
		default:
			v.Witness = append(v.Witness, fmt.Sprintf("was overwritten by the next, for its effects were known to: %s", c.show(int(why))))
		}
	}
	v.Witness = append(v.Witness, c.show(int(path[0].from)))
	return v
}

func (c *causality) show(i int) string {
	var b strings.Builder
	a := c.acts[i]
	fmt.Fprintf(&b, "act %d of %s:", i, a.Session)
	for _, r := range a.Reads {
		switch {
		case r.Write != "":
			fmt.Fprintf(&b, " reads %s of %s", r.Key, r.Write)
		default:
			fmt.Fprintf(&b, " finds no %s", r.Key)
		}
	}
	for _, w := range a.Writes {
		fmt.Fprintf(&b, " writes %s as %s", w.Key, w.Write)
	}
	return b.String()
}
