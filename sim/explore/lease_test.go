package explore

import (
	"testing"
)

var leaseScopes = []struct {
	name  string
	limit int
	Lease
}{
	{"move", 60_000, Lease{Nodes: 2, Beats: 2, Moves: 1, Hours: 1, Losses: 1}},
	{"silence", 60_000, Lease{Nodes: 2, Beats: 2, Hours: 4}},
	{"late-and-twice", 40_000, Lease{Nodes: 2, Beats: 2, Moves: 1, Copies: 1}},
	{"another-incarnation", 40_000, Lease{Nodes: 2, Beats: 2, Crashes: 1, Hours: 3}},
	{"release", 60_000, Lease{Nodes: 2, Beats: 2, Releases: 2, Moves: 1, Copies: 1}},
	{"takeover", 60_000, Lease{Nodes: 2, Beats: 1, Takeovers: 1, Hours: 1}},
	{"release-takeover", 40_000, Lease{Nodes: 2, Beats: 1, Releases: 1, Takeovers: 1, Hours: 1}},
	{"two-leaders", 60_000, Lease{Nodes: 2, Beats: 2, Takeovers: 1, Moves: 1}},
	{"replicate", 5_000, Lease{Nodes: 2, Beats: 1, Groups: 2}},
	{"replica-silent", 5_000, Lease{Nodes: 2, Beats: 2, Groups: 1, Hours: 4}},
	{"replicas-takeover", 5_000, Lease{Nodes: 2, Beats: 1, Groups: 1, Takeovers: 1, Hours: 1}},
	{"takeover-and-silence", 80_000, Lease{Nodes: 2, Beats: 2, Takeovers: 1, Hours: 4}},
}

func TestLease(t *testing.T) {
	total := 0
	for _, s := range leaseScopes {
		t.Run(s.name, func(t *testing.T) {
			total += explored(t, s.limit, s.Begin).States
		})
	}
	t.Logf("%d states", total)
}
