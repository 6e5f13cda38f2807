package kit

import (
	"context"
	"io"
	"net"
	"strings"
	"testing"
	"time"
)

func TestSkim(t *testing.T) {
	for in, want := range map[string]struct {
		kind byte
		body string
		size int
	}{
		"+OK\r\n":           {'+', "OK", 5},
		"-ERR no\r\n+OK":    {'-', "ERR no", 9},
		"$3\r\nabc\r\n+OK":  {'$', "abc", 9},
		"$0\r\n\r\n":        {'$', "", 6},
		"$3\r\nabc\r":       {},
		"$3\r\n":            {},
		"$3":                {},
		"":                  {},
		"$-1\r\n":           {0, "", 5},
		"$x\r\n":            {0, "", 4},
		"$4\r\na\r\nb\r\n+": {'$', "a\r\nb", 10},
	} {
		kind, body, size := skim([]byte(in))
		if kind != want.kind || string(body) != want.body || size != want.size {
			t.Errorf("%q: %c %q %d", in, kind, body, size)
		}
	}
	if got := string(remoteKey(nil, 90210)); got != "key:000000090210" || len(got) != KeyBytes {
		t.Error(got)
	}
}

// A server that answers every GET with the value of one key is found out.
func TestWrongValuesAreCounted(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	get := len(appendGet(nil, 0))
	value := appendSet(nil, 1)
	answer := append([]byte("$100\r\n"), value[len(value)-ValueBytes-2:]...)
	go func() {
		c, err := l.Accept()
		if err != nil {
			return
		}
		defer c.Close()
		for in := make([]byte, get); ; {
			if _, err := io.ReadFull(c, in); err != nil {
				return
			}
			if _, err := c.Write(answer); err != nil {
				return
			}
		}
	}()
	load, err := NewLoad(t.Context(), l.Addr().String(), 1)
	if err != nil {
		t.Fatal(err)
	}
	defer load.Close()
	if err := load.Run(t.Context(), false, 3, time.Minute, Counting(9)); err != nil {
		t.Fatal(err)
	}
	if load.Ops != 9 || load.Wrong != 8 { // key 1 alone is right
		t.Errorf("%d operations, %d wrong", load.Ops, load.Wrong)
	}
}

// A load that cannot connect says why.
func TestLoadWithoutAServer(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	addr := l.Addr().String()
	l.Close()
	if _, err := NewLoad(context.Background(), addr, 2); err == nil || !strings.Contains(err.Error(), "refused") {
		t.Errorf("connected to nobody: %v", err)
	}
}
