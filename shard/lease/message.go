package lease

import "github.com/freshet-cache/freshet/ticks"

// Renew asks for leases. A node sends it at every beat. With it a node also joins, reports its
// load, and leaves.
type Renew struct {
	Node    string // the incarnation: a name, and what makes it unique
	Addr    string // the address for clients and other nodes
	Host    string // the process that the node runs in; see Gone
	Seq     uint64 // grows with every Renew of the incarnation
	Gave    []Gen  // generations given up or refused; repeated until answered
	Leaving bool   // the node wants no more slices; move those that it has
	Done    bool   // the node holds nothing, and takes nothing ever again (N9)
	Table   uint64 // the version of the node's routing table
	Loads   []Load
	Groups  bool // the node can be a member of a group
}

// Load is the load of one slice since the last report.
type Load struct {
	Gen    Gen
	Rate   uint64   // operations per second
	Sample []string // some of the keys, drawn evenly from the operations
	Hot    []HotKey // the hottest keys, hottest first
}

// HotKey is a key and its operations per second.
type HotKey struct {
	Key  string
	Rate uint64
}

// Grant answers the Renew with the same Seq: the node has Leases for Length from the moment when
// that Renew was sent (N1, N2). A lease that a Grant does not list is neither extended nor
// recalled.
type Grant struct {
	Node   string
	Term   uint64
	Seq    uint64
	Length ticks.Tick
	Leases []Lease
	After  []Gen   // in the order of Leases: the generation whose owner gave the slice up for this one; 0 if none
	Groups []Group // in the order of Leases; nil if the node shares none of them
	Table  *Table  // nil if the node's table is current
}

// Group has the nodes that share a lease: the primary, then the replicas. It is empty if one node
// has the lease alone. A generation has the same group for ever.
type Group []GroupMember

// GroupMember is a node in a group.
type GroupMember struct {
	Node, Addr, Host string
}

// Primary reports whether a node may write: it is alone, or the first of its group.
func (g Group) Primary(node string) bool { return len(g) == 0 || g[0].Node == node }

// Replicas returns the members except the primary.
func (g Group) Replicas() []GroupMember { return g[min(1, len(g)):] }

// Lease is the lease of one slice.
type Lease struct {
	Range
	Gen Gen
}

// Recall asks a node to give up leases. The assigner repeats it until Gave acknowledges it or the
// leases have ended.
type Recall struct {
	Node   string
	Term   uint64
	Leases []Lease
	Next   []string // in the order of Leases: the address of the next owner
}

// Gave acknowledges a recall: the node uses no lease of these generations, or of older ones of the
// same keys, and never will.
type Gave struct {
	Node string
	Gens []Gen
}

// Table says which node owns which range, for routing. It may be out of date: owners decide.
type Table struct {
	Version uint64
	Slices  []Route
}

// Route is one line of a Table. An empty Node means that the range has no owner yet.
type Route struct {
	Lease
	Node   string
	Addr   string
	Copies []GroupMember // the replicas, which also serve reads
}

// Find returns the route of key. The zero Table has none.
func (t *Table) Find(key string) (Route, bool) {
	lo, hi := 0, len(t.Slices)
	for lo < hi {
		if mid := (lo + hi) / 2; t.Slices[mid].Low <= key {
			lo = mid + 1
		} else {
			hi = mid
		}
	}
	if lo == 0 || !t.Slices[lo-1].Contains(key) {
		return Route{}, false
	}
	return t.Slices[lo-1], true
}

// State is what the next leader must know. The coordinator keeps it.
type State struct {
	Gen     Gen        // the highest generation used
	Table   uint64     // the highest table version used
	Longest ticks.Tick // the longest lease ever granted
	Slices  []Held     // sorted; together they cover every key
}

// Held is one slice of a State.
type Held struct {
	Lease
	Node string
	Addr string
	Host string

	Copies []GroupMember // the replicas of this generation
	Want   int           // how many replicas the slice should have
	Pinned bool          // an operator has set Want: the load does not change it
}
