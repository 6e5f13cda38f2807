package node

import (
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"

	"github.com/freshet-cache/freshet/resp"
	"github.com/freshet-cache/freshet/store/journal"
)

// causalNodes starts nodes with two causal spaces and one for transactions, and waits until all
// of them are in all rings.
func causalNodes(t *testing.T, nodes int) (*Process, []*wire) {
	t.Helper()
	p := start(t, func(c *Config) {
		c.Nodes, c.Spaces, c.TokenKey = nodes, spacesOf(t, "feeds=causal,db=3;walls=causal;shop=causal,tcc,db=4"), "secret"
	})
	var all []*wire
	for _, n := range p.nodes {
		c := dial(t, n.addr)
		for _, space := range []string{"feeds", "walls", "shop"} {
			for kind := byte(0); kind != '*'; { // not yet joined: TRYAGAIN
				kind = c.do("FR.CGET", token(t, c.do("FR.BEGIN", space)), "k").Kind
			}
			for len(ringOf(p.nodes[0], space)) < nodes {
				c.do("ping")
			}
		}
		all = append(all, c)
	}
	return p, all
}

// ringOf is who is in the ring of a space, as a node sees it.
func ringOf(n *Node, space string) []string {
	for _, g := range n.groups() {
		if g.Space == space {
			return g.Ring
		}
	}
	return nil
}

func token(t *testing.T, r resp.Reply) string {
	t.Helper()
	if r.Kind == '*' {
		r = r.Elems[0]
	}
	if r.Kind != '$' {
		t.Fatal(r)
	}
	return r.Text
}

// A workflow whose every step is at another node never misses what it has done, nor does
// who joins it.
func TestSessionsRoam(t *testing.T) {
	_, all := causalNodes(t, 3)
	at := func(i int) *wire { return all[i%3] }
	s := token(t, all[0].do("FR.BEGIN", "feeds"))
	for i := range 60 {
		want := fmt.Sprint("v", i)
		s = token(t, at(i).do("FR.CSET", s, "k", want))
		fork := s
		v := at(i+1).do("FR.CMGET", s, "k", "other")
		if s = token(t, v); v.Elems[1].Elems[0].Text != want {
			t.Fatalf("step %d reads %v", i, v)
		}
		fork = token(t, at(i+2).do("FR.CSET", fork, "other", want))
		s = token(t, at(i).do("FR.CJOIN", s, fork))
		if v := at(i+1).do("FR.CGET", s, "other"); v.Elems[1].Text != want {
			t.Fatalf("after the join %v", v)
		}
		s = token(t, at(i+2).do("FR.CDEL", s, "other"))
		if v := at(i).do("FR.CGET", s, "other"); v.Elems[1].Kind == '$' {
			t.Fatalf("after the deletion %v", v)
		}
	}
}

func TestWorkflowTransactions(t *testing.T) {
	_, all := causalNodes(t, 3)
	s := token(t, all[0].do("FR.BEGIN", "shop"))
	for i := range 20 {
		tx := token(t, all[i%3].do("FR.TBEGIN", s))
		tx = token(t, all[(i+1)%3].do("FR.TSET", tx, "a", fmt.Sprint(i)))
		tx = token(t, all[(i+2)%3].do("FR.TSET", tx, "gone", "v"))
		both := all[i%3].do("FR.TFORK", tx)
		tx, branch := both.Elems[0].Text, both.Elems[1].Text
		branch = token(t, all[(i+1)%3].do("FR.TSET", branch, "b", fmt.Sprint(i)))
		if v := all[0].do("FR.TCOMMIT", tx); !strings.HasPrefix(v.Text, "ERR causal: a branch") {
			t.Fatal(v)
		}
		tx = token(t, all[(i+2)%3].do("FR.TJOIN", tx, branch))
		tx = token(t, all[i%3].do("FR.TDEL", tx, "gone"))
		v := all[(i+1)%3].do("FR.TMGET", tx, "a", "b", "gone")
		if tx = token(t, v); v.Elems[1].Elems[0].Text != fmt.Sprint(i) || v.Elems[1].Elems[1].Text != fmt.Sprint(i) || v.Elems[1].Elems[2].Kind == '$' {
			t.Fatal(v)
		}
		s = token(t, all[(i+2)%3].do("FR.TCOMMIT", tx))
		if v := all[i%3].do("FR.CMGET", s, "a", "b"); v.Elems[1].Elems[0].Text != v.Elems[1].Elems[1].Text {
			t.Fatal(v)
		}
	}
}

// What is wrong with a command of a workflow is said, and the token stays good.
func TestWorkflowMistakes(t *testing.T) {
	_, all := causalNodes(t, 1)
	c := all[0]
	s := token(t, c.do("FR.BEGIN", "feeds"))
	wall, tx := token(t, c.do("FR.BEGIN", "walls")), token(t, c.do("FR.TBEGIN", s))
	for _, x := range []struct {
		want string
		args []string
	}{
		{"ERR no causal space is called", []string{"FR.BEGIN", "nowhere"}},
		{"BADTOKEN", []string{"FR.CGET", "nonsense", "k"}},
		{"BADTOKEN", []string{"FR.CGET", "", "k"}},
		{"BADTOKEN", []string{"FR.CGET", s[:len(s)-3], "k"}},
		{"BADTOKEN", []string{"FR.CGET", s + "AAAA", "k"}},
		{"BADTOKEN", []string{"FR.CGET", tx, "k"}},
		{"BADTOKEN", []string{"FR.TMGET", s, "k"}},
		{"BADTOKEN", []string{"FR.CJOIN", s, wall}},
		{"ERR a key of 0 bytes", []string{"FR.CGET", s, ""}},
		{"ERR a key of 5000 bytes", []string{"FR.CSET", s, strings.Repeat("k", 5000), "v"}},
		{"ERR causal: not a branch", []string{"FR.TJOIN", tx, tx}},
		{"ERR wrong number", []string{"FR.CSET", s, "k"}},
	} {
		if v := c.do(x.args...); v.Kind != '-' || !strings.HasPrefix(v.Text, x.want) {
			t.Errorf("%.60q is answered with %v", x.args, v)
		}
	}
	if v := c.do("FR.CSET", s, "k", "v"); v.Kind != '$' {
		t.Error(v)
	}
	if v := dial(t, start(t, nil).nodes[0].addr).do("FR.BEGIN", "feeds"); !strings.HasPrefix(v.Text, "ERR no causal space is open") {
		t.Error(v)
	}
	for _, bad := range []func(*Config){
		func(c *Config) { c.Spaces = spacesOf(t, "a/b=causal") },
		func(c *Config) { c.Spaces, c.Store = spacesOf(t, "a=causal"), "mysql://u@h/db" },
		func(c *Config) { c.CausalKeys = 0 },
	} {
		cfg := Defaults()
		cfg.Store = "memory:"
		if bad(&cfg); cfg.Check() == nil {
			t.Errorf("%+v is taken", cfg)
		}
	}
}

// What is written at the same time is merged by the space's function, what is seen is
// replaced on request, and a space goes on as it was begun.
func TestMergingSpaces(t *testing.T) {
	dir := t.TempDir()
	p := start(t, func(c *Config) {
		c.Nodes, c.Store, c.Data, c.Spaces = 2, "pebble:", dir, spacesOf(t, "carts=causal,merge=union;tops=causal,merge=max,tcc")
		c.MaxValue = 1000
	})
	a, b := dial(t, p.nodes[0].addr), dial(t, p.nodes[1].addr)
	for _, c := range []*wire{a, b} {
		for kind := byte(0); kind != '*'; {
			kind = c.do("FR.CGET", token(t, c.do("FR.BEGIN", "carts")), "k").Kind
		}
		for kind := byte(0); kind != '*'; {
			kind = c.do("FR.CGET", token(t, c.do("FR.BEGIN", "tops")), "k").Kind
		}
	}
	one := token(t, a.do("FR.CSET", token(t, a.do("FR.BEGIN", "carts")), "cart", `["apple"]`))
	two := token(t, b.do("FR.CSET", token(t, b.do("FR.BEGIN", "carts")), "cart", `["bread"]`))
	both := token(t, a.do("FR.CJOIN", one, two))
	if v := b.do("FR.CGET", both, "cart"); v.Elems[1].Text != `["apple","bread"]` {
		t.Fatal(v)
	}
	both = token(t, b.do("FR.CSET", token(t, b.do("FR.CGET", both, "cart")), "cart", `["bread"]`, "replace"))
	both = token(t, a.do("FR.CSET", both, "cart", `["cheese"]`))
	if v := b.do("FR.CGET", both, "cart"); v.Elems[1].Text != `["bread","cheese"]` {
		t.Fatal(v)
	}
	large := `["` + strings.Repeat("x", 590) + `"]`
	full := token(t, a.do("FR.CSET", both, "full", large))
	if v := b.do("FR.CSET", full, "full", strings.ReplaceAll(large, "x", "y")); !strings.Contains(v.Text, "too large") || !strings.Contains(v.Text, "may have 1000") {
		t.Errorf("a set that grows over --max-value: %v", v)
	}
	if v := b.do("FR.CGET", full, "full"); v.Elems[1].Text != large {
		t.Errorf("after that it is %v", v)
	}
	if v := a.do("FR.CSET", both, "cart", "x", "whatever"); !strings.Contains(v.Text, "REPLACE") {
		t.Error(v)
	}
	s := token(t, a.do("FR.CSET", token(t, a.do("FR.BEGIN", "tops")), "n", "10"))
	tx := token(t, a.do("FR.TSET", token(t, b.do("FR.TBEGIN", s)), "n", "9"))
	tx = token(t, b.do("FR.TSET", tx, "m", "1"))
	s = token(t, a.do("FR.TCOMMIT", token(t, a.do("FR.TSET", tx, "m", "0", "REPLACE"))))
	if v := b.do("FR.CMGET", s, "n", "m"); v.Elems[1].Elems[0].Text != "10" || v.Elems[1].Elems[1].Text != "0" {
		t.Error(v)
	}
}

// A space that merges is not opened as one that does not.
func TestSpaceGoesOnAsItWasBegun(t *testing.T) {
	cfg := Defaults()
	cfg.Listen, cfg.Admin, cfg.Data = "127.0.0.1:0", "127.0.0.1:0", t.TempDir()
	for _, x := range []struct {
		spaces string
		want   error
	}{{"carts=causal,merge=union", nil}, {"carts=causal", journal.ErrSiblings}, {"carts=causal,merge=max", nil}} {
		cfg.Spaces = spacesOf(t, x.spaces)
		p, err := Start(cfg)
		if !errors.Is(err, x.want) {
			t.Errorf("%s: %v", x.spaces, err)
		}
		if err == nil {
			if err := p.Stop(t.Context()); err != nil {
				t.Error(err)
			}
		}
	}
}

// spacesOf reads what a flag says.
func spacesOf(t testing.TB, text string) (s Spaces) {
	t.Helper()
	if err := s.Set(text); err != nil {
		t.Fatal(err)
	}
	return s
}

// What is wrong with a space is said at once, with its name.
func TestSpacesThatCannotBe(t *testing.T) {
	for text, want := range map[string]string{
		"carts=causal,merge=concat":         "--space carts: no merge function is called \"concat\"",
		"=causal":                           "1 to 100 bytes",
		"a=causal;a=causal":                 "twice",
		"a=strong":                          "--space a: no promise is called \"strong\"",
		"a=causal,db=2;b=causal,db=2":       "--space b: a has db=2 already",
		"a=causal,db=-1":                    "1 to 1023",
		"a=causal,async,merge=max":          "async does not go with merge",
		"feeds":                             "say NAME=PROMISE",
		"a=causal,fast":                     "nothing is known of the option \"fast\"",
		"a=causal,db=x":                     "db=x is not a number",
		"a=causal,tcc=yes":                  "nothing is known of the option",
		"a=causal,async;b=causal,async,tcc": "directory for it with --data",
	} {
		c := Defaults()
		c.Data = ""
		err := c.Spaces.Set(text)
		if err == nil {
			err = c.Check()
		}
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", text, err)
		}
	}
	for _, name := range []string{"a b", "a=b", "a,b", "a;b", "a/b", `a\b`, "a\tb", strings.Repeat("a", 101)} {
		c := Defaults()
		c.Spaces = Spaces{{Name: name, Promise: "causal"}}
		if err := c.Check(); err == nil || !strings.Contains(err.Error(), "1 to 100 bytes") {
			t.Errorf("a space called %.20q: %v", name, err)
		}
	}
	c := Defaults()
	c.Store, c.Spaces = "memory:", spacesOf(t, "a=causal,async")
	if err := c.Check(); err == nil || !strings.Contains(err.Error(), "use pebble: or postgres") {
		t.Error(err)
	}
}

// Flags, the environment and YAML say the same of spaces, and what is printed is read again.
func TestSpacesAsText(t *testing.T) {
	const flag = "feeds=causal,db=3;carts=causal,merge=union;orders=causal,async,tcc"
	want := spacesOf(t, flag)
	if got := want.String(); got != flag {
		t.Errorf("%s is printed as %s", flag, got)
	}
	printed, err := yaml.Marshal(want)
	if err != nil {
		t.Fatal(err)
	}
	for _, text := range []string{string(printed), "{feeds: {promise: causal, db: 3}, carts: {promise: causal, merge: union}, orders: {promise: causal, tcc: true, async: true}}"} {
		var got Spaces
		if err := yaml.Unmarshal([]byte(text), &got); err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%s is read as %v, %v", text, got, err)
		}
	}
	var short Spaces
	if err := yaml.Unmarshal([]byte("feeds: causal"), &short); err != nil || !reflect.DeepEqual(short, spacesOf(t, "feeds=causal")) {
		t.Errorf("%v, %v", short, err)
	}
	for _, bad := range []string{"[feeds]", "{feeds: {promise: causal, db: x}}", "{feeds: {promise: [1]}}"} {
		if err := yaml.Unmarshal([]byte(bad), &short); err == nil {
			t.Errorf("%s is read", bad)
		}
	}
}

// A connection that selects the database of a causal space is a session: plain commands
// read what it wrote and read, at whichever node its token is taken up.
func TestDatabaseOfACausalSpace(t *testing.T) {
	_, all := causalNodes(t, 2)
	a, b := all[0], all[1]
	says := func(c *wire, want string, cmd ...string) string {
		t.Helper()
		r := c.do(cmd...)
		if want != "" && !strings.Contains(r.String(), want) {
			t.Errorf("%v answers %v, want %s", cmd, r, want)
		}
		return r.Text
	}
	says(a, "OK", "set", "k", "linear")
	says(a, "SELECT one first", "fr.token")
	says(a, "out of range", "select", "9")
	for _, c := range []*wire{a, b} {
		says(c, "OK", "select", "3")
	}
	says(a, "OK", "set", "k", "v")
	says(a, "v", "get", "k")
	says(a, "1", "strlen", "k")
	says(a, "2", "exists", "k", "k", "none")
	says(a, "OK", "mset", "x", "1", "y", "2")
	says(a, "[1 2 (nil)]", "mget", "x", "y", "z")
	says(b, "OK", "fr.token", says(a, "", "fr.token"))
	says(b, "[1 2 v]", "mget", "x", "y", "k")
	says(b, "2", "del", "x", "y", "x", "none")
	says(a, "OK", "fr.token", says(b, "", "fr.token"))
	says(a, "[(nil) (nil) v]", "mget", "x", "y", "k")
	says(a, "OK", "select", "4")
	says(a, "(nil)", "get", "k")
	says(a, "BADTOKEN", "fr.token", says(b, "", "fr.token"))
	says(a, "BADTOKEN", "fr.token", "nonsense")
	says(a, "one token", "fr.token", "a", "b")
	says(a, "no options", "set", "k", "v", "nx")
	says(a, "ERR INCR does not work in the causal space shop", "incr", "n")
	says(a, "does not work", "flushall")
	says(a, "does not work", "keys", "*")
	says(a, "wrong number", "mset", "a")
	says(a, "keys have 1 to", "get", "")
	says(a, "OK", "multi")
	says(a, "QUEUED", "get", "k")
	says(a, "EXECABORT", "exec")
	says(a, "RESET", "reset")
	says(a, "linear", "get", "k")
	says(a, "OK", "select", "3")
	if s, empty := says(a, "", "fr.token"), says(b, "", "fr.begin", "feeds"); s != empty {
		t.Errorf("after RESET the session knows something: %s, and one that knows nothing is %s", s, empty)
	}
	a.do("select", "0")
	a.do("hello", "3")
	a.do("client", "tracking", "on")
	a.do("select", "3")
	says(a, "CLIENT TRACKING does not work", "get", "k")
	says(b, "db=3", "client", "info")
	if _, err := b.nc.Write([]byte("SET p 1\r\nSET q 2\r\nGET p\r\nGET q\r\nGET none\r\n")); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"OK", "OK", "1", "2", "(nil)"} {
		if r := b.reply(); r.String() != want {
			t.Errorf("in a pipeline: %v, want %s", r, want)
		}
	}
}

// RESET forgets what was watched, as in Redis.
func TestResetForgetsWhatIsWatched(t *testing.T) {
	p := start(t, nil)
	addr, _ := p.Addr(0)
	a, b := dial(t, addr), dial(t, addr)
	for _, reset := range []bool{false, true} {
		a.do("watch", "k")
		if reset {
			a.do("reset")
		}
		b.do("incr", "k")
		a.do("multi")
		a.do("get", "k")
		if r := a.do("exec"); (r.String() != "(nil)") != reset {
			t.Errorf("reset %v: EXEC answers %v", reset, r)
		}
	}
}

// What async needs is said at once.
func TestAsyncConfig(t *testing.T) {
	for want, change := range map[string]func(c *Config){
		"directory for it with":   func(c *Config) { c.Data = "" },
		"use pebble: or postgres": func(c *Config) { c.Store = "memory:" },
	} {
		c := Defaults()
		c.Spaces = spacesOf(t, "feeds=causal,async")
		if err := c.Check(); err != nil {
			t.Fatal(err)
		}
		change(&c)
		if err := c.Check(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", want, err)
		}
	}
}
