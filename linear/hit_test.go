package linear

import (
	"context"
	"fmt"
	"testing"

	"github.com/freshet-cache/freshet/store/memory"
)

func TestHitsDoNotAllocate(t *testing.T) {
	if checkAlways {
		t.Skip("the invariants allocate, which are checked after every step in this build")
	}
	ctx := context.Background()
	c := open(t, Options[[]byte]{Store: memory.New(memory.Options{}), Codec: Bytes()})
	var keys []string
	for i := range 64 {
		keys = append(keys, fmt.Sprint("key", i))
		if err := c.Set(ctx, keys[i], []byte("value")); err != nil {
			t.Fatal(err)
		}
	}
	out := make([]Entry[[]byte], len(keys))
	hit := func() {
		for _, k := range keys {
			if _, ok, err := c.Get(ctx, k); !ok || err != nil {
				t.Fatal("no hit")
			}
		}
		if n := c.Hits(keys, out); n != len(keys) {
			t.Fatalf("%d hits", n)
		}
	}
	for range 2000 { // until every sample has its memory
		hit()
	}
	if n := testing.AllocsPerRun(2000, hit); n >= 1 {
		t.Errorf("%v allocations in %d hits", n, 2*len(keys))
	}
}

// Hits serves what Peek would, up to the first key that is not there.
func TestHitsIsManyPeeks(t *testing.T) {
	ctx := context.Background()
	c := open(t, Options[string]{Store: memory.New(memory.Options{}), Codec: String()})
	var keys []string
	for i := range 100 {
		keys = append(keys, fmt.Sprint("key", i))
		if i == 70 {
			continue
		}
		if _, err := c.SetTTL(ctx, keys[i], fmt.Sprint(i), 0); err != nil {
			t.Fatal(err)
		}
	}
	out := make([]Entry[string], 100)
	if n := c.Hits(keys, out); n != 70 {
		t.Fatalf("%d hits, and then none", n)
	}
	for i, e := range out[:70] {
		if want, ok := c.Peek(keys[i]); !ok || want != e {
			t.Fatalf("%+v, but Peek says %+v", e, want)
		}
	}
	if n := c.Hits(keys[70:], out); n != 0 {
		t.Fatalf("%d hits of a key that is not there", n)
	}
	if n := c.Hits(keys[71:], out); n != 29 || out[28].Value != "99" {
		t.Fatalf("%d hits, the last %+v", n, out[28])
	}
}
