package fanout

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// Check panics with a description if the node's state breaks an invariant.
func (m *Node) Check() {
	must := func(ok bool, format string, a ...any) {
		if !ok {
			panic(fmt.Sprintf("fanout: %d: %s", m.opt.Self, fmt.Sprintf(format, a...)))
		}
	}
	m.checkEntries(must)
	for key, id := range m.joinable {
		l := m.loads[id]
		must(l != nil && l.key == key, "callers for %q may join load %d, which is not under way", key, id)
	}
	marks := map[string]int{}
	count := func(names []string) {
		for _, name := range names {
			marks[name]++
		}
	}
	for _, names := range m.own {
		count(names)
	}
	for _, o := range m.orphans {
		count(o.names)
	}
	for id, p := range m.peers {
		must(id != m.opt.Self && !m.ended.Has(id), "%d has ended and is a peer", id)
		p.feed.Check()
		for number, names := range p.marks {
			count(names)
			must(number <= p.feed.Known(), "%d has announced %d of %d", id, number, p.feed.Known())
			for by, closed := range p.closed {
				must(closed != number, "%d has closed %d by %d, and it is marked", id, number, by)
			}
		}
		must(p.adopted || p.cover == never, "%d is covered and not adopted", id)
		must(p.cover <= m.now && m.cover <= m.now, "%d is covered at %d, and it is %d", id, p.cover, m.now)
		must(len(p.pending) <= mostPending && len(p.heard) <= beats, "of %d there are %d heartbeats", id, len(p.heard))
	}
	must(maps.Equal(marks, m.marked), "%v is marked, and the marks are %v", m.marked, marks)
	own := 0
	for op, u := range m.mutations {
		own += len(u.numbers)
		for _, number := range u.numbers {
			must(m.own[number] != nil, "mutation %d is not announced by %d", op, number)
		}
	}
	must(own == len(m.own), "%d notices are open, and %d are kept", own, len(m.own))
	must(len(m.mutations) <= m.opt.Mutations, "%d mutations are under way", len(m.mutations))
}

func (m *Node) checkEntries(must func(bool, string, ...any)) {
	carried := 0
	for _, keys := range m.carriers {
		must(len(keys) > 0, "a name that nothing depends on is indexed")
		carried += len(keys)
	}
	for key, e := range m.entries {
		marked := m.marked[key] > 0
		tags := slices.Compact(slices.Sorted(slices.Values(e.tags)))
		for _, tag := range tags {
			must(m.carriers[tag][key], "%q depends on %q, and the index does not say so", key, tag)
			marked = marked || m.marked[tag] > 0
		}
		carried -= len(tags)
		must(marked == e.grant.Marked, "%q is marked: %v, and its entry is flagged: %v", key, marked, e.grant.Marked)
		must(e.seen <= m.beat && e.began < e.ended && e.ended <= m.order, "%q is an entry of the future", key)
	}
	must(carried == 0, "the index has %d keys too many", carried)
}

// Quiet reports whether nothing is marked, or under way.
func (m *Node) Quiet() bool { return len(m.marked)+len(m.mutations)+len(m.loads)+len(m.pages) == 0 }

// Dump returns the state as text, for explorations that compare states.
func (m *Node) Dump() string {
	var b strings.Builder
	fmt.Fprintln(&b, m.order, *m.feed, m.beat, m.sent, m.own, m.seq, m.asked, m.renewed, m.listed, m.surveyed, m.ready,
		m.ended, m.state, m.cover, m.vouched, m.orphans, m.carriers, m.marked, *m.counts, m.load, m.joinable)
	dump(&b, m.mutations)
	for _, id := range slices.Sorted(maps.Keys(m.peers)) {
		p := *m.peers[id]
		fmt.Fprint(&b, id, p.feed.Dump())
		p.feed = nil
		fmt.Fprintln(&b, p)
	}
	dump(&b, m.entries)
	dump(&b, m.loads)
	dump(&b, m.pages)
	return b.String()
}

func dump[K cmp.Ordered, V any](b *strings.Builder, of map[K]*V) {
	for _, k := range slices.Sorted(maps.Keys(of)) {
		fmt.Fprintln(b, k, *of[k])
	}
}
