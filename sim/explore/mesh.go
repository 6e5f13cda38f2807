package explore

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/freshet-cache/freshet/causal/mesh"
	"github.com/freshet-cache/freshet/sim"
)

// Mesh is a scope for causal/mesh: a ring, what sessions do one after the other, and how
// often each fault may happen.
type Mesh struct {
	Servers  int
	Sessions [][]MeshCall
	Keys     []string // cached as absent everywhere when all begins
	Capacity int      // of every server
	Window   int
	Versions int
	Beats    int // stability rounds that may go off
	Evicts   int // keys that may be evicted
	Breaks   int // connections that may break; they are opened again at any time
	Losses   int // answers of the store to a Persist that may be lost
	Crashes  int // servers that may crash
	Suspects int // servers that may be taken out of the ring though they live
	Joins    int // servers that may join, behind the first
	Triggers int // external writes of x that leave a dot
	// Concurrent writes of a key are kept.
	Concurrent bool
	Async      bool
	Batch      int // of every server
}

// MeshCall is one call. At server -1 it may be made anywhere.
type MeshCall struct {
	At     int
	Read   string // keys, one letter each
	Put    string // a key
	Delete bool
	Fork   int    // 1 plus the session whose knowledge it begins with
	Join   int    // 1 plus the session whose knowledge it takes
	Begin  bool   // a transaction, to which what follows belongs
	Look   string // keys, one letter each
	Commit string // keys that it writes
}

type meshWorld struct {
	scope    Mesh
	left     Mesh
	store    *sim.MeshStore
	view     mesh.View
	servers  []*mesh.Server // by number less one; nil until it has joined
	down     []bool
	links    [][]mesh.Message
	linked   []uint64 // the view a connection was opened in
	broken   []bool
	reqs     []*meshRequest
	sessions []*meshSession
	causes   map[mesh.Dot]causes // of every write, itself among them
	op       mesh.Op
	err      error
}

type meshRequest struct {
	server int
	out    mesh.Output
	answer mesh.Input
}

type causes map[mesh.Dot]mesh.Stamp

type meshSession struct {
	mesh.Session
	next int
	busy bool
	past causes
	saw  map[string][]mesh.Dot // of keys, where concurrent writes are kept
	call MeshCall
	op   mesh.Op
	at   int
	tx   *mesh.Tx // under way
}

// Begin returns the first state.
func (s Mesh) Begin() World {
	w := &meshWorld{scope: s, left: s, store: sim.NewMeshStore(), causes: map[mesh.Dot]causes{}}
	w.view = mesh.View{Number: 1, Newest: mesh.Incarnation(s.Servers)}
	for i := range s.Servers {
		w.view.Ring = append(w.view.Ring, mesh.Incarnation(i+1))
	}
	if s.Concurrent {
		w.store.Concurrent()
	}
	for i := range s.Servers {
		w.add(mesh.New(w.options(mesh.Incarnation(i + 1))))
	}
	for range s.Sessions {
		w.sessions = append(w.sessions, &meshSession{past: causes{}, saw: map[string][]mesh.Dot{}})
	}
	for i := range s.Servers {
		w.connect(i)
		for _, k := range s.Keys {
			w.step(i, mesh.Read{Op: 1 << 40, Key: k})
			for len(w.reqs) > 0 {
				w.progress(w.reqs[0])
			}
		}
	}
	return w
}

func (w *meshWorld) choices() (out []choice) {
	add := func(name text, do func()) { out = append(out, choice{name, do}) }
	for i, l := range w.links {
		if len(l) > 0 {
			add(says("%v arrives from %d", l[0], i+1), func() { w.arrive(i) })
		}
		switch {
		case w.broken[i]:
			add(says("%d connects again", i+1), func() { w.connect(i) })
		case w.left.Breaks > 0 && len(l) > 0 && !w.down[i]:
			add(says("the connection of %d breaks", i+1), func() {
				w.left.Breaks--
				w.links[i], w.broken[i] = nil, true
				w.step(i, mesh.Broken{})
			})
		}
	}
	for _, r := range w.reqs {
		what := "is done"
		if r.answer != nil {
			what = "is answered"
		}
		name := says("%T%v of %d", r.out, r.out, r.server+1)
		add(says("%v %s", name, what), func() { w.progress(r) })
		if lost := unanswered(r.out); lost != nil && w.left.Losses > 0 {
			add(says("%v has no answer", name), func() {
				w.left.Losses--
				w.drop(r)
				w.step(r.server, lost)
			})
		}
	}
	for i, c := range w.sessions {
		if c.busy || c.next == len(w.scope.Sessions[i]) {
			continue
		}
		call := w.scope.Sessions[i][c.next]
		for at, m := range w.servers {
			if m == nil || w.down[at] {
				continue
			}
			if call.At == at || call.At < 0 {
				add(says("session %d at %d: %+v", i, at+1, call), func() { w.call(i, at, call) })
			}
		}
	}
	for i, m := range w.servers {
		if w.left.Beats > 0 && m != nil && !w.down[i] && m.View().Ring[0] == mesh.Incarnation(i+1) {
			add(says("%d beats", i+1), func() { w.left.Beats--; w.step(i, mesh.Beat{}) })
		}
	}
	if w.left.Triggers > 0 {
		add(says("x is written externally"), func() { w.left.Triggers--; w.store.Trigger("x", fmt.Sprint("o", w.left.Triggers), 0) })
	}
	for _, c := range append(w.changes(), w.found()...) {
		add(c.name, c.do)
	}
	for i, m := range w.servers {
		if m == nil {
			continue
		}
		for _, k := range []string{"x", "y"} {
			if it, ok := m.Peek(k); ok && w.left.Evicts > 0 && (it.Stamp != mesh.Stamp{} || len(w.scope.Keys) > 0) {
				add(says("%s is evicted at %d", k, i+1), func() { w.left.Evicts--; w.step(i, mesh.Evicted{Key: k}) })
			}
		}
	}
	return out
}

// call lets a session make its next call.
func (w *meshWorld) call(i, at int, call MeshCall) {
	c := w.sessions[i]
	if c.next++; call.Fork > 0 {
		c.Session = *w.sessions[call.Fork-1].Fork()
		c.past = maps.Clone(w.sessions[call.Fork-1].past)
	}
	if call.Join > 0 {
		c.Join(&w.sessions[call.Join-1].Session)
		c.know(w.sessions[call.Join-1].past)
	}
	w.op++
	c.busy, c.call, c.op, c.at = true, call, w.op, at
	switch {
	case call.Begin:
		c.tx = &mesh.Tx{Session: c.Session}
		w.step(at, c.tx.Begin(w.op))
	case call.Look != "":
		w.step(at, c.tx.Look(w.op, strings.Split(call.Look, "")...))
	case call.Commit != "":
		for _, k := range strings.Split(call.Commit, "") {
			c.tx.Set(mesh.Mut{Key: k, Value: fmt.Appendf(nil, "t%d", i), Supersedes: c.saw[k]})
		}
		w.step(at, c.tx.Commit(w.op))
	case call.Put != "":
		w.step(at, c.Put(w.op, mesh.Mut{Key: call.Put, Value: fmt.Appendf(nil, "v%d.%d", i, c.next), Delete: call.Delete, Supersedes: c.saw[call.Put]}))
	case len(call.Read) == 1:
		w.step(at, c.Read(w.op, call.Read))
	default:
		w.step(at, c.ReadMany(w.op, strings.Split(call.Read, "")...))
	}
}

func (c *meshSession) know(past causes) {
	c.past = maps.Clone(c.past)
	maps.Copy(c.past, past)
}

func (w *meshWorld) replied(r mesh.Reply) {
	i := slices.IndexFunc(w.sessions, func(c *meshSession) bool { return c.busy && c.op == r.Op })
	if i < 0 {
		return // what was asked before all began
	}
	c := w.sessions[i]
	c.busy = false
	if r.Outcome == mesh.Busy || r.Outcome == mesh.Behind || r.Outcome == mesh.Expelled { // it asks again, or another
		c.next--
		return
	}
	if r.Outcome == mesh.Stale { // the workflow ends
		c.next = len(w.scope.Sessions[i])
		return
	}
	if r.Outcome != mesh.Done {
		w.fail(fmt.Errorf("session %d is answered %d", i, r.Outcome))
		return
	}
	switch {
	case c.call.Begin:
		c.tx.Began(r)
		return
	case c.call.Look != "":
		keys := strings.Split(c.call.Look, "")
		items, _ := c.tx.Looked(r, keys...)
		w.fail(w.store.Snapshot(c.tx))
		if w.scope.Concurrent {
			for i, k := range keys {
				c.saw[k] = items[i].Dots()
				w.fail(w.store.Same(k, items[i], func(d mesh.Dot) bool { return c.tx.At.Has(d) || c.tx.Knows(d) && !c.tx.Deps.Covers(d) }))
			}
		}
		return
	case c.call.Commit != "":
		c.Session = c.tx.Session
		for d, past := range w.causes {
			if c.tx.At.Has(d) {
				c.know(past)
			}
		}
	}
	keys := strings.Split(c.call.Read, "")
	if c.call.Read == "" {
		keys = nil
	}
	items := c.Took(r, keys...)
	if r.Write != nil {
		own := maps.Clone(c.past)
		own[r.Write.Dot] = r.Write.Stamp
		w.causes[r.Write.Dot], c.past = own, own
	}
	w.judge(i, c, keys, items)
}

// judge compares what a session has read with what it knows of, directly or through what
// it has read now: all of it together must be the newest of one causal past.
func (w *meshWorld) judge(i int, c *meshSession, keys []string, items []mesh.Item) {
	if w.scope.Concurrent {
		for k, it := range items {
			c.saw[keys[k]] = it.Dots()
			view := w.servers[c.at].View()
			w.fail(w.store.Same(keys[k], it, func(d mesh.Dot) bool { return c.Knows(d) || view.Retired(d.Incarnation) }))
		}
		return
	}
	for k, it := range items {
		d, found := w.store.Find(keys[k], it.Stamp)
		switch {
		case it.Stamp.Incarnation == 0: // never written, or collected
		case !found:
			w.fail(fmt.Errorf("session %d reads %s = %v, which nobody wrote", i, keys[k], it))
		case w.causes[d] == nil: // its writer has not heard of it
			w.causes[d] = w.guess(d)
			c.know(w.causes[d])
		default:
			c.know(w.causes[d])
		}
	}
	for k, it := range items {
		for d, stamp := range c.past {
			if w.store.Wrote(d, keys[k]) && it.Stamp.Less(stamp) {
				w.fail(fmt.Errorf("session %d reads %s = %v, and knows of %v", i, keys[k], it, d))
			}
		}
	}
}

// guess is what the session knew that is writing d.
func (w *meshWorld) guess(d mesh.Dot) causes {
	for _, r := range w.reqs {
		if p, ok := r.out.(mesh.Persist); ok && p.Write.Dot == d {
			for i, c := range w.sessions {
				if c.busy && string(p.Write.Muts[0].Value) == fmt.Sprintf("v%d.%d", i, c.next) {
					own := maps.Clone(c.past)
					own[d] = p.Write.Stamp
					return own
				}
			}
		}
	}
	return causes{}
}

func (w *meshWorld) step(i int, in mesh.Input) {
	if w.servers[i] == nil || w.down[i] {
		return
	}
	outs := w.servers[i].Step(0, in, nil)
	w.servers[i].Check()
	for _, out := range outs {
		switch out := out.(type) {
		case mesh.Poll:
			if w.scope.Triggers > 0 {
				w.reqs = append(w.reqs, &meshRequest{server: i, out: out})
			}
		case mesh.Load, mesh.Fetch, mesh.Persist, mesh.Recover, mesh.Claim, mesh.Flush:
			if f, ok := out.(mesh.Flush); ok {
				w.stable(f)
			}
			w.reqs = append(w.reqs, &meshRequest{server: i, out: out})
		case mesh.Send:
			switch m := out.Message.(type) {
			case mesh.Resync:
				w.step(int(out.To)-1, mesh.Received{Message: m})
			case mesh.Snapshot:
				opt := w.options(out.To)
				opt.Copy = &m
				w.servers[out.To-1] = mesh.New(opt)
				w.relink()
			default:
				w.links[i] = append(slices.Clone(w.links[i]), m)
			}
		case mesh.Retire:
			w.retire(out.Incarnation)
		case mesh.Release:
			w.store.Release(out.Incarnation)
		case mesh.Truncate:
			if w.scope.Async && out.Incarnation != mesh.External {
				w.store.Trim(out.Incarnation, out.Upto)
				continue
			}
			w.store.Truncate(out.Incarnation, out.Upto)
		case mesh.CollectTombstones:
			w.store.CollectTombstones(out.Before)
		case mesh.Reply:
			w.replied(out)
		}
	}
	w.checkRing()
	w.fail(w.store.Judge(w.servers[i]))
}

func (w *meshWorld) fail(err error) {
	if w.err == nil {
		w.err = err
	}
}

func (w *meshWorld) arrive(i int) {
	m := w.links[i][0]
	w.links[i] = w.links[i][1:]
	w.step(w.after(i), mesh.Received{Message: m})
}

func (w *meshWorld) drop(r *meshRequest) {
	w.reqs = slices.DeleteFunc(slices.Clone(w.reqs), func(o *meshRequest) bool { return o == r })
}

// progress lets the store do what it was asked, or its answer arrive.
func (w *meshWorld) progress(r *meshRequest) {
	if r.answer != nil {
		w.drop(r)
		w.step(r.server, r.answer)
		return
	}
	switch out := r.out.(type) {
	case mesh.Load:
		r.answer = mesh.Loaded{Call: out.Call, Row: w.store.Load(out.Key)}
	case mesh.Fetch:
		r.answer = mesh.Fetched{Call: out.Call, Writes: w.store.Fetch(out.Dots)}
	case mesh.Recover: // their leases have ended
		for _, o := range out.Incarnations {
			w.stop(int(o) - 1)
		}
		r.answer = mesh.Recovered{View: out.View, Writes: w.store.Recover(out.Incarnations), Back: w.store.Back(out.Incarnations)}
	case mesh.Poll:
		r.answer = mesh.Polled{View: out.View, Writes: w.store.Poll(out.After)}
	case mesh.Persist:
		r.answer = mesh.Persisted{Call: out.Call, Status: w.persist(out)}
	default:
		r.answer = w.merge(out)
	}
}

// Choices implements World.
func (w *meshWorld) Choices() (out []string) {
	for _, c := range w.choices() {
		out = append(out, c.name.String())
	}
	return out
}

// Choose implements World.
func (w *meshWorld) Choose(i int) error {
	w.choices()[i].do()
	if w.err == nil && len(w.choices()) == 0 {
		w.rest()
	}
	return w.err
}

// rest is when nothing more can happen: some stability rounds later everything must be everywhere.
func (w *meshWorld) rest() {
	for range 6 * 8 {
		for i, m := range w.servers {
			if m != nil && !w.down[i] && m.View().Number < w.view.Number {
				w.tell(i)
			}
		}
		for _, o := range w.view.Departed {
			if w.scope.Async && len(w.store.Back([]mesh.Incarnation{o})) == 0 {
				w.bring(o, int(w.view.Ring[0])-1)
			}
		}
		w.step(int(w.view.Ring[0])-1, mesh.Beat{})
		for i := 0; i < len(w.links); {
			if len(w.links[i]) > 0 {
				w.arrive(i)
				i = 0
				continue
			}
			i++
		}
		for len(w.reqs) > 0 {
			w.progress(w.reqs[0])
		}
	}
	first := w.servers[w.view.Ring[0]-1]
	for _, o := range w.view.Ring {
		m := w.servers[o-1]
		if !m.Visible().Equal(first.Received()) || w.store.Journal() > 0 || !m.Idle() || len(w.view.Departed) > 0 {
			w.fail(fmt.Errorf("all is at rest, and server %d shows %v of %v in %+v; the journal keeps %d writes", o, m.Visible(), first.Received(), w.view, w.store.Journal()))
		}
		w.fail(w.store.Agree(m))
	}
	for i, c := range w.sessions {
		if left := w.scope.Sessions[i][c.next:]; c.busy || len(left) > 0 && (left[0].At < 0 || !w.down[left[0].At]) {
			w.fail(fmt.Errorf("all is at rest, and session %d waits", i))
		}
	}
}

// Dump implements World.
func (w *meshWorld) Dump() string {
	var b strings.Builder
	fmt.Fprintln(&b, w.view)
	for i, m := range w.servers {
		if m != nil && !w.down[i] {
			fmt.Fprintf(&b, "%d %sto the next: %v %v %d\n", m.View().Number, m.Dump(), w.links[i], w.broken[i], w.linked[i])
		}
	}
	b.WriteString(w.store.Dump())
	for _, r := range w.reqs {
		fmt.Fprintf(&b, "%d %T %v %+v\n", r.server, r.out, r.out, r.answer)
	}
	for _, c := range w.sessions {
		past := slices.SortedFunc(maps.Keys(c.past), func(a, b mesh.Dot) int { return strings.Compare(a.String(), b.String()) })
		fmt.Fprintf(&b, "session %d %v %v %v %v\n", c.next, c.busy, &c.Session, past, c.saw)
		if c.tx != nil {
			fmt.Fprintf(&b, "transaction %v %v %v\n", &c.tx.Session, c.tx.At.Set, c.tx.Seen)
		}
	}
	l := w.left
	fmt.Fprintln(&b, l.Beats, l.Evicts, l.Breaks, l.Losses, l.Crashes, l.Suspects, l.Joins, l.Triggers)
	return b.String()
}
