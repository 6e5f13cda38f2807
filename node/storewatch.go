package node

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/freshet-cache/freshet/internal/eventlog"
	"github.com/freshet-cache/freshet/store"
)

const (
	probeEvery   = time.Second
	probeTimeout = time.Second
	storeSlow    = time.Second // that a request takes at least of which the log speaks
)

// storeWatch finds out whether a shared store answers: by one small read a second when
// nothing else has asked it, and at once when a request has failed.
type storeWatch struct {
	answered atomic.Int64 // when a request last succeeded, in Unix nanoseconds
	away     atomic.Bool
	once     sync.Once
	kick     chan string
}

func (s *storeWatch) kicks() chan string {
	s.once.Do(func() { s.kick = make(chan string, 1) })
	return s.kick
}

// ended takes that a request to the store has ended.
func (s *storeWatch) ended(log *slog.Logger, request string, took time.Duration, err error) {
	switch {
	case err == nil:
		s.answered.Store(time.Now().UnixNano())
	case errors.Is(err, store.ErrFull):
		eventlog.StoreFull.Log(log, "the store is full: it refuses writes, reads go on", "request", request)
	case errors.Is(err, store.ErrUnavailable), !refusal(err):
		select {
		case s.kicks() <- request:
		default:
		}
	}
	if took >= storeSlow && !s.away.Load() {
		eventlog.StoreSlow.Log(log, "the store is slow", "request", request, "ms", eventlog.Ms(took))
	}
}

// refusal reports whether a store has answered, though with no.
func refusal(err error) bool {
	for _, no := range []error{store.ErrGuardMismatch, store.ErrConflict, store.ErrLayoutChanged, store.ErrTooLarge, store.ErrRefused, store.ErrFull} {
		if errors.Is(err, no) {
			return true
		}
	}
	return errors.Is(err, context.Canceled)
}

// run probes until ctx ends, with a small read of a store.
func (s *storeWatch) run(ctx context.Context, log *slog.Logger, read func(ctx context.Context) error) {
	tick := time.NewTicker(probeEvery)
	defer tick.Stop()
	var since time.Time
	for {
		request := "probe"
		select {
		case <-ctx.Done():
			return
		case request = <-s.kicks():
		case now := <-tick.C:
			if !s.away.Load() && now.Sub(time.Unix(0, s.answered.Load())) < probeEvery {
				continue
			}
		}
		began := time.Now()
		probe, cancel := context.WithTimeout(ctx, probeTimeout)
		err := read(probe)
		cancel()
		took := time.Since(began)
		switch {
		case ctx.Err() != nil:
			return
		case err == nil && s.away.Load():
			s.away.Store(false)
			eventlog.StoreBack.Log(log, "the store answers again", "request", request, "ms", eventlog.Ms(time.Since(since)))
		case err != nil && !refusal(err) && !s.away.Load():
			since = began
			s.away.Store(true)
			eventlog.StoreAway.Log(log, "the store does not answer: what is not in memory cannot be read, and nothing can be written", "request", request, "ms", eventlog.Ms(took), "err", err)
		}
		if err == nil {
			s.answered.Store(time.Now().UnixNano())
		}
	}
}
