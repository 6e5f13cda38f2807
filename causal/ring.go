package causal

import (
	"context"
	"encoding/binary"
	"slices"
	"sync"
	"time"

	"github.com/freshet-cache/freshet/causal/mesh"
	"github.com/freshet-cache/freshet/causal/wire"
	"github.com/freshet-cache/freshet/internal/drive"
)

// Conn is one side of an ordered connection between two servers.
type Conn interface {
	// Send sends a frame, and must not block. Frames arrive in order, each once, until the
	// connection breaks. After an error the caller must break the connection.
	Send(frame []byte) error
	// Done is closed when the connection is broken. Nothing arrives after that.
	Done() <-chan struct{}
	// Break ends the connection and does not wait. It may be called at any time.
	Break()
}

// ring has the connections of a server in its view: out to its successor, in from its predecessor.
type ring struct {
	out, in *stream
	more    bool // another step follows under the same lock
	added   bool // a message waits to be sent
}

// stream is a connection, and the state of its two directions.
type stream struct {
	conn     Conn
	enc, dec wire.Stream
	got      []mesh.Message // memory for the messages of a frame that arrives
	parts    []byte         // of a frame whose last part has not arrived

	wake  chan struct{} // a message waits to be sent
	mu    sync.Mutex
	full  [][]byte // frames that wait
	frame []byte   // the last of them, to which messages are added
	count int      // messages in it
	usual int      // bytes in a frame
}

// Bounds of a frame. A frame that is longer nevertheless, such as a snapshot with many writes, is
// sent in parts.
const (
	frameBytes = 64 << 10
	frameCount = 256
	partBytes  = 1 << 20
)

// largestWrite is larger than any command that a node accepts, and than the default of
// Options.WindowBytes.
const largestWrite = 1 << 30

// send sends a message on its connection. A Resync goes to the predecessor at once. Every other
// message goes to the successor, together with the other messages that wait. A message without a
// connection is lost, and sent again when there is one.
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

// flush wakes the sender if a message was added under this lock.
func (r *ring) flush() {
	if !r.added || r.more {
		return
	}
	r.added = false
	select {
	case r.out.wake <- struct{}{}:
	default: // a wake-up is pending already
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

// sendAll sends the frames that wait. Messages that come meanwhile form the next frame.
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
		// The frames that follow would not be in order. When Done is closed, the server connects
		// anew and sends again what was lost.
		c.conn.Break()
	}
}

// whole returns a frame, put together from its parts. It reports false if parts are missing. The
// parts of a frame have at most limit bytes together.
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
	frameHello    byte = 'h' // the first on a connection: which incarnation has opened it, in which view
	frameAsk      byte = 'a' // the successor has no state yet, and asks for it
	frameMessages byte = 'm' // messages of package mesh, one or more
	framePart     byte = 'p' // a part of a frame, and not the last one
	frameLast     byte = 'l' // the last part of a frame
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

// neighbours returns the successor and the predecessor in the ring. ok is false if the server is
// alone in the ring, or not in it.
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

// keepConnected keeps a connection to the successor, until the server closes.
func (s *Server) keepConnected() {
	wait := drive.Backoff{First: redialFirst, Most: redialMost}
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
				wait.Reset()
			}
			again = time.After(wait.Next())
		}
		select {
		case <-again:
		case <-changed:
			wait.Reset()
		case <-s.ctx.Done():
		}
	}
}

// connect opens a connection to the successor, and returns when it is broken.
func (s *Server) connect(next RingServer, view uint64) {
	ctx, cancel := context.WithTimeout(s.ctx, s.opt.Timeout)
	defer cancel()
	c := &stream{wake: make(chan struct{}, 1)}
	known := make(chan struct{}) // no frame is taken before the connection is in c
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
	if s.ring.out == c { // otherwise Enter has replaced it
		s.ring.out = nil
		asked = s.step(mesh.Broken{})
	}
	s.mu.Unlock()
	s.spawn(asked)
}

// carry sends what waits, until the connection is broken.
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

// Accept takes a connection that another server has opened. It returns the function that takes the
// frames of the connection, one at a time and in order. The server breaks the connection if it
// cannot use it.
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
			conn.Break() // the other server tries again; the connection is kept when both are in the same view
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

// longest bounds, in bytes, what another server may send at once. A snapshot has the writes under
// way of every server, each of which may exceed its window by one write.
func (s *Server) longest() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return (len(s.view.Ring) + len(s.view.Departed) + 1) * (s.opt.WindowBytes + largestWrite)
}

// take steps the messages of a frame. Messages that they cause to the successor are sent together.
func (s *Server) take(all []mesh.Message) (asked []mesh.Output) {
	s.ring.more = true
	for _, m := range all {
		snap, is := m.(mesh.Snapshot)
		switch {
		case is != (s.machine == nil): // only a server without a state takes a snapshot, and nothing else
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

// copied begins with the state of the predecessor.
func (s *Server) copied(snap mesh.Snapshot) []mesh.Output {
	if snap.View != s.view.Number { // the predecessor in the current view has to be asked
		return nil
	}
	s.begin(mesh.Options{Copy: &snap})
	s.change()
	return s.step(mesh.Opened{View: snap.View})
}
