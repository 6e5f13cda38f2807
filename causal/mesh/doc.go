// Package mesh keeps caches causally consistent for sessions that move between servers
// (CausalMesh), as machines without I/O: the [Server], and the [Session] that travels with a
// workflow.
//
// What may be relied on: a session never reads a value older than one it has read or written,
// and never an effect without its cause, whichever server it asks next, across forks and joins.
// Servers that have received the same writes agree with each other and with the store on every
// key. No operation waits for another server, and no operation is undone. This holds however
// long messages are delayed, if a connection between neighbours keeps its order or reports that
// it broke, and if the store commits a Persist as its comment says.
//
// # Terms
//
// A write is received (in R) when it has arrived at a server, and visible (in F) when the server
// may show it to readers. A write that is visible at one server is received at all servers (M8),
// so a server can show the causes of every value without asking another server. A write is
// stable when every server is known to have received it. An incarnation is one run of a server;
// a departed incarnation has left the ring, and is retired when all servers have made all of its
// writes visible. The head of a chain is the server that put a write onto the ring. In the
// schedules below servers are 1, 2, 3 in the order of the ring, and c1 and c2 are clients that
// move between servers.
//
// # Writes
//
//	M1. The time of a write exceeds every time that its server, its session and its causes have
//	seen, and the clock. Why: c1 reads x at server 1, where the time is 40, and overwrites x at
//	server 2, whose clock and counter say 12. The overwrite gets 13 and loses to the value that
//	it replaces, at every server and for good.
//
//	M2. A write is in the store before any other server hears of it, and its number is never
//	skipped: the server repeats a Persist without an answer, and a write that the store refuses
//	becomes an empty one. Why: c1 writes x, server 1 forwards it, c2 reads x at 3 and writes y;
//	server 1 dies before the store has x, and the store has an effect without its cause. A
//	skipped number looks like a write that has not arrived, so nothing after it becomes stable.
//
//	M3. A server counts its own write as received when it forwards the write, not when it makes
//	it. Why: server 1 makes x and waits for the store. Server 2 connects and hears that server 1
//	has nothing that 2 lacks. The store answers, x goes to later connections only, and server 2
//	counts as having x.
//
//	M4. Writes that a session carries are forwarded before the write that depends on them; those
//	that it carries whole go before those that it carries by name. Why: c1 writes x at 1 and y
//	at 2. y goes 2, 3, 1 and becomes visible at 1, where its chain ends, while x is slow between
//	1 and 2. c2 reads y at 1, moves to 3, and reads the old x.
//
//	M5. Carried causes are named one by one, apart from the causes that were visible. Why: c1
//	carries write 7 of server 1, and the server records "all of 1 up to 7" as a cause. Writes 5
//	and 6 belong to other clients and are under way; a server that is asked for write 7 must
//	show them, and has not received them.
//
// # The ring
//
//	M6. Each server sends writes to its successor over one connection that keeps their order, in
//	the order of its log. A write is forwarded until it reaches a server that has it already. If
//	the head of the chain made the write, that server forwards the write's name (Named), because
//	it has forwarded the write itself before. Why: if y overtook x, on which it depends, the
//	last server would make y visible while another server lacks x. If the name stopped as well,
//	no server would learn before the next stability round that all have received the write.
//
//	M7. The predecessor of the head, where the chain ends, makes the write and its causes
//	visible. Why: it is the first server that knows that all servers have received the write.
//
//	M8. A server shows nothing that some server has not received. Why: c2 sees x at 1 and moves
//	to 2, which has never heard of x; server 2 would have to wait for another server or answer
//	with an older value.
//
// # Keys
//
//	M9. Of two writes of a key the one with the larger stamp wins, by the stamps that they were
//	made with. Why: servers that merged clocks element by element would keep different values
//	when they receive the same three writes in different orders (story five-servers).
//
//	M10. A key that is not in memory takes a value only if its stamp exceeds every stamp that
//	the server has forgotten; otherwise the next miss reads the store. Why: x is evicted with
//	stamp 9. A late write with stamp 7 arrives, nothing is there to compare it with, and the old
//	value is back.
//
//	M11. A key that a reader waits for is not evicted and keeps what becomes visible of it; the
//	store's answer competes with that by stamp. Why: server 2 asks the store for x and the
//	answer, stamp 5, is slow. Meanwhile stamp 8 becomes visible, is read, and is evicted. The
//	answer arrives, and stamp 5 is in memory.
//
//	M12. A row that is newer than what is visible is not kept in memory. The reader's session
//	carries the row's write and its causes that are not visible, and the server puts them onto
//	the ring. Why: c1 misses x at 2 and reads stamp 8 from the store, which no server shows yet.
//	It moves to 3 and reads stamp 5.
//
// # Stability
//
//	M13. The journal keeps a write until the incarnation that made it knows that every server
//	has received it. A write that is neither in the journal nor visible has therefore been
//	received here. Why: x is overwritten in the store before any server has shown it, and its
//	first value is a cause of y. A server that needs it would find neither a row nor an entry.
//
//	M14. A stability round follows everything that the first server had received, around the
//	ring. When it is back, all of that is stable: it becomes visible, and leaves the log. Why:
//	adding up what servers report at different instants would show x although a cause of x was
//	lost with a connection.
//
//	M15. A tombstone stays until every write with a smaller time is visible everywhere and none
//	can come any more. An absent row has a time, up to which tombstones were collected; it beats
//	older writes that a waiting reader has kept. Why: x is deleted with stamp 9, the tombstone
//	is collected, a late write with stamp 7 arrives, and x is back. Without the time of absence:
//	a reader waits for x, the deletion becomes visible and is collected meanwhile, the store
//	answers "nothing", and stamp 7, kept for the reader, is served (story collected-while-loading).
//
//	M16. A server bounds its own writes that are not stable, in number and in bytes, and with
//	them every log; beyond the bound it answers Busy. It bounds requests to the store, keys in
//	memory and their versions as well. Why: a slow server would let every log grow until memory
//	ends.
//
//	M17. When a connection opens, the server sends again what the other side lacks, in the order
//	of the log and without a head; only a stability round makes it visible. Why: with a head,
//	the end of the chain would show writes that a server between may lack, because nobody knows
//	how far the first attempt came.
//
//	M18. A session stops carrying a write that has become visible, before it lays what it
//	carries over what it reads; what it knows by name only, it asks for first. Why: c1 carries
//	its own x. Another client has seen x and deleted it, and the deletion is visible. c1 reads,
//	and its own old x covers the deletion.
//
//	M19. The first server puts external writes that have a dot onto the ring, in the order of
//	the journal. The store draws their number when the previous one is committed. Tombstones of
//	external writes stay until the journal was truncated past them. Why: if number 8 arrives and
//	number 7 does not, nothing after 7 becomes stable. If a tombstone is collected that no
//	server has heard of, a reader misses x, finds nothing, carries nothing, moves, and reads the
//	old x (found by simulation, seeds 758 and 6726).
//
//	M20. A session brings no time far above the clock's, and carries no write with a number that
//	its server has not given. Tokens are authenticated; their content is checked all the same.
//	Why: after a time near the end of the number range, every later write either does not fit
//	into the store or loses. A forged write of server 1 with 1's next number would pass for the
//	one that 1 makes next.
//
//	M21. A read past the servers, of rows of one instant, carries what it finds with its causes.
//	A write that the journal does not give back has been received everywhere; its causes are
//	unknown, so the session carries it by name, and the server that recalls it adds its causes.
//	Why: x, then y, are stable, and server 1 has truncated its journal; server 2 has received
//	both and has not heard that they are stable. Server 4, which was left out, reads y from the
//	rows for c2, which then depends on y alone. At server 2, c2 reads y and the x from before.
//
// # Views
//
//	V1. A message counts only in the view in which it was sent. A server that enters a view
//	resyncs with its predecessor (M17). Why: in the ring 1, 2, 3 the write of 1 ends at 3. The
//	ring becomes 1, 2, 4, 3; the message arrives at 3, which shows what 4 has not received.
//
//	V2. A server that joins begins with a copy of its predecessor's state, taken in the view in
//	which it joins. Why: a write that passes between an earlier copy and the view never reaches
//	the new server.
//
//	V3. The first server of a view puts the journals of departed incarnations onto the ring,
//	causes first, after the store refuses their writes. Why: without the fence, a delayed write
//	of a departed incarnation is committed after its journal was read. Causes first: M4.
//
//	V4. A departed incarnation is retired when all of its writes are visible everywhere. Why:
//	its number would stay in every token for ever.
//
//	V5. Writes of a retired incarnation count as visible and are left out of every set. Why: a
//	session that names them would be refused by a server that has forgotten them.
//
//	V6. What a session has seen at servers that are all gone counts, at the servers that begin
//	anew, only when it has become visible there. Why: all servers crash. Server 5 begins and
//	finds 1's write in a log. c1 comes with a token that names the write, 5 shows it to c1 and
//	to c2, and c2 moves to 6, which has not received it (M8).
//
// # Asynchronous spaces
//
// In an asynchronous space the store gets a write only after every server has received it.
//
//	A1. A write is in the log of the server that takes it, with what its session carries, before
//	anybody hears of it. The log stands for the store of M2, and for the journal. Why: server 1
//	acknowledges and is killed. Without what is carried: c1 writes x at 2 and y at 3, both are
//	killed, and the disk of 2 is lost; the log of 3 has y and cannot show it.
//
//	A2. The first server merges stable writes into the rows, causes first, in batches, and the
//	store remembers with each batch which writes are in the rows. The rows are a causal cut at
//	every instant. Why: without stability or without the order, the rows show y when all servers
//	end, while x, its cause, is on a disk that comes back tomorrow. Without the record, a ring
//	that begins anew finds the row of x and cannot tell whether a session has seen it.
//
//	A3. A server claims its view before it merges, which ends the merging of all earlier views,
//	and it continues from what the store remembers. Why: server 1 is taken for dead while its
//	batch is under way, and 2 merges. All end; 3 begins with what the store remembers; the batch
//	of 1 arrives, and the rows have what 3 has never heard of.
//
//	A4. A key is not evicted while its value comes from a write that is not in the rows. Why: x
//	is seen and evicted; the next miss reads the row from before x.
//
//	A5. Such a write is kept even where M10 would not keep it, besides what is unknown of its
//	key; the next miss competes with it. Why: the server has forgotten stamps up to 9, and x
//	comes with 7. If x were dropped, the miss that M10 relies on would read a row without x.
//
//	A6. A row's write is stable, so it counts as visible and is not carried. A server that has
//	not received it answers Behind. Why: server 2 was left out and does not know. It reads a row
//	that is newer than what it has, leaves it alone (M12), and would answer that x is absent.
//
//	A7. A write that is not in the rows stays in every log and counts for the window (M16). Why:
//	every server forgets a stable write, and the server that was to merge it ends. Without the
//	window, a store that does not answer lets memory grow until it ends.
//
//	A8. The server that finds the log of a departed incarnation puts it onto the ring, each
//	write after its causes. The incarnation is retired when its log was given back or given up
//	and every server knows that all of it is in the rows. Why: server 3 acknowledged y, and no
//	server received it. If 3 is retired first and its disk is found later, y counts as visible
//	and is nowhere.
//
//	A9. A session carries whole writes, never names. Why: a token names x, the disk that has x
//	is away, and no journal knows the name.
//
//	A10. An external write leaves the journal only when the store remembers that it was merged,
//	not when every server has received it. Why: the first server truncates write 3 while its
//	batch is on its way, and all servers crash. The ring begins anew after write 2, the journal
//	answers with 4 and 5, and these wait for write 3 for ever.
//
// # Transactions
//
//	T1. A transaction reads from one snapshot, fixed when it begins: the writes that are visible
//	at that server and those that its session carries. It is the same set at every server. Why:
//	a transaction that reads a at 1 and b at 2, each as visible there, sees half of a transfer.
//
//	T2. The versions of a key are complete above their base: nothing is added below it, and a
//	reader that needs an older version is told so. Why: a key is evicted and comes back with
//	stamp 9; stamp 7, added below it, would pass for the newest version before 9 although 8 was.
//
//	T3. A snapshot moves to what is visible now only if no key that was read has changed. Why:
//	the transaction would have read a from one snapshot and b from another.
//
//	T4. A snapshot does not move while a branch of the transaction reads at another server. Why:
//	the trunk has read a in the old snapshot while the branch reads b in the new one.
//
//	T5. The writes of a transaction are one write with one dot. Why: a reader would see half.
//
// # Spaces that keep siblings
//
//	S1. A write names the writes of its key that its author had seen, replaces those, and
//	becomes a sibling of all others. It becomes visible after those that it replaces. Why: c1
//	reads the cart x. c2 adds to x, and the addition becomes visible everywhere. c1 reads
//	another key, so it depends on all that is visible, and writes x as it had read it. Judged by
//	its causes, c1's write would replace c2's addition. Without the order: 3 replaces 2 and 2
//	replaced 1; a server that makes 3 visible and then 1 keeps both.
//
//	S2. A key that is not in memory is left to the next miss. Why: a is in the store and was
//	evicted here. b becomes visible, is its sibling, and would pass for the only value.
//
//	S3. While a row is being loaded, the server remembers which writes were replaced. Why: the
//	row has a and is slow. Meanwhile b replaces a, and c replaces b. The row arrives; c does not
//	name a, and a is back.
package mesh
