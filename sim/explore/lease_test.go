package explore

import (
	"os"
	"strings"
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
			switch {
			case os.Getenv("FRESHET_EXPLORE") != "": // make explore: as far as it goes
				s.limit = 1 << 40
			case testing.Short():
				s.limit /= 16
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
