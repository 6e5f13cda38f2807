// Package journal holds the words that causal and its stores share: rows that know
// which write left them, and a journal of writes by the dots that name them. It
// contains hardly any behaviour and no interface: causal declares the methods it needs, and
// the packages beside this one implement them.
//
// A row keeps the write with the largest stamp, in whichever order writes come. The
// journal keeps every write from the instant it is committed until its incarnation lets it
// go, for rows are overwritten and only the journal can give back a dot. A write and
// its entry are one commit:
//
//	Persist(w) returns nil when w's entry is in the journal and every row that w wins
//	by its stamp has its value, both durable. Of a write that was committed before, or
//	whose incarnation has let it go since, it returns nil and changes nothing.
//
// A space may keep concurrent writes instead, if it was begun so: Keep(true) says so before
// anything else, and is ErrKept ever after for who says the reverse. Its rows are sets of
// versions. Persist(w) takes away those that w's mutation of the key is Over, and those
// without a dot that have a smaller stamp, and adds w's own, a deletion too.
//
// An incarnation is one incarnation of a server. It has a number, and a Name that no other has. It begins
// once, and can be fenced:
//
//	Once Begin(incarnation, name) has returned nil, Begin of the same number under another name is
//	ErrBegun for ever, and so is every Begin once the incarnation is fenced. Who keeps the numbers
//	elsewhere may lose them, or restore old ones: the store does not mix two incarnations up.
//
//	Known says which numbers were used, so that the next one is above them.
//
//	Once Fence(incarnation) has returned nil, no Persist of that incarnation takes effect any
//	more, those in flight included.
//
//	Once Forget(incarnation, n) has returned nil, none of a dot up to n does either.
//
// Forget is the incarnation's own and is refused behind the fence, so that what the journal has
// and has truncated stands still then; whoever looks after a departed incarnation uses Drop.
//
// In an asynchronous space nobody persists here: writes lie in logs elsewhere, and one server
// brings them into the rows, many at once. Whoever does claims a term first:
//
//	Once Claim(term) has returned nil no Merge of a smaller term takes effect any more,
//	those in flight included. It returns the Mark of the last one that did, and is
//	ErrFenced if a larger term has claimed.
//
//	Merge(f) returns nil when every row of f that wins by its stamp is there, and f's Mark
//	is what Claim returns, both durable: they are one commit. Of a Number that is not above
//	the last one of its term it returns nil and changes nothing. It is ErrFenced if its
//	term is not the one that has claimed.
//
// Fence says there that the log of an incarnation is not needed any more, and Fenced who was.
//
// A store can be such a log: of writes without mutations. Then Incarnations returns the incarnations that
// have begun, and once Remove(incarnation) has returned nil nothing of it is there and no Persist
// of it takes effect.
//
// An error that is neither ErrFenced nor one of package store's definite ones means
// that the outcome is unknown: say it again, it is the same write.
package journal

import (
	"crypto/rand"
	"errors"
	"slices"
)

// Dot names a write for ever: the incarnation that took it, and its number there, from 1 on.
// The zero Dot is no write of a cache's.
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
	Mark         []byte  // what has been merged so far, this included, as whoever merges says it
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
