package node

import (
	"bytes"
	"fmt"
	"maps"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
)

// gathered is what /metrics of a node tells, by family.
func gathered(t *testing.T, n *Node) map[string]*dto.MetricFamily {
	t.Helper()
	all, err := n.m.registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]*dto.MetricFamily{}
	for _, f := range all {
		out[f.GetName()] = f
	}
	return out
}

// value is a counter or gauge with the labels given.
func metric(t *testing.T, n *Node, name string, labels ...string) float64 {
	t.Helper()
	for _, m := range gathered(t, n)[name].GetMetric() {
		have := map[string]string{}
		for _, l := range m.Label {
			have[l.GetName()] = l.GetValue()
		}
		ok := true
		for i := 0; i < len(labels); i += 2 {
			ok = ok && have[labels[i]] == labels[i+1]
		}
		if ok {
			return m.GetCounter().GetValue() + m.GetGauge().GetValue()
		}
	}
	t.Fatalf("no %s with %v", name, labels)
	return 0
}

// A read counts at the node that served it, for whomever; that it was forwarded is
// counted apart.
func TestReadsCountWhereTheyAreServed(t *testing.T) {
	p := start(t, func(c *Config) { c.Nodes = 2 })
	owner, other := p.nodes[0], p.nodes[1]
	key := ""
	for i := 0; key == ""; i++ {
		if k := strconv.Itoa(i) + "key"; owner.cache.Owns(k) {
			key = k
		}
	}
	a, b := dial(t, owner.addr), dial(t, other.addr)
	a.do("SET", key, "v")
	a.do("GET", key)
	reads := func(n *Node, source, who string) int {
		return int(metric(t, n, "freshet_reads_total", "source", source, "for", who))
	}
	a.do("PING")
	hits, mem := owner.m.hits.Load(), reads(owner, "memory", "client")
	for range 100 {
		a.do("GET", key)
		b.do("GET", key)
	}
	b.do("MGET", key, key)
	a.do("PING") // what a connection counts is published when it is idle
	for want, got := range map[string]int{
		"100 for clients at the owner": reads(owner, "memory", "client") - mem, "102 for the other node": reads(owner, "memory", "node"),
		"102 forwarded": int(metric(t, other, "freshet_forwarded_total", "kind", "read")), "202 hits in all": int(owner.m.hits.Load() - hits),
		"0 served at the other node": int(other.m.hits.Load()) + reads(other, "store", "client"),
	} {
		if n, _, _ := strings.Cut(want, " "); n != strconv.Itoa(got) {
			t.Errorf("%d, want %s", got, want)
		}
	}
}

// used starts two nodes with causal spaces and sends every command to both.
func used(t *testing.T, change func(*Config)) *Process {
	p := start(t, func(c *Config) {
		c.Nodes, c.Spaces, c.TokenKey = 2, spacesOf(t, "feeds=causal;shop=causal,tcc"), "secret"
		if change != nil {
			change(c)
		}
	})
	for _, n := range p.nodes {
		c := dial(t, n.addr)
		for _, space := range []string{"feeds", "shop"} {
			for kind := byte(0); kind != '*'; {
				kind = c.do("FR.CGET", token(t, c.do("FR.BEGIN", space)), "k").Kind
			}
		}
		c.do("CLIENT", "TRACKING", "ON")
		for _, cmd := range p.commands {
			if slices.Contains([]string{"fr.link", "fr.drain"}, cmd.Name) {
				continue
			}
			args := []string{cmd.Name}
			for len(args) < max(cmd.Arity, -cmd.Arity) {
				args = append(args, "1")
			}
			c.do(args...)
		}
		c.do("MULTI")
		c.do("GET", "1")
		c.do("EXEC")
		c.do("GET", "1")
		c.do("PING")
	}
	return p
}

// After every command, a node has a bounded number of series: 400, and 60 for each causal
// space. They are counted as the text format has them.
func TestSeriesHaveABudget(t *testing.T) {
	for _, classic := range []bool{false, true} {
		p := used(t, func(c *Config) { c.MetricsClassic = classic })
		var text bytes.Buffer
		for _, f := range gathered(t, p.nodes[0]) {
			if _, err := expfmt.MetricFamilyToText(&text, f); err != nil {
				t.Fatal(err)
			}
		}
		space := map[string]int{}
		all := 0
		for line := range strings.Lines(text.String()) {
			if strings.HasPrefix(line, "#") {
				continue
			}
			all++
			if m := regexp.MustCompile(`space="(\w+)"`).FindStringSubmatch(line); m != nil && m[1] != "default" {
				space[m[1]]++
				all--
			}
		}
		t.Logf("classic %v: %d series, and %v", classic, all, space)
		if all > 400 || len(space) != 2 {
			t.Errorf("%d series", all)
		}
		for s, n := range space {
			if n > 60 {
				t.Errorf("%d series of the space %s", n, s)
			}
		}
	}
}

// Durations are native histograms, or have eight buckets with --metrics-classic.
func TestHistograms(t *testing.T) {
	for _, classic := range []bool{false, true} {
		p := used(t, func(c *Config) { c.MetricsClassic = classic })
		for _, name := range []string{"freshet_command_seconds", "freshet_store_seconds", "freshet_causal_store_seconds"} {
			for _, m := range gathered(t, p.nodes[0])[name].GetMetric() {
				h := m.GetHistogram()
				if native := h.Schema != nil; native == classic || (len(h.Bucket) == 8) != classic {
					t.Errorf("%s with classic %v: native %v, %d buckets", name, classic, native, len(h.Bucket))
				}
			}
		}
	}
}

// docs/operating.md lists every metric, and no other.
func TestMetricsAreDocumented(t *testing.T) {
	p := used(t, nil)
	b, err := os.ReadFile("../docs/operating.md")
	if err != nil {
		t.Fatal(err)
	}
	listed := map[string]bool{}
	for _, m := range regexp.MustCompile("(?m)`(freshet_[a-z_]+)").FindAllStringSubmatch(string(b), -1) {
		listed[m[1]] = true
	}
	for p.watch.membership.Load() == nil || len(p.watch.membership.Load().Members) == 0 {
		dial(t, p.nodes[0].addr).do("PING")
	}
	for name := range gathered(t, p.nodes[0]) {
		if strings.HasPrefix(name, "freshet_") && !listed[name] {
			t.Errorf("docs/operating.md does not list %s", name)
		}
		delete(listed, name)
	}
	for _, name := range slices.Sorted(maps.Keys(listed)) {
		t.Errorf("docs/operating.md lists %s, which there is not", name)
	}
}

// INFO honours its arguments, and has what exporters look for.
func TestInfoHasSections(t *testing.T) {
	p := start(t, nil)
	c := dial(t, p.nodes[0].addr)
	c.do("SET", "a", "1")
	c.do("GET", "a")
	c.do("GET", "nothing")
	c.do("PING")
	for args, want := range map[string]string{
		"":                     "Server Clients Memory Persistence Stats Replication Cpu Cluster Keyspace Freshet",
		"all":                  "Server Clients Memory Persistence Stats Replication Cpu Commandstats Cluster Keyspace Freshet",
		"everything":           "Server Clients Memory Persistence Stats Replication Cpu Commandstats Cluster Keyspace Freshet",
		"KEYSPACE":             "Keyspace",
		"stats commandstats":   "Stats Commandstats",
		"default commandstats": "Server Clients Memory Persistence Stats Replication Cpu Commandstats Cluster Keyspace Freshet",
		"nonsense":             "",
	} {
		var got []string
		for _, m := range regexp.MustCompile(`(?m)^# (\w+)`).FindAllStringSubmatch(c.do(append([]string{"INFO"}, strings.Fields(args)...)...).Text, -1) {
			got = append(got, m[1])
		}
		if s := strings.Join(got, " "); s != want {
			t.Errorf("INFO %s: %s", args, s)
		}
	}
	all := c.do("INFO", "all").Text
	for _, line := range []string{"db0:keys=1,", "cmdstat_get:calls=2,", "cmdstat_set:calls=1,", "keyspace_hits:1\r", "keyspace_misses:1\r", "expired_keys:0\r", "evicted_keys:0\r"} {
		if !strings.Contains(all, line) {
			t.Errorf("INFO has no %q:\n%s", line, all)
		}
	}
}

// What had to make room is counted, and its next miss says so.
func TestEvictionsAreCounted(t *testing.T) {
	p := start(t, func(c *Config) { c.Memory = 64 << 10 })
	n := p.nodes[0]
	c := dial(t, n.addr)
	for i := range 2000 {
		c.do("SET", fmt.Sprint("key:", i), strings.Repeat("v", 100))
	}
	for n.cache.Evictions() < 1000 {
		c.do("PING")
	}
	for i := range 2000 {
		c.do("GET", fmt.Sprint("key:", i))
	}
	if got := metric(t, n, "freshet_misses_total", "cause", "evicted"); got < 100 {
		t.Errorf("%v misses for what was evicted", got)
	}
	if text := c.do("INFO", "stats").Text; strings.Contains(text, "evicted_keys:0\r") {
		t.Error(text)
	}
}
