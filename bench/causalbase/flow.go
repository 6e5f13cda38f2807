package causalbase

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strconv"
)

// Flow is a workflow of one client: functions at servers, one after the other or in parallel. It is
// not safe for concurrent use; fork it.
type Flow interface {
	// Read reads the keys of one function, which are known when the function begins. A key that
	// does not exist has the value "".
	Read(ctx context.Context, keys []string) ([]string, error)
	// Write writes a key. In a transaction, End does it.
	Write(ctx context.Context, key, value string) error
	// Move continues with a function at another server.
	Move(to int) error
	// Fork begins a parallel function at the same server. Join merges it.
	Fork() Flow
	Join(Flow)
	// End ends the workflow.
	End(ctx context.Context) error
}

// System is a cache of several servers over a store, in one process.
type System interface {
	// Begin begins a workflow. places are the servers of its functions, the first one first; keys
	// are what it will read, for systems that must know that in advance.
	Begin(ctx context.Context, places []int, keys []string) (Flow, error)
	// Act says which reads and writes of a workflow are atomic.
	Act() Act
	// Settle waits until all writes are visible at all servers.
	Settle(ctx context.Context) error
	// Metadata returns how many bytes all servers together hold beyond keys and values.
	Metadata() int
	Close(ctx context.Context) error
}

// Act is the unit that a system keeps atomic.
type Act uint8

// The units: each read, each function, the whole workflow.
const (
	EachRead Act = iota
	EachFunction
	TheWorkflow
)

// ErrAgain means that the workflow had no effect and must begin again.
var ErrAgain = errors.New("causalbase: the workflow is undone; begin it again")

// Initial returns a value of the initial rows.
func Initial(text string) string { return "-" + text }

// Fresh returns the n-th written value: 8 bytes for n, then text.
func Fresh(n int64, text string) string {
	b := strconv.AppendInt(make([]byte, 0, 8+len(text)), 1e7+n, 10)
	return string(append(b, text...))
}

// Text returns the text of a value, without its number.
func Text(value string) string {
	switch {
	case value == "":
		return ""
	case value[0] == '-':
		return value[1:]
	}
	return value[min(8, len(value)):]
}

// name returns the name of the write of a value for package check; empty for an initial value.
func name(value string) string {
	if value == "" || value[0] == '-' {
		return ""
	}
	return value[:min(8, len(value))]
}

func sorted[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }
