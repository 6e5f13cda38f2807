package replica

import "github.com/freshet-cache/freshet/shard/lease"

// Call names a request to the store. Those of a primary are its pod's; a replica draws
// its own.
type Call uint64

// Op names a caller's read; the runtime draws them, never twice.
type Op uint64

// Row is the state of a key as a read of the store returned it.
type Row struct {
	Exists  bool
	Value   []byte
	Version uint64
	TTL     lease.Tick // remaining TTL when the store answered; 0 does not expire
}

// Message is what members of a group say to each other. Each may be lost, repeated,
// and overtaken.
type Message interface{ message() }

// Cacheable tells a replica that nothing older can be written any more (P1).
type Cacheable struct{ Gen lease.Gen }

// Invalidate tells a replica to drop what it has, for write N.
type Invalidate struct {
	Gen lease.Gen
	N   uint64
}

// Finish tells a replica that write N is decided, and perhaps the value that it left.
type Finish struct {
	Gen lease.Gen
	N   uint64
	Row *Row
}

// Report tells the primary where the replica From stands: N is the last invalidation
// it has obeyed, and Open that it may keep entries since.
type Report struct {
	Gen  lease.Gen
	From string
	N    uint64
	Open bool
}

func (Cacheable) message()  {}
func (Invalidate) message() {}
func (Finish) message()     {}
func (Report) message()     {}

// Input is something that has happened.
type Input interface{ input() }

// Acquired: a lease that the node shares with others began. The primary's machine is
// told if the node is the first of the group, the replica's if it is another.
type Acquired struct {
	lease.Lease
	Group lease.Group
}

// Revoked: the lease is over for good. The pod has been told before; the recall is
// acknowledged after what this asks for has been done.
type Revoked struct{ Gen lease.Gen }

// Received: a message came.
type Received struct{ Message Message }

// Guarding: the pod sends a SetGuard.
type Guarding struct {
	Call  Call
	Range lease.Range
}

// Guarded: the store has answered it, OK or not. The pod is told after the primary.
type Guarded struct {
	Call Call
	OK   bool
}

// Writing: the pod asks to store, or to lock, Keys, which differ. It is answered with
// Pass or Refuse.
type Writing struct {
	Call Call
	Keys []string
}

// Written: what was passed on has been answered; Known if with a yes or a no, else it
// may have been committed, or may still be. The pod is told after the primary.
type Written struct {
	Call  Call
	Known bool
}

// Kept: the pod keeps an entry under lease Gen.
type Kept struct {
	Gen lease.Gen
	Key string
	Row Row
}

// Beat: some time has passed. How much decides how soon what was lost is said again.
type Beat struct{}

// Read: a caller of a replica wants a key of which the runtime could serve no entry.
type Read struct {
	Op  Op
	Key string
}

// Loaded answers Load.
type Loaded struct {
	Call Call
	Row  Row
	OK   bool
}

func (Acquired) input() {}
func (Revoked) input()  {}
func (Received) input() {}
func (Guarding) input() {}
func (Guarded) input()  {}
func (Writing) input()  {}
func (Written) input()  {}
func (Kept) input()     {}
func (Beat) input()     {}
func (Read) input()     {}
func (Loaded) input()   {}

// Output is something to be done, in order.
type Output interface{ output() }

// Send sends a message to a member. It may be lost.
type Send struct {
	To      lease.GroupMember
	Message Message
}

// Pass lets the runtime carry out what the pod asked for with this call. Its time
// counts from here on.
type Pass struct{ Call Call }

// Refuse has the runtime answer the pod's call with clink.Mismatch instead: it was not
// carried out and never will be.
type Refuse struct{ Call Call }

// Load asks the store for a row. It is answered by exactly one Loaded.
type Load struct {
	Call Call
	Key  string
}

// Keep puts an entry in place of the present one. It may be served while the node's lease
// Gen holds and, if Until is not 0, before Until.
type Keep struct {
	Key   string
	Row   Row
	Gen   lease.Gen
	Until lease.Tick
}

// Drop removes an entry before any later output is carried out.
type Drop struct{ Key string }

// Reply answers a caller's read. Not OK means that the store did not answer.
type Reply struct {
	Op    Op
	Row   Row
	Until lease.Tick // when the row expires by the node's clock; 0 never
	OK    bool
}

func (Send) output()   {}
func (Pass) output()   {}
func (Refuse) output() {}
func (Load) output()   {}
func (Keep) output()   {}
func (Drop) output()   {}
func (Reply) output()  {}
