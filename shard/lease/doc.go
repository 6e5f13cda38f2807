// Package lease decides who owns which keys, so that at no instant two nodes hold a valid lease
// for the same key, whatever is delayed, lost, repeated, paused or restarted, as long as clocks
// run at most the drift bound fast or slow. It is two machines without I/O: the [Assigner], of
// which one leads at a time, and the [Node], one for each process that keeps entries.
//
// The idea is the auto-sharder of WriteGuards, section 2.3: contiguous key ranges (slices) are
// leased to nodes. A lease is known by its generation, which belongs to one range and one owner
// for ever. Splitting and joining slices of one owner makes new generations and takes nothing
// away, so keys stay continuously owned.
//
// A hot key may be leased to a group: a primary, which owns the key, and replicas, which may read
// it while the group lasts. Such a key is a slice of its own.
//
// # Rules of the node
//
//	N1. A lease counts from the moment its renewal was sent. Why: the assigner counts from when
//	the renewal arrived; counted from the answer, the lease would end later here than there.
//
//	N2. The node shortens a lease by the drift bound of its clock. Why: a slow clock would hold
//	the lease after the assigner has granted the slice to another node.
//
//	N3. For every key the node remembers the highest generation that it gave up, and ignores
//	later answers for that generation or an older one. Why: an answer that was delayed would
//	bring a lease back that another node has by now.
//
//	N4. The node revokes its handles before it acknowledges a recall. Why: after the
//	acknowledgement the slice may be granted, while this node still serves from memory.
//
//	N5. A lease belongs to an incarnation; answers to another incarnation are ignored. Why: a
//	restarted node knows nothing of what its predecessor had written or given up.
//
//	N6. A lease that lapsed is given up; a later answer does not revive it. Why: entries kept
//	under it were unguarded in between.
//
//	N7. A node that cannot be a member of a group refuses such a lease. Why: it would write
//	without waiting for the replicas.
//
//	N8. A lease is over when every key of it is held under newer leases. Why: handles would grow
//	with every cut and join.
//
//	N9. A node that has released what it held takes no lease ever again, not even one that is
//	under way. Why: while all processes stop, the assigner grants what one node released to
//	another that has released as well; no key of it can be written until the lease ends.
//
// # Rules of the assigner
//
//	A1. The assigner records, for each slice, when the last lease that it granted is over by its
//	own clock plus the drift bound, before it answers. Why: it would grant the slice while the
//	answer, and with it a longer lease, is on its way.
//
//	A2. A slice changes hands only after its owner acknowledged the recall or its last lease is
//	over. A slice that was recalled is not renewed. Why: two nodes would hold it.
//
//	A3. A new generation is saved with the coordinator before it is granted. Why: the next leader
//	would give the same generation to another node.
//
//	A4. The assigner grants and renews only while its leadership holds by the clock, checked after
//	the request arrived. Why: a leader that was paused would grant beside its successor.
//
//	A5. A new leader counts every slice that it finds as leased for one longest lease from its
//	election, and for the coordinator's slack, by which leaders may overlap. Why: it cannot know
//	what its predecessor granted last.
//
//	A6. If the slice has replicas, A2 holds for every member of the group: the next generation is
//	granted when each of them has acknowledged or its last lease is over. Why: a replica would
//	serve what the next owner overwrites.
//
//	A7. A generation has the same members for ever. When a member gives it up, is silent, leaves,
//	or is to be joined by another, all members are asked for it back. Why: members that disagree
//	about the group would acknowledge writes that one of them does not hear of.
//
//	A8. A generation made by a cut or a join is granted before it is recalled. Why: an owner that
//	has not heard of it would give up all of the generation that it was made of.
//
//	A9. The saved state has at most MaxSlices slices and StateBytes bytes; what would exceed that
//	is not done. Why: a state that the coordinator refuses stops every later change of hands.
//
//	A10. A save without an answer is followed by a save of the newest state. Why: repeating the
//	same state delays every later one.
//
//	A11. What a node that is done (N9) holds or was to get is free at once, and a late renewal of
//	it is not answered. Why: the slices would take no writes until their leases end.
package lease

// Gen is the generation of a lease: larger for every later lease of a key, and
// never used for another range, owner or group.
type Gen uint64
