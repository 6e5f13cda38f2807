package names

import (
	"slices"
	"testing"
)

// A load is overtaken by an invalidation of its key, its tags or everything after it began, and of nothing else.
func TestCounts(t *testing.T) {
	c := NewCounts(4096)
	c.Invalidate("x")
	began := c.Now()
	if c.Since(began, "x", []string{"t"}) {
		t.Error("overtaken by what was before")
	}
	c.Invalidate("y")
	if c.Since(began, "x", []string{"t"}) || !c.Since(began, "y", nil) || !c.Since(began, "x", []string{"t", "y"}) {
		t.Error("y was invalidated")
	}
	c.InvalidateAll()
	if !c.Since(began, "z", nil) || c.Since(c.Now(), "z", []string{"x", "y"}) {
		t.Error("everything was invalidated")
	}
	one := NewCounts(1)
	if one.Invalidate("x"); !one.Since(0, "y", nil) {
		t.Error("names that share a slot are told apart")
	}
}

// Keys are found by each of their tags as long as they are there.
func TestIndex(t *testing.T) {
	x := Index{}
	x.Add("b", []string{"t", "u", "t"})
	x.Add("a", []string{"t"})
	if !slices.Equal(x.Keys("t"), []string{"a", "b"}) || !slices.Equal(x.Keys("u"), []string{"b"}) {
		t.Errorf("%v", x)
	}
	x.Remove("b", []string{"t", "u", "t"})
	if x.Remove("c", []string{"t", "v"}); len(x) != 1 || !slices.Equal(x.Keys("t"), []string{"a"}) {
		t.Errorf("%v", x)
	}
}
