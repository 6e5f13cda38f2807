package mesh

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// Check panics with a description if the server's state breaks an invariant.
func (s *Server) Check() {
	must := func(ok bool, format string, a ...any) {
		if !ok {
			panic(fmt.Sprintf("mesh: server %d: %s", s.opt.Incarnation, fmt.Sprintf(format, a...)))
		}
	}
	f, r := s.visible.Frontier, s.received.Frontier
	must(f.Within(r), "%v is visible, but only %v was received", f, r)
	must(s.stable.Within(r), "%v is called stable, but only %v was received", s.stable, r)
	must(s.stable.Within(f), "%v is stable, but only %v is visible", s.stable, f)
	unseen := r.Missing(f, nil)
	must(len(unseen) == len(s.hidden), "%v is received and not visible, but %d writes are kept for it", unseen, len(s.hidden))
	for _, d := range unseen {
		must(s.hidden[d] != nil, "%v is neither visible nor kept", d)
	}
	must(s.durable.Within(s.stable), "%v is called durable, but only %v is stable", s.durable, s.stable)
	must(len(r.Missing(s.durable, nil)) == len(s.log), "the log has %d writes, but %v was received and %v is durable", len(s.log), r, s.durable)
	for _, w := range s.log {
		must(r.Covers(w.Dot), "%v is in the log and was not received", w.Dot)
		must(s.trim(w.Deps).Within(r), "%v was received before %v, on which it depends", w.Dot, w.Deps)
		must(!f.Covers(w.Dot) || s.trim(w.Deps).Within(f), "%v is visible without %v, on which it depends", w.Dot, w.Deps)
		for _, d := range w.After {
			must(s.has(d), "%v was received before %v, on which it depends", w.Dot, d)
			must(!f.Covers(w.Dot) || s.shows(d), "%v is visible without %v, on which it depends", w.Dot, d)
		}
		must(w.Stamp.Time <= s.time, "%v has a time of %d, beyond %d", w.Dot, w.Stamp.Time, s.time)
	}
	own := s.durable.Upto(s.opt.Incarnation)
	must(s.number-own <= uint64(s.opt.Window), "%d own writes are not durable, more than %d", s.number-own, s.opt.Window)
	// M16: an incarnation may be a whole window ahead of what other servers know to be stable.
	// External writes that readers found in the store are not bounded by a window.
	must(len(s.log)-len(r.Only(External).Missing(s.durable, nil)) <= 2*s.opt.Window*(len(s.view.Ring)+len(s.view.Departed)), "the log has %d writes", len(s.log))
	must(!s.misnamed, "a write was told by its name that was not received")
	pinned, weight, free := 0, 0, 0
	for name, k := range s.cache {
		must(k.name == name && s.dial[k.slot] == k, "%q stands in another's place", name)
		must(k.complete || k.pins > 0 || s.kept(k), "%q is incomplete, and nobody waits for it", name)
		if k.pins > 0 || k.load != nil || s.kept(k) {
			pinned++
			free += k.bytes
		}
		must(k.bytes == k.weight(), "%q takes %d bytes and counts for %d", name, k.weight(), k.bytes)
		weight += k.bytes
	}
	must(s.bytes == weight, "memory has %d bytes, and counts for %d", weight, s.bytes)
	must(s.bytes <= s.opt.Bytes+free, "%d bytes are in memory, %d of them pinned or not in the store, and %d may be", s.bytes, free, s.opt.Bytes)
	owed := 0
	for _, n := range s.owing {
		owed += n
	}
	must(s.owed == owed && len(s.owing) <= s.opt.Window, "%d bytes are owed, and count for %d, of %d writes", owed, s.owed, len(s.owing))
	must(s.waiting >= 0 && s.waiting <= s.opt.Waits, "%d operations wait", s.waiting)
	for _, k := range s.dial[len(s.dial):cap(s.dial)] {
		must(k == nil, "a key that was evicted is held")
	}
	must(len(s.cache) == len(s.dial), "%d keys stand in %d places", len(s.cache), len(s.dial))
	must(len(s.cache) <= s.opt.Keys+pinned, "%d keys are in memory, %d of them pinned or not in the store, and %d may be", len(s.cache), pinned, s.opt.Keys)
}

// CheckRing panics if a write that is visible at one server has not been received at every member.
// This invariant lets sessions move without waiting (M8). The members are those of the latest ring,
// whether they have heard of it or not. The others serve sessions until they hear that they are not
// in it.
func CheckRing(members []*Server, others ...*Server) {
	for _, a := range append(slices.Clone(others), members...) {
		for _, b := range members {
			if !b.trim(a.visible.Frontier).Within(b.received.Frontier) {
				panic(fmt.Sprintf("mesh: %v is visible at server %d, but server %d has only received %v",
					a.visible.Missing(b.received.Frontier, nil), a.opt.Incarnation, b.opt.Incarnation, b.received.Frontier))
			}
			if !b.trim(a.stable).Within(b.received.Frontier) {
				panic(fmt.Sprintf("mesh: server %d calls %v stable, but server %d has only received %v", a.opt.Incarnation, a.stable, b.opt.Incarnation, b.received.Frontier))
			}
		}
	}
}

// Shows reports whether a write is visible here.
func (s *Server) Shows(d Dot) bool { return s.shows(d) }

// View returns the ring that the server is in.
func (s *Server) View() View { return *s.view }

// Visible returns the set of writes that are visible here, without those of retired incarnations.
func (s *Server) Visible() Frontier { return s.visible.share() }

// Received returns the set of writes that have arrived, without those of retired incarnations.
func (s *Server) Received() Frontier { return s.received.share() }

// Stable returns the set of writes that every server is known to have received.
func (s *Server) Stable() Frontier { return s.stable }

// Durable returns the set of writes that are known to be in the store. It equals Stable unless the
// space is asynchronous.
func (s *Server) Durable() Frontier { return s.durable }

// Owes returns how many of this server's own writes are not known to be in the store.
func (s *Server) Owes() uint64 { return s.number - s.durable.Upto(s.opt.Incarnation) }

// Expelled reports whether this incarnation has departed. It then does nothing more about what it
// owes.
func (s *Server) Expelled() bool { return s.expelled }

// Holds returns the newest stamp that memory has of a key. partial says that memory may lack a
// newer one although no operation waits for the row.
func (s *Server) Holds(name string) (stamp Stamp, partial, ok bool) {
	if k := s.cache[name]; k != nil {
		return k.Stamp, !k.complete && k.pins == 0, true
	}
	return stamp, false, false
}

// Peek returns what a reader without causes would get from memory. It reports false if memory does
// not know.
func (s *Server) Peek(name string) (Item, bool) {
	if k := s.cache[name]; k != nil && k.complete {
		return k.Item, true
	}
	return Item{}, false
}

// Kept returns the stamps of a key's versions, the largest first, and their base.
func (s *Server) Kept(name string) (stamps []Stamp, base Stamp) {
	k := s.cache[name]
	for _, v := range k.older {
		stamps = append(stamps, v.Stamp)
	}
	return append([]Stamp{k.Stamp}, stamps...), k.base
}

// Idle reports whether no answer of the store is outstanding and no operation waits.
func (s *Server) Idle() bool {
	return len(s.pending)+len(s.loads)+s.waiting == 0 && s.draining.call == 0 && !slices.ContainsFunc(s.draining.returns, func(f found) bool { return len(f.todo) > 0 })
}

// Dump returns the whole state as text, and equal states give equal text. Scenarios print it, and
// the explorer recognizes states by it.
func (s *Server) Dump() string {
	var b strings.Builder
	fmt.Fprintf(&b, "visible %v received %v stable %v floor %v time %d number %d\n", s.visible, s.received, s.stable, s.floor, s.time, s.number)
	if !s.up || s.expelled || s.circling > 0 || s.dead > 0 {
		fmt.Fprintf(&b, "view %d up %v over %v circling %d dead %d collected %d\n", s.view.Number, s.up, s.expelled, s.circling, s.dead, s.collected)
	}
	if d := s.draining; s.opt.Async {
		fmt.Fprintf(&b, "durable %v merges %v under way %v number %d rest %d\n", s.durable, d.mine, d.call > 0, d.number, d.rest)
		for _, f := range d.returns {
			fmt.Fprintf(&b, "log of %d: %v\n", f.incarnation, f.todo)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(s.cache)) {
		k := s.cache[name]
		fmt.Fprintf(&b, "key %s = %v", name, k.Item)
		if !k.complete {
			b.WriteString(" incomplete")
		}
		if k.pins > 0 {
			fmt.Fprintf(&b, " pinned %d", k.pins)
		}
		if len(k.past)+len(k.needs)+k.from.Size()+len(k.gone) > 0 {
			fmt.Fprintf(&b, " past %v needs %v from %v gone %v", k.past, k.needs, k.from, k.gone)
		}
		b.WriteByte('\n')
	}
	for _, w := range s.log {
		fmt.Fprintf(&b, "log %v\n", w)
	}
	for _, c := range slices.Sorted(maps.Keys(s.pending)) {
		fmt.Fprintf(&b, "put %v try %d void %v\n", s.pending[c].write, s.pending[c].try, s.pending[c].void)
	}
	for _, c := range slices.Sorted(maps.Keys(s.loads)) {
		l := s.loads[c]
		b.WriteString("load")
		if l.key != nil {
			b.WriteString(" " + l.key.name)
		}
		fmt.Fprintf(&b, " %v %v %v", l.row, l.asked, l.got)
		for _, w := range l.waits {
			fmt.Fprintf(&b, " op %d %v %d %v", w.op, w.keys, w.loads, w.extras)
		}
		b.WriteByte('\n')
	}
	return b.String()
}

// String returns the item for people.
func (it Item) String() string {
	among := ""
	for _, w := range it.Siblings {
		among += fmt.Sprintf(" %v", w.Dot)
	}
	if among != "" {
		among = " among" + among
	}
	if !it.Exists {
		return "absence " + it.Stamp.String() + among
	}
	return fmt.Sprintf("%q %v%s", it.Value, it.Stamp, among)
}

// String returns the write for people.
func (w *Write) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%v:", w.Dot)
	for _, m := range w.Muts {
		if m.Delete {
			fmt.Fprintf(&b, " no %s", m.Key)
		} else {
			fmt.Fprintf(&b, " %s=%q", m.Key, m.Value)
		}
	}
	for _, m := range w.Muts {
		if len(m.Supersedes) > 0 {
			fmt.Fprintf(&b, " over %v", m.Supersedes)
		}
	}
	fmt.Fprintf(&b, " %v", w.Stamp)
	if w.Deps.Size() > 0 {
		fmt.Fprintf(&b, " deps %v", w.Deps)
	}
	if len(w.After) > 0 {
		fmt.Fprintf(&b, " after %v", w.After)
	}
	return b.String()
}

// String returns the session for people, and for the explorer.
func (s *Session) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "deps %v time %d", s.Deps, s.Time)
	for _, w := range s.Carried {
		fmt.Fprintf(&b, " carries %v", w)
	}
	for _, d := range s.Bare {
		fmt.Fprintf(&b, " carries %v", d)
	}
	return b.String()
}
