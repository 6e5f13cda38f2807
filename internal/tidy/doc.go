// Package tidy demands of the repository what no compiler checks: who may import
// whom, how large a function may be, that protocols do no I/O, that every rule is
// cited, and that nothing is left to do. It is only tests.
package tidy
