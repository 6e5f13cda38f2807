package lease

import (
	"maps"
	"slices"

	"github.com/freshet-cache/freshet/ticks"
)

// AssignerOptions are the same for every assigner of a cluster.
type AssignerOptions struct {
	// Length is the length of a lease. Default 10 s. A longer lease survives a longer silence of
	// the assigner; a shorter one frees the keys of a dead node sooner.
	Length ticks.Tick
	// Drift bounds how much any clock may run fast or slow, in millionths. Default 200.
	Drift int64
	// Silence is how long a node may be silent before it gets no more slices. Default Length.
	Silence ticks.Tick
	// First are the points at which the key space of a new cluster is cut. Default none: the load
	// decides later.
	First   []string
	Balance Balance
	// MaxSlices bounds the slices of the cluster, for whatever reason they are cut. Default 4096.
	MaxSlices int
	// StateBytes bounds the state that the coordinator stores. Default 1 MiB: etcd takes requests
	// of up to 1.5 MiB.
	StateBytes int
}

func (o *AssignerOptions) defaults() {
	if o.Length <= 0 {
		o.Length = 10e9
	}
	if o.Drift <= 0 {
		o.Drift = 200
	}
	if o.Silence <= 0 {
		o.Silence = o.Length
	}
	if o.MaxSlices <= 0 {
		o.MaxSlices = 4096
	}
	if o.StateBytes <= 0 {
		o.StateBytes = 1 << 20
	}
	o.Balance.defaults()
}

// Assigner is the assigner's side of the leases: a machine without I/O. It is not safe for
// concurrent use.
type Assigner struct {
	opt     AssignerOptions
	term    uint64
	led     ticks.Tick // the leadership holds before this
	gen     Gen
	longest ticks.Tick
	table   uint64
	slices  []slice
	nodes   map[string]member

	rev, saving, saved uint64 // the revision reached, the one being saved (0 if none), the one saved (A3)
	budget             budget
}

// slice is one range and everything that the assigner knows about its lease.
type slice struct {
	Lease
	Node, Addr, Host string
	until            ticks.Tick // no lease granted so far lasts beyond it (A1)
	recalled         bool       // the lease is recalled; the slice goes to next
	next             string
	rev              uint64
	load             Load
	after            Gen        // the generation whose owner gave the slice up for this one; 0 if none
	gave             bool       // its owner has acknowledged the recall
	fresh            bool       // cut or joined, and not granted to its owner yet (A8)
	apart            ticks.Tick // the slice was cut, and is not joined again before
	stays            ticks.Tick // the slice moved with its entries, and is not moved for balance before
	crew
}

// member is a node that has asked for leases.
type member struct {
	addr, host string
	seen       ticks.Tick
	leaving    bool
	done       bool   // the node holds nothing, and never will (A11)
	groups     bool   // the node can be a member of a group
	seq, table uint64 // of the last renewal
}

// AssignerOutput is one of Save, SendGrant, SendRecall.
type AssignerOutput interface{ assignerOutput() }

// Save asks the coordinator to store State if Term is still the newest. Exactly one Saved, Unsaved
// or Refused answers it.
type Save struct {
	Term  uint64
	Rev   uint64
	State State
}

// SendGrant sends the message to its node. It may be lost.
type SendGrant struct{ Grant }

// SendRecall sends the message to its node. It may be lost.
type SendRecall struct{ Recall }

func (Save) assignerOutput()       {}
func (SendGrant) assignerOutput()  {}
func (SendRecall) assignerOutput() {}

// NewAssigner returns an assigner that does not lead.
func NewAssigner(opt AssignerOptions) *Assigner {
	opt.defaults()
	return &Assigner{opt: opt, nodes: map[string]member{}}
}

// Elected makes the assigner the leader of term until the tick led. state is what its predecessor
// saved. The predecessor may have granted leases for as long as slack since. Every node on a host
// in gone is known to be dead, so its leases have ended.
func (a *Assigner) Elected(now ticks.Tick, term uint64, led, slack ticks.Tick, state State, gone []string, out []AssignerOutput) []AssignerOutput {
	a.term, a.led = term, led
	a.gen, a.table, a.longest = state.Gen, state.Table, max(state.Longest, a.opt.Length)
	a.nodes = map[string]member{}
	a.slices = nil
	a.rev, a.saving, a.saved = a.rev+1, 0, a.rev
	for _, h := range state.Slices {
		s := slice{Lease: h.Lease, Node: h.Node, Addr: h.Addr, Host: h.Host}
		if a.longest > state.Longest {
			s.rev = a.rev // the next leader must know of the longer leases
		}
		s.crew = manned(h)
		wait := now + ticks.Lengthen(a.longest+slack, a.opt.Drift)
		if !slices.Contains(gone, h.Host) {
			s.until = wait // A5
		}
		for i := range s.copies {
			if c := &s.copies[i]; !slices.Contains(gone, c.Host) {
				c.until = wait // A5
			}
		}
		a.slices = append(a.slices, s)
	}
	if len(a.slices) == 0 {
		for _, r := range (Range{}).Cut(a.opt.First) {
			a.gen++
			a.slices = append(a.slices, slice{Lease: Lease{r, a.gen}, rev: a.rev})
		}
	}
	return a.save(out)
}

// Led extends the leadership of term.
func (a *Assigner) Led(term uint64, led ticks.Tick) {
	if term == a.term {
		a.led = max(a.led, led)
	}
}

// Deposed ends the leadership at once.
func (a *Assigner) Deposed() { a.term, a.led = 0, 0 }

// Leads reports whether the assigner may grant at now.
func (a *Assigner) Leads(now ticks.Tick) bool { return a.term != 0 && now < a.led } // A4

// Unsaved reports that a Save had no answer, or failed for a while: its state may be stored or not.
// The output is a Save of the newest state (A10).
func (a *Assigner) Unsaved(term, rev uint64, out []AssignerOutput) []AssignerOutput {
	if term != a.term || rev != a.saving {
		return out
	}
	a.saving = 0
	return a.save(out)
}

// Refused reports that the coordinator will never store a state of so many bytes. The assigner
// stops leading, because nothing can be granted without a save. When it is elected again with the
// state that was saved last, it stays below that size (A9).
func (a *Assigner) Refused(term, rev uint64, bytes int) {
	if term == a.term && rev == a.saving {
		a.opt.StateBytes = min(a.opt.StateBytes, bytes*3/4)
		a.saving = 0
		a.Deposed()
	}
}

// Saved answers Save. If ok is false, another term is newer. Unsaved answers a save of unknown
// outcome, and Refused one that can never succeed.
func (a *Assigner) Saved(now ticks.Tick, term, rev uint64, ok bool, out []AssignerOutput) []AssignerOutput {
	if term != a.term || rev != a.saving {
		return out
	}
	a.saving = 0
	if !ok {
		a.Deposed()
		return out
	}
	old := a.saved
	waits := slices.ContainsFunc(a.slices, func(s slice) bool { return s.recalled && s.fresh })
	handed := slices.ContainsFunc(a.slices, func(s slice) bool { return s.rev > old && !s.fresh })
	concerns := func(node string) bool { // only its owner needs to know of a cut or a join; others learn when they renew
		return handed || slices.ContainsFunc(a.slices, func(s slice) bool { return s.rev > old && s.Node == node })
	}
	a.saved = rev
	out = a.save(out)
	if !a.Leads(now) { // A4
		return out
	}
	for _, node := range slices.Sorted(maps.Keys(a.nodes)) {
		if a.alive(now, node) && concerns(node) {
			out = a.grant(now, node, out)
		}
	}
	if waits {
		out = a.recall(now, out)
	}
	return out
}

// Renewed handles the renewal of a node and answers it with a Grant.
func (a *Assigner) Renewed(now ticks.Tick, in Renew, out []AssignerOutput) []AssignerOutput {
	if !a.Leads(now) {
		return out
	}
	if a.nodes[in.Node].done { // A11
		return out
	}
	a.nodes[in.Node] = member{addr: in.Addr, host: in.Host, seen: now, leaving: in.Leaving, done: in.Done, groups: in.Groups, seq: in.Seq, table: in.Table}
	if in.Done {
		return a.over(now, in.Node, out)
	}
	a.report(in.Node, in.Loads)
	out = a.GaveUp(now, Gave{in.Node, in.Gave}, out)
	out = a.assign(now, out)
	return a.grant(now, in.Node, out)
}

// grant answers the last renewal of a node, perhaps once more. The leases in it count from when
// that renewal was sent, so a grant may be repeated whenever there is news.
func (a *Assigner) grant(now ticks.Tick, node string, out []AssignerOutput) []AssignerOutput {
	m := a.nodes[node]
	g := Grant{Node: node, Term: a.term, Seq: m.seq, Length: a.opt.Length}
	var groups []Group
	shared := false
	for i := range a.slices {
		s := &a.slices[i]
		until, after := s.holds(node)
		switch {
		case until == nil:
		case s.recalled && !s.fresh: // A2, A8
		case s.rev > a.saved: // A3
		default:
			s.fresh = s.fresh && s.Node != node
			*until = max(*until, now+ticks.Lengthen(a.opt.Length, a.opt.Drift)) // A1
			g.Leases = append(g.Leases, s.Lease)
			g.After = append(g.After, after)
			groups = append(groups, s.group())
			shared = shared || len(s.copies) > 0
		}
	}
	if shared {
		g.Groups = groups
	}
	if m.table < a.table {
		g.Table = a.routes(m.groups)
	}
	return append(out, SendGrant{g})
}

// GaveUp handles the acknowledgement of a node.
func (a *Assigner) GaveUp(now ticks.Tick, in Gave, out []AssignerOutput) []AssignerOutput {
	if !a.Leads(now) {
		return out
	}
	for _, g := range in.Gens {
		for i := range a.slices {
			s := &a.slices[i]
			until, _ := s.holds(in.Node)
			if s.Gen != g || until == nil {
				continue
			}
			*until = min(*until, now)
			if s.recalled {
				s.gave = s.gave || s.Node == in.Node
				continue
			}
			s.recalled, s.next = true, s.Node // A7: the lease lapsed or was refused: the same node gets another generation
		}
	}
	return a.assign(now, out)
}

// Beat repeats recalls, assigns slices whose leases have ended, and balances the load.
func (a *Assigner) Beat(now ticks.Tick, out []AssignerOutput) []AssignerOutput {
	if !a.Leads(now) {
		return out
	}
	maps.DeleteFunc(a.nodes, func(_ string, m member) bool { return m.done && now-m.seen > a.longest }) // no renewal comes so late
	out = a.assign(now, out)
	a.balance(now)
	out = a.recall(now, out)
	return a.save(out)
}

// Gone reports that a node is certainly dead, because its process was seen to end.
func (a *Assigner) Gone(now ticks.Tick, node string, out []AssignerOutput) []AssignerOutput {
	delete(a.nodes, node)
	return a.over(now, node, out)
}

// over ends the leases of a node that certainly holds none any more.
func (a *Assigner) over(now ticks.Tick, node string, out []AssignerOutput) []AssignerOutput {
	for i := range a.slices {
		if until, _ := a.slices[i].holds(node); until != nil {
			*until = min(*until, now)
		}
	}
	return a.assign(now, out)
}

// assign gives every slice that is free, or whose lease has certainly ended, to a living node.
func (a *Assigner) assign(now ticks.Tick, out []AssignerOutput) []AssignerOutput {
	for i := range a.slices {
		s := &a.slices[i]
		switch {
		case s.recalled && now >= s.until && s.alone(now): // A2, A6
			a.hand(now, s, s.next)
		case s.recalled:
		case s.Node == "" || now >= s.until && !a.alive(now, s.Node):
			to := a.lightest(now)
			switch {
			case to == "" && !a.nodes[s.Node].done:
			case s.alone(now):
				a.hand(now, s, to)
			default: // A6
				s.recalled, s.next = true, to
			}
		}
	}
	return a.save(out)
}

// hand gives s, which no node holds, to a node under a new generation. If that node is gone or
// leaving, the slice has no owner until assign finds another.
func (a *Assigner) hand(now ticks.Tick, s *slice, to string) {
	after := s.Gen
	if !s.gave {
		after = 0
	}
	a.gen++
	a.rev++
	m, ok := a.nodes[to]
	if !ok || m.leaving {
		to, m = "", member{}
	}
	s.Gen, s.rev = a.gen, a.rev
	s.Node, s.Addr, s.Host = to, m.addr, m.host
	s.recalled, s.next, s.gave, s.after = false, "", false, after
	s.copies = a.muster(now, s)
	if s.fresh = false; after != 0 {
		s.stays = now + a.opt.Length
	}
}

// recall asks for the leases of slices that are to move.
func (a *Assigner) recall(now ticks.Tick, out []AssignerOutput) []AssignerOutput {
	by, next := map[string][]Lease{}, map[string][]string{}
	for _, s := range a.slices {
		if !s.recalled || s.fresh && a.alive(now, s.Node) { // A8
			continue
		}
		if now < s.until {
			by[s.Node] = append(by[s.Node], s.Lease)
			next[s.Node] = append(next[s.Node], a.nodes[s.next].addr)
		}
		for _, c := range s.copies { // a replica has nothing to transfer
			if now < c.until {
				by[c.Node] = append(by[c.Node], s.Lease)
				next[c.Node] = append(next[c.Node], "")
			}
		}
	}
	for _, node := range slices.Sorted(maps.Keys(by)) {
		out = append(out, SendRecall{Recall{Node: node, Term: a.term, Leases: by[node], Next: next[node]}})
	}
	return out
}

// save outputs a Save if something has changed. One Save is in flight at a time.
func (a *Assigner) save(out []AssignerOutput) []AssignerOutput {
	if a.saving != 0 || a.saved == a.rev || a.term == 0 {
		return out
	}
	a.saving = a.rev
	a.table++
	return append(out, Save{a.term, a.rev, a.State()})
}

// State returns what the next leader must know.
func (a *Assigner) State() State {
	st := State{Gen: a.gen, Table: a.table, Longest: a.longest}
	for _, s := range a.slices {
		st.Slices = append(st.Slices, Held{s.Lease, s.Node, s.Addr, s.Host, s.members(), s.want, s.pinned})
	}
	return st
}

// routes returns the current routing table. A node that does not know groups gets no replicas in
// it.
func (a *Assigner) routes(groups bool) *Table {
	t := &Table{Version: a.table}
	for _, s := range a.slices {
		r := Route{Lease: s.Lease, Node: s.Node, Addr: s.Addr}
		if groups {
			r.Copies = s.members()
		}
		t.Slices = append(t.Slices, r)
	}
	return t
}

// Released reports whether node holds no lease, and the saved state says so too.
func (a *Assigner) Released(node string) bool {
	return a.saved == a.rev && !slices.ContainsFunc(a.slices, func(s slice) bool { until, _ := s.holds(node); return until != nil })
}

// alive reports whether the assigner has heard of node within Silence.
func (a *Assigner) alive(now ticks.Tick, node string) bool {
	m, ok := a.nodes[node]
	return ok && !m.done && now-m.seen <= a.opt.Silence
}
