package main

import (
	"strings"
	"testing"

	"github.com/freshet-cache/freshet/node"
)

// Whatever stands in a configuration file, the answer is a configuration that
// can be checked, or one error.
func FuzzConfig(f *testing.F) {
	for _, s := range []string{"", "listen: 127.0.0.1:0\n", "lease: soon", "nodes: 99999999999", "- a\n- b", "max-key: -1\nadmin: x", "a: &a [*a]", "\x00", "lease: {}", "password: [1]"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		c := node.Defaults()
		if err := decode(strings.NewReader(text), &c); err == nil {
			_ = c.Check()
		}
	})
}

// Everything wrong is said at once, by the name of its flag.
func TestConfigIsCheckedWhole(t *testing.T) {
	c := node.Defaults()
	c.Listen, c.Nodes, c.Lease, c.MaxKey = "nowhere", 0, 1, 0
	err := c.Check()
	for _, flag := range []string{"--listen", "--nodes", "--lease", "--max-key"} {
		if err == nil || !strings.Contains(err.Error(), flag) {
			t.Errorf("%v does not mention %s", err, flag)
		}
	}
	if c := node.Defaults(); c.Check() != nil {
		t.Error("the defaults are wrong")
	}
}
