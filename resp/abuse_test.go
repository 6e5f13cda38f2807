package resp

import (
	"fmt"
	"strings"
	"testing"
)

// What follows an argument that is too long is malformed in its own right.
func TestOversizeThenNonsense(t *testing.T) {
	for _, rest := range []string{"$-99999999\r\n", "$-1\r\n", "$-3\r\n", "+\r\n", "$x\r\n"} {
		s := serve(t, Options{MaxBulk: 100})
		p := s.dial(t)
		p.send(fmt.Sprintf("*2\r\n$200\r\n%s\r\n%s", strings.Repeat("x", 200), rest))
		if got := p.reply(); !strings.HasPrefix(got, "-ERR Protocol error") {
			t.Errorf("%q: %q", rest, got)
		}
		p.ended()
		if s.Stats().Panics > 0 {
			t.Errorf("%q made the server panic", rest)
		}
		s.dial(t).says("PING", "PONG")
	}
}

// A transaction one of whose commands was refused for its size is not run.
func TestOversizeSpoilsTransaction(t *testing.T) {
	p := serve(t, Options{MaxBulk: 100}).dial(t)
	p.says("MULTI", "OK")
	p.says("SET a 1", "QUEUED")
	p.says(fmt.Sprintf("*3\r\n$3\r\nSET\r\n$1\r\nb\r\n$200\r\n%s", strings.Repeat("x", 200)), "-ERR argument exceeds...")
	p.says("EXEC", "-EXECABORT...")
	p.says("GET a", "(nil)")
}
