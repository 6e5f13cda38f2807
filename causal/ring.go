package causal

import (
	"context"
	"encoding/binary"
	"slices"
	"sync"
	"time"

	"github.com/freshet-cache/freshet/causal/mesh"
	"github.com/freshet-cache/freshet/causal/wire"
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

// ring is the connections of a server in its view: out to its successor, in from its
// predecessor.
type ring struct {
	out, in *stream
	more    bool // another step follows under the same lock
	added   bool // something that waits to be sent
}

// stream is a connection and what its two directions remember.
type stream struct {
	conn     Conn
	enc, dec wire.Stream
	got      []mesh.Message // memory for who takes what arrives
	parts    []byte         // of a frame whose last part has not arrived

	wake  chan struct{} // something waits to be sent
	mu    sync.Mutex
	full  [][]byte // frames that wait
	frame []byte   // the last of them, to which more is added
	count int      // messages in it
	usual int      // bytes in a frame
}

// What ends a frame. One that is longer all the same, as a snapshot with many writes is,
// goes in parts.
const (
	frameBytes = 64 << 10
	frameCount = 256
	partBytes  = 1 << 20
)

// largestWrite is more than any command brings that a node takes, and than the default of
// Options.WindowBytes.
const largestWrite = 1 << 30

// send sends a message on the connection it belongs to. Resyncs go back at once, everything
// else goes on, together with what else waits when its turn comes; what there is no
// connection for is lost, and sent again when there is.
func (r *ring) send(out mesh.Send) {
	_, back := out.Message.(mesh.Resync)
	switch {
	case back && r.in != nil:
		r.in.send(r.in.enc.AppendPart([]byte{frameMessages}, out.Message))
	case !back && r.out != nil:
		r.out.add(out.Message)
		r.added = true
	}
}

// flush has what was added under this lock sent.
func (r *ring) flush() {
	if !r.added || r.more {
		return
	}
	r.added = false
	select {
	case r.out.wake <- struct{}{}:
	default: // it is about to be
	}
}

// add puts a message behind all others that wait (M6).
func (c *stream) add(m mesh.Message) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.frame == nil {
		c.frame = append(make([]byte, 0, max(c.usual, 256)), frameMessages)
	}
	c.frame = c.enc.AppendPart(c.frame, m)
	if c.count++; c.count == frameCount || len(c.frame) >= frameBytes {
		c.full, c.frame, c.count = append(c.full, c.frame), nil, 0
	}
}

// sendAll sends what waits. Meanwhile more comes together.
func (c *stream) sendAll() {
	c.mu.Lock()
	frames := c.full
	if c.frame != nil {
		frames = append(frames, c.frame)
		c.usual = (7*c.usual + len(c.frame)) / 8
	}
	c.full, c.frame, c.count = nil, nil, 0
	c.mu.Unlock()
	for _, f := range frames {
		c.send(f)
	}
}

func (c *stream) send(frame []byte) {
	var err error
	if len(frame) > partBytes+frameBytes {
		for ; len(frame) > partBytes && err == nil; frame = frame[partBytes:] {
			err = c.conn.Send(append([]byte{framePart}, frame[:partBytes]...))
		}
		frame = append([]byte{frameLast}, frame...)
	}
	if err == nil {
		err = c.conn.Send(frame)
	}
	if err != nil {
		c.conn.Break() // what follows would not be in order; Done is heard of, and all that was lost is sent again
	}
}

// whole returns a frame, or the parts that came before it and its last one, if no more of it
// is to come. Parts have at most limit bytes together.
func (c *stream) whole(frame []byte, limit func() int) (all []byte, ok bool, err error) {
	part, last := len(frame) > 0 && frame[0] == framePart, len(frame) > 0 && frame[0] == frameLast
	switch {
	case !part && !last && len(c.parts) == 0:
		return frame, true, nil
	case !part && !last, len(c.parts)+len(frame) > limit():
		return nil, false, wire.ErrFormat
	}
	c.parts = append(c.parts, frame[1:]...)
	if part {
		return nil, false, nil
	}
	all, c.parts = c.parts, nil
	return all, true, nil
}

// The first byte of a frame.
const (
	frameHello    byte = 'h' // the first on a connection: who has opened it, in which view
	frameAsk      byte = 'a' // who was connected to has no state yet
	frameMessages byte = 'm' // of package mesh, one or more
	framePart     byte = 'p' // bytes of a frame of which more follow
	frameLast     byte = 'l' // the last bytes of a frame that went in parts
)

const helloVersion = 3

func hello(view uint64, self uint32) []byte {
	return binary.AppendUvarint(binary.AppendUvarint([]byte{frameHello, helloVersion}, view), uint64(self))
}

func readHello(b []byte) (view uint64, from uint32, ok bool) {
	if len(b) < 4 || b[0] != frameHello || b[1] != helloVersion {
		return 0, 0, false
	}
	view, n := binary.Uvarint(b[2:])
	if n <= 0 {
		return 0, 0, false
	}
	o, m := binary.Uvarint(b[2+n:])
	return view, uint32(o), m > 0 && 2+n+m == len(b) && o == uint64(uint32(o))
}

// neighbours are who follows in the ring, and who goes before; none if the server is alone
// in it, or not in it.
func (s *Server) neighbours() (next, back RingServer, ok bool) {
	all := s.view.Ring
	i := slices.IndexFunc(all, func(m RingServer) bool { return m.Incarnation == s.opt.Incarnation })
	if i < 0 || len(all) < 2 {
		return next, back, false
	}
	return all[(i+1)%len(all)], all[(i+len(all)-1)%len(all)], true
}

const (
	redialFirst = 2 * time.Millisecond
	redialMost  = 500 * time.Millisecond
)

// keepConnected keeps a connection to whoever follows in the ring, until the server closes.
func (s *Server) keepConnected() {
	wait := redialFirst
	for s.ctx.Err() == nil {
		s.mu.Lock()
		next, _, ok := s.neighbours()
		view, changed := s.view.Number, s.changed
		ok = ok && s.machine != nil
		s.mu.Unlock()
		var again <-chan time.Time
		if ok {
			began := time.Now()
			s.connect(next, view)
			if time.Since(began) > redialMost {
				wait = redialFirst
			}
			again = time.After(wait)
			wait = min(2*wait, redialMost)
		}
		select {
		case <-again:
		case <-changed:
			wait = redialFirst
		case <-s.ctx.Done():
		}
	}
}

// connect opens a connection and returns when it is broken.
func (s *Server) connect(next RingServer, view uint64) {
	ctx, cancel := context.WithTimeout(s.ctx, s.opt.Timeout)
	defer cancel()
	c := &stream{wake: make(chan struct{}, 1)}
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
	current := !s.closed && s.view.Number == view
	if current {
		s.ring.out = c
		c.send(hello(view, s.opt.Incarnation))
	}
	s.mu.Unlock()
	close(known)
	if !current {
		return
	}
	s.carry(c)
	var asked []mesh.Output
	s.mu.Lock()
	if s.ring.out == c { // else another view has said so
		s.ring.out = nil
		asked = s.step(mesh.Broken{})
	}
	s.mu.Unlock()
	s.spawn(asked)
}

// carry sends what waits whenever something does, until the connection is broken.
func (s *Server) carry(c *stream) {
	for {
		select {
		case <-c.wake:
			c.sendAll()
		case <-c.conn.Done():
			return
		case <-s.ctx.Done():
			return
		}
	}
}

// Accept takes a connection that another server has opened, and returns what takes the
// frames that arrive on it, one at a time and in order. The server breaks it if it is of
// no use.
func (s *Server) Accept(conn Conn) (deliver func(frame []byte)) {
	c := &stream{conn: conn}
	known := false
	return func(frame []byte) {
		if known {
			s.arrived(c, frame)
			return
		}
		view, from, ok := readHello(frame)
		s.mu.Lock()
		_, back, member := s.neighbours()
		if !ok || s.closed || !member || view != s.view.Number || from != back.Incarnation {
			s.mu.Unlock()
			conn.Break() // it tries again, and when both know the same view it is taken
			return
		}
		old := s.ring.in
		known, s.ring.in = true, c
		var asked []mesh.Output
		if s.machine == nil {
			c.send([]byte{frameAsk})
		} else {
			asked = s.step(mesh.Opened{View: view})
		}
		s.mu.Unlock()
		if old != nil {
			old.conn.Break()
		}
		s.spawn(asked)
	}
}

// arrived takes a frame of a connection that is in use.
func (s *Server) arrived(c *stream, frame []byte) {
	frame, ok, err := c.whole(frame, s.longest)
	if !ok && err == nil {
		return
	}
	ask := len(frame) == 1 && frame[0] == frameAsk
	switch {
	case err != nil, ask:
	case len(frame) == 0 || frame[0] != frameMessages:
		err = wire.ErrFormat
	default:
		c.got, err = c.dec.DecodeFrame(frame[1:], c.got[:0])
	}
	s.mu.Lock()
	if s.closed || c != s.ring.out && c != s.ring.in {
		s.mu.Unlock()
		return
	}
	var asked []mesh.Output
	switch {
	case ask && c == s.ring.out && s.machine != nil:
		asked = s.step(mesh.Asked{View: s.view.Number})
	case ask:
		err = wire.ErrFormat
	case err == nil:
		asked = s.take(c.got)
	}
	s.mu.Unlock()
	clear(c.got)
	if err != nil {
		s.opt.Logger.Warn("a neighbour on the ring sent what cannot be read; the connection is opened anew", "err", err)
		c.conn.Break()
	}
	s.spawn(asked)
}

// longest is the most that another server may say at once: a snapshot has the writes under
// way of every server, each of which may exceed its window by one write.
func (s *Server) longest() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return (len(s.view.Ring) + len(s.view.Departed) + 1) * (s.opt.WindowBytes + largestWrite)
}

// take steps the messages of a frame. What they have to say to the successor goes together.
func (s *Server) take(all []mesh.Message) (asked []mesh.Output) {
	s.ring.more = true
	for _, m := range all {
		snap, is := m.(mesh.Snapshot)
		switch {
		case is != (s.machine == nil): // of another time
		case is:
			asked = append(asked, s.copied(snap)...)
		default:
			asked = append(asked, s.step(mesh.Received{Message: m})...)
		}
	}
	s.ring.more = false
	s.ring.flush()
	return asked
}

// copied begins with what the predecessor has.
func (s *Server) copied(snap mesh.Snapshot) []mesh.Output {
	if snap.View != s.view.Number { // another has to be asked
		return nil
	}
	s.begin(mesh.Options{Copy: &snap})
	s.change()
	return s.step(mesh.Opened{View: snap.View})
}
