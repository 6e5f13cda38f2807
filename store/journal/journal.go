// Package journal has the types that causal and its stores share: versioned rows, each of which
// knows the write that left it, and a journal of writes by the dots that name them. The package
// has hardly any behaviour and no interface: causal declares the methods that it needs, and
// store/memory, store/pebble and store/postgres implement them.
//
// # Rows and journal
//
// A row keeps the write with the largest stamp, in whatever order writes come. The journal keeps
// every write from its commit until it is truncated, because rows are overwritten and only the
// journal can give a write back by its dot. A write and its journal entry are one commit:
//
//	Persist(w) returns nil when w's entry is in the journal and every row that w wins by its
//	stamp has its value, both durable. For a write that was committed before, or that was
//	truncated since, it returns nil and changes nothing.
//
// A space that merges keeps siblings, which are concurrent versions of a key: its rows are sets.
// KeepSiblings(true) says so before anything else; from then on a call that says otherwise is
// ErrSiblings. Persist(w) removes the versions that w's mutation of the key Supersedes, and those
// without a dot that have a smaller stamp, and adds w's own version, which may be a deletion.
//
// # Incarnations
//
// An incarnation is one run of a server. It has a number, and a random Name that no other
// incarnation has. It begins once, and can be fenced:
//
//	Once Begin(incarnation, name) has returned nil, Begin of the same number under another name is
//	ErrBegun for ever, and so is every Begin once the incarnation is fenced. A coordinator that
//	loses its numbers or restores old ones therefore cannot make two incarnations look like one.
//
//	Known says which numbers were used, so that the next one is above them.
//
//	Once Fence(incarnation) has returned nil, no Persist of that incarnation takes effect any
//	more, also none that was under way.
//
//	Once Truncate(incarnation, n) has returned nil, no Persist of a dot up to n takes effect.
//
// Truncate is for a running incarnation and is refused once it is fenced, so that its journal does
// not change any more; TruncateFenced is for a fenced one.
//
// # Asynchronous spaces
//
// In an asynchronous space no server persists here: writes are in logs elsewhere, and one server
// merges them into the rows in batches. It claims a term first:
//
//	Once Claim(term) has returned nil, no Merge of a smaller term takes effect any more, also none
//	that was under way. Claim returns the Mark of the last one that did, and is ErrFenced if a
//	larger term has claimed.
//
//	Merge(f) returns nil when every row of f that wins by its stamp is stored, and f's Mark is what
//	Claim returns, both durable in one commit. For a Number that is not above the last one of its
//	term it returns nil and changes nothing. It is ErrFenced if another term has claimed.
//
// Fence says in such a space that the log of an incarnation is not needed any more, and Fenced
// returns the incarnations of which that was said.
//
// A store can be such a log, of writes without mutations. Incarnations then returns those that have
// begun, and once Remove(incarnation) has returned nil nothing of it is stored and no Persist of it
// takes effect.
//
// # Errors
//
// An error that is neither ErrFenced nor one of package store's definite ones means that the
// outcome is unknown: send the same request again.
package journal

import (
	"crypto/rand"
	"errors"
	"slices"
)

// Dot names a write for ever: the incarnation that took it, and its number there, from 1 on.
// The zero Dot names no write of a cache.
type Dot struct {
	Incarnation uint32
	N           uint64
}

// Name is the name of one incarnation of a server. It is random, so that no other incarnation has it.
type Name [16]byte

// NewName draws a name.
func NewName() (n Name) {
	_, _ = rand.Read(n[:]) // it never fails
	return n
}

// Known is what a store knows of the incarnations of a space.
type Known struct {
	Newest uint32   // the largest number that began or was fenced; External does not count
	Open   []uint32 // those that are not fenced or have entries in the journal, in order
	Term   uint64   // the largest that has claimed the rows
}

// Skip is how many numbers are left out when a store was restored to an earlier state: more than incarnations can have begun
// in the history that is gone. What sessions have seen of those then counts as lost, and is not mixed up with others.
const Skip = 1 << 20

// External is the number under which stores record external writes.
const External uint32 = 1<<32 - 1

// Stamp orders all writes. The larger one wins a key.
type Stamp struct {
	Time        uint64
	Incarnation uint32
}

// Less reports whether s comes before o.
func (s Stamp) Less(o Stamp) bool {
	return s.Time < o.Time || s.Time == o.Time && s.Incarnation < o.Incarnation
}

// Mutation sets a key, or deletes it.
type Mutation struct {
	Key        string
	Value      []byte // the store keeps no reference to it after Persist returned
	Delete     bool
	Supersedes []Dot // the versions it takes the place of, where concurrent writes are kept
}

// Write is what is committed at once.
type Write struct {
	Dot   Dot
	Stamp Stamp
	Muts  []Mutation // of different keys; none for a number that came to nothing
	Body  []byte     // what the journal gives back
}

// Keyed is a row and its key.
type Keyed struct {
	Key string
	Row Row
}

// Flush is what is merged at once.
type Flush struct {
	Term, Number uint64
	Rows         []Keyed // of different keys
	Mark         []byte  // what has been merged so far, this batch included, in the encoding of the server that merges
}

// Row is what a store knows of one key at one instant. A deleted key has a stamp for
// as long as the store remembers it. A key of which it knows nothing has one whose time
// is that of the latest CollectTombstones, for it may have been deleted before, and nothing else.
type Row struct {
	Exists bool
	Value  []byte // never modified after it was returned
	Stamp  Stamp
	Dot    Dot // of the write that left the row so; zero if it was written externally
	// Siblings are the versions of a key where concurrent writes are kept, in any order. The
	// stamp has then the time of the latest CollectTombstones, and the rest is zero.
	Siblings []Version
}

// Version is one of several values of a key, or a deletion that is beside them.
type Version struct {
	Exists bool
	Value  []byte // never modified after it was returned
	Stamp  Stamp
	Dot    Dot
}

// Supersedes reports whether a write's mutation of a key takes a version's place.
func (w *Write) Supersedes(m *Mutation, v Version) bool {
	return v.Dot == Dot{} && v.Stamp.Less(w.Stamp) || slices.Contains(m.Supersedes, v.Dot)
}

// Version is what a write's mutation of a key leaves there.
func (w *Write) Version(m *Mutation) Version {
	v := Version{Exists: !m.Delete, Stamp: w.Stamp, Dot: w.Dot}
	if v.Exists {
		v.Value = append([]byte{}, m.Value...)
	}
	return v
}

// Entry is a write in the journal.
type Entry struct {
	N    uint64
	Body []byte
}

var (
	// ErrFenced means that nothing was changed and nothing will be: the incarnation was
	// fenced, or never began.
	ErrFenced = errors.New("store: fenced: this incarnation of the server is over; begin another")
	// ErrSiblings means that a space was begun with the other setting.
	ErrSiblings = errors.New("store: this space keeps concurrent writes and is opened as one that does not, or the reverse; open it as it was begun, or use another space")
	// ErrBegun means that the number belongs to another incarnation: it began under another name, or
	// was fenced.
	ErrBegun = errors.New("store: this number belongs to another incarnation of a server; a number is used once, ask for a larger one")
)
