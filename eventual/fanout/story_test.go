package fanout_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"

	"github.com/freshet-cache/freshet/sim/explore"
)

// TestStories runs testdata/*.txt. A story is a schedule of the world of sim/explore, choice by choice:
// what is sent arrives at once unless a link holds it, S and t are two units of time, L and W are
// three. After the choices it shows what each node would serve.
func TestStories(t *testing.T) {
	datadriven.Walk(t, "testdata", func(t *testing.T, path string) {
		var w explore.World
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			switch d.Cmd {
			case "nodes":
				s := explore.Plenty
				d.MaybeScanArgs(t, "n", &s.Nodes)
				d.MaybeScanArgs(t, "ring", &s.Ring)
				d.MaybeScanArgs(t, "linger", &s.Linger)
				d.MaybeScanArgs(t, "slots", &s.Slots)
				d.MaybeScanArgs(t, "keys", &s.Keys)
				s.Tagged, s.Bus, s.Tier = d.HasArg("tagged"), d.HasArg("bus"), d.HasArg("tier")
				w = s.Begin()
			case "do":
				for line := range strings.Lines(d.Input) {
					if err := explore.ChooseNamed(w, strings.TrimSpace(line)); err != nil {
						return fmt.Sprintf("after %q: %v\n", strings.TrimSpace(line), err)
					}
				}
			default:
				t.Fatalf("no command %s", d.Cmd)
			}
			return explore.Show(w)
		})
	})
}
