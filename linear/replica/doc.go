// Package replica lets several nodes serve one hot key from memory, each without asking another
// (asymmetric replication; WriteGuards, section 6.5), as two machines without I/O: the [Primary],
// through which every write of the key goes, and the [Replica], one on each of the other nodes.
//
// What may be relied on: while [Serves] says so, an entry that a Replica keeps equals what the
// store would have answered at that instant, whatever is lost, repeated, delayed or overtaken
// between the members, and whichever of them dies. This holds if leases of groups are as package
// shard/lease promises, and if the primary guards and fences as package linear/clink does.
//
// What it costs: a write waits for every replica. A replica that is dead or cut off delays it
// until the group's generation is over: for the rest of that member's lease with the drift bound,
// and until the others have acknowledged the recall. The write is then refused, certainly not
// applied, and goes to the next owner. Reads wait for nobody.
//
// Every message names one generation, which belongs to one key and one group for ever. Links
// between the members need not keep the order of messages.
//
// # Rules of the primary
//
//	P1. A generation begins with nobody serving. The primary says Cacheable when a SetGuard over
//	the key, sent after the generation began, has returned. Why: a write of the previous
//	generation may still commit before the guard.
//
//	P2. A write is passed on to the store when every replica has said that it dropped its entry.
//	Why: a replica would serve the old value after the write was acknowledged.
//
//	P3. A write whose generation ends before that is refused and never passed on. Why: the next
//	generation has other members, which the write has not waited for.
//
//	P4. The primary says Finish when the store has answered the write yes or no; without an
//	answer, when a SetGuard over the key, sent after that, has returned. Why: a write without an
//	answer may commit after the replicas have filled again.
//
//	P5. A write has a number of its own in its generation and counts for no other. Why: an
//	acknowledgement of an earlier write would release a later one.
//
//	P6. A value that goes along with Finish was kept after the write was decided, and does not
//	expire. Why: an older value would be served; a TTL means nothing by another node's clock.
//
//	P7. The primary repeats, at every beat, what a replica has not confirmed. Why: messages may
//	be lost, and the write waits.
//
// # Rules of the replica
//
//	C1. A replica knows a generation from its own lease: a message that names another one is
//	neither obeyed nor acknowledged. Why: its acknowledgement would count in a group in which it
//	may still serve.
//
//	C2. Cacheable counts only while no invalidation has come. Why: a late Cacheable would reopen
//	a key that is being written.
//
//	C3. An invalidation drops the entry and marks the reads in flight before it is acknowledged;
//	one that is older than the last is not obeyed. Why: a read that was sent before would fill
//	after the acknowledgement.
//
//	C4. Finish counts only for the last invalidation that has come. Why: an earlier write's
//	Finish would reopen the key while a later one is under way.
//
//	C5. A read fills only if the key was cacheable when it was sent, no invalidation has come
//	since, and the generation is not over. Why: otherwise a write may commit after the read.
//
//	C6. An entry is served only while the lease of its generation holds and before it expires;
//	the end of the generation drops it. Why: the next generation does not wait for this member.
//
//	C7. The TTL of an entry counts from when its read was sent, shortened by the drift bound.
//	Why: rule R10 of linear/clink.
//
//	C8. A read that came after another one was sent shares its answer only if that answer may
//	fill. Why: rule R11 of linear/clink.
package replica
