package explore

import (
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"testing"
)

// small bounds the scopes that are explored to their end.
const small = 10_000

// eventuals are scopes of eventual/fanout, each for the rules it exercises.
var eventuals = []struct {
	name  string
	limit int
	Eventual
}{
	{"held", small, Eventual{Nodes: 2, Writes: 1, Holds: 1}},
	{"two-writes", small, Eventual{Nodes: 2, Writes: 2}},
	{"one-load", small, Eventual{Nodes: 1, Writes: 1, Evicts: 1, Reads: 1, Units: 2}},
	{"one-session", small, Eventual{Nodes: 2, Writes: 1, Holds: 1, Session: 1}},
	{"roaming", small, Eventual{Nodes: 2, Writes: 1, Holds: 1, Session: 2}},
	{"tier", small, Eventual{Nodes: 2, Tier: true, Writes: 1, Evicts: 1, Reads: 1}},
	{"tier-cut", small, Eventual{Nodes: 2, Tier: true, Writes: 1, Units: 3, TierCuts: 1}},
	{"write", 100, Eventual{Nodes: 2, Units: 5, Reads: 1, Writes: 1, Holds: 1}},
	{"unknown", 100, Eventual{Nodes: 2, Units: 7, Reads: 1, Writes: 1, Unknowns: 1}},
	{"load", 100, Eventual{Nodes: 1, Units: 6, Reads: 2, Writes: 1, Evicts: 1}},
	{"two-writers", 100, Eventual{Nodes: 2, Reads: 1, Writes: 1, Sets: 1, Holds: 1}},
	{"set", 100, Eventual{Nodes: 2, Units: 3, Writes: 1, Sets: 1, Holds: 1, Losses: 1}},
	{"page", 100, Eventual{Nodes: 1, Evicts: 1, Pages: 1, Writes: 1, Session: 2}},
	{"session", 100, Eventual{Nodes: 2, Writes: 1, Holds: 1, Evicts: 1, Session: 2}},
	{"session-marked", 100, Eventual{Nodes: 2, Units: 2, Writes: 1, Evicts: 1, Session: 2}},
	{"overtaken", 100, Eventual{Nodes: 1, Keys: []string{"x", "y"}, Slots: 1, Writes: 2, Evicts: 1, Reads: 1, Session: 2}},
	{"crash", 100, Eventual{Nodes: 2, Units: 8, Reads: 1, Writes: 1, Crashes: 1, Holds: 1, Losses: 1}},
	{"join", 100, Eventual{Nodes: 2, Units: 3, Reads: 1, Writes: 1, Joins: 1, Pauses: 1}},
	{"tags", 100, Eventual{Nodes: 2, Keys: []string{"x", "y"}, Tagged: true, Units: 1, Reads: 1, Writes: 1, Holds: 1, Evicts: 1}},
	{"three", 100, Eventual{Nodes: 3, Units: 2, Writes: 1, Session: 2, Holds: 1, Evicts: 1}},
}

func TestEventual(t *testing.T) {
	total := 0
	for _, s := range eventuals {
		t.Run(s.name, func(t *testing.T) {
			r := explored(t, s.limit, s.Begin)
			if total += r.States; !r.Complete && s.limit == small && !testing.Short() {
				t.Errorf("%v: it was small enough to be explored to its end", r)
			}
		})
	}
	t.Logf("%d states", total)
}

// walks are scopes too large to be explored: random schedules of them are tried, each with some of
// their faults and calls.
var walks = []struct {
	name string
	Eventual
}{
	{"all", Eventual{Nodes: 3, Units: 20, Reads: 8, Pages: 1, Writes: 3, Sets: 1, Unknowns: 1, Refusals: 1, Evicts: 2, Holds: 3, Slows: 2, Losses: 3, Copies: 2, Crashes: 1, Pauses: 2, Joins: 2, Leaves: 1, Deaf: 1, Session: 8}},
	{"tags", Eventual{Nodes: 3, Keys: []string{"x", "y"}, Tagged: true, Units: 20, Reads: 8, Pages: 1, Writes: 3, Unknowns: 1, Evicts: 2, Holds: 3, Slows: 2, Losses: 3, Copies: 2, Crashes: 1, Pauses: 2, Joins: 2, Leaves: 1, Deaf: 1, Session: 8}},
	{"links", Eventual{Nodes: 2, Units: 14, Reads: 6, Writes: 2, Unknowns: 1, Holds: 2, Slows: 2, Losses: 4, Copies: 2, Pauses: 1}},
	{"deaths", Eventual{Nodes: 2, Units: 30, Reads: 8, Writes: 2, Crashes: 1, Joins: 2, Pauses: 1, Deaf: 1, Holds: 2, Slows: 1, Losses: 2, Leaves: 1}},
	{"ring", Eventual{Nodes: 2, Ring: 1, Units: 16, Reads: 8, Writes: 4, Holds: 2, Losses: 4, Copies: 1, Unknowns: 1}},
	{"sessions", Eventual{Nodes: 3, Units: 10, Reads: 2, Writes: 3, Sets: 1, Holds: 2, Slows: 1, Evicts: 2, Pages: 1, Joins: 1, Leaves: 1, Session: 12}},
	{"calm", Eventual{Nodes: 3, Units: 12, Reads: 4, Writes: 3, Sets: 1, Unknowns: 1, Crashes: 1, Joins: 1, Leaves: 1, Deaf: 1, Holds: 3, Losses: 3, Copies: 2, Calm: true, Pauses: 1}},
	{"linger", Eventual{Nodes: 3, Units: 24, Linger: 6, Reads: 4, Writes: 3, Crashes: 1, Holds: 2, Losses: 2, Calm: true}},
	{"bus", Eventual{Nodes: 3, Bus: true, Units: 16, Reads: 6, Writes: 3, Sets: 1, Unknowns: 1, Crashes: 1, Joins: 1, Leaves: 1, Calm: true}},
	{"hybrid", Eventual{Nodes: 2, Tier: true, Units: 12, Reads: 8, Writes: 3, Unknowns: 1, Evicts: 4, Holds: 1, Slows: 1, Losses: 2, Failovers: 1, TierCuts: 2, TierLoses: 1, Pauses: 1, Crashes: 1, Joins: 1}},
	{"hybrid-tags", Eventual{Nodes: 2, Tier: true, Keys: []string{"x", "y"}, Tagged: true, Units: 12, Reads: 8, Writes: 3, Unknowns: 1, Evicts: 4, Holds: 1, Slows: 1, Losses: 2, Failovers: 1, TierCuts: 2, Crashes: 1, Joins: 1}},
	{"hybrid-sessions", Eventual{Nodes: 2, Tier: true, Units: 8, Reads: 6, Writes: 2, Sets: 1, Evicts: 6, Holds: 1, Session: 8, Failovers: 1, TierCuts: 1}},
	{"hybrid-calm", Eventual{Nodes: 2, Tier: true, Units: 8, Reads: 6, Writes: 3, Evicts: 4, Holds: 1, Losses: 2, Failovers: 1, TierCuts: 2, Crashes: 1, Joins: 1, Calm: true}},
	{"drift", Eventual{Nodes: 3, Drift: true, Units: 20, Reads: 8, Writes: 3, Sets: 1, Unknowns: 1, Holds: 2, Slows: 2, Losses: 3, Crashes: 1, Joins: 2, Pauses: 1, Deaf: 1, Session: 6}},
	{"hybrid-drift", Eventual{Nodes: 3, Drift: true, Tier: true, Units: 16, Reads: 8, Writes: 3, Unknowns: 1, Evicts: 4, Holds: 2, Losses: 2, Failovers: 1, TierCuts: 2, Crashes: 1, Joins: 1}},
	{"one-slot", Eventual{Nodes: 2, Keys: []string{"x", "y"}, Slots: 1, Units: 8, Reads: 8, Pages: 1, Writes: 3, Sets: 2, Evicts: 2, Session: 8, Holds: 1, Losses: 1}},
}

// swarm returns the scope without some of its faults and calls: many a schedule needs that something
// does not happen.
func (s Eventual) swarm(seed uint64) Eventual {
	r := rand.New(rand.NewPCG(seed, 0x737761726d))
	for _, budget := range []*int{&s.Pages, &s.Sets, &s.Unknowns, &s.Refusals, &s.Evicts, &s.Holds, &s.Slows, &s.Losses, &s.Copies, &s.Crashes, &s.Pauses, &s.Joins, &s.Leaves, &s.Deaf, &s.Failovers, &s.TierCuts, &s.TierLoses, &s.Session} {
		if r.IntN(2) == 0 {
			*budget = 0
		}
	}
	return s
}

// walked is how many times a plain test walks through a scope, or FRESHET_WALKS.
func walked(t *testing.T, n uint64) uint64 {
	if v, err := strconv.ParseUint(os.Getenv("FRESHET_WALKS"), 10, 32); err == nil {
		return v
	}
	if testing.Short() {
		return n / 16
	}
	return n
}

// walk tries random schedules of a scope.
func walk(t *testing.T, n uint64, scope func(seed uint64) Eventual) {
	steps := 0
	for seed := range n {
		r := Walk(seed, 300, scope(seed).Begin)
		steps += r.Steps
		if r.Violation != nil {
			t.Fatalf("seed %d: %v\nafter\n  %s", seed, r.Violation, strings.Join(r.Trace, "\n  "))
		}
	}
	t.Logf("%d schedules, %d steps", n, steps)
}

// In small scopes random schedules reach deeper than an exploration of as many states.
func TestEventualSmall(t *testing.T) {
	for _, s := range eventuals {
		t.Run(s.name, func(t *testing.T) { walk(t, walked(t, 1000), func(uint64) Eventual { return s.Eventual }) })
	}
}

func TestEventualWalks(t *testing.T) {
	for _, s := range walks {
		t.Run(s.name, func(t *testing.T) { walk(t, walked(t, 300), s.swarm) })
	}
}
