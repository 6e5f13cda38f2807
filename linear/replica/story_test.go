package replica

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"

	"github.com/freshet-cache/freshet/shard/lease"
	"github.com/freshet-cache/freshet/ticks"
)

// TestStories runs testdata/*.txt: one primary, p, and any replicas, whose messages wait
// until the story delivers, loses or repeats them. Times are milliseconds.
func TestStories(t *testing.T) {
	datadriven.Walk(t, "testdata", func(t *testing.T, path string) {
		s := &story{primary: NewPrimary(), replicas: map[string]*Replica{}}
		datadriven.RunTest(t, path, s.run)
	})
}

type story struct {
	now      ticks.Tick
	primary  *Primary
	replicas map[string]*Replica
	mail     []letter
}

// letter is a message that has not arrived.
type letter struct {
	to  string
	msg Message
}

func (s *story) run(t *testing.T, d *datadriven.TestData) string {
	if d.HasArg("at") {
		s.now = ticks.Tick(num(t, d, "at")) * 1e6
	}
	who := "p"
	if len(d.CmdArgs) > 0 && len(d.CmdArgs[0].Vals) == 0 && d.CmdArgs[0].Key[0] == 'r' {
		who = d.CmdArgs[0].Key
	}
	if d.Cmd == "state" {
		if who == "p" {
			return s.primary.Dump()
		}
		return s.replicas[who].Dump()
	}
	if d.Cmd == "settle" {
		return s.settle(arg(t, d, "but"))
	}
	in := s.input(t, d, who)
	if in == nil {
		return "it is lost\n"
	}
	return s.step(who, in)
}

// settle delivers everything, in order, except to one that is named.
func (s *story) settle(but string) string {
	var b strings.Builder
	for range 100 {
		at := slices.IndexFunc(s.mail, func(l letter) bool { return l.to != but })
		if at < 0 {
			return b.String()
		}
		l := s.mail[at]
		s.mail = slices.Delete(s.mail, at, at+1)
		for line := range strings.Lines(s.step(l.to, Received{l.msg})) {
			if line != "nothing\n" {
				fmt.Fprintf(&b, "%s: %s", l.to, line)
			}
		}
	}
	return "it never settles\n"
}

func (s *story) step(who string, in Input) string {
	var outs []Output
	if who == "p" {
		outs = s.primary.Step(in, nil)
		s.primary.Check()
	} else {
		if s.replicas[who] == nil {
			s.replicas[who] = NewReplica(Options{Node: who})
		}
		outs = s.replicas[who].Step(s.now, in, nil)
		s.replicas[who].Check()
	}
	var b strings.Builder
	for _, out := range outs {
		if m, ok := out.(Send); ok {
			s.mail = append(s.mail, letter{m.To.Node, m.Message})
		}
		b.WriteString(text(out))
	}
	if b.Len() == 0 {
		return "nothing\n"
	}
	return b.String()
}

func (s *story) input(t *testing.T, d *datadriven.TestData, who string) Input {
	gen, call := lease.Gen(num(t, d, "gen")), Call(num(t, d, "call"))
	row := Row{Exists: d.HasArg("value"), Value: []byte(arg(t, d, "value")), Version: uint64(num(t, d, "version")), TTL: ticks.Tick(num(t, d, "ttl")) * 1e6}
	switch d.Cmd {
	case "acquired":
		in := Acquired{Lease: lease.Lease{Range: lease.Point(arg(t, d, "key")), Gen: gen}}
		for _, m := range list(d, "group") {
			in.Group = append(in.Group, lease.GroupMember{Node: m})
		}
		return in
	case "revoked":
		return Revoked{gen}
	case "guarding":
		return Guarding{call, lease.Range{Low: arg(t, d, "low"), High: arg(t, d, "high")}}
	case "guarded":
		return Guarded{call, !d.HasArg("lost")}
	case "writing":
		return Writing{call, list(d, "keys")}
	case "written":
		return Written{call, !d.HasArg("unknown")}
	case "kept":
		return Kept{gen, arg(t, d, "key"), row}
	case "beat":
		return Beat{}
	case "read":
		return Read{Op(num(t, d, "op")), arg(t, d, "key")}
	case "loaded":
		return Loaded{call, row, !d.HasArg("lost")}
	case "deliver", "lose":
		m := s.take(t, d, who)
		if d.Cmd == "lose" {
			return nil
		}
		return Received{m}
	}
	d.Fatalf(t, "nothing is known of %q", d.Cmd)
	return nil
}

// take is the oldest message to somebody, or with "last" the latest; with "copy" it
// stays to be delivered again.
func (s *story) take(t *testing.T, d *datadriven.TestData, to string) Message {
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

func text(out Output) string {
	switch out := out.(type) {
	case Send:
		return fmt.Sprintf("send %s: %s\n", out.To.Node, words(out.Message))
	case Pass:
		return fmt.Sprintf("pass call %d on\n", out.Call)
	case Refuse:
		return fmt.Sprintf("refuse call %d\n", out.Call)
	case Load:
		return fmt.Sprintf("load %s (call %d)\n", out.Key, out.Call)
	case Keep:
		s := fmt.Sprintf("keep %s=%s under generation %d", out.Key, out.Row.Value, out.Gen)
		if out.Until != 0 {
			s += fmt.Sprintf(" until %d.%03d", out.Until/1e6, out.Until%1e6/1000)
		}
		return s + "\n"
	case Drop:
		return fmt.Sprintf("drop %s\n", out.Key)
	case Reply:
		if !out.OK {
			return fmt.Sprintf("reply to %d: no answer\n", out.Op)
		}
		return fmt.Sprintf("reply to %d: %q\n", out.Op, out.Row.Value)
	}
	return fmt.Sprintf("%T\n", out)
}

func words(m Message) string {
	switch m := m.(type) {
	case Cacheable:
		return fmt.Sprintf("generation %d is cacheable", m.Gen)
	case Invalidate:
		return fmt.Sprintf("invalidate for write %d of generation %d", m.N, m.Gen)
	case Finish:
		if m.Row == nil {
			return fmt.Sprintf("finish write %d of generation %d", m.N, m.Gen)
		}
		return fmt.Sprintf("finish write %d of generation %d with %q", m.N, m.Gen, m.Row.Value)
	case Report:
		if m.Open {
			return fmt.Sprintf("generation %d at write %d, open", m.Gen, m.N)
		}
		return fmt.Sprintf("generation %d at write %d", m.Gen, m.N)
	}
	return fmt.Sprintf("%T", m)
}

func num(t *testing.T, d *datadriven.TestData, name string) (v int64) {
	d.MaybeScanArgs(t, name, &v)
	return v
}

func arg(t *testing.T, d *datadriven.TestData, name string) (v string) {
	d.MaybeScanArgs(t, name, &v)
	return v
}

func list(d *datadriven.TestData, name string) []string {
	for _, a := range d.CmdArgs {
		if a.Key == name {
			return a.Vals
		}
	}
	return nil
}
