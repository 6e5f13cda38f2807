// Package tracking is CLIENT TRACKING across the nodes of a cluster: a client that keeps what it has
// read is notified when it changes, whichever node it reads at and whichever node the write is made at.
//
// What may be relied on: before a write is acknowledged, every client that has read one of its keys,
// or follows a prefix of one, has been notified, or its connection is closed. "Notified" means that the push
// is with the operating system. A client that may have missed a push is notified that everything it
// keeps may be old.
//
// # How
//
// A node remembers which clients read a key before it looks the key up, and notifies them after the
// commit. So a read either sees the write or its client is notified.
//
// A client reads at node B what node A owns: B remembers the client, and A remembers the link over
// which B asked, before A looks the key up. Before A acknowledges a write, B has notified its
// clients and said so. What A remembers ends with the link, and B then notifies all clients that read
// through it.
//
// The next owner of a slice knows nothing of all that. It announces itself to every node before it
// acknowledges a write: they notify the clients that have read a key of the slice, and tell the new owner
// which prefixes their clients follow.
//
// What it costs: one look at an atomic counter for each write while no client tracks anything; an entry
// of package track for each key that is read with tracking; and for a write to such a key one request
// to each node whose clients have read it.
package tracking

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/freshet-cache/freshet/clock"
	"github.com/freshet-cache/freshet/internal/drive"
	"github.com/freshet-cache/freshet/link"
	"github.com/freshet-cache/freshet/resp"
	"github.com/freshet-cache/freshet/shard"
	"github.com/freshet-cache/freshet/shard/lease"
	"github.com/freshet-cache/freshet/track"
)

// Node is the node that tracking serves. All methods are safe for concurrent use.
type Node interface {
	// Table is the routing table of the cluster.
	Table() *lease.Table
	// Newer waits a moment for a routing table after version, and reports whether it came.
	Newer(ctx context.Context, version uint64) bool
	// Living are the addresses of the other nodes: true for those that have been heard of lately,
	// false for others that own something as far as this node knows.
	Living(ctx context.Context) map[string]bool
	// Link is the link to the node at an address over which reads of tracking clients go.
	Link(ctx context.Context, addr string) (*link.Link, error)
	// Tell sends a message of this package over a link. Without an error the other node has served it.
	Tell(ctx context.Context, over *link.Link, message []byte) error
	// Insist sends a message to the node at an address, and tries again while it may be there. It
	// returns once the other node has served the message, or cannot have; lives says that the node has
	// been heard of lately.
	Insist(ctx context.Context, addr string, message []byte, lives bool) error
	// Conn is a client's connection by its id, nil if there is none.
	Conn(id int64) *resp.Conn
	// Decided returns nil once no earlier write of the keys can take effect any more, [ErrNotOurs] if
	// this node does not own them or is closed, and another error if it cannot tell yet.
	Decided(ctx context.Context, keys []string) error
	// Draining reports whether this node gives its slices away.
	Draining() bool
	// Closed reports whether this node has closed its links for good.
	Closed() bool
}

// ErrNotOurs means that another node decides what becomes of a write; it announces itself.
var ErrNotOurs = errors.New("tracking: the keys have another owner")

// Options configure Tracking. Context is required.
type Options struct {
	// Keys bounds the keys that are remembered, for clients and for other nodes each. Default 1 000 000.
	Keys int
	// Addr is where other nodes reach this one.
	Addr string
	// Timeout bounds one attempt to find out what became of a write. Default 5 s.
	Timeout time.Duration
	// Context ends with the node.
	Context context.Context
	// Clock tells when TTLs pass.
	Clock clock.Clock
	// Logger takes what other nodes fail to do. Default: nothing is logged.
	Logger *slog.Logger
}

// Tracking is the tracking of one node. All methods are safe for concurrent use.
type Tracking struct {
	n      Node
	opt    Options
	busy   atomic.Int64 // what there is to tell, or to wait for: 0 nearly always
	local  *track.Table[*resp.Conn]
	remote *track.Table[*Asker] // other nodes, by the links they opened
	work   drive.Tasks

	pushes, undecided atomic.Uint64

	mu      sync.Mutex
	clients map[*resp.Conn]bool
	watched map[*link.Link]bool   // links we opened, and read through
	told    map[string]*link.Link // owners that know our prefixes, by address
	seeking map[string]bool       // owners that shall, when they can be reached
	pending []*takeover
	awaited []*takeover            // that writes wait for, these included
	handles []*shard.Handle        // what this node holds
	apart   bool                   // the assigner does not know of us
	working bool                   // somebody announces
	known   map[string]bool        // owners that have announced themselves
	lists   map[string]*sync.Mutex // one list of prefixes after the other, by address
}

// Asker is another node that may read here for its clients, by the link it opened.
type Asker struct {
	*link.Link
	Addr    string // where the node is reached; empty if it did not say
	asked   atomic.Bool
	parting *takeover // when the link has broken
}

// takeover is a slice that this node has taken over, until all nodes know; or
// all keys, until a node whose link broke knows that.
type takeover struct {
	lease.Range
	done chan struct{}
}

// cause is the client whose write changed keys.
type cause struct {
	conn  int64 // the client's connection, 0 if none; it is notified behind its reply
	write bool  // it was a write, of which a client with NOLOOP is not notified
	reads bool  // together with reads, and the client is remembered for these
}

const (
	tellWait        = 2 * time.Second // for one node to tell its clients; longer than a push may take
	takeoverWait    = time.Second     // for all nodes; then writes go on
	insistPause     = 5 * time.Millisecond
	endsBeat        = 50 * time.Millisecond
	defaultTimeout  = 5 * time.Second
	togetherMax     = 16   // keys that are pushed one by one, as Redis does
	chunk           = 1000 // keys in one push
	settleMax       = 256  // writes of unknown outcome that are followed up at once
	settleTries     = 64
	maxNodes        = 1024 // remembered of former incarnations
	maxPrefixList   = 4096 // prefixes that one node asks others for; beyond it asks for everything
	maxPrefixBytes  = 1 << 20
	seekingInterval = 50 * time.Millisecond
	seekingTries    = 200 // of an owner that is in no table
)

// Counts are what the metrics show.
type Counts struct {
	Clients   int    // with CLIENT TRACKING on
	Keys      int    // remembered for them
	PeerKeys  int    // remembered for the clients of other nodes
	Prefixes  int    // followed with BCAST
	Links     int    // to other nodes, that clients have read through
	Undecided uint64 // writes of unknown outcome that are followed up
	Evicted   uint64 // keys that clients had to forget because too many were remembered
	Pushes    uint64 // sent to clients
}

// Counts returns what there is at the moment.
func (t *Tracking) Counts() Counts {
	t.mu.Lock()
	n := Counts{Clients: len(t.clients), Links: len(t.watched)}
	t.mu.Unlock()
	var more uint64
	n.Keys, n.Prefixes, n.Evicted = t.local.Counts()
	n.PeerKeys, _, more = t.remote.Counts()
	n.Evicted += more
	n.Undecided, n.Pushes = t.undecided.Load(), t.pushes.Load()
	return n
}

// Idle reports that no client is to be notified of anything, and no write has to wait: the keys that a
// write changes need not be known.
func (t *Tracking) Idle() bool { return t.busy.Load() == 0 }

// Wait returns when everything that runs in the background has ended, which it does after Context has.
func (t *Tracking) Wait() { t.work.Wait() }
