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

// A set of few names holds each of them, and stands for all once there are too many.
func TestFew(t *testing.T) {
	var f Few
	if f.Remove("x"); !f.Empty() || len(f.List()) > 0 {
		t.Error("it is not empty")
	}
	for _, name := range []string{"y", "x", "z", "y"} {
		f.Add(name)
	}
	if f.Remove("x", "u"); f.Empty() || !slices.Equal(f.List(), []string{"y", "z"}) {
		t.Errorf("%v", f.List())
	}
	for i := range Most - 2 {
		f.Add(string(rune(1000 + i)))
	}
	if len(f.List()) != Most {
		t.Errorf("%d names", len(f.List()))
	}
	f.Add("one more")
	f.Add("and another")
	if f.Remove("y"); f.Empty() || len(f.List()) > 0 {
		t.Errorf("all names are %v", f.List())
	}
	if f.Remove(); !f.Empty() {
		t.Error("it is not empty")
	}
}
