// Package clink keeps entries in memory that equal the latest committed state of their keys
// (CLINK; WriteGuards, section 6), as a machine without I/O: the [Pod].
//
// What may be relied on: while [Serves] says so, an entry that a runtime serves equals what the
// store would have answered at that instant. A write is applied exactly once if it was answered
// OK, never if it was answered NotOwner, NotSent or Refused, and at most once if it was answered
// Unknown. This holds however long messages are delayed and whatever is lost, if leases are
// exclusive (package shard/lease), if the store fences (package store), and if no layer below
// sends a SetGuard or a write twice.
//
// # Terms
//
// A slice is a range of keys that one node owns under a lease; an ownership period lasts from the
// lease to its end. A guard is a token that the store keeps for a range of keys; a write commits
// only if the guards that it names are those in the store. In the schedules below A owned the
// slice before B.
//
// # Guards
//
//	R1. A node that takes a slice installs a fresh guard over every piece of it before it writes
//	or fills there. Why: a write that A sent is still on its way. Without a new guard it commits
//	after B has read the row into memory, and B serves the old value.
//
//	R2. A guard counts only if the lease held from before its SetGuard was sent until after it
//	returned. Why: the lease ends while the SetGuard is under way, C takes the slice and installs
//	its guard, and B's guard replaces C's without C noticing.
//
//	R3. At most one SetGuard is in flight for a key; a guard over a range replaces the guards of
//	single keys inside it. Why: two SetGuards that overtake each other leave a guard in the store
//	that the node does not expect, and every later write is refused.
//
//	R4. Every SetGuard uses a token of its own, retries included. Why: with a token used again,
//	a write that was sent under the first attempt commits after the second.
//
// # Fills
//
//	R5. A read fills memory only if a guard was in force when the read was sent. Why: before the
//	guard, a write of the previous owner may commit right after the read.
//
//	R6. A read fills only if no write to the key was in flight since it was sent. Why: the read
//	sees the row from before the write, arrives after the write's answer, and covers it.
//
//	R7. A read fills only if the lease still holds. Why: the next owner may have written.
//
//	R8. A write drops the entry and marks the reads in flight before it is sent. Why: the entry
//	would be served after the store has committed the write.
//
//	R9. An entry is served only while its lease holds and before it expires. Why: the next owner
//	writes without asking this node.
//
//	R10. The TTL of an entry counts from when its read was sent, shortened by the drift bound.
//	Why: the store's clock decides when a row ends; counted from the answer, the entry outlives
//	its row by the time that the answer took.
//
// # Reads
//
//	R11. A read that came after another one was sent shares its answer only if that answer may
//	fill. Why: a write between the two reads is acknowledged before the second one came, and the
//	first one's answer may be older.
//
// # Writes
//
//	R12. Writes to a key are sent one at a time, in the order in which they came. Why: two writes
//	under way can commit in either order, and the node cannot tell which one is in the store.
//
//	R13. A write without an answer is fenced by a SetGuard for its key, sent after the answer
//	failed to come; only then does the node read the row to find out. Why: read before the fence,
//	the row may not have the write yet, and the write commits after the node has said no.
//
//	R14. The write's id in the row proves success. Another id proves failure only if the lease
//	held from the first attempt until the row was read. Why: a later owner may have overwritten
//	the row with a write of its own.
//
//	R15. Nothing continues in a later ownership period: a write that was sent and is not resolved
//	is Unknown, a write that was never sent is NotOwner. Why: sent again under a later lease, a
//	write is applied twice around another owner's.
//
//	R16. A write whose caller has gone is fenced like any other before a later write to its key is
//	sent, and it is not sent again. Why: it would overtake the later write, or be applied after
//	its caller was told Unknown and has repeated it.
//
//	R17. A conditional update is decided at the head of its queue, from a valid entry or from a
//	row read there, and the value that is sent is absolute. If the row may expire, the store
//	checks its version. Why: decided earlier, it would miss the writes before it; the row may
//	expire between the decision and the commit.
//
//	R18. A write with a TTL that is fenced and absent, when the TTL may have passed, is Unknown.
//	Why: the row may have been written and have expired.
//
//	R20. A cross-owner transaction's write of a key takes its turn alone; no entry is kept after
//	it; only its id proves it; and it is not sent again. Why: the node does not know what the
//	caller's transaction leaves in the row.
//
// # Hand-over
//
//	R19. What the owner of the period just before sends of its memory is kept once the guard is
//	in force, unless a write to the key was sent meanwhile. The previous owner sends neither what
//	was in flight nor what may expire. Why: before the guard, a write of the previous owner may
//	still commit; and a TTL counted by its clock means nothing here.
//
//	R21. A period continues through every lease of the key that began while the previous one
//	held: with its entries, with what may still be transferred, and with the record of what was
//	written. Why: a slice that is cut or joined changes its lease although its owner stays; an
//	entry transferred under the new lease would cover a write that was sent under the old one.
package clink
