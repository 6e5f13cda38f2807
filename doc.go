// Package freshet is a family of coherent caches between a service and its
// database: reads from memory that are never staler than promised.
//
// The promise that exists:
//
//	linear   every read returns the latest committed write
//
// Import [github.com/freshet-cache/freshet/linear] to keep entries in your own
// process, or run freshet serve and talk to it in the Redis protocol. What keeps
// the promise is in linear/clink, a machine without I/O whose rules are numbered;
// docs/ARCHITECTURE.md shows the house.
package freshet
