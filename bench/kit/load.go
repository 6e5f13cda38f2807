package kit

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"strconv"
	"time"

	"golang.org/x/sys/unix"
)

// Load is a closed loop: each connection sends a batch of commands, and the next batch when all of
// them are answered. One thread polls all connections, as in redis-benchmark, because a goroutine
// for each connection would be the bottleneck.
type load struct {
	epoll  int
	conns  []*conn
	Took   time.Duration
	Lat    *Latencies
	Ops    int64
	Wrong  int64 // wrong answers
	events []unix.EpollEvent
}

// conn is one connection of a load.
type conn struct {
	file *os.File
	out  []byte
	in   []byte // in[:have] was read and is not yet parsed
	have int
	keys []uint32 // of the current batch, in order
	left int      // answers that have not arrived
	sent time.Time
}

// The sizes of keys and values that a Load uses.
const (
	KeyBytes   = 16
	ValueBytes = 100
	inputBytes = 64 << 10
	quietLimit = 10 * time.Second // without any answer
)

// RemoteConns is how many connections a load has, the same as redis-benchmark.
const RemoteConns = 50

// remoteKey appends the name of a key.
func remoteKey(b []byte, key uint32) []byte {
	b = append(b, "key:000000000000"...)
	for i := len(b) - 1; key > 0; i-- {
		b[i] = byte('0' + key%10)
		key /= 10
	}
	return b
}

var filler = bytes.Repeat([]byte{'.'}, ValueBytes)

// appendGet and appendSet append encoded commands. The value of a key is its name, padded with
// dots.
func appendGet(b []byte, key uint32) []byte {
	b = append(b, "*2\r\n$3\r\nGET\r\n$16\r\n"...)
	return append(remoteKey(b, key), "\r\n"...)
}

func appendSet(b []byte, key uint32) []byte {
	b = append(b, "*3\r\n$3\r\nSET\r\n$16\r\n"...)
	b = append(remoteKey(b, key), "\r\n$100\r\n"...)
	b = append(remoteKey(b, key), filler[KeyBytes:]...)
	return append(b, "\r\n"...)
}

// NewLoad connects.
func NewLoad(ctx context.Context, addr string, conns int) (_ *load, err error) {
	l := &load{epoll: -1, Lat: NewLatencies(), events: make([]unix.EpollEvent, conns)}
	defer func() {
		if err != nil {
			l.Close()
		}
	}()
	if l.epoll, err = unix.EpollCreate1(unix.EPOLL_CLOEXEC); err != nil {
		return nil, fmt.Errorf("epoll: %w", err)
	}
	for i := range conns {
		var d net.Dialer
		c, err := d.DialContext(ctx, "tcp", addr)
		if err != nil {
			return nil, err
		}
		f, err := c.(*net.TCPConn).File() // from here on the descriptor is blocking and the runtime does not manage it
		_ = c.Close()
		if err != nil {
			return nil, err
		}
		l.conns = append(l.conns, &conn{file: f, in: make([]byte, inputBytes)})
		if err := unix.EpollCtl(l.epoll, unix.EPOLL_CTL_ADD, int(f.Fd()), &unix.EpollEvent{Events: unix.EPOLLIN, Fd: int32(i)}); err != nil {
			return nil, fmt.Errorf("epoll: %w", err)
		}
	}
	return l, nil
}

func (l *load) Close() {
	for _, c := range l.conns {
		_ = c.file.Close() // no command is under way
	}
	if l.epoll >= 0 {
		_ = unix.Close(l.epoll)
	}
}

// Run sends commands that get or set the keys from next, until d has passed and all commands are
// answered. It adds to the counts of earlier runs.
func (l *load) Run(ctx context.Context, set bool, pipeline int, d time.Duration, next func() (key uint32, more bool)) error {
	began := time.Now()
	active, last := 0, began
	for _, c := range l.conns {
		if ok, err := c.send(set, pipeline, next); err != nil {
			return err
		} else if ok {
			active++
		}
	}
	for active > 0 {
		n, err := unix.EpollWait(l.epoll, l.events, 100)
		now := time.Now()
		switch {
		case errors.Is(err, unix.EINTR):
			continue
		case err != nil:
			return fmt.Errorf("epoll: %w", err)
		case n > 0:
			last = now
		case now.Sub(last) > quietLimit || ctx.Err() != nil:
			return errors.Join(errors.New("the server does not answer"), context.Cause(ctx))
		}
		for _, e := range l.events[:n] {
			c := l.conns[e.Fd]
			if err := l.receive(c, set); err != nil {
				return err
			}
			if c.left > 0 {
				continue
			}
			now = time.Now()
			l.Lat.Add(now.Sub(c.sent), int64(len(c.keys)))
			l.Ops += int64(len(c.keys))
			more := false
			if now.Sub(began) < d && ctx.Err() == nil {
				if more, err = c.send(set, pipeline, next); err != nil {
					return err
				}
			}
			if !more {
				active--
			}
		}
	}
	l.Took += time.Since(began)
	return nil
}

// send sends a batch, or nothing if there are no more keys.
func (c *conn) send(set bool, pipeline int, next func() (uint32, bool)) (bool, error) {
	c.out, c.keys = c.out[:0], c.keys[:0]
	for range pipeline {
		key, more := next()
		if !more {
			break
		}
		if c.keys = append(c.keys, key); set {
			c.out = appendSet(c.out, key)
		} else {
			c.out = appendGet(c.out, key)
		}
	}
	if c.left = len(c.keys); c.left == 0 {
		return false, nil
	}
	c.sent = time.Now()
	for b := c.out; len(b) > 0; {
		n, err := unix.Write(int(c.file.Fd()), b)
		if err != nil && !errors.Is(err, unix.EINTR) {
			return false, fmt.Errorf("connection: %w", err)
		}
		b = b[max(0, n):]
	}
	return true, nil
}

// receive reads the bytes that have arrived and checks every complete answer.
func (l *load) receive(c *conn, set bool) error {
	n, err := unix.Read(int(c.file.Fd()), c.in[c.have:])
	switch {
	case errors.Is(err, unix.EINTR):
		return nil
	case err != nil:
		return fmt.Errorf("connection: %w", err)
	case n == 0:
		return errors.New("the server closed the connection")
	}
	in := c.in[:c.have+n]
	for c.left > 0 {
		kind, body, size := skim(in)
		if size == 0 {
			break
		}
		var buf [KeyBytes]byte
		key := remoteKey(buf[:0], c.keys[len(c.keys)-c.left])
		if set && kind != '+' || !set && (kind != '$' || len(body) != ValueBytes || !bytes.HasPrefix(body, key)) {
			l.Wrong++
		}
		in = in[size:]
		c.left--
	}
	if c.left == 0 && len(in) > 0 {
		return fmt.Errorf("the server answers what nobody asked: %q", in)
	}
	c.have = copy(c.in, in)
	return nil
}

// skim parses the answer at the start of b without copying it. resp.ReadReply makes a string of
// every answer, which would cost more than the server spends. The size is 0 if the answer is
// incomplete; the kind is 0 if it is malformed.
func skim(b []byte) (kind byte, body []byte, size int) {
	end := bytes.IndexByte(b, '\n')
	if end < 2 {
		return 0, nil, 0
	}
	line := b[1 : end-1]
	if b[0] != '$' {
		return b[0], line, end + 1
	}
	n, err := strconv.Atoi(string(line))
	switch {
	case err != nil || n < 0: // null or malformed
		return 0, nil, end + 1
	case len(b) < end+1+n+2:
		return 0, nil, 0
	}
	return '$', b[end+1 : end+1+n], end + 1 + n + 2
}

// Counting returns the keys from 0 to n, each once.
func Counting(n int) func() (uint32, bool) {
	i := -1
	return func() (uint32, bool) {
		i++
		return uint32(i), i < n
	}
}

// Drawing returns random keys below n, without end.
func Drawing(r *rand.Rand, n int) func() (uint32, bool) {
	return func() (uint32, bool) { return uint32(r.IntN(n)), true }
}
