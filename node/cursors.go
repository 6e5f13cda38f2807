package node

import (
	"math/rand/v2"
	"sync"
)

// cursors remember where scans go on: clients want a number, and a key is none.
// The oldest is forgotten when there are too many.
type cursors struct {
	mu   sync.Mutex
	last uint64
	from map[uint64]string
}

const maxCursors = 16384

func (s *cursors) put(key string) uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.from == nil {
		s.from, s.last = map[uint64]string{}, rand.Uint64N(1<<32)<<20 // another incarnation's cursors must not fit
	}
	s.last++
	s.from[s.last] = key
	delete(s.from, s.last-maxCursors)
	return s.last
}

func (s *cursors) get(n uint64) (string, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	key, ok := s.from[n]
	return key, ok
}
