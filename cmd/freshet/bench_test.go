package main

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/freshet-cache/freshet/bench"
)

func TestBenchSaysWhatThereIs(t *testing.T) {
	for _, args := range [][]string{{"--help"}, {"nothing"}} {
		cmd := benchmark()
		var out bytes.Buffer
		cmd.SetOut(&out)
		cmd.SilenceUsage, cmd.SilenceErrors = true, true
		cmd.SetArgs(args)
		text := ""
		if err := cmd.Execute(); err != nil {
			text = err.Error()
		}
		for _, e := range bench.Experiments() {
			if !strings.Contains(out.String()+text, e.Name) {
				t.Errorf("%v does not name %s", args, e.Name)
			}
		}
	}
}

// An experiment shows the options that it takes, and refuses others by naming those.
func TestAnExperimentHasItsOwnOptions(t *testing.T) {
	run := func(args ...string) string {
		cmd := benchmark()
		var out bytes.Buffer
		cmd.SetOut(&out)
		cmd.SilenceUsage, cmd.SilenceErrors = true, true
		cmd.SetArgs(args)
		if err := cmd.Execute(); err != nil {
			return err.Error()
		}
		return out.String()
	}
	for _, e := range bench.Experiments() {
		help := run(e.Name, "--help")
		for _, flag := range []string{"--redis", "--postgres", "--rate", "--writes", "--trace", "--history", "--preset", "--systems", "--out", "--seed"} {
			if takes := slices.Contains(e.Takes(), flag); strings.Contains(help, "      "+flag+" ") != takes {
				t.Errorf("%s takes %s: %v, and its help says:\n%s", e.Name, flag, takes, help)
			}
		}
	}
	if got := run("linear-hit", "--redis", "127.0.0.1:1"); got != "unknown flag: --redis; linear-hit takes --preset, --systems, --out, --seed" {
		t.Error(got)
	}
	if got := run("linear-trace", "--rate", "-3"); !strings.Contains(got, "--rate of linear-trace") {
		t.Error(got)
	}
	if got := run(); !strings.Contains(got, "freshet bench list") {
		t.Error(got)
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
