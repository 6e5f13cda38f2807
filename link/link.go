// Package link carries frames between two nodes in the order they were sent,
// each once, until the link breaks; after that none arrives, and both ends are
// told. There is no resume: a request without an answer when the link breaks has
// an unknown outcome, and says so.
//
// Frames are batched: what is sent while another write is under way leaves with
// the next one, and nothing waits when the link is idle.
package link

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"time"
)

// ErrBroken means that the link is broken: a request that was sent may or may
// not have been carried out.
var ErrBroken = errors.New("link: broken: the request may or may not have been carried out")

// ErrFull means that nothing was sent: the other end reads too slowly.
var ErrFull = errors.New("link: full: nothing was sent; the other node reads too slowly, try again later")

// ErrSilent means that nothing was heard over the link for as long as the caller would
// wait: the other node may stand still. The request may or may not be carried out.
var ErrSilent = errors.New("link: silent: nothing was heard of the other node; ask somebody else, or again later")

// Options bound a link. The zero value works.
type Options struct {
	// MaxFrame bounds one frame. Default 64 MiB.
	MaxFrame int
	// MaxQueue bounds the bytes waiting to be written. Default 64 MiB.
	MaxQueue int
	// MaxRequests bounds the requests of the other end being served at once.
	// Default 4096; beyond it the link is read no further until one ends.
	MaxRequests int
	// WriteTimeout breaks a link whose other end does not read. Default 10 s.
	WriteTimeout time.Duration
	// Message takes a frame sent with Send. Frames are handed over one at a time,
	// in order.
	Message func(frame []byte)
	// Request serves a frame sent with Call, and returns the answer. Requests are
	// served at the same time.
	Request func(ctx context.Context, frame []byte) []byte
}

// Link is one connection between two nodes. All methods are safe for concurrent
// use. Frames handed in must not be changed afterwards.
type Link struct {
	opt  Options
	nc   net.Conn
	r    *bufio.Reader
	ctx  context.Context
	stop context.CancelCauseFunc

	mu      sync.Mutex
	wake    *sync.Cond
	queue   []byte
	broken  bool
	next    uint64
	waiting map[uint64]chan []byte

	start  time.Time
	asked  atomic.Int64 // when something was asked first since anything was heard, in ns from start; 0 if nothing was
	probed atomic.Int64 // when something was last asked over a silent link

	slots chan struct{}
	work  sync.WaitGroup
}

const (
	kindMessage byte = iota
	kindRequest
	kindAnswer
)

// New runs a link over nc; r holds bytes of nc that were read already, or is nil.
func New(nc net.Conn, r *bufio.Reader, opt Options) *Link {
	if opt.MaxFrame <= 0 {
		opt.MaxFrame = 64 << 20
	}
	if opt.MaxQueue <= 0 {
		opt.MaxQueue = 64 << 20
	}
	if opt.MaxRequests <= 0 {
		opt.MaxRequests = 4096
	}
	if opt.WriteTimeout <= 0 {
		opt.WriteTimeout = 10 * time.Second
	}
	if r == nil {
		r = bufio.NewReaderSize(nc, 64<<10)
	}
	l := &Link{opt: opt, start: time.Now(), nc: nc, r: r, waiting: map[uint64]chan []byte{}, slots: make(chan struct{}, opt.MaxRequests)}
	l.wake = sync.NewCond(&l.mu)
	l.ctx, l.stop = context.WithCancelCause(context.Background())
	l.work.Go(l.read)
	l.work.Go(l.write)
	return l
}

// Send sends a message. Nil means that it arrives unless the link breaks.
func (l *Link) Send(frame []byte) error { return l.put(kindMessage, 0, frame) }

// Call sends a request and waits for its answer. ErrFull and errors of ctx
// before it was sent mean that nothing happened; ErrBroken, and errors of ctx
// later, that it is unknown.
func (l *Link) Call(ctx context.Context, frame []byte) ([]byte, error) {
	id, ch, err := l.ask(frame)
	if err != nil {
		return nil, err
	}
	defer l.forget(id)
	select {
	case b := <-ch:
		return b, nil
	case <-l.ctx.Done():
		return nil, ErrBroken
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// CallHeard is Call for what others could answer too: it ends with ErrSilent when
// nothing at all is heard over the link for the time patience. While that lasts, calls
// end at once. One in that time is sent all the same, to hear when the silence is over,
// but its caller does not wait either: it would be the same caller again and again, who
// is free to ask once more just when the time has passed.
func (l *Link) CallHeard(ctx context.Context, frame []byte, patience time.Duration) ([]byte, error) {
	if l.silence() >= patience {
		if last, now := l.probed.Load(), l.sinceStart(); now-last >= int64(patience) && l.probed.CompareAndSwap(last, now) {
			if id, _, err := l.ask(frame); err == nil {
				l.forget(id)
			}
		}
		return nil, ErrSilent
	}
	id, ch, err := l.ask(frame)
	if err != nil {
		return nil, err
	}
	defer l.forget(id)
	t := time.NewTimer(patience)
	defer t.Stop()
	for {
		select {
		case b := <-ch:
			return b, nil
		case <-l.ctx.Done():
			return nil, ErrBroken
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		case <-t.C:
		}
		l.asked.CompareAndSwap(0, l.sinceStart()) // something was heard, though not what we wait for
		left := patience - l.silence()
		if left <= 0 {
			return nil, ErrSilent
		}
		t.Reset(left)
	}
}

// silence is how long nothing has been heard since something was asked.
func (l *Link) silence() time.Duration {
	if since := l.asked.Load(); since != 0 {
		return time.Duration(l.sinceStart() - since)
	}
	return 0
}

// sinceStart is never 0.
func (l *Link) sinceStart() int64 { return int64(time.Since(l.start)) + 1 }

// ask sends a request, whose answer comes through the channel; forget must follow.
func (l *Link) ask(frame []byte) (uint64, chan []byte, error) {
	ch := make(chan []byte, 1)
	l.mu.Lock()
	l.next++
	id := l.next
	l.waiting[id] = ch
	l.mu.Unlock()
	if err := l.put(kindRequest, id, frame); err != nil {
		l.forget(id)
		return 0, nil, err
	}
	l.asked.CompareAndSwap(0, l.sinceStart())
	return id, ch, nil
}

func (l *Link) forget(id uint64) {
	l.mu.Lock()
	delete(l.waiting, id)
	l.mu.Unlock()
}

// put queues a frame: its length, kind and number, then its bytes.
func (l *Link) put(kind byte, id uint64, frame []byte) error {
	if len(frame) > l.opt.MaxFrame {
		return fmt.Errorf("link: frame of %d bytes exceeds the limit of %d, nothing was sent", len(frame), l.opt.MaxFrame)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case l.broken:
		return ErrBroken
	case len(l.queue) > 0 && len(l.queue)+len(frame) > l.opt.MaxQueue:
		return ErrFull
	}
	l.queue = binary.BigEndian.AppendUint32(l.queue, uint32(len(frame)))
	l.queue = append(l.queue, kind)
	l.queue = binary.BigEndian.AppendUint64(l.queue, id)
	l.queue = append(l.queue, frame...)
	l.wake.Signal()
	return nil
}

const header = 4 + 1 + 8

// write sends what is queued, all of it at once.
func (l *Link) write() {
	var batch []byte
	for {
		l.mu.Lock()
		for len(l.queue) == 0 && !l.broken {
			l.wake.Wait()
		}
		if l.broken {
			l.mu.Unlock()
			return
		}
		batch, l.queue = l.queue, batch[:0]
		l.mu.Unlock()
		_ = l.nc.SetWriteDeadline(time.Now().Add(l.opt.WriteTimeout))
		if _, err := l.nc.Write(batch); err != nil {
			l.fail(err)
			return
		}
		if cap(batch) > 1<<20 { // one large frame must not hold its memory for ever
			batch = nil
		}
	}
}

// read hands on what arrives.
func (l *Link) read() {
	var head [header]byte
	for {
		if _, err := io.ReadFull(l.r, head[:]); err != nil {
			l.fail(err)
			return
		}
		n, kind, id := int(binary.BigEndian.Uint32(head[:])), head[4], binary.BigEndian.Uint64(head[5:])
		if n > l.opt.MaxFrame || kind > kindAnswer {
			l.fail(fmt.Errorf("link: frame of kind %d and %d bytes: not a link, or another version", kind, n))
			return
		}
		frame, err := readN(l.r, n)
		if err != nil {
			l.fail(err)
			return
		}
		l.arrived(kind, id, frame)
	}
}

// readN takes memory as bytes arrive, not as a length promises.
func readN(r io.Reader, n int) ([]byte, error) {
	const step = 1 << 20
	buf := make([]byte, 0, min(n, step))
	for len(buf) < n {
		k := min(n-len(buf), step)
		buf = append(buf, make([]byte, k)...)
		if _, err := io.ReadFull(r, buf[len(buf)-k:]); err != nil {
			return nil, err
		}
	}
	return buf, nil
}

func (l *Link) arrived(kind byte, id uint64, frame []byte) {
	l.asked.Store(0)
	switch kind {
	case kindMessage:
		if l.opt.Message != nil {
			l.opt.Message(frame)
		}
	case kindAnswer:
		l.mu.Lock()
		ch := l.waiting[id]
		l.mu.Unlock()
		if ch != nil {
			select {
			case ch <- frame:
			default: // answered twice: the other end is confused, the first answer counts
			}
		}
	case kindRequest:
		select {
		case l.slots <- struct{}{}:
		case <-l.ctx.Done():
			return
		}
		l.work.Go(func() {
			defer func() { <-l.slots }()
			var answer []byte
			if l.opt.Request != nil {
				answer = l.opt.Request(l.ctx, frame)
			}
			_ = l.put(kindAnswer, id, answer) // if it is broken, the caller knows
		})
	}
}

func (l *Link) fail(err error) {
	l.mu.Lock()
	l.broken = true
	l.wake.Broadcast()
	l.mu.Unlock()
	l.stop(fmt.Errorf("%w: %w", ErrBroken, err))
	l.nc.Close()
}

// Done is closed when the link is broken.
func (l *Link) Done() <-chan struct{} { return l.ctx.Done() }

// Err says why the link broke, or is nil.
func (l *Link) Err() error { return context.Cause(l.ctx) }

// Wait returns when the link is broken and nothing of it runs any more.
func (l *Link) Wait() { l.work.Wait() }

// Close breaks the link, and returns when nothing of it runs any more.
func (l *Link) Close() {
	l.Break()
	l.work.Wait()
}

// Break breaks the link and does not wait: what arrived may yet be handed over.
func (l *Link) Break() { l.fail(net.ErrClosed) }
