// Package clink keeps entries that equal the latest committed state of their
// keys (CLINK; WriteGuards, section 6), as a machine without I/O: the [Pod].
//
// What may be relied on: whenever a runtime that carries out the outputs serves
// an entry while [Serves] says so, the entry equals what the store would have
// answered at that instant; every write is applied exactly once if it was
// answered OK, never if it was answered NotOwner, NotSent or Refused, and at
// most once if it was answered Unknown. This holds however long anything is
// delayed and whatever is lost, provided that leases are exclusive (package
// shard/lease), that the store fences (package store), and that nobody below
// sends a SetGuard or a write twice.
//
// The rules. Guards:
//
//	R1  Taking a slice, a node installs a fresh guard over every piece of it
//	    before it writes or fills there.
//	R2  A guard counts only if the lease held from before its SetGuard was sent
//	    until after it returned.
//	R3  At most one SetGuard is in flight for a key; a guard over a range
//	    replaces the single-key guards inside it.
//	R4  Every SetGuard uses a token of its own, retries included.
//
// Fills:
//
//	R5  A read fills only if a guard was in force when it was sent,
//	R6  only if no write to the key was in flight from then on,
//	R7  and only if the lease still holds.
//	R8  A write drops the entry, and marks the reads in flight, before it is sent.
//	R9  An entry is served only while its lease holds, and before it expires.
//	R10 The life of an expiring entry counts from when its read was sent,
//	    shortened by the drift bound: the store decides when it ends.
//
// Reads:
//
//	R11 A read that came after another was sent shares its answer only if that
//	    answer may fill.
//
// Writes:
//
//	R12 Writes to a key leave one at a time, in the order they came.
//	R13 A write of unknown outcome is fenced by a SetGuard that was issued after
//	    the outcome became unknown, for the key alone, and only then looked for.
//	R14 Finding its id proves success. Not finding it proves failure only if the
//	    lease held from the first attempt until the row was read.
//	R15 Nothing continues in a later ownership period. What was sent and is not
//	    resolved is Unknown, what was never sent or has failed is NotOwner.
//	R16 A write whose caller has gone is fenced like any other, before a later
//	    write to the key is sent, and is not sent again.
//	R17 A conditional update is decided at the head of its queue, from a valid
//	    entry or a row read there; the value sent is absolute. If the row may
//	    expire, the store checks its version.
//	R18 A write with a life, fenced and found absent when that life may be over,
//	    is Unknown: it may have been and gone.
//
//	R20 A loan is a write by a transaction of its caller's. What it leaves is not
//	    known: it takes its turn alone, no entry is kept after it, only its id
//	    proves it, and it is not sent again.
//
// Inheritance:
//
//	R19 What the owner of the period just before offers of its memory is kept
//	    once the guard stands, unless a write to the key was sent meanwhile. It
//	    does not offer what was in flight, nor what may expire.
//	R21 A period goes on through every lease of the key that began while the
//	    one before it held: with what is kept, what may be inherited, and what
//	    was written since.
package clink
