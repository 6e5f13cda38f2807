package node

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/freshet-cache/freshet/shard/lease"
)

const (
	watchBeat      = 250 * time.Millisecond
	membersTimeout = 400 * time.Millisecond
	maxPending     = 256  // states of the assigner that were not looked at yet
	maxOrdered     = 1024 // moves that an operator has asked for
	clockJump      = 500 * time.Millisecond
)

// watch looks at the cluster four times a second, says in the log what has changed, and
// keeps what metrics, status and readiness show.
type watch struct {
	roster     roster
	membership atomic.Pointer[Membership]
	store      storeWatch
	stop       context.CancelFunc
	work       sync.WaitGroup

	mu       sync.Mutex
	states   []lease.State // of the assigner, not yet compared
	recalled map[lease.Gen]time.Time
	ordered  map[string]time.Time // keys whose slices an operator has moved
	rates    map[lease.Gen]uint64

	// The rest belongs to the loop.
	known        bool // membership was known before
	led          bool
	leaderAddr   string    // the last leader that there was
	missing      time.Time // since when it does not answer
	assigned     lease.State
	incarnations map[string]bool // lost incarnations of causal spaces that were told
	wall         time.Time
}

// asksBack notes when slices were first asked back.
func (w *watch) asksBack(m *lease.Recall) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.recalled == nil {
		w.recalled = map[lease.Gen]time.Time{}
	}
	for _, l := range m.Leases {
		if _, ok := w.recalled[l.Gen]; !ok {
			w.recalled[l.Gen] = time.Now()
		}
	}
}

// orders notes that an operator has asked for a move.
func (w *watch) orders(key string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.ordered == nil || len(w.ordered) >= maxOrdered {
		w.ordered = map[string]time.Time{}
	}
	w.ordered[key] = time.Now()
}

// loads notes the rates that a node reports of its slices.
func (w *watch) loads(all []lease.Load) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.rates == nil || len(w.rates) > 4*maxPending*maxPending {
		w.rates = map[lease.Gen]uint64{}
	}
	for _, l := range all {
		w.rates[l.Gen] = l.Rate
	}
}
