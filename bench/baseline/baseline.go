// Package baseline holds what freshet is compared with: ways to read a database that
// people use, or that papers describe, each as fast as we can make it.
//
// What may be relied on: a baseline does what its comment says and nothing for show;
// what it needs of a store, and nothing more, is one statement and one round trip;
// and a read says which version it returned, so that a Judge can tell of every
// system, ours included, how many reads were stale. Storage, Version and Chrono
// promise that none are. TTL and Aside do not.
package baseline

import (
	"context"
	"errors"
)

// System is one way to read and write rows, as one instance of an application has
// it. Its methods are safe for concurrent use.
type System interface {
	// Get reads all of keys, which exist, into out, which is as long.
	Get(ctx context.Context, keys []string, out []Reading) error
	// Set writes key and returns the version that was committed. After an error it is
	// unknown whether it was.
	Set(ctx context.Context, key, value string) (version uint64, err error)
	Close() error
}

// Reading is what a read returned for one key.
type Reading struct {
	Value   string
	Version uint64 // grows with every write of the key
	Hit     bool   // the bytes came from a cache
}

// Row is what a store has of a key.
type Row struct {
	Value   string
	Version uint64
}

// Rows are the store under a baseline: rows that exist, each with a version that
// grows with every write. It is linearizable.
type Rows interface {
	// Load reads keys with one statement. known, if it is not nil, are the versions
	// that the caller has: of a key that has that version yet, only the version is
	// read.
	Load(ctx context.Context, keys []string, known []uint64) ([]Row, error)
	Set(ctx context.Context, key, value string) (version uint64, err error)
	Dated
}

// Dated is what Chrono needs of a store besides: commits before a bound, and reads
// that know their time. Times are nanoseconds by the store's clock.
type Dated interface {
	// LoadAt is Load with a time at: every write that was committed at a time up to
	// it is seen by the read.
	LoadAt(ctx context.Context, keys []string) (rows []Row, at int64, err error)
	// SetBefore is Set if the time of the commit is below bound, and ErrLate, without
	// effect, if it is not.
	SetBefore(ctx context.Context, key, value string, bound int64) (version uint64, err error)
}

// ErrLate means that nothing was written: the commit would have come after its bound.
var ErrLate = errors.New("baseline: late: nothing was written, for the commit would have come after its bound; raise the bound and try again")

// errAbsent means that the rows were not loaded before they were read.
var errAbsent = errors.New("baseline: a key does not exist; load the rows first")
