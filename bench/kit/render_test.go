package kit

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/fstest"
)

// shown is an experiment with all that a page can have.
func shown() Experiment {
	text := "# one\n\nThis experiment measures\none thing.\n\n## Set-up\n\n- {{.keys}} keys.\n\n{{template \"shared.md\" .}}\n"
	return Experiment{Name: "one", Systems: []string{"freshet", "other"},
		Pages: ReadPages(fstest.MapFS{"one.md": {Data: []byte(text)}, "shared.md": {Data: []byte("- {{.rounds}} rounds.\n")}}),
		Tables: func(r *Report) []Table {
			return []Table{{Title: "Times", Rows: r.With("ns"), Columns: Columns("system", "system", "n", "count", "ns", "ns each")}}
		},
		Plots: func(r *Report) []Plot {
			bar := Plot{Title: "Bars", Y: "ns", LogY: true}
			bar.Groups, bar.Series = Grouped(r.Rows, By("n"), By("system"), "ns")
			return []Plot{bar, {Title: "Lines", X: "n", Y: "ns", Series: Curves(r.Rows, "n", "ns"), Level: 2, Mark: true}}
		}}
}

func someReport() *Report {
	r := NewReport()
	r.Experiment, r.Machine, r.Commit, r.Command, r.Took = "one", "a machine", "abc", "freshet bench one", "3s"
	for i, s := range []string{"freshet", "other"} {
		for _, n := range []int{1, 2, 8} {
			r.Rows = append(r.Rows, Row{"system": s, "n": n, "ns": Spread{float64(n*10 + i), float64(n * 9), float64(n * 12)}})
		}
	}
	r.Goal("fast", "<= 5", "", Spread{10, 9, 12}, false)
	r.Judge("freshet", 7, 0)
	r.Set("keys", 100_000)
	r.Set("rounds", 2.5)
	r.Remark("a remark of %d", 1)
	return r
}

// What is shown is a function of the JSON: made again, it is the same.
func TestAPageIsAFunctionOfTheJSON(t *testing.T) {
	dir, e := t.TempDir(), shown()
	if err := e.write(someReport(), dir, "name"); err != nil {
		t.Fatal(err)
	}
	all := map[string]string{}
	for _, file := range []string{"name.md", "name.png", "name.svg", "name-2.png", "name-2.svg"} {
		b, err := os.ReadFile(filepath.Join(dir, file))
		if err != nil {
			t.Fatal(err)
		}
		all[file] = string(b)
	}
	page := all["name.md"]
	for _, want := range []string{"# name\n", "Measured: one thing.\n", "| freshet | 8 | 80.00 (72.00..96.00) |", "| fast | <= 5 | - | 10.00 (9.00..12.00) | not met |", "| freshet | 7 | 0 |",
		"- 100000 keys.", "- 2.5 rounds.", "- a remark of 1", "![Bars](name.svg)", "![Lines](name-2.svg)", "`freshet bench one`, which took 3s."} {
		if !strings.Contains(page, want) {
			t.Errorf("the page lacks %q:\n%s", want, page)
		}
	}
	if err := e.Render(dir, "name"); err != nil {
		t.Fatal(err)
	}
	for file, before := range all {
		if b, err := os.ReadFile(filepath.Join(dir, file)); err != nil || string(b) != before {
			t.Errorf("%s is not the same when it is made again: %v", file, err)
		}
	}
	r := someReport()
	delete(r.Setting, "rounds")
	if _, err := e.Page(r, "name"); err == nil || !strings.Contains(err.Error(), "rounds") {
		t.Errorf("a figure of the text is missing, and nobody says so: %v", err)
	}
}

// A cell has after a JSON the type that it had before.
func TestRowsSurviveJSON(t *testing.T) {
	row := Row{"n": 8, "x": 2.5, "name": "freshet", "full": true, "s": Spread{2, 1, 3}}
	b, err := json.Marshal(row)
	if err != nil {
		t.Fatal(err)
	}
	var got Row
	if err := json.Unmarshal(b, &got); err != nil {
		t.Fatal(err)
	}
	for k, v := range row {
		if got[k] != v {
			t.Errorf("%s is %v (%T), and was %v (%T)", k, got[k], got[k], v, v)
		}
	}
}

func TestTicks(t *testing.T) {
	labels := func(log bool, low, high float64) (out []string) {
		for _, at := range (ticks{log}).Ticks(low, high) {
			if at.Label != "" {
				out = append(out, at.Label)
			}
		}
		return out
	}
	for want, got := range map[string][]string{
		"0 50 100 150 200 250": labels(false, 0, 280), "0 0.5 1 1.5 2 2.5": labels(false, 0, 2.7), "-2 0 2 4 6": labels(false, -2, 7),
		"0 20k 40k 60k 80k": labels(false, 0, 90_000), "2k 5k 10k 20k": labels(true, 1500, 30_000), "1 10 100 1k 10k": labels(true, 0.7, 12_000),
	} {
		if strings.Join(got, " ") != want {
			t.Errorf("%v, want %s", got, want)
		}
	}
}

// Bars that would end below a logarithmic axis are left out, and nothing fails.
func TestPlotsTakeZeros(t *testing.T) {
	for _, log := range []bool{false, true} {
		p := Plot{Title: "zeros", Y: "ns", LogY: log, Groups: []string{"a"}, Series: []Series{{"one", []Point{{0, Spread{}}}}}}
		if err := p.save(filepath.Join(t.TempDir(), "p")); err != nil {
			t.Error(err)
		}
	}
}

func TestRounds(t *testing.T) {
	var r Rounds[string]
	for i, v := range []float64{2, 4, 6} {
		r.Add("a", "ns", v)
		r.Add("b", "ns", float64(i+1))
	}
	row := Row{}
	r.Fill(row, "a", "ns", "cpu")
	if row["ns"] != (Spread{4, 2, 6}) || r.Times("a", "b", "ns") != (Spread{2, 2, 2}) || len(row) != 1 {
		t.Error(row)
	}
	if r.Has("c") || !r.Has("a") || !slices.Equal(r.Of("b", "ns"), []float64{1, 2, 3}) {
		t.Error("a case is there that was not measured, or the other way round")
	}
}
