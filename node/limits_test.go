package node

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// A setting at the edge of what it may be is taken, and one beyond it is refused by the name of its flag.
func TestTheEdgesOfSettings(t *testing.T) {
	type settings = map[bool]func(c *Config)
	for says, edge := range map[string][]settings{
		"--nodes":           {{true: func(c *Config) { c.Nodes = 1 }, false: func(c *Config) { c.Nodes = 0 }}, {true: func(c *Config) { c.Nodes = 64 }, false: func(c *Config) { c.Nodes = 65 }}},
		"--lease":           {{true: func(c *Config) { c.Lease = 100 * time.Millisecond }, false: func(c *Config) { c.Lease-- }}, {true: func(c *Config) { c.Lease = time.Hour }, false: func(c *Config) { c.Lease++ }}},
		"--timeout":         {{true: func(c *Config) { c.Timeout = 10 * time.Millisecond }, false: func(c *Config) { c.Timeout-- }}},
		"--max-key":         {{true: func(c *Config) { c.MaxKey = 1 }, false: func(c *Config) { c.MaxKey-- }}, {true: func(c *Config) { c.MaxKey = 1 << 20 }, false: func(c *Config) { c.MaxKey++ }}},
		"--max-value":       {{true: func(c *Config) { c.MaxValue = 1 }, false: func(c *Config) { c.MaxValue-- }}, {true: func(c *Config) { c.MaxValue = 256 << 20 }, false: func(c *Config) { c.MaxValue++ }}},
		"--max-conns":       {{true: func(c *Config) { c.MaxConns = 1 }, false: func(c *Config) { c.MaxConns-- }}},
		"--tracking-keys":   {{true: func(c *Config) { c.TrackingKeys = 1 }, false: func(c *Config) { c.TrackingKeys-- }}},
		"--causal-memory":   {{true: func(c *Config) { c.CausalMemory = 0 }, false: func(c *Config) { c.CausalMemory-- }}},
		"--causal-keys":     {{true: func(c *Config) { c.CausalKeys = 1 }, false: func(c *Config) { c.CausalKeys-- }}},
		"--replicate-above": {{true: func(c *Config) { c.ReplicateAt = 0 }, false: func(c *Config) { c.ReplicateAt-- }}},
		"--max-replicas":    {{true: func(c *Config) { c.MaxReplicas = 1 }, false: func(c *Config) { c.MaxReplicas-- }}, {true: func(c *Config) { c.MaxReplicas = 63 }, false: func(c *Config) { c.MaxReplicas++ }}},
		"--node-id":         {{true: func(c *Config) { c.NodeID = "a" }, false: func(c *Config) { c.NodeID = "" }}, {true: func(*Config) {}, false: func(c *Config) { c.NodeID = "a/b" }}, {true: func(*Config) {}, false: func(c *Config) { c.NodeID = "a b" }}},
		"--listen":          {{true: func(c *Config) { c.Listen = "localhost:0" }, false: func(c *Config) { c.Listen = "localhost" }}, {true: func(c *Config) { c.Listen = "[::1]:65535" }, false: func(c *Config) { c.Listen = "[::1]:65536" }}, {true: func(*Config) {}, false: func(c *Config) { c.Listen = "127.0.0.1:-1" }}, {true: func(*Config) {}, false: func(c *Config) { c.Listen = "127.0.0.1:x" }}},
		"--admin":           {{true: func(c *Config) { c.Admin = "127.0.0.2:1" }, false: func(c *Config) { c.Admin = "" }}},
		"--insecure":        {{true: func(c *Config) { c.Listen, c.Insecure = "0.0.0.0:1", true }, false: func(c *Config) { c.Insecure = false }}, {true: func(c *Config) { c.Admin, c.Password = ":1", "secret" }, false: func(c *Config) { c.Password = "" }}},
		"--store":           {{true: func(c *Config) { c.Store = "pebble:" }, false: func(c *Config) { c.Store = "paper:" }}},
		"--data is empty":   {{true: func(c *Config) { c.Store, c.Data = "memory:", "" }, false: func(c *Config) { c.Store = "pebble:" }}},
		"--log-level":       {{true: func(c *Config) { c.LogLevel = "debug" }, false: func(c *Config) { c.LogLevel = "loud" }}, {true: func(c *Config) { c.LogLevel = "" }, false: func(c *Config) { c.LogLevel = "Debug" }}},
		"--log-format":      {{true: func(c *Config) { c.LogFormat = "json" }, false: func(c *Config) { c.LogFormat = "xml" }}},
		"--tls-cert":        {{true: func(c *Config) { c.TLSCert, c.TLSKey = "a", "b" }, false: func(c *Config) { c.TLSKey = "" }}},
		"--advertise":       {{true: func(c *Config) { c.Advertise = "host:1" }, false: func(c *Config) { c.Advertise = "host" }}, {true: func(*Config) {}, false: func(c *Config) { c.Advertise = "host:0" }}},
		"need a store that": {{true: func(c *Config) { c.Coordinator, c.Store = "freshet://host:1", "postgres://h/d" }, false: func(c *Config) { c.Store = "pebble:" }}, {true: func(c *Config) { c.Coordinator, c.Store = "etcd://host:1", "mysql://u@h/d" }, false: func(c *Config) { c.Store = "memory:" }}},
		"is not HOST:PORT":  {{true: func(c *Config) { c.Coordinator, c.Store = "freshet://host:1", "postgres://h/d" }, false: func(c *Config) { c.Coordinator = "freshet://host" }}, {true: func(c *Config) { c.Coordinator, c.Store = "etcds://u:p@h:1,i:2/prefix", "postgres://h/d" }, false: func(c *Config) { c.Coordinator = "etcd://h:1,i" }}},
		"is not known; use": {{true: func(c *Config) { c.Coordinator, c.Store = "etcd://h:1", "postgres://h/d" }, false: func(c *Config) { c.Coordinator = "paper" }}},
		"cannot reach this": {{true: func(c *Config) {
			c.Coordinator, c.Store, c.Listen, c.Insecure, c.Advertise = "etcd://h:1", "postgres://h/d", "0.0.0.0:1", true, "host:1"
		}, false: func(c *Config) { c.Advertise = "" }}},
	} {
		for i, e := range edge {
			c := Defaults()
			if e[true](&c); c.Check() != nil {
				t.Errorf("%s, edge %d: %v", says, i, c.Check())
			}
			e[false](&c)
			if err := c.Check(); err == nil || !strings.Contains(err.Error(), says) {
				t.Errorf("%s, beyond edge %d: %v", says, i, err)
			}
		}
	}
}

// The address of etcd has its hosts, user, password and prefix apart; TLS trusts the certificates of a file, which must
// hold some.
func TestTheAddressOfEtcd(t *testing.T) {
	for url, want := range map[string]struct{ hosts, user, password, prefix string }{
		"etcd://h:1": {"h:1", "", "", ""}, "etcd://h:1,i:2/p": {"h:1 i:2", "", "", "p/"}, "etcd://h:1/p/q/": {"h:1", "", "", "p/q/"}, "etcd://u:p@h:1": {"h:1", "u", "p", ""}, "etcd://u@h:1/": {"h:1", "u", "", ""}, "etcd://u:p@q:r@h:1": {"h:1", "u", "p@q:r", ""},
	} {
		c := Config{Coordinator: url}
		opt, ok, err := c.etcd()
		if strings.Join(opt.Endpoints, " ") != want.hosts || opt.User != want.user || opt.Password != want.password || opt.Prefix != want.prefix || !ok || err != nil || opt.TLS != nil {
			t.Errorf("%s is read as %+v, %v, %v", url, opt, ok, err)
		}
	}
	for _, url := range []string{"embedded", "freshet://h:1", "etc://h:1"} {
		if _, ok, err := (&Config{Coordinator: url}).etcd(); ok || err != nil {
			t.Errorf("%s is taken for etcd, %v", url, err)
		}
	}
	empty := filepath.Join(t.TempDir(), "ca")
	if err := os.WriteFile(empty, []byte("nothing"), 0o600); err != nil {
		t.Fatal(err)
	}
	for file, says := range map[string]string{empty: "holds no certificate", empty + "none": "no such file"} {
		if _, ok, err := (&Config{Coordinator: "etcds://h:1", TLSCA: file}).etcd(); !ok || err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: %v", file, err)
		}
	}
	if opt, _, err := (&Config{Coordinator: "etcds://h:1"}).etcd(); err != nil || opt.TLS == nil {
		t.Errorf("%+v, %v", opt, err)
	}
}

// No password is shown, wherever in a configuration it stands; what is no password is.
func TestPasswordsAreNotShown(t *testing.T) {
	c := Defaults()
	c.Password, c.TokenKey, c.Store, c.Coordinator = "secret", "secret", "postgres://u:secret@h/d?password=secret&x=1", "etcd://u:secret@h:1/p"
	got := c.Redacted()
	if got.Password != "(set)" || got.TokenKey != "(set)" || got.Store != "postgres://u:xxxxx@h/d?password=xxxxx&x=1" || got.Coordinator != "etcd://u:xxxxx@h:1/p" {
		t.Errorf("%+v", got)
	}
	if c.Password != "secret" {
		t.Error("to show a configuration changes it")
	}
	if d := Defaults(); d.Redacted().Password != "" || d.Redacted().TokenKey != "" || d.Redacted().Store != d.Store {
		t.Errorf("%+v", d.Redacted())
	}
}

// Plain commands in the database of a causal space say what does not work there, and write nothing then.
func TestWhatDoesNotWorkInACausalSpace(t *testing.T) {
	_, all := causalNodes(t, 1)
	c := all[0]
	c.says([][2]string{{"select 3", "OK"}, {"set k v", "OK"}, {"set k w nx", "-ERR SET takes no options..."}, {"get k", "v"}, {"mset a 1 b", "-ERR wrong number of arguments..."}, {"exists a", "0"}, {"append k w", "-ERR APPEND does not work in the causal space feeds..."},
		{"get k", "v"}, {"fr.token a b", "-ERR FR.TOKEN takes one token..."}, {"fr.token noise", "-BADTOKEN ..."}, {"mset a 1 b 2", "OK"}, {"exists a b a none", "3"}, {"unlink a none a", "1"}, {"mget a b k", "[(nil) 2 v]"}, {"strlen k", "1"}, {"strlen none", "0"},
		{"time", "[..."}, {"select 0", "OK"}, {"exists k", "0"}, {"select 3", "OK"}, {"get k", "v"}})
	c.do("hello", "3")
	if r := c.do("client", "tracking", "on"); r.Text == "OK" {
		if r := c.do("get", "k"); r.Kind != '-' || !strings.Contains(r.Text, "CLIENT TRACKING") {
			t.Errorf("a client that tracks reads %v", r)
		}
	}
	if r := c.do("get", strings.Repeat("k", 5000)); r.Kind != '-' {
		t.Errorf("a key of 5000 bytes: %v", r)
	}
}
