// Package promise is what a node and the promises it offers know of each other: a promise is added to
// freshet serve by one adapter that implements [Promise], and one line in package node.
//
// An adapter has one value for each level: the [Promise] itself, what it opens in a process
// ([Spaces]), and its part of each node ([Member]).
package promise

import (
	"context"
	"log/slog"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/freshet-cache/freshet/clock"
	"github.com/freshet-cache/freshet/leader"
	"github.com/freshet-cache/freshet/peer"
	"github.com/freshet-cache/freshet/resp"
)

// Promise is one kind of space.
type Promise interface {
	// Name is what --space calls the promise.
	Name() string
	// Check says everything that is wrong with the promise's spaces, each error with --space and
	// the name. It gets an empty list too.
	Check(spaces []Space, at Place) error
	// Commands are those that the promise adds to the node's, of class Class in metrics.
	Commands() (commands []resp.Command, class string)
	// Open opens the promise's spaces in a process. The list may be empty.
	Open(p Process, spaces []Space) (Spaces, error)
}

// Place is what a configuration says of where spaces keep what they have.
type Place struct {
	Store string // the kind of store: pebble, memory, postgres, mysql or etcd
	Data  string // the process's directory; empty if it has none
}

// Process is what a promise finds in its process.
type Process struct {
	Place
	Rows     any           // the process's store, whose type says what it can
	NoSync   bool          // files need not survive a crash of the machine
	Lease    time.Duration // the length of leases
	Timeout  time.Duration // bounds each request
	MaxValue int           // bytes
	Keys     int           // in memory, of each space
	Memory   int           // bytes, of each space
	Secret   string        // authenticates what clients carry; empty: the promise draws one
	Cluster  string        // the cluster's name, for ever
	Clock    clock.Clock
	Log      *slog.Logger
	// Coordinate opens a coordinator for one of the promise's groups.
	Coordinate func(group string) (Seat, error)
}

// Seat is where the leader of a group is.
type Seat struct {
	Coordinator leader.Coordinator // nil if the leader is in another process
	Close       func() error       // closes Coordinator; nil if that is
	Host        string             // names this process
	Self        string             // this process's address, as leaders are named
	Leader      func() string      // the address of the process that leads; empty if that is not known
}

// Node is what a promise finds in one node.
type Node struct {
	Addr     string // where other nodes reach it
	Peers    *peer.Peers
	Services *peer.Services
	Metrics  Metrics
	Log      *slog.Logger
}

// Metrics is where a promise registers its metrics.
type Metrics struct {
	prometheus.Registerer // with freshet's prefix and the node's name
	// Reads counts reads by space, by source, and by whether a client or a node asked.
	Reads *prometheus.CounterVec
	// Histogram describes a histogram of seconds, as --metrics-classic wants it.
	Histogram func(name, help string) prometheus.HistogramOpts
	// Store takes the outcome of requests to the process's store, so that the log says when it is away.
	Store func(request string, took time.Duration, err error)
}

// Spaces are a promise's spaces in one process.
type Spaces interface {
	// Join makes the part of a node.
	Join(n Node) (Member, error)
	// Admin has the handlers of the promise's part of the admin address, by pattern.
	Admin() map[string]http.HandlerFunc
	// Close is called when every Member is closed.
	Close() error
}

// Member is a promise's part of one node. All methods but Close are safe for concurrent use.
type Member interface {
	// Run answers one of the promise's Commands.
	Run(ctx context.Context, name string, args [][]byte, w *resp.Writer)
	// Select answers a command of a connection that has selected the database of a space. state is
	// what the promise keeps of the connection in this database, nil at first.
	Select(ctx context.Context, db int, state *any, call Call, w *resp.Writer)
	// Groups says which nodes serve the spaces, as this node sees it.
	Groups() []Group
	// Leave has the others go on without this node, and returns when they do or ctx ends.
	Leave(ctx context.Context)
	Close()
}

// Call is a command of a client.
type Call struct {
	Command *resp.Command
	Args    [][]byte
	Tracks  bool // CLIENT TRACKING is on
}

// Group says which nodes serve a space, as a node sees it.
type Group struct {
	Space    string   `json:"space"`
	View     uint64   `json:"view"`
	Ring     []string `json:"ring"`     // addresses
	Departed int      `json:"departed"` // former incarnations whose writes not every server has yet
	Joined   bool     `json:"joined"`
	// Incarnations are the departed ones; in an asynchronous space until their logs are back.
	Incarnations []uint32 `json:"incarnations,omitempty"`
	// Owes counts the writes of this node that are in its log and not in the store.
	Owes uint64 `json:"owes,omitempty"`
}
