package node

import (
	"crypto/sha1"
	"encoding/hex"
	flags "flag"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"testing"

	"github.com/freshet-cache/freshet/redis"
)

var record = flags.Bool("record", false, "write down anew what the Redis of FRESHET_TEST_REDIS answers to scripts")

const recorded = "testdata/scripts.txt"

// conversation is what a client does with a script of the table: sets keys, runs it, and looks what has become of them. It
// is the same every time.
func conversation(i int, s redis.Script) (out [][]string) {
	r := rand.New(rand.NewPCG(uint64(i), 8))
	pick := func(of ...string) string { return of[r.IntN(len(of))] }
	sum := sha1.Sum([]byte(s.Text))
	small := strings.Contains(s.Text, "offset") || strings.Contains(s.Text, `"incrby", KEYS[1], a`) || strings.Contains(s.Text, `"incrby", KEYS[1], ARGV[2]`)
	out = append(out, []string{"flushdb"})
	for range 16 {
		k, other := fmt.Sprint("k", r.IntN(2)), fmt.Sprint("k", r.IntN(2))
		switch r.IntN(4) {
		case 0:
			out = append(out, []string{"set", k, pick("a", "b", "ab", "7", "99")})
		case 1:
			out = append(out, []string{"set", k, pick("a", "b", "7"), "PX", pick("500000", "900000")})
		}
		args := []string{"evalsha", hex.EncodeToString(sum[:]), "1", k}
		if s.Many && r.IntN(2) == 0 {
			args = []string{"evalsha", hex.EncodeToString(sum[:]), "2", k, other}
		}
		for j := range s.Values {
			v := pick("a", "b", "ab", "200000", "300000") // no key ends meanwhile
			if j == 1 && small {
				v = pick("1", "2", "3", "0", "x")
			} else if j > 0 {
				v = pick("0", "200000", "400000", "400000", "x")
			}
			args = append(args, v)
		}
		out = append(out, args, []string{"mget", "k0", "k1"}, []string{"pttl", k})
	}
	return out
}

// lines are the conversations with all scripts, as they are written down.
func lines() (out []string, all [][]string) {
	for i, s := range redis.Scripts() {
		for _, args := range conversation(i, s) {
			var words []string
			for _, a := range args {
				words = append(words, strconv.Quote(a))
			}
			out, all = append(out, strings.Join(words, " ")), append(all, args)
		}
	}
	return out, all
}

// A node answers the scripts of the table as a real Redis has answered them once.
func TestListedScriptsAsRedisHasAnswered(t *testing.T) {
	said, all := lines()
	speak := func(c *wire, hear func(i int, answer string)) {
		for _, s := range redis.Scripts() {
			c.do("script", "load", s.Text)
		}
		for i, args := range all {
			hear(i, c.do(args...).String())
		}
		c.do("flushdb")
	}
	if *record {
		c := dial(t, realRedis(t))
		c.do("select", "12")
		var out strings.Builder
		speak(c, func(i int, answer string) { fmt.Fprintf(&out, "%s -> %q\n", said[i], answer) })
		if err := os.WriteFile(recorded, []byte(out.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	text, err := os.ReadFile(recorded)
	if err != nil {
		t.Fatal(err)
	}
	want := strings.Split(strings.TrimSuffix(string(text), "\n"), "\n")
	if len(want) != len(said) {
		t.Fatalf("%s has %d answers to %d commands; write them down anew with -record beside a Redis", recorded, len(want), len(said))
	}
	p := start(t, nil)
	listen, _ := p.Addr(0)
	speak(dial(t, listen), func(i int, answer string) {
		t.Helper()
		command, quoted, _ := strings.Cut(want[i], " -> ")
		theirs, err := strconv.Unquote(quoted)
		if command != said[i] || err != nil {
			t.Fatalf("line %d of %s is not the answer to %s; write them down anew with -record beside a Redis", i+1, recorded, said[i])
		}
		if !resembles(theirs, answer) {
			t.Errorf("line %d: %s\nhere  %s\nRedis %s", i+1, said[i], answer, theirs)
		}
	})
}
