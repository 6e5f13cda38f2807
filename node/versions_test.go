package node

import (
	"fmt"
	"strings"
	"testing"
)

// Nodes that keep versions only answer as others do, and know versions without their
// values.
func TestVersionsOnly(t *testing.T) {
	for _, only := range []bool{true, false} {
		t.Run(fmt.Sprint(only), func(t *testing.T) {
			p := start(t, func(c *Config) { c.Nodes, c.VersionsOnly = 3, only })
			var all []*wire
			for i := range 3 {
				addr, _ := p.Addr(i)
				all = append(all, dial(t, addr))
			}
			for _, key := range []string{"0a", "Ka", "va"} { // of different owners
				testVersions(t, p, all, key, only)
			}
		})
	}
}

func testVersions(t *testing.T, p *Process, all []*wire, key string, only bool) {
	t.Helper()
	ask := func(i int, args ...string) string { return fmt.Sprint(all[i].do(args...)) }
	want := func(i int, text string, args ...string) {
		t.Helper()
		if got := ask(i, args...); got != text {
			t.Errorf("%v at %d: %s, not %s", args, i, got, text)
		}
	}
	first := ask(0, "FR.SETV", key, "one")
	for i := range 3 {
		want(i, fmt.Sprintf(`[%s 1]`, first), "FR.VERSION", key)
		want(i, "one", "GET", key)
	}
	for _, n := range p.nodes {
		if _, here := n.cache.Peek(key); here && only {
			t.Errorf("%s has the value of %s in memory", n.id, key)
		}
	}
	second := ask(1, "FR.SETV", key, "two", "PX", "100000")
	if second <= first {
		t.Errorf("version %s follows %s", second, first)
	}
	want(2, fmt.Sprintf(`[%s 1]`, second), "FR.VERSION", key)
	want(2, "4", "APPEND", key, "2")
	want(0, "two2", "GET", key)
	gone := ask(0, "FR.DELV", key)
	want(1, fmt.Sprintf(`[%s 0]`, gone), "FR.VERSION", key)
	for _, bad := range [][]string{{"FR.SETV", key, "v", "NX"}, {"FR.SETV", key, "v", "KEEPTTL"}, {"FR.SETV", key, "v", "PX", "x"}, {"FR.SETV", key}} {
		if got := ask(0, bad...); !strings.Contains(got, "ERR") {
			t.Errorf("%v: %s", bad, got)
		}
	}
	want(1, fmt.Sprintf(`[%s 0]`, gone), "FR.VERSION", key)
	want(0, "OK", "MULTI")
	want(0, "QUEUED", "FR.SETV", key, "v")
	want(0, "QUEUED", "FR.VERSION", key)
	if got := ask(0, "EXEC"); !strings.Contains(got, "no version before EXEC") || !strings.Contains(got, gone) {
		t.Errorf("in a transaction: %s", got)
	}
}
