package node

import (
	"fmt"
	"math/rand/v2"
	"regexp"
	"strconv"
	"strings"
	"testing"
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
	addr := redis(t)
	p := start(t, func(c *Config) { c.Nodes = 2 })
	theirs := dial(t, addr)
	theirs.do("select", "8")
	theirs.do("flushdb")
	var ours []*wire
	for i := range 2 {
		listen, _ := p.Addr(i)
		ours = append(ours, dial(t, listen))
	}
	for i, s := range listing {
		r := rand.New(rand.NewPCG(uint64(i), 5))
		pick := func(of ...string) string { return of[r.IntN(len(of))] }
		sha := theirs.do("script", "load", s.text).Text
		for _, o := range ours {
			if got := o.do("script", "load", s.text).Text; got != sha {
				t.Fatalf("%s: loaded as %s, want %s", s.text, got, sha)
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
			args := []string{"eval", s.text, "1", k}
			if s.many && r.IntN(2) == 0 {
				args = []string{"eval", s.text, "2", k, other}
			}
			if r.IntN(2) == 0 {
				args[0], args[1] = "evalsha", sha
			}
			for j := range s.values {
				v := pick("a", "b", "ab", "200000", "300000") // no TTL ends meanwhile
				switch small := strings.Contains(s.text, "offset") || strings.Contains(s.text, `"incrby", KEYS[1], a`) || strings.Contains(s.text, `"incrby", KEYS[1], ARGV[2]`); {
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

// Two texts that differ only in form are one script; what is no script of the table, or
// no text, is none.
func TestPlain(t *testing.T) {
	const unlock = `if redis . call ( "get" , KEYS [ 1 ] ) == ARGV [ 1 ] then return redis . call ( "del" , KEYS [ 1 ] ) else return 0 end`
	for _, text := range []string{
		"if redis.call('GET',KEYS[1])==ARGV[1] then return redis.call('DEL',KEYS[1]) else return 0 end",
		"-- unlock\n  if redis.call(\"get\", KEYS[1]) == ARGV[1] --[[ mine ]] then\n\treturn redis.call(\"del\", KEYS[1]);\n else return 0 end\n",
	} {
		if got, ok := plain(text); !ok || got != unlock {
			t.Errorf("%q", got)
		}
	}
	for _, text := range []string{`return "x`, `return 'a\'b'`, "--[[ never ends", `return 'a"b'`} {
		if got, ok := plain(text); ok {
			t.Errorf("%q is %q", text, got)
		}
	}
	if a, _ := plain("return 'GET'"); a != `return "GET"` {
		t.Error("a value is not a command's name", a)
	}
}

// FuzzPlain: any text is read to its end, or refused.
func FuzzPlain(f *testing.F) {
	for _, s := range listing {
		f.Add(s.text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		p, ok := plain(text)
		if again, ok2 := plain(p); ok && (!ok2 || again != p) && !strings.Contains(p, "- -") && !strings.ContainsAny(p, "[;") {
			t.Errorf("%q becomes %q, and that %q", text, p, again)
		}
	})
}

// What clients load is bounded.
func TestLoadedScriptsAreBounded(t *testing.T) {
	var l loaded
	for i := range 3 * maxLoaded {
		if _, ok := l.load(fmt.Appendf(nil, "%s -- %d", listing[0].text, i)); !ok {
			t.Fatal("a comment made it another script")
		}
	}
	if len(l.all) > maxLoaded {
		t.Error(len(l.all))
	}
	if _, ok := l.load([]byte(listing[0].text + strings.Repeat(" ", maxScript))); ok {
		t.Error("a text of any length was read")
	}
}

// Every command that Redis has is supported here, or it is said what to use instead.
func TestUnsupportedCommandsSaySo(t *testing.T) {
	theirs := dial(t, redis(t))
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
