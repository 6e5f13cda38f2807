package explore

import (
	"strings"
	"testing"

	"github.com/freshet-cache/freshet/sim"
)

// scopes of clink, each for the rules it exercises. Every one is explored
// completely or up to its limit.
var scopes = []struct {
	name  string
	limit int
	Linear
}{
	{"delayed-write", 50_000, Linear{Nodes: 2, Calls: []Call{{-1, sim.Put}, {-1, sim.Get}}, Moves: 1, Losses: 1}},
	{"away-and-back", 60_000, Linear{Nodes: 2, Calls: []Call{{0, sim.Put}, {1, sim.Put}}, Moves: 2, Losses: 1}},
	{"guard-across-a-lapse", 60_000, Linear{Nodes: 2, Calls: []Call{{-1, sim.Put}, {-1, sim.Get}}, Lapses: 2, Losses: 1}},
	{"two-writes-one-lost", 60_000, Linear{Nodes: 2, Calls: []Call{{0, sim.Put}, {0, sim.Put}, {0, sim.Get}}, Losses: 2, Moves: 1}},
	{"decide-from-what-is-there", 80_000, Linear{Nodes: 2, Calls: []Call{{0, sim.Put}, {-1, sim.Append}, {-1, sim.Get}}, Moves: 1, Losses: 1}},
	{"write-if-absent", 60_000, Linear{Nodes: 2, Calls: []Call{{-1, sim.PutNX}, {-1, sim.PutNX}}, Moves: 1, Losses: 1}},
	{"delete", 60_000, Linear{Nodes: 2, Calls: []Call{{0, sim.Put}, {0, sim.Del}, {-1, sim.Get}}, Moves: 1, Losses: 1}},
	{"store-restart", 60_000, Linear{Nodes: 2, Calls: []Call{{0, sim.Put}, {-1, sim.Put}}, Moves: 1, Losses: 1, Forgets: 1}},
	{"caller-gone", 60_000, Linear{Nodes: 2, Calls: []Call{{0, sim.Put}, {0, sim.Put}, {0, sim.Get}}, Losses: 1, Abandons: 1}},
	{"three-nodes", 60_000, Linear{Nodes: 3, Calls: []Call{{0, sim.Put}, {-1, sim.Get}}, Moves: 2, Losses: 1}},
}

func TestLinear(t *testing.T) {
	total := 0
	for _, s := range scopes {
		t.Run(s.name, func(t *testing.T) {
			if testing.Short() {
				s.limit /= 4
			}
			r := Run(s.limit, s.Begin)
			total += r.States
			if r.Violation != nil {
				t.Fatalf("%v\nafter\n  %s", r.Violation, strings.Join(r.Trace, "\n  "))
			}
			t.Log(r)
		})
	}
	t.Logf("%d states", total)
}
