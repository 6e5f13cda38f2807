package node

import (
	"fmt"
	"strings"
	"time"

	"github.com/freshet-cache/freshet/node/promise"
)

// State is the cluster as freshet status and FR.STATE show it.
type State struct {
	Version string       `json:"version"`
	Cluster string       `json:"cluster"`
	Uptime  string       `json:"uptime"`
	Gen     uint64       `json:"generation"`
	Nodes   []NodeState  `json:"nodes"`
	Slices  []SliceState `json:"slices"`
	Rings   []RingState  `json:"rings,omitempty"` // of spaces, as this node sees them
	Health  Health       `json:"health"`
}

// RingState says who serves a space, as a node sees it.
type RingState = promise.Group

// NodeState is one node.
type NodeState struct {
	ID       string `json:"id"`
	Addr     string `json:"addr"`
	Admin    string `json:"admin"`
	Ready    bool   `json:"ready"`
	Draining bool   `json:"draining"`
	Slices   int    `json:"slices"`
	Conns    int    `json:"connections"`
	Entries  int    `json:"entries"`
	Hits     uint64 `json:"hits"`
	Misses   uint64 `json:"misses"`
	Problem  string `json:"problem,omitempty"` // why its process can move no slices, though it should

	Lost     bool      `json:"lost,omitempty"`       // it does not answer, and owns what it owned until then
	Since    time.Time `json:"lost_since,omitzero"`  // when it was lost
	Writable time.Time `json:"writable_at,omitzero"` // when others take writes for its slices; zero: not known
}

// SliceState is one slice. Keys are quoted where they are not plain text.
type SliceState struct {
	Range    string   `json:"range"`
	Gen      uint64   `json:"generation"`
	Node     string   `json:"node"`
	Replicas []string `json:"replicas,omitempty"` // of its one key
}

// Health is how the cluster is, in one word, as one process sees it.
type Health struct {
	// Status is SAFE if every slice takes writes and no node is lost, and else WAITING.
	Status     string          `json:"status"`
	Unwritable int             `json:"unwritable_slices"`
	Writable   time.Time       `json:"writable_at,omitzero"` // when all take writes again; zero: now, or not known
	Lost       []ClusterMember `json:"lost"`
	StoreAway  bool            `json:"store_away"`
}

// String says it in lines.
func (h Health) String() string {
	var b strings.Builder
	for _, m := range h.Lost {
		b.WriteString(lostText(m) + "\n")
	}
	if h.Unwritable > 0 {
		fmt.Fprintf(&b, "%d slices take no writes\n", h.Unwritable)
	}
	if h.StoreAway {
		b.WriteString("the store does not answer\n")
	}
	return b.String()
}

// ClusterMember is a node of the cluster, as the process with the assigner sees it.
type ClusterMember struct {
	ID          string    `json:"id"`
	Incarnation string    `json:"incarnation"`
	Addr        string    `json:"addr"`
	Leaving     bool      `json:"leaving,omitempty"`
	Lost        bool      `json:"lost,omitempty"`       // it has ended or stands still, and did not say so before
	Since       time.Time `json:"since,omitzero"`       // when it was lost
	Slices      int       `json:"slices"`               // that it owns
	Writable    time.Time `json:"writable_at,omitzero"` // when others take writes for the slices of a lost node; zero: not known
}

// Membership is all members, and the slices that take no writes because of them.
type Membership struct {
	Members    []ClusterMember `json:"members"`
	Unwritable int             `json:"unwritable_slices"`
	Writable   time.Time       `json:"writable_at,omitzero"`
}

// lostText is a sentence about a lost node.
func lostText(m ClusterMember) string {
	switch {
	case m.Slices == 0:
		return fmt.Sprintf("node %s is lost; it owned nothing", m.ID)
	case m.Writable.IsZero():
		return fmt.Sprintf("node %s is lost; its %d slices take no writes until it is back or another assigner leads", m.ID, m.Slices)
	}
	return fmt.Sprintf("node %s is lost; its %d slices take no writes until %s", m.ID, m.Slices, m.Writable.UTC().Format("15:04:05"))
}
