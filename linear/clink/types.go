package clink

import (
	"github.com/freshet-cache/freshet/shard/lease"
	"github.com/freshet-cache/freshet/ticks"
)

// Token is an opaque guard. The zero Token is no guard.
type Token [16]byte

// ID names a write for ever.
type ID [16]byte

// Op names a caller's operation. The runtime never uses a number twice.
type Op uint64

// Call names a request to the store. Each is answered by exactly one input.
type Call uint64

// Row is the state of a key as a read of the store returned it.
type Row struct {
	Exists  bool
	Value   []byte
	Version uint64
	Writer  ID
	TTL     ticks.Tick // remaining TTL when the store answered; 0 if the row does not expire
	Guard   Token      // the guard that covered the key
}

// KeepTTL as the TTL of a Mut keeps the deadline that the row has.
const KeepTTL ticks.Tick = -1

// Mut is a write to one key.
type Mut struct {
	Key    string
	Delete bool
	Value  []byte
	TTL    ticks.Tick
	// The machine sets Guard, Check and Expect: the write commits only under Guard and, if Check is
	// set, only onto version Expect.
	Guard  Token
	Check  bool
	Expect uint64
}

// Stamp describes the row that a committed Mut left.
type Stamp struct {
	Version uint64
	TTL     ticks.Tick
}

// Status sorts the answers of a store into yes, no and unknown.
type Status uint8

// The statuses.
const (
	OK            Status = iota // it happened
	Mismatch                    // it did not and will not: the store has another guard
	Conflict                    // it did not and will not: the row had another version
	Layout                      // it did not and will not: the range is not in one tablet
	Refused                     // it did not and will not, for another reason of the store
	StatusUnknown               // unknown: it may have happened, or may still
)

// Outcome is the answer to a caller.
type Outcome uint8

// The outcomes.
const (
	Done     Outcome = iota // it happened, once
	NotOwner                // it did not and will not: send it to the owner
	NotSent                 // it did not and will not: the caller's deadline passed
	Rejected                // it did not and will not: the store refused
	Failed                  // the store did not answer a read
	Unknown                 // it may have happened, or may still, at most once
	Busy                    // it did not and will not: too much is queued
	Lapsed                  // it did not and will not under these guards: lock the keys again
)

// Input is something that has happened.
type Input interface{ input() }

// Acquired: the lease of a slice began. Keys that the node held before are held without
// interruption.
type Acquired struct {
	lease.Lease
	Until ticks.Tick
	After lease.Gen // the generation whose owner gave the slice up for this lease and may offer entries; 0 if none
}

// Extended: a lease lasts until Until.
type Extended struct {
	Gen   lease.Gen
	Until ticks.Tick
}

// Revoked: a lease is over for good. The runtime reports it before it acknowledges the recall.
type Revoked struct{ Gen lease.Gen }

// Splits answers ReadSplits with the boundaries of the store's tablets. Status is OK or
// StatusUnknown.
type Splits struct {
	Call   Call
	Points []string
	Status Status
}

// Guarded answers SetGuard. Status is OK, Layout or StatusUnknown.
type Guarded struct {
	Call   Call
	Status Status
}

// Read: a caller wants a key that the runtime cannot serve from an entry.
type Read struct {
	Op  Op
	Key string
}

// Loaded answers Load. Status is OK or StatusUnknown.
type Loaded struct {
	Call   Call
	Row    Row
	Status Status
}

// Write: a caller sets or deletes one key without its former value, or sets several keys at once.
// The keys of Muts are sorted and different.
type Write struct {
	Op   Op
	Muts []Mut
}

// Update: a caller wants to write to Keys, all at once, what it decides from their rows. Keys are
// sorted and different.
type Update struct {
	Op   Op
	Keys []string
}

// Lock: a caller wants to write Keys in a transaction of its own, which marks their rows with ID.
// Keys are sorted and different. No other operation ever uses ID.
type Lock struct {
	Op   Op
	ID   ID
	Keys []string
}

// Evaluated answers Evaluate with the decision. Without Muts nothing is written. Each Mut is for
// one of the keys, and no two for the same key.
type Evaluated struct {
	Op   Op
	Muts []Mut
}

// Stored answers Store, with Stamps in the order of Muts, or Locked, with any Stamps.
type Stored struct {
	Call   Call
	Status Status
	Stamps []Stamp
}

// Offered: the owner of generation After gave a slice up, and had this row in memory then. The row
// does not expire.
type Offered struct {
	After lease.Gen
	Key   string
	Row   Row
}

// Abandoned: the caller's deadline has passed.
type Abandoned struct{ Op Op }

func (Acquired) input()  {}
func (Extended) input()  {}
func (Revoked) input()   {}
func (Splits) input()    {}
func (Guarded) input()   {}
func (Read) input()      {}
func (Loaded) input()    {}
func (Write) input()     {}
func (Update) input()    {}
func (Lock) input()      {}
func (Evaluated) input() {}
func (Stored) input()    {}
func (Offered) input()   {}
func (Abandoned) input() {}

// Output is something for the runtime to do. Outputs are in order.
type Output interface{ output() }

// ReadSplits asks the store for its tablet boundaries inside Range. Try counts attempts; the
// runtime waits longer before later ones.
type ReadSplits struct {
	Call  Call
	Range lease.Range
	Try   int
}

// SetGuard asks the store to install Token over Range. The runtime never sends it twice.
type SetGuard struct {
	Call  Call
	Range lease.Range
	Token Token
	Try   int
}

// Load asks the store for a row. The runtime may send it again while it has no answer. A Bare load
// needs only the writer: the row may have Exists set and no Value.
type Load struct {
	Call Call
	Key  string
	Try  int
	Bare bool
}

// Evaluate asks the caller of an Update for its decision.
type Evaluate struct {
	Op   Op
	Rows []Row // in the order of the Update's Keys
}

// Store asks the store to commit Muts, all or none. The runtime never sends it twice.
type Store struct {
	Call Call
	ID   ID
	Muts []Mut
}

// Locked lets the caller of a Lock write its keys, each only under its guard. It is answered when
// the caller's transaction has ended, or with StatusUnknown at a deadline.
type Locked struct {
	Call   Call
	Op     Op
	Guards []Token // in the order of the Lock's Keys
}

// Keep replaces the entry of a key. The entry may be served while its lease Gen holds and, if Until
// is not 0, before Until.
type Keep struct {
	Key   string
	Row   Row
	Gen   lease.Gen
	Until ticks.Tick
}

// Drop removes an entry before any later output is carried out.
type Drop struct{ Key string }

// Retag says that entries of Range kept under Old may be kept under New, because the keys were held
// without interruption. The runtime may do it at any later time, or never.
type Retag struct {
	Range    lease.Range
	Old, New lease.Gen
}

// Reply answers a caller. For a read, Row is the row. For a write or update, Stamps are in the
// order of the Muts, and empty if nothing was written. An odd version belongs to a write that was
// overwritten in the same instant: no reader ever sees it.
type Reply struct {
	Op      Op
	Outcome Outcome
	Row     Row
	Until   ticks.Tick // when the row expires by the node's clock; 0 if never
	Stamps  []Stamp
}

// Event reports something that metrics count; it asks for nothing.
type Event struct{ Kind EventKind }

// EventKind says what an Event counts.
type EventKind uint8

// The events.
const (
	FillRefusedNoGuard  EventKind = iota // R5
	FillRefusedOverlap                   // R6
	FillRefusedLease                     // R7
	FillRefusedExpired                   // R10
	OutcomeUnknown                       // a write got no answer
	OutcomeProvenDone                    // R14: the write was applied
	OutcomeProvenFailed                  // R14: the write was not applied
	OutcomeLeftUnknown                   // R15, R16, R18
	GuardInstalled
	GuardRefused // the lease was over, or the layout had changed
	GuardLost    // a SetGuard got no answer
	Mismatched   // a write found another guard in the store
	Conflicted
	Combined    // a blind write was sent as one with a later one
	Joined      // a read shared the load of another read
	Transferred // an entry of the previous owner was kept
	EventKinds
)

func (ReadSplits) output() {}
func (SetGuard) output()   {}
func (Load) output()       {}
func (Evaluate) output()   {}
func (Store) output()      {}
func (Locked) output()     {}
func (Keep) output()       {}
func (Drop) output()       {}
func (Retag) output()      {}
func (Reply) output()      {}
func (Event) output()      {}
