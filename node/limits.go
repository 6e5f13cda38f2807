package node

import "time"

// Limits that several files share.
const (
	openTimeout  = 30 * time.Second // to reach a store or a coordinator that may be starting too
	stateTimeout = time.Second      // for other nodes to say how they are
	leaveTimeout = 10 * time.Second // to hand slices over before a stop
	partTimeout  = 2 * time.Second  // for other nodes to take the answers to what they have asked
	adminTimeout = 10 * time.Second // for a request of the admin address
	defaultBeat  = time.Second      // between two requests for leases, at most
	maxMembers   = 1024             // of a cluster
)
