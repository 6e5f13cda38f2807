// Package redis has the data commands of Redis over a small key-value interface: what a command
// answers, and what it changes, given the state of its keys.
//
// What may be relied on: a command writes one reply, in the words of Redis, and changes keys only
// through its [KV]. It starts nothing, waits for nothing and keeps nothing between calls. The KV
// decides whether several changes are atomic and which of them are allowed, so the same command
// runs alone, in a transaction, or for another node.
package redis

import (
	"time"

	"github.com/freshet-cache/freshet/linear"
	"github.com/freshet-cache/freshet/resp"
)

// KV is what a command sees: the state of its keys, and what it changes. It is used by one
// command at a time.
type KV interface {
	// Get is the state of a key; false means that the command must stop, because its answer is an
	// error already.
	Get(key []byte) (linear.Entry[string], bool)
	// Set writes a key; ttl 0 never expires, linear.KeepTTL keeps the deadline.
	Set(key []byte, value string, ttl time.Duration)
	// Delete removes a key.
	Delete(key []byte)
	// Limit is the longest value, in bytes: a command does not make a longer one.
	Limit() int
}

// Command is one data command. args[0] is its name as it was given. It writes one reply, whatever
// happens.
type Command func(x KV, args [][]byte, w *resp.Writer)
