package mesh

import (
	"fmt"
	"math"

	"github.com/freshet-cache/freshet/causal/dot"
)

// Names of writes, and sets of them.
type (
	Incarnation = dot.Incarnation
	Dot         = dot.Dot
	Stamp       = dot.Stamp
	Frontier    = dot.Frontier
)

// External is the incarnation under which a store gives dots to external writes. No server has
// it, and it never departs.
const External Incarnation = math.MaxUint32

// set is a Frontier that grows. A Frontier that share has returned does not change.
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
	// Supersedes are the writes of the key that this one replaces, in a space that keeps siblings:
	// those that its author had seen (S1). Siblings says that the space keeps them; the server
	// sets it.
	Supersedes []Dot
	Siblings   bool
}

// Write is a write on the ring, in the journal, or carried by a session. It is never modified.
type Write struct {
	Dot   Dot
	Stamp Stamp
	Deps  Frontier // causes that were visible at some server when it was made
	After []Dot    // causes that the session carried, which may be visible nowhere yet (M5)
	Muts  []Mut    // they take effect together; none if the store refused the write (M2)
}

// Item is what a key holds.
type Item struct {
	Exists bool
	Value  []byte
	Stamp  Stamp
	// Siblings are, in a space that keeps them, the writes of the key that no other write has
	// replaced, deletions included, ordered by stamp. Stamp is then that of the last one, and Value
	// that of the last one that is no deletion.
	Siblings []*Write
}

// Row is the state of a key as the store returned it. A tombstone is a row that does not exist and
// has a stamp. If there is no row, the time of the stamp is that of the latest CollectTombstones and
// everything else is zero, because a tombstone may have been collected (M15). An external write
// leaves no dot.
//
// In a space that keeps siblings they are in Siblings, each with only its mutation of the key, and
// without a Dot if it is external. The time of the stamp is then that of the latest
// CollectTombstones in any case.
type Row struct {
	Item
	Dot Dot
}

// View is the ring that the coordinator has decided on.
type View struct {
	Number   uint64
	Ring     []Incarnation
	Departed []Incarnation // those that have left the ring and are not retired (V4)
	Newest   Incarnation   // the largest number of an incarnation so far
}

// Status sorts the answers of the store.
type Status uint8

// The statuses.
const (
	OK            Status = iota // it happened
	Refused                     // it did not, and no repetition will: the store judges by the write alone
	Fenced                      // it did not and will not: this incarnation has departed
	StatusUnknown               // unknown: it may have happened, or may still
)

// Outcome is the answer to a caller.
type Outcome uint8

// The outcomes.
const (
	Done       Outcome = iota
	Busy               // it did not happen: too much is under way; try later
	Behind             // it did not happen: the session has seen writes that this server has not received
	Failed             // a read got no answer from the store
	Stale              // the transaction's snapshot is gone: begin again
	Rejected           // it did not and will not: the store refused the write
	Expelled           // this incarnation has departed; a Put may have happened, and is recovered in that case
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

// Put: a session wants keys set or deleted, all at once. Carried are the writes that the session
// carries, causes first, and Time is the largest time that it has seen.
type Put struct {
	Op      Op
	Muts    []Mut
	Deps    Frontier
	Carried []*Write
	Time    uint64
}

// Recall: a session carries Dots, which are writes that it has by name only, and perhaps whole
// writes that depend on them. It asks for the writes of the names.
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

// Viewed: the coordinator has decided on another ring. The connections of the previous one are
// closed.
type Viewed struct{ View View }

// Opened: the predecessor in a view has opened a connection. Nothing that it sent on an earlier
// connection arrives any more.
type Opened struct{ View uint64 }

// Asked: the successor in a view has no state yet.
type Asked struct {
	From Incarnation
	View uint64
}

// Recovered answers Recover with OK and all that the journal has of the incarnations, or
// StatusUnknown. In an asynchronous space, Back are those whose logs were given back or given up
// (A8).
type Recovered struct {
	View   uint64
	Writes []*Write
	Back   []Incarnation
	Status Status
}

// Claimed answers Claim with OK and the set of all writes that were merged, Fenced if a later view
// has claimed, or StatusUnknown.
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

// Polled answers Poll with external writes after the number that was asked for, in order.
type Polled struct {
	View   uint64
	Writes []*Write
}

// Returned: the log of a departed incarnation was found. Nothing is added to that log any more.
type Returned struct {
	Incarnation Incarnation
	Writes      []*Write
}

// Broken: the connection to the successor broke. What was sent on it may not have arrived.
type Broken struct{}

// Received: a neighbour's message has arrived, in the order of its connection.
type Received struct{ Message Message }

// Evicted: memory is short, and the runtime asks the server to drop a key.
type Evicted struct{ Key string }

// Beat: it is time for a stability round.
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

// Chain carries a write from its Head, the server that put it onto the ring, towards the head's
// predecessor. Head 0 means that the write was sent again.
type Chain struct {
	View  uint64
	Head  Incarnation
	Write *Write
}

// Named forwards the name of a write, as Chain forwards the write, to a successor that has the write
// already. Only the server that took the write first is at the head of such a chain (M6).
type Named struct {
	View uint64
	Dot  Dot
}

// String is the message for people.
func (m Named) String() string { return fmt.Sprintf("%v by its name", m.Dot) }

// StabilityRound travels around the ring and finds out what every server has received (M14).
type StabilityRound struct {
	View   uint64
	Seen   Frontier // received by the first server when the round began
	Stable Frontier // received by every server
	Low    uint64   // no write outside of Stable has a smaller time, by the servers that the round has passed

	Durable Frontier // in the store, if the space is asynchronous
}

// Resync tells the predecessor what this server has, so that it sends only the rest (M17).
type Resync struct {
	View     uint64
	Received Frontier
}

// Snapshot is the state with which a server begins that joins behind another (V2).
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

// Persist asks the store to commit, in one statement, the journal entry of Write and every row that
// it wins by its stamp. Every Try has the same write. A write that was committed before, or
// truncated since, is OK and changes nothing.
//
// In an asynchronous space this server's own log commits Write together with With, which are the
// causes that no other server may have, causes first (A1).
type Persist struct {
	Call  Call
	Write *Write
	Try   int
	With  []*Write
}

// Claim asks the store to refuse every later Flush of an earlier view (A3).
type Claim struct {
	Call Call
	Term uint64 // the view
	Try  int
}

// Flush asks the store to merge writes into its rows by their stamps, and to remember Durable, the
// set of all writes that were merged so far, in one commit. The flushes of a view are numbered. One
// whose number was merged before is OK and changes nothing; one of a view that is not the latest to
// claim is Fenced.
type Flush struct {
	Call    Call
	Term    uint64 // the view
	Number  uint64
	Writes  []*Write // causes first
	Durable Frontier
	Try     int
}

// Release tells the store that all of an incarnation's log is in the rows, so the log can be
// removed.
type Release struct{ Incarnation Incarnation }

// Truncate lets the journal drop an incarnation's writes up to a number. The store remembers the
// number: a late Persist of those writes does not take effect.
type Truncate struct {
	Incarnation Incarnation
	Upto        uint64
}

// Recover asks for the writes of departed incarnations. The runtime waits until their leases have
// ended, so that they acknowledge nothing more, has the store refuse every later Persist of theirs,
// and then reads the journal.
type Recover struct {
	View         uint64
	Incarnations []Incarnation
}

// Poll asks for external writes that the journal has after a number, some or all of them. The
// runtime may delay the answer.
type Poll struct{ View, After uint64 }

// Retire tells the coordinator that all writes of an incarnation are visible everywhere, so the next
// view need not list it (V4).
type Retire struct{ Incarnation Incarnation }

// CollectTombstones lets the store drop tombstones with a smaller time, except tombstones of external
// writes that were not truncated (M19). The store remembers the time before it drops anything: see
// Row.
type CollectTombstones struct{ Before uint64 }

// Send gives a message to a neighbour: to the successor on the connection that it
// resynced on, to the predecessor on the one it opened.
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
	Write   *Write   // the write that a Put made
	At      Snap     // of a ReadMany and a Look: the snapshot of the items
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
