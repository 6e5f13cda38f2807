package node

import (
	"strings"
	"testing"

	"github.com/freshet-cache/freshet/internal/packed"
)

// A version is not written for a value that is too long, or with a TTL that cannot be read; the row
// stays as it was.
func TestVersionsOfWhatCannotBeWritten(t *testing.T) {
	p := start(t, func(c *Config) { c.MaxValue = 100 })
	c := dial(t, p.nodes[0].addr)
	first := c.do("FR.SETV", "k", "v")
	long := strings.Repeat("v", 101)
	for _, args := range [][]string{{"FR.SETV", "k", long}, {"FR.SETV", "k", "w", "EX", "never"}, {"FR.SETV", "k", "w", "EX"}} {
		if r := c.do(args...); r.Kind != '-' {
			t.Errorf("%.20q is answered with %v", args, r)
		}
	}
	c.answers("["+first.Text+" 1]", "FR.VERSION", "k")
	c.answers("v", "GET", "k")
	if r := c.do("FR.SETV", "k", long[:100]); r.Kind == '-' || r.Text == first.Text {
		t.Errorf("the longest value is answered with %v", r)
	}
}

// A client that tracks is told of keys that its commands read, not of keys that they write.
func TestWhatATransactionReads(t *testing.T) {
	n := start(t, nil).nodes[0]
	words := func(texts ...string) (out [][]byte) {
		for _, w := range texts {
			out = append(out, []byte(w))
		}
		return out
	}
	j := &job{cmds: [][][]byte{words("GET", "a"), words("set", "b", "v"), words("MGET", "c", "d"), words("INCR", "e"), words("PING"), words("unknown", "f"), words("strlen", "g")}}
	var got []string
	for _, k := range n.readsOf(j) {
		got = append(got, string(k))
	}
	if s := strings.Join(got, " "); s != "a c d g" {
		t.Errorf("read are %q", s)
	}
}

// INFO tells clients that choose their way by it that this is no cluster of Redis.
func TestInfoTellsThatThereIsNoClusterOfRedis(t *testing.T) {
	c := dial(t, start(t, nil).nodes[0].addr)
	for _, section := range []string{"cluster", "all"} {
		if text := c.do("INFO", section).Text; !strings.Contains(text, "cluster_enabled:0\r\n") {
			t.Errorf("INFO %s is %q", section, text)
		}
	}
	if text := c.do("INFO", "replication").Text; !strings.Contains(text, "role:master\r\nconnected_slaves:0\r\n") {
		t.Errorf("INFO replication is %q", text)
	}
}

// A write whose owner does not answer is logged as uncertain by the node that was asked.
func TestASilentOwnerIsLogged(t *testing.T) {
	out := &logged{}
	p, _, theirs := twoNodes(t, func(c *Config) { c.LogOutput = out })
	silent(t, p.nodes[0], p.nodes[1])
	c := dial(t, p.nodes[0].addr)
	c.answers("UNKNOWN", "SET", theirs[0], "v")
	if got := out.lines("outcome_unknown", "node=n1", "request=set", "key_hash="+strings.TrimPrefix(p.hashed(theirs[0]), "#")); len(got) != 1 {
		t.Errorf("the log says %q", out.lines("outcome_unknown"))
	}
}

// With several spaces, a token is taken by the space that made it, and noise by none.
func TestTokensOfOtherSpacesAreTold(t *testing.T) {
	_, all := causalNodes(t, 1)
	c := all[0]
	feeds, walls := token(t, c.do("FR.BEGIN", "feeds")), token(t, c.do("FR.BEGIN", "walls"))
	for _, tk := range []string{feeds, walls} {
		if r := c.do("FR.CGET", tk, "k"); r.Kind == '-' {
			t.Errorf("a token of a space is refused: %v", r)
		}
	}
	if r := c.do("FR.CGET", "noise", "k"); r.Kind != '-' || !strings.HasPrefix(r.Text, "BADTOKEN ") {
		t.Errorf("noise is answered with %v", r)
	}
}

// A frame that ends within a number is bad, and nothing but zeros is read from then on.
func TestDamagedNumbers(t *testing.T) {
	for _, b := range [][]byte{nil, {0x80}, {0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1}} {
		s := packed.Read(b)
		if n := s.Uint(); n != 0 || !s.Bad() {
			t.Errorf("%x is read as %d", b, n)
		}
		if n, v := s.Count(), s.Bytes(); n != 0 || v != nil {
			t.Errorf("after %x, %d and %q are read", b, n, v)
		}
	}
	s := packed.Read([]byte{3, 1, 2})
	if n := s.Count(); n != 0 || !s.Bad() {
		t.Errorf("of three things two follow, and %d are counted", n)
	}
}
