package blackbox

import (
	"encoding/base64"
	"fmt"
	"math"
	"strings"
	"syscall"
	"testing"

	"github.com/freshet-cache/freshet/causal/dot"
	"github.com/freshet-cache/freshet/causal/mesh"
	"github.com/freshet-cache/freshet/causal/wire"
)

// forge makes what is in a token into other tokens: one as older versions made them without a key, and one with a code
// that is made up. head is a token of the space.
func forge(t *testing.T, head string, payload []byte) []string {
	t.Helper()
	b, err := base64.RawURLEncoding.DecodeString(head)
	if err != nil || len(b) < 9 {
		t.Fatalf("not a token: %q, %v", head, err)
	}
	open := append(append([]byte{1}, b[1:9]...), payload...)
	sealed := append(append(append([]byte{2}, b[1:9]...), payload...), make([]byte, 16)...)
	return []string{base64.RawURLEncoding.EncodeToString(open), base64.RawURLEncoding.EncodeToString(sealed)}
}

// Nobody has given a key, and somebody makes tokens up: they are refused, and do nothing to anybody else.
func TestForgedTokens(t *testing.T) {
	dir := t.TempDir()
	args := []string{"--data", dir, "--space", "feeds=causal"}
	p := run(t, 2, args...)
	ctx := t.Context()
	cset(t, p.client(0), "before", "v")
	mine, err := p.client(0).Do(ctx, "FR.BEGIN", "feeds").Text()
	if err != nil {
		t.Fatal(err)
	}
	carried := func(o dot.Incarnation, n, time uint64) []byte {
		w := &mesh.Write{Dot: dot.Dot{Incarnation: o, N: n}, Stamp: dot.Stamp{Time: time, Incarnation: o}, Muts: []mesh.Mut{{Key: "forged", Value: []byte("f")}}}
		return wire.Token(&mesh.Session{Carried: []*mesh.Write{w}}, math.MaxInt)
	}
	for what, payload := range map[string][]byte{
		"a time near 2^63":              wire.Token(&mesh.Session{Time: math.MaxInt64 - 1}, 0),
		"the largest time":              wire.Token(&mesh.Session{Time: math.MaxUint64}, 0),
		"a carried write that is next":  carried(1, 2, 1),
		"a carried write that is far":   carried(2, 1<<40, 1),
		"a carried write of the future": carried(1, 2, math.MaxInt64),
		"nothing":                       wire.Token(&mesh.Session{}, 0),
	} {
		for i, token := range forge(t, mine, payload) {
			for _, c := range []int{0, 1} {
				if err := p.client(c).Do(ctx, "FR.CSET", token, "theirs", "x").Err(); err == nil || !strings.HasPrefix(err.Error(), "BADTOKEN") {
					t.Errorf("a token with %s (%d): %v", what, i, err)
				}
				if err := p.client(c).Do(ctx, "FR.CGET", token, "before").Err(); err == nil || !strings.HasPrefix(err.Error(), "BADTOKEN") {
					t.Errorf("a token with %s (%d) reads: %v", what, i, err)
				}
			}
		}
	}
	batch(t, p.client(0), "mine", 10)
	batch(t, p.client(1), "yours", 10)
	if err := p.client(1).Do(ctx, "FR.CGET", mine, "before").Err(); err != nil {
		t.Errorf("a token that another node has made: %v", err)
	}
	_ = p.ends(syscall.SIGTERM)
	p = run(t, 2, args...)
	for name, n := range map[string]int{"mine": 10, "yours": 10} {
		if n := lost(t, p.client(0), name, n); n > 0 {
			t.Errorf("%d acknowledged writes of %s are lost", n, name)
		}
	}
	if err := p.client(0).Do(ctx, "FR.CGET", mine, "before").Err(); err != nil { // the key is the cluster's
		t.Errorf("a token from before the restart: %v", err)
	}
	_ = p.ends(syscall.SIGTERM)
	p = run(t, 2, append(args, "--token-key", fmt.Sprint("another ", "key"))...)
	if err := p.client(0).Do(ctx, "FR.CGET", mine, "before").Err(); err == nil || !strings.HasPrefix(err.Error(), "BADTOKEN") || !strings.Contains(err.Error(), "another key") {
		t.Errorf("a token of another key: %v", err)
	}
	cset(t, p.client(0), "after", "v")
}
