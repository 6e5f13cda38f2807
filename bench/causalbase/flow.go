package causalbase

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strconv"
)

// Flow is a workflow of one client: functions that run one after the other, or beside
// each other, each at some server. It is not safe for concurrent use; fork it.
type Flow interface {
	// Read reads keys as one function does, whose keys are known when it begins. What
	// does not exist is "".
	Read(ctx context.Context, keys []string) ([]string, error)
	// Write sets a key. With transactions it happens at End.
	Write(ctx context.Context, key, value string) error
	// Move goes to the function that runs at another server.
	Move(to int) error
	// Fork begins a function beside this one, at the same place; Join takes it back.
	Fork() Flow
	Join(Flow)
	// End ends the workflow.
	End(ctx context.Context) error
}

// System is a cache of several servers over a store, in one process.
type System interface {
	// Begin begins a workflow at a server, of which places are the servers of its
	// functions and keys what it will read, for systems that have to know.
	Begin(ctx context.Context, places []int, keys []string) (Flow, error)
	// Act says what of a workflow is read at once, and written at once.
	Act() Act
	// Settle waits until everything that was written can be seen everywhere.
	Settle(ctx context.Context) error
	// Metadata is how many bytes the servers hold beside keys and values, each server's
	// counted.
	Metadata() int
	Close(ctx context.Context) error
}

// Act is what a system promises to be one.
type Act uint8

// What one act is: each read, each function, the workflow.
const (
	EachRead Act = iota
	EachFunction
	TheWorkflow
)

// ErrAgain means that the workflow has come to nothing and shall begin again.
var ErrAgain = errors.New("causalbase: the workflow is undone; begin it again")

// Initial is a value that was there before everything; Fresh is the n-th that is
// written, with what it says.
func Initial(text string) string { return "-" + text }

// Fresh is the n-th value that is written, 8 bytes, and then what it says.
func Fresh(n int64, text string) string {
	b := strconv.AppendInt(make([]byte, 0, 8+len(text)), 1e7+n, 10)
	return string(append(b, text...))
}

// Text is what a value says besides its number.
func Text(value string) string {
	switch {
	case value == "":
		return ""
	case value[0] == '-':
		return value[1:]
	}
	return value[min(8, len(value)):]
}

// name is the name of the write that left a value, as package check knows it: none of
// what was there before.
func name(value string) string {
	if value == "" || value[0] == '-' {
		return ""
	}
	return value[:min(8, len(value))]
}

func sorted[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }
