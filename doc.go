// Package freshet is a family of coherent caches between a service and its
// database: reads from memory that are never staler than promised.
//
// The promises that exist:
//
//	linear   every read returns the latest committed write
//	causal   a workflow that roams never sees an effect without its cause
//
// Import [github.com/freshet-cache/freshet/linear] or
// [github.com/freshet-cache/freshet/causal] to keep entries in your own process, or
// run freshet serve and talk to it in the Redis protocol. What keeps a promise is a
// machine without I/O whose rules are numbered, in linear/clink and causal/mesh;
// docs/ARCHITECTURE.md shows the house.
package freshet
