package node

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"

	"github.com/freshet-cache/freshet/link"
	"github.com/freshet-cache/freshet/resp"
)

// errUnreached means that nothing was sent.
var errUnreached = errors.New("node: the other node could not be reached; nothing was sent")

// peers are the links this node has opened, by address. One is dialled when it
// is needed, and again when it broke.
type peers struct {
	password string
	self     string // where the others reach this node; empty if it is none
	tls      *tls.Config
	maxFrame int // 0: link's default
	message  func(frame []byte)
	request  func(ctx context.Context, frame []byte) []byte

	mu     sync.Mutex
	links  map[string]*dialled
	closed bool
	work   sync.WaitGroup // of send, in the background
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

// to returns the link to addr.
func (p *peers) to(ctx context.Context, addr string) (*link.Link, error) {
	p.mu.Lock()
	d := p.links[addr]
	if d != nil && d.failed() {
		d = nil
	}
	if d == nil && !p.closed {
		d = &dialled{ready: make(chan struct{})}
		p.links[addr] = d
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
		return false
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
		args := []string{"FR.LINK", fmt.Sprint(frameVersion), p.self}
		if p.self == "" && len(besides) == 0 {
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
	l, err := p.to(ctx, addr)
	if err != nil {
		return nil, err
	}
	b, err := l.Call(ctx, frame)
	if errors.Is(err, link.ErrFull) {
		return nil, fmt.Errorf("%w: %w", errUnreached, err)
	}
	return b, err
}

// silence is how long a read waits for a node of which nothing is heard.
const silence = 100 * time.Millisecond

// read is call for what the store can answer too: it does not wait for a node that
// stands still.
func (p *peers) read(ctx context.Context, addr string, frame []byte) ([]byte, error) {
	l, err := p.to(ctx, addr)
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
	d := p.links[addr]
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
			l, err := p.to(ctx, addr)
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
	d := p.links[addr]
	closed := p.closed
	p.mu.Unlock()
	switch {
	case closed:
	case d == nil || d.failed():
		ctx, cancel := context.WithCancel(context.Background())
		cancel() // nobody waits for it
		_, _ = p.to(ctx, addr)
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

// close breaks every link.
func (p *peers) close() {
	p.mu.Lock()
	p.closed = true
	links := p.links
	p.links = nil
	p.mu.Unlock()
	for _, d := range links {
		<-d.ready
		if d.link != nil {
			d.link.Close()
		}
	}
	p.work.Wait()
}
