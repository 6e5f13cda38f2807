package replica

import (
	"github.com/freshet-cache/freshet/shard/lease"
	"github.com/freshet-cache/freshet/ticks"
)

// Call names a request to the store. A primary uses the calls of its pod; a replica makes its own.
type Call uint64

// Op names a caller's read. The runtime never uses a number twice.
type Op uint64

// Row is the state of a key as a read of the store returned it.
type Row struct {
	Exists  bool
	Value   []byte
	Version uint64
	TTL     ticks.Tick // remaining TTL when the store answered; 0 if the row does not expire
}

// Message is a message between members of a group. It may be lost, repeated, or overtaken by a
// later one.
type Message interface{ message() }

// Cacheable tells a replica that no older write can commit any more (P1).
type Cacheable struct{ Gen lease.Gen }

// Invalidate tells a replica to drop its entry, because of write N.
type Invalidate struct {
	Gen lease.Gen
	N   uint64
}

// Finish tells a replica that write N is decided. Row, if it is not nil, is the row after the
// write.
type Finish struct {
	Gen lease.Gen
	N   uint64
	Row *Row
}

// Report tells the primary the state of the replica From. N is the last invalidation that it has
// obeyed. Open says that it may keep entries since.
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

// Acquired: a lease that the node shares with others began. The runtime passes it to the primary's
// machine if the node is the first of the group, and to the replica's machine otherwise.
type Acquired struct {
	lease.Lease
	Group lease.Group
}

// Revoked: the lease is over for good. The pod has learned of it before. The runtime acknowledges
// the recall after it has carried out the outputs.
type Revoked struct{ Gen lease.Gen }

// Received: a message came.
type Received struct{ Message Message }

// Guarding: the pod sends a SetGuard.
type Guarding struct {
	Call  Call
	Range lease.Range
}

// Guarded: the store has answered a SetGuard, OK or not. The runtime tells the primary before the
// pod.
type Guarded struct {
	Call Call
	OK   bool
}

// Writing: the pod asks to store, or to lock, Keys, which are different. Pass or Refuse answers it.
type Writing struct {
	Call Call
	Keys []string
}

// Written: a write that was passed on has been answered. Known says that the answer is yes or no;
// otherwise the write may have been committed, or may still be. The runtime tells the primary
// before the pod.
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

// Beat: some time has passed. The interval decides how soon a lost message is repeated.
type Beat struct{}

// Read: a caller of a replica wants a key that the runtime cannot serve from an entry.
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

// Output is something for the runtime to do. Outputs are in order.
type Output interface{ output() }

// Send sends a message to a member. It may be lost.
type Send struct {
	To      lease.GroupMember
	Message Message
}

// Pass lets the runtime carry out what the pod asked for with this call. Its timeout begins now.
type Pass struct{ Call Call }

// Refuse makes the runtime answer the pod's call with clink.Mismatch: the write was not carried out
// and never will be.
type Refuse struct{ Call Call }

// Load asks the store for a row. It is answered by exactly one Loaded.
type Load struct {
	Call Call
	Key  string
}

// Keep replaces the entry of a key. The entry may be served while the node's lease Gen holds and,
// if Until is not 0, before Until.
type Keep struct {
	Key   string
	Row   Row
	Gen   lease.Gen
	Until ticks.Tick
}

// Drop removes an entry before any later output is carried out.
type Drop struct{ Key string }

// Reply answers a caller's read. OK is false if the store did not answer.
type Reply struct {
	Op    Op
	Row   Row
	Until ticks.Tick // when the row expires by the node's clock; 0 if never
	OK    bool
}

func (Send) output()   {}
func (Pass) output()   {}
func (Refuse) output() {}
func (Load) output()   {}
func (Keep) output()   {}
func (Drop) output()   {}
func (Reply) output()  {}
