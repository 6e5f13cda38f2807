package bench

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/freshet-cache/freshet/check"
	"github.com/freshet-cache/freshet/internal/pgserver"
)

// tiny runs an experiment at the least size and reads the results back.
func tiny(t *testing.T, opt Options) Report {
	t.Helper()
	opt.Out, opt.Command, opt.tiny = t.TempDir(), "freshet bench "+opt.Experiment, true
	var shown bytes.Buffer
	opt.Table = &shown
	progress := 0
	opt.Progress = func(string) { progress++ }
	if _, err := Run(t.Context(), opt); err != nil {
		t.Fatal(err)
	}
	var r Report
	b, err := os.ReadFile(filepath.Join(opt.Out, opt.Experiment+".json"))
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(b, &r); err != nil {
		t.Fatal(err)
	}
	page, err := os.ReadFile(filepath.Join(opt.Out, opt.Experiment+".md"))
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"# " + opt.Experiment, "Verdict of the checker", "Goals", "Machine: ", "Commit: ", "![", "`" + opt.Command + "`"} {
		if !strings.Contains(string(page), want) {
			t.Errorf("the page lacks %q", want)
		}
	}
	for _, kind := range []string{".png", ".svg"} {
		if b, err := os.ReadFile(filepath.Join(opt.Out, opt.Experiment+kind)); err != nil || len(b) < 1000 {
			t.Errorf("the plot %s has %d bytes: %v", kind, len(b), err)
		}
	}
	if r.Experiment != opt.Experiment || r.Commit == "" || r.Machine == "" || len(r.Headline) == 0 || progress == 0 || shown.Len() == 0 {
		t.Errorf("something is missing: %+v", r)
	}
	seen := map[any]bool{}
	for _, row := range r.Rows {
		seen[row["system"]] = true
	}
	for _, s := range opt.Systems {
		if !seen[s] {
			t.Errorf("%s has no row", s)
		}
	}
	for s, n := range r.Anomalies {
		if n != 0 && s != "ttl" && s != "csc" && s != "dax" { // which promise nothing
			t.Errorf("%s: %d anomalies", s, n)
		}
	}
	return r
}

func TestLinearHit(t *testing.T) {
	r := tiny(t, Options{Experiment: "linear-hit", Systems: hitSystems})
	if allocs := r.Headline["hit_allocs"]; allocs > 0.1 { // few operations are counted, beside what runs in the background
		t.Errorf("a hit allocates %g times", allocs)
	}
	if r.Headline["overhead_bytes"] <= 0 || r.Headline["hit_mops_per_core"] <= 0 {
		t.Error(r.Headline)
	}
}

func TestLinearTracking(t *testing.T) {
	systems := trackingSystems
	if _, err := exec.LookPath("redis-server"); err != nil {
		if os.Getenv("FRESHET_TEST_REQUIRE") != "" {
			t.Fatal(err)
		}
		t.Log("without redis-server:", err)
		systems = []string{"freshet-rueidis", "freshet-go-redis"}
	}
	r := tiny(t, Options{Experiment: "linear-tracking", Systems: systems})
	for _, row := range r.Rows {
		if row["reads"].(map[string]any)["median"].(float64) <= 0 {
			t.Errorf("%v has read nothing", row["system"])
		}
	}
}

func TestLinearRemote(t *testing.T) {
	systems := remoteSystems
	if _, err := exec.LookPath("redis-server"); err != nil {
		if os.Getenv("FRESHET_TEST_REQUIRE") != "" {
			t.Fatal(err)
		}
		t.Log("without redis-server:", err)
		systems = []string{"freshet-memory", "freshet-pebble"}
	}
	r := tiny(t, Options{Experiment: "linear-remote", Systems: systems})
	if len(systems) == len(remoteSystems) && r.Headline["freshet-memory_GET_c50_p32_times_rate"] <= 0 {
		t.Error("nothing was compared:", r.Headline)
	}
}

func TestLinearTrace(t *testing.T) {
	dir := t.TempDir()
	r := tiny(t, Options{Experiment: "linear-trace", Systems: traceSystems, History: dir})
	for _, system := range traceSystems {
		f, err := os.Open(filepath.Join(dir, "linear-trace-"+system+".jsonl"))
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		ops, err := check.ReadAll(f)
		if err != nil || len(ops) <= 500 {
			t.Errorf("the history of %s has %d operations: %v", system, len(ops), err)
		}
		if v := check.Linear(ops, 0); v.Finding != check.Linearizable {
			t.Errorf("%s: %s", system, v.Reason)
		}
	}
	if r.Headline["freshet_stale"] != 0 || r.Headline["freshet_GET_p50_us"] <= 0 {
		t.Error(r.Headline)
	}
}

func TestOptionsAreChecked(t *testing.T) {
	for says, opt := range map[string]Options{
		"not known":      {Experiment: "nothing"},
		"has no system":  {Experiment: "linear-hit", Systems: []string{"abacus"}},
		"neither smoke":  {Experiment: "linear-hit", Preset: "huge"},
		"is negative":    {Experiment: "linear-trace", Rate: -1},
		"more than all":  {Experiment: "linear-trace", Writes: 2},
		"cannot be kept": {Experiment: "linear-hit", Out: "bench_test.go/x"},
	} {
		if _, err := Run(t.Context(), opt); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: %v", says, err)
		}
	}
}

func TestWrongAnswersVoidTheFigures(t *testing.T) {
	experiments["wrong"] = experiment{systems: []string{"freshet"}, run: nil}
	defer delete(experiments, "wrong")
	for system, want := range map[string]error{"freshet": ErrAnomaly, "another": nil} {
		e := experiments["wrong"]
		e.run = wrongly(system)
		experiments["wrong"] = e
		if _, err := Run(t.Context(), Options{Experiment: "wrong", Out: t.TempDir()}); !errors.Is(err, want) {
			t.Errorf("%s: %v", system, err)
		}
	}
	stale := []check.Op{
		{Kind: check.Write, Key: "k", Value: "1", Start: 0, End: 1, Outcome: check.OK},
		{Kind: check.Write, Key: "k", Value: "2", Start: 2, End: 3, Outcome: check.OK},
		{Kind: check.Read, Key: "k", Value: "1", Found: true, Start: 4, End: 5, Outcome: check.OK},
	}
	if checked, wrong, err := judged(stale); checked != 3 || wrong != 1 || err == nil {
		t.Error(checked, wrong, err)
	}
}

func TestGuardOverhead(t *testing.T) {
	systems := guardSystems
	if pgserver.Bin() == "" {
		if os.Getenv("FRESHET_TEST_REQUIRE") != "" {
			t.Fatal("no PostgreSQL, and FRESHET_TEST_REQUIRE is set")
		}
		t.Log("without PostgreSQL, which is not installed")
		systems = systems[:2]
	}
	r := tiny(t, Options{Experiment: "guard-overhead", Systems: systems})
	for _, s := range systems {
		if r.Anomalies[s] > 0 {
			t.Errorf("%s committed %d writes under older guards", s, r.Anomalies[s])
		}
	}
}

// withServers are the systems of an experiment over PostgreSQL for which there is all
// they need here.
func withServers(t *testing.T, systems []string) []string {
	t.Helper()
	_, redis := exec.LookPath("redis-server")
	if pgserver.Bin() == "" || redis != nil {
		if os.Getenv("FRESHET_TEST_REQUIRE") != "" {
			t.Fatal("no PostgreSQL or no redis-server, and FRESHET_TEST_REQUIRE is set")
		}
		if pgserver.Bin() == "" {
			t.Skip("without PostgreSQL, which is not installed")
		}
		systems = slices.DeleteFunc(slices.Clone(systems), func(s string) bool { return s == "chrono" || s == "csc" })
	}
	return systems
}

func TestLinearTraces(t *testing.T) {
	r := tiny(t, Options{Experiment: "linear-traces", Systems: withServers(t, tableSystems)})
	for _, name := range []string{"uc", "meta-wg", "tw52", "tw7", "tw40", "tw48", "orm-busy", "lobsters"} {
		if r.Headline["freshet_"+name+"_p90_us"] <= 0 || r.Headline["storage_"+name+"_hit_percent"] != 0 || r.Headline["freshet_"+name+"_hit_percent"] <= 0 {
			t.Errorf("%s was not measured: %v", name, r.Headline)
		}
	}
}

func TestLinearWrites(t *testing.T) {
	r := tiny(t, Options{Experiment: "linear-writes", Systems: withServers(t, tableSystems)})
	if r.Headline["p90_times_freshet_50_percent"] <= 0 {
		t.Error("nothing was compared:", r.Headline)
	}
}

func TestLinearHotkey(t *testing.T) {
	r := tiny(t, Options{Experiment: "linear-hotkey", Systems: withServers(t, tableSystems)})
	if r.Headline["freshet_400_writes_per_second_p90_us"] <= 0 {
		t.Error("nothing was measured:", r.Headline)
	}
}

func TestLinearCores(t *testing.T) {
	r := tiny(t, Options{Experiment: "linear-cores", Systems: coreSystems})
	if r.Headline["freshet_mops_1_processors"] <= 0 || r.Headline["freshet-remote_mops_1_processors"] <= 0 {
		t.Error("nothing was measured:", r.Headline)
	}
}

func TestLinearReplicas(t *testing.T) {
	r := tiny(t, Options{Experiment: "linear-replicas", Systems: replicaSystems})
	if r.Headline["most_members"] < 2 || r.Headline["write_p99_times_5_replicas"] <= 0 || r.Headline["reads_times_5_replicas"] <= 0 {
		t.Error("no replica was there, or nothing was measured:", r.Headline)
	}
}

func TestLinearReshard(t *testing.T) {
	r := tiny(t, Options{Experiment: "linear-reshard", Systems: reshardSystems})
	if r.Headline["move_p99_ms"] <= 0 || r.Headline["freshet-resharding_served_percent"] != 100 {
		t.Error("nothing moved, or a read was not served:", r.Headline)
	}
}

func TestLinearFailover(t *testing.T) {
	withServers(t, nil)
	r := tiny(t, Options{Experiment: "linear-failover", Systems: failoverSystems})
	for _, s := range failoverSystems {
		if _, ok := r.Headline[s+"_writes_back_ms"]; !ok || r.Headline[s+"_reads_failed"] != 0 {
			t.Errorf("%s: a read failed, or nothing was measured: %v", s, r.Headline)
		}
	}
}

func TestCausalMicro(t *testing.T) {
	r := tiny(t, Options{Experiment: "causal-micro", Systems: causalSystems})
	for _, s := range causalSystems {
		if r.Headline[s+"_per_second"] <= 0 || r.Headline[s+"_300_p99_us"] <= 0 {
			t.Errorf("%s was not measured: %v", s, r.Headline)
		}
	}
}

func TestCausalAnomalies(t *testing.T) {
	r := tiny(t, Options{Experiment: "causal-anomalies", Systems: anomalySystems})
	if r.Headline["dax_3_nodes_percent"] <= 0 || r.Headline["dax_1_nodes_percent"] != 0 {
		t.Errorf("the eventual caches are too good, or too bad: %v", r.Headline)
	}
}

func TestCausalVisibility(t *testing.T) {
	r := tiny(t, Options{Experiment: "causal-visibility", Systems: visibilitySystems})
	for _, s := range visibilitySystems {
		if r.Headline[s+"_3_servers_us"] <= 0 {
			t.Errorf("%s was not measured: %v", s, r.Headline)
		}
	}
}

func TestCausalScale(t *testing.T) {
	r := tiny(t, Options{Experiment: "causal-scale", Systems: scaleSystems})
	for _, s := range scaleSystems {
		if r.Headline[s+"_kept"] <= 0 {
			t.Errorf("%s was not measured: %v", s, r.Headline)
		}
	}
}

func TestCausalOverhead(t *testing.T) {
	r := tiny(t, Options{Experiment: "causal-overhead", Systems: causalOverheadSystems})
	if token := r.Headline["token_bytes"]; token <= 0 || token >= 200 {
		t.Errorf("a token that carries nothing has %v bytes", token)
	}
}

func TestCausalMovie(t *testing.T) {
	r := tiny(t, Options{Experiment: "causal-movie", Systems: movieSystems})
	for _, s := range movieSystems {
		if r.Headline[s+"_per_second"] <= 0 || s != "dax" && r.Headline[s+"_missing"] != 0 {
			t.Errorf("%s was not measured, or showed a review that is not there: %v", s, r.Headline)
		}
	}
}
