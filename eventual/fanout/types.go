package fanout

import (
	"github.com/freshet-cache/freshet/eventual/wire"
	"github.com/freshet-cache/freshet/ticks"
)

// Op is a caller's number for a read or a mutation, not 0 and unique among those of the node.
type Op uint64

// LoadID is a load's number, unique among those of the node.
type LoadID uint64

// Status is the outcome of something that another process was asked for.
type Status uint8

// The outcomes.
const (
	OK      Status = iota
	Failed         // it did not happen, and will not
	Unknown        // it may have happened, or may still happen
)

// Grant is what the runtime keeps beside a value and passes to Fresh at each hit.
type Grant struct {
	Started ticks.Tick // when the load began; NeverYoung for a value whose age is not known
	Marked  bool       // the key, or a name that the value depends on, is being written
}

// What nodes say to each other, and what a session carries, is declared beside its encoding.
type (
	Incarnation = wire.Incarnation
	Message     = wire.Message
	Heartbeat   = wire.Heartbeat
	Echo        = wire.Echo
	Notice      = wire.Notice
	Missing     = wire.Missing
	Snapshot    = wire.Snapshot
	Mark        = wire.Mark
	Leave       = wire.Leave
	Token       = wire.Token
	Moment      = wire.Moment
)

// Input is what has happened to a node.
type Input interface{ input() }

// Ticked says that a heartbeat interval has passed. The first Ticked begins the incarnation.
type Ticked struct{}

// Received is a message of another incarnation, or a Heartbeat of this one that came back.
type Received struct {
	From    Incarnation
	Message Message
}

// Renewed answers a Renew. Failed means that the registry has struck this incarnation out.
type Renewed struct {
	Seq    uint64
	Status Status
}

// Listed answers a List with the incarnations that are registered. Epoch is how many were struck out
// while the registry had it that they named no server of the tier (T5).
type Listed struct {
	Seq     uint64
	Status  Status
	Members []Incarnation
	Epoch   uint64
}

// Read asks for a key. A caller with a session passes its token.
type Read struct {
	Op      Op
	Key     string
	Session bool
	Token   Token
}

// Loaded answers a Load. Same says that the value equals the one that the runtime has for the key.
type Loaded struct {
	Load   LoadID
	Status Status
	Tags   []string // names that the value depends on beside its key
	Same   bool
}

// PageBegan says that a page of a prefetch is about to be read from the store.
type PageBegan struct{ Op Op }

// PageLoaded ends a page with what the store returned.
type PageLoaded struct {
	Op     Op
	Values []Value
}

// Value is a key of a page, and the names that its value depends on beside it.
type Value struct {
	Key  string
	Tags []string
}

// Evicted says that the runtime has removed an entry: for its size, or because it expired.
type Evicted struct{ Key string }

// Mutate asks for permission to write to the store what changes the values of some names. Set says
// that the write's value may be kept as the entry of the first name (R5), with Tags. Proceed allows
// a write though the registry does not answer (P5).
type Mutate struct {
	Op      Op
	Names   []string
	Set     bool
	Tags    []string
	Proceed bool
	Token   Token
}

// Discovered announces more names of a mutation, before its write commits (P3). One Announced answers
// each, in their order.
type Discovered struct {
	Op    Op
	Names []string
}

// Wrote answers a Write.
type Wrote struct {
	Op     Op
	Status Status
}

// Reached says which server of the shared tier the runtime reaches; 0: none. A server that has lost
// what it had has another number. The runtime says it again when a server answers that had not.
type Reached struct{ Server uint64 }

// TierMarked answers a MarkTier, with its Names and Seq.
type TierMarked struct {
	Op     Op
	Server uint64
	Status Status
	Names  []string
	Seq    uint64
}

// Fetched answers a Fetch: a value was found, or there is a lease, or neither.
type Fetched struct {
	Load    LoadID
	Status  Status
	Found   bool
	Tags    []string
	Lease   uint64
	Counter uint64
}

// Closing asks the node to leave once no mutation is under way.
type Closing struct{}

func (Ticked) input()     {}
func (Received) input()   {}
func (Renewed) input()    {}
func (Listed) input()     {}
func (Read) input()       {}
func (Loaded) input()     {}
func (PageBegan) input()  {}
func (PageLoaded) input() {}
func (Evicted) input()    {}
func (Mutate) input()     {}
func (Discovered) input() {}
func (Wrote) input()      {}
func (Closing) input()    {}
func (Reached) input()    {}
func (TierMarked) input() {}
func (Fetched) input()    {}

// Output is what a node asks of its runtime. Outputs are carried out in order.
type Output interface{ output() }

// Send asks to send a message to an incarnation, or to all, this one included, if To is 0. It may
// be lost.
type Send struct {
	To      Incarnation
	Message Message
}

// Renew asks the registry to have this incarnation for a time from when it takes the request, and
// never again once it has struck it out. Exactly one Renewed answers it.
type Renew struct {
	Seq    uint64
	TTL    ticks.Tick
	Server uint64 // the server of the tier that this incarnation names; 0: none (T5)
}

// List asks for all registered incarnations, as of some instant after the request. Exactly one
// Listed answers it.
type List struct{ Seq uint64 }

// Deregister asks the registry to remove this incarnation.
type Deregister struct{}

// Expelled says that the registry has struck this incarnation out: the runtime begins another one.
type Expelled struct{}

// Load asks for a key's value from the store. Exactly one Loaded answers it.
type Load struct {
	Load LoadID
	Key  string
}

// Source says where an answer comes from.
type Source uint8

// The sources.
const (
	Memory Source = iota
	Store
	Shared // the shared tier
)

// Answer answers a Read: with the entry of the key, or with the value of a load.
type Answer struct {
	Op     Op
	Source Source
	Load   LoadID
	Status Status
	Token  Token // the session's token, with this read
}

// Keep asks the runtime to keep what a load, or the write or page of an Op, has as the entry of a key.
type Keep struct {
	Key   string
	Load  LoadID
	Op    Op // if Load is 0
	Grant Grant
}

// Flag asks the runtime to set Marked in the Grant of a key's entry.
type Flag struct{ Key string }

// Drop asks the runtime to remove the entry of a key.
type Drop struct{ Key string }

// DropAll asks the runtime to remove all entries.
type DropAll struct{}

// Vouch says until when Fresh may vouch for entries. It replaces the Vouch before.
type Vouch struct{ Until ticks.Tick }

// Write permits a mutation to be sent to the store before Until. Exactly one Wrote answers it; what
// is not sent in time has Failed.
type Write struct {
	Op    Op
	Until ticks.Tick
}

// MarkTier asks a server of the tier to mark names for a time. Op 0 only removes what they have
// there; without Names, everything that is there. Exactly one TierMarked answers it.
type MarkTier struct {
	Op     Op
	Server uint64
	Names  []string
	TTL    ticks.Tick
	Seq    uint64 // of Op 0: when the node named no server any more
}

// UnmarkTier asks a server of the tier to remove a mutation's mark. Nothing answers it: a mark that
// stays expires.
type UnmarkTier struct {
	Op     Op
	Server uint64
	Names  []string
}

// Fetch asks a server of the tier for a key. Exactly one Fetched answers it.
type Fetch struct {
	Load   LoadID
	Server uint64
	Key    string
}

// Fill asks a server of the tier to set what a load has returned. Nothing answers it.
type Fill struct {
	Load    LoadID
	Server  uint64
	Key     string
	Lease   uint64
	Tags    []string
	Counter uint64
}

// Announced answers Discovered: the write may commit before Until.
type Announced struct {
	Op    Op
	Until ticks.Tick
}

// Reason says why a mutation was refused.
type Reason uint8

// The reasons.
const (
	Permitted Reason = iota
	NotReady         // not every registered incarnation has heard of this one yet (P4)
	Isolated         // the lease at the registry is not in force (P5)
	Busy             // too many mutations are under way
	Ended            // this incarnation leaves, or was struck out
)

// Done answers Mutate.
type Done struct {
	Op      Op
	Refused Reason
	Status  Status // of the write, if it was permitted
	Token   Token  // the session's token, with this write
}

func (Send) output()       {}
func (Renew) output()      {}
func (List) output()       {}
func (Deregister) output() {}
func (Expelled) output()   {}
func (Load) output()       {}
func (Answer) output()     {}
func (Keep) output()       {}
func (Flag) output()       {}
func (Drop) output()       {}
func (DropAll) output()    {}
func (Vouch) output()      {}
func (Write) output()      {}
func (MarkTier) output()   {}
func (UnmarkTier) output() {}
func (Fetch) output()      {}
func (Fill) output()       {}
func (Announced) output()  {}
func (Done) output()       {}
