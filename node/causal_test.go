package node

import (
	"context"
	"testing"
	"time"

	"github.com/freshet-cache/freshet/causal"
	"github.com/freshet-cache/freshet/codec"
)

// A space of the process is the same in Go and in commands: tokens go from one to the other.
func TestCausalSpaceInGo(t *testing.T) {
	p := start(t, func(c *Config) { c.Spaces, c.TokenKey = spacesOf(t, "feeds=causal"), "" })
	space, err := CausalSpace(p, "feeds", causal.SpaceOptions[string]{Codec: codec.String()})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	c := dial(t, p.nodes[0].addr)
	from := token(t, c.do("FR.BEGIN", "feeds")) // when that is answered, the process has the ring's key
	s, err := space.Resume(from)
	for err == nil {
		if err = s.Set(ctx, "album", "picture"); err == nil || ctx.Err() != nil {
			break
		}
		err = nil // not yet joined
	}
	if err != nil {
		t.Fatal(err)
	}
	told, err := s.Token()
	if err != nil {
		t.Fatal(err)
	}
	r := c.do("FR.CGET", told, "album")
	if r.Kind != '*' || r.Elems[1].Text != "picture" {
		t.Errorf("the session reads %v over the wire", r)
	}
	back, err := space.Resume(token(t, c.do("FR.CSET", r.Elems[0].Text, "album", "two pictures")))
	if err != nil {
		t.Fatal(err)
	}
	if v, ok, err := back.Get(ctx, "album"); v != "two pictures" || !ok || err != nil {
		t.Errorf("the session reads %q, %v, %v in Go", v, ok, err)
	}
	if _, err := CausalSpace(p, "walls", causal.SpaceOptions[string]{Codec: codec.String()}); err == nil {
		t.Error("a space is open that nobody named")
	}
}
