// Package replica lets several nodes serve one hot key from memory, each without
// asking anybody (asymmetric replication; WriteGuards, section 6.5), as two machines
// without I/O: the [Primary], through which every write of the key goes, and the
// [Replica], one on each of the other nodes.
//
// What may be relied on: whenever a runtime serves an entry that a Replica has kept,
// while [Serves] says so, the entry equals what the store would have answered at that
// instant, whatever is lost, repeated, delayed or overtaken between the members, and
// whoever of them dies. This holds provided that leases of groups are as package
// shard/lease promises, and that the primary guards and fences as package
// linear/clink does.
//
// What it costs: a write waits for every replica. A replica that is dead or cut off
// stands in its way until the group's generation is over: for the rest of the silent
// member's lease with the drift bound, and until the others have acknowledged the
// recall. The write is then refused, certainly not applied, and goes to whoever owns
// the key next. Reads are never in anybody's way.
//
// Everything is said of one generation, which belongs to one key and one group for
// ever. Links between the members need keep no order. The primary's rules:
//
//	P1 A generation begins with nobody serving. The primary says cacheable when a
//	   SetGuard over the key, sent after the generation began, has returned.
//	P2 Before a write is passed on to the store, every replica has said that it
//	   dropped what it had.
//	P3 A write whose generation ends before that is refused, and never passed on.
//	P4 The primary says finish when the store has answered the write yes or no. If
//	   it has not answered, when a SetGuard over the key, sent after that, has
//	   returned.
//	P5 A write has a number of its own in its generation, and counts for nothing in
//	   another.
//	P6 A value sent along with finish was kept after the write was settled, and does
//	   not expire.
//	P7 What a replica has not confirmed is said again at every beat.
//
// The replica's rules:
//
//	C1 It knows a generation from its own lease: what names another is not obeyed,
//	   and not acknowledged.
//	C2 Cacheable counts only while no invalidation has come.
//	C3 An invalidation drops the entry and marks the reads in flight before it is
//	   acknowledged. One that is older than the last is not obeyed.
//	C4 Finish counts only for the last invalidation that has come.
//	C5 A read fills only if the key was cacheable when it was sent, no invalidation
//	   came since, and the generation is not over.
//	C6 An entry is served only while the lease of its generation holds, and before
//	   it expires. The end of the generation drops it.
//	C7 The life of an expiring entry counts from when its read was sent, shortened
//	   by the drift bound.
//	C8 A read that came after another was sent shares its answer only if that answer
//	   may fill.
package replica
