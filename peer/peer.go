// Package peer connects a node to the other nodes of a cluster, with one ordered link for each node
// and lane. It dials a link when a call needs it, and again after the link broke. Its errors
// distinguish a request that was not sent from one whose outcome is unknown.
//
// A node offers services to other nodes by name: see [Services].
package peer

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

	"github.com/freshet-cache/freshet/internal/drive"
	"github.com/freshet-cache/freshet/link"
	"github.com/freshet-cache/freshet/resp"
)

// ErrUnreached means that nothing was sent.
var ErrUnreached = errors.New("peer: the other node could not be reached; nothing was sent")

// Lane is one of the links between two nodes. Leases and messages of replicas have lanes of their
// own, so that they wait neither for requests that are being served nor for large values.
type Lane byte

// The lanes.
const (
	Control Lane = iota // leases, replicas, groups, owners that introduce themselves, questions about the cluster
	Tracked             // what is read for clients that track, and, in that order, what they are told of
	Reads               // other reads
	Writes              // other commands, transactions, entries that move
)

// Options configure Peers. Version, Message and Request are required.
type Options struct {
	Version  int    // of what nodes say to each other; other versions refuse the link
	Password string // of the other nodes, which is the same; empty if they have none
	Addr     string // where the others reach this node; empty if it is none
	TLS      *tls.Config
	MaxFrame int // default: that of package link
	// Message receives a message over a link that this node has opened. Request answers a request.
	// Each link delivers one message at a time.
	Message func(frame []byte)
	Request func(ctx context.Context, frame []byte) []byte
}

// target is the other end of a link.
type target struct {
	addr string
	lane Lane
}

// Peers holds the links that this node has opened, by address and lane. It dials a link when a call
// needs it, and again after it broke. All methods are safe for concurrent use.
type Peers struct {
	opt Options

	mu      sync.Mutex
	links   map[target]*dialled
	closed  bool
	parting []*link.Link   // to nodes that go, with answers still to come
	work    sync.WaitGroup // of send, in the background
}

// New returns Peers without any link.
func New(opt Options) *Peers { return &Peers{opt: opt, links: map[target]*dialled{}} }

// dialled is a link or the attempt to open one. Callers share it.
type dialled struct {
	ready chan struct{}
	link  *link.Link
	err   error
}

const (
	dialTimeout = 2 * time.Second
	redial      = 50 * time.Millisecond // between attempts to reach the assigner
)

// Link returns the link to addr in a lane.
func (p *Peers) Link(ctx context.Context, addr string, in Lane) (*link.Link, error) {
	key := target{addr, in}
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
		return nil, ErrUnreached
	}
	select {
	case <-d.ready:
	case <-ctx.Done():
		return nil, fmt.Errorf("%w: %w", ErrUnreached, context.Cause(ctx))
	}
	if d.err != nil {
		return nil, fmt.Errorf("%w: %w", ErrUnreached, d.err)
	}
	return d.link, nil
}

// retire removes broken links, so that links to nodes that have gone do not stay for ever. It keeps
// a link over which answers are still to come.
func (p *Peers) retire() {
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

// failed reports whether the link must be dialled again.
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
func (p *Peers) dial(addr string) (*link.Link, error) {
	nc, r, err := p.open(addr, "")
	if err != nil {
		return nil, err
	}
	return link.New(nc, r, link.Options{MaxFrame: p.opt.MaxFrame, Message: p.opt.Message, Request: p.opt.Request}), nil
}

// open opens a connection as any client does, and turns it into a link, or into a stream if name is
// not empty.
func (p *Peers) open(addr, stream string) (net.Conn, *bufio.Reader, error) {
	ctx, cancel := context.WithTimeout(context.Background(), dialTimeout)
	defer cancel()
	var nc net.Conn
	var err error
	if p.opt.TLS != nil {
		d := tls.Dialer{Config: p.opt.TLS}
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
	if p.opt.Password != "" {
		err = ask(nc, r, "AUTH", p.opt.Password)
	}
	if err == nil {
		args := []string{"FR.LINK", fmt.Sprint(p.opt.Version), p.opt.Addr}
		switch {
		case stream != "":
			args = append(args, stream)
		case p.opt.Addr == "":
			args = args[:2]
		}
		err = ask(nc, r, args...)
	}
	if err != nil {
		nc.Close()
		return nil, nil, err
	}
	_ = nc.SetDeadline(time.Time{})
	return nc, r, nil
}

// ask sends one command and expects OK.
func ask(nc net.Conn, r *bufio.Reader, args ...string) error {
	if _, err := nc.Write(resp.AppendCommand(nil, args...)); err != nil {
		return err
	}
	reply, err := resp.ReadReply(r)
	if err != nil {
		return err
	}
	if reply.Kind != '+' || reply.Text != "OK" {
		return fmt.Errorf("peer: %s was answered with %v", args[0], reply)
	}
	return nil
}

// Call sends a request to addr and waits for its answer. ErrUnreached means that nothing was done;
// after any other error the outcome is unknown.
func (p *Peers) Call(ctx context.Context, addr string, in Lane, frame []byte) ([]byte, error) {
	l, err := p.Link(ctx, addr, in)
	if err != nil {
		return nil, err
	}
	return Over(ctx, l, frame)
}

// Over is Call over a given link.
func Over(ctx context.Context, l *link.Link, frame []byte) ([]byte, error) {
	b, err := l.Call(ctx, frame)
	if errors.Is(err, link.ErrFull) || errors.Is(err, link.ErrRefused) {
		return nil, fmt.Errorf("%w: %w", ErrUnreached, err)
	}
	return b, err
}

// silence is how long a read waits for a node from which nothing arrives.
const silence = 100 * time.Millisecond

// CallHeard is Call in the lane of reads, for requests that the store can answer too. It does not
// wait for a node that stands still.
func (p *Peers) CallHeard(ctx context.Context, addr string, frame []byte) ([]byte, error) {
	l, err := p.Link(ctx, addr, Reads)
	if err != nil {
		return nil, err
	}
	return l.CallHeard(ctx, frame, silence)
}

// Insist is Call in the lane of control, for requests that may be repeated. It repeats the request
// when the link breaks. If lives is true, it also repeats it when the node cannot be reached. It
// ends with ctx.
func (p *Peers) Insist(ctx context.Context, addr string, frame []byte, lives bool) ([]byte, error) {
	for {
		b, err := p.Call(ctx, addr, Control, frame)
		if err == nil || ctx.Err() != nil || errors.Is(err, ErrUnreached) && !lives || p.Closed() {
			return b, err
		}
		drive.Pause(ctx, insistPause)
	}
}

const insistPause = 5 * time.Millisecond

// Send sends a message if a link is open. Otherwise it dials one, and the message is lost. Then it
// calls again with true when the link is open, and with false when the link breaks.
func (p *Peers) Send(addr string, frame []byte, again func(stands bool)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	d := p.links[target{addr, Control}]
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
			l, err := p.Link(ctx, addr, Control)
			if err != nil {
				if p.Closed() {
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

// Tell sends a message if a link is open. Otherwise it dials one, and the message is lost.
func (p *Peers) Tell(addr string, frame []byte) {
	p.mu.Lock()
	d := p.links[target{addr, Control}]
	closed := p.closed
	p.mu.Unlock()
	switch {
	case closed:
	case d == nil || d.failed():
		ctx, cancel := context.WithCancel(context.Background())
		cancel() // nobody waits for it
		_, _ = p.Link(ctx, addr, Control)
	case d.up():
		_ = d.link.Send(frame)
	}
}

// Closed reports whether the links are closed for good.
func (p *Peers) Closed() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.closed
}

// up reports whether the attempt to dial has ended.
func (d *dialled) up() bool {
	select {
	case <-d.ready:
		return true
	default:
		return false
	}
}

// Drain announces to the nodes at the other ends of the lanes Control and Tracked that this node
// stops. Messages that were sent before arrive first.
func (p *Peers) Drain(ctx context.Context) {
	p.mu.Lock()
	var all []*link.Link
	for key, d := range p.links {
		if key.lane <= Tracked && d.up() && d.link != nil {
			all = append(all, d.link)
		}
	}
	p.mu.Unlock()
	Drain(ctx, all)
}

// Drain drains links concurrently.
func Drain(ctx context.Context, all []*link.Link) {
	var wg sync.WaitGroup
	for _, l := range all {
		wg.Go(func() { l.Drain(ctx) })
	}
	wg.Wait()
}

// Close breaks every link.
func (p *Peers) Close() {
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

// Stands reports whether a link to addr in a lane is open and takes requests.
func (p *Peers) Stands(addr string, in Lane) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	d := p.links[target{addr, in}]
	return d != nil && d.up() && !d.failed()
}

// Use makes requests to addr in a lane take the link l, until it breaks. It is for tests that
// replace the other node.
func (p *Peers) Use(addr string, in Lane, l *link.Link) {
	d := &dialled{ready: make(chan struct{}), link: l}
	close(d.ready)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.links[target{addr, in}] = d
}
