// Package linear holds the experiments of the linear promise: hits in process and over the
// Redis protocol, recorded traces, hot keys, moves of slices and faults, beside
// redis-server and the caches of package bench/baseline.
//
// What a reader may rely on: each experiment is declared in Experiments. Its page (pages/NAME.md)
// says what it measures and what differs from the paper.
package linear
