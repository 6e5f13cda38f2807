// Package crossowner lets one transaction of the caller's write keys of several owners, as a
// machine without I/O: the [Coordinator], one for each attempt.
//
// What may be relied on: the transaction runs only while every owner has dropped what it had in
// memory of these keys and lets nobody else write them. Its caller is told Done if it was
// committed, Failed or Again only if it was not and never will be, and Unknown otherwise. No two
// coordinators wait for each other. This holds if owners lock keys as package linear/clink does
// (rule R20), and if the transaction commits only under the guards that the owners gave.
//
// # Rules
//
//	B1. Owners are asked one after the other, in the order of their names, each for all of its
//	keys at once. Why: two coordinators that ask in different orders wait for each other.
//
//	B2. The transaction begins when every owner has locked its keys, once, under the guards that
//	came with the locks. Why: an owner that has not locked serves a key while it is written.
//
//	B3. Whatever the outcome, the coordinator tells every owner that it asked, also those that
//	may have locked without their answer arriving. Why: such an owner would keep its keys
//	blocked until its deadline.
//
//	B4. If the transaction has no answer, one owner that knows the outcome decides for all,
//	because all keys were written or none; each owner finds out behind a fence of its own. Why:
//	owners that decide alone can tell the caller yes and no of one transaction.
package crossowner
