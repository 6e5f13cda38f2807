package explore

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/freshet-cache/freshet/shard/lease"
	"github.com/freshet-cache/freshet/ticks"
)

// Lease is a scope for shard/lease: nodes, one assigner or two, one slice, and how
// often each thing may happen. Messages arrive in any order.
type Lease struct {
	Nodes     int
	Beats     int // renewals that nodes send
	Hours     int // how often time passes: a third of a lease each
	Moves     int // an operator moves the slice
	Losses    int // a message is lost
	Copies    int // a message arrives twice
	Releases  int // a node gives up all it holds, and takes nothing more
	Crashes   int // a node ends and begins another incarnation
	Takeovers int // another assigner is elected; the first is not told
	Groups    int // an operator asks for a replica of the key, or for none any more
}

// hour is a third of a lease. The drift bound is far below it.
const hour ticks.Tick = 1e9

// leases is the world of a scope.
type leases struct {
	left         Lease
	grouped      bool
	now          ticks.Tick
	nodes        []*holder
	incarnations int
	assigners    []*lease.Assigner // the last one was elected last
	state        lease.State
	term         uint64
	saves        []saving
	mail         []post
}

// holder is a node and its handles.
type holder struct {
	name    string
	machine *lease.Node
	until   map[lease.Gen]ticks.Tick
	held    map[lease.Gen]lease.Acquire
}

// saving is a Save on its way to the coordinator.
type saving struct {
	by int
	lease.Save
}

// post is a message on its way; to says which node, or -1 for the assigners,
// each of which hears it.
type post struct {
	to  string
	by  int // the assigner that is to hear it, or that sent it
	msg any
}

// Begin returns the first state: the assigner leads, and the first node has the
// slice; in a scope with groups the others are its replicas.
func (s Lease) Begin() World {
	w := &leases{left: s, grouped: s.Groups > 0}
	for range s.Nodes {
		w.nodes = append(w.nodes, w.live())
	}
	w.elect()
	w.node(w.nodes[0], w.nodes[0].machine.Beat(w.now, nil, nil))
	w.settle()
	if w.grouped {
		for _, n := range w.nodes[1:] {
			w.node(n, n.machine.Beat(w.now, nil, nil))
		}
		w.settle()
		w.assigners[0].Replicate(w.now, "k", s.Nodes-1)
		w.assigner(0, w.assigners[0].Beat(w.now, nil))
		w.settle()
	}
	return w
}

// settle saves and delivers everything in order.
func (w *leases) settle() {
	for len(w.saves)+len(w.mail) > 0 {
		if len(w.saves) > 0 {
			w.saved(0)
			continue
		}
		p := w.mail[0]
		w.drop(0)
		w.deliver(p)
	}
}

func (w *leases) live() *holder {
	w.incarnations++
	name := fmt.Sprintf("n%d", w.incarnations)
	return &holder{name: name, machine: lease.NewNode(lease.NodeOptions{Node: name, Addr: name, Host: name, Groups: w.grouped}), until: map[lease.Gen]ticks.Tick{}, held: map[lease.Gen]lease.Acquire{}}
}

// elect makes a new assigner the leader; an older one goes on until its time is
// over, which is now.
func (w *leases) elect() {
	w.term++
	opt := lease.AssignerOptions{Length: 3 * hour, Silence: hour}
	if w.grouped { // what lies beside the key stays where it is
		opt.Balance.Slack = 1 << 20
	}
	a := lease.NewAssigner(opt)
	w.assigners = append(w.assigners, a)
	w.assigner(len(w.assigners)-1, a.Elected(w.now, w.term, w.now+100*hour, 0, w.state, nil, nil))
}

func (w *leases) choices() (out []choice) {
	add := func(name text, do func()) { out = append(out, choice{name, do}) }
	for i, p := range w.mail {
		add(says("%T arrives at %s", p.msg, p), func() { w.drop(i); w.deliver(p) })
		if w.left.Losses > 0 {
			add(says("%T to %s is lost", p.msg, p), func() { w.left.Losses--; w.drop(i) })
		}
		if w.left.Copies > 0 {
			add(says("%T arrives at %s, and will again", p.msg, p), func() { w.left.Copies--; w.deliver(p) })
		}
	}
	if len(w.saves) > 0 {
		add(says("the coordinator saves for assigner %d", w.saves[0].by), func() { w.saved(0) })
	}
	for i, n := range w.nodes {
		if w.left.Beats > 0 {
			add(says("%s renews", n.name), func() { w.left.Beats--; w.node(n, n.machine.Beat(w.now, nil, nil)) })
		}
		if w.left.Releases > 0 {
			add(says("%s releases what it holds", n.name), func() { w.left.Releases--; w.node(n, n.machine.Beat(w.now, nil, n.machine.Release(nil))) })
		}
		if w.left.Crashes > 0 {
			add(says("%s crashes", n.name), func() { w.left.Crashes--; w.nodes[i] = w.live() })
		}
		if a := w.assigners[len(w.assigners)-1]; w.left.Moves > 0 && len(a.State().Slices) > 0 && a.State().Slices[0].Node != "" && a.State().Slices[0].Node != n.name {
			add(says("the slice moves to %s", n.name), func() {
				w.left.Moves--
				a.Move("k", n.name)
				w.assigner(len(w.assigners)-1, a.Beat(w.now, nil))
			})
		}
	}
	if w.left.Groups > 0 {
		last := len(w.assigners) - 1
		for n := range 2 {
			add(says("the key is to have %d replicas", n), func() {
				w.left.Groups--
				w.assigners[last].Replicate(w.now, "k", n)
				w.assigner(last, w.assigners[last].Beat(w.now, nil))
			})
		}
	}
	if w.left.Hours > 0 {
		add(says("a third of a lease passes"), func() {
			w.left.Hours--
			w.now += hour
			for i, a := range w.assigners {
				w.assigner(i, a.Beat(w.now, nil))
			}
		})
	}
	if w.left.Takeovers > 0 {
		add(says("another assigner is elected"), func() {
			w.left.Takeovers--
			w.assigners[len(w.assigners)-1].Deposed()
			w.elect()
		})
	}
	return out
}

func (p post) String() string {
	if p.to != "" {
		return p.to
	}
	return fmt.Sprintf("assigner %d", p.by)
}

func (w *leases) drop(i int) { w.mail = slices.Delete(slices.Clone(w.mail), i, i+1) }

func (w *leases) deliver(p post) {
	if p.to == "" {
		a := w.assigners[p.by]
		switch m := p.msg.(type) {
		case lease.Renew:
			w.assigner(p.by, a.Renewed(w.now, m, nil))
		case lease.Gave:
			w.assigner(p.by, a.GaveUp(w.now, m, nil))
		}
		return
	}
	for _, n := range w.nodes {
		if n.name != p.to {
			continue
		}
		switch m := p.msg.(type) {
		case lease.Grant:
			w.node(n, n.machine.Granted(w.now, m, nil))
		case lease.Recall:
			w.node(n, n.machine.Recalled(w.now, m, nil))
		}
	}
}

// saved lets the coordinator answer: a save of an older term is refused.
func (w *leases) saved(i int) {
	s := w.saves[i]
	w.saves = slices.Delete(slices.Clone(w.saves), i, i+1)
	ok := s.Term == w.term
	if ok {
		w.state = s.State
	}
	w.assigner(s.by, w.assigners[s.by].Saved(w.now, s.Term, s.Rev, ok, nil))
}

func (w *leases) assigner(by int, outs []lease.AssignerOutput) {
	w.assigners[by].Check()
	for _, out := range outs {
		switch out := out.(type) {
		case lease.Save:
			w.saves = append(w.saves, saving{by, out})
		case lease.SendGrant:
			w.mail = append(w.mail, post{out.Node, by, out.Grant})
		case lease.SendRecall:
			w.mail = append(w.mail, post{out.Node, by, out.Recall})
		}
	}
}

func (w *leases) node(n *holder, outs []lease.NodeOutput) {
	n.machine.Check()
	for _, out := range outs {
		switch out := out.(type) {
		case lease.SendRenew:
			w.tell(out.Renew)
		case lease.SendGave:
			w.tell(out.Gave)
		case lease.Acquire:
			n.until[out.Gen], n.held[out.Gen] = out.Until, out
		case lease.Extend:
			n.until[out.Gen] = out.Until
		case lease.Revoke:
			delete(n.until, out.Gen)
		}
	}
}

func (w *leases) tell(msg any) {
	for i := range w.assigners {
		w.mail = append(w.mail, post{"", i, msg})
	}
}

// Choices implements World.
func (w *leases) Choices() (out []string) {
	for _, c := range w.choices() {
		out = append(out, c.name.String())
	}
	return out
}

// Choose implements World: at no instant do two nodes hold the key, except as members
// of one group, one of which is the primary.
func (w *leases) Choose(i int) error {
	w.choices()[i].do()
	type hold struct {
		node string
		gen  lease.Gen
	}
	var holds []hold
	for _, n := range w.nodes {
		for _, g := range slices.Sorted(maps.Keys(n.until)) {
			if w.now >= n.until[g] || !n.held[g].Contains("k") {
				continue
			}
			for _, h := range holds {
				if h.node != n.name && (h.gen != g || n.held[g].Group.Primary(n.name) == n.held[g].Group.Primary(h.node)) {
					return fmt.Errorf("%s and %s hold the key, under generations %d and %d", h.node, n.name, h.gen, g)
				}
			}
			holds = append(holds, hold{n.name, g})
		}
	}
	return nil
}

// Dump implements World. A crashed incarnation's name is spent, so it counts.
func (w *leases) Dump() string {
	var b strings.Builder
	fmt.Fprintln(&b, w.left, w.now, w.incarnations, w.term, w.state, w.saves, len(w.mail))
	for _, n := range w.nodes {
		fmt.Fprint(&b, n.machine.Dump(), n.until)
	}
	for _, a := range w.assigners {
		b.WriteString(a.Dump())
	}
	var mail []string
	for _, p := range w.mail { // their order does not matter
		if g, ok := p.msg.(lease.Grant); ok && g.Table != nil {
			mail = append(mail, fmt.Sprintf("%s %d %v %v %v", p.to, p.by, g.Leases, g.Groups, *g.Table)+fmt.Sprint(g.Term, g.Seq, g.Length))
			continue
		}
		mail = append(mail, fmt.Sprintf("%s %d %v", p.to, p.by, p.msg))
	}
	slices.Sort(mail)
	return b.String() + strings.Join(mail, "\n")
}
