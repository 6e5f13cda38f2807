package kit

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/freshet-cache/freshet/check"
)

func pageOf(name string) *Pages {
	return ReadPages(fstest.MapFS{name + ".md": {Data: []byte("# " + name + "\n\nThis experiment measures\nnothing.\n\n## Set-up\n\n- Nothing is needed.\n")}})
}

func noTables(*Report) []Table { return nil }
func noPlots(*Report) []Plot   { return nil }

func TestOptionsAreChecked(t *testing.T) {
	ran := false
	e := Experiment{Name: "one", Pages: pageOf("one"), Tables: noTables, Plots: noPlots, Systems: []string{"freshet"}, Options: []Option{RateOption, {Name: "writes", Default: "0.05", Check: Share}},
		Run: func(_ context.Context, o Options) (*Report, error) {
			ran = true
			if o.Number("writes") != 0.05 || o.Number("rate") != 0 || o.Preset != "smoke" || o.Seed != 1 || len(o.Systems) != 1 {
				t.Errorf("defaults are not filled in: %+v", o)
			}
			return &Report{}, nil
		}}
	for says, opt := range map[string]Options{
		"has no system":      {Systems: []string{"abacus"}},
		"neither smoke":      {Preset: "huge"},
		"not more than zero": {Set: map[string]string{"rate": "-1"}},
		"is not a number":    {Set: map[string]string{"rate": "fast"}},
		"between 0 and 1":    {Set: map[string]string{"writes": "2"}},
		"--redis; it takes --rate, --writes, --preset, --systems, --out, --seed": {Set: map[string]string{"redis": "x"}},
		"cannot be kept": {Out: "experiment_test.go/x"},
	} {
		if err := e.Measure(t.Context(), opt); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: %v", says, err)
		}
	}
	if ran {
		t.Error("an experiment ran with wrong options")
	}
	if err := e.Measure(t.Context(), Options{Out: t.TempDir()}); err != nil || !ran {
		t.Error(err)
	}
}

func wrongly(system string) func(context.Context, Options) (*Report, error) {
	return func(context.Context, Options) (*Report, error) {
		return &Report{Anomalies: map[string]int{system: 1}}, nil
	}
}

func TestWrongAnswersVoidTheFigures(t *testing.T) {
	for system, want := range map[string]error{"freshet": ErrAnomaly, "another": nil} {
		e := Experiment{Name: "wrong", Pages: pageOf("wrong"), Tables: noTables, Plots: noPlots, Systems: []string{"freshet"}, Run: wrongly(system)}
		if err := e.Measure(t.Context(), Options{Out: t.TempDir()}); !errors.Is(err, want) {
			t.Errorf("%s: %v", system, err)
		}
	}
	e := Experiment{Name: "wrong", Pages: pageOf("wrong"), Tables: noTables, Plots: noPlots, Systems: []string{"pebble"}, Run: wrongly("pebble"), Ours: func(string) bool { return true }}
	if err := e.Measure(t.Context(), Options{Out: t.TempDir()}); !errors.Is(err, ErrAnomaly) {
		t.Errorf("all systems are ours: %v", err)
	}
	stale := []check.Op{
		{Kind: check.Write, Key: "k", Value: "1", Start: 0, End: 1, Outcome: check.OK},
		{Kind: check.Write, Key: "k", Value: "2", Start: 2, End: 3, Outcome: check.OK},
		{Kind: check.Read, Key: "k", Value: "1", Found: true, Start: 4, End: 5, Outcome: check.OK},
	}
	if checked, wrong, err := Judged(stale); checked != 3 || wrong != 1 || err == nil {
		t.Error(checked, wrong, err)
	}
}
