package explore

import (
	"fmt"
	"maps"
	"slices"

	"github.com/freshet-cache/freshet/eventual/fanout"
	"github.com/freshet-cache/freshet/ticks"
)

// answer judges what a session reads (E2), and whether Fresh and Step agree on what is a hit.
func (w *caches) answer(a fanout.Answer) {
	c := w.ops[a.Op]
	delete(w.ops, a.Op)
	n := w.nodes[c.node]
	e, there := n.entries[c.key]
	hit := there && w.fresh(n, e)
	switch {
	case a.Source == fanout.Memory && !hit:
		w.fail("%d serves %s, and Fresh says that it may not", n.id, c.key)
	case a.Source != fanout.Memory && c.hit && !c.session:
		w.fail("%d does not serve %s, and Fresh says that it may", n.id, c.key)
	case a.Source == fanout.Memory:
		c.version = e.version
	case a.Status == fanout.OK:
		for _, f := range w.loads {
			if f.node == c.node && f.load == a.Load {
				c.version = f.got[c.key]
			}
		}
	}
	if !c.session {
		return
	}
	w.busy, w.token = false, a.Token
	if a.Status == fanout.OK {
		if c.version < w.saw[c.key] {
			w.fail("the session reads version %d of %s at %d from source %d after version %d", c.version, c.key, n.id, a.Source, w.saw[c.key])
		}
		w.saw[c.key] = c.version
	}
}

func (w *caches) done(d fanout.Done) {
	c := w.ops[d.Op]
	delete(w.ops, d.Op)
	if !c.session {
		return
	}
	w.busy, w.token = false, d.Token
	if d.Refused == fanout.Permitted && d.Status == fanout.OK {
		for _, key := range w.left.Keys {
			if w.row(key) == c.key {
				w.saw[key] = max(w.saw[key], c.version)
			}
		}
	}
}

// age returns how long ago a version was replaced, by a node's own clock.
func (w *caches) age(n *cacher, version int, versions []ticks.Tick) ticks.Tick {
	if version+1 >= len(versions) {
		return 0
	}
	then := caches{left: w.left, now: versions[version+1]}
	return w.at(n) - then.at(n)
}

// judge says which promise the state breaks: every entry that may be served is judged as if it were
// read (E1), and none is older than an Inv that the node has heard (E3, E5).
func (w *caches) judge() error {
	for _, n := range w.nodes {
		if !n.runs() {
			continue
		}
		for _, key := range slices.Sorted(maps.Keys(n.entries)) {
			e, versions := n.entries[key], w.rows[w.row(key)]
			if closed := n.closed[w.row(key)]; e.version < closed {
				return fmt.Errorf("%d keeps version %d of %s, and has heard Inv of version %d", n.id, e.version, key, closed)
			}
			if e.version < 0 {
				return fmt.Errorf("%d keeps a value of %s that nobody has read", n.id, key)
			}
			if age := w.age(n, e.version, versions); age > max(w.opt.Stale, w.opt.Young) && w.fresh(n, e) {
				return fmt.Errorf("%d serves version %d of %s, which was replaced %d units ago", n.id, e.version, key, age/unit)
			}
		}
	}
	return w.err
}
