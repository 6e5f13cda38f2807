package causalbase

import (
	"context"
	"encoding/binary"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

// Sleeper sleeps with a precision of some microseconds; on an idle machine, timers of the runtime
// are up to a millisecond late. It is for one goroutine.
type Sleeper struct{ f *os.File }

// NewSleeper returns a sleeper.
func NewSleeper() (*Sleeper, error) {
	fd, err := unix.TimerfdCreate(unix.CLOCK_MONOTONIC, unix.TFD_NONBLOCK|unix.TFD_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("causalbase: no timer: %w", err)
	}
	return &Sleeper{os.NewFile(uintptr(fd), "timer")}, nil
}

// Sleep waits for d, or until the sleeper is closed.
func (s *Sleeper) Sleep(d time.Duration) {
	if d <= 0 {
		return
	}
	c, err := s.f.SyscallConn()
	if err != nil {
		return
	}
	spec := unix.ItimerSpec{Value: unix.NsecToTimespec(int64(d))}
	if c.Control(func(fd uintptr) { err = unix.TimerfdSettime(int(fd), 0, &spec, nil) }) != nil || err != nil {
		return
	}
	var b [8]byte
	if _, err := s.f.Read(b[:]); err == nil {
		_ = binary.NativeEndian.Uint64(b[:])
	}
}

// Close ends the sleeper and a call of Sleep.
func (s *Sleeper) Close() { _ = s.f.Close() }

// Line is a constant delay. It delivers in order, after the delay and up to a fiftieth more. A line
// without delay delivers at once.
type Line struct {
	delay time.Duration
	sleep *Sleeper

	mu     sync.Mutex
	queue  []parcel
	wake   chan struct{}
	closed chan struct{}
	done   sync.WaitGroup
	sent   atomic.Int64
}

// Sent returns how often something was sent on the line.
func (l *Line) Sent() int64 { return l.sent.Load() }

const grain = 50

type parcel struct {
	due time.Time
	do  func()
}

// NewLine returns a line with this delay.
func NewLine(delay time.Duration) (*Line, error) {
	l := &Line{delay: delay, wake: make(chan struct{}, 1), closed: make(chan struct{})}
	if delay <= 0 {
		return l, nil
	}
	var err error
	if l.sleep, err = NewSleeper(); err != nil {
		return nil, err
	}
	l.done.Go(l.run)
	return l, nil
}

// After calls do when the delay is over. do must be quick.
func (l *Line) After(do func()) {
	l.sent.Add(1)
	if l.delay <= 0 {
		do()
		return
	}
	l.mu.Lock()
	l.queue = append(l.queue, parcel{time.Now().Add(l.delay), do})
	first := len(l.queue) == 1
	l.mu.Unlock()
	if first {
		select {
		case l.wake <- struct{}{}:
		default:
		}
	}
}

// Wait waits for the delay.
func (l *Line) Wait() {
	if l.delay <= 0 {
		l.sent.Add(1)
		return
	}
	ch := make(chan struct{})
	l.After(func() { close(ch) })
	<-ch
}

func (l *Line) run() {
	for {
		l.mu.Lock()
		now, n := time.Now(), 0
		for n < len(l.queue) && !l.queue[n].due.After(now) {
			n++
		}
		due := l.queue[:n:n]
		l.queue = l.queue[n:]
		rest := time.Duration(-1)
		if len(l.queue) > 0 {
			rest = l.queue[0].due.Sub(now)
		}
		l.mu.Unlock()
		for _, p := range due {
			p.do()
		}
		switch {
		case n > 0: // more deliveries may be due now
		case rest >= 0: // no finer than a part of the delay, because each wake-up costs the measured system processor time
			l.sleep.Sleep(max(rest, l.delay/grain))
		default:
			select {
			case <-l.wake:
			case <-l.closed:
				return
			}
		}
	}
}

// Close ends a line over which nothing is under way.
func (l *Line) Close() {
	close(l.closed)
	l.done.Wait()
	if l.sleep != nil {
		l.sleep.Close()
	}
}

// World is the environment that all systems of a comparison share.
type World struct {
	Servers int
	Links   *Line // delay one way, between any two machines
	Store   *Line // added to each answer of the store
	// Loopback connects the servers of the ring by TCP instead, without added delay.
	Loopback bool

	quick        atomic.Bool // the store answers at once while caches are filled
	moves, bytes atomic.Int64
}

// NewWorld returns a world with the delays hop of each message and store of each answer of the store.
func NewWorld(servers int, hop, store time.Duration) (*World, error) {
	links, err := NewLine(hop)
	if err != nil {
		return nil, err
	}
	db, err := NewLine(store)
	if err != nil {
		links.Close()
		return nil, err
	}
	return &World{Servers: servers, Links: links, Store: db}, nil
}

// Close ends the world.
func (w *World) Close() {
	w.Links.Close()
	w.Store.Close()
}

// answer waits for the answer of the store.
func (w *World) answer() {
	if !w.quick.Load() {
		w.Store.Wait()
	}
}

// moved waits for the move of a workflow to its next function, with this many bytes.
func (w *World) moved(bytes int) {
	w.moves.Add(1)
	w.bytes.Add(int64(bytes))
	w.Links.Wait()
}

// Carried returns how many bytes a workflow carried to its next function on average.
func (w *World) Carried() float64 {
	return float64(w.bytes.Load()) / float64(max(1, w.moves.Load()))
}

func pause(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
