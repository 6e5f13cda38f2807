package node

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"slices"
	"sync"
	"time"

	"github.com/freshet-cache/freshet/link"
	"github.com/freshet-cache/freshet/resp"
)

// errUnreached means that nothing was sent.
var errUnreached = errors.New("node: the other node could not be reached; nothing was sent")

// lane is one of the links between two nodes. What must not wait has a lane of its own:
// leases, and what replicas tell each other, neither wait for requests to be served nor
// behind large values.
type lane byte

const (
	laneControl lane = iota // leases, replicas, owners that introduce themselves, questions about the cluster
	laneTracked             // what is read for clients that track, and, in that order, what they are told of
	laneReads               // other reads
	laneWrites              // other commands, transactions, entries that move
)

// laneOf is the lane of a request.
func laneOf(frame []byte) lane {
	switch frame[1] {
	case frameRead, frameStamp:
		return laneReads
	case frameRun:
		if frame[3]&jobBy != 0 { // the owner knows by the link which client wrote
			return laneTracked
		}
		return laneWrites
	case frameSpace:
		return laneWrites
	}
	return laneControl
}

// peer is where a link goes.
type peer struct {
	addr string
	lane lane
}

// peers are the links this node has opened, by address and lane. One is dialled when it
// is needed, and again when it broke.
type peers struct {
	password string
	addr     string // where the others reach this node; empty if it is none
	tls      *tls.Config
	maxFrame int // 0: link's default
	message  func(frame []byte)
	request  func(ctx context.Context, frame []byte) []byte

	mu      sync.Mutex
	links   map[peer]*dialled
	closed  bool
	parting []*link.Link   // to nodes that go, with answers still to come
	work    sync.WaitGroup // of send, in the background
}

// dialled is a link, or the attempt to have one, which callers share.
type dialled struct {
	ready chan struct{}
	link  *link.Link
	err   error
}

const (
	dialTimeout = 2 * time.Second
	redial      = 50 * time.Millisecond // between attempts to reach the assigner
)

// to returns the link to addr in a lane.
func (p *peers) to(ctx context.Context, addr string, in lane) (*link.Link, error) {
	key := peer{addr, in}
	p.mu.Lock()
	d := p.links[key]
	if d != nil && d.failed() {
		d = nil
	}
	if d == nil && !p.closed {
		d = &dialled{ready: make(chan struct{})}
		p.retire()
		p.links[key] = d
		go func() {
			d.link, d.err = p.dial(addr)
			close(d.ready)
		}()
	}
	p.mu.Unlock()
	if d == nil {
		return nil, errUnreached
	}
	select {
	case <-d.ready:
	case <-ctx.Done():
		return nil, fmt.Errorf("%w: %w", errUnreached, context.Cause(ctx))
	}
	if d.err != nil {
		return nil, fmt.Errorf("%w: %w", errUnreached, d.err)
	}
	return d.link, nil
}

// retire forgets the links that must be dialled anew, so that those of nodes that have
// gone are not kept for ever; where answers are still to come, the link stands.
func (p *peers) retire() {
	p.parting = slices.DeleteFunc(p.parting, func(l *link.Link) bool { return l.Err() != nil })
	for key, d := range p.links {
		if !d.failed() {
			continue
		}
		delete(p.links, key)
		if d.link != nil && d.link.Err() == nil {
			p.parting = append(p.parting, d.link)
		}
	}
}

// failed reports whether the link must be dialled anew.
func (d *dialled) failed() bool {
	select {
	case <-d.ready:
	default:
		return false
	}
	if d.err != nil {
		return true
	}
	select {
	case <-d.link.Done():
		return true
	default:
		return d.link.Goes()
	}
}

// dial opens a link.
func (p *peers) dial(addr string) (*link.Link, error) {
	nc, r, err := p.open(addr)
	if err != nil {
		return nil, err
	}
	return link.New(nc, r, link.Options{MaxFrame: p.maxFrame, Message: p.message, Request: p.request}), nil
}

// open opens a connection as any client would, and has the other side take it for a link,
// for what is said besides.
func (p *peers) open(addr string, besides ...string) (net.Conn, *bufio.Reader, error) {
	ctx, cancel := context.WithTimeout(context.Background(), dialTimeout)
	defer cancel()
	var nc net.Conn
	var err error
	if p.tls != nil {
		d := tls.Dialer{Config: p.tls}
		nc, err = d.DialContext(ctx, "tcp", addr)
	} else {
		var d net.Dialer
		nc, err = d.DialContext(ctx, "tcp", addr)
	}
	if err != nil {
		return nil, nil, err
	}
	_ = nc.SetDeadline(time.Now().Add(dialTimeout))
	r := bufio.NewReaderSize(nc, 64<<10)
	if p.password != "" {
		err = ask(nc, r, "AUTH", p.password)
	}
	if err == nil {
		args := []string{"FR.LINK", fmt.Sprint(frameVersion), p.addr}
		if p.addr == "" && len(besides) == 0 {
			args = args[:2]
		}
		err = ask(nc, r, append(args, besides...)...)
	}
	if err != nil {
		nc.Close()
		return nil, nil, err
	}
	_ = nc.SetDeadline(time.Time{})
	return nc, r, nil
}

// ask sends one command and wants OK.
func ask(nc net.Conn, r *bufio.Reader, args ...string) error {
	if _, err := nc.Write(resp.AppendCommand(nil, args...)); err != nil {
		return err
	}
	reply, err := resp.ReadReply(r)
	if err != nil {
		return err
	}
	if reply.Kind != '+' || reply.Text != "OK" {
		return fmt.Errorf("node: %s was answered with %v", args[0], reply)
	}
	return nil
}

// call sends a request to addr and waits for its answer. errUnreached means that
// nothing was done; any other error that it is unknown.
func (p *peers) call(ctx context.Context, addr string, frame []byte) ([]byte, error) {
	l, err := p.to(ctx, addr, laneOf(frame))
	if err != nil {
		return nil, err
	}
	return over(ctx, l, frame)
}

// over calls over a link.
func over(ctx context.Context, l *link.Link, frame []byte) ([]byte, error) {
	b, err := l.Call(ctx, frame)
	if errors.Is(err, link.ErrFull) || errors.Is(err, link.ErrRefused) {
		return nil, fmt.Errorf("%w: %w", errUnreached, err)
	}
	return b, err
}

// silence is how long a read waits for a node of which nothing is heard.
const silence = 100 * time.Millisecond

// read is call for what the store can answer too: it does not wait for a node that
// stands still.
func (p *peers) read(ctx context.Context, addr string, frame []byte) ([]byte, error) {
	l, err := p.to(ctx, addr, laneReads)
	if err != nil {
		return nil, err
	}
	return l.CallHeard(ctx, frame, silence)
}

// send sends a message if a link stands; else it dials one and the message is
// lost, which messages may be. Then again is called as soon as the link stands, and
// when it breaks.
func (p *peers) send(addr string, frame []byte, again func(stands bool)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	d := p.links[peer{addr, laneControl}]
	switch {
	case p.closed:
		return
	case d == nil || d.failed():
	case d.up():
		_ = d.link.Send(frame)
		return
	default: // whoever began to dial it is called
		return
	}
	p.work.Go(func() {
		ctx, cancel := context.WithTimeout(context.Background(), dialTimeout)
		defer cancel()
		tick := time.NewTicker(redial)
		defer tick.Stop()
		for ctx.Err() == nil {
			l, err := p.to(ctx, addr, laneControl)
			if err != nil {
				if p.over() {
					return
				}
				<-tick.C
				continue
			}
			again(true)
			<-l.Done() // and once more when it breaks: whoever is there may come back at once
			again(false)
			return
		}
	})
}

// tell sends a message if a link stands; else it dials one, and the message is lost.
func (p *peers) tell(addr string, frame []byte) {
	p.mu.Lock()
	d := p.links[peer{addr, laneControl}]
	closed := p.closed
	p.mu.Unlock()
	switch {
	case closed:
	case d == nil || d.failed():
		ctx, cancel := context.WithCancel(context.Background())
		cancel() // nobody waits for it
		_, _ = p.to(ctx, addr, laneControl)
	case d.up():
		_ = d.link.Send(frame)
	}
}

// over reports whether the links are closed for good.
func (p *peers) over() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.closed
}

// up reports whether the attempt to dial is over.
func (d *dialled) up() bool {
	select {
	case <-d.ready:
		return true
	default:
		return false
	}
}

// drain tells the nodes that tell this one's clients of writes, and the assigner, that it
// goes; what was sent to them before arrives first.
func (p *peers) drain(ctx context.Context) {
	p.mu.Lock()
	var all []*link.Link
	for key, d := range p.links {
		if key.lane <= laneTracked && d.up() && d.link != nil {
			all = append(all, d.link)
		}
	}
	p.mu.Unlock()
	drained(ctx, all)
}

// drained drains links, all at the same time.
func drained(ctx context.Context, all []*link.Link) {
	var wg sync.WaitGroup
	for _, l := range all {
		wg.Go(func() { l.Drain(ctx) })
	}
	wg.Wait()
}

// close breaks every link.
func (p *peers) close() {
	p.mu.Lock()
	p.closed = true
	links, parting := p.links, p.parting
	p.links, p.parting = nil, nil
	p.mu.Unlock()
	for _, l := range parting {
		l.Close()
	}
	for _, d := range links {
		<-d.ready
		if d.link != nil {
			d.link.Close()
		}
	}
	p.work.Wait()
}
