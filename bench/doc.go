// Package bench measures freshet beside other systems in one run, on one machine. A checker judges
// every run: wrong answers do not count, however fast.
//
// What a reader of the results may rely on: the systems of an experiment take turns in short
// rounds, so that a disturbance affects all of them. Tables show the median of the rounds with the
// minimum and the maximum. The same seed makes the same requests, byte for byte. An experiment
// takes less than a minute with the preset smoke, and needs the machine for itself.
//
// This package lists the experiments. Each promise has its experiments in a package of
// its own (bench/linear, bench/causal), and package bench/kit holds what they share. A new
// promise adds a package and one entry to the list.
package bench
