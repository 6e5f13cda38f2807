package node

import (
	"sync"
	"time"
)

// opsRate is the rate of commands between two times that it is asked for.
type opsRate struct {
	mu    sync.Mutex
	at    time.Time
	count uint64
	rate  uint64
}

func (r *opsRate) now(count uint64, at time.Time) uint64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch past := at.Sub(r.at); {
	case r.at.IsZero():
		r.at, r.count = at, count
	case past >= 100*time.Millisecond:
		r.rate = uint64(float64(count-r.count) / past.Seconds())
		r.at, r.count = at, count
	}
	return r.rate
}

// keyCount is the number of keys in the store, for INFO. Counting may be a long query, so
// it is done at most once in a hundred times as long as it took, and the last result is
// told meanwhile.
type keyCount struct {
	mu    sync.Mutex
	keys  int
	known bool
	next  time.Time
}
