package node

import (
	"bytes"
	"io"
	"net"
	"strings"
	"testing"

	"github.com/freshet-cache/freshet/resp"
)

// BenchmarkCommands measures commands over a socket, one at a time and in
// pipelines, when nobody tracks; and reads by a client that does.
func BenchmarkCommands(b *testing.B) {
	for _, c := range []struct {
		name     string
		pipeline int
		track    bool
		args     string
	}{
		{"GET", 1, false, "get k"}, {"GET", 64, false, "get k"}, {"MGET", 64, false, "mget k k2"}, {"SET", 1, false, "set k v"}, {"INCR", 64, false, "incr n"},
		{"tracked GET", 1, true, "get k"}, {"tracked GET", 64, true, "get k"},
	} {
		name := c.name + ", alone"
		if c.pipeline > 1 {
			name = c.name + ", pipelined"
		}
		b.Run(name, func(b *testing.B) {
			p := start(b, nil)
			addr, _ := p.Addr(0)
			w := dial(b, addr)
			w.do("set", "k", "v")
			w.do("set", "k2", "v")
			if c.track {
				w.do("hello", "3")
				w.do("client", "tracking", "on")
			}
			request := bytes.Repeat(resp.AppendCommand(nil, strings.Fields(c.args)...), c.pipeline)
			answer := make([]byte, 1<<16)
			b.ResetTimer()
			for i := 0; i < b.N; i += c.pipeline {
				if _, err := w.nc.Write(request); err != nil {
					b.Fatal(err)
				}
				if err := take(w.nc, answer, c.pipeline, c.args); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// take reads so many answers; each ends a line as often as its command says.
func take(nc net.Conn, buf []byte, answers int, args string) error {
	lines := answers * map[string]int{"get k": 2, "mget k k2": 5, "set k v": 1, "incr n": 1}[args]
	for lines > 0 {
		n, err := nc.Read(buf)
		if err != nil || n == 0 {
			return io.ErrUnexpectedEOF
		}
		lines -= bytes.Count(buf[:n], []byte("\n"))
	}
	return nil
}
