package node

import (
	"strings"
	"testing"
	"time"

	"go.yaml.in/yaml/v3"
)

// The settings of one of several processes are taken together, or refused with what is to be done; what is refused is
// shown without its password.
func TestSettingsOfSeveralProcesses(t *testing.T) {
	joins := func(c *Config) { c.Coordinator, c.Store = "freshet://host:1", "postgres://u:secret@h/d" }
	onEtcd := func(c *Config) { c.Coordinator, c.Store = "etcd://h:1", "etcd://u:secret@h:1" }
	for _, x := range []struct {
		begin, change func(*Config)
		says          string
	}{
		{joins, func(c *Config) { c.Data = "" }, ""}, {onEtcd, func(c *Config) { c.Data = "" }, ""}, {joins, func(c *Config) { c.Store = "mysql://u:secret@h/d" }, ""},
		{joins, func(c *Config) { c.Listen, c.Password = ":6380", "secret" }, "other processes cannot reach this one at :6380: say --advertise HOST:PORT"},
		{joins, func(c *Config) { c.Listen, c.Password = "[::]:6380", "secret" }, "other processes cannot reach this one at [::]:6380"},
		{joins, func(c *Config) { c.Listen, c.Password = "10.0.0.1:6380", "secret" }, ""},
		{joins, func(c *Config) { c.Listen, c.Password = "name:6380", "secret" }, ""},
		{joins, func(c *Config) { c.Advertise = "0.0.0.0:1" }, "other processes cannot reach this one at 0.0.0.0:1"},
		{joins, func(c *Config) { c.Listen, c.Advertise, c.Password = ":6380", "host:1", "secret" }, ""},
		{joins, func(c *Config) { c.Advertise = "host:" }, `--advertise "host:" is not HOST:PORT`},
		{joins, func(c *Config) { c.Coordinator = "freshet://" }, "--coordinator freshet://: what follows freshet:// is not HOST:PORT"},
		{joins, func(c *Config) { c.Store = "pebble:" }, "--coordinator freshet://host:1 makes this process one of several"},
		{onEtcd, func(c *Config) { c.Store = "memory:" }, "--coordinator etcd://h:1 makes this process one of several"},
		{onEtcd, func(c *Config) { c.Coordinator = "etcd://u:secret@h" }, `--coordinator etcd://u:xxxxx@h: "h" is not HOST:PORT`},
		{onEtcd, func(c *Config) { c.Coordinator = "paper://u:secret@h:1" }, `--coordinator "paper://u:xxxxx@h:1" is not known; use embedded`},
		{func(*Config) {}, func(c *Config) { c.Store = "redis://u:secret@h:1" }, `--store "redis://u:xxxxx@h:1" is not known; use pebble:`},
		{func(*Config) {}, func(c *Config) { c.Listen, c.Password = ":6380", "secret" }, ""}, // alone
		{func(*Config) {}, func(c *Config) { c.Listen = ":6380" }, "--listen :6380 can be reached from other machines: set a password, or say --insecure"},
		{func(*Config) {}, func(c *Config) { c.Admin = "10.0.0.1:1" }, "--admin 10.0.0.1:1 can be reached from other machines"},
		{func(*Config) {}, func(c *Config) { c.NodeID = "a\r" }, `--node-id "a\r" is empty or has`}, {func(*Config) {}, func(c *Config) { c.NodeID = "a\n" }, `--node-id "a\n" is empty or has`},
		{func(*Config) {}, func(c *Config) { c.TLSKey = "key" }, "--tls-cert and --tls-key go together"},
		{func(*Config) {}, func(c *Config) { c.LogLevel, c.LogFormat = "", "" }, ""},
	} {
		c := Defaults()
		x.begin(&c)
		x.change(&c)
		says := ""
		if err := c.Check(); err != nil {
			says = err.Error()
		}
		if (says == "") != (x.says == "") || !strings.Contains(says, x.says) || strings.Contains(says, "secret") || strings.Count(says, "\n") > strings.Count(x.says, "\n") {
			t.Errorf("%+v: %q, want %q", c.Redacted(), says, x.says)
		}
	}
	c := Defaults()
	c.Nodes, c.Lease, c.MaxConns, c.NodeID = 0, time.Second-time.Hour, 0, ""
	if err := c.Check(); err == nil || strings.Count(err.Error(), "\n") != 3 {
		t.Errorf("of four mistakes not all are named: %v", err)
	}
}

// Names and numbers of spaces have edges; a mistake in a list leaves the spaces before it; what is not a map is refused
// with its line; which spaces keep a log, and which have a database, is known.
func TestTheEdgesOfSpaces(t *testing.T) {
	for _, x := range []struct {
		name string
		db   int
		says string
	}{
		{strings.Repeat("n", 100), 1023, ""}, {"a", 0, ""}, {"a", 1, ""}, {"a", 1024, "--space a: db=1024 is not a number from 1 to 1023"}, {"a", -1, "db=-1 is not a number"}, {"a\r", 0, "1 to 100 bytes"}, {"a\n", 0, "1 to 100 bytes"}, {"", 0, "1 to 100 bytes"},
	} {
		c := Defaults()
		c.Store, c.Spaces = "memory:", Spaces{{Name: x.name, Promise: "causal", DB: x.db}}
		if err := c.Check(); (err == nil) != (x.says == "") || err != nil && !strings.Contains(err.Error(), x.says) {
			t.Errorf("%q with db=%d: %v, want %q", x.name, x.db, err, x.says)
		}
	}
	c := Defaults()
	c.Store, c.Spaces = "memory:", Spaces{{Name: "a", Promise: "strong"}}
	if err := c.Check(); err == nil || !strings.HasSuffix(err.Error(), `no promise is called "strong"; there is causal`) {
		t.Errorf("a promise that is not there: %v", err)
	}
	var s Spaces
	if err := s.Set("a=causal; ;b=causal,db=7;c"); err == nil || s.String() != "a=causal;b=causal,db=7" || s.Type() != "space" {
		t.Errorf("%v: %s", err, s.String())
	}
	if err := s.Append("d"); err == nil || len(s) != 2 {
		t.Errorf("%v: %s", err, s.String())
	}
	if s.async() || len(s.of("causal")) != 2 || len(s.of("strong")) != 0 || len(s.databases()) != 1 || s.databases()[0] != 7 {
		t.Errorf("%s: logs %v, databases %v", s.String(), s.async(), s.databases())
	}
	if err := s.Set("e=causal,async"); err != nil || !s.async() {
		t.Errorf("%s: %v, logs %v", s.String(), err, s.async())
	}
	if err := yaml.Unmarshal([]byte("\n- a\n- b"), &s); err == nil || !strings.Contains(err.Error(), "line 2: spaces are a map") || len(s) != 3 {
		t.Errorf("a list is taken for spaces: %v, %s", err, s.String())
	}
	if err := yaml.Unmarshal([]byte("{x: causal, y: {promise: causal, db: 2}}"), &s); err != nil || s.String() != "x=causal;y=causal,db=2" {
		t.Errorf("%v: %s", err, s.String())
	}
}

// A process of several nodes opens no spaces of a program, and a process of one opens each name once.
func TestSpacesOfAProgram(t *testing.T) {
	p, _, _ := apart(t, "")
	for _, name := range []string{"", strings.Repeat("n", 256)} {
		if _, err := p.Space(name); err == nil || !strings.Contains(err.Error(), "a space has a name of 1 to 255 bytes, not ") {
			t.Errorf("a space of %d bytes: %v", len(name), err)
		}
	}
	for _, name := range []string{"a", strings.Repeat("n", 255)} {
		s, err := p.Space(name)
		if err != nil || s.Self() != "nine:1" {
			t.Errorf("a space of %d bytes: %v", len(name), err)
		}
		if _, err := p.Space(name); err == nil || !strings.Contains(err.Error(), "is open already") {
			t.Errorf("it is opened again: %v", err)
		}
	}
	p.nodes = append(p.nodes, &Node{p: p})
	if _, err := p.Space("b"); err == nil || !strings.Contains(err.Error(), "leave --nodes at 1") {
		t.Errorf("with two nodes: %v", err)
	}
	for _, c := range []struct{ keys, kept, last int }{{0, 0, 0}, {1, 1, 0}, {64, 64, 63}, {65, 64, 63}, {128, 64, 126}, {640, 64, 630}} {
		keys := make([]string, c.keys)
		for i := range keys {
			keys[i] = strings.Repeat("k", i)
		}
		kept := thin(keys)
		if len(kept) != c.kept || c.kept > 0 && (len(kept[c.kept-1]) != c.last || kept[0] != "") {
			t.Errorf("of %d keys %d are kept", c.keys, len(kept))
		}
	}
}
