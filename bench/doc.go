// Package bench measures freshet beside others in one run, on one machine, and
// has every run judged by a checker: a fast answer that is wrong is not counted.
//
// What may be relied on: the systems of an experiment take turns in short rounds,
// so that what disturbs one disturbs the other; tables show the median of the
// rounds with the least and the most; the same seed makes the same requests, byte
// for byte. An experiment takes less than a minute with the preset smoke, and
// wants the machine for itself.
package bench
