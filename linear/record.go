package linear

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/freshet-cache/freshet/linear/clink"
	"github.com/freshet-cache/freshet/shard/lease"
)

// Recorder is told what the cache does, for metrics. Hits are not reported one
// by one: who serves them counts them. The methods are called under the cache's
// lock or beside it, must be quick, and must not call the cache.
type Recorder interface {
	// Miss: a read found no entry it could serve.
	Miss(why MissCause)
	// Event: the protocol did something worth counting.
	Event(e clink.EventKind)
	// StoreCall: a request to the store ended.
	StoreCall(kind StoreCall, took time.Duration, err error)
	// SteppedAside: an invariant failed and the cache reads through from here on.
	SteppedAside()
}

// MissCause says why a read was not served from memory.
type MissCause uint8

// The causes.
const (
	Absent      MissCause = iota // nothing was kept, as far as is known: it was never read here
	Expired                      // the row's TTL has passed, or nearly
	Invalid                      // it was kept under a lease that is over
	Evicted                      // it had to make room for others
	Invalidated                  // a write, or a reader's refusal, had it dropped
	Unguarded                    // the key's guard is being installed, and nothing can be kept yet

	// MissCauses is how many there are.
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

// sampleEvery is one in how many operations are sampled. It is a power of two:
// the low bits of the clock decide.
const sampleEvery = 64

// sampler keeps a few of the keys asked, to tell the assigner where the load is.
type sampler struct {
	mu    sync.Mutex
	since lease.Tick
	keys  [2048][]byte // their memory is used again
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

// write samples an operation that is slow enough to be counted one by one.
func (s *sampler) write(key string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.skip++; s.skip%sampleEvery == 0 {
		s.keep(key)
	}
}

// sampleSpan is how long is sampled at least: a rate of a few milliseconds is chance.
const sampleSpan lease.Tick = 500e6

// take returns the sampled keys, how many there were, and for how long; 0 if that is
// not yet long enough.
func (s *sampler) take(now lease.Tick) (keys []string, n int, d lease.Tick) {
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
