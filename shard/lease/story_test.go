package lease

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"

	"github.com/freshet-cache/freshet/ticks"
)

// TestStories runs testdata/*.txt: nodes and assigners, whose messages wait until
// the story delivers, loses or repeats them. Times are milliseconds.
func TestStories(t *testing.T) {
	datadriven.Walk(t, "testdata", func(t *testing.T, path string) {
		s := &story{nodes: map[string]*Node{}, assigners: map[string]*Assigner{}}
		datadriven.RunTest(t, path, s.run)
	})
}

type story struct {
	now       ticks.Tick
	nodes     map[string]*Node
	assigners map[string]*Assigner
	mail      []letter
	saves     []Save
	state     State // what the coordinator has
	loads     map[string][]Load
}

// letter is a message that has not arrived.
type letter struct {
	to  string // empty: whichever assigner the story names
	msg any
}

const milli = ticks.Tick(1e6)

func (s *story) run(t *testing.T, d *datadriven.TestData) string {
	if d.HasArg("at") {
		s.now = ticks.Tick(num(t, d, "at")) * milli
	}
	who := ""
	if len(d.CmdArgs) > 0 && len(d.CmdArgs[0].Vals) == 0 {
		who = d.CmdArgs[0].Key
	}
	switch d.Cmd {
	case "node":
		s.nodes[who] = NewNode(NodeOptions{Node: who, Addr: who, Host: "host-" + who, Drift: num(t, d, "drift"), Groups: d.HasArg("groups")})
		return ""
	case "assigner":
		opt := AssignerOptions{Length: ticks.Tick(num(t, d, "length")) * milli, Drift: num(t, d, "drift"), Balance: Balance{Churn: uint64(num(t, d, "churn")), OneNode: uint64(num(t, d, "one-node"))}}
		for _, a := range d.CmdArgs {
			if a.Key == "cut" {
				opt.First = a.Vals
			}
		}
		opt.MaxSlices, opt.StateBytes = int(num(t, d, "most-slices")), int(num(t, d, "state-bytes"))
		s.assigners[who] = NewAssigner(opt)
		return ""
	case "state":
		return s.assigners[who].show(s.now)
	case "released":
		return fmt.Sprintln(s.assigners[who].Released(arg(t, d, "node")))
	case "members":
		return fmt.Sprintln(slices.Sorted(maps.Keys(s.assigners[who].nodes)))
	case "find":
		r, _ := s.nodes[who].table.Find(arg(t, d, "key"))
		return fmt.Sprintf("table %d: %v of %q\n", s.nodes[who].table.Version, r.Range, r.Node)
	}
	if d.Cmd == "settle" {
		return s.settle(t, d, who)
	}
	if n := s.nodes[who]; n != nil {
		return s.node(t, d, who, n)
	}
	return s.assigner(t, d, who, s.assigners[who])
}

func (s *story) node(t *testing.T, d *datadriven.TestData, who string, n *Node) string {
	var out []NodeOutput
	switch d.Cmd {
	case "beat":
		out = n.Beat(s.now, s.loads[who], nil)
		delete(s.loads, who)
	case "leave":
		n.Leave()
	case "stay":
		n.Stay()
	case "release":
		out = n.Beat(s.now, nil, n.Release(nil))
	case "load": // load n1 gen=1 rate=5000 keys=(a,b,c) hot=a
		l := Load{Gen: Gen(num(t, d, "gen")), Rate: uint64(num(t, d, "rate"))}
		for _, a := range d.CmdArgs {
			switch a.Key {
			case "keys":
				l.Sample = a.Vals
			case "hot":
				l.Hot = []HotKey{{a.Vals[0], l.Rate * 9 / 10}}
			}
		}
		if s.loads == nil {
			s.loads = map[string][]Load{}
		}
		s.loads[who] = append(s.loads[who], l)
	case "deliver":
		from := who // with from=, it gets what was meant for another
		d.MaybeScanArgs(t, "from", &from)
		switch m := s.take(t, d, from).(type) {
		case Grant:
			out = n.Granted(s.now, m, nil)
		case Recall:
			out = n.Recalled(s.now, m, nil)
		}
	}
	n.Check()
	return s.said(out)
}

// said is what a node wants done, as text; what it sends waits to be delivered.
func (s *story) said(out []NodeOutput) string {
	var b strings.Builder
	for _, o := range out {
		switch o := o.(type) {
		case SendRenew:
			s.mail = append(s.mail, letter{"", o.Renew})
			fmt.Fprintf(&b, "send renewal %d", o.Seq)
			if len(o.Gave) > 0 {
				fmt.Fprintf(&b, ", gave %v", o.Gave)
			}
			b.WriteByte('\n')
		case SendGave:
			s.mail = append(s.mail, letter{"", o.Gave})
			fmt.Fprintf(&b, "send that %v is given up\n", o.Gens)
		case Acquire:
			fmt.Fprintf(&b, "acquire %v generation %d until %s%s%s\n", o.Range, o.Gen, tick(o.Until), o.Group.text(), after(o.After))
		case Extend:
			fmt.Fprintf(&b, "extend generation %d until %s\n", o.Gen, tick(o.Until))
		case Revoke:
			fmt.Fprintf(&b, "revoke generation %d", o.Gen)
			if o.Next != "" {
				fmt.Fprintf(&b, ", %v goes to %s under %d", o.Range, o.Next, o.Under)
			}
			b.WriteByte('\n')
		case Routes:
			fmt.Fprintf(&b, "route by table %d\n", o.Table.Version)
			for _, r := range o.Table.Slices {
				if len(r.Copies) > 0 {
					fmt.Fprintf(&b, "route reads of %v to%s\n", r.Range, strings.TrimPrefix(Group(r.Copies).text(), " in"))
				}
			}
		}
	}
	return silent(b)
}

func (s *story) assigner(t *testing.T, d *datadriven.TestData, who string, a *Assigner) string {
	var out []AssignerOutput
	switch d.Cmd {
	case "elected":
		out = a.Elected(s.now, uint64(num(t, d, "term")), ticks.Tick(num(t, d, "until"))*milli, ticks.Tick(num(t, d, "slack"))*milli, s.state, nil, nil)
	case "beat":
		out = a.Beat(s.now, nil)
	case "saved", "unsaved", "too-large":
		out = s.answered(t, d, a)
	case "cut":
		for _, c := range d.CmdArgs {
			if c.Key == "points" && !a.Cut(s.now, c.Vals) {
				return "nothing is cut: there is no room\n"
			}
		}
	case "move":
		a.Move(arg(t, d, "key"), arg(t, d, "to"))
	case "replicate":
		if !a.Replicate(s.now, arg(t, d, "key"), int(num(t, d, "n"))) {
			return "not replicated\n"
		}
	case "unreplicate":
		a.Unreplicate(s.now, arg(t, d, "key"))
	case "gone":
		out = a.Gone(s.now, arg(t, d, "node"), nil)
	case "deliver":
		switch m := s.take(t, d, "").(type) {
		case Renew:
			out = a.Renewed(s.now, m, nil)
		case Gave:
			out = a.GaveUp(s.now, m, nil)
		}
	default:
		d.Fatalf(t, "nothing is known of %q", d.Cmd)
	}
	a.Check()
	var b strings.Builder
	for _, o := range out {
		switch o := o.(type) {
		case Save:
			s.saves = append(s.saves, o)
			fmt.Fprintf(&b, "save revision %d\n", o.Rev)
		case SendGrant:
			s.mail = append(s.mail, letter{o.Node, o.Grant})
			fmt.Fprintf(&b, "grant %s for renewal %d:", o.Node, o.Seq)
			for i, l := range o.Leases {
				fmt.Fprintf(&b, " %v generation %d%s%s", l.Range, l.Gen, group(o.Grant, i).text(), after(o.After[i]))
			}
			if o.Table != nil {
				fmt.Fprintf(&b, " with table %d", o.Table.Version)
			}
			b.WriteByte('\n')
		case SendRecall:
			s.mail = append(s.mail, letter{o.Node, o.Recall})
			fmt.Fprintf(&b, "recall from %s:", o.Node)
			for i, l := range o.Leases {
				fmt.Fprintf(&b, " %v generation %d", l.Range, l.Gen)
				if o.Next[i] != "" {
					fmt.Fprintf(&b, " for %s", o.Next[i])
				}
			}
			b.WriteByte('\n')
		}
	}
	return silent(b)
}

// answered is what becomes of the oldest save: it is stored, or refused for another term,
// has no answer (and is stored all the same), or is too large for ever.
func (s *story) answered(t *testing.T, d *datadriven.TestData, a *Assigner) []AssignerOutput {
	save := s.saves[0]
	s.saves = s.saves[1:]
	switch {
	case d.Cmd == "too-large":
		a.Refused(save.Term, save.Rev, int(num(t, d, "bytes")))
		return nil
	case d.Cmd == "saved" && !d.HasArg("refused") || d.HasArg("stored"):
		s.state = save.State
	}
	if d.Cmd == "unsaved" {
		return a.Unsaved(save.Term, save.Rev, nil)
	}
	return a.Saved(s.now, save.Term, save.Rev, !d.HasArg("refused"), nil)
}

// settle saves and delivers everything, in order, except to nodes named by but=, until
// all is quiet; it tells what the nodes did.
func (s *story) settle(t *testing.T, d *datadriven.TestData, who string) string {
	but := arg(t, d, "but")
	var b strings.Builder
	for range 100 {
		at := slices.IndexFunc(s.mail, func(l letter) bool { return l.to != but || but == "" })
		switch {
		case len(s.saves) > 0:
			s.assigner(t, &datadriven.TestData{Cmd: "saved"}, who, s.assigners[who])
		case at < 0:
			return silent(b)
		case s.mail[at].to == "":
			s.assigner(t, &datadriven.TestData{Cmd: "deliver"}, who, s.assigners[who])
		default:
			to := s.mail[at].to
			if text := s.node(t, &datadriven.TestData{Cmd: "deliver"}, to, s.nodes[to]); text != "nothing\n" {
				for _, line := range strings.Split(strings.TrimSpace(text), "\n") {
					fmt.Fprintf(&b, "%s: %s\n", to, line)
				}
			}
		}
	}
	return "it never settles\n"
}

// take is the oldest message to somebody, or with "last" the latest; with "copy"
// it stays to be delivered again.
func (s *story) take(t *testing.T, d *datadriven.TestData, to string) any {
	at := -1
	for i, l := range s.mail {
		if l.to == to && (at < 0 || d.HasArg("last")) {
			at = i
		}
	}
	if at < 0 {
		d.Fatalf(t, "no message waits for %q", to)
	}
	m := s.mail[at].msg
	if !d.HasArg("copy") {
		s.mail = append(s.mail[:at:at], s.mail[at+1:]...)
	}
	return m
}

// show is the assigner's view of every slice.
func (a *Assigner) show(now ticks.Tick) string {
	var b strings.Builder
	for _, s := range a.slices {
		fmt.Fprintf(&b, "%v generation %d of %q", s.Range, s.Gen, s.Node)
		if s.until > now {
			fmt.Fprintf(&b, ", leased until %s", tick(s.until))
		}
		for _, c := range s.copies {
			fmt.Fprintf(&b, ", replica %s", c.Node)
			if c.until > now {
				fmt.Fprintf(&b, " until %s", tick(c.until))
			}
		}
		if s.recalled {
			fmt.Fprintf(&b, ", recalled for %s", s.next)
		}
		b.WriteByte('\n')
	}
	return silent(b)
}

// after says whose entries may be transferred.
func after(g Gen) string {
	if g == 0 {
		return ""
	}
	return fmt.Sprintf(" after %d", g)
}

// text names the members, the primary first.
func (g Group) text() string {
	var names []string
	for _, m := range g {
		names = append(names, m.Node)
	}
	if len(g) == 0 {
		return ""
	}
	return fmt.Sprintf(" in %v", names)
}

func silent(b strings.Builder) string {
	if b.Len() == 0 {
		return "nothing\n"
	}
	return b.String()
}

func tick(t ticks.Tick) string { return fmt.Sprintf("%d.%03d", t/milli, t%milli/1000) }

func num(t *testing.T, d *datadriven.TestData, name string) (v int64) {
	d.MaybeScanArgs(t, name, &v)
	return v
}

func arg(t *testing.T, d *datadriven.TestData, name string) (v string) {
	d.MaybeScanArgs(t, name, &v)
	return v
}
