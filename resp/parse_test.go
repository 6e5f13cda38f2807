package resp

import (
	"bufio"
	"bytes"
	"errors"
	"strings"
	"testing"
)

var ordinary = limits{args: 1024, bulk: 1024, inline: 256, request: 1 << 20}

var requests = []struct {
	in   string
	args string // joined with |, with the length of the request; or
	bad  string // the protocol error
}{
	{"*1\r\n$4\r\nPING\r\n", "PING", ""},
	{"*2\r\n$3\r\nGET\r\n$1\r\nk\r\n", "GET|k", ""},
	{"*2\r\n$3\r\nGET\r\n$0\r\n\r\n", "GET|", ""},
	{"*2\r\n$3\r\nSET\r\n$4\r\n\r\n\x00\n\r\n", "SET|\r\n\x00\n", ""},
	{"*0\r\n", "", ""},
	{"*-1\r\n", "", ""},
	{"PING\r\n", "PING", ""},
	{"PING\n", "PING", ""},
	{"  SET   k  v \r\n", "SET|k|v", ""},
	{"\r\n", "", ""},
	{`SET k "a b\x41\n"` + "\r\n", "SET|k|a bA\n", ""},
	{`SET k 'a \'b\n'` + "\r\n", `SET|k|a 'b\n`, ""},
	{`SET k ""` + "\r\n", "SET|k|", ""},
	{`SET k "open` + "\r\n", "", "unbalanced quotes"},
	{`SET k "a"b` + "\r\n", "", "unbalanced quotes"},
	{"*x\r\n", "", "invalid multibulk length"},
	{"*99999999999999999999\r\n", "", "invalid multibulk length"},
	{"*2000000\r\n", "", "invalid multibulk length"},
	{"*1\r\nPING\r\n", "", "expected '$', got 'P'"},
	{"*1\r\n$x\r\n", "", "invalid bulk length"},
	{"*1\r\n$-1\r\n", "", "invalid bulk length"},
	{"*1\r\n$999999999999\r\n", "", "invalid bulk length"},
	{"*1\n$4\r\nPING\r\n", "", "invalid multibulk length"},
	{strings.Repeat("a", 300), "", "too big inline request"},
	{"*1\r\n$" + strings.Repeat("1", 40), "", "invalid bulk length"},
}

func TestRequests(t *testing.T) {
	for _, c := range requests {
		n, args, err := parse([]byte(c.in), nil, ordinary)
		switch {
		case c.bad != "":
			if err == nil || !strings.Contains(err.Error(), c.bad) {
				t.Errorf("%q: %v, want %q", c.in, err, c.bad)
			}
		case err != nil || n != len(c.in) || string(bytes.Join(args, []byte("|"))) != c.args:
			t.Errorf("%q: %d of %d bytes, %q, %v", c.in, n, len(c.in), args, err)
		}
	}
}

// However a request is cut into pieces, nothing is taken before it is whole, and
// what is malformed is not taken for incomplete at its end.
func TestFragments(t *testing.T) {
	for _, c := range requests {
		if c.bad != "" {
			continue
		}
		for i := range len(c.in) {
			if n, _, err := parse([]byte(c.in[:i]), nil, ordinary); n != 0 || err != nil {
				t.Errorf("%q of %q: %d bytes, %v", c.in[:i], c.in, n, err)
			}
		}
	}
}

func TestOversize(t *testing.T) {
	in := []byte("*2\r\n$3\r\nGET\r\n$2000\r\n")
	if _, _, err := parse(in, nil, ordinary); !errors.Is(err, errOversize) {
		t.Fatal(err)
	}
}

// Whatever comes in, nothing panics, and what is understood is understood again
// when it is said the plain way.
func FuzzRequest(f *testing.F) {
	for _, c := range requests {
		f.Add([]byte(c.in))
	}
	f.Fuzz(func(t *testing.T, in []byte) {
		n, args, err := parse(in, nil, ordinary)
		if n > len(in) || n == 0 && err == nil && len(in) > 1<<20 {
			t.Fatalf("took %d of %d bytes", n, len(in))
		}
		if err != nil || n == 0 || len(args) == 0 {
			return
		}
		var words []string
		for _, a := range args {
			words = append(words, string(a))
		}
		again := AppendCommand(nil, words...)
		m, same, err := parse(again, nil, limits{args: 1 << 20, bulk: 1 << 20, inline: 1, request: 1 << 30})
		if err != nil || m != len(again) || len(same) != len(args) {
			t.Fatalf("%q became %q: %v", args, same, err)
		}
		for i := range args {
			if !bytes.Equal(args[i], same[i]) {
				t.Fatalf("%q became %q", args[i], same[i])
			}
		}
	})
}

// A reply is read or refused, and never costs memory that was only announced.
func FuzzReply(f *testing.F) {
	for _, s := range []string{"+OK\r\n", "-ERR x\r\n", ":5\r\n", "$3\r\nabc\r\n", "$-1\r\n", "*2\r\n:1\r\n_\r\n", "%1\r\n+a\r\n#t\r\n", "~1\r\n,1.5\r\n", "=7\r\ntxt:abc\r\n", "*1000000\r\n", "$500000000\r\n"} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, in []byte) {
		r, err := ReadReply(bufio.NewReader(bytes.NewReader(in)))
		if err == nil && r.Kind == 0 {
			t.Fatalf("%q is a reply of no kind", in)
		}
		_ = r.String()
	})
}

// What the writer writes in either dialect, a client reads.
func TestWriter(t *testing.T) {
	write := func(w *Writer) {
		w.SimpleString("OK")
		w.Error("ERR two\r\nlines")
		w.Int(-5)
		w.Bulk([]byte("a\r\nb"))
		w.BulkString("")
		w.Null()
		w.NullArray()
		w.Array(2)
		w.Int(1)
		w.Bool(true)
		w.Map(1)
		w.BulkString("k")
		w.Double(1.5)
		w.Set(1)
		w.Bool(false)
		w.Push(1)
		w.Verbatim("text")
	}
	for proto, want := range map[int]string{
		2: `OK|-ERR two  lines|-5|` + "a\r\nb" + `||(nil)|(nil)|[1 1]|[k 1.5]|[0]|[text]`,
		3: `OK|-ERR two  lines|-5|` + "a\r\nb" + `||(nil)|(nil)|[1 t]|[k 1.5]|[f]|[txt:text]`,
	} {
		w := NewWriter(proto)
		write(w)
		r := bufio.NewReader(bytes.NewReader(w.Bytes()))
		var got []string
		for {
			reply, err := ReadReply(r)
			if err != nil {
				break
			}
			got = append(got, reply.String())
		}
		if s := strings.Join(got, "|"); s != want {
			t.Errorf("RESP%d: %q\nwant   %q", proto, s, want)
		}
	}
}
