package node

import (
	"strings"
	"testing"
)

// A script that was loaded at one node runs at the owner of its key, which may never have been sent it: alone and in a
// transaction, by its text and by its sum.
func TestScriptsRunAtTheOwner(t *testing.T) {
	p, _, theirs := twoNodes(t, nil)
	listen, _ := p.Addr(0)
	c := dial(t, listen)
	const text = `if redis.call("get", KEYS[1]) == ARGV[1] then return redis.call("del", KEYS[1]) else return 0 end`
	sha := c.do("script", "load", text).Text
	for i, run := range [][]string{{"evalsha", sha}, {"eval", text}} {
		key := theirs[i]
		c.answers("OK", "set", key, "mine")
		c.answers("OK", "multi")
		c.answers("QUEUED", append(run, "1", key, "other")...)
		c.answers("QUEUED", append(run, "1", key, "mine")...)
		c.answers("[0 1]", "exec")
		c.answers("OK", "set", key, "mine")
		c.answers("1", append(run, "1", key, "mine")...)
		c.answers("0", "exists", key)
	}
	if r := c.do("evalsha", strings.Repeat("0", 40), "1", theirs[0]); !strings.HasPrefix(r.Text, "NOSCRIPT") {
		t.Error(r)
	}
}

// INFO tells monitoring what it looks for, section by section, and the same of a node as long as it lives.
func TestInfoTellsWhatMonitoringLooksFor(t *testing.T) {
	p := start(t, nil)
	listen, _ := p.Addr(0)
	c := dial(t, listen)
	all := c.do("info").Text
	for _, field := range []string{"redis_version:7.", "freshet_version:", "redis_mode:standalone", "run_id:", "process_id:", "uptime_in_seconds:", "connected_clients:", "used_memory:", "role:master", "# Server", "# Clients", "# Memory"} {
		if !strings.Contains(all, field) {
			t.Errorf("INFO does not tell %s", field)
		}
	}
	server := c.do("info", "server").Text
	if !strings.Contains(server, "run_id:") || strings.Contains(server, "# Memory") {
		t.Errorf("INFO of one section is %q", server)
	}
	id := func(text string) string {
		_, rest, _ := strings.Cut(text, "run_id:")
		one, _, _ := strings.Cut(rest, "\r\n")
		return one
	}
	if a, b := id(all), id(server); a != b || a == "" {
		t.Errorf("one node has the names %q and %q", a, b)
	}
}

// COMMAND tells clients where the keys of freshet's own commands are, by which they choose a node.
func TestOwnCommandsTellTheirKeys(t *testing.T) {
	p := start(t, nil)
	listen, _ := p.Addr(0)
	c := dial(t, listen)
	for name, want := range map[string]string{
		"fr.getv": "1 1 1", "fr.cas": "1 1 1", "fr.version": "1 1 1", "fr.setv": "1 1 1", "fr.delv": "1 1 1", "fr.explain": "1 1 1", "fr.cget": "2 2 1", "fr.cset": "2 2 1", "fr.cdel": "2 2 1", "fr.cmget": "2 -1 1", "fr.tmget": "2 -1 1", "fr.tset": "2 2 1", "fr.tdel": "2 2 1",
		"fr.begin": "0 0 0", "fr.state": "0 0 0", "fr.tcommit": "0 0 0", "get": "1 1 1", "mget": "1 -1 1", "mset": "1 -1 2",
	} {
		info := c.do("command", "info", name)
		if len(info.Elems) != 1 || len(info.Elems[0].Elems) < 6 {
			t.Errorf("%s: %v", name, info)
			continue
		}
		var keys []string
		for _, e := range info.Elems[0].Elems[3:6] {
			keys = append(keys, e.Text)
		}
		if got := strings.Join(keys, " "); got != want {
			t.Errorf("%s has its keys at %s, want %s", name, got, want)
		}
	}
}
