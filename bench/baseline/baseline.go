// Package baseline holds the systems with which freshet is compared: ways to read a database that
// applications use or papers describe, each as fast as we can make it.
//
// What may be relied on: a baseline does what its comment says. Each request to the store is one
// statement and one round trip. A read returns its version, so that a Judge can count the stale
// reads of every system, freshet included. Storage, Version and Chrono promise that no read is
// stale; TTL and Aside do not.
package baseline

import (
	"context"
	"errors"
)

// System is one way to read and write rows, as one instance of an application has it. Its methods
// are safe for concurrent use.
type System interface {
	// Get reads keys, all of which exist, into out, which has the same length.
	Get(ctx context.Context, keys []string, out []Reading) error
	// Set writes key and returns the version that was committed. After an error it is
	// unknown whether it was.
	Set(ctx context.Context, key, value string) (version uint64, err error)
	Close() error
}

// Reading is the result of a read of one key.
type Reading struct {
	Value   string
	Version uint64 // grows with every write of the key
	Hit     bool   // the bytes came from a cache
}

// Row is the state of a key in the store.
type Row struct {
	Value   string
	Version uint64
}

// Rows is the store under a baseline. All rows exist; the version of a row grows with every write.
// The store is linearizable.
type Rows interface {
	// Load reads keys with one statement. If known is not nil, it has the versions that the caller
	// knows; of a row that still has its known version, Load reads only the version.
	Load(ctx context.Context, keys []string, known []uint64) ([]Row, error)
	Set(ctx context.Context, key, value string) (version uint64, err error)
	Dated
}

// Dated is what Chrono needs in addition: commits before a bound, and reads with a time. Times are
// nanoseconds by the clock of the store.
type Dated interface {
	// LoadAt is Load with a time at: the read sees every write that was committed at or before at.
	LoadAt(ctx context.Context, keys []string) (rows []Row, at int64, err error)
	// SetBefore is Set if the commit happens before bound. Otherwise it has no effect and returns
	// ErrLate.
	SetBefore(ctx context.Context, key, value string, bound int64) (version uint64, err error)
}

// ErrLate means that nothing was written: the commit would have come after its bound.
var ErrLate = errors.New("baseline: late: nothing was written, for the commit would have come after its bound; raise the bound and try again")

// errAbsent means that a read came before the rows were loaded.
var errAbsent = errors.New("baseline: a key does not exist; load the rows first")
