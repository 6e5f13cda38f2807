// Package causal holds the experiments of the causal promise: workflows that move among the
// servers of a ring, beside the causal caches that other papers describe (package
// bench/causalbase).
//
// What a reader may rely on: each experiment is declared in Experiments. Its page (pages/NAME.md)
// says what it measures and what differs from the paper.
package causal
