package node

import (
	"strconv"
	"testing"
	"time"
)

// Times are told in the unit that a command has, from memory and from the store.
func TestTimesHaveUnits(t *testing.T) {
	p := start(t, func(c *Config) { c.Nodes = 2 })
	for i := range 2 { // at the owner, and at the other node
		c := dial(t, p.nodes[i].addr)
		before := time.Now()
		c.answers("OK", "SET", "k", "v", "EX", "1000")
		for _, read := range []string{"after it was written", "again"} {
			for cmd, unit := range map[string]time.Duration{"TTL": time.Second, "PTTL": time.Millisecond} {
				n, err := strconv.ParseInt(c.do(cmd, "k").Text, 10, 64)
				left := time.Duration(n) * unit
				if err != nil || left > 1000*time.Second || left < 1000*time.Second-time.Since(before)-2*time.Second {
					t.Errorf("%s %s: %d", cmd, read, n)
				}
			}
			for cmd, unit := range map[string]time.Duration{"EXPIRETIME": time.Second, "PEXPIRETIME": time.Millisecond} {
				n, err := strconv.ParseInt(c.do(cmd, "k").Text, 10, 64)
				at := time.Unix(0, n*int64(unit))
				if err != nil || at.Before(before.Add(998*time.Second)) || at.After(time.Now().Add(1002*time.Second)) {
					t.Errorf("%s %s: %v", cmd, read, at)
				}
			}
		}
		c.answers("1", "PERSIST", "k")
		c.answers("0", "PERSIST", "k")
		for _, cmd := range []string{"TTL", "PTTL", "EXPIRETIME", "PEXPIRETIME"} {
			c.answers("-1", cmd, "k")
			c.answers("-2", cmd, "nothing")
		}
	}
}

// A key without an end counts as one that ends never: GT leaves it alone, LT does not.
func TestExpireConditions(t *testing.T) {
	p := start(t, nil)
	c := dial(t, p.nodes[0].addr)
	for _, s := range []struct {
		had, cond, seconds, want string
	}{
		{"", "GT", "100", "0"}, {"", "LT", "100", "1"}, {"", "NX", "100", "1"}, {"", "XX", "100", "0"},
		{"50", "GT", "100", "1"}, {"50", "GT", "20", "0"}, {"50", "LT", "20", "1"}, {"50", "LT", "100", "0"}, {"50", "NX", "100", "0"}, {"50", "XX", "100", "1"},
	} {
		c.answers("OK", "SET", "k", "v")
		if s.had != "" {
			c.answers("1", "EXPIRE", "k", s.had)
		}
		c.answers(s.want, "EXPIRE", "k", s.seconds, s.cond)
		left, _ := strconv.Atoi(c.do("TTL", "k").Text)
		want := -1
		if s.had != "" {
			want, _ = strconv.Atoi(s.had)
		}
		if s.want == "1" {
			want, _ = strconv.Atoi(s.seconds)
		}
		if left != want && left != want-1 {
			t.Errorf("EXPIRE %s %s of a key with %q: %d seconds are left", s.seconds, s.cond, s.had, left)
		}
	}
}
