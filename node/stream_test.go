package node

import (
	"fmt"
	"math/rand/v2"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/freshet-cache/freshet/resp"
)

// rare makes the commands that generator makes seldom or never: deadlines of all
// kinds, patterns, transactions, and arguments of every wrong sort.
type rare struct{ generator }

// odd are numbers of every sort. As times none ends while the test runs.
func (g *rare) odd() string {
	return g.pick("0", "-1", "100000", "-9223372036854775808", "9223372036854775807", "9223372036854775", "-9223372036854776", "4102444800", "4102444800000", "253402300800000", "1000000000", "x", "", "1.0", "08", "-0")
}

func (g *rare) pattern() string {
	return g.pick("*", "k*", "k?", "?[0-9]", "[k]3", "k[^3]", "k[3-1]", "k[1", "[", "\\", "k\\3", "k[\\]3]", "**3*", "k[]3]", "[^", "K1", "k1", "", "*[!1]", "[a-", "k[1-", "k[^]", "?[]", "\xff*", "[\x80-\xff]*", "*?*?*", "b[^a]")
}

func (g *rare) deadline() []string {
	out := []string{g.pick("expire", "pexpire", "expireat", "pexpireat"), g.key(), g.odd()}
	for range g.r.IntN(4) {
		out = append(out, g.pick("NX", "xx", "Gt", "LT", "nonsense"))
		out[2] = g.pick("0", "-1", "x", "2000000000", fmt.Sprint(100_000+1000*g.r.IntN(1_000_000))) // not beyond our longest TTL
	}
	return out
}

func (g *rare) conditional() []string {
	out := []string{g.pick("set", "getex"), g.key()}
	if out[0] == "set" {
		out = append(out, g.value())
	}
	for range g.r.IntN(5) {
		switch o := g.pick("NX", "XX", "GET", "KEEPTTL", "PERSIST", "EX", "PX", "EXAT", "PXAT", "exat", "nonsense"); o {
		case "EX", "PX", "EXAT", "PXAT", "exat":
			if out = append(out, o); g.r.IntN(8) > 0 {
				out = append(out, g.odd())
			}
		default:
			out = append(out, o)
		}
	}
	return out
}

func (g *rare) command() []string {
	switch g.r.IntN(12) {
	case 0, 1:
		return g.deadline()
	case 2, 3:
		return g.conditional()
	case 4:
		return []string{"keys", g.pattern()}
	case 5:
		out := []string{"scan", g.pick("0", "0", "0", "x", "-1", "")}
		for range g.r.IntN(3) {
			out = append(out, [][]string{{"MATCH", g.pattern()}, {"COUNT", g.pick("1000", "1000", "0", "-1", "x", "99999999999999999999")}, {"TYPE", g.pick("string", "list", "STRING", "nosuch")}, {"MATCH"}, {"nonsense", "x"}}[g.r.IntN(5)]...)
		}
		return append(out, "COUNT", "1000")
	case 6:
		return []string{g.pick("incrby", "decrby", "setrange", "getrange", "substr", "incrbyfloat"), g.key(), g.odd(), g.odd()}[:3+g.r.IntN(2)]
	case 7:
		return []string{"incrbyfloat", g.key(), g.pick("1e400", "-1e400", "nan", "-inf", "0x10", "1_000", "1e", " 1", "1 ", "1e-3", "+1", ".5", "5.", "--1", "infinity", "1e308", "1.7976931348623157e308")}
	case 8:
		return []string{"set", g.pick("b\xff", "ba", "b\x80", "k[", "k]", "k\\", "K1"), g.pick("nan", "inf", "0x10", "1e3", "-0", "00", "+5", "1 ", "\t1", "")}
	case 9:
		out := []string{g.pick("type", "persist", "expiretime", "pexpiretime", "exists", "getdel", "strlen", "dbsize", "unlink", "touch", "mget", "getset", "psetex", "setnx")}
		for range g.r.IntN(5) {
			out = append(out, g.pick(g.key(), "0"+g.odd()))
		}
		return out
	}
	return g.generator.command()
}

// transaction is several commands between MULTI and an end.
func (g *rare) transaction() (out [][]string) {
	if g.r.IntN(3) == 0 {
		out = append(out, []string{"watch", g.key(), g.key()})
		if g.r.IntN(2) == 0 {
			out = append(out, g.command())
		}
	}
	out = append(out, []string{"multi"})
	for range g.r.IntN(6) {
		c := g.command()
		if slices.Contains([]string{"keys", "scan", "dbsize"}, c[0]) {
			continue // these are not about the keys they name, and cannot run with those that are
		}
		out = append(out, c)
	}
	return append(out, []string{g.pick("exec", "exec", "exec", "discard")})
}

// meant are the differences from Redis beyond those of the other stream.
var meant = []struct{ command, redis, freshet, why string }{
	{`^scan `, `.*`, `^-ERR invalid cursor`, "a cursor is one that this node handed out; others are refused, where Redis goes on somewhere"},
	{`^dbsize$`, `^[0-9]+$`, `^[0-9]+$`, "Redis counts keys that have expired until it comes across them"},
	{`.*`, `.*`, `^-EXECABORT .*a key of 0 bytes`, "keys have at least one byte, and a transaction with such a key is refused as a whole"},
	{`.*`, `.*`, `^-ERR a key of 0 bytes`, "keys have at least one byte"},
}

// sameKeys compares what SCAN and KEYS answer: their order is nobody's promise.
func sameKeys(args []string, want, got resp.Reply) bool {
	list := func(r resp.Reply) (out []string) {
		if args[0] == "scan" && len(r.Elems) == 2 {
			r = r.Elems[1]
		}
		for _, e := range r.Elems {
			out = append(out, e.Text)
		}
		slices.Sort(out)
		return out
	}
	return want.Kind == '*' && got.Kind == '*' && slices.Equal(list(want), list(got))
}

// pair is one client of Redis and one of ours, that are told the same.
type pair struct {
	t            *testing.T
	theirs, ours *wire
	failed       int
}

func (p *pair) both(args []string) {
	p.t.Helper()
	want, got := p.theirs.do(args...), p.ours.do(args...)
	if alike(args, want, got) || (args[0] == "scan" || args[0] == "keys") && sameKeys(args, want, got) {
		return
	}
	line := strings.Join(args, " ")
	for _, d := range meant {
		if regexp.MustCompile("(?s)"+d.command).MatchString(line) && regexp.MustCompile("(?s)"+d.redis).MatchString(want.String()) && regexp.MustCompile("(?s)"+d.freshet).MatchString(got.String()) {
			return
		}
	}
	p.failed++
	p.t.Errorf("%q\n Redis   %c%v\n freshet %c%v", args, want.Kind, want, got.Kind, got)
}

// The rare forms too are answered as Redis answers them, also inside MULTI.
func TestRareFormsAsRedis(t *testing.T) {
	addr := realRedis(t)
	for _, proto := range []string{"2", "3"} {
		for _, seed := range []uint64{1, 2, 3} {
			t.Run(fmt.Sprintf("RESP%s, seed %d", proto, seed), func(t *testing.T) {
				p := start(t, nil)
				listen, _ := p.Addr(0)
				x := &pair{t: t, theirs: dial(t, addr), ours: dial(t, listen)}
				x.theirs.do("select", "9")
				x.theirs.do("hello", proto)
				x.ours.do("hello", proto)
				g := &rare{generator{rand.New(rand.NewPCG(seed, 99))}}
				for i := 0; i < 2500 && x.failed < 8; i++ {
					switch {
					case i%300 == 0: // so that one difference does not breed others
						x.theirs.do("flushdb")
						x.ours.do("flushdb")
					case g.r.IntN(10) == 0:
						for _, args := range g.transaction() {
							x.both(args)
						}
					default:
						x.both(g.command())
					}
				}
			})
		}
	}
}
