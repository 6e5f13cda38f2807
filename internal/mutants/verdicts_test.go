package mutants

import (
	"os"
	"path/filepath"
	"testing"
	"time"
)

// A verdict is found again as long as nothing has changed that it depends on.
func TestVerdicts(t *testing.T) {
	root := t.TempDir()
	write := func(name, text string) {
		path := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	depends := func() string {
		t.Helper()
		d, err := Depends(t.Context(), root, "./p")
		if err != nil {
			t.Fatal(err)
		}
		return d
	}
	for name, text := range map[string]string{"go.mod": "module m\n\ngo 1.26\n", "go.sum": "", "internal/mutants/x.go": "package mutants\n",
		"p/p.go": "package p\n\nimport _ \"m/q\"\n", "p/p_test.go": "package p\n", "p/testdata/a.txt": "a", "q/q.go": "package q\n", "q/q_test.go": "package q\n", "r/r.go": "package r\n"} {
		write(name, text)
	}
	was := depends()
	if now := depends(); now != was {
		t.Error("nothing has changed, and the hash has")
	}
	for name, text := range map[string]string{"r/r.go": "package r\n\nvar A int\n", "q/q_test.go": "package q\n\nvar A int\n"} {
		write(name, text)
		if depends() != was {
			t.Errorf("the tests do not depend on %s, and the hash does", name)
		}
	}
	for name, text := range map[string]string{"p/p_test.go": "package p\n\nvar A int\n", "q/q.go": "package q\n\nvar A int\n", "p/testdata/b/a.txt": "b", "internal/mutants/x.go": "package mutants\n\nvar A int\n", "go.sum": "\n"} {
		write(name, text)
		now := depends()
		if now == was {
			t.Errorf("%s has changed, and the hash has not", name)
		}
		was = now
	}
	list, err := Parse("p", "mutant: a\ntest: ./p T\nfails: x\nin: f\n-x\n+y\nmutant: b\ntest: ./p T\nfails: x\nin: f\n-x\n+z\n")
	if err != nil || list[0].Key(was) == list[0].Key("other") || list[0].Key(was) == list[1].Key(was) {
		t.Errorf("different mutants, or their tests, have one key: %v", err)
	}
}

// Verdicts that nobody has asked for in a long time are removed.
func TestOldVerdicts(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "verdicts")
	v, err := OpenVerdicts(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, key := range []string{"old", "asked for", "new"} {
		if err := v.Put(key, "said of "+key); err != nil {
			t.Fatal(err)
		}
	}
	for _, key := range []string{"old", "asked for"} {
		if err := os.Chtimes(filepath.Join(dir, key), time.Time{}, time.Now().Add(-2*keepVerdicts)); err != nil {
			t.Fatal(err)
		}
	}
	if said, ok := v.Get("asked for"); !ok || said != "said of asked for" {
		t.Error(said, ok)
	}
	if v, err = OpenVerdicts(dir); err != nil {
		t.Fatal(err)
	}
	for key, want := range map[string]bool{"old": false, "asked for": true, "new": true, "never": false} {
		if _, ok := v.Get(key); ok != want {
			t.Errorf("%s is known: %v", key, ok)
		}
	}
}
