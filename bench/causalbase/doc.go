// Package causalbase holds the systems with which the causal cache is compared, over one emulated
// world. The functions of a workflow run at several cache servers. Links and the store are as slow
// as in the paper.
//
// What may be relied on: every system has the same links, the same store and the same workflows at
// the same servers, and pays for moving what its workflows carry. Each value is written once, so
// that package check can judge a [History]. The constructor of a system says what the system
// promises. The baselines are as fast as we could make them: where the papers leave a choice open,
// we took the faster one.
package causalbase
