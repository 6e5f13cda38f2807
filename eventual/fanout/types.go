package fanout

import "github.com/freshet-cache/freshet/ticks"

// Incarnation is one run of a node. Its number is not 0 and is never used again.
type Incarnation uint64

// Op is a caller's number for a read or a mutation, unique among those of the node.
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

// Heartbeat says what its sender has published and heard.
type Heartbeat struct {
	Beat   uint64 // grows by one with each heartbeat of the incarnation, from 1
	Last   uint64 // the number of the latest notice (P2)
	Marks  uint64 // how many of the sender's mutations are under way
	Server uint64 // the server of the shared tier that the sender marks on; 0: none (T4)
	Hello  bool   // the sender writes nothing before all that it names have echoed it (P4)
	Echoes []Echo // one for every incarnation that the sender knows of, by number
}

// Echo is the largest Beat that the sender of a Heartbeat has heard of an incarnation, or 0.
type Echo struct {
	Of   Incarnation
	Beat uint64
}

// Notice announces a mutation that is about to be sent to the store, or closes one.
type Notice struct {
	Number  uint64   // in the sender's feed
	Closes  uint64   // the number of the notice that announced the mutation; 0: this one announces (Dirty)
	Names   []string // keys, and tags of keys
	Counter uint64   // the tier's counter at the mark, or at its removal; 0: the tier was not told
}

// Missing asks for the notices from one number to another, inclusive. From 0 asks for a Snapshot.
type Missing struct{ From, To uint64 }

// Snapshot stands for the notices up to Last: it has the mutations under way.
type Snapshot struct {
	Last  uint64
	Marks []Mark
}

// Mark is a mutation under way.
type Mark struct {
	Number uint64 // of the notice that announced it
	Names  []string
}

// Leave says that the sender ends with no mutation under way.
type Leave struct{ Last uint64 }

// Message is what nodes say to each other: a Heartbeat, Notice, Missing, Snapshot or Leave.
type Message interface{ message() }

func (Heartbeat) message() {}
func (Notice) message()    {}
func (Missing) message()   {}
func (Snapshot) message()  {}
func (Leave) message()     {}

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

// Listed answers a List with the incarnations that are registered.
type Listed struct {
	Seq     uint64
	Status  Status
	Members []Incarnation
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

// Discovered announces more names of a mutation, before its write commits (P3).
type Discovered struct {
	Op    Op
	Names []string
}

// Wrote answers a Write.
type Wrote struct {
	Op     Op
	Status Status
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
	Seq uint64
	TTL ticks.Tick
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

// Announced answers Discovered: the write may commit.
type Announced struct{ Op Op }

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
func (Announced) output()  {}
func (Done) output()       {}
