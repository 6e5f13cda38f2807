// Package causalbase holds what the causal cache is compared with, over one emulated
// world: workflows whose functions run at one of several cache servers each, links and a
// store that take as long as the paper set them.
//
// What may be relied on: every system gets the same links, the same store, the same
// workflows at the same places, and pays for moving what its workflows carry; a value is
// written once, so that a [History] can be judged by package check. What a system
// promises is said where it is made. Baselines are as fast as we could make them: where
// we had a choice that the papers leave open we took the one that wins.
package causalbase
