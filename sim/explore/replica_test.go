package explore

import (
	"testing"

	"github.com/freshet-cache/freshet/sim"
)

// sharings are scopes of replicated keys, each for the rules it exercises. Every one is
// explored completely or up to its limit.
var sharings = []struct {
	name  string
	limit int
	Replicas
}{
	{"read-beside-a-write", 5_000, Replicas{Nodes: 2, Calls: []Call{{Node: 1, Kind: sim.Get}, {Node: -1, Kind: sim.Put}, {Node: 1, Kind: sim.Get}}}},
	{"two-writes", 10_000, Replicas{Nodes: 2, Calls: []Call{{Node: 0, Kind: sim.Put}, {Node: 1, Kind: sim.Get}, {Node: 0, Kind: sim.Put}}, Copies: 1}},
	{"lost-outcome", 5_000, Replicas{Nodes: 2, Calls: []Call{{Node: 0, Kind: sim.Put}, {Node: 1, Kind: sim.Get}}, Losses: 1, Beats: 1}},
	{"lost-outcome-two-writes", 5_000, Replicas{Nodes: 2, Calls: []Call{{Node: 0, Kind: sim.Put}, {Node: 0, Kind: sim.Put}, {Node: 1, Kind: sim.Get}}, Losses: 1}},
	{"lost-messages", 5_000, Replicas{Nodes: 2, Calls: []Call{{Node: 0, Kind: sim.Put}, {Node: 1, Kind: sim.Get}}, Drops: 2, Beats: 2}},
	{"another-group", 6_000, Replicas{Nodes: 2, Calls: []Call{{Node: 0, Kind: sim.Put}, {Node: -1, Kind: sim.Get}}, Changes: 1, Losses: 1}},
	{"another-group-and-a-write", 6_000, Replicas{Nodes: 2, Calls: []Call{{Node: 0, Kind: sim.Put}, {Node: -1, Kind: sim.Put}, {Node: 0, Kind: sim.Get}}, Changes: 1, Losses: 1}},
	{"there-and-back", 5_000, Replicas{Nodes: 2, Calls: []Call{{Node: 0, Kind: sim.Put}, {Node: 1, Kind: sim.Get}}, Changes: 2, Copies: 1}},
	{"late-lease", 8_000, Replicas{Nodes: 2, Calls: []Call{{Node: 0, Kind: sim.Put}, {Node: 1, Kind: sim.Get}}, Late: true, Beats: 1}},
	{"three-members", 5_000, Replicas{Nodes: 3, Calls: []Call{{Node: 0, Kind: sim.Put}, {Node: 2, Kind: sim.Get}}, Changes: 1}},
}

func TestReplicas(t *testing.T) {
	total := 0
	for _, s := range sharings {
		t.Run(s.name, func(t *testing.T) {
			total += explored(t, s.limit, s.Begin).States
		})
	}
	t.Logf("%d states", total)
}
