// Package store has the types that every store and every promise share: a row, a mutation, a guard
// token, and the few errors that tell a definite "no" from silence. It contains no behaviour and no
// interface: each promise declares the methods that it needs, and the packages below store
// implement them.
//
// A store used by freshet is the source of truth and is linearizable per key. Beside its rows it
// keeps write guards (WriteGuards, section 5): a soft map from key ranges to tokens, which every
// commit checks. Every promise rests on the fence:
//
//	Once SetGuard(range, token) has returned nil, no mutation of a key of that
//	range that carries another token ever commits, mutations in flight included.
package store

import (
	"errors"
	"time"
)

// Token is an opaque 128-bit guard. The zero Token is "no guard". A key has it before the first
// SetGuard, and after the guards, which are soft state, were lost. A mutation without a token
// commits only where no guard is in force.
type Token [16]byte

// ID names one write for ever. The store keeps with each row the ID of the write that produced it.
// A writer that got no answer can so find out the outcome of its write. The zero ID is "unknown".
type ID [16]byte

// Version orders the committed writes of a key. It grows strictly in commit order, also across
// delete and re-create, and is not repeated when the whole store is created anew. Absence has a
// version too: that of the delete, or of the expiry, or zero for a key of which the store remembers
// nothing.
type Version uint64

// Row is what a store knows of one key at one instant.
type Row struct {
	Exists  bool          // false: the key is absent, and Value is nil
	Value   []byte        // never modified after it was returned
	Version Version       // of the row, or of its absence
	Writer  ID            // the write that left this state; zero if forgotten
	TTL     time.Duration // remaining TTL by the store's clock; 0 if the row does not expire
	Guard   Token         // the guard that covers the key
	Written time.Time     // when the row was committed, by the wall clock; zero if forgotten
}

// KeepTTL as a Mutation's TTL keeps the deadline that the row already has.
const KeepTTL time.Duration = -1

// Mutation changes one key.
type Mutation struct {
	Key    string
	Guard  Token         // must equal the guard that covers Key at commit
	Delete bool          // remove the row; Value and TTL are ignored
	Value  []byte        // the store keeps no reference to it after Commit has returned
	TTL    time.Duration // 0: the row never expires; KeepTTL; otherwise the TTL from the commit on
	Check  bool          // commit only if the key's version equals Expect
	Expect Version       // see Check; zero means a key of which the store remembers nothing
}

// Stamp describes the row that a committed mutation left.
type Stamp struct {
	Version Version
	TTL     time.Duration // as in Row
}

// Definite refusals: nothing was changed and nothing will be. Stores wrap these errors. Any other
// error of Commit or SetGuard means that the outcome is unknown, and that the call may still take
// effect later.
var (
	ErrGuardMismatch = errors.New("store: guard mismatch: another guard covers the key; install a new guard and try again")
	ErrConflict      = errors.New("store: version conflict: the key has changed; read it again and decide anew")
	ErrLayoutChanged = errors.New("store: layout changed: the range is not inside one tablet; read the split points again")
	ErrFull          = errors.New("store: full: the write was refused; free space or raise the limit, reads go on")
	ErrTooLarge      = errors.New("store: too large: the key or value exceeds the store's limit")
	ErrUnavailable   = errors.New("store: unavailable: nothing was done; no connection or lock was to be had in time, try again")
	ErrRefused       = errors.New("store: refused: nothing was written; the store says why")
	ErrClosed        = errors.New("store: closed")
)

// Definite reports whether err says for certain that nothing was changed and nothing will be.
func Definite(err error) bool {
	for _, e := range []error{ErrGuardMismatch, ErrConflict, ErrLayoutChanged, ErrFull, ErrTooLarge, ErrUnavailable, ErrRefused, ErrClosed} {
		if errors.Is(err, e) {
			return true
		}
	}
	return false
}

// FirstVersion returns the version at which a new store begins, so that versions are not repeated
// when a store is created anew. It has the seconds since 2024, then 31 random bits, then a zero.
// Versions go in steps of two, because the odd one is the version of absence after a row expired.
// The result fits 63 bits until about 2160.
func FirstVersion(now time.Time, random uint64) Version {
	const since = 1704067200
	return Version(uint64(max(0, now.Unix()-since))<<32&(1<<63-1) | random&(1<<31-1)<<1)
}

// NextVersion returns the version at which a store continues that was restored to an earlier state.
// It is above every version that the store can have given, however recently, unless the store gave
// billions of them in a second.
func NextVersion(now time.Time, random uint64) Version {
	return FirstVersion(now.Add(time.Second), random)
}
