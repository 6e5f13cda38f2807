// Package link carries frames between two nodes in the order in which they were sent, each once,
// until the link breaks. After that no frame arrives, and both ends learn of it. A link does not
// resume: if it breaks before a request is answered, the outcome of the request is unknown, and the
// error says so.
//
// Reading never waits until a request is served. Each end bounds the requests that it has under
// way, and the other end refuses a request beyond the bound. An end that is about to stop announces
// it with [Link.Drain]: it answers the requests that have arrived, and the caller of any other
// request learns that it was not carried out.
//
// Frames are batched: frames that are sent during a write leave together with the next write. On an
// idle link no frame waits.
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

// ErrBroken means that the link broke. A request that was sent may have been carried out.
var ErrBroken = errors.New("link: broken: the request may or may not have been carried out")

// ErrFull means that nothing was sent: the other end reads too slowly, or already serves as many
// requests as it can.
var ErrFull = errors.New("link: full: nothing was done; the other node reads too slowly or has too much to do, try again later")

// ErrRefused means that nothing was done: the link broke before the request was sent, or the other
// end drains and did not begin with it.
var ErrRefused = errors.New("link: refused: nothing was done; the other node stops or has stopped; find out which node took its place")

// ErrSilent means that nothing arrived over the link for as long as the caller was willing to wait:
// the other node may stand still. The request may still be carried out.
var ErrSilent = errors.New("link: silent: nothing arrived from the other node; ask another node, or try again later")

// Options bound a link. The zero value works.
type Options struct {
	// MaxFrame bounds one frame. Default 64 MiB.
	MaxFrame int
	// MaxQueue bounds the bytes waiting to be written. Default 64 MiB.
	MaxQueue int
	// MaxRequests bounds the requests under way, in each direction. Default 4096. Call waits while
	// this end has that many; a request of the other end beyond it is refused. Both ends must have
	// the same value.
	MaxRequests int
	// WriteTimeout breaks a link whose other end does not read. Default 10 s.
	WriteTimeout time.Duration
	// Message receives a frame sent with Send. It gets one frame at a time, in order.
	Message func(frame []byte)
	// Request serves a frame sent with Call and returns the answer. Requests are served
	// concurrently.
	Request func(ctx context.Context, frame []byte) []byte
}

// Link is one connection between two nodes. All methods are safe for concurrent use. The caller
// must not change a frame that it has passed to a method.
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
	writing bool   // a batch is being written
	serving int    // requests of the other end that are being served
	last    uint64 // the highest number of a request of the other end that is or was served
	going   bool   // this end drains: no further request is served
	goes    bool   // the other end drains: no further request is sent

	start  time.Time
	asked  atomic.Int64 // when the first request since the last arrival was sent, in ns since start; 0 if there was none
	probed atomic.Int64 // when a request was last sent over a silent link

	calls chan struct{} // one element for each request of this end that is under way
	work  sync.WaitGroup
}

// answer is the outcome of a request.
type answer struct {
	frame []byte
	err   error
}

const (
	kindMessage byte = iota
	kindRequest
	kindAnswer
	kindFull // the request with this number was not served: too many are under way
	kindBye  // requests after this number are not served: the sender drains
)

// New runs a link over nc. r holds bytes of nc that were already read, or is nil.
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

// Send sends a message. A nil error means that it arrives unless the link breaks.
func (l *Link) Send(frame []byte) error { return l.put(kindMessage, 0, frame) }

// Call sends a request and waits for its answer. ErrFull, ErrRefused and an error of ctx before the
// request was sent mean that nothing happened. ErrBroken and a later error of ctx mean that the
// outcome is unknown.
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

// afterBreak returns the answer to a request whose link broke. The answer may have arrived just
// before.
func (l *Link) afterBreak(ch chan answer) ([]byte, error) {
	select {
	case a := <-ch:
		return a.frame, a.err
	default:
		return nil, ErrBroken
	}
}

// CallHeard is Call for requests that another node or store can answer too. It returns ErrSilent
// when nothing at all arrives over the link for the time patience. While the link is silent, calls
// return at once. One call in each such time is sent nevertheless, to find out when the silence
// ends; its caller does not wait either, because the same unlucky caller would be chosen again and
// again. CallHeard does not wait for other calls to end.
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
		l.asked.CompareAndSwap(0, l.sinceStart()) // something else arrived
		left := patience - l.silence()
		if left <= 0 {
			return nil, ErrSilent
		}
		t.Reset(left)
	}
}

// silence returns how long nothing has arrived since a request was sent.
func (l *Link) silence() time.Duration {
	if since := l.asked.Load(); since != 0 {
		return time.Duration(l.sinceStart() - since)
	}
	return 0
}

// sinceStart returns the time since start. It is never 0.
func (l *Link) sinceStart() int64 { return int64(time.Since(l.start)) + 1 }

// ask sends a request. The answer comes through the channel; the caller must call forget.
func (l *Link) ask(frame []byte) (uint64, chan answer, error) {
	ch := make(chan answer, 1)
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.goes {
		return 0, nil, ErrRefused
	}
	id := l.next + 1 // numbers follow the order of sending, as Drain requires
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

// queueFrame queues a frame: length, kind, number and bytes. MaxQueue bounds messages and requests;
// for an answer, the caller has waited for room.
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

// Drain announces that this end will stop. Requests that have arrived are answered; the callers of
// later ones learn that nothing was done. Drain returns when the other end has all answers and has
// closed the link. When ctx ends, Drain breaks the link.
func (l *Link) Drain(ctx context.Context) {
	l.mu.Lock()
	if !l.going {
		l.going = true
		_ = l.queueFrame(kindBye, l.last, nil) // on a broken link there is no one to tell
	}
	l.mu.Unlock()
	select {
	case <-l.ctx.Done():
	case <-ctx.Done():
		l.Break()
	}
}

// Goes reports whether the other end drains and takes no further requests.
func (l *Link) Goes() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.goes
}

// leaves notes that the other end drains. last is the number of the last request that it serves.
func (l *Link) leaves(last uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.goes = true
	for id, ch := range l.waiting {
		if id > last {
			ch <- answer{err: ErrRefused} // the channel is empty: each request has one answer
			delete(l.waiting, id)
		}
	}
	l.mayPart()
}

// mayPart breaks the link if the other end drains and nothing is under way.
func (l *Link) mayPart() {
	if l.goes && !l.broken && len(l.waiting) == 0 && l.serving == 0 && len(l.queue) == 0 && !l.writing {
		l.work.Go(func() { l.fail(errDrained) })
		l.broken = true
		l.wake.Broadcast()
	}
}

var errDrained = errors.New("the other node has gone, in an orderly way")

const header = 4 + 1 + 8

// write writes the queued frames, all at once.
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
		if cap(batch) > 1<<20 { // release the memory of a large frame
			batch = nil
		}
	}
}

// read dispatches the frames that arrive.
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

// readN allocates memory as bytes arrive, not by the length that the frame announces.
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

// answered passes an answer to its caller, if the caller still waits.
func (l *Link) answered(id uint64, a answer) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if ch := l.waiting[id]; ch != nil {
		delete(l.waiting, id) // a second answer to the same request is ignored
		ch <- a
	}
}

// requested serves a request of the other end, unless there are too many or this end
// drains.
func (l *Link) requested(id uint64, frame []byte) {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case l.broken, l.going: // the break or the announcement tells the other end that the request was not served
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
			l.wake.Wait() // for the writer, whose deadline bounds this
		}
		l.serving--
		if err := l.queueFrame(kindAnswer, id, reply); err != nil && !l.broken { // the answer is too long to be sent
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

// Err returns why the link broke, or nil.
func (l *Link) Err() error { return context.Cause(l.ctx) }

// Wait returns when the link is broken and all its goroutines have ended.
func (l *Link) Wait() { l.work.Wait() }

// Close breaks the link and returns when all its goroutines have ended.
func (l *Link) Close() {
	l.Break()
	l.work.Wait()
}

// Break breaks the link and does not wait. A frame that has arrived may still be passed on.
func (l *Link) Break() { l.fail(net.ErrClosed) }
