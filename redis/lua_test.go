package redis

import (
	"fmt"
	"strings"
	"testing"
)

// Two texts that differ only in form are one script; what is no script of the table, or
// no text, is none.
func TestPlain(t *testing.T) {
	const unlock = `if redis . call ( "get" , KEYS [ 1 ] ) == ARGV [ 1 ] then return redis . call ( "del" , KEYS [ 1 ] ) else return 0 end`
	for _, text := range []string{
		"if redis.call('GET',KEYS[1])==ARGV[1] then return redis.call('DEL',KEYS[1]) else return 0 end",
		"-- unlock\n  if redis.call(\"get\", KEYS[1]) == ARGV[1] --[[ mine ]] then\n\treturn redis.call(\"del\", KEYS[1]);\n else return 0 end\n",
	} {
		if got, ok := plain(text); !ok || got != unlock {
			t.Errorf("%q", got)
		}
	}
	for _, text := range []string{`return "x`, `return 'a\'b'`, "--[[ never ends", `return 'a"b'`} {
		if got, ok := plain(text); ok {
			t.Errorf("%q is %q", text, got)
		}
	}
	if a, _ := plain("return 'GET'"); a != `return "GET"` {
		t.Error("a value is not a command's name", a)
	}
}

// FuzzPlain: any text is read to its end, or refused.
func FuzzPlain(f *testing.F) {
	for _, s := range listing {
		f.Add(s.text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		p, ok := plain(text)
		if again, ok2 := plain(p); ok && (!ok2 || again != p) && !strings.Contains(p, "- -") && !strings.ContainsAny(p, "[;") {
			t.Errorf("%q becomes %q, and that %q", text, p, again)
		}
	})
}

// What clients load is bounded.
func TestLoadedScriptsAreBounded(t *testing.T) {
	var l loaded
	for i := range 3 * maxLoaded {
		if _, ok := l.load(fmt.Appendf(nil, "%s -- %d", listing[0].text, i)); !ok {
			t.Fatal("a comment made it another script")
		}
	}
	if len(l.all) > maxLoaded {
		t.Error(len(l.all))
	}
	if _, ok := l.load([]byte(listing[0].text + strings.Repeat(" ", maxScript))); ok {
		t.Error("a text of any length was read")
	}
}
