package baseline

import "sync/atomic"

// Judge counts stale reads: those that return a version older than one whose write
// was acknowledged before the read began. It judges every system alike. Keys are
// numbers from 0 on, and all methods are safe for concurrent use.
//
// It finds what it finds: a system with no stale reads here may still be wrong in ways
// that only a search for an order of the whole history shows (see package check).
type Judge struct {
	acknowledged []atomic.Uint64
	reads, stale atomic.Int64
}

// NewJudge judges reads of so many keys, whose version is first when it begins.
func NewJudge(keys int, first uint64) *Judge {
	j := &Judge{acknowledged: make([]atomic.Uint64, keys)}
	for i := range j.acknowledged {
		j.acknowledged[i].Store(first)
	}
	return j
}

// Floor is the least version that a read of key may return if it begins after Floor
// has returned.
func (j *Judge) Floor(key int) uint64 { return j.acknowledged[key].Load() }

// Acknowledged tells that a write of key was acknowledged. The caller must not have
// told anybody else before.
func (j *Judge) Acknowledged(key int, version uint64) {
	for was := j.acknowledged[key].Load(); was < version; was = j.acknowledged[key].Load() {
		if j.acknowledged[key].CompareAndSwap(was, version) {
			return
		}
	}
}

// Read tells what a read returned that began after Floor had returned floor, and
// reports whether it was stale.
func (j *Judge) Read(floor, version uint64) bool {
	j.reads.Add(1)
	if version >= floor {
		return false
	}
	j.stale.Add(1)
	return true
}

// Counts are how many reads were judged, and how many of them were stale.
func (j *Judge) Counts() (reads, stale int) { return int(j.reads.Load()), int(j.stale.Load()) }
