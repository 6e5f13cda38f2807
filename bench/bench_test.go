package bench

import (
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
