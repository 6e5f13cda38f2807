// Package loan lets a transaction of the caller's write keys of several owners at
// once, as a machine without I/O: the [Borrower].
//
// What may be relied on: the transaction runs only while every owner has dropped
// what it had in memory of these keys and lets nobody else write them; its caller is
// told Done if it was committed, Failed or Again only if it was not and never will
// be, and Unknown otherwise. No two borrowers wait for each other. This holds
// provided that owners lend as package linear/clink does (its rule R20), and that
// the transaction commits only under the guards it was lent.
//
// The rules:
//
//	B1 Owners are asked one after the other, in the order of their names, each for
//	   all of its keys at once: whoever waits for one waits for nobody before it.
//	B2 The transaction begins when everything is lent, once, under the guards that
//	   came with it.
//	B3 Whatever becomes of it, every owner that was asked is told: those that may
//	   have lent without our hearing of it too.
//	B4 Of a transaction without an answer, one owner that knows tells for all, for
//	   all was written or none. Each finds out behind a fence of its own.
package crossowner
