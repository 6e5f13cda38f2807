package linear

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/freshet-cache/freshet/linear/clink"
	"github.com/freshet-cache/freshet/ticks"
)

// Recorder receives what the cache does, for metrics. Hits are not reported one by one: the code
// that serves them counts them. The cache calls the methods with or without its lock, so they must
// be quick and must not call the cache.
type Recorder interface {
	// Miss: a read found no entry that it could serve.
	Miss(why MissCause)
	// Event: the protocol did something worth counting.
	Event(e clink.EventKind)
	// StoreCall: a request to the store ended.
	StoreCall(kind StoreCall, took time.Duration, err error)
	// SteppedAside: an invariant failed, and from then on the cache reads from the store.
	SteppedAside()
}

// MissCause says why a read was not served from memory.
type MissCause uint8

// The causes.
const (
	Absent      MissCause = iota // no entry is remembered: the key was probably never read here
	Expired                      // the row's TTL has passed, or nearly
	Invalid                      // the entry was kept under a lease that is over
	Evicted                      // the entry made room for others
	Invalidated                  // a write dropped the entry, or its value could not be decoded
	Unguarded                    // the key's guard is being installed, so nothing can be kept yet

	// MissCauses is the number of causes.
	MissCauses
)

// StoreCall is a kind of request to the store.
type StoreCall uint8

// The kinds.
const (
	CallLoad StoreCall = iota
	CallCommit
	CallSetGuard
	CallSplits
)

type nobody struct{}

func (nobody) Miss(MissCause)                            {}
func (nobody) Event(clink.EventKind)                     {}
func (nobody) StoreCall(StoreCall, time.Duration, error) {}
func (nobody) SteppedAside()                             {}

// sampleEvery says that one in so many operations is sampled. It is a power of two, because the low
// bits of the clock decide.
const sampleEvery = 64

// sampler keeps a few of the keys that callers asked for, so that the assigner knows where the load
// is.
type sampler struct {
	mu    sync.Mutex
	since ticks.Tick
	keys  [2048][]byte // the memory of the keys is reused
	n     int
	skip  int
	hits  atomic.Uint64 // that were sampled, ever
}

// note samples a hit. The key may be a view of bytes that the caller reuses.
func (s *sampler) note(key string) {
	s.hits.Add(1)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.keep(key)
}

func (s *sampler) keep(key string) {
	k := &s.keys[s.n%len(s.keys)]
	*k = append((*k)[:0], key...)
	s.n++
}

// write samples an operation that is slow enough to be counted exactly.
func (s *sampler) write(key string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.skip++; s.skip%sampleEvery == 0 {
		s.keep(key)
	}
}

// sampleSpan is the shortest time to sample, because a rate over a few milliseconds is chance.
const sampleSpan ticks.Tick = 500e6

// take returns the sampled keys, how many samples there were, and the time they took. The time is 0
// if it is not yet long enough.
func (s *sampler) take(now ticks.Tick) (keys []string, n int, d ticks.Tick) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if now-s.since < sampleSpan {
		return nil, 0, 0
	}
	for _, k := range s.keys[:min(s.n, len(s.keys))] {
		keys = append(keys, string(k))
	}
	n, d = s.n, now-s.since
	s.n, s.since = 0, now
	return keys, n, d
}
