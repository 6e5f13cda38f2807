package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

const (
	written = `{"client":1,"kind":"write","key":"k","value":"%s","start":%d,"end":%d,"outcome":"ok"}` + "\n"
	found   = `{"client":2,"kind":"read","key":"k","value":"%s","found":true,"start":%d,"end":%d,"outcome":"ok"}` + "\n"
)

// hard is a history that no short search can order: any of 40 additions of even
// numbers may have happened before an odd sum was read, and all 2^40 ways differ.
func hard() string {
	var b strings.Builder
	for i := range 40 {
		fmt.Fprintf(&b, `{"client":%d,"kind":"add","key":"k","delta":%d,"start":0,"outcome":"unknown"}`+"\n", i, 2<<i)
	}
	return b.String() + fmt.Sprintf(found, "1", 1, 2)
}

func TestCheckExitsAsItJudges(t *testing.T) {
	good := fmt.Sprintf(written+written+found, "1", 0, 1, "2", 2, 3, "2", 4, 5)
	for _, c := range []struct {
		name, history string
		code          int
		says          []string
	}{
		{"a good history", good, 0, []string{"linearizable: 3 operations on 1 keys", "stale reads: 0 of 1"}},
		{"a stale read", good + fmt.Sprintf(found, "1", 6, 7), 1, []string{"violated: 4 operations", `key "k"`, `read found "1"`, "|-|", "stale reads: 1 of 2"}},
		{"too hard", hard(), 2, []string{"undecided"}},
		{"no history", good + "{", 2, nil},
	} {
		file := filepath.Join(t.TempDir(), "history.jsonl")
		if err := os.WriteFile(file, []byte(c.history), 0o600); err != nil {
			t.Fatal(err)
		}
		for _, from := range []string{file, "-"} {
			cmd := judge()
			var out bytes.Buffer
			cmd.SetOut(&out)
			cmd.SetErr(&out)
			cmd.SilenceUsage, cmd.SilenceErrors = true, true
			cmd.SetIn(strings.NewReader(c.history))
			cmd.SetArgs([]string{from, "--limit", "20ms"})
			code := 0
			if err := cmd.Execute(); err != nil {
				code = exitCode(err)
			}
			if code != c.code {
				t.Errorf("%s: exit code %d, want %d\n%s", c.name, code, c.code, out.String())
			}
			for _, s := range c.says {
				if !strings.Contains(out.String(), s) {
					t.Errorf("%s: nothing says %q\n%s", c.name, s, out.String())
				}
			}
		}
	}
}

func TestCheckOfWhatIsNotThere(t *testing.T) {
	cmd := judge()
	cmd.SilenceUsage, cmd.SilenceErrors = true, true
	cmd.SetArgs([]string{filepath.Join(t.TempDir(), "none")})
	if err := cmd.Execute(); err == nil || exitCode(err) != 2 {
		t.Fatal(err)
	}
}
