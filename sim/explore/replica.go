package explore

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/freshet-cache/freshet/linear/clink"
	"github.com/freshet-cache/freshet/linear/replica"
	"github.com/freshet-cache/freshet/shard/lease"
	"github.com/freshet-cache/freshet/sim"
)

// Replicas is a scope for linear/replica together with clink: one key that all nodes
// share, node 0 as its primary at first, the calls clients make in this order, and how
// often each fault may happen. Messages between nodes arrive in any order.
type Replicas struct {
	Nodes   int
	Calls   []Call
	Losses  int  // an answer of the store to the primary is lost; the request may still arrive
	Drops   int  // a message between members is lost
	Copies  int  // a message between members arrives, and will again
	Beats   int  // the primary says again what was not confirmed
	Changes int  // the group ends, member by member, and another begins with the next node as primary
	Late    bool // the replicas have not got their leases yet when all begins
}

// sharing is the world of a scope.
type sharing struct {
	scope Replicas
	left  Replicas // what may still happen
	store *sim.Store
	judge *sim.Judge
	nodes []*sharer
	reqs  []*message
	mail  []replica.Send
	gen   lease.Gen
	lead  int   // the primary of gen
	ends  []int // who has not given gen up, since its end was decided
	joins []int // who has not got gen
	begun int
	err   error
}

// sharer is a node with its machines and what they keep.
type sharer struct {
	pod     *clink.Pod
	primary *replica.Primary
	replica *replica.Replica
	held    lease.Gen // 0 if none
	entry   *clink.Keep
	copied  *replica.Keep
	waits   map[replica.Call]clink.Output
}

// Begin returns the first state: every node has its lease, or the primary alone, whose
// guard stands; nobody has heard that the key is cacheable.
func (s Replicas) Begin() World {
	w := &sharing{scope: s, left: s, store: sim.NewStore(), judge: sim.NewJudge(), lead: -1}
	for i := range s.Nodes {
		n := &sharer{primary: replica.NewPrimary(), waits: map[replica.Call]clink.Output{}}
		n.replica = replica.NewReplica(replica.Options{Node: member(i).Node})
		n.pod = clink.NewPod(clink.Options{Incarnation: uint64(i + 1), Entry: func(string) (clink.Keep, bool) {
			if n.entry == nil {
				return clink.Keep{}, false
			}
			return *n.entry, true
		}})
		w.nodes = append(w.nodes, n)
	}
	w.next()
	for i := range w.nodes {
		if i == w.lead || !s.Late {
			w.join(i)
		}
	}
	for len(w.reqs) > 0 {
		w.progress(w.reqs[0])
	}
	w.mail = slices.DeleteFunc(w.mail, func(m replica.Send) bool { _, ok := m.Message.(replica.Report); return ok })
	return w
}

func member(i int) lease.GroupMember { return lease.GroupMember{Node: fmt.Sprint("n", i)} }

// next begins a generation, which nobody has yet.
func (w *sharing) next() {
	w.gen++
	w.lead = (w.lead + 1) % len(w.nodes)
	for i := range w.nodes {
		w.joins = append(w.joins, i)
	}
}

// join gives a node its lease of the generation.
func (w *sharing) join(i int) {
	w.joins = slices.DeleteFunc(w.joins, func(j int) bool { return j == i })
	group := lease.Group{member(w.lead)}
	for j := range w.nodes {
		if j != w.lead {
			group = append(group, member(j))
		}
	}
	n, l := w.nodes[i], lease.Lease{Range: lease.Point(theKey), Gen: w.gen}
	if n.held = w.gen; i != w.lead {
		w.replicas(i, n.replica.Step(1, replica.Acquired{Lease: l, Group: group}, nil))
		return
	}
	w.primary(i, n.primary.Step(replica.Acquired{Lease: l, Group: group}, nil))
	w.step(i, clink.Acquired{Lease: l, Until: forever})
}

// leave has a node give the generation up.
func (w *sharing) leave(i int) {
	w.ends = slices.DeleteFunc(w.ends, func(j int) bool { return j == i })
	n := w.nodes[i]
	if n.held = 0; i != w.lead {
		w.replicas(i, n.replica.Step(1, replica.Revoked{Gen: w.gen}, nil))
	} else {
		w.step(i, clink.Revoked{Gen: w.gen})
		w.primary(i, n.primary.Step(replica.Revoked{Gen: w.gen}, nil))
	}
	if len(w.ends) == 0 {
		w.next()
	}
}

func (w *sharing) choices() (out []choice) {
	add := func(name text, do func()) { out = append(out, choice{name, do}) }
	for _, m := range w.reqs {
		if m.answer == nil || !m.orphan {
			add(says("%v", m), func() { w.progress(m) })
		}
		if _, store := m.out.(clink.Store); w.left.Losses > 0 && store && !m.orphan {
			add(says("node %d hears no answer to %s", m.node, shown{m.out}), func() { w.lose(m) })
		}
	}
	for i, m := range w.mail {
		name := says("%T%v", m.Message, m.Message)
		add(says("%s arrives at %s", name, m.To.Node), func() { w.drop(i); w.hear(m) })
		if w.left.Drops > 0 {
			add(says("%s to %s is lost", name, m.To.Node), func() { w.left.Drops--; w.drop(i) })
		}
		if w.left.Copies > 0 {
			add(says("%s arrives at %s, and will again", name, m.To.Node), func() { w.left.Copies--; w.hear(m) })
		}
	}
	if w.begun < len(w.scope.Calls) {
		c := w.scope.Calls[w.begun]
		for i := range w.nodes {
			if c.Node == i || c.Node < 0 && (c.Kind == sim.Get || i == w.lead) {
				add(says("call %d: %v at node %d", w.begun, c.Kind, i), func() { w.call(i, c) })
			}
		}
	}
	for _, i := range w.joins {
		add(says("node %d acquires generation %d", i, w.gen), func() { w.join(i) })
	}
	for _, i := range w.ends {
		add(says("node %d gives generation %d up", i, w.gen), func() { w.leave(i) })
	}
	if w.left.Changes > 0 && len(w.ends)+len(w.joins) == 0 {
		add(says("the group is to end"), func() {
			w.left.Changes--
			for i := range w.nodes {
				w.ends = append(w.ends, i)
			}
		})
	}
	if w.left.Beats > 0 {
		add(says("the primary repeats itself"), func() {
			w.left.Beats--
			w.primary(w.lead, w.nodes[w.lead].primary.Step(replica.Beat{}, nil))
		})
	}
	return out
}

func (w *sharing) drop(i int) { w.mail = slices.Delete(slices.Clone(w.mail), i, i+1) }

func (w *sharing) hear(m replica.Send) {
	i := slices.IndexFunc(w.nodes, func(n *sharer) bool { return member(slices.Index(w.nodes, n)) == m.To })
	if _, ok := m.Message.(replica.Report); ok {
		w.primary(i, w.nodes[i].primary.Step(replica.Received{Message: m.Message}, nil))
	} else {
		w.replicas(i, w.nodes[i].replica.Step(1, replica.Received{Message: m.Message}, nil))
	}
}

// call lets a client begin its next call.
func (w *sharing) call(i int, c Call) {
	id, op := w.begun, clink.Op(w.begun)
	w.begun++
	value := fmt.Sprintf("v%d", id)
	w.judge.Began(id, i, c.Kind, value, theKey)
	switch n := w.nodes[i]; {
	case c.Kind != sim.Get:
		w.step(i, clink.Write{Op: op, Muts: []clink.Mut{{Key: theKey, Value: []byte(value)}}})
	case n.held != 0 && i != w.lead && n.copied != nil && n.copied.Gen == n.held:
		w.fail(w.judge.Answered(id, clink.Done, clink.Row{Exists: n.copied.Row.Exists, Value: n.copied.Row.Value}))
	case n.held != 0 && i != w.lead:
		w.replicas(i, n.replica.Step(1, replica.Read{Op: replica.Op(op), Key: theKey}, nil))
	default:
		w.step(i, clink.Read{Op: op, Key: theKey})
	}
}

// step steps a pod, with its primary's machine before it, and carries out what it asks.
func (w *sharing) step(i int, in clink.Input) {
	n := w.nodes[i]
	switch in := in.(type) {
	case clink.Guarded:
		w.primary(i, n.primary.Step(replica.Guarded{Call: replica.Call(in.Call), OK: in.Status == clink.OK}, nil))
	case clink.Stored:
		w.primary(i, n.primary.Step(replica.Written{Call: replica.Call(in.Call), Known: in.Status != clink.StatusUnknown}, nil))
	}
	w.pod(i, in)
}

func (w *sharing) pod(i int, in clink.Input) {
	n := w.nodes[i]
	outs := n.pod.Step(1, in, nil)
	n.pod.Check()
	for _, out := range outs {
		switch out := out.(type) {
		case clink.ReadSplits:
			w.step(i, clink.Splits{Call: out.Call, Points: w.store.Points()})
		case clink.SetGuard:
			w.primary(i, n.primary.Step(replica.Guarding{Call: replica.Call(out.Call), Range: out.Range}, nil))
			w.reqs = append(w.reqs, &message{node: i, out: out})
		case clink.Load:
			w.reqs = append(w.reqs, &message{node: i, out: out})
		case clink.Store:
			n.waits[replica.Call(out.Call)] = out
			w.primary(i, n.primary.Step(replica.Writing{Call: replica.Call(out.Call), Keys: []string{theKey}}, nil))
		case clink.Keep:
			n.entry = &out
			row := replica.Row{Exists: out.Row.Exists, Value: out.Row.Value}
			w.primary(i, n.primary.Step(replica.Kept{Gen: out.Gen, Key: out.Key, Row: row}, nil))
		case clink.Drop:
			n.entry = nil
		case clink.Reply:
			w.fail(w.judge.Answered(int(out.Op), out.Outcome, out.Row))
		}
	}
}

func (w *sharing) primary(i int, outs []replica.Output) {
	n := w.nodes[i]
	n.primary.Check()
	for _, out := range outs {
		switch out := out.(type) {
		case replica.Send:
			w.mail = append(w.mail, out)
		case replica.Pass:
			w.reqs = append(w.reqs, &message{node: i, out: n.waits[out.Call]})
			delete(n.waits, out.Call)
		case replica.Refuse:
			delete(n.waits, out.Call)
			w.pod(i, clink.Stored{Call: clink.Call(out.Call), Status: clink.Mismatch})
		}
	}
}

func (w *sharing) replicas(i int, outs []replica.Output) {
	n := w.nodes[i]
	n.replica.Check()
	for _, out := range outs {
		switch out := out.(type) {
		case replica.Send:
			w.mail = append(w.mail, out)
		case replica.Load: // the pod's and the replica's calls differ by their type alone
			w.reqs = append(w.reqs, &message{node: i, out: clink.Load{Call: clink.Call(out.Call), Key: theKey}, copied: true})
		case replica.Keep:
			n.copied = &out
		case replica.Drop:
			n.copied = nil
		case replica.Reply:
			w.fail(w.judge.Answered(int(out.Op), clink.Done, clink.Row{Exists: out.Row.Exists, Value: out.Row.Value}))
		}
	}
}

func (w *sharing) fail(err error) {
	if w.err == nil {
		w.err = err
	}
}

// progress takes a request one step further: to the store, or back.
func (w *sharing) progress(m *message) {
	if m.answer != nil {
		w.forget(m)
		if in, ok := m.answer.(clink.Loaded); ok && m.copied {
			row := replica.Row{Exists: in.Row.Exists, Value: in.Row.Value}
			w.replicas(m.node, w.nodes[m.node].replica.Step(1, replica.Loaded{Call: replica.Call(in.Call), Row: row, OK: true}, nil))
			return
		}
		w.step(m.node, m.answer)
		return
	}
	switch out := m.out.(type) {
	case clink.SetGuard:
		m.answer = clink.Guarded{Call: out.Call, Status: w.store.SetGuard(out.Range, out.Token)}
	case clink.Load:
		m.answer = clink.Loaded{Call: out.Call, Row: w.store.Load(0, out.Key)}
	case clink.Store:
		admitted, status := w.store.Admit(out.Muts)
		var stamps []clink.Stamp
		if status == clink.OK { // a SetGuard waits for it anyhow, so nothing can come in between
			status, stamps = w.store.Apply(0, admitted, out.ID, out.Muts)
			w.fail(w.judge.Changed(theKey, string(out.Muts[0].Value), true))
		}
		m.answer = clink.Stored{Call: out.Call, Status: status, Stamps: stamps}
	}
	if m.orphan {
		w.forget(m)
	}
}

func (w *sharing) forget(m *message) {
	w.reqs = slices.DeleteFunc(slices.Clone(w.reqs), func(o *message) bool { return o == m })
}

// lose tells a node that its write had no answer; what has not reached the store may
// still do so, or never.
func (w *sharing) lose(m *message) {
	w.left.Losses--
	if m.orphan = true; m.answer != nil {
		w.forget(m)
	}
	w.step(m.node, clink.Stored{Call: m.out.(clink.Store).Call, Status: clink.StatusUnknown})
}

// Choices implements World.
func (w *sharing) Choices() (out []string) {
	for _, c := range w.choices() {
		out = append(out, c.name.String())
	}
	return out
}

// Choose implements World: whatever any member would serve equals the store.
func (w *sharing) Choose(i int) error {
	w.choices()[i].do()
	for i, n := range w.nodes {
		switch {
		case n.held == 0:
		case n.entry != nil && n.entry.Gen == n.held:
			w.fail(w.judge.Hit(i, theKey, string(n.entry.Row.Value), n.entry.Row.Exists))
		case n.copied != nil && n.copied.Gen == n.held:
			w.fail(w.judge.Hit(i, theKey, string(n.copied.Row.Value), n.copied.Row.Exists))
		}
	}
	return w.err
}

// Dump implements World.
func (w *sharing) Dump() string {
	var b strings.Builder
	fmt.Fprintln(&b, w.left.Losses, w.left.Drops, w.left.Copies, w.left.Beats, w.left.Changes, w.gen, w.lead, w.ends, w.joins, w.begun)
	b.WriteString(w.store.Dump() + w.judge.Dump())
	for _, n := range w.nodes {
		b.WriteString(n.pod.Dump() + n.primary.Dump() + n.replica.Dump())
		fmt.Fprintln(&b, n.held, slices.Sorted(maps.Keys(n.waits)))
		if n.entry != nil {
			fmt.Fprintln(&b, "entry", n.entry.Gen, string(n.entry.Row.Value))
		}
		if n.copied != nil {
			fmt.Fprintln(&b, "copy", n.copied.Gen, string(n.copied.Row.Value))
		}
	}
	for _, m := range w.reqs {
		fmt.Fprintf(&b, "%d %T %v %v %v %v\n", m.node, m.out, m.out, m.answer, m.orphan, m.copied)
	}
	var mail []string
	for _, m := range w.mail { // their order does not matter
		text := fmt.Sprintf("%s %T%v", m.To.Node, m.Message, m.Message)
		if f, ok := m.Message.(replica.Finish); ok {
			text = fmt.Sprintf("%s finish %d %d", m.To.Node, f.Gen, f.N)
			if f.Row != nil {
				text += string(f.Row.Value)
			}
		}
		mail = append(mail, text)
	}
	slices.Sort(mail)
	return b.String() + strings.Join(mail, "\n")
}
