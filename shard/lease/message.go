package lease

// Renew asks for leases. A node sends it at every beat; it is also how a node
// joins, reports its load, and takes its leave.
type Renew struct {
	Node    string // the incarnation: a name, and what makes this incarnation of it unique
	Addr    string // where clients and other nodes reach it
	Host    string // the process that the node runs in; see Gone
	Seq     uint64 // grows with every Renew of the incarnation
	Gave    []Gen  // generations given up or refused, repeated until answered
	Leaving bool   // give me nothing more, and move what I have
	Done    bool   // I hold nothing, and take nothing ever again (N9)
	Table   uint64 // version of the routing table the node has
	Loads   []Load
	Groups  bool // the node can be a member of a group
}

// Load is what one slice was asked since the last report.
type Load struct {
	Gen    Gen
	Rate   uint64   // operations per second
	Sample []string // a few of the keys, drawn evenly from the operations
	Hot    []HotKey // the keys asked most, most first
}

// HotKey is a key and its operations per second.
type HotKey struct {
	Key  string
	Rate uint64
}

// Grant answers the Renew with the same Seq: Leases are the node's for Length
// from the moment that Renew was sent (rules N1, N2). What it does not list is
// not extended, and not recalled either.
type Grant struct {
	Node   string
	Term   uint64
	Seq    uint64
	Length Tick
	Leases []Lease
	After  []Gen   // as Leases: the generation whose owner gave the slice up for this one; 0 if nobody did
	Groups []Group // as Leases, or nil if the node is alone in all of them
	Table  *Table  // nil if the node's is current
}

// Group is who shares a lease: the primary, then the replicas. It is empty if the
// lease is one node's alone. A generation has the same group for ever.
type Group []GroupMember

// GroupMember is a node in a group.
type GroupMember struct {
	Node, Addr, Host string
}

// Primary reports whether a node may write: it is alone, or the first of its group.
func (g Group) Primary(node string) bool { return len(g) == 0 || g[0].Node == node }

// Replicas are the members beside the primary.
func (g Group) Replicas() []GroupMember { return g[min(1, len(g)):] }

// Lease is one slice as leased to one node.
type Lease struct {
	Range
	Gen Gen
}

// Recall asks for leases back. It is repeated until acknowledged by Gave or
// until they are over.
type Recall struct {
	Node   string
	Term   uint64
	Leases []Lease
	Next   []string // as Leases: where the next owner is reached
}

// Gave acknowledges a recall: nothing of these generations, or older ones of
// the same keys, is or will be used by the node.
type Gave struct {
	Node string
	Gens []Gen
}

// Table is who owns what, for routing. It may be out of date: owners decide.
type Table struct {
	Version uint64
	Slices  []Route
}

// Route is one line of a Table. An empty Node means nobody yet.
type Route struct {
	Lease
	Node   string
	Addr   string
	Copies []GroupMember // who else may be asked to read
}

// Find is the route of key. The zero Table has none.
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

// State is what an assigner's successor must know. The coordinator keeps it.
type State struct {
	Gen     Gen    // the highest generation used
	Table   uint64 // the highest table version used
	Longest Tick   // the longest lease ever granted
	Slices  []Held // sorted; together they are every key
}

// Held is one slice of a State.
type Held struct {
	Lease
	Node string
	Addr string
	Host string

	Copies []GroupMember // the replicas of this generation
	Want   int           // how many replicas it is to have
	Pinned bool          // an operator said so: the load does not change it
}
