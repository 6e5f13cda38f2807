package causal

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"
)

// ServerOptions configures a Server. Store, Incarnation and View are required.
type ServerOptions struct {
	Store Store
	// Incarnation is the number of this incarnation, which has begun in the store.
	Incarnation uint32
	// View is the ring in which the server begins: alone, together with other servers that begin,
	// or, if Joins is set, behind a server that is in the ring already.
	View  View
	Joins bool
	// Floor is the largest time of a stamp that the store held when the ring began. Truncated says
	// up to which number the journals of departed incarnations were truncated by then.
	Floor     uint64
	Truncated map[uint32]uint64
	// Mark is what the store's Claim of the view's number returned when the ring of an asynchronous
	// space began. Truncated is then for external writes only.
	Mark []byte
	// Dial opens an ordered connection to another server, which passes it to its Accept. deliver
	// takes the frames that arrive. Dial is required if the ring has other servers.
	Dial func(ctx context.Context, to RingServer, deliver func(frame []byte)) (Conn, error)
	// Serves reports whether this server is certainly a member now. Default: it always is.
	Serves func() bool
	// Ended waits until a departed incarnation answers no caller any more. Default: it does not
	// wait.
	Ended func(ctx context.Context, incarnation uint32) error
	// Retired is called with incarnations that a view need not list as Departed any more. It may be
	// called again with the same one, and must not block. Default: none.
	Retired func(incarnation uint32)
	Settings
}

// Settings are what the servers of one space have in common. The zero value is usable.
type Settings struct {
	// Log makes the space asynchronous: a write is acknowledged when Log has it, and merged into
	// the store, a MergeStore, when every server has received it. Servers of one process may share
	// a Log. Default: the store has every write before it is acknowledged.
	Log Log
	// Keys bounds the keys in memory, Window the writes of this server that are not known to be
	// durable, and Waits the operations that wait for rows. Defaults 1 << 20, 4096, 4096.
	Keys, Window, Waits int
	// Bytes bounds the memory of keys and their versions, and WindowBytes the memory of the writes
	// that Window counts. Beyond WindowBytes callers get ErrBusy. Every other server needs as much
	// memory for them. Defaults 1 GiB, 64 MiB.
	Bytes, WindowBytes int
	// Versions is how many values of a key are kept for transactions. A transaction whose values
	// are gone begins again. Default 8.
	Versions int
	// Concurrent keeps siblings, for spaces with a merge function. The store's KeepSiblings was
	// called with it. Default: the larger stamp wins.
	Concurrent bool
	// Round is the time between stability rounds. Default 10 ms.
	Round time.Duration
	// Timeout bounds each request to the store. A request may end up to an eighth of it earlier.
	// Default 5 s.
	Timeout time.Duration
	// Recorder is called with what happens, for metrics. Default: nothing is recorded.
	Recorder Recorder
	// Logger gets what an operator should know. Default: discard.
	Logger *slog.Logger
}

func (o *ServerOptions) check() error {
	self := false
	for _, m := range o.View.Ring {
		self = self || m.Incarnation == o.Incarnation
	}
	switch {
	case o.Store == nil:
		return errors.New("causal: Options.Store is nil; give it a store, for example memory.NewJournal")
	case o.Incarnation == 0 || !self:
		return fmt.Errorf("causal: ServerOptions.Incarnation is %d, which is not in the view's ring; an incarnation of a server has a number above 0", o.Incarnation)
	case len(o.View.Ring) > 1 && o.Dial == nil:
		return errors.New("causal: Options.Dial is nil, and the view has other servers")
	case o.Joins && len(o.View.Ring) == 1:
		return errors.New("causal: ServerOptions.Joins is set, and the view has no other servers")
	case o.Log != nil && o.Concurrent:
		return errors.New("causal: Options.Log and Options.Concurrent do not go together: rows are merged by their stamps")
	case o.Log != nil && !o.canMerge():
		return errors.New("causal: Options.Log is set, and the store cannot merge; use store/pebble, store/postgres or store/memory")
	case o.Timeout < 0 || o.Round < 0:
		return fmt.Errorf("causal: Options.Timeout is %v, Options.Round %v; they must not be negative", o.Timeout, o.Round)
	}
	if o.Round == 0 {
		o.Round = 10 * time.Millisecond
	}
	if o.Versions <= 0 {
		o.Versions = 8
	}
	if o.Timeout == 0 {
		o.Timeout = 5 * time.Second
	}
	if o.Recorder == nil {
		o.Recorder = nobody{}
	}
	if o.Serves == nil {
		o.Serves = func() bool { return true }
	}
	if o.Ended == nil {
		o.Ended = func(context.Context, uint32) error { return nil }
	}
	if o.Retired == nil {
		o.Retired = func(uint32) {}
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	return nil
}

func (o *ServerOptions) canMerge() bool {
	_, ok := o.Store.(MergeStore)
	return ok
}
