// Package link carries frames between two nodes in the order they were sent,
// each once, until the link breaks; after that none arrives, and both ends are
// told. There is no resume: a request without an answer when the link breaks has
// an unknown outcome, and says so.
//
// Reading never waits for a request to be served: the caller's end bounds how many of
// its requests are under way, and one beyond the bound is refused. An end that is about
// to go says so with [Link.Drain]: it answers what has arrived, and what has not is
// known not to have been done.
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

// ErrFull means that nothing was sent: the other end reads too slowly, or serves as many
// requests as it can.
var ErrFull = errors.New("link: full: nothing was done; the other node reads too slowly or has too much to do, try again later")

// ErrRefused means that nothing was done: the link was broken before the request was
// sent, or the other end is about to go and did not begin with it.
var ErrRefused = errors.New("link: refused: nothing was done; the other node goes or has gone, find out who has taken its place")

// ErrSilent means that nothing was heard over the link for as long as the caller would
// wait: the other node may stand still. The request may or may not be carried out.
var ErrSilent = errors.New("link: silent: nothing was heard of the other node; ask somebody else, or again later")

// Options bound a link. The zero value works.
type Options struct {
	// MaxFrame bounds one frame. Default 64 MiB.
	MaxFrame int
	// MaxQueue bounds the bytes waiting to be written. Default 64 MiB.
	MaxQueue int
	// MaxRequests bounds the requests that are under way at once, in each direction.
	// Default 4096. Call waits while so many of this end are; one of the other end
	// beyond it is refused. It is the same at both ends.
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
	waiting map[uint64]chan answer
	writing bool   // a batch is on its way to the operating system
	serving int    // requests of the other end
	last    uint64 // the last one of them that is or was served
	going   bool   // this end drains: no further request is served
	goes    bool   // the other end drains: no further request is sent

	start  time.Time
	asked  atomic.Int64 // when something was asked first since anything was heard, in ns from start; 0 if nothing was
	probed atomic.Int64 // when something was last asked over a silent link

	calls chan struct{} // one for each request of this end that is under way
	work  sync.WaitGroup
}

// answer is what a request comes to.
type answer struct {
	frame []byte
	err   error
}

const (
	kindMessage byte = iota
	kindRequest
	kindAnswer
	kindFull // the request of this number was not served: there are too many
	kindBye  // requests after this number are not served, and the sender is about to go
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
	l := &Link{opt: opt, start: time.Now(), nc: nc, r: r, waiting: map[uint64]chan answer{}, calls: make(chan struct{}, opt.MaxRequests)}
	l.wake = sync.NewCond(&l.mu)
	l.ctx, l.stop = context.WithCancelCause(context.Background())
	l.work.Go(l.read)
	l.work.Go(l.write)
	return l
}

// Send sends a message. Nil means that it arrives unless the link breaks.
func (l *Link) Send(frame []byte) error { return l.put(kindMessage, 0, frame) }

// Call sends a request and waits for its answer. ErrFull, ErrRefused and errors of ctx
// before it was sent mean that nothing happened; ErrBroken, and errors of ctx later,
// that it is unknown.
func (l *Link) Call(ctx context.Context, frame []byte) ([]byte, error) {
	select {
	case l.calls <- struct{}{}:
	case <-l.ctx.Done():
		return nil, ErrRefused
	case <-ctx.Done():
		return nil, fmt.Errorf("%w (%w)", ErrFull, context.Cause(ctx))
	}
	defer func() { <-l.calls }()
	id, ch, err := l.ask(frame)
	if err != nil {
		return nil, err
	}
	defer l.forget(id)
	select {
	case a := <-ch:
		return a.frame, a.err
	case <-l.ctx.Done():
		return l.afterBreak(ch)
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// afterBreak is the answer to a request that had not come when the link broke, unless it
// came just before.
func (l *Link) afterBreak(ch chan answer) ([]byte, error) {
	select {
	case a := <-ch:
		return a.frame, a.err
	default:
		return nil, ErrBroken
	}
}

// CallHeard is Call for what others could answer too: it ends with ErrSilent when
// nothing at all is heard over the link for the time patience. While that lasts, calls
// end at once. One in that time is sent all the same, to hear when the silence is over,
// but its caller does not wait either: it would be the same caller again and again, who
// is free to ask once more just when the time has passed. It does not wait for other
// calls to end either.
func (l *Link) CallHeard(ctx context.Context, frame []byte, patience time.Duration) ([]byte, error) {
	select {
	case l.calls <- struct{}{}:
	default:
		return nil, ErrFull
	}
	defer func() { <-l.calls }()
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
		case a := <-ch:
			return a.frame, a.err
		case <-l.ctx.Done():
			return l.afterBreak(ch)
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
func (l *Link) ask(frame []byte) (uint64, chan answer, error) {
	ch := make(chan answer, 1)
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.goes {
		return 0, nil, ErrRefused
	}
	id := l.next + 1 // requests are numbered in the order they are sent: Drain rests on that
	if err := l.queueFrame(kindRequest, id, frame); err != nil {
		if errors.Is(err, ErrBroken) {
			err = ErrRefused
		}
		return 0, nil, err
	}
	l.next, l.waiting[id] = id, ch
	l.asked.CompareAndSwap(0, l.sinceStart())
	return id, ch, nil
}

func (l *Link) forget(id uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.waiting, id)
	l.mayPart()
}

// put queues a frame.
func (l *Link) put(kind byte, id uint64, frame []byte) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.queueFrame(kind, id, frame)
}

// queueFrame queues a frame: its length, kind and number, then its bytes. MaxQueue bounds
// messages and requests; an answer has waited for room.
func (l *Link) queueFrame(kind byte, id uint64, frame []byte) error {
	if len(frame) > l.opt.MaxFrame {
		return fmt.Errorf("%w (a frame of %d bytes exceeds the limit of %d)", ErrRefused, len(frame), l.opt.MaxFrame)
	}
	switch {
	case l.broken:
		return ErrBroken
	case (kind == kindMessage || kind == kindRequest) && len(l.queue) > 0 && len(l.queue)+len(frame) > l.opt.MaxQueue:
		return ErrFull
	}
	l.queue = binary.BigEndian.AppendUint32(l.queue, uint32(len(frame)))
	l.queue = append(l.queue, kind)
	l.queue = binary.BigEndian.AppendUint64(l.queue, id)
	l.queue = append(l.queue, frame...)
	l.wake.Broadcast()
	return nil
}

// Drain tells the other end that this one goes: requests that have arrived are answered,
// and of those that have not their callers hear that nothing was done. It returns when
// the other end has all answers and has closed the link, or breaks it when ctx ends.
func (l *Link) Drain(ctx context.Context) {
	l.mu.Lock()
	if !l.going {
		l.going = true
		_ = l.queueFrame(kindBye, l.last, nil) // if it is broken, there is nobody to tell
	}
	l.mu.Unlock()
	select {
	case <-l.ctx.Done():
	case <-ctx.Done():
		l.Break()
	}
}

// Goes reports whether the other end drains: it takes no further requests.
func (l *Link) Goes() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.goes
}

// leaves takes that the other end drains, after it has served the request last.
func (l *Link) leaves(last uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.goes = true
	for id, ch := range l.waiting {
		if id > last {
			ch <- answer{err: ErrRefused} // which has had no other
			delete(l.waiting, id)
		}
	}
	l.mayPart()
}

// mayPart breaks the link when the other end goes and nothing is under way.
func (l *Link) mayPart() {
	if l.goes && !l.broken && len(l.waiting) == 0 && l.serving == 0 && len(l.queue) == 0 && !l.writing {
		l.work.Go(func() { l.fail(errDrained) })
		l.broken = true
		l.wake.Broadcast()
	}
}

var errDrained = errors.New("the other node has gone, in an orderly way")

const header = 4 + 1 + 8

// write sends what is queued, all of it at once.
func (l *Link) write() {
	var batch []byte
	for {
		l.mu.Lock()
		l.writing = false
		l.mayPart()
		for len(l.queue) == 0 && !l.broken {
			l.wake.Wait()
		}
		if l.broken {
			l.mu.Unlock()
			return
		}
		batch, l.queue, l.writing = l.queue, batch[:0], true
		l.wake.Broadcast()
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
		if n > l.opt.MaxFrame || kind > kindBye {
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
		l.answered(id, answer{frame: frame})
	case kindFull:
		l.answered(id, answer{err: ErrFull})
	case kindBye:
		l.leaves(id)
	case kindRequest:
		l.requested(id, frame)
	}
}

// answered hands an answer to its caller, if that still waits.
func (l *Link) answered(id uint64, a answer) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if ch := l.waiting[id]; ch != nil {
		delete(l.waiting, id) // a second answer to the same request is nobody's
		ch <- a
	}
}

// requested serves a request of the other end, unless there are too many or this end
// drains.
func (l *Link) requested(id uint64, frame []byte) {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case l.broken, l.going: // the other end is told that it was not served
		return
	case l.serving >= l.opt.MaxRequests:
		_ = l.queueFrame(kindFull, id, nil)
		return
	}
	l.last = id
	l.serving++
	l.work.Go(func() {
		var reply []byte
		if l.opt.Request != nil {
			reply = l.opt.Request(l.ctx, frame)
		}
		l.mu.Lock()
		defer l.mu.Unlock()
		for !l.broken && len(l.queue) > 0 && len(l.queue)+len(reply) > l.opt.MaxQueue {
			l.wake.Wait() // for the writer, which has a deadline
		}
		l.serving--
		if err := l.queueFrame(kindAnswer, id, reply); err != nil && !l.broken { // too long to be sent
			l.work.Go(func() { l.fail(err) })
		}
		l.mayPart()
	})
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
