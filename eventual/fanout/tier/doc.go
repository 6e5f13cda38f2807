// Package tier is the shared cache of several nodes, as a machine without I/O: what one server does
// for each request, in one step. A server of Redis does the same in one script each.
//
// What may be relied on: the server returns no value that is older than a mutation that was marked
// there before its write was sent, whether the mark was removed or expired, and whether the mutation
// named the value's key or one of its tags.
//
// What it costs: a mutation takes two requests. A miss of many nodes at once makes one of them fill
// the tier; the others have no lease, and their values are not set.
//
// A server that loses what it had, or another one in its place, is another [Tier]: its keys carry
// another name, and nodes agree on the name before they use it (package fanout, T4). It must not
// evict marks and floors, only values and leases.
//
// # Rules
//
//	T1. A mark raises the counter and the floors of its names to it, removes their values and leases,
//	and joins the set of marks of each name, until it expires. Its removal does the same and leaves
//	the set. Everything can be removed at once, marks excepted. Why: two mutations of x are under way. With one mark for each name, the end of the first
//	takes the mark of the second away; a node fills x with the value from before the second.
//
//	T2. A miss takes a lease, unless the key is marked, and the counter. A value is set if its lease
//	is the key's latest, none of its tags is marked, and none has a floor above its counter. Why: a
//	node loads x, which depends on t. Then t is marked and written, and the value from before arrives
//	at the tier with a lease that nobody has taken away.
//
//	T3. A value is returned if its counter is not below the floors of its tags. Why: x is in the tier,
//	and t, on which it depends, is written. Nothing says which keys depend on t.
//
//	T7. A mark that expires raises the counter and the floors, as its removal does. Why: a node marks
//	t and dies. Another takes a lease of x, which depends on t, loads the old x, and the write lands.
//	The mark expires, and the old x is set with a counter from after the mark.
package tier
