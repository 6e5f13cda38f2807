package crossowner

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"
)

// TestStories runs testdata/*.txt: what happens to a coordinator, and what it asks for.
func TestStories(t *testing.T) {
	datadriven.Walk(t, "testdata", func(t *testing.T, path string) {
		var b *Coordinator
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			var outs []Output
			if d.Cmd == "lock" {
				keys := map[string][]string{}
				for _, a := range d.CmdArgs {
					keys[a.Key] = a.Vals
				}
				b, outs = New(keys)
			} else {
				outs = b.Step(input(t, d, b), nil)
			}
			return text(outs)
		})
	})
}

func input(t *testing.T, d *datadriven.TestData, b *Coordinator) Input {
	var owner string
	d.MaybeScanArgs(t, "owner", &owner)
	switch d.Cmd {
	case "locked":
		in := Locked{Owner: owner}
		for i := range b.keys[owner] {
			in.Guards = append(in.Guards, Token{owner[0], 15: byte(i)})
		}
		return in
	case "denied":
		return Denied{owner, d.HasArg("sure")}
	case "ran":
		return Ran{Status(slices.IndexFunc(statuses, d.HasArg))}
	case "found":
		return Found{owner, Outcome(slices.IndexFunc(outcomes, d.HasArg))}
	case "given-up":
		return GivenUp{}
	}
	d.Fatalf(t, "nothing is known of %q", d.Cmd)
	return nil
}

var (
	statuses = []string{"committed", "mismatch", "refused", "lost"}
	outcomes = []string{"done", "failed", "again", "unknown"}
)

func text(outs []Output) string {
	var b strings.Builder
	for _, out := range outs {
		switch out := out.(type) {
		case Lock:
			fmt.Fprintf(&b, "ask %s for %v\n", out.Owner, out.Keys)
		case Run:
			b.WriteString("begin under")
			for _, k := range slices.Sorted(maps.Keys(out.Guards)) {
				g := out.Guards[k]
				fmt.Fprintf(&b, " %s:%c%d", k, g[0], g[15])
			}
			b.WriteByte('\n')
		case Settle:
			fmt.Fprintf(&b, "tell %s: %s\n", out.Owner, statuses[out.Status])
		case Reply:
			fmt.Fprintf(&b, "reply: %s\n", outcomes[out.Outcome])
		}
	}
	if b.Len() == 0 {
		return "nothing\n"
	}
	return b.String()
}

// Two coordinators that want the same owners, in whatever order their keys come, never
// hold what the other waits for (B1).
func TestNobodyWaitsInACircle(t *testing.T) {
	for range 100 {
		holder := map[string]int{} // which coordinator has an owner
		waits := map[string]int{}
		var queue []Lock
		var who []int
		var bs [2]*Coordinator
		for i := range bs {
			var outs []Output
			bs[i], outs = New(map[string][]string{"n1": {"a"}, "n2": {"b"}, "n3": {"c"}})
			queue, who = append(queue, outs[0].(Lock)), append(who, i)
		}
		for len(queue) > 0 {
			ask, i := queue[0], who[0]
			queue, who = queue[1:], who[1:]
			if h, taken := holder[ask.Owner]; taken && h != i {
				if waits[ask.Owner]++; waits[ask.Owner] > 10 {
					t.Fatalf("both wait for each other at %s", ask.Owner)
				}
				queue, who = append(queue, ask), append(who, i)
				continue
			}
			holder[ask.Owner] = i
			for _, out := range bs[i].Step(Locked{ask.Owner, make([]Token, 1)}, nil) {
				switch out := out.(type) {
				case Lock:
					queue, who = append(queue, out), append(who, i)
				case Run:
					for owner, h := range holder {
						if h == i {
							delete(holder, owner)
						}
					}
				}
			}
		}
	}
}
