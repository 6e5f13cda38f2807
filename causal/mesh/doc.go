// Package mesh keeps caches causally consistent for sessions that roam (CausalMesh),
// as machines without I/O: the [Server], and the [Session] that travels with a
// workflow.
//
// What may be relied on: a session never reads anything older than what it has read or
// written, nor an effect without its cause, whichever server it asks next, forks and
// joins included. Servers that have received the same writes agree on every key, with
// each other and with the store. No operation waits for another server, and none is
// undone. This holds however long anything is delayed, provided that a connection
// between neighbours keeps its order or says that it broke, and that the store commits
// a Persist as its comment says.
//
// A write is received (in R) when it arrives, and visible (in F) when readers may see
// it. What rests on what: visible somewhere implies received everywhere (M8). So a
// server can show the causes of anything it is asked for without asking anybody.
//
// Writes:
//
//	M1  The time of a write exceeds all that its server, its session and their causes
//	    have seen, and the clock's: else it would lose to what it overwrites.
//	M2  A write is in the store before anybody hears of it. An unknown outcome is asked
//	    for again until it is known; a number is never skipped, for a gap would stop
//	    the stability vector: a write the store refuses leaves a void one.
//	M3  An own write is received when it is passed on, not when it is made: R is what
//	    has passed here, in the order of the log.
//	M4  Writes that the session carries and that have not passed here are passed on
//	    first: they come down every connection before the write that depends on them.
//	M5  What was carried is named dot by dot, apart from the causes that were visible:
//	    its neighbours' numbers may be anybody's.
//
// The ring:
//
//	M6  One connection in order leads to the successor. A write goes on, behind all that
//	    was passed on before it, until it comes to who knows it. If its origin is its
//	    head it goes on even there, by its name: who knows it has passed it on.
//	M7  The head's predecessor, where the ring ends, shows it and its causes.
//	M8  Nothing is shown unless every server has received it.
//
// Keys:
//
//	M9  The larger stamp wins a key, of the stamps the writes were made with.
//	M10 Into a key that is not in memory only what exceeds every stamp that was
//	    forgotten is installed; else the key is left to the next miss.
//	M11 A key that somebody waits for is not evicted, and keeps what is shown of it; the
//	    answer of the store competes with that.
//	M12 A row that is newer than what is visible is not kept: the reader carries its write
//	    and those of its causes that are not visible, and they go round from here.
//
// Stability:
//
//	M13 The journal keeps a write until its origin knows that everybody has received it;
//	    so what is in neither the journal nor sight has been received here.
//	M14 A lap follows everything that the first server had received round the ring. When
//	    it is back, that is stable: it is shown, and leaves the log.
//	M15 A tombstone stays until every write with a smaller time has been shown
//	    everywhere, and none is to come. Absence says how far that had come: it beats
//	    what a waiting reader has kept of older writes.
//	M16 Own writes that are not stable are bounded, in number and in bytes, and with them every
//	    log and I-cache: beyond that a caller is told to try later. So are requests to the
//	    store, and the C-cache with its versions.
//	M17 When a connection is opened, what the other side lacks is sent again in the order
//	    of the log, without a head: only stability makes it visible.
//	M19 What is written past the cache and has a dot is put onto the ring by the first server,
//	    in the order of the journal, of which a number is drawn when the last is committed.
//
// Views:
//
//	V1  A message counts only in the view it was sent in: in another ring the end of its
//	    way is no end. On entering a view every server greets its new predecessor (M17).
//	V2  Who joins begins with a copy of its predecessor, taken in the view in which it
//	    joins.
//	V3  The first server of a view puts the journals of the lives that are over onto the
//	    ring, causes first, after the store refuses their writes.
//	V4  A life is retired once all of it has been shown everywhere.
//	V5  What is retired counts as shown, and is left out of every set: every member has
//	    shown it, and who is none answers nobody by then.
//	V6  What a session has seen at servers that are all gone counts at those that begin anew
//	    when it has become visible there: it need not have reached them all.
//
// Asynchronous spaces, where the store has a write only after everybody has received it:
//
//	A1  A write is in the log of the server that takes it, with what its session carries,
//	    before anybody hears of it. This stands for M2, and for the journal.
//	A2  The first server of the ring merges what is stable into the rows, causes first, a
//	    batch at a time; and the store remembers with every batch what has been merged. So
//	    the rows are a causal cut, and it is known which.
//	A3  One merges: it claims its view, which ends the merging of all earlier ones, and goes
//	    on from what the store remembers.
//	A4  A key is not evicted as long as its value comes from a write that is not in the rows.
//	A5  Such a write is kept also where an older one than what was forgotten would not be
//	    (M10), beside what is not known of its key: the next miss competes with it.
//	A6  A row's write is stable, so it is shown and not carried. Who has not received it is
//	    behind, for no journal has it.
//	A7  What is not in the rows stays in every log, and counts for the window (M16): whoever
//	    is first next has to merge it.
//	A8  The log of a life that is over is put onto the ring by whoever finds it, each write
//	    when its causes have come. Such a life is retired when all of it is in the rows, as
//	    everybody knows, and its log has been given back, or given up.
//	A9  What a session carries it carries whole.
//	A10 What came past the cache leaves the journal when the store remembers that it has been
//	    merged, not when every server has it: a ring that begins anew goes on from what the
//	    store remembers, and would wait for ever for a write that no journal has.
//
// Transactions:
//
//	T1  A transaction reads from one snapshot, fixed where it begins: what is visible there,
//	    under what its session carries. It is the same set of writes at every server.
//	T2  A key's versions are complete above their base: nothing is added below it, and who
//	    needs what was there is told so.
//	T3  A snapshot moves to what is visible now only if nothing that was read has changed.
//	T4  And only while no branch reads elsewhere.
//	T5  What a transaction writes is one write with one dot.
//
// Concurrent writes, where they are kept:
//
//	S1  A write replaces those of its key that were in sight of who made it, and stands beside
//	    all others. It names them: causes tell more than anybody has read. What replaces is
//	    shown after what it replaces.
//	S2  A key that is not in memory is left to the next miss: the store has what a write that
//	    becomes visible would have to join.
//	S3  While a row is asked for, what is replaced is remembered: the row may be older, and who
//	    replaces the replacement does not name it.
//
// Sessions:
//
//	M18 A session lets go of what has become visible: it stays small. Of what it knows by
//	    name only, it asks first.
//	M20 A session brings no time far above the clock's, and carries no write of a server that
//	    has not made it: tokens are authenticated, and what comes with them is looked at
//	    all the same.
//	M21 A read past the servers, of rows of one instant, is carried with its causes. What the
//	    journal does not give back has been received everywhere, and what its causes are is
//	    not known: it is carried by its name, and whoever recalls it gives the causes too.
package mesh
