package mesh

import (
	"fmt"
	"math"

	"github.com/freshet-cache/freshet/causal/dot"
)

// What names writes and tells sets of them.
type (
	Incarnation = dot.Incarnation
	Dot         = dot.Dot
	Stamp       = dot.Stamp
	Frontier    = dot.Frontier
)

// External is the incarnation of whoever writes externally to a store that gives them dots: no
// server's, and never over.
const External Incarnation = math.MaxUint32

// set is a Frontier that grows. What it shares stays as it was.
type set struct {
	Frontier
	shared bool
}

func (s *set) add(d Dot) {
	if s.shared {
		s.Frontier, s.shared = s.Clone(), false
	}
	s.Add(d)
}

func (s *set) share() Frontier {
	s.shared = true
	return s.Frontier
}

// Op names a caller's operation; the runtime draws them, never twice.
type Op uint64

// Call names a request to the store. Each is answered by exactly one input.
type Call uint64

// Mut sets a key, or deletes it.
type Mut struct {
	Key    string
	Value  []byte
	Delete bool
	// Supersedes are the writes of the key that it replaces, where concurrent writes are kept: those
	// that were in sight of who made it (S1). Beside says that they are; the server sets it.
	Supersedes []Dot
	Siblings   bool
}

// Write is a write wherever it goes: on the ring, in the journal, carried by a
// session. It does not change once it is made.
type Write struct {
	Dot   Dot
	Stamp Stamp
	Deps  Frontier // causes that were visible somewhere when it was made
	After []Dot    // causes that were carried, visible nowhere yet as far as is known (M5)
	Muts  []Mut    // all at once; none if the store refused it (M2)
}

// Item is what a key holds.
type Item struct {
	Exists bool
	Value  []byte
	Stamp  Stamp
	// Siblings are, where concurrent writes are kept, those that nobody has replaced, deletions
	// too, by stamp. The rest is that of the largest one, and of the largest one that is no
	// deletion.
	Siblings []*Write
}

// Row is the state of a key as the store returned it. A tombstone is a row that
// does not exist and has a stamp. Where there is no row, the time of the stamp is that of
// the latest CollectTombstones, and everything else is zero: a tombstone may have stood there (M15). Who
// writes externally leaves no dot.
//
// Where concurrent writes are kept they are in Siblings, each with no more than what it does
// to the key, and without a Dot if it came from outside; the time of the stamp is then
// that of the latest CollectTombstones in any case.
type Row struct {
	Item
	Dot Dot
}

// View is the ring that the coordinator has decided on.
type View struct {
	Number   uint64
	Ring     []Incarnation
	Departed []Incarnation // departed incarnations and not retired
	Newest   Incarnation   // the largest number of an incarnation so far
}

// Status sorts the answers of the store.
type Status uint8

// The statuses.
const (
	OK            Status = iota // it happened
	Refused                     // it did not, and no attempt of it ever will: it is the store's to say, from the write alone
	Fenced                      // it did not and will not: this incarnation is over
	StatusUnknown               // unknown: it may have happened, or may still
)

// Outcome is the answer to a caller.
type Outcome uint8

// The outcomes.
const (
	Done       Outcome = iota
	Busy               // it did not happen: too much is under way; try later
	Behind             // it did not happen: the session knows of what this server does not
	Failed             // a read got no answer of the store
	Stale              // a transaction's snapshot is not to be had any more: begin again
	Rejected           // it did not and will not: the store refused the write
	Expelled           // this incarnation is over; a Put may have happened, and is recovered then
	Forged             // it did not happen: the session carries a write that this server has not made
	ClockAhead         // it did not happen: the session, or the store, has a time far above the clock's
)

// Input is something that has happened.
type Input interface{ input() }

// Read: a session wants a key.
type Read struct {
	Op   Op
	Key  string
	Deps Frontier
}

// ReadMany: a session wants several keys, from one causal cut.
type ReadMany struct {
	Op   Op
	Keys []string
	Deps Frontier
}

// Put: a session wants keys set or deleted, all at once. Carried are the writes it
// carries, causes first, and Time the largest it has seen.
type Put struct {
	Op      Op
	Muts    []Mut
	Deps    Frontier
	Carried []*Write
	Time    uint64
}

// Recall: a session carries Dots of which it has no more than the names, and perhaps
// others among whose effects they are.
type Recall struct {
	Op      Op
	Dots    []Dot
	Deps    Frontier
	Carried []*Write
}

// Loaded answers Load with OK or StatusUnknown.
type Loaded struct {
	Call   Call
	Row    Row
	Status Status
}

// Fetched answers Fetch with OK and what the journal has of the dots, or StatusUnknown.
type Fetched struct {
	Call   Call
	Writes []*Write
	Status Status
}

// Persisted answers Persist.
type Persisted struct {
	Call   Call
	Status Status
}

// Viewed: the coordinator has decided on another ring. The connections of the last one
// are closed.
type Viewed struct{ View View }

// Opened: the predecessor in a view has opened a connection. Nothing that it sent on an
// earlier one arrives any more.
type Opened struct{ View uint64 }

// Asked: the successor in a view has no state yet.
type Asked struct {
	From Incarnation
	View uint64
}

// Recovered answers Recover with OK and all that the journal has of the incarnations, or StatusUnknown. In
// an asynchronous space it says whose logs have been given back, or given up (A8).
type Recovered struct {
	View   uint64
	Writes []*Write
	Back   []Incarnation
	Status Status
}

// Claimed answers Claim with OK and the set of all that has been merged, Fenced if a later
// view has claimed, or StatusUnknown.
type Claimed struct {
	Call    Call
	Durable Frontier
	Status  Status
}

// Flushed answers Flush.
type Flushed struct {
	Call   Call
	Status Status
}

// Polled answers Poll with what came after, in order, or with nothing.
type Polled struct {
	View   uint64
	Writes []*Write
}

// Returned: the log of a departed incarnation has been found. Nothing is added to it any more.
type Returned struct {
	Incarnation Incarnation
	Writes      []*Write
}

// Broken: the connection to the successor is gone, and perhaps what was sent on it.
type Broken struct{}

// Received: a neighbour's message has arrived, in the order of its connection.
type Received struct{ Message Message }

// Evicted: memory is short, and the runtime wants a key out of it.
type Evicted struct{ Key string }

// Beat: it is time for the stability vector to go round.
type Beat struct{}

func (Read) input()      {}
func (ReadMany) input()  {}
func (Put) input()       {}
func (Recall) input()    {}
func (Loaded) input()    {}
func (Fetched) input()   {}
func (Persisted) input() {}
func (Viewed) input()    {}
func (Opened) input()    {}
func (Asked) input()     {}
func (Recovered) input() {}
func (Polled) input()    {}
func (Claimed) input()   {}
func (Flushed) input()   {}
func (Returned) input()  {}
func (Broken) input()    {}
func (Received) input()  {}
func (Evicted) input()   {}
func (Beat) input()      {}

// Message is what neighbours on the ring say to each other.
type Message interface{ message() }

// Chain takes a write from its Head, the server that put it onto the ring, towards
// the head's predecessor. Head 0 says that it was sent again.
type Chain struct {
	View  uint64
	Head  Incarnation
	Write *Write
}

// Named takes a write on as Chain does, from the server that took it first, to a successor
// that has it.
type Named struct {
	View uint64
	Dot  Dot
}

// String is the message for people.
func (m Named) String() string { return fmt.Sprintf("%v by its name", m.Dot) }

// StabilityRound goes round to find out what everybody has received.
type StabilityRound struct {
	View   uint64
	Seen   Frontier // received by the first server when it went off
	Stable Frontier // received by all
	Low    uint64   // no write that is not in Stable has a smaller time, as far as those say that it has passed

	Durable Frontier // in the store, if the space is asynchronous
}

// Resync tells the predecessor what need not be sent.
type Resync struct {
	View     uint64
	Received Frontier
}

// Snapshot is what a server begins with that joins behind another.
type Snapshot struct {
	View     uint64
	Visible  Frontier
	Received Frontier
	Stable   Frontier
	Time     uint64
	Log      []*Write
	Durable  Frontier      // of an asynchronous space
	Elder    []Incarnation // incarnations from before the ring began (V6)
}

func (Snapshot) message()       {}
func (Chain) message()          {}
func (Named) message()          {}
func (StabilityRound) message() {}
func (Resync) message()         {}

// Output is something to be done, in order.
type Output interface{ output() }

// Load asks the store for a row.
type Load struct {
	Call Call
	Key  string
}

// Fetch asks the journal for writes.
type Fetch struct {
	Call Call
	Dots []Dot
}

// Persist asks the store to commit, in one statement, the journal entry of Write and
// every row that it wins by its stamp. It is the same write in every try. What was
// committed once, or forgotten since, is OK and changes nothing.
//
// In an asynchronous space it is this server's own log that is asked to commit Write and
// what it may depend on and nobody else may have, With, causes first (A1).
type Persist struct {
	Call  Call
	Write *Write
	Try   int
	With  []*Write
}

// Claim tells the store that from now on nobody merges in the name of an earlier view (A3).
type Claim struct {
	Call Call
	Term uint64 // the view
	Try  int
}

// Flush asks the store to merge writes into its rows by their stamps, and to remember which
// it has merged so far, Durable, all in one commit. Flushes of a view are numbered; one whose
// number was merged before is OK and changes nothing, one of a view that is not the latest
// to have claimed is Fenced.
type Flush struct {
	Call    Call
	Term    uint64 // the view
	Number  uint64
	Writes  []*Write // causes first
	Durable Frontier
	Try     int
}

// Release tells the store that the log of an incarnation is not needed any more, for all of it is in
// the rows; then the log can go.
type Release struct{ Incarnation Incarnation }

// Truncate lets the journal drop an incarnation's writes up to a number. The store
// remembers that number: no late Persist of them may take effect.
type Truncate struct {
	Incarnation Incarnation
	Upto        uint64
}

// Recover asks for the writes of departed incarnations. Once their leases have ended, so that
// they answer nobody, and the store has been told to refuse every Persist of theirs from
// then on, the journal is read.
type Recover struct {
	View         uint64
	Incarnations []Incarnation
}

// Poll asks for what the journal of External has after a number, some of it or all. The
// answer may take its time.
type Poll struct{ View, After uint64 }

// Retire tells the coordinator that everything of an incarnation has been shown everywhere: the
// next view need not name it.
type Retire struct{ Incarnation Incarnation }

// CollectTombstones lets the store drop tombstones with a smaller time, but for those of External that it
// was not told to forget (M19). It remembers that time, from before it drops anything: see
// Row.
type CollectTombstones struct{ Before uint64 }

// Send gives a message to a neighbour: to the successor on the connection that it
// greeted on, to the predecessor on the one it opened.
type Send struct {
	To      Incarnation
	Message Message
}

// Reply answers a caller.
type Reply struct {
	Op      Op
	Outcome Outcome
	Item    Item     // of a Read
	Items   []Item   // of a ReadMany, as its Keys
	Visible Frontier // what is visible here; contains the Deps of the operation
	Carried []*Write // what the session must carry from here on, causes first
	Write   *Write   // what a Put became
	At      Snap     // of a ReadMany and a Look: what the items are of
	View    *View    // the server's; nil if no server has answered
}

// Event reports something that metrics count; it asks for nothing.
type Event struct{ Kind EventKind }

// EventKind says what an Event counts.
type EventKind uint8

// The events.
const (
	Hit          EventKind = iota // all keys were in memory
	Missed                        // a row was asked for
	CarriedMiss                   // a row was newer than what is visible (M12)
	Journaled                     // the journal was asked
	Injected                      // a write of another incarnation went onto the ring from here (M4, M12)
	Retried                       // a Persist got no answer
	Voided                        // the store refused a write (M2)
	Throttled                     // a caller was told to try later (M16)
	FellBehind                    // a session knew of what was not received here
	StaleMessage                  // of another view
	Resent                        // after a connection was opened
	Extended                      // a transaction's snapshot moved (T3)
	Aborted                       // or could not
	Drained                       // a batch is in the rows (A2)
	GaveBack                      // a write of a log that was found goes round (A8)
	EventKinds
)

func (Load) output()              {}
func (Fetch) output()             {}
func (Persist) output()           {}
func (Claim) output()             {}
func (Flush) output()             {}
func (Release) output()           {}
func (Truncate) output()          {}
func (Recover) output()           {}
func (Poll) output()              {}
func (Retire) output()            {}
func (CollectTombstones) output() {}
func (Send) output()              {}
func (Reply) output()             {}
func (Event) output()             {}
