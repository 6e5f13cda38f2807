// Package kit provides what experiments share: options, turns, load generators, servers under test,
// the judge of histories, and reports with tables and plots.
//
// What an experiment may rely on: a report, with its page and its plots, is a function of
// its JSON alone; a stream of random numbers depends on its seed and its number alone; a
// server that kit starts has ended when Stop returns.
package kit
