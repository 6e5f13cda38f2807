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

// Secrets are not shown, however they are written.
func TestRedacted(t *testing.T) {
	for in, want := range map[string]string{
		"postgres://me:geheim@db/app":                   "postgres://me:xxxxx@db/app",
		"postgres://db/app?user=me&password=geheim&x=1": "postgres://db/app?user=me&password=xxxxx&x=1",
		"postgres://db/app?sslpassword=geheim":          "postgres://db/app?sslpassword=xxxxx",
		"postgres://me@db/app?schema=s":                 "postgres://me@db/app?schema=s",
		"mysql://me:geheim@db:3306/app?tls=true":        "mysql://me:xxxxx@db:3306/app?tls=true",
		"etcd://me:geheim@a:2379,b:2379/x":              "etcd://me:xxxxx@a:2379,b:2379/x",
		"pebble:":                                       "pebble:",
	} {
		c := node.Defaults()
		c.Store = in
		if got := c.Redacted().Store; got != want {
			t.Errorf("%s is shown as %s", in, got)
		}
	}
	for _, in := range []string{"etcd://u:12/geheim@h:2379", "etcd://u:1?geheim@h:2379", "freshet://:geheim@h:6380", "etcd://u:a@geheim@h:1"} {
		c := node.Defaults()
		c.Store, c.Coordinator = "postgres://db/app", in
		if got := c.Redacted().Coordinator; strings.Contains(got, "geheim") {
			t.Errorf("%s is shown as %s", in, got)
		}
		if err := c.Check(); err != nil && strings.Contains(err.Error(), "geheim") {
			t.Errorf("%s: %v", in, err)
		}
	}
	c := node.Defaults()
	c.Store, c.Coordinator, c.Listen, c.Insecure = "postgres://db/app", "etcd://h:1", "0.0.0.0:6380", true
	if err := c.Check(); err == nil || !strings.Contains(err.Error(), "--advertise") {
		t.Errorf("a node that nobody can reach: %v", err)
	}
	c.Advertise = "nonsense"
	if err := c.Check(); err == nil || !strings.Contains(err.Error(), "nonsense") {
		t.Errorf("an address that is none: %v", err)
	}
	c.Advertise = "10.0.0.1:6380"
	if err := c.Check(); err != nil {
		t.Error(err)
	}
}
