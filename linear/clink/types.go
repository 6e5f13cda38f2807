package clink

import "github.com/freshet-cache/freshet/shard/lease"

// Token is an opaque guard; the zero Token is none.
type Token [16]byte

// ID names a write for ever.
type ID [16]byte

// Op names a caller's operation; the runtime draws them, never twice.
type Op uint64

// Call names a request to the store. Each is answered by exactly one input.
type Call uint64

// Row is the state of a key as a read of the store returned it.
type Row struct {
	Exists  bool
	Value   []byte
	Version uint64
	Writer  ID
	TTL     lease.Tick // remaining TTL when the store answered; 0 does not expire
	Guard   Token      // the guard that covered the key
}

// KeepTTL as the TTL of a Mut keeps the deadline the row has.
const KeepTTL lease.Tick = -1

// Mut is a write to one key.
type Mut struct {
	Key    string
	Delete bool
	Value  []byte
	TTL    lease.Tick
	// Guard, Check and Expect are the machine's to set: the write commits only
	// under Guard and, if Check, only onto version Expect.
	Guard  Token
	Check  bool
	Expect uint64
}

// Stamp is what a committed Mut left behind.
type Stamp struct {
	Version uint64
	TTL     lease.Tick
}

// Status sorts the answers of a store. Three answers exist: yes, no, unknown.
type Status uint8

// The statuses.
const (
	OK            Status = iota // it happened
	Mismatch                    // it did not and will not: another guard stands there
	Conflict                    // it did not and will not: the version was another
	Layout                      // it did not and will not: the range is not in one tablet
	Refused                     // it did not and will not, for a reason of the store's
	StatusUnknown               // unknown: it may have happened, or may still
)

// Outcome is the answer to a caller.
type Outcome uint8

// The outcomes.
const (
	Done     Outcome = iota // it happened, once
	NotOwner                // it did not and will not: ask the owner
	NotSent                 // it did not and will not: the caller's time was over
	Rejected                // it did not and will not: the store refused
	Failed                  // a read got no answer
	Unknown                 // it may have happened, or may still, at most once
	Busy                    // it did not and will not: too much is queued
	Lapsed                  // it did not and will not, under these guards: ask for others
)

// Input is something that has happened.
type Input interface{ input() }

// Acquired: the lease of a slice began. If every key of it was held before, it
// goes on without interruption.
type Acquired struct {
	lease.Lease
	Until lease.Tick
	After lease.Gen // whose owner gave the slice up for this one, and may offer entries; 0 if nobody
}

// Extended: a lease lasts until Until.
type Extended struct {
	Gen   lease.Gen
	Until lease.Tick
}

// Revoked: a lease is over for good. The runtime reports it before the recall
// is acknowledged.
type Revoked struct{ Gen lease.Gen }

// Splits answers ReadSplits with the store's boundaries; Status is OK or StatusUnknown.
type Splits struct {
	Call   Call
	Points []string
	Status Status
}

// Guarded answers SetGuard with OK, Layout or Lost.
type Guarded struct {
	Call   Call
	Status Status
}

// Read: a caller wants a key of which the runtime could serve no entry.
type Read struct {
	Op  Op
	Key string
}

// Loaded answers Load with OK or StatusUnknown.
type Loaded struct {
	Call   Call
	Row    Row
	Status Status
}

// Write: a caller wants a key set or deleted, whatever it was; or several keys
// set, all at once. Keys of Muts are sorted and differ.
type Write struct {
	Op   Op
	Muts []Mut
}

// Update: a caller wants to decide, from the rows of Keys, what to write to
// them, all at once. Keys are sorted and differ.
type Update struct {
	Op   Op
	Keys []string
}

// Lock: a caller wants to write Keys in a transaction of its own, which marks their
// rows with ID, whatever else it does. Keys are sorted and differ; nobody else ever
// uses ID.
type Lock struct {
	Op   Op
	ID   ID
	Keys []string
}

// Evaluated answers Evaluate with the decision; no Muts means that nothing is
// to be written. Every Mut is to one of the keys, none to the same twice.
type Evaluated struct {
	Op   Op
	Muts []Mut
}

// Stored answers Store, with Stamps as the Muts were, or Locked, with any.
type Stored struct {
	Call   Call
	Status Status
	Stamps []Stamp
}

// Offered: the owner of generation After, which gave a slice up, had this row in
// memory when it did; it does not expire.
type Offered struct {
	After lease.Gen
	Key   string
	Row   Row
}

// Abandoned: the caller's deadline is over.
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

// Output is something to be done, in order.
type Output interface{ output() }

// ReadSplits asks the store for its boundaries inside Range. Try counts
// attempts; the runtime waits longer before later ones.
type ReadSplits struct {
	Call  Call
	Range lease.Range
	Try   int
}

// SetGuard asks the store to install Token over Range; never send it twice.
type SetGuard struct {
	Call  Call
	Range lease.Range
	Token Token
	Try   int
}

// Load asks the store for a row. It may be sent again while it has no answer. Of a
// Bare one nothing is wanted but who wrote it: it may say Exists and leave Value out.
type Load struct {
	Call Call
	Key  string
	Try  int
	Bare bool
}

// Evaluate asks the caller of an Update for its decision.
type Evaluate struct {
	Op   Op
	Rows []Row // as the Update's Keys
}

// Store asks the store to commit Muts, all or none; never send it twice.
type Store struct {
	Call Call
	ID   ID
	Muts []Mut
}

// Locked lets the caller of a Lock write its keys, each only under its guard. It is
// answered when the caller's transaction has ended, or at a deadline with Lost.
type Locked struct {
	Call   Call
	Op     Op
	Guards []Token // as the Lock's Keys
}

// Keep puts an entry in place of the present one. It may be served while its
// lease Gen holds and, if Until is not 0, before Until.
type Keep struct {
	Key   string
	Row   Row
	Gen   lease.Gen
	Until lease.Tick
}

// Drop removes an entry before any later output is carried out.
type Drop struct{ Key string }

// Retag lets the entries of Range that are kept under Old be kept under New: the keys
// have been held all along. It may be done at any later time, or never.
type Retag struct {
	Range    lease.Range
	Old, New lease.Gen
}

// Reply answers a caller. For a read, Row is the row; for a write or update, the
// Stamps are as the Muts were, none if nothing was written. An odd version is that of
// a write which was overwritten in the same instant: no reader ever sees it.
type Reply struct {
	Op      Op
	Outcome Outcome
	Row     Row
	Until   lease.Tick // when the row expires by the node's clock; 0 never
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
	OutcomeProvenDone                    // R14, found
	OutcomeProvenFailed                  // R14, not found
	OutcomeLeftUnknown                   // R15, R16, R18
	GuardInstalled
	GuardRefused // the lease was over, or the layout had changed
	GuardLost    // a SetGuard got no answer
	Mismatched   // a write met another guard
	Conflicted
	Combined    // a blind write rode along with a later one
	Joined      // a read shared another's load
	Transferred // an entry of the last owner was kept
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
