package explore

import (
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
	{"delayed-write", 50_000, Linear{Nodes: 2, Calls: []Call{{Node: -1, Kind: sim.Put}, {Node: -1, Kind: sim.Get}}, Moves: 1, Losses: 1}},
	{"away-and-back", 60_000, Linear{Nodes: 2, Calls: []Call{{Node: 0, Kind: sim.Put}, {Node: 1, Kind: sim.Put}}, Moves: 2, Losses: 1}},
	{"guard-across-a-lapse", 60_000, Linear{Nodes: 2, Calls: []Call{{Node: -1, Kind: sim.Put}, {Node: -1, Kind: sim.Get}}, Lapses: 2, Losses: 1}},
	{"two-writes-one-lost", 60_000, Linear{Nodes: 2, Calls: []Call{{Node: 0, Kind: sim.Put}, {Node: 0, Kind: sim.Put}, {Node: 0, Kind: sim.Get}}, Losses: 2, Moves: 1}},
	{"decide-from-what-is-there", 80_000, Linear{Nodes: 2, Calls: []Call{{Node: 0, Kind: sim.Put}, {Node: -1, Kind: sim.Append}, {Node: -1, Kind: sim.Get}}, Moves: 1, Losses: 1}},
	{"write-if-absent", 60_000, Linear{Nodes: 2, Calls: []Call{{Node: -1, Kind: sim.PutNX}, {Node: -1, Kind: sim.PutNX}}, Moves: 1, Losses: 1}},
	{"delete", 60_000, Linear{Nodes: 2, Calls: []Call{{Node: 0, Kind: sim.Put}, {Node: 0, Kind: sim.Del}, {Node: -1, Kind: sim.Get}}, Moves: 1, Losses: 1}},
	{"store-restart", 60_000, Linear{Nodes: 2, Calls: []Call{{Node: 0, Kind: sim.Put}, {Node: -1, Kind: sim.Put}}, Moves: 1, Losses: 1, Truncates: 1}},
	{"caller-gone", 60_000, Linear{Nodes: 2, Calls: []Call{{Node: 0, Kind: sim.Put}, {Node: 0, Kind: sim.Put}, {Node: 0, Kind: sim.Get}}, Losses: 1, Abandons: 1}},
	{"two-keys", 60_000, Linear{Nodes: 1, Calls: []Call{{Kind: sim.Put}, {Kind: sim.Put, Key: "l"}, {Kind: sim.Get}}, Losses: 2}},
	{"decide-behind-a-write", 60_000, Linear{Nodes: 1, Calls: []Call{{Kind: sim.Put}, {Kind: sim.Append}, {Kind: sim.Append}}, Losses: 1}},
	{"reads-together", 60_000, Linear{Nodes: 2, Calls: []Call{{Node: 1, Kind: sim.Get}, {Kind: sim.Put}, {Node: 1, Kind: sim.Get}}}},
	{"warm-move", 60_000, Linear{Nodes: 2, Calls: []Call{{Node: -1, Kind: sim.Put}, {Node: -1, Kind: sim.Put}}, Moves: 1, Losses: 1, Warm: true}},
	{"warm-away-and-back", 80_000, Linear{Nodes: 2, Calls: []Call{{Node: 0, Kind: sim.Put}, {Node: -1, Kind: sim.Put}}, Moves: 3, Warm: true}},
	{"warm-move-and-cut", 60_000, Linear{Nodes: 2, Calls: []Call{{Node: 0, Kind: sim.Put}, {Node: 1, Kind: sim.Put}}, Moves: 1, Cuts: 1, Warm: true}},
	{"cut-across-a-lapse", 60_000, Linear{Nodes: 2, Calls: []Call{{Node: -1, Kind: sim.Put}, {Node: -1, Kind: sim.Get}}, Lapses: 2, Cuts: 1}},
	{"cut-while-a-write-is-lost", 60_000, Linear{Nodes: 2, Calls: []Call{{Node: 0, Kind: sim.Put}, {Node: -1, Kind: sim.Put}}, Moves: 1, Cuts: 1, Losses: 1}},
	{"transaction", 60_000, Linear{Nodes: 2, Calls: []Call{{Node: 0, Kind: sim.Transact}, {Node: -1, Kind: sim.Put}, {Node: -1, Kind: sim.Get}}, Moves: 1, Losses: 1}},
	{"transaction-and-reads", 60_000, Linear{Nodes: 2, Calls: []Call{{Node: 0, Kind: sim.Put}, {Node: -1, Kind: sim.Transact}, {Node: 0, Kind: sim.Get}}, Losses: 2, Truncates: 1}},
	{"two-transactions", 60_000, Linear{Nodes: 2, Calls: []Call{{Node: 0, Kind: sim.Transact}, {Node: -1, Kind: sim.Transact}}, Moves: 2, Losses: 1}},
	{"three-nodes", 60_000, Linear{Nodes: 3, Calls: []Call{{Node: 0, Kind: sim.Put}, {Node: -1, Kind: sim.Get}}, Moves: 2, Losses: 1}},
}

func TestLinear(t *testing.T) {
	total := 0
	for _, s := range scopes {
		t.Run(s.name, func(t *testing.T) {
			total += explored(t, s.limit, s.Begin).States
		})
	}
	t.Logf("%d states", total)
}
