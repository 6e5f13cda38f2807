package redis

import (
	"math"
	"strconv"
	"strings"
	"testing"
)

// matches is Match said plainly, without brackets: it may take for ever.
func matches(pattern, s string) bool {
	switch {
	case pattern == "":
		return s == ""
	case pattern[0] == '*':
		return matches(pattern[1:], s) || s != "" && matches(pattern, s[1:])
	case s == "":
		return false
	case pattern[0] == '\\' && len(pattern) > 1:
		return pattern[1] == s[0] && matches(pattern[2:], s[1:])
	}
	return (pattern[0] == '?' || pattern[0] == s[0]) && matches(pattern[1:], s[1:])
}

// FuzzGlob: no pattern panics, and without brackets each means what it says.
func FuzzGlob(f *testing.F) {
	for _, p := range []string{"*", "a*b", "?[a-z]", "[", "[^", "[]", "\\", "[\\", "[a-", "**a", "a\\*"} {
		f.Add(p, "a*b")
	}
	f.Fuzz(func(t *testing.T, pattern, s string) {
		got := Match(pattern, s)
		if len(pattern)+len(s) > 24 || strings.Contains(pattern, "[") {
			return
		}
		if want := matches(pattern, s); got != want {
			t.Errorf("%q and %q: %v, want %v", pattern, s, got, want)
		}
	})
}

// A pattern made to be slow is not.
func TestGlobIsQuick(t *testing.T) {
	if Match(strings.Repeat("*a", 2000)+"b", strings.Repeat("a", 4000)) {
		t.Error("there is no b")
	}
}

// FuzzDecimal: no text panics or costs more than its length, and what is a number
// to Go is the same number here.
func FuzzDecimal(f *testing.F) {
	for _, s := range []string{"0.1", "-1e5", "1e4000", "1e-4000", "1e99999999999", "1e999999999", "0x1p3", "inf", "nan", "-", ".", "1_0", "0b1", "1p5", "", "+-1", "0x", "5."} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		n, ok := parseDecimal([]byte(s))
		if !ok {
			return
		}
		want, err := strconv.ParseFloat(s, 64)
		got, _ := n.Float64()
		if err == nil && want != 0 && math.Abs(got-want) > math.Abs(want)*1e-15 {
			t.Errorf("%q is %v, not %v", s, got, want)
		}
	})
}
