// Package resp serves the Redis protocol: RESP2, RESP3 and inline. A [Handler] runs the data
// commands. The commands of a connection are answered in order. A malformed or slow client neither
// ends the connection of another one nor takes more memory than the limits.
//
// The parser is our own: redcon is available only at v1.6.2 and supports little of RESP3, and
// parsing is the hot path. Once the buffers of a connection have grown, reading a command and
// writing its reply allocate nothing.
package resp

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"net"
	"slices"
	"time"
)

// NewServer returns a server; call Serve.
func NewServer(h Handler, o Options) *Server {
	o.defaults()
	s := &Server{opt: o, h: h, table: map[string]*Command{}, conns: map[int64]*Conn{}, taken: map[*Conn]bool{}, listener: map[net.Listener]bool{}}
	s.tracker, _ = h.(Tracker)
	for _, list := range [][]Command{connectionCommands, pushCommands, o.Commands} {
		for i := range list {
			s.table[list[i].Name] = &list[i]
		}
	}
	for name := range s.table {
		s.names = append(s.names, name)
	}
	slices.Sort(s.names)
	return s
}

// Serve accepts connections until Shutdown or Close, then returns ErrClosed.
func (s *Server) Serve(l net.Listener) error {
	s.mu.Lock()
	s.listener[l] = true
	closing := s.closing.Load()
	s.mu.Unlock()
	defer l.Close()
	if closing {
		return ErrClosed
	}
	wait := time.Millisecond
	for {
		nc, err := l.Accept()
		if s.closing.Load() {
			if err == nil {
				nc.Close()
			}
			return ErrClosed
		}
		var ne net.Error
		if errors.As(err, &ne) && !errors.Is(err, net.ErrClosed) { // for example: the process has no descriptors left
			s.opt.Logger.Warn("cannot accept a connection for now", "err", err)
			time.Sleep(wait)
			wait = min(2*wait, time.Second)
			continue
		}
		if err != nil {
			return err
		}
		wait = time.Millisecond
		s.accept(nc)
	}
}

func (s *Server) accept(nc net.Conn) {
	s.stats.total.Add(1)
	if s.opt.TLS != nil {
		nc = tls.Server(nc, s.opt.TLS)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.conns) >= s.opt.MaxConns+s.opt.Spare || s.closing.Load() {
		s.stats.rejected.Add(1)
		if !s.closing.Load() {
			s.opt.Logger.Warn("a client was refused", "event", "client_cut", "why", "--max-conns clients are connected", "client", nc.RemoteAddr().String())
		}
		s.work.Go(func() {
			_ = nc.SetDeadline(time.Now().Add(time.Second))
			_, _ = nc.Write([]byte("-" + tooMany + "\r\n"))
			nc.Close()
		})
		return
	}
	s.next++
	c := newConn(s, nc, s.next)
	c.spare = len(s.conns) >= s.opt.MaxConns
	s.conns[c.id] = c
	s.work.Go(func() {
		take := c.serve()
		s.mu.Lock()
		delete(s.conns, c.id)
		if take != nil {
			s.taken[c] = true
			s.hijacked.Go(func() {
				take()
				s.mu.Lock()
				delete(s.taken, c)
				s.mu.Unlock()
			})
		}
		s.mu.Unlock()
		s.h.Closed(c)
	})
}

// Conns returns the open connections, in the order in which they were accepted.
func (s *Server) Conns() []*Conn {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := make([]*Conn, 0, len(s.conns))
	for _, c := range s.conns {
		out = append(out, c)
	}
	slices.SortFunc(out, func(a, b *Conn) int { return cmp.Compare(a.id, b.id) })
	return out
}

// Conn returns the connection with this ID, or nil if it has ended.
func (s *Server) Conn(id int64) *Conn {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.conns[id]
}

// Stats returns the current counts.
func (s *Server) Stats() Stats {
	s.mu.Lock()
	n := len(s.conns)
	s.mu.Unlock()
	return Stats{n, s.stats.total.Load(), s.stats.rejected.Load(), s.stats.commands.Load(), s.stats.protocol.Load(), s.stats.panics.Load(), s.stats.dropped.Load(),
		s.stats.denied.Load(), s.stats.in.Load(), s.stats.out.Load()}
}

// Shutdown stops accepting connections, waits until the running commands are answered, and closes
// all connections except hijacked ones. If ctx ends first, Shutdown cuts the rest.
func (s *Server) Shutdown(ctx context.Context) error {
	s.stop()
	for _, c := range s.Conns() {
		c.drain()
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		s.work.Wait()
	}()
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		for _, c := range s.Conns() {
			c.kill()
		}
		<-done
		return context.Cause(ctx)
	}
}

// Close cuts every connection, including hijacked ones, and waits until all their goroutines have
// ended.
func (s *Server) Close() error {
	s.stop()
	for _, c := range s.Conns() {
		c.kill()
	}
	s.work.Wait()
	s.mu.Lock()
	for c := range s.taken {
		c.nc.Close()
	}
	s.mu.Unlock()
	s.hijacked.Wait()
	return nil
}

func (s *Server) stop() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closing.Store(true)
	for l := range s.listener {
		l.Close()
	}
}
