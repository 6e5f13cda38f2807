package causal

import (
	"context"
	"encoding/binary"
	"slices"
	"time"

	"github.com/freshet-cache/freshet/causal/mesh"
)

// Conn is one side of an ordered connection between two servers.
type Conn interface {
	// Send sends a frame. Frames arrive in order, each once, until the connection
	// breaks; it must not block. An error means that it is broken, or shall be.
	Send(frame []byte) error
	// Done is closed when the connection is broken: nothing arrives any more.
	Done() <-chan struct{}
	// Break ends the connection and does not wait. It may be called at any time.
	Break()
}

// ring is the connections of a server: out to its successor, in from its predecessor.
// What each is used for is up to the machine, which names whom it sends to.
type ring struct {
	next, back mesh.Origin
	out, in    *stream
}

// stream is a connection and what its two directions remember.
type stream struct {
	conn     Conn
	enc, dec mesh.Stream
}

// send sends a message on the connection it belongs to. Greetings go back, everything
// else goes on; what there is no connection for is lost, and sent again when there is.
func (r *ring) send(out mesh.Send) {
	c := r.out
	if _, back := out.Message.(mesh.Greeting); back {
		c = r.in
	}
	if c == nil {
		return
	}
	if err := c.conn.Send(c.enc.Append(nil, out.Message)); err != nil {
		c.conn.Break() // what follows would not be in order; Done is heard of, and all that was lost is sent again
	}
}

// successor is who follows in the ring, if there is anybody.
func (s *Server) successor() (Member, bool) {
	all := s.opt.View.Ring
	i := slices.IndexFunc(all, func(m Member) bool { return m.Origin == s.opt.Self })
	next, back := all[(i+1)%len(all)], all[(i+len(all)-1)%len(all)]
	s.ring.next, s.ring.back = mesh.Origin(next.Origin), mesh.Origin(back.Origin)
	return next, len(all) > 1
}

// A connection begins with a frame of whoever opened it: which view it knows, and who it
// is.
func hello(view uint64, self uint32) []byte {
	return binary.AppendUvarint(binary.AppendUvarint([]byte{helloVersion}, view), uint64(self))
}

const helloVersion = 1

func readHello(b []byte) (view uint64, from mesh.Origin, ok bool) {
	if len(b) < 3 || b[0] != helloVersion {
		return 0, 0, false
	}
	view, n := binary.Uvarint(b[1:])
	if n <= 0 {
		return 0, 0, false
	}
	o, m := binary.Uvarint(b[1+n:])
	return view, mesh.Origin(o), m > 0 && 1+n+m == len(b) && o == uint64(mesh.Origin(o))
}

const (
	redialFirst = 2 * time.Millisecond
	redialMost  = 500 * time.Millisecond
)

// keepConnected keeps a connection to the successor until the server closes.
func (s *Server) keepConnected(next Member) {
	wait := redialFirst
	for s.ctx.Err() == nil {
		began := time.Now()
		s.connect(next)
		if time.Since(began) > redialMost {
			wait = redialFirst
		}
		t := time.NewTimer(wait)
		wait = min(2*wait, redialMost)
		select {
		case <-t.C:
		case <-s.ctx.Done():
		}
		t.Stop()
	}
}

// connect opens a connection and returns when it is broken.
func (s *Server) connect(next Member) {
	ctx, cancel := context.WithTimeout(s.ctx, s.opt.Timeout)
	defer cancel()
	c := &stream{}
	known := make(chan struct{}) // until the connection is known nothing on it is taken
	conn, err := s.opt.Dial(ctx, next, func(frame []byte) {
		<-known
		s.arrived(c, frame)
	})
	if err != nil {
		close(known)
		s.opt.Logger.Debug("the next server of the ring cannot be reached", "addr", next.Addr, "err", err)
		return
	}
	defer conn.Break()
	c.conn = conn
	s.mu.Lock()
	closed := s.closed
	if !closed {
		s.ring.out = c
	}
	s.mu.Unlock()
	close(known)
	if closed || conn.Send(hello(s.opt.View.Number, s.opt.Self)) != nil {
		return
	}
	select {
	case <-conn.Done():
	case <-s.ctx.Done():
	}
	s.mu.Lock()
	if s.ring.out == c {
		s.ring.out = nil
	}
	asked := s.step(mesh.Broken{}, nil)
	s.mu.Unlock()
	s.spawn(asked)
}

// Accept takes a connection that another server has opened, and returns what takes the
// frames that arrive on it, one at a time and in order. The server closes it if it is of
// no use.
func (s *Server) Accept(conn Conn) (deliver func(frame []byte)) {
	c := &stream{conn: conn}
	greeted := false
	return func(frame []byte) {
		if greeted {
			s.arrived(c, frame)
			return
		}
		view, from, ok := readHello(frame)
		s.mu.Lock()
		if !ok || s.closed || view != s.opt.View.Number || from != s.ring.back {
			s.mu.Unlock()
			conn.Break() // it tries again, and when both know the same view it is taken
			return
		}
		old := s.ring.in
		greeted, s.ring.in = true, c
		asked := s.step(mesh.Opened{}, nil)
		s.mu.Unlock()
		if old != nil {
			old.conn.Break()
		}
		s.spawn(asked)
	}
}

// arrived takes a frame of a connection that is in use.
func (s *Server) arrived(c *stream, frame []byte) {
	s.mu.Lock()
	if s.closed || c != s.ring.out && c != s.ring.in {
		s.mu.Unlock()
		return
	}
	m, err := c.dec.Decode(frame)
	if err != nil {
		s.mu.Unlock()
		s.opt.Logger.Warn("a neighbour on the ring sent what cannot be read; the connection is opened anew", "err", err)
		c.conn.Break()
		return
	}
	asked := s.step(mesh.Received{Message: m}, nil)
	s.mu.Unlock()
	s.spawn(asked)
}
