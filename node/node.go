package node

import (
	"context"
	"crypto/tls"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/freshet-cache/freshet/clock"
	"github.com/freshet-cache/freshet/internal/eventlog"
	"github.com/freshet-cache/freshet/leader"
	"github.com/freshet-cache/freshet/linear"
	"github.com/freshet-cache/freshet/link"
	"github.com/freshet-cache/freshet/node/promise"
	"github.com/freshet-cache/freshet/peer"
	"github.com/freshet-cache/freshet/redis/tracking"
	"github.com/freshet-cache/freshet/resp"
	"github.com/freshet-cache/freshet/shard"
)

// Process is a running freshet serve.
type Process struct {
	cfg           Config
	log           *slog.Logger
	events        *eventlog.Handler // behind log
	watch         watch
	cluster       string // its name, for ever
	host          string // this process's, which no other ever has
	leaderAddr    func() string
	store         Store
	maxBatchBytes int         // bytes of SETs that may share a write; 0 for any
	batch         int         // keys that may share a write; 0 for any
	coord         coordinator // nil if the assigner is in another process
	assigner      *shard.Assigner
	promised      []promise.Spaces // as promises
	databases     map[int]int      // of spaces: which promise each belongs to
	nodes         []*Node
	commands      []resp.Command
	table         map[string]*resp.Command
	tls           *tls.Config
	clock         clock.Clock
	started       time.Time

	failed chan error

	mu       sync.Mutex
	stopping bool
	members  map[string]applicant // that have asked for leases, by incarnation
	replaced map[string]string    // incarnations whose names others have taken
}

// Node is one node of a process.
type Node struct {
	p           *Process
	id          string
	log         *slog.Logger
	incarnation string
	addr        string // where others reach it
	adminAddr   string

	listener, adminListener net.Listener

	cache       *linear.Cache[string]
	leased      linear.Participant // the cache, as its leases and other nodes see it
	shard       *shard.Node
	peers       *peer.Peers
	services    peer.Services // what other nodes ask for by name
	server      *resp.Server
	admin       *http.Server
	m           *metrics
	track       *tracking.Tracking
	members     []promise.Member // of this node, as Process.promised
	ctx         context.Context  // ends with the node
	stop        context.CancelFunc
	cursors     cursors
	flushing    flushing
	rate        opsRate
	size        keyCount
	spaces      spaces
	begun       chan struct{} // closed when all of the above is there
	roundRobins atomic.Uint64 // of the members of groups
	draining    atomic.Bool
	work        sync.WaitGroup

	linksMu sync.Mutex
	links   map[*link.Link]bool // that other nodes have opened
	parting bool                // none is to be opened any more
}

// Store is what a process needs of a store.
type Store interface {
	linear.Store
	Scan(ctx context.Context, from string, limit int) (keys []string, next string, done bool, err error)
	Count(ctx context.Context) (int, error)
	Close() error
}

// coordinator keeps what the assigner must not forget.
type coordinator interface {
	leader.Coordinator
	Close() error
}

// applicant is a node that has asked this process's assigner for leases.
type applicant struct {
	addr string
	link *link.Link // which it opened
	seen time.Time
}

// Space is a set of keys that the processes of a cluster share beside those of the
// Redis protocol, by a name: what linear.Options.Peers of a View wants. It has the
// owners that those keys have, and moves with them. Every process of the cluster must
// open the same spaces, or updates of the keys it owns fail. It is safe for concurrent
// use.
type Space struct {
	n           *Node
	name        string
	participant linear.Participant
}

// spaces are those that a node's process has opened.
type spaces struct {
	mu  sync.Mutex
	all map[string]*Space
}

// leads reports whether this process has the assigner that others ask. The coordinator
// may still name this address because of a process that was here before.
func (p *Process) leads() bool {
	return p.assigner != nil && p.leaderAddr() == p.nodes[0].addr && p.assigner.Leads()
}

// fail ends the process: it cannot be part of the cluster.
func (p *Process) fail(why string) {
	select {
	case p.failed <- fmt.Errorf("refused by the cluster: %s", why):
	default:
	}
}

// Failed tells that the process cannot go on, and why: stop it.
func (p *Process) Failed() <-chan error { return p.failed }

// Addr is where the i-th node listens, and its admin address.
func (p *Process) Addr(i int) (listen, admin string) { return p.nodes[i].addr, p.nodes[i].adminAddr }

// Nodes are the nodes of the process.
func (p *Process) Nodes() []*Node { return p.nodes }

// Assigner is the process's assigner, for administration and tests.
func (p *Process) Assigner() *shard.Assigner { return p.assigner }

// running reports whether the node has begun: others may ask before that.
func (n *Node) running() bool {
	select {
	case <-n.begun:
		return true
	default:
		return false
	}
}

// ready reports whether the node routes every key, and owns what it should.
func (n *Node) ready() bool {
	if n.draining.Load() || !n.running() {
		return false
	}
	t := n.shard.Table()
	if len(t.Slices) == 0 {
		return false
	}
	for _, r := range t.Slices {
		if r.Node == "" || r.Node == n.incarnation && !n.cache.Owns(r.Low) {
			return false
		}
	}
	return true
}

// ID is the node's name.
func (n *Node) ID() string { return n.id }
