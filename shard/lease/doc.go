// Package lease decides who owns which keys, so that at no instant do two nodes
// hold a valid lease for the same key, whatever is delayed, lost, repeated,
// paused or restarted, as long as clocks run at most the drift bound fast or
// slow. It is two machines without I/O: the [Assigner], of which one leads at a
// time, and the [Node], one per process that holds copies.
//
// The idea is the auto-sharder of WriteGuards, section 2.3: contiguous key
// ranges (slices) are leased to nodes; a lease is known by its generation,
// which belongs to one range and one owner for ever. Splitting and merging
// slices of one owner makes new generations and takes nothing away, so keys
// stay continuously owned.
//
// A hot key may be leased to a group: a primary, which owns it, and replicas,
// which may read it while the group lasts. It is in a slice of its own then.
//
// The node's rules:
//
//	N1 A lease is counted from the moment its renewal was sent.
//	N2 The node shortens it by the drift bound of its own clock.
//	N3 For every key the node remembers the highest generation it gave up, and
//	   ignores every later answer for that generation or an older one.
//	N4 The node revokes its handles before it acknowledges a recall.
//	N5 A lease belongs to an incarnation: answers to another one are ignored.
//	N6 A lease that lapsed is given up: it is not revived by a later answer.
//	N7 A node that cannot be a member of a group refuses such a lease.
//	N8 A lease of which every key is held under newer ones is over.
//	N9 A node that has released what it held takes no lease ever again, also none
//	   that is on its way.
//
// The assigner's rules:
//
//	A1 It writes down, for each slice, when the last lease it granted is over by
//	   its own clock plus the drift bound, before it answers.
//	A2 A slice changes hands only after its owner acknowledged the recall or
//	   its last lease is over; from the recall on it is not renewed.
//	A6 If the slice has replicas, that holds for every member of the group: the
//	   next generation is granted to nobody until each has acknowledged or its
//	   last lease is over.
//	A7 A generation has the same members for ever. When one of them gives it up,
//	   is silent, leaves, or is to be joined by another, all are asked for it back.
//	A3 A new generation is saved with the coordinator before it is granted.
//	A4 It grants and renews only while its leadership holds by the clock, checked
//	   after the request arrived.
//	A5 A new leader cannot know what its predecessor granted: it counts every
//	   slice it finds as leased for one full longest lease from its election, and
//	   for the slack of the coordinator, by which leaders may overlap, besides.
//	A9 The state it saves has at most MaxSlices slices and StateBytes bytes: what
//	   would make it larger is not done. A state that the coordinator can never store
//	   would stop every later change of hands.
//	A10 A save without an answer is followed by a save of the newest state.
//	A11 What a node that is done holds or was to get is free at once (N9), and a late
//	    renewal of it is not answered.
//	A8 A generation made by a cut or a join is granted before it is asked back: an
//	   owner that had not heard of it would give up all of the one it was made of.
package lease

// Tick is a reading of a monotonic clock, or a span of one, in nanoseconds. A
// Tick means something only to the clock it was read from.
type Tick int64

// Gen is the generation of a lease: larger for every later lease of a key, and
// never used for another range, owner or group.
type Gen uint64
