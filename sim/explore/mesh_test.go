package explore

import (
	"testing"
)

func anywhere(c MeshCall) MeshCall { c.At = -1; return c }

var (
	putX   = anywhere(MeshCall{Put: "x"})
	putY   = anywhere(MeshCall{Put: "y"})
	readX  = anywhere(MeshCall{Read: "x"})
	readY  = anywhere(MeshCall{Read: "y"})
	readXY = anywhere(MeshCall{Read: "xy"})

	begin    = anywhere(MeshCall{Begin: true})
	lookX    = anywhere(MeshCall{Look: "x"})
	lookXY   = anywhere(MeshCall{Look: "xy"})
	commitXY = anywhere(MeshCall{Commit: "xy"})
)

func at(i int, c MeshCall) MeshCall { c.At = i; return c }

// meshes are scopes of causal/mesh, each for the rules it exercises. Every one is
// explored completely or up to its limit.
var meshes = []struct {
	name  string
	limit int
	Mesh
}{
	{"roaming", 3_000, Mesh{Servers: 3, Keys: []string{"x", "y"}, Sessions: [][]MeshCall{{at(0, putX), putY}, {readY, readX}}}},
	{"misses", 3_000, Mesh{Servers: 3, Sessions: [][]MeshCall{{at(0, putX), putY}, {readY, readX}}}},
	{"one-cut", 3_000, Mesh{Servers: 2, Sessions: [][]MeshCall{{at(0, putX), putY, putX}, {readXY}}}},
	{"two-writers", 3_000, Mesh{Servers: 2, Keys: []string{"x"}, Sessions: [][]MeshCall{{putX, readX}, {putX, readX}}}},
	{"eviction", 3_000, Mesh{Servers: 2, Keys: []string{"x"}, Evicts: 2, Beats: 1, Sessions: [][]MeshCall{{at(0, putX), at(0, putX)}, {readX, readX}}}},
	{"no-answer", 3_000, Mesh{Servers: 2, Losses: 2, Sessions: [][]MeshCall{{at(0, putX), putY}, {readX, readX}}}},
	{"broken", 3_000, Mesh{Servers: 3, Keys: []string{"x", "y"}, Breaks: 1, Beats: 1, Sessions: [][]MeshCall{{at(0, putX), putY}, {readXY}}}},
	{"fork-and-join", 3_000, Mesh{Servers: 2, Keys: []string{"x"}, Sessions: [][]MeshCall{{at(0, putX), readX}, {anywhere(MeshCall{Put: "y", Fork: 1})}, {anywhere(MeshCall{Read: "xy", Join: 2})}}}},
	{"tombstones", 17_000, Mesh{Servers: 2, Keys: []string{"x"}, Beats: 2, Evicts: 1, Sessions: [][]MeshCall{{at(0, putX)}, {at(1, MeshCall{Put: "x", Delete: true}), readX}}}},
	{"crash", 3_000, Mesh{Servers: 2, Crashes: 1, Beats: 2, Sessions: [][]MeshCall{{at(0, putX)}, {at(1, readX)}}}},
	{"crash-with-a-cause", 3_000, Mesh{Servers: 3, Crashes: 1, Beats: 1, Sessions: [][]MeshCall{{at(0, putX), at(1, putY), at(2, readXY)}}}},
	{"suspected", 3_000, Mesh{Servers: 2, Keys: []string{"x"}, Suspects: 1, Beats: 2, Sessions: [][]MeshCall{{at(0, putX)}, {readX}}}},
	{"suspected-of-three", 3_000, Mesh{Servers: 3, Keys: []string{"x"}, Suspects: 1, Sessions: [][]MeshCall{{at(0, putX)}, {at(1, readX), at(2, readX)}}}},
	{"join", 3_000, Mesh{Servers: 2, Keys: []string{"x", "y"}, Joins: 1, Sessions: [][]MeshCall{{at(0, putX), at(1, putY)}, {readY, readX}}}},
	{"suspected-and-join", 3_000, Mesh{Servers: 2, Keys: []string{"x"}, Suspects: 1, Joins: 1, Beats: 2, Sessions: [][]MeshCall{{at(0, putX)}, {readX}}}},
	{"snapshot", 3_000, Mesh{Servers: 2, Keys: []string{"x", "y"}, Versions: 2, Beats: 1, Sessions: [][]MeshCall{{at(0, putX), at(0, putY), at(1, putX)}, {at(0, begin), at(1, lookX), at(0, lookXY)}}}},
	{"transaction", 3_000, Mesh{Servers: 2, Evicts: 1, Versions: 1, Beats: 1, Sessions: [][]MeshCall{{at(0, putX), at(1, putY)}, {begin, lookX, at(1, commitXY)}, {at(0, readXY)}}}},
	{"concurrent", 3_000, Mesh{Servers: 2, Concurrent: true, Keys: []string{"x"}, Beats: 1, Sessions: [][]MeshCall{{putX, readX}, {putX, readX, putX}}}},
	{"concurrent-misses", 3_000, Mesh{Servers: 2, Concurrent: true, Evicts: 1, Beats: 1, Sessions: [][]MeshCall{{at(0, putX), readX}, {at(1, putX), readX}}}},
	{"concurrent-deletion", 3_000, Mesh{Servers: 2, Concurrent: true, Keys: []string{"x"}, Beats: 2, Evicts: 1, Sessions: [][]MeshCall{{at(0, putX)}, {readX, at(1, MeshCall{Put: "x", Delete: true}), readX}}}},
	{"concurrent-suspected", 3_000, Mesh{Servers: 2, Concurrent: true, Keys: []string{"x"}, Suspects: 1, Beats: 2, Sessions: [][]MeshCall{{at(0, putX)}, {readX, putX}}}},
	{"concurrent-snapshot", 3_000, Mesh{Servers: 2, Concurrent: true, Keys: []string{"x", "y"}, Versions: 2, Beats: 1, Sessions: [][]MeshCall{{at(0, putX), readX, at(1, putX)}, {at(0, begin), at(1, lookX), at(0, lookXY)}, {at(1, putX)}}}},
	{"written-past-the-cache", 3_000, Mesh{Servers: 2, Keys: []string{"x"}, Triggers: 2, Beats: 2, Evicts: 1, Sessions: [][]MeshCall{{readX, putY}, {readXY}}}},
	{"async", 3_000, Mesh{Servers: 2, Async: true, Keys: []string{"x"}, Beats: 3, Evicts: 1, Sessions: [][]MeshCall{{at(0, putX)}, {at(1, putX), readX}}}},
	{"async-crash", 3_000, Mesh{Servers: 2, Async: true, Batch: 1, Crashes: 1, Beats: 2, Sessions: [][]MeshCall{{at(0, putX), at(1, putY)}, {readXY}}}},
	{"async-suspected", 3_000, Mesh{Servers: 2, Async: true, Keys: []string{"x"}, Suspects: 1, Losses: 1, Beats: 3, Evicts: 1, Sessions: [][]MeshCall{{at(0, putX)}, {readX}}}},
	{"window", 3_000, Mesh{Servers: 2, Window: 1, Beats: 3, Sessions: [][]MeshCall{{at(0, putX), at(0, putX)}, {at(0, putX), readX}}}},
}

func TestMesh(t *testing.T) {
	total := 0
	for _, s := range meshes {
		t.Run(s.name, func(t *testing.T) {
			total += explored(t, s.limit, s.Begin).States
		})
	}
	t.Logf("%d states", total)
}
