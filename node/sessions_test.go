package node

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/freshet-cache/freshet/resp"
	"github.com/freshet-cache/freshet/store/dotted"
)

// causalNodes starts nodes with a causal space and one for transactions, and waits until all
// of them are in both rings.
func causalNodes(t *testing.T, nodes int) (*Process, []*wire) {
	t.Helper()
	p := start(t, func(c *Config) { c.Nodes, c.Causal, c.TCC, c.TokenKey = nodes, "feeds, walls", "shop", "secret" })
	var all []*wire
	for _, n := range p.nodes {
		c := dial(t, n.addr)
		for _, space := range []string{"feeds", "shop"} {
			for kind := byte(0); kind != '*'; { // not yet joined: TRYAGAIN
				kind = c.do("FR.CGET", token(t, c.do("FR.BEGIN", space)), "k").Kind
			}
			for len(p.nodes[0].causal[space].ring.View().Ring) < nodes {
				c.do("ping")
			}
		}
		all = append(all, c)
	}
	return p, all
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
	p, all := causalNodes(t, 1)
	c := all[0]
	s := token(t, c.do("FR.BEGIN", "feeds"))
	wall, tx := token(t, c.do("FR.BEGIN", "walls")), token(t, c.do("FR.TBEGIN", s))
	for _, x := range []struct {
		want string
		args []string
	}{
		{"ERR no such causal space", []string{"FR.BEGIN", "nowhere"}},
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
	was := p.nodes[0].causal
	p.nodes[0].causal = nil
	defer func() { p.nodes[0].causal = was }()
	if v := c.do("FR.BEGIN", "feeds"); !strings.HasPrefix(v.Text, "ERR no causal space is open") {
		t.Error(v)
	}
	for _, bad := range []func(*Config){
		func(c *Config) { c.Causal = "a/b" },
		func(c *Config) { c.Causal, c.TCC = "a", "a" },
		func(c *Config) { c.Causal, c.Store = "a", "mysql://u@h/db" },
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
		c.Nodes, c.Store, c.Data, c.Causal, c.TCC = 2, "pebble:", dir, "carts=union", "tops=max"
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
	cfg.Listen, cfg.Admin, cfg.Data, cfg.Causal = "127.0.0.1:0", "127.0.0.1:0", t.TempDir(), "carts=union"
	for _, x := range []struct {
		spaces string
		want   error
	}{{"carts=union", nil}, {"carts", dotted.ErrKept}, {"carts=max", nil}} {
		cfg.Causal = x.spaces
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

func TestSpacesThatCannotBe(t *testing.T) {
	for text, spaces := range map[string]string{"no merge function": "carts=concat", "up to 100 bytes": "=max", "twice": "a=max,a"} {
		c := Defaults()
		c.Causal = spaces
		if _, err := c.spacesOf(); err == nil || !strings.Contains(err.Error(), text) {
			t.Errorf("%s: %v", spaces, err)
		}
	}
}

// What --causal-async needs is said at once.
func TestAsyncConfig(t *testing.T) {
	for want, change := range map[string]func(c *Config){
		"name one with --causal":  func(c *Config) { c.Causal = "" },
		"directory for it with":   func(c *Config) { c.Data = "" },
		"use pebble: or postgres": func(c *Config) { c.Store = "memory:" },
		"spaces that merge":       func(c *Config) { c.Causal = "feeds=union" },
	} {
		c := Defaults()
		c.Causal, c.CausalAsync = "feeds", true
		if err := c.Check(); err != nil {
			t.Fatal(err)
		}
		change(&c)
		if err := c.Check(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", want, err)
		}
	}
}
