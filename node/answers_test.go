package node

import (
	"os"
	"strconv"
	"strings"
	"testing"
	"time"
)

// answers are commands one after the other and what Redis answers to them, each list over an empty database. Two quotes
// stand for nothing; an answer that ends in dots is only its beginning.
var answers = map[string][][2]string{
	"set and its options": {
		{"get k", "(nil)"}, {"set k v", "OK"}, {"get k", "v"}, {"set k w nx", "(nil)"}, {"get k", "v"}, {"set k w xx", "OK"}, {"get k", "w"},
		{"set n v xx", "(nil)"}, {"get n", "(nil)"}, {"set n v nx", "OK"}, {"get n", "v"}, {"set n w get", "v"}, {"get n", "w"}, {"set m v get", "(nil)"}, {"get m", "v"},
		{"set n x nx get", "w"}, {"get n", "w"}, {"set q x xx get", "(nil)"}, {"get q", "(nil)"}, {"set k v nx xx", "-ERR syntax error"}, {"set k v ex", "-ERR syntax error"},
		{"set k v px 5 ex 5", "-ERR syntax error"}, {"set k v keepttl ex 5", "-ERR syntax error"}, {"set k v what", "-ERR syntax error"}, {"set k v persist", "-ERR syntax error"},
		{"set k v ex 0", "-ERR invalid expire time in 'set' command"}, {"set k v ex -1", "-ERR invalid expire time in 'set' command"}, {"set k v px x", "-ERR value is not an integer or out of range"},
		{"set k v ex 9223372036854775807", "-ERR invalid expire time in 'set' command"}, {"set k v px 9223372036854775807", "-ERR invalid expire time in 'set' command"}, {"get k", "w"},
		{"set k v exat 1", "OK"}, {"get k", "(nil)"}, {"set k v pxat 1000", "OK"}, {"exists k", "0"}, {"set k v ex 1000", "OK"}, {"set k w keepttl", "OK"}, {"persist k", "1"}, {"persist k", "0"},
		{"set k v ex 1000", "OK"}, {"set k w", "OK"}, {"persist k", "0"}, {"persist none", "0"},
	},
	"set's relatives": {
		{"setnx k v", "1"}, {"setnx k w", "0"}, {"get k", "v"}, {"getset k w", "v"}, {"get k", "w"}, {"getset n v", "(nil)"}, {"get n", "v"}, {"getdel n", "v"}, {"getdel n", "(nil)"}, {"exists n", "0"},
		{"setex k 1000 v", "OK"}, {"persist k", "1"}, {"psetex k 100000 w", "OK"}, {"persist k", "1"}, {"get k", "w"}, {"setex k 0 v", "-ERR invalid expire time in 'setex' command"},
		{"psetex k -1 v", "-ERR invalid expire time in 'psetex' command"}, {"setex k x v", "-ERR value is not an integer or out of range"}, {"get k", "w"},
		{"getset k x", "w"}, {"setex k 1000 v", "OK"}, {"getset k y", "v"}, {"persist k", "0"}, {"setex k 1000 v", "OK"}, {"append k w", "2"}, {"persist k", "1"},
	},
	"getex": {
		{"getex k", "(nil)"}, {"getex k ex 10", "(nil)"}, {"getex k ex 0", "(nil)"}, {"set k v", "OK"}, {"getex k", "v"}, {"persist k", "0"}, {"getex k ex 1000", "v"}, {"getex k", "v"}, {"persist k", "1"},
		{"getex k px 100000", "v"}, {"getex k persist", "v"}, {"persist k", "0"}, {"getex k persist", "v"}, {"getex k ex 0", "-ERR invalid expire time in 'getex' command"},
		{"getex k nx", "-ERR syntax error"}, {"getex k get", "-ERR syntax error"}, {"getex k keepttl", "-ERR syntax error"}, {"getex k persist ex 5", "-ERR syntax error"}, {"getex k exat 1", "v"}, {"exists k", "0"},
	},
	"expire": {
		{"expire k 1000", "0"}, {"set k v", "OK"}, {"expire k 1000 xx", "0"}, {"expire k 1000 gt", "0"}, {"persist k", "0"}, {"expire k 1000 lt", "1"}, {"expire k 2000 nx", "0"}, {"expire k 2000 lt", "0"},
		{"expire k 500 gt", "0"}, {"expire k 2000 gt", "1"}, {"expire k 1000 gt xx", "0"}, {"expire k 1000 lt xx", "1"}, {"expire k 3000 xx", "1"}, {"pexpire k 2000000 gt", "0"}, {"pexpire k 4000000 gt", "1"},
		{"pexpire k 5000000 lt", "0"}, {"expire k 5 nx xx", "-ERR NX and XX, GT or LT options at the same time are not compatible"}, {"expire k 5 nx gt", "-ERR NX and XX, GT or LT options at the same time are not compatible"},
		{"expire k 5 nx lt", "-ERR NX and XX, GT or LT options at the same time are not compatible"}, {"expire k 5 gt lt", "-ERR GT and LT options at the same time are not compatible"}, {"expire k 5 what", "-ERR Unsupported option what"},
		{"expire k x", "-ERR value is not an integer or out of range"}, {"expire k 9223372036854775807", "-ERR invalid expire time in 'expire' command"}, {"expire k -9223372036854775808", "-ERR invalid expire time in 'expire' command"},
		{"pexpire k 9223372036854775807", "-ERR invalid expire time in 'pexpire' command"}, {"persist k", "1"}, {"expire k 1000 nx", "1"}, {"expire k -1 gt", "0"}, {"exists k", "1"}, {"expire k 0", "1"}, {"exists k", "0"},
		{"set k v", "OK"}, {"expire k -5", "1"}, {"exists k", "0"}, {"set k v", "OK"}, {"expireat k 1", "1"}, {"exists k", "0"}, {"set k v", "OK"}, {"pexpireat k 4000000000000", "1"}, {"expireat k 3900000000 lt", "1"}, {"expireat k 3950000000 lt", "0"}, {"pexpireat k 3950000000000 gt", "1"},
		{"pexpireat k 1 lt", "1"}, {"exists k", "0"}, {"expire none -1", "0"}, {"ttl none", "-2"}, {"pttl none", "-2"}, {"expiretime none", "-2"}, {"set k v", "OK"}, {"ttl k", "-1"}, {"pttl k", "-1"}, {"expiretime k", "-1"}, {"pexpiretime k", "-1"},
	},
	"numbers": {
		{"incr n", "1"}, {"incr n", "2"}, {"incrby n 40", "42"}, {"decr n", "41"}, {"decrby n 40", "1"}, {"decrby n -1", "2"}, {"incrby n -2", "0"}, {"decr n", "-1"}, {"get n", "-1"},
		{"incrby n x", "-ERR value is not an integer or out of range"}, {"incrby n 1.5", "-ERR value is not an integer or out of range"}, {"incrby n +1", "-ERR value is not an integer or out of range"}, {"incrby n 01", "-ERR value is not an integer or out of range"},
		{"incrby n -01", "-ERR value is not an integer or out of range"}, {"incrby n -0", "-ERR value is not an integer or out of range"}, {"incrby n 0", "-1"}, {"set n 9223372036854775807", "OK"}, {"incr n", "-ERR increment or decrement would overflow"},
		{"incrby n 0", "9223372036854775807"}, {"decrby n -1", "-ERR increment or decrement would overflow"}, {"decr n", "9223372036854775806"}, {"incr n", "9223372036854775807"}, {"set n -9223372036854775808", "OK"}, {"decr n", "-ERR increment or decrement would overflow"},
		{"incrby n -1", "-ERR increment or decrement would overflow"}, {"incr n", "-9223372036854775807"}, {"decr n", "-9223372036854775808"}, {"decrby n -9223372036854775808", "-ERR decrement would overflow"}, {"set n 9223372036854775808", "OK"}, {"incr n", "-ERR value is not an integer or out of range"},
		{"set n 007", "OK"}, {"incr n", "-ERR value is not an integer or out of range"}, {"set n 10", "OK"}, {"incrbyfloat n 0.5", "10.5"}, {"incrbyfloat n -0.5", "10"}, {"incrbyfloat n 1e2", "110"}, {"incrbyfloat n x", "-ERR value is not a valid float"},
		{"set n v", "OK"}, {"incrbyfloat n 1", "-ERR value is not a valid float"}, {"incrbyfloat new 3.0", "3"}, {"setex t 1000 1", "OK"}, {"incr t", "2"}, {"persist t", "1"},
	},
	"parts of values": {
		{"getrange k 0 -1", ""}, {"set k hello", "OK"}, {"getrange k 0 -1", "hello"}, {"getrange k 1 3", "ell"}, {"getrange k -3 -2", "ll"}, {"getrange k 0 100", "hello"}, {"getrange k 4 4", "o"}, {"getrange k 5 9", ""}, {"getrange k 3 1", ""},
		{"getrange k -100 1", "he"}, {"getrange k -1 -3", ""}, {"getrange k -9 -8", "h"}, {"getrange k 0 -9", "h"}, {"substr k 1 2", "el"}, {"getrange k x 1", "-ERR value is not an integer or out of range"}, {"getrange k 1 x", "-ERR value is not an integer or out of range"},
		{"strlen k", "5"}, {"strlen none", "0"}, {"append k !", "6"}, {"append new x", "1"}, {"get k", "hello!"}, {"setrange k 1 EY", "6"}, {"get k", "hEYlo!"}, {"setrange k 5 ??", "7"}, {"get k", "hEYlo??"}, {"setrange k 0 ''", "7"}, {"setrange none 5 ''", "0"},
		{"exists none", "0"}, {"setrange k -1 x", "-ERR offset is out of range"}, {"setrange k x x", "-ERR value is not an integer or out of range"}, {"setrange z 2 x", "3"}, {"strlen z", "3"}, {"setrange k 99999999999 x", "-ERR string exceeds maximum allowed size (proto-max-bulk-len)"},
	},
	"several keys": {
		{"mset a 1 b 2", "OK"}, {"mget a none b a", "[1 (nil) 2 1]"}, {"mset a 1 b", "-ERR wrong number of arguments for 'mset' command"}, {"msetnx c 3 a 9", "0"}, {"exists c", "0"}, {"get a", "1"}, {"msetnx c 3 d 4", "1"}, {"mget c d", "[3 4]"},
		{"msetnx c 3 d", "-ERR wrong number of arguments for 'msetnx' command"}, {"exists a b none a", "3"}, {"touch a none", "1"}, {"del a none b", "2"}, {"exists a b", "0"}, {"unlink c d c", "2"}, {"type a", "none"}, {"set a 1", "OK"}, {"type a", "string"},
		{"setex a 1000 1", "OK"}, {"mset a 2", "OK"}, {"persist a", "0"}, {"dbsize", "1"}, {"randomkey", "a"}, {"flushdb", "OK"}, {"dbsize", "0"}, {"randomkey", "(nil)"}, {"keys *", "[]"},
	},
	"looking for keys": {
		{"mset one 1 two 2 three 3", "OK"}, {"keys t*e", "[three]"}, {"keys ?ne", "[one]"}, {"keys [st]wo", "[two]"}, {"keys x*", "[]"}, {"scan 0 match o* count 100", "[0 [one]]"}, {"scan 0 count 100 type string match two", "[0 [two]]"}, {"scan 0 count 100 type list", "[0 []]"},
		{"scan 0 count 0", "-ERR syntax error"}, {"scan 0 count x", "-ERR value is not an integer or out of range"}, {"scan 0 match", "-ERR syntax error"}, {"scan 0 what x", "-ERR syntax error"}, {"scan x", "-ERR invalid cursor..."}, {"dbsize", "3"},
	},
	"transactions": {
		{"multi", "OK"}, {"set k 1", "QUEUED"}, {"incr k", "QUEUED"}, {"get k", "QUEUED"}, {"exec", "[OK 2 2]"}, {"multi", "OK"}, {"set k 9", "QUEUED"}, {"discard", "OK"}, {"get k", "2"}, {"exec", "-ERR EXEC without MULTI"}, {"discard", "-ERR DISCARD without MULTI"},
		{"multi", "OK"}, {"multi", "-ERR MULTI calls can not be nested"}, {"exec", "..."}, {"multi", "OK"}, {"nonsense", "-ERR unknown command..."}, {"set k 5", "QUEUED"}, {"exec", "-EXECABORT Transaction discarded because of previous errors."}, {"get k", "2"},
		{"set t x", "OK"}, {"multi", "OK"}, {"incr t", "QUEUED"}, {"set k 3", "QUEUED"}, {"exec", "[-ERR value is not an integer or out of range OK]"}, {"get k", "3"}, {"watch k", "OK"}, {"unwatch", "OK"}, {"set k 4", "OK"}, {"multi", "OK"}, {"get k", "QUEUED"}, {"exec", "[4]"},
	},
}

// fields are the arguments of a command of the lists.
func fields(line string) []string {
	args := strings.Fields(line)
	for i, a := range args {
		if a == "''" {
			args[i] = ""
		}
	}
	return args
}

// A node answers commands as Redis does, alone and in transactions. Beside a real Redis the lists are tried there too.
func TestAnswersOfCommands(t *testing.T) {
	p := start(t, nil)
	listen, _ := p.Addr(0)
	at := map[string]*wire{"freshet": dial(t, listen)}
	if real := os.Getenv("FRESHET_TEST_REDIS"); real != "" {
		at["redis"] = dial(t, real)
		at["redis"].do("select", "11")
	}
	for who, c := range at {
		for name, script := range answers {
			if r := c.do("flushdb"); r.Text != "OK" {
				t.Fatal(r)
			}
			for _, line := range script {
				got := c.do(fields(line[0])...).String()
				if begin, ok := strings.CutSuffix(line[1], "..."); got != line[1] && !(ok && strings.HasPrefix(got, begin)) {
					t.Errorf("%s, %s: %s\n got %q\nwant %q", who, name, line[0], got, line[1])
				}
			}
		}
		c.do("flushdb")
	}
	if n := p.nodes[0].server.Stats().Panics; n > 0 {
		t.Errorf("%d commands panicked", n)
	}
}

// What is left of a key's time is told in seconds or milliseconds, and its end since 1970, by the command's name.
func TestTimeToLiveIsToldInItsUnit(t *testing.T) {
	p := start(t, nil)
	listen, _ := p.Addr(0)
	c := dial(t, listen)
	const late = 60 // seconds that the commands may take
	number := func(args ...string) int64 {
		t.Helper()
		r := c.do(args...)
		if r.Kind == '*' { // FR.GETV
			r = r.Elems[2]
		}
		n, err := strconv.ParseInt(r.Text, 10, 64)
		if err != nil {
			t.Fatal(args, r)
		}
		return n
	}
	for _, set := range [][]string{{"set", "k", "v", "ex", "5000"}, {"set", "k", "v", "px", "5000000"}, {"setex", "k", "5000", "v"}, {"psetex", "k", "5000000", "v"}, {"getex", "k", "ex", "5000"}, {"expire", "k", "5000"}, {"pexpire", "k", "5000000"}, {"fr.setv", "k", "v", "px", "5000000"}} {
		c.do(set...)
		if n := number("ttl", "k"); n > 5000 || n < 5000-late {
			t.Errorf("%v: %d seconds", set, n)
		}
		for _, ask := range []string{"pttl", "fr.getv"} {
			if n := number(ask, "k"); n > 5_000_000 || n < (5000-late)*1000 {
				t.Errorf("%v: %s: %d milliseconds", set, ask, n)
			}
		}
		now, err := strconv.ParseInt(c.do("time").Elems[0].Text, 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		if n := number("expiretime", "k") - now; n > 5001 || n < 5000-late {
			t.Errorf("%v: it ends in %d seconds", set, n)
		}
		if n := number("pexpiretime", "k") - now*1000; n > 5_001_000 || n < (5000-late)*1000 {
			t.Errorf("%v: it ends in %d milliseconds", set, n)
		}
	}
	end := time.Now().Unix() + 5000
	seconds, millis := strconv.FormatInt(end, 10), strconv.FormatInt(end*1000, 10)
	for _, set := range [][]string{{"set", "k", "v", "exat", seconds}, {"set", "k", "v", "pxat", millis}, {"expireat", "k", seconds}, {"pexpireat", "k", millis}} {
		c.do(set...)
		if n := number("expiretime", "k"); n < end-1 || n > end+1 {
			t.Errorf("%v: it ends at %d, not %d", set, n, end)
		}
		if n := number("pexpiretime", "k"); n < (end-1)*1000 || n > (end+1)*1000 {
			t.Errorf("%v: it ends at millisecond %d, not %d", set, n, end*1000)
		}
	}
}

// Versions tell whether a key has changed: FR.CAS sets it only over the version it is given, and with the time to live that
// it is given.
func TestAnswersOfVersions(t *testing.T) {
	p := start(t, nil)
	listen, _ := p.Addr(0)
	c := dial(t, listen)
	version := func() string { return c.do("fr.getv", "k").Elems[0].Text }
	absent := c.do("fr.getv", "k")
	if absent.Elems[1].Kind != '_' || absent.Elems[2].Text != "-1" || c.do("fr.version", "k").Elems[1].Text != "0" {
		t.Errorf("an absent key: %v", absent)
	}
	c.says([][2]string{{"set k v", "OK"}, {"fr.cas k " + absent.Elems[0].Text + " w", "(nil)"}, {"get k", "v"}, {"fr.cas k x w", "-ERR version is not a number..."}})
	for _, options := range []string{"nx", "xx", "get", "persist", "what", "ex"} {
		c.says([][2]string{{"fr.cas k " + version() + " w " + options, "-ERR syntax error"}})
	}
	c.says([][2]string{{"fr.cas k " + version() + " w ex 0", "-ERR invalid expire time in 'fr.cas' command"}, {"fr.cas k " + version() + " w ex x", "-ERR value is not an integer or out of range"}, {"get k", "v"},
		{"fr.cas k " + version() + " w", "OK"}, {"get k", "w"}, {"persist k", "0"}})
	c.says([][2]string{{"fr.cas k " + version() + " x ex 1000", "OK"}, {"persist k", "1"}, {"expire k 1000", "1"}})
	c.says([][2]string{{"fr.cas k " + version() + " y keepttl", "OK"}, {"persist k", "1"}, {"get k", "y"}})
	if v := c.do("fr.version", "k"); v.Elems[0].Text != version() || v.Elems[1].Text != "1" {
		t.Errorf("%v, and the version is %s", v, version())
	}
	c.says([][2]string{{"fr.cas k " + version() + " x exat 1", "OK"}, {"exists k", "0"}})
}
