package baseline

import "sync/atomic"

// Judge counts stale reads: reads that return a version older than one whose write was acknowledged
// before the read began. It judges every system alike. Keys are numbers from 0 on. All methods are
// safe for concurrent use.
//
// A system without stale reads here may still be wrong in ways that only a search for an order of
// the whole history shows (see package check).
type Judge struct {
	acknowledged []atomic.Uint64
	reads, stale atomic.Int64
}

// NewJudge judges reads of this many keys, whose version is first at the start.
func NewJudge(keys int, first uint64) *Judge {
	j := &Judge{acknowledged: make([]atomic.Uint64, keys)}
	for i := range j.acknowledged {
		j.acknowledged[i].Store(first)
	}
	return j
}

// Floor returns the least version that a read of key may return if the read begins after Floor has
// returned.
func (j *Judge) Floor(key int) uint64 { return j.acknowledged[key].Load() }

// Acknowledged records that a write of key was acknowledged. The caller must call it before it
// tells any other goroutine.
func (j *Judge) Acknowledged(key int, version uint64) {
	for was := j.acknowledged[key].Load(); was < version; was = j.acknowledged[key].Load() {
		if j.acknowledged[key].CompareAndSwap(was, version) {
			return
		}
	}
}

// Read records the result of a read that began after Floor had returned floor. It reports whether
// the read was stale.
func (j *Judge) Read(floor, version uint64) bool {
	j.reads.Add(1)
	if version >= floor {
		return false
	}
	j.stale.Add(1)
	return true
}

// Counts returns how many reads were judged, and how many were stale.
func (j *Judge) Counts() (reads, stale int) { return int(j.reads.Load()), int(j.stale.Load()) }
