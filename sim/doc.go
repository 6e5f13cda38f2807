// Package sim runs the machines that ship in worlds that are made up: virtual
// time, clocks that drift, links that lose and delay, a store that takes its
// time and forgets its guards, processes that crash, pause and come back. The
// world knows the truth, so every answer is judged when it is given.
//
// There is a simulation for each promise ([Simulations]). A [Plan] is drawn from a seed and
// always runs the same way; [Shrink] makes a failing one small. Package sim/explore runs the same machines
// through every schedule of small scopes instead.
package sim
