package bench

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/freshet-cache/freshet/bench/kit"
)

func TestAnUnknownExperimentIsRefused(t *testing.T) {
	if err := Run(t.Context(), "nothing", kit.Options{Out: t.TempDir()}); err == nil || !strings.Contains(err.Error(), "not known; there are causal-anomalies, ") {
		t.Error(err)
	}
}

// Each name is there once, and an experiment says what it measures and what its options do.
func TestExperimentsAreComplete(t *testing.T) {
	seen := map[string]bool{}
	for _, e := range Experiments() {
		if seen[e.Name] || e.About() == "" || len(e.Systems) == 0 || e.Run == nil || e.Tables == nil || e.Plots == nil {
			t.Errorf("%s is there twice, or not complete", e.Name)
		}
		seen[e.Name] = true
		for _, o := range e.Options {
			if o.Name == "" || o.Usage == "" {
				t.Errorf("%s has an option without a name or a usage: %+v", e.Name, o)
			}
		}
	}
}

// The pages in docs/results are what their JSON says: no figure there was written by hand.
func TestResultsAreRendered(t *testing.T) {
	const dir = "../docs/results"
	files, err := filepath.Glob(filepath.Join(dir, "*.json"))
	if err != nil || len(files) == 0 {
		t.Fatal(files, err)
	}
	for _, file := range files {
		name := strings.TrimSuffix(filepath.Base(file), ".json")
		r, err := kit.Load(file)
		if err != nil {
			t.Fatal(err)
		}
		e, err := find(r.Experiment)
		if err != nil {
			t.Fatal(err)
		}
		want, err := e.Page(r, name)
		if err != nil {
			t.Fatal(err)
		}
		got, err := os.ReadFile(filepath.Join(dir, name+".md"))
		if err != nil || string(got) != want {
			t.Errorf("%s/%s.md is not what its JSON says; run: go run ./cmd/freshet bench render docs/results (%v)", dir, name, err)
		}
	}
}
