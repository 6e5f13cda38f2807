package causal

import (
	"testing"

	"github.com/freshet-cache/freshet/bench/kit"
	"github.com/freshet-cache/freshet/bench/kit/kittest"
)

func TestMain(m *testing.M) { kittest.Main(m) }

// tiny runs an experiment at the least size and reads the results back.
func tiny(t *testing.T, name string, opt kit.Options) kit.Report {
	t.Helper()
	return kittest.Tiny(t, kittest.Find(t, Experiments(), name), opt, "dax") // which promise nothing
}

func TestCausalMicro(t *testing.T) {
	r := tiny(t, "causal-micro", kit.Options{Systems: causalSystems})
	for _, s := range causalSystems {
		if r.Headline[s+"_per_second"] <= 0 || r.Headline[s+"_300_p99_us"] <= 0 {
			t.Errorf("%s was not measured: %v", s, r.Headline)
		}
	}
}

func TestCausalAnomalies(t *testing.T) {
	r := tiny(t, "causal-anomalies", kit.Options{Systems: anomalySystems})
	if r.Headline["dax_3_nodes_percent"] <= 0 || r.Headline["dax_1_nodes_percent"] != 0 {
		t.Errorf("the eventual caches are too good, or too bad: %v", r.Headline)
	}
}

func TestCausalVisibility(t *testing.T) {
	r := tiny(t, "causal-visibility", kit.Options{Systems: visibilitySystems})
	for _, s := range visibilitySystems {
		if r.Headline[s+"_3_servers_us"] <= 0 {
			t.Errorf("%s was not measured: %v", s, r.Headline)
		}
	}
}

func TestCausalScale(t *testing.T) {
	r := tiny(t, "causal-scale", kit.Options{Systems: scaleSystems})
	for _, s := range scaleSystems {
		if r.Headline[s+"_kept"] <= 0 {
			t.Errorf("%s was not measured: %v", s, r.Headline)
		}
	}
}

func TestCausalOverhead(t *testing.T) {
	r := tiny(t, "causal-overhead", kit.Options{Systems: causalOverheadSystems})
	if token := r.Headline["token_bytes"]; token <= 0 || token >= 200 {
		t.Errorf("a token that carries nothing has %v bytes", token)
	}
}

func TestCausalMovie(t *testing.T) {
	r := tiny(t, "causal-movie", kit.Options{Systems: movieSystems})
	for _, s := range movieSystems {
		if r.Headline[s+"_per_second"] <= 0 || s != "dax" && r.Headline[s+"_missing"] != 0 {
			t.Errorf("%s was not measured, or showed a review that is not there: %v", s, r.Headline)
		}
	}
}
