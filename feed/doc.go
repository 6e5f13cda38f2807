// Package feed numbers the messages of one source, and tells a receiver which of them it lacks, as
// two machines without I/O: the [Sender] and the [Receiver].
//
// What may be relied on: a receiver whose Applied is n has had every message from 1 to n, or has
// adopted a snapshot that stands for those it has not had. This holds whatever the network between
// the two loses, repeats, delays or reorders.
//
// What it costs: a sender keeps its last messages. A receiver keeps a list of the gaps, which its
// window bounds, and a message that arrives behind a gap has its effect at once: users must be able
// to apply messages in any order.
//
// A feed belongs to one incarnation of its source. Another incarnation is another feed.
//
// # Rules
//
//	F1. Every message takes the next number, from 1, and no number is skipped or used again. Why:
//	a sender that gives 7 to two messages has the second one taken for a repetition of the first.
//
//	F2. A sender that no longer has the first message of a request says so, and sends no part of
//	the rest. Why: a receiver lacks 3 to 9, the ring begins at 5. It gets 5 to 9 again and again,
//	never hears that 3 and 4 are gone, and its gap stays for ever.
//
//	F3. A receiver records a number only once, and reports a repetition as one. Why: message 4
//	marks a key, 5 takes the mark away, and 4 arrives once more: the key is marked for ever.
//
//	F4. Applied is the last number with no gap below it. Why: 1 and 3 have arrived and the source
//	says that it has sent 3 messages. A receiver that compares with the largest number takes
//	itself to be complete, and lacks 2.
//
//	F5. A message beyond the window is not recorded, so that it is missing until it comes again.
//	Why: a receiver that recorded every number would need memory without bound for a source of
//	which it misses every second message.
//
//	F6. Adoption of a snapshot never goes back, and spares what has arrived above its number. Why:
//	the snapshot of 5 is delayed until after that of 9. A receiver that goes back to 5 asks for 6
//	to 9 and applies them twice.
//
//	F7. A request names the first gap only, and no more numbers than the caller allows. Why: a
//	receiver that has been away asks for a million messages in one answer, and the answer is lost
//	for its size each time.
package feed
