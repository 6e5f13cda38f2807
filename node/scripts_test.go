package node

import (
	"fmt"
	"math/rand/v2"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/freshet-cache/freshet/redis"
)

var wholeNumber = regexp.MustCompile(`-?\d+`)

// resembles reports whether two answers are the same, but for TTLs, between which a moment
// has passed, and what Redis says of where in a script an error was.
func resembles(a, b string) bool {
	if strings.HasPrefix(a, "-") && strings.HasPrefix(b, "-") {
		return true
	}
	x, y := wholeNumber.FindAllString(a, -1), wholeNumber.FindAllString(b, -1)
	if len(x) != len(y) || wholeNumber.ReplaceAllString(a, "#") != wholeNumber.ReplaceAllString(b, "#") {
		return false
	}
	for i := range x {
		m, _ := strconv.ParseInt(x[i], 10, 64)
		n, _ := strconv.ParseInt(y[i], 10, 64)
		if m != n && (m < 30_000 || n < 30_000 || max(m-n, n-m) > 20_000) {
			return false
		}
	}
	return true
}

// Every script of the table does here what it does in Redis, whatever it is given.
func TestListedScriptsAsRedis(t *testing.T) {
	addr := realRedis(t)
	p := start(t, func(c *Config) { c.Nodes = 2 })
	theirs := dial(t, addr)
	theirs.do("select", "8")
	theirs.do("flushdb")
	var ours []*wire
	for i := range 2 {
		listen, _ := p.Addr(i)
		ours = append(ours, dial(t, listen))
	}
	for i, s := range redis.Scripts() {
		r := rand.New(rand.NewPCG(uint64(i), 5))
		pick := func(of ...string) string { return of[r.IntN(len(of))] }
		sha := theirs.do("script", "load", s.Text).Text
		for _, o := range ours {
			if got := o.do("script", "load", s.Text).Text; got != sha {
				t.Fatalf("%s: loaded as %s, want %s", s.Text, got, sha)
			}
		}
		for n := range 150 {
			o, k, other := ours[n%2], fmt.Sprint("k", r.IntN(3)), fmt.Sprint("k", r.IntN(3))
			if r.IntN(4) == 0 {
				set := []string{"set", k, pick("a", "b", "ab", "7", "99")}
				if r.IntN(2) == 0 {
					set = append(set, "PX", pick("500000", "900000"))
				}
				theirs.do(set...)
				o.do(set...)
			}
			args := []string{"eval", s.Text, "1", k}
			if s.Many && r.IntN(2) == 0 {
				args = []string{"eval", s.Text, "2", k, other}
			}
			if r.IntN(2) == 0 {
				args[0], args[1] = "evalsha", sha
			}
			for j := range s.Values {
				v := pick("a", "b", "ab", "200000", "300000") // no TTL ends meanwhile
				switch small := strings.Contains(s.Text, "offset") || strings.Contains(s.Text, `"incrby", KEYS[1], a`) || strings.Contains(s.Text, `"incrby", KEYS[1], ARGV[2]`); {
				case j == 1 && small:
					v = pick("1", "2", "3", "0", "x")
				case j > 0:
					v = pick("0", "200000", "400000", "400000", "x")
				}
				args = append(args, v)
			}
			a, b := theirs.do(args...), o.do(args...)
			if !resembles(a.String(), b.String()) {
				t.Fatalf("%q\nhere  %v\nRedis %v\n", args, b, a)
			}
			for _, cmd := range []string{"get", "pttl"} {
				for _, k := range []string{"k0", "k1", "k2"} {
					if a, b := theirs.do(cmd, k), o.do(cmd, k); !resembles(a.String(), b.String()) {
						t.Fatalf("after %q: %s %s\nhere  %v\nRedis %v", args, cmd, k, b, a)
					}
				}
			}
		}
	}
}

// Every command that Redis has is supported here, or it is said what to use instead.
func TestUnsupportedCommandsSaySo(t *testing.T) {
	theirs := dial(t, realRedis(t))
	p := start(t, nil)
	listen, _ := p.Addr(0)
	ours := dial(t, listen)
	for _, name := range theirs.do("command", "list").Elems {
		if strings.Contains(name.Text, "|") || ours.do("command", "info", name.Text).Elems[0].Kind == '*' {
			continue
		}
		if got := ours.do(name.Text).String(); !strings.Contains(got, "is not supported by freshet; ") {
			t.Errorf("%s: %s", name.Text, got)
		}
	}
}
