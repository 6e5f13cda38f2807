package linear

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/freshet-cache/freshet/bench/kit"
	"github.com/freshet-cache/freshet/bench/kit/kittest"
	"github.com/freshet-cache/freshet/check"
)

func TestMain(m *testing.M) { kittest.Main(m) }

// tiny runs an experiment at the least size and reads the results back.
func tiny(t *testing.T, name string, opt kit.Options) kit.Report {
	t.Helper()
	return kittest.Tiny(t, kittest.Find(t, Experiments(), name), opt, "ttl", "csc") // which promise nothing
}

// withServers are the systems of an experiment over PostgreSQL for which there is all they
// need here.
func withServers(t *testing.T, systems []string) []string {
	t.Helper()
	systems = kittest.WithRedis(t, systems, func(s string) bool { return s == "chrono" || s == "csc" })
	return kittest.WithPostgres(t, systems, func(string) bool { return true })
}

func TestLinearHit(t *testing.T) {
	r := tiny(t, "linear-hit", kit.Options{Systems: hitSystems})
	if allocs := r.Headline["hit_allocs"]; allocs > 0.1 { // few operations are counted, beside what runs in the background
		t.Errorf("a hit allocates %g times", allocs)
	}
	if r.Headline["overhead_bytes"] <= 0 || r.Headline["hit_mops_per_core"] <= 0 {
		t.Error(r.Headline)
	}
}

func TestLinearTracking(t *testing.T) {
	systems := kittest.WithRedis(t, trackingSystems, func(s string) bool { return strings.HasPrefix(s, "redis") })
	r := tiny(t, "linear-tracking", kit.Options{Systems: systems})
	for _, row := range r.Rows {
		if row["reads"].(kit.Spread).Median <= 0 {
			t.Errorf("%v has read nothing", row["system"])
		}
	}
}

func TestLinearRemote(t *testing.T) {
	systems := kittest.WithRedis(t, remoteSystems, func(s string) bool { return strings.HasPrefix(s, "redis") })
	r := tiny(t, "linear-remote", kit.Options{Systems: systems})
	if len(systems) == len(remoteSystems) && r.Headline["freshet-memory_GET_c50_p32_times_rate"] <= 0 {
		t.Error("nothing was compared:", r.Headline)
	}
}

func TestLinearTrace(t *testing.T) {
	dir := t.TempDir()
	r := tiny(t, "linear-trace", kit.Options{Systems: traceSystems, Set: map[string]string{"history": dir}})
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

func TestGuardOverhead(t *testing.T) {
	systems := kittest.WithPostgres(t, guardSystems, func(s string) bool { return strings.HasPrefix(s, "postgres") })
	r := tiny(t, "guard-overhead", kit.Options{Systems: systems})
	for _, s := range systems {
		if r.Anomalies[s] > 0 {
			t.Errorf("%s committed %d writes under older guards", s, r.Anomalies[s])
		}
	}
}

func TestLinearTraces(t *testing.T) {
	r := tiny(t, "linear-traces", kit.Options{Systems: withServers(t, tableSystems)})
	for _, name := range []string{"uc", "meta-wg", "tw52", "tw7", "tw40", "tw48", "orm-busy", "lobsters"} {
		if r.Headline["freshet_"+name+"_p90_us"] <= 0 || r.Headline["storage_"+name+"_hit_percent"] != 0 || r.Headline["freshet_"+name+"_hit_percent"] <= 0 {
			t.Errorf("%s was not measured: %v", name, r.Headline)
		}
	}
}

func TestLinearWrites(t *testing.T) {
	r := tiny(t, "linear-writes", kit.Options{Systems: withServers(t, tableSystems)})
	if r.Headline["p90_times_freshet_50_percent"] <= 0 {
		t.Error("nothing was compared:", r.Headline)
	}
}

func TestLinearHotkey(t *testing.T) {
	r := tiny(t, "linear-hotkey", kit.Options{Systems: withServers(t, tableSystems)})
	if r.Headline["freshet_400_writes_per_second_p90_us"] <= 0 {
		t.Error("nothing was measured:", r.Headline)
	}
}

func TestLinearCores(t *testing.T) {
	r := tiny(t, "linear-cores", kit.Options{Systems: coreSystems})
	if r.Headline["freshet_mops_1_processors"] <= 0 || r.Headline["freshet-remote_mops_1_processors"] <= 0 {
		t.Error("nothing was measured:", r.Headline)
	}
}

func TestLinearReplicas(t *testing.T) {
	r := tiny(t, "linear-replicas", kit.Options{Systems: replicaSystems})
	if r.Headline["most_members"] < 2 || r.Headline["write_p99_times_5_replicas"] <= 0 || r.Headline["reads_times_5_replicas"] <= 0 {
		t.Error("no replica was there, or nothing was measured:", r.Headline)
	}
}

func TestLinearReshard(t *testing.T) {
	r := tiny(t, "linear-reshard", kit.Options{Systems: reshardSystems})
	if r.Headline["move_p99_ms"] <= 0 || r.Headline["freshet-resharding_served_percent"] != 100 {
		t.Error("nothing moved, or a read was not served:", r.Headline)
	}
}

func TestLinearFailover(t *testing.T) {
	r := tiny(t, "linear-failover", kit.Options{Systems: kittest.WithPostgres(t, failoverSystems, func(string) bool { return true })})
	for _, s := range failoverSystems {
		if _, ok := r.Headline[s+"_writes_back_ms"]; !ok || r.Headline[s+"_reads_failed"] != 0 {
			t.Errorf("%s: a read failed, or nothing was measured: %v", s, r.Headline)
		}
	}
}
