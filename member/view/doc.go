// Package view decides which servers are in a group, such as a ring of causal/mesh, as two machines without I/O:
// the [Leader], of which one leads at a time, and the [Member], one for each incarnation of a
// server.
//
// What may be relied on: all members hear of the same views, in the order of their numbers. An
// incarnation has a number of its own, is in the ring at most once and without interruption, and
// is listed as departed from when it leaves until it is retired. A member that says that it
// serves is in the latest ring, or a view without it was decided so recently that no server has
// recovered its writes yet.
//
// What it costs: a member that does not reach the leader stops serving when its lease is over. A
// member that the leader does not hear of is removed, and its writes that have not reached every
// server are recovered a lease later.
//
// # Rules
//
//	K1. The leader tells only what the coordinator has stored. Why: a successor would decide on
//	another view of the same number than one that members have heard of.
//
//	K2. A number is given to one incarnation only; numbers of incarnations and views grow. Why:
//	writes of two incarnations with one number pass for each other's.
//
//	K3. A lease is for members of the view that comes with it, and counts from when the member
//	asked for it. Why: a member that was removed would serve on under a lease of an old view.
//
//	K4. An incarnation that is removed is departed until the ring says that all of its writes
//	have been everywhere. Why: writes that only its journal has would be forgotten.
//
//	K5. A ring has a member that knows its writes, or begins anew with one that asks the store.
//	If no such member is left, or those that are left say that they know nothing, all depart.
//	Why: each would wait for the others to know.
//
//	K6. A leader removes nobody while its predecessor may still grant leases, and nobody for
//	silence before it has led for a lease besides. Why: members that renewed with the predecessor
//	would be removed while they serve.
//
//	K7. A server that recovers the writes of a departed incarnation waits, from when it heard of
//	the view without it, for the length of a lease and the drift of the clocks. Why: the departed
//	incarnation may still acknowledge writes until its lease ends.
//
//	K8. The coordinator's state may be lost, or an old one restored. A leader that hears of a
//	view, a number or a claim that it never decided on removes everybody, begins anew above it,
//	and takes for departed what the store says is open. Why: incarnation 5 writes, an old state
//	is restored, and another server begins as 5. Its writes pass for repeated ones: they are
//	acknowledged, and the store leaves them out.
//
//	K9. A ring has one token key for as long as its coordinator has a state. Members hear of the
//	key once it is stored. Why: tokens made with a key that is drawn again would be refused.
package view
