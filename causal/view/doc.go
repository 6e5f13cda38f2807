// Package view decides who is in a ring of causal/mesh, as two machines without I/O: the
// [Keeper], of which one leads, and the [Member], one for each life of a server.
//
// What may be relied on: all members hear of the same views, in the order of their numbers.
// A life has a number of its own, is in a ring once at most without interruption, and is
// named as lost from when it leaves until it is retired. A member that says that it serves
// is in the latest ring, or a view without it was decided so short a time ago that nobody
// has recovered its writes yet.
//
// What it costs: a member that hears nothing of the keeper stops serving when its lease is
// over; one that the keeper hears nothing of is left out, and its writes that have not been
// everywhere are recovered a lease later.
//
//	K1 Only what the coordinator has stored is told: a successor knows of every view that
//	   anybody has heard of.
//	K2 A number is given to one life only, and numbers of lives and views grow.
//	K3 A lease is for members of the view that is told with it, and counts from when the
//	   member asked for it.
//	K4 Who is left out is lost until the ring says that all of it has been everywhere.
//	K5 A ring has a member that knows its writes, or begins anew with one that asks the
//	   store. If none is left, or those that are left say that they know nothing, all are
//	   lost.
//	K6 A keeper leaves nobody out as long as its predecessor may go on granting, and nobody
//	   for silence before it has led for a lease besides.
//	K7 Who recovers a life's writes waits, from when it heard of the view without it, for
//	   the length of a lease and the drift of the clocks.
//	K8 The coordinator's state may be lost, or an old one restored. A keeper that hears of a
//	   view, a number or a claim that it has never decided on leaves everybody out and begins
//	   anew above it, and takes for lost what the store says is open. Without: life 5 writes,
//	   an old state is restored, a life begins as 5 once more. Its writes pass for repeated
//	   ones: they are acknowledged, and the store leaves them out.
//	K9 A ring has a key for as long as its coordinator has a state. Members hear of it once it
//	   is stored, so that no token is made with a key that is drawn again.
package view
