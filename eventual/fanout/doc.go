// Package fanout keeps the caches of several nodes in step over a network that may lose, repeat,
// delay and reorder every message, as one machine without I/O per node: the [Node].
//
// What may be relied on: no answer from memory is older than [Options.Bound], by the reader's own
// clock, at any time and whatever the network does. A session reads its own writes and never goes
// back, key by key, at whichever nodes it asks. When faults are over, every node vouches for its
// entries again within a few heartbeats, or, after a crash, when the registry has struck the dead
// incarnation out.
//
// What it costs: one small message per node and heartbeat interval, and two per mutation. A node
// that is not in step with all others loads a key again once per Young. A crash puts all nodes into
// that state until the crashed node's writes have certainly landed.
//
// # Terms
//
// An incarnation is one run of a node; its number is never used again. A notice is a numbered
// message of an incarnation: Dirty announces a mutation of some names, Inv closes it. A name is a
// key, or a tag that values of keys depend on. A name is marked while a mutation of it is announced
// and not closed. A node echoes the newest heartbeat that it has heard of another. The registry
// knows the incarnations that may write. An entry is young for t (Options.Young) from the start of
// its load. S is Options.Stale, L is Options.Lease, W is Options.Land. Applied is the last number of
// an incarnation's notices with no gap below it (package feed). In the schedules below, a, b and c
// are nodes and x is a key.
//
// # Speaking
//
//	P1. Every notice takes the next number of its incarnation's feed, and the last ones are kept.
//	Why: the notice that marks x is lost on its way to a. Without a number a never finds out, and
//	serves the old x for as long as it hears b's heartbeats.
//
//	P2. A heartbeat says its number, the number of the sender's latest notice, and an echo for each
//	incarnation that the sender knows. Why: b's last notice is lost and b publishes nothing more.
//	Without the number in the heartbeat, a learns of the gap at b's next mutation, hours later.
//
//	P3. A mutation is announced before its write is sent, and closed when the write has landed or
//	never will. A write whose outcome is not known is closed after W. Why: b deletes x at the others
//	only after the write and crashes in between, so they keep the old x. Or b closes the mutation
//	when it has no answer, a loads the old x, and then the write lands.
//
//	P4. A new incarnation registers, says hello, and writes when every incarnation that it knows
//	of, or that the registry lists, has echoed it. Why: c begins and writes x at once. a has never
//	heard of c, is in step with all it knows, and serves the old x for as long as c's first
//	heartbeat is delayed.
//
//	P5. A write is sent only while the lease at the registry is in force, unless the caller says
//	Proceed and gives up the bound. Why: b is cut off, the registry strikes it out, the others drop
//	everything and are in step without b. A write that b sends now is announced to nobody.
//
// # Hearing
//
//	Q1. A notice has its effect at once, in whatever order it comes: Inv drops the entries that its
//	names belong to, overtakes their loads and closes its mutation; Dirty marks, unless its mutation
//	is closed. A repetition has no effect. Why: Dirty arrives after its Inv, and x stays marked for
//	ever.
//
//	Q2. What a node knows of b is as old as its own heartbeat that b's newest heartbeat echoes,
//	among those of b's heartbeats whose notices have all been applied. Why: a broker that delays
//	everything by an hour delivers a heartbeat of b each 250 ms, and by their arrival a is in step
//	with b.
//
//	Q3. A node is in step until S after the oldest of what it knows of each registered incarnation,
//	and after its own newest heartbeat that came back. Why: a is cut off from the bus with an empty
//	roster, is in step with all it knows, and vouches for everything while b writes.
//
//	Q4. A gap drops nothing, but nothing newer counts (Q2) until the missing notices have come.
//	Only if they are no longer there a snapshot takes their place: all entries go, all loads are
//	overtaken, and what the snapshot lists is marked, beside marks above its number. Why: a load of x
//	is under way when the snapshot is adopted; the lost notices included Dirty and Inv of x, and the
//	load returns the value before.
//
//	Q5. A node vouches only while the registry certainly has it. Why: a loses the registry but not
//	the bus, and is struck out. c begins; the registry does not list a, so c does not wait for a's
//	echo (P4). c's hello to a is late, a is in step with all it knows, and c writes x.
//
//	Q6. The first heartbeat that a node hears of b, if it is a hello that names the node, counts as
//	if it had just been sent. Why: it is safe, because b writes nothing before it has this node's
//	echo. Without it every start of a node ends what all other nodes vouch for, for a round trip.
//
// # Serving
//
//	R1. An entry is served if it is young, or if the node is in step and nothing of the entry is
//	marked. Why: b has announced a mutation of x and crashes before it closes it. The write lands
//	meanwhile, and a serves the old x as long as it is in step with the others.
//
// # Filling
//
//	R2. A load's value is kept if neither its key nor any of its tags was invalidated since the
//	load began. Why: a loads x, b's write of tag t lands after the store has read, Inv of t finds
//	nothing to drop, and then the load returns a value that depends on t.
//
//	R3. A caller joins only the newest load of its key, and only if that was not overtaken and is
//	young. Only the newest load of a key is kept. Why: a caller that begins after Inv joins the load
//	from before it, and is answered with a value older than the bound when the store is slow.
//
//	R4. A marked key may be loaded and kept, as long as it is young. Why: it is allowed because a
//	crashed writer leaves marks for L and W: without it every read of those keys goes to the store.
//	An entry that is kept without its mark is vouched for while the write is about to land.
//
//	R5. A write's value is kept if no other notice has named its key or tags since its own Dirty,
//	and nothing else marks them. Why: a and b write x, b's write lands last, and a keeps its own.
//
//	R6. A page of a prefetch is one load of many keys with one count. A key of it is kept if it was
//	not invalidated since the page began and no load of it ended meanwhile. Why: a page is read, then
//	x is written and loaded, and the page arrives with the x from before.
//
//	R7. An entry that replaces another one takes its place in the index of names. Why: x depended
//	on t, now depends on u, and only t is indexed: Inv of u leaves x in place.
//
// # The shared tier
//
// A tier is a server that all nodes may fill and read, between memory and the store. T1 to T3 and T7
// are the server's own (package tier). A node names a server in its heartbeats while all its
// mutations are marked there.
//
//	T4. A node uses the tier only while it is in step and all registered incarnations, itself
//	included, name the same server. Why: b marks x at a server that fails over, and dies after it has
//	sent the write. The new server knows of no mark; a fills it with the old x, and the write lands.
//
//	T5. A mutation is marked at the server before it is announced, and its write is sent within S of
//	that. A node that cannot mark names no server, and writes once all have echoed that or S has
//	passed, and the registry has it. It removes from the server what it has written unmarked before
//	it names it again. Why: b cannot reach the tier and writes x; a is in step, finds the old x in
//	the tier, and keeps it after Inv. If b dies, nobody is left who would remove the x: the registry
//	counts such deaths, and the count is part of the name of every key.
//
//	T6. A value of the tier passes R2, counted from before the tier was asked, and is never young.
//	A session's read goes past the tier. Why: the tier's answer is late, Inv of x is applied, and
//	then the old x arrives. Its age is not known, so that it must be vouched for.
//
// # Incarnations that end
//
//	L1. An incarnation leaves when none of its mutations is under way, and says the number of its
//	last notice. A node that has applied fewer drops everything. Why: the Inv of b's last mutation
//	is lost, b leaves, and a is in step with all that remain while it keeps the old x.
//
//	L2. An incarnation that ends otherwise stays registered for L and W. Then the others strike it
//	out: they drop everything and overtake all loads. Why: b's last Dirty is lost, b crashes after it
//	has sent the write, a stops waiting for b and vouches for x, and the write lands.
//
//	L3. Without a registry a node strikes out b after S and W in which it heard itself and neither
//	it nor anybody it hears has heard of b. Why: a does not hear b for a while because of a fault
//	between the two, strikes b out, and misses what b goes on to write. This rule is not sound if b
//	can be heard by nobody for so long and yet reaches the store.
//
//	L4. A node that has no answer of the registry strikes nobody out. Why: the registry is away for
//	a minute, every node strikes out all others, and each is in step with itself alone.
//
//	L5. If the store sets no limit to how long a write takes, what a dead incarnation was writing
//	stays marked for Linger. Why: b's write of x lands after W, when b was struck out. Entries of x
//	that are only young are old for no longer than t.
//
//	L6. A node vouches for nothing before the registry has listed who is there, and it has adopted
//	each of them. Why: c begins, loads x, hears only a, and vouches for x while b has announced a
//	mutation of x before c began.
//
// # Sessions
//
// A token has at most three moments: an incarnation, its last heartbeat before the session's read
// or write there, and whether what the session saw is elsewhere than in that incarnation's memory.
//
//	S1. A moment of the node itself, not elsewhere, holds for what is in its memory now. Why: it is
//	safe, because an entry that takes the place of another one comes from a later load (R2, R3). With
//	no such rule a session that stays at one node reads from the store for a round trip after each
//	write.
//
//	S2. For every other moment, the entry's load began after a later heartbeat of that incarnation
//	was heard, or every registered incarnation has echoed a later heartbeat of it within what was
//	applied; and nothing of the entry is marked. Why: c's write of x lands. A session reads it at b
//	from the store and goes to a, where c's Dirty has not arrived: a serves the old x. The numbers of
//	notices that b has applied say nothing about it, because b has not heard c's Dirty either.
//
//	S3. An answer that was not kept is elsewhere. Why: load 1 of x at a is overtaken by a slot it
//	shares with y, load 2 begins and the store reads it, c's write lands, the store reads load 1, and
//	it answers the session with the new x. Load 2 is kept with the old one.
//
//	S4. A load that is kept replaces the entry. If it returns the value that the entry has, the
//	session's moment is the entry's. Why: a read past the entry that leaves it in place shows the
//	session the older value at its next read. And a session that roams over equal entries, with a new
//	moment at each read, never reads from memory.
//
//	S5. A moment of an incarnation that the node does not know, or of a fourth one, becomes one of
//	the node itself, elsewhere. Why: if it became the node's own, the node would serve the session an
//	entry that is older than what it saw at the incarnation that is gone.
//
//	S6. A moment that a node knows to be over for longer than the bound counts no more. Why: it is
//	safe, because no answer from memory is older than the bound. Without it a session that reads once
//	a day reads past memory at each node that has restarted since.
//
//	S7. A session joins a load if the load began after its moments were over, or, for the node's
//	own, if nothing was invalidated since. Why: a load of x is under way, the session writes tag t
//	at the node, and reads x. The load's tags are not known yet, and it returns the x from before.
package fanout
