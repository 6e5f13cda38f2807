// Package check judges recorded histories: what clients asked, what they were
// answered, and when. It knows no protocol and believes nobody; a verdict of
// [Linearizable] means that some order of the operations, in which each takes
// effect at one instant between its call and its answer, explains every answer.
//
// Keys are registers of their own, so each is judged alone. A history in which
// every value is written once is decided by zones in O(n log n) (Gibbons and
// Korach, Testing Shared Memories, 1997); others by search (porcupine), which may
// give up: then the verdict says so, and that is not a success.
//
// [Causal] judges sessions that fork, join and roam: whether their causal order and
// one order of the writes to every key explain what was read. It needs no clock.
package check
