package peer

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"math"
	"net"
	"sync"

	"github.com/freshet-cache/freshet/internal/packed"
	"github.com/freshet-cache/freshet/link"
)

// ErrRefused means that the other node did nothing. The error says why.
var ErrRefused = errors.New("peer: the other node refused; nothing was done")

// Named is the second byte of a request to a service, after the version. The name of the service
// and the request follow it.
const Named byte = 'V'

// Service answers the requests of other nodes. An error means that nothing was done.
type Service func(ctx context.Context, request []byte) ([]byte, error)

// Stream receives a link that another node has opened for one purpose. It returns the function that
// receives the frames of the link, one at a time and in order.
type Stream func(l *link.Link) (deliver func(frame []byte))

// Services holds the services of a node by name. The zero value has none. All methods are safe for
// concurrent use.
type Services struct {
	mu       sync.RWMutex
	services map[string]Service
	streams  map[string]Stream
}

// Offer registers a service under a name. It reports false if the name is taken.
func (s *Services) Offer(name string, f Service) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.services[name] != nil {
		return false
	}
	if s.services == nil {
		s.services = map[string]Service{}
	}
	s.services[name] = f
	return true
}

// OfferStream registers a stream under a name. It replaces an earlier one.
func (s *Services) OfferStream(name string, f Stream) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.streams == nil {
		s.streams = map[string]Stream{}
	}
	s.streams[name] = f
}

const (
	served  byte = iota // the answer follows
	refused byte = 2    // nothing was done, and a text follows
)

// Answer answers a request to a service. request lacks the first two bytes.
func (s *Services) Answer(ctx context.Context, request []byte) []byte {
	r := packed.Read(request)
	name, body := r.Text(), r.Rest()
	if r.Bad() {
		return append([]byte{refused}, "the name of a service cannot be read; run one version of freshet on all nodes"...)
	}
	s.mu.RLock()
	f := s.services[name]
	s.mu.RUnlock()
	if f == nil {
		return append([]byte{refused}, fmt.Sprintf("%.110q is not open at this node; open it in every process of the cluster", name)...)
	}
	b, err := f(ctx, body)
	if err != nil {
		return append([]byte{refused}, err.Error()...)
	}
	return append([]byte{served}, b...)
}

// Ask sends a request to a service of another node and waits for its answer. ErrUnreached and
// ErrRefused mean that nothing was done; after any other error the outcome is unknown.
func (p *Peers) Ask(ctx context.Context, addr string, in Lane, service string, request []byte) ([]byte, error) {
	frame := packed.AppendString([]byte{byte(p.opt.Version), Named}, service)
	b, err := p.Call(ctx, addr, in, append(frame, request...))
	switch {
	case err != nil:
		return nil, err
	case len(b) > 0 && b[0] == served:
		return b[1:], nil
	case len(b) > 0 && b[0] == refused:
		return nil, fmt.Errorf("%w: %s: %s", ErrRefused, addr, b[1:])
	}
	return nil, fmt.Errorf("peer: the answer of %s cannot be read; run one version of freshet on all nodes", addr)
}

// streamQueue bounds the bytes that wait to be sent over a stream. A user of a stream bounds what
// it sends below that: a frame that did not fit would be sent again and would not fit again.
const streamQueue = math.MaxInt

// Stream opens a link for one purpose. No other traffic delays its frames.
func (p *Peers) Stream(addr, name string, deliver func(frame []byte)) (*link.Link, error) {
	nc, r, err := p.open(addr, name)
	if err != nil {
		return nil, err
	}
	return link.New(nc, r, link.Options{MaxFrame: p.opt.MaxFrame, MaxQueue: streamQueue, Message: deliver}), nil
}

// Accept returns the function that serves a stream which another node has opened, until it breaks;
// nil if no stream has this name.
func (s *Services) Accept(name string, maxFrame int) func(nc net.Conn, r *bufio.Reader) {
	s.mu.RLock()
	f := s.streams[name]
	s.mu.RUnlock()
	if f == nil {
		return nil
	}
	return func(nc net.Conn, r *bufio.Reader) {
		var deliver func([]byte)
		made := make(chan struct{})
		l := link.New(nc, r, link.Options{MaxFrame: maxFrame, MaxQueue: streamQueue, Message: func(frame []byte) {
			<-made
			deliver(frame)
		}})
		deliver = f(l)
		close(made)
		<-l.Done()
		l.Wait()
	}
}
