package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/freshet-cache/freshet/bench"
)

func TestBenchSaysWhatThereIs(t *testing.T) {
	names, _ := bench.Experiments()
	for _, args := range [][]string{{"--help"}, {"nothing"}} {
		cmd := benchmark()
		var out bytes.Buffer
		cmd.SetOut(&out)
		cmd.SilenceUsage, cmd.SilenceErrors = true, true
		cmd.SetArgs(append(args, "--out", filepath.Join(t.TempDir(), "none")))
		text := ""
		if err := cmd.Execute(); err != nil {
			text = err.Error()
		}
		for _, n := range names {
			if !strings.Contains(out.String()+text, n) {
				t.Errorf("%v does not name %s", args, n)
			}
		}
	}
}

// A progress line is for terminals: nothing of it is in a log.
func TestProgressIsForTerminals(t *testing.T) {
	f, err := os.Create(filepath.Join(t.TempDir(), "log"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	show, done := progressLine(f)
	show("round 1")
	done()
	if info, err := f.Stat(); err != nil || info.Size() != 0 {
		t.Fatal(info.Size(), err)
	}
}
