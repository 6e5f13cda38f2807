package explore

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/freshet-cache/freshet/linear/clink"
	"github.com/freshet-cache/freshet/shard/lease"
	"github.com/freshet-cache/freshet/sim"
	"github.com/freshet-cache/freshet/ticks"
)

// Linear is a scope for clink: its nodes and one key, the calls clients make in
// this order, and how often each fault may happen.
type Linear struct {
	Nodes     int
	Calls     []Call
	Moves     int  // the owner is recalled, and another node owns the key
	Cuts      int  // the owner's slice is cut or joined: the key goes on under another lease
	Lapses    int  // the owner's lease ends unnoticed, and another node owns the key
	Losses    int  // an answer of the store is lost; the request may still arrive
	Truncates int  // the store loses its guards
	Abandons  int  // a caller's deadline ends
	Warm      bool // the owner offers its entries when the key moves
}

// Call is one client's call, to the key "k" unless Key says otherwise. Node -1
// may be any.
type Call struct {
	Node int
	Kind sim.Kind
	Key  string
}

const theKey = "k"

func (c Call) key() string { return cmp.Or(c.Key, theKey) }

// forever is a lease that is not to lapse by itself in a scope.
const forever ticks.Tick = 1 << 40

// linear is the world of a scope.
type linear struct {
	scope  Linear
	left   Linear // what may still happen
	now    ticks.Tick
	store  *sim.Store
	judge  *sim.Judge
	nodes  []*linearNode
	msgs   []*message
	owner  int
	gen    lease.Gen
	held   []lease.Gen // by the owner, in this period
	after  lease.Gen   // whose entries the next owner may take over
	begun  int
	belief map[string]string
	err    error
}

type linearNode struct {
	pod        *clink.Pod
	entries    map[string]clink.Keep
	until      map[lease.Gen]ticks.Tick // what the runtime's handles say
	successors map[lease.Gen]lease.Gen  // under which lease goes on what is kept
	untold     []lease.Gen              // lapsed, and the node has not noticed
	calls      map[clink.Op]Call
}

// message is a request to the store, from when it is sent to when its answer is
// delivered.
type message struct {
	node     int
	out      clink.Output
	admitted int         // a Store whose guards were checked
	id       clink.ID    // a transaction's
	muts     []clink.Mut // what it will write, once it has read
	answer   clink.Input // set when the store is done with it
	orphan   bool        // nobody waits for the answer
	copied   bool        // a replica's machine waits for it, not the pod
}

// Begin returns the first state: node 0 owns the key and has guarded it.
func (s Linear) Begin() World {
	w := &linear{scope: s, left: s, store: sim.NewStore(), judge: sim.NewJudge(), belief: map[string]string{}}
	for i := range s.Nodes {
		n := &linearNode{entries: map[string]clink.Keep{}, until: map[lease.Gen]ticks.Tick{}, successors: map[lease.Gen]lease.Gen{}, calls: map[clink.Op]Call{}}
		n.pod = clink.NewPod(clink.Options{Incarnation: uint64(i + 1), Entry: func(k string) (clink.Keep, bool) { e, ok := n.entries[k]; e.Gen = n.stands(e.Gen); return e, ok }})
		w.nodes = append(w.nodes, n)
	}
	w.give(0)
	for len(w.msgs) > 0 { // the first guard stands before anything happens
		w.progress(w.msgs[0])
	}
	return w
}

// Choices implements World.
func (w *linear) Choices() (out []string) {
	for _, c := range w.choices() {
		out = append(out, c.name.String())
	}
	return out
}

// Choose implements World.
func (w *linear) Choose(i int) error {
	w.choices()[i].do()
	if w.err == nil {
		w.err = w.latest()
	}
	return w.err
}

func (w *linear) choices() (out []choice) {
	add := func(name text, do func()) { out = append(out, choice{name, do}) }
	for _, m := range w.msgs {
		if m.answer == nil || !m.orphan {
			add(says("%v", m), func() { w.progress(m) })
		}
		if w.left.Losses > 0 && !m.orphan && m.out != nil {
			add(says("node %d hears no answer to %s", m.node, shown{m.out}), func() { w.lose(m) })
		}
	}
	if w.begun < len(w.scope.Calls) {
		c := w.scope.Calls[w.begun]
		for i := range w.nodes {
			if c.Node < 0 || c.Node == i {
				add(says("call %d: %v %s at node %d", w.begun, c.Kind, c.key(), i), func() { w.call(i, c) })
			}
		}
	}
	for i := range w.nodes {
		if i != w.owner && w.left.Moves > 0 {
			add(says("the key moves from node %d to %d", w.owner, i), func() { w.move(i) })
		}
		if i != w.owner && w.left.Lapses > 0 {
			add(says("node %d lapses unnoticed, the key goes to %d", w.owner, i), func() { w.lapse(i) })
		}
		if i == w.owner && w.left.Cuts > 0 {
			add(says("the slice of node %d is cut", i), w.cut)
		}
		if n := w.nodes[i]; len(n.untold) > 0 {
			add(says("node %d notices that its lease lapsed", i), func() { w.tell(i) })
		}
		for _, op := range slices.Sorted(maps.Keys(w.nodes[i].calls)) {
			if w.left.Abandons > 0 && w.nodes[i].calls[op].Kind != sim.Get {
				add(says("the caller of %d at node %d gives up", op, i), func() { w.left.Abandons--; w.step(i, clink.Abandoned{Op: op}) })
			}
		}
	}
	if w.left.Truncates > 0 {
		add(says("the store loses its guards"), func() { w.left.Truncates--; w.store.Forget(theKey) })
	}
	return out
}

// step gives a node an input and carries out what it asks.
func (w *linear) step(i int, in clink.Input) {
	n := w.nodes[i]
	outs := n.pod.Step(w.now, in, nil)
	n.pod.Check()
	for _, out := range outs {
		switch out := out.(type) {
		case clink.ReadSplits:
			w.step(i, clink.Splits{Call: out.Call, Points: w.store.Points()})
		case clink.SetGuard, clink.Load, clink.Store, clink.Locked:
			w.msgs = append(w.msgs, &message{node: i, out: out})
		case clink.Keep:
			n.entries[out.Key] = out
		case clink.Drop:
			delete(n.entries, out.Key)
		case clink.Retag:
			n.successors[out.Old] = out.New
		case clink.Evaluate:
			w.decide(i, out)
		case clink.Reply:
			delete(n.calls, out.Op)
			if out.Outcome == clink.Lapsed { // its client may begin again
				out.Outcome = clink.NotSent
			}
			w.fail(w.judge.Answered(int(out.Op), out.Outcome, out.Row))
		}
	}
}

func (w *linear) fail(err error) {
	if w.err == nil {
		w.err = err
	}
}

// decide answers Evaluate as the call's kind says.
func (w *linear) decide(i int, e clink.Evaluate) {
	row, in := e.Rows[0], clink.Evaluated{Op: e.Op}
	value := fmt.Sprintf("v%d", e.Op)
	if c := w.nodes[i].calls[e.Op]; c.Kind == sim.Append || !row.Exists {
		in.Muts = []clink.Mut{{Key: c.key(), Value: []byte(value)}}
		w.belief[value] = "\x00absent"
		if row.Exists {
			w.belief[value] = string(row.Value)
		}
	}
	w.step(i, in)
}

// call lets a client begin its next call.
func (w *linear) call(i int, c Call) {
	id, n := w.begun, w.nodes[i]
	w.begun++
	value := fmt.Sprintf("v%d", id)
	op := clink.Op(id)
	w.judge.Began(id, i, c.Kind, value, c.key())
	n.calls[op] = c
	switch c.Kind {
	case sim.Get:
		w.step(i, clink.Read{Op: op, Key: c.key()})
	case sim.Put:
		w.step(i, clink.Write{Op: op, Muts: []clink.Mut{{Key: c.key(), Value: []byte(value)}}})
	case sim.Del:
		w.step(i, clink.Write{Op: op, Muts: []clink.Mut{{Key: c.key(), Delete: true}}})
	case sim.Transact:
		w.step(i, clink.Lock{Op: op, ID: transaction(op), Keys: []string{c.key()}})
	default:
		w.step(i, clink.Update{Op: op, Keys: []string{c.key()}})
	}
}

// transaction is the id of a transaction.
func transaction(op clink.Op) clink.ID { return clink.ID{0: 0xff, 15: byte(op)} }

// transact reads the stored value, and then decides what to write; the guard is looked at
// when it commits.
func (w *linear) transact(m *message, out clink.Locked) {
	c := w.nodes[m.node].calls[out.Op] // zero if the caller has gone: but then nothing was locked
	value := fmt.Sprintf("v%d", out.Op)
	w.belief[value] = w.judge.Current(c.key())
	m.id, m.muts = transaction(out.Op), []clink.Mut{{Key: c.key(), Value: []byte(value), Guard: out.Guards[0]}}
}

// progress takes a message one step further: to the store, through it, or back.
func (w *linear) progress(m *message) {
	switch {
	case m.answer != nil:
		w.forget(m)
		w.step(m.node, m.answer)
		return
	}
	switch out := m.out.(type) {
	case clink.SetGuard:
		m.answer = clink.Guarded{Call: out.Call, Status: w.store.SetGuard(out.Range, out.Token)}
	case clink.Load:
		m.answer = clink.Loaded{Call: out.Call, Row: w.store.Load(0, out.Key)}
	case clink.Store:
		w.commit(m, out)
	case clink.Locked:
		if m.muts == nil {
			w.transact(m, out)
			return
		}
		w.commit(m, clink.Store{Call: out.Call, ID: m.id, Muts: m.muts})
	}
	if m.orphan {
		w.forget(m)
	}
}

// commit writes at once what the guards let pass: a SetGuard waits for it anyhow, so
// nothing can come in between.
func (w *linear) commit(m *message, out clink.Store) {
	admitted, status := w.store.Admit(out.Muts)
	if m.admitted = admitted; status != clink.OK {
		m.answer = clink.Stored{Call: out.Call, Status: status}
		return
	}
	for _, mut := range out.Muts {
		if b, ok := w.belief[string(mut.Value)]; ok && !mut.Delete {
			w.fail(w.judge.Atomic(mut.Key, string(mut.Value), b))
		}
	}
	status, stamps := w.store.Apply(0, m.admitted, out.ID, out.Muts)
	for _, mut := range out.Muts {
		w.fail(w.judge.Changed(mut.Key, string(mut.Value), !mut.Delete))
	}
	m.answer = clink.Stored{Call: out.Call, Status: status, Stamps: stamps}
}

func (w *linear) forget(m *message) {
	for i := range w.msgs {
		if w.msgs[i] == m {
			w.msgs = append(w.msgs[:i:i], w.msgs[i+1:]...)
			return
		}
	}
}

// lose tells a node that there was no answer. What has not reached the store may
// still do so, or never.
func (w *linear) lose(m *message) {
	w.left.Losses--
	if m.orphan = true; m.answer != nil {
		w.forget(m)
	}
	switch out := m.out.(type) {
	case clink.SetGuard:
		w.step(m.node, clink.Guarded{Call: out.Call, Status: clink.StatusUnknown})
	case clink.Load:
		w.forget(m)
		w.step(m.node, clink.Loaded{Call: out.Call, Status: clink.StatusUnknown})
	case clink.Store:
		w.step(m.node, clink.Stored{Call: out.Call, Status: clink.StatusUnknown})
	case clink.Locked:
		w.step(m.node, clink.Stored{Call: out.Call, Status: clink.StatusUnknown})
	}
}

// give begins an ownership period of node i.
func (w *linear) give(i int) {
	w.owner = i
	w.gen++
	until := w.now + forever
	w.nodes[i].until[w.gen] = until
	w.held = append(w.held, w.gen)
	w.step(i, clink.Acquired{Lease: lease.Lease{Gen: w.gen}, Until: until, After: w.after})
}

// end revokes what node i holds; the runtime's handle first, as the shard does.
func (w *linear) end(i int, gen lease.Gen) {
	delete(w.nodes[i].until, gen)
	w.step(i, clink.Revoked{Gen: gen})
}

func (w *linear) move(to int) {
	w.left.Moves--
	from, gen := w.nodes[w.owner], w.gen
	for _, g := range w.held {
		w.end(w.owner, g)
	}
	w.held, w.after = nil, gen
	w.give(to)
	w.after = 0
	for _, key := range slices.Sorted(maps.Keys(from.entries)) {
		if e := from.entries[key]; w.scope.Warm && from.stands(e.Gen) == gen {
			w.msgs = append(w.msgs, &message{node: to, answer: clink.Offered{After: gen, Key: key, Row: e.Row}})
		}
	}
}

// cut lets the owner's lease go on under another generation.
func (w *linear) cut() {
	w.left.Cuts--
	w.give(w.owner)
}

// stands is the lease that what is kept under gen stands under by now.
func (n *linearNode) stands(gen lease.Gen) lease.Gen {
	for n.successors[gen] != 0 {
		gen = n.successors[gen]
	}
	return gen
}

// lapse lets so much time pass that the owner's lease is over.
func (w *linear) lapse(to int) {
	w.left.Lapses--
	old := w.nodes[w.owner]
	old.untold = append(old.untold, w.held...)
	w.held = nil
	w.now += 2 * forever
	w.give(to)
}

func (w *linear) tell(i int) {
	n := w.nodes[i]
	gen := n.untold[0]
	n.untold = n.untold[1:]
	w.end(i, gen)
}

// latest is the Latest State Invariant: every entry that would be served now
// equals the store.
func (w *linear) latest() error {
	for i, n := range w.nodes {
		for _, key := range slices.Sorted(maps.Keys(n.entries)) {
			e := n.entries[key]
			if clink.Serves(w.now, n.until[n.stands(e.Gen)], e.Until) {
				if err := w.judge.Hit(i, key, string(e.Row.Value), e.Row.Exists); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// Dump implements World.
func (w *linear) Dump() string {
	var b strings.Builder
	fmt.Fprintln(&b, w.now, w.owner, w.gen, w.begun, w.left.Moves, w.left.Cuts, w.held, w.left.Lapses, w.left.Losses, w.left.Truncates, w.left.Abandons, w.belief)
	b.WriteString(w.store.Dump())
	b.WriteString(w.judge.Dump())
	for _, n := range w.nodes {
		b.WriteString(n.pod.Dump())
		fmt.Fprintln(&b, n.until, n.successors, n.untold, n.calls)
		for _, key := range slices.Sorted(maps.Keys(n.entries)) {
			e := n.entries[key]
			fmt.Fprintln(&b, key, e.Gen, e.Row.Exists, string(e.Row.Value))
		}
	}
	for _, m := range w.msgs {
		fmt.Fprintf(&b, "%d %T %v %d %v %v %v\n", m.node, m.out, m.out, m.admitted, m.muts, m.answer, m.orphan)
	}
	return b.String()
}

func (m *message) String() string {
	switch {
	case m.out == nil:
		return fmt.Sprintf("node %d is offered %q", m.node, m.answer.(clink.Offered).Row.Value)
	case m.answer != nil:
		return fmt.Sprintf("node %d hears the answer to %s", m.node, shown{m.out})
	case m.orphan:
		return fmt.Sprintf("late, node %d's %s arrives", m.node, shown{m.out})
	}
	return fmt.Sprintf("node %d's %s arrives", m.node, shown{m.out})
}

// shown prints a request.
type shown struct{ clink.Output }

func (s shown) String() string {
	switch out := s.Output.(type) {
	case clink.SetGuard:
		return fmt.Sprintf("guard %v", out.Token)
	case clink.Load:
		return fmt.Sprintf("load %d", out.Call)
	case clink.Locked:
		return fmt.Sprintf("transaction %d", out.Op)
	case clink.Store:
		return fmt.Sprintf("store %q under %v", out.Muts[0].Value, out.Muts[0].Guard)
	}
	return fmt.Sprintf("%T", s.Output)
}
