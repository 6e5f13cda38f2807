package explore

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/freshet-cache/freshet/eventual/fanout"
)

func (w *caches) choices() (out []choice) {
	if w.over {
		return nil
	}
	add := func(name text, do func()) { out = append(out, choice{name, do}) }
	spend := func(budget *int, name text, do func()) {
		if *budget > 0 {
			add(name, func() { *budget--; do() })
		}
	}
	spend(&w.left.Units, says("a unit of time passes"), w.pass)
	w.storeChoices(add, spend)
	w.tierChoices(spend, add)
	for i, n := range w.nodes {
		if !n.down && !n.ended {
			w.nodeChoices(i, n, spend)
		}
		if n.paused && !n.down {
			add(says("%d is woken", n.id), func() { n.paused = false })
		}
		if n.deaf {
			add(says("%d hears the registry again", n.id), func() { n.deaf = false })
		}
	}
	w.linkChoices(add, spend)
	spend(&w.left.Joins, says("a node joins"), w.join)
	if w.left.Calm {
		add(says("faults are over"), w.calm)
	}
	return out
}

func (w *caches) storeChoices(add func(text, func()), spend func(*int, text, func())) {
	for _, f := range w.loads {
		what := says("load %d of %s", f.load, f.key)
		if f.page > 0 {
			what = says("a page")
		}
		if f.tier {
			what = says("the tier's answer to load %d of %s", f.load, f.key)
		}
		if !f.read {
			add(says("the store reads %s for %d", what, w.nodes[f.node].id), func() { w.fetch(f) })
		} else if !w.nodes[f.node].paused {
			add(says("%s arrives at %d", what, w.nodes[f.node].id), func() { w.fetched(f) })
		}
	}
	for _, s := range w.writes {
		what := says("write %d of %d", s.op, w.nodes[s.node].id)
		late := w.now > s.sent+w.opt.Land
		if s.version == 0 && !late {
			add(says("%v lands", what), func() {
				if w.land(s); s.orphan {
					w.gone(s)
				}
			})
		}
		if s.orphan || w.nodes[s.node].paused {
			continue
		}
		if s.version > 0 {
			add(says("%v is answered", what), func() { w.wrote(s, fanout.OK); w.gone(s) })
		} else if late {
			add(says("%v has timed out", what), func() { w.wrote(s, fanout.Failed); w.gone(s) })
		} else {
			spend(&w.left.Refusals, says("%v is refused", what), func() { w.wrote(s, fanout.Failed); w.gone(s) })
		}
		spend(&w.left.Unknowns, says("%v has no answer", what), func() {
			if w.wrote(s, fanout.Unknown); s.version > 0 {
				w.gone(s)
			} else {
				s.orphan = true
			}
		})
	}
}

func (w *caches) nodeChoices(i int, n *cacher, spend func(*int, text, func())) {
	if n.paused {
		return
	}
	for _, key := range w.left.Keys {
		e, there := n.entries[key]
		if !there || !w.fresh(n, e) {
			spend(&w.left.Reads, says("%d is asked for %s", n.id, key), func() { w.read(i, key, false) })
		}
		if there {
			spend(&w.left.Evicts, says("%d evicts %s", n.id, key), func() {
				delete(n.entries, key)
				w.step(i, fanout.Evicted{Key: key})
			})
		}
		if !w.busy {
			spend(&w.left.Session, says("the session reads %s at %d", key, n.id), func() { w.read(i, key, true) })
		}
		row := w.row(key)
		if row == "t" && key != w.left.Keys[0] {
			continue
		}
		spend(&w.left.Writes, says("%d writes %s", n.id, row), func() { w.write(i, row, false, false) })
		if row == key {
			spend(&w.left.Sets, says("%d sets %s", n.id, row), func() { w.write(i, row, false, true) })
		}
		if !w.busy && w.left.Writes > 0 {
			spend(&w.left.Session, says("the session writes %s at %d", row, n.id), func() { w.left.Writes--; w.write(i, row, true, false) })
		}
	}
	spend(&w.left.Pages, says("%d reads a page", n.id), func() {
		w.op++
		w.loads = append(w.loads, &fetching{node: i, page: w.op, got: map[string]int{}})
		w.step(i, fanout.PageBegan{Op: w.op})
	})
	spend(&w.left.Crashes, says("%d crashes", n.id), func() { w.crash(i, n) })
	spend(&w.left.Pauses, says("%d stands still", n.id), func() { n.paused = true })
	spend(&w.left.Leaves, says("%d leaves", n.id), func() { w.step(i, fanout.Closing{}) })
	if !n.deaf {
		spend(&w.left.Deaf, says("%d and the registry do not hear each other", n.id), func() { n.deaf = true })
	}
}

func (w *caches) crash(i int, n *cacher) {
	n.down = true
	w.loads = slices.DeleteFunc(w.loads, func(f *fetching) bool { return f.node == i })
	w.writes = slices.DeleteFunc(w.writes, func(s *storing) bool { return s.node == i && s.version > 0 })
	for _, s := range w.writes {
		s.orphan = s.orphan || s.node == i
	}
	for op, c := range w.ops {
		if c.node == i {
			w.busy = w.busy && !c.session
			delete(w.ops, op)
		}
	}
}

func (w *caches) linkChoices(add func(text, func()), spend func(*int, text, func())) {
	for i, from := range w.nodes {
		for j, to := range w.nodes {
			l := w.links[[2]int{i, j}]
			switch {
			case to.down || to.ended:
				continue
			case l == nil || !l.holds:
				if !from.down {
					spend(&w.left.Holds, says("the link from %d to %d holds what is sent", from.id, to.id), func() { w.links[[2]int{i, j}] = &busLink{holds: true} })
					spend(&w.left.Slows, says("the link from %d to %d becomes slow", from.id, to.id), func() { w.links[[2]int{i, j}] = &busLink{holds: true, slow: true} })
				}
				continue
			case l.slow:
				add(says("the link from %d to %d is fast again", from.id, to.id), func() { w.fast(i, j, l) })
				continue
			case len(l.held) == 0:
				add(says("the link from %d to %d is free again", from.id, to.id), func() { delete(w.links, [2]int{i, j}) })
			}
			for k, msg := range l.held {
				what := says("%s from %d to %d", said(msg), from.id, to.id)
				take := func() { l.take(k) }
				if !to.paused {
					add(says("%v arrives", what), func() { take(); w.deliver(i, j, msg) })
					spend(&w.left.Copies, says("%v arrives, and will again", what), func() { w.deliver(i, j, msg) })
				}
				spend(&w.left.Losses, says("%v is lost", what), take)
			}
			if len(l.held) > 1 {
				spend(&w.left.Losses, says("all from %d to %d is lost", from.id, to.id), func() { l.held, l.since = nil, nil })
			}
		}
	}
}

// fast delivers what a slow link has, in its order.
func (w *caches) fast(i, j int, l *busLink) {
	delete(w.links, [2]int{i, j})
	for _, msg := range l.held {
		w.deliver(i, j, msg)
	}
}

func said(msg fanout.Message) string {
	switch msg := msg.(type) {
	case fanout.Heartbeat:
		return fmt.Sprintf("heartbeat %d (%d notices)", msg.Beat, msg.Last)
	case fanout.Notice:
		if msg.Closes > 0 {
			return fmt.Sprintf("notice %d (closes %d)", msg.Number, msg.Closes)
		}
		return fmt.Sprintf("notice %d (marks %v)", msg.Number, msg.Names)
	case fanout.Missing:
		return fmt.Sprintf("request for %d to %d", msg.From, msg.To)
	case fanout.Snapshot:
		return fmt.Sprintf("snapshot of %d (marks %d)", msg.Last, len(msg.Marks))
	case fanout.Leave:
		return fmt.Sprintf("leave (%d notices)", msg.Last)
	}
	return "nothing"
}

// calm ends all faults and lets everything come to rest: then every node is in step, nothing is
// marked, and every key can be kept (E6).
func (w *caches) calm() {
	w.over = true
	for _, n := range w.nodes {
		n.paused, n.deaf = false, false
	}
	w.links = map[[2]int]*busLink{}
	for i, n := range w.nodes {
		if n.runs() && n.run != w.run {
			w.reach(i)
		}
	}
	settle := func() {
		for len(w.loads) > 0 {
			w.finish(w.loads[0])
		}
		for len(w.writes) > 0 {
			if s := w.writes[0]; s.orphan {
				w.gone(s)
			} else {
				w.land(s)
				w.wrote(s, fanout.OK)
				w.gone(s)
			}
		}
	}
	for range 14 { // L, W, S and W, and what Linger adds
		settle()
		w.pass()
		if w.err = w.judge(); w.err != nil {
			return
		}
	}
	for i, n := range w.nodes {
		if !n.runs() {
			continue
		}
		if n.vouched < w.at(n) {
			w.fail("faults are over, and %d vouches for nothing", n.id)
		}
		if !n.m.Quiet() {
			w.fail("faults are over, and something is marked or under way at %d:\n%s", n.id, n.m.Dump())
		}
		for _, key := range w.left.Keys {
			w.read(i, key, false)
		}
		settle()
		for _, key := range w.left.Keys {
			if e, ok := n.entries[key]; !ok || e.grant.Marked {
				w.fail("faults are over, and %d does not keep %s", n.id, key)
			}
			if w.left.Tier {
				w.shared(i, n, key)
			}
		}
	}
}

// ChooseNamed lets the choice of a name happen.
func ChooseNamed(w World, name string) error {
	choices := w.Choices()
	i := slices.Index(choices, name)
	if i < 0 {
		return fmt.Errorf("there is no such choice, but\n%s", strings.Join(choices, "\n"))
	}
	return choose(w, i)
}

// Show returns what each node of a scope of eventual would serve from memory.
func Show(of World) string {
	w, b := of.(*caches), strings.Builder{}
	for _, n := range w.nodes {
		fmt.Fprintf(&b, "%d", n.id)
		switch {
		case n.down:
			fmt.Fprint(&b, " is dead")
		case n.ended:
			fmt.Fprint(&b, " has ended")
		case n.paused:
			fmt.Fprint(&b, " stands still")
		case n.vouched >= w.at(n):
			fmt.Fprint(&b, " is in step")
		}
		for _, key := range w.left.Keys {
			e, there := n.entries[key]
			switch {
			case n.down || n.ended:
				continue
			case !there:
				fmt.Fprintf(&b, ", has no %s", key)
				continue
			case !w.fresh(n, e):
				fmt.Fprintf(&b, ", does not serve %s %d", key, e.version)
			default:
				fmt.Fprintf(&b, ", serves %s %d", key, e.version)
			}
			if w.at(n)-e.grant.Started <= w.opt.Young {
				fmt.Fprint(&b, " (young)")
			}
			if e.grant.Started == fanout.NeverYoung {
				fmt.Fprint(&b, " (shared)")
			}
			if e.grant.Marked {
				fmt.Fprint(&b, " (marked)")
			}
		}
		b.WriteString("\n")
	}
	for _, key := range w.left.Keys {
		fmt.Fprintf(&b, "the store has %s %d\n", key, len(w.rows[w.row(key)])-1)
	}
	if len(w.saw) > 0 {
		fmt.Fprintf(&b, "the session has seen %v\n", w.saw)
	}
	return b.String()
}

// Choices implements World.
func (w *caches) Choices() (out []string) {
	w.next = w.choices()
	for _, c := range w.next {
		out = append(out, c.name.String())
	}
	return out
}

// Choose implements World.
func (w *caches) Choose(i int) error {
	if w.next == nil {
		w.next = w.choices()
	}
	do := w.next[i].do
	w.next = nil
	do()
	return w.judge()
}

// Dump implements World.
func (w *caches) Dump() string {
	var b strings.Builder
	if w.left.Tier {
		fmt.Fprintln(&b, w.dumpTiers())
	}
	fmt.Fprintln(&b, w.left, w.now, w.registry, w.struck, w.rows, w.token, w.saw, w.busy, w.over, w.invs)
	for i, n := range w.nodes {
		fmt.Fprintln(&b, n.entries, n.vouched, n.down, n.paused, n.deaf, n.ended, n.run, n.closed)
		b.WriteString(n.m.Dump())
		for j := range w.nodes {
			if l := w.links[[2]int{i, j}]; l != nil {
				fmt.Fprintln(&b, i, j, *l)
			}
		}
	}
	for _, s := range w.writes {
		fmt.Fprintln(&b, *s)
	}
	for _, f := range w.loads {
		fmt.Fprintln(&b, *f)
	}
	for _, op := range slices.Sorted(maps.Keys(w.ops)) {
		fmt.Fprintln(&b, op, *w.ops[op])
	}
	return b.String()
}
